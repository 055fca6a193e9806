"""One run, as its coordinator writes it: reserve, open, commit or void, finish.

Nothing is sent before `open_round` returns, and nothing is shown before `commit_round` returns. A commit is one
transaction: the round, who took part, the charge, the noise row, the checkpoint's digest, the statistics.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sqlalchemy import Connection, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from fieldfare.accounting import PrivacyLoss
from fieldfare.errors import BadInput, BudgetRefused, LedgerError
from fieldfare_server import faults
from fieldfare_server.ledger import blobs, budget, chain, leases, models, reads
from fieldfare_server.ledger.journal import Entry, Journal, clean
from fieldfare_server.ledger.users import SortedIndex, pseudonyms, salted
from fieldfare_server.ledger.views import EndState, Request

_CHUNK = 1 << 17
"""Users registered in one transaction: bounds memory, and what a crash repeats."""
_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True, eq=False)
class OpenRound:
    """A round that is durable in the ledger and not closed yet."""

    index: int
    attempt: int
    """0, and one more after every void attempt at the same round."""
    noise_row: int
    """The row of B z that this round's sum will get, if it is committed."""
    cohort: NDArray[np.int64]
    """Sorted user indices, shape (cohort size,)."""
    id: int


class RunHandle:
    """The write side of one run, for the coordinator that holds its lease. Not thread-safe, except `heartbeat`.

    As a context manager it gives the lease back at the end, so that the run can be resumed at once.
    """

    def __init__(self, journal: Journal, run_id: str, token: int, lease_seconds: float) -> None:
        self._journal, self._token = journal, token
        self.lease_seconds = lease_seconds
        """How long this coordinator may be silent."""
        with journal.database.read() as connection:
            run = reads.run_row(connection, run_id)
            c = models.populations.c
            population = connection.execute(select(models.populations).where(c.id == run.population_id)).one()
            self._users_known = population.users
            try:
                self._taken_part = reads.participation(connection, run.seq, population.users)
            except ValueError as error:
                raise LedgerError(f"run {run_id}", f"its participation record is corrupt: {error}.") from None
            self._open = self._find_open(connection, run.seq)
        self._seq, self._population_id, self._salt = run.seq, run.population_id, population.salt
        self.id: str = run.id
        self.population: str = population.name
        self.delta: float = population.delta
        self.adjacency: str = population.adjacency
        self.rounds: int = run.rounds
        self.next_round: int = run.next_round
        self.planned: PrivacyLoss = PrivacyLoss.from_json(run.planned)
        self.spent: PrivacyLoss = PrivacyLoss.from_json(run.spent)
        """Cumulative loss of this run's committed rounds."""
        self.checkpoint: str | None = run.checkpoint
        """Digest of the newest committed checkpoint."""
        self.plan_json: str = run.plan
        self.plan_digest: str = run.plan_digest
        self._users_loaded = 0
        self._by_hash, self._by_pseudonym = SortedIndex(), SortedIndex()
        self._renewed = time.monotonic()
        self._over = False

    def __enter__(self) -> RunHandle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._over:
            self.hand_back("" if error is None else f"{type(error).__name__}: {error}")

    # -- the lease ----------------------------------------------------------------------------------------------

    def heartbeat(self) -> None:
        """Say that this coordinator is alive; cheap enough for every loop. Raises `LedgerError` if it was replaced."""
        if time.monotonic() - self._renewed < self.lease_seconds / 6:
            return
        self._journal.write(self._fence)
        self._renewed = time.monotonic()

    def hand_back(self, message: str = "") -> None:
        """Stop here and let anyone resume at once; the reservation stays. The state becomes `interrupted`."""

        message = clean(message, 2000)

        def work(connection: Connection, entry: Entry) -> None:
            self._fence(connection, entry)
            self._update_run(connection, state="interrupted", message=message)
            leases.give_back(connection, self._seq)
            self._record(entry, "run.interrupt", {"message": message})

        self._write(work)
        self._over = True

    # -- users --------------------------------------------------------------------------------------------------

    @property
    def users(self) -> int:
        """How many users the population has, as far as this handle knows."""
        return int(self._users_known)

    def register_users(self, ids: ArrayLike) -> NDArray[np.int64]:
        """The index of each user within the population, shape (len(ids),); users that are new get the next indices.

        ids: uint64 pseudonyms. Raises ValueError on other arrays. Known users cost no transaction.

        Under `add_remove` every call leaves exactly one audit row, whoever was new: a row only where somebody is new
        would tell that somebody is there. Call it at moments that do not depend on who is there.
        """
        wanted = pseudonyms(ids)
        if self._secretive:
            return self._register(wanted)
        found = np.empty(wanted.shape, dtype=np.int64)
        for at in range(0, wanted.size, _CHUNK):
            found[at : at + _CHUNK] = self._register(wanted[at : at + _CHUNK])
        return found

    def _register(self, wanted: NDArray[np.uint64]) -> NDArray[np.int64]:
        found = self._by_pseudonym.get(wanted)
        if (found >= 0).all() and not self._secretive:
            return found
        missing, first = np.unique(wanted[found < 0], return_index=True)
        order = np.argsort(first)  # new users are numbered in the order in which they were named
        missing = missing[order]
        hashes = salted(missing, self._salt)
        if self._users_loaded < self._users_known:
            with self._journal.database.read() as connection:
                self._load_users(connection)
        if (self._by_hash.get(hashes) < 0).any() or self._secretive:
            self._journal.write(lambda connection, entry: self._add_users(connection, entry, hashes))
            with self._journal.database.read() as connection:
                self._load_users(connection)
        self._by_pseudonym.add(missing, self._by_hash.get(hashes))
        self._taken_part.grow(self._users_known)
        return self._by_pseudonym.get(wanted)

    def participation(self, indices: ArrayLike) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """(last committed round of this run, -1 for never; how many), each int32 of `indices`' shape."""
        return self._taken_part.last_and_count(self._known(indices))

    def patterns(self, indices: ArrayLike) -> list[tuple[int, ...]]:
        """The committed rounds of this run in which each user took part, increasing; () for never."""
        return self._taken_part.patterns(self._known(indices))

    # -- rounds -------------------------------------------------------------------------------------------------

    def open_round(self, cohort: ArrayLike) -> OpenRound:
        """Make the next round durable before anything of it is sent.

        cohort: distinct user indices (it may be empty: Poisson sampling sometimes selects nobody).
        Raises `LedgerError` while another round is open, after the last round, or when the run was taken over.
        """
        users = np.sort(self._known(cohort))
        blob = blobs.encode(users)
        index = self.next_round
        if index >= self.rounds:
            raise LedgerError(f"round {index} of run {self.id}", f"the run has {self.rounds} rounds.", "finish the run")

        def work(connection: Connection, entry: Entry) -> OpenRound:
            self._fence(connection, entry)
            c = models.rounds.c
            where = (c.run_seq == self._seq, c.index == index)
            attempt: int = connection.execute(select(func.count()).where(*where)).scalar_one()
            values = {
                "run_seq": self._seq,
                "index": index,
                "attempt": attempt,
                "noise_row": index,
                "state": "open",
                "cohort": blob,
                "cohort_size": users.size,
                "reports": 0,
                "participants": 0,
                "statistics": "{}",
                "rejects": "{}",
                "reason": "",
                "opened_at": entry.now,
            }
            try:
                number: int = connection.execute(insert(models.rounds).values(values).returning(c.id)).scalar_one()
            except IntegrityError:
                raise LedgerError(
                    f"round {index} of run {self.id}", "another round is open.", "commit or void that one first"
                ) from None
            body = {"attempt": attempt, "noise_row": index, "cohort_size": int(users.size), "cohort": _sha256(blob)}
            self._record(entry, "round.open", body, index)
            faults.point("ledger.round.opening")
            return OpenRound(index, attempt, index, users, number)

        self._open = self._write(work)
        faults.point("ledger.round.opened")
        return self._open

    def open_round_pending(self) -> OpenRound | None:
        """The round that is open: after a crash, the one to roll forward (its checkpoint is complete) or to void."""
        return self._open

    def void_round(
        self, round: OpenRound, reason: str, *, reports: int = 0, rejects: Mapping[str, int] | None = None
    ) -> None:
        """Close `round` with nothing released: no charge, no participation, and its noise row is free again."""
        counts, reason = dict(rejects or {}), clean(reason, 2000)

        def work(connection: Connection, entry: Entry) -> None:
            self._fence(connection, entry)
            state, _ = self._state(connection, round)
            if state == "void":
                return
            self._require_open(round, state)
            self._close(connection, round, "void", entry.now, reports, counts, reason=reason)
            body = {"attempt": round.attempt, "reason": reason, "reports": reports, "rejects": counts}
            self._record(entry, "round.void", body, round.index)
            faults.point("ledger.round.voiding")

        self._write(work)
        self._open = None
        faults.point("ledger.round.voided")

    def commit_round(
        self,
        round: OpenRound,
        participants: ArrayLike,
        spent: PrivacyLoss,
        checkpoint_digest: str,
        statistics: Mapping[str, Any] | None = None,
        rejects: Mapping[str, int] | None = None,
        reports: int = 0,
    ) -> None:
        """Charge `round` durably. Only after this returns may anybody see what the round made.

        participants: user indices whose updates are in the released sum, a subset of the cohort.
        spent: loss of this run including this round; not below what is spent, not above what is reserved.
        checkpoint_digest: SHA-256, hex. statistics: public or privatised values only; finite JSON.
        Repeating the call after a lost connection is safe. Raises `BudgetRefused` if `spent` is out of bounds,
        `BadInput` on anything malformed, `LedgerError` if the round is not open or the run was taken over.
        """
        users = np.sort(self._known(participants))
        blob = blobs.encode(users)
        if not np.isin(users, round.cohort, assume_unique=True).all():
            raise BadInput(f"participants of round {round.index}", "some of them are not in its cohort.")
        if len(checkpoint_digest) != 64 or not _HEX.issuperset(checkpoint_digest):
            raise BadInput(f"checkpoint digest {checkpoint_digest[:80]!r}", "a digest is SHA-256 in 64 hex digits.")
        counts = dict(rejects or {})
        try:
            told = chain.canonical(dict(statistics or {}))
        except (TypeError, ValueError) as error:
            raise BadInput(f"statistics of round {round.index}", f"not finite JSON ({error}).") from None
        loss = spent.to_json()
        so_far = budget.epsilon(spent, self.delta)

        def work(connection: Connection, entry: Entry) -> None:
            self._fence(connection, entry)
            state, digest = self._state(connection, round)
            if state == "committed" and digest == checkpoint_digest:
                return
            self._require_open(round, state)
            run = reads.run_row(connection, self.id)
            before = PrivacyLoss.from_json(run.spent)
            if not budget.at_most(before, spent):
                raise BudgetRefused(
                    f"the charge of round {round.index} of run {self.id}",
                    f"a charge never shrinks: {spent} is less than {before}, which is spent already.",
                )
            if not budget.at_most(spent, self.planned):
                raise BudgetRefused(
                    f"the charge of round {round.index} of run {self.id}",
                    f"{spent} is more than {self.planned}, which the run reserved.",
                    "end the run with its last committed model",
                )
            values: dict[str, Any] = {
                "participants": users.size,
                "spent": loss,
                "epsilon": so_far,
                "checkpoint": checkpoint_digest,
                "statistics": told,
            }
            self._close(connection, round, "committed", entry.now, reports, counts, **values)
            row = {"round_id": round.id, "run_seq": self._seq, "index": round.index, "count": users.size, "users": blob}
            connection.execute(insert(models.participations).values(row))
            self._update_run(connection, spent=loss, next_round=round.index + 1, checkpoint=checkpoint_digest)
            body = {
                "attempt": round.attempt,
                "noise_row": round.noise_row,
                "participants": _sha256(blob),
                "participant_count": int(users.size),
                "spent": loss,
                "epsilon": so_far,
                "checkpoint": checkpoint_digest,
                "statistics": _sha256(told.encode()),
                "reports": reports,
                "rejects": counts,
            }
            self._record(entry, "round.commit", body, round.index)
            faults.point("ledger.round.committing")

        self._write(work)
        faults.point("ledger.round.committed")
        self._taken_part.add(round.index, users)
        self.next_round, self.spent, self.checkpoint = round.index + 1, spent, checkpoint_digest
        self._open = None

    # -- the end ------------------------------------------------------------------------------------------------

    def request(self) -> Request | None:
        """What somebody asked of this run through `Ledger.request`, if anything."""
        with self._journal.database.read() as connection:
            wish: Request | None = reads.run_row(connection, self.id).request
        return wish

    def finish(self, state: EndState, message: str = "") -> None:
        """End the run: what it spent stays charged, what it reserved beyond that returns. An open round is voided."""
        if self._open is not None:
            self.void_round(self._open, f"the run ended: {state}")

        def work(connection: Connection, entry: Entry) -> None:
            self._fence(connection, entry)
            settle(connection, entry, self.id, state, message, self.id)
            faults.point("ledger.run.finishing")

        self._write(work)
        self._over = True
        faults.point("ledger.run.finished")

    # -- inside -------------------------------------------------------------------------------------------------

    def _write(self, work: Any) -> Any:
        result = self._journal.write(work)
        self._renewed = time.monotonic()
        return result

    def _fence(self, connection: Connection, entry: Entry) -> None:
        leases.renew(connection, self._seq, self.id, self._token, entry.now)

    @property
    def _secretive(self) -> bool:
        return self.adjacency == "add_remove"

    def _record(self, entry: Entry, action: str, body: Mapping[str, Any], index: int | None = None) -> None:
        if self._secretive:
            # The body has counts that are not shown, its hash is: random bits keep anybody from trying counts on it.
            body = {**body, "blind": secrets.token_hex(16)}
        entry.append(action, f"run {self.id}", body, population=self.population, run=self.id, round=index)

    def _update_run(self, connection: Connection, **values: Any) -> None:
        connection.execute(update(models.runs).where(models.runs.c.seq == self._seq).values(values))

    def _known(self, indices: ArrayLike) -> NDArray[np.int64]:
        array = np.asarray(indices)
        if array.size == 0:
            return np.empty(0, dtype=np.int64)
        if not np.issubdtype(array.dtype, np.integer) or array.min() < 0 or array.max() >= self._users_known:
            raise BadInput("user indices", f"must be integers in [0, {self._users_known}), from register_users.")
        return array.astype(np.int64, copy=False)

    def _load_users(self, connection: Connection) -> None:
        c = models.users.c
        where = (c.population_id == self._population_id, c.first >= self._users_loaded)
        query = select(c.first, c.hashes).where(*where).order_by(c.first)
        for first, hashes in connection.execute(query):
            if first != self._users_loaded:
                raise LedgerError(f"users of population {self.population}", f"user {self._users_loaded} is missing.")
            new = np.frombuffer(hashes, dtype="<u8").astype(np.uint64)
            self._by_hash.add(new, np.arange(first, first + new.size))
            self._users_loaded += new.size
        self._users_known = self._users_loaded

    def _add_users(self, connection: Connection, entry: Entry, hashes: NDArray[np.uint64]) -> None:
        self._fence(connection, entry)
        self._load_users(connection)  # another run may have added some since
        new = hashes[self._by_hash.get(hashes) < 0]
        _, first = np.unique(new, return_index=True)
        new = new[np.sort(first)]
        if not new.size and not self._secretive:
            return
        data = new.astype("<u8").tobytes()
        if new.size:
            self._insert_users(connection, new.size, data)
        body = {"first": self._users_loaded, "count": int(new.size), "hashes": _sha256(data)}
        self._record(entry, "users.register", body)

    def _insert_users(self, connection: Connection, count: int, data: bytes) -> None:
        values = {"population_id": self._population_id, "first": self._users_loaded, "count": count, "hashes": data}
        connection.execute(insert(models.users).values(values))
        c = models.populations.c
        connection.execute(
            update(models.populations).where(c.id == self._population_id).values(users=self._users_loaded + count)
        )

    def _find_open(self, connection: Connection, seq: int) -> OpenRound | None:
        c = models.rounds.c
        row: Any = connection.execute(
            select(c.index.label("at"), c.attempt, c.noise_row, c.cohort, c.cohort_size, c.id).where(
                c.run_seq == seq, c.state == "open"
            )
        ).first()
        if row is None:
            return None
        try:
            cohort = blobs.decode(row.cohort, row.cohort_size)
        except ValueError as error:
            raise LedgerError(f"open round {row.at}", f"its cohort is corrupt: {error}.") from None
        return OpenRound(row.at, row.attempt, row.noise_row, cohort, row.id)

    def _state(self, connection: Connection, round: OpenRound) -> tuple[str | None, str | None]:
        c = models.rounds.c
        row = connection.execute(select(c.state, c.checkpoint).where(c.id == round.id, c.run_seq == self._seq)).first()
        return (None, None) if row is None else (row.state, row.checkpoint)

    def _require_open(self, round: OpenRound, state: str | None) -> None:
        if state != "open":
            raise LedgerError(
                f"round {round.index} (attempt {round.attempt}) of run {self.id}", f"it is {state or 'unknown'}."
            )

    def _close(
        self,
        connection: Connection,
        round: OpenRound,
        state: str,
        now: float,
        reports: int,
        rejects: Mapping[str, int],
        **values: Any,
    ) -> None:
        values |= {"state": state, "closed_at": now, "reports": reports, "rejects": chain.canonical(rejects)}
        connection.execute(
            update(models.rounds).where(models.rounds.c.id == round.id).values({**values, "cohort": None})
        )


def settle(connection: Connection, entry: Entry, run_id: str, state: EndState, message: str, actor: str) -> None:
    """End a run in its caller's transaction: its spent loss joins the population's settled total."""
    run = reads.run_row(connection, run_id)
    c, message = models.populations.c, clean(message, 2000)
    population = connection.execute(select(models.populations).where(c.id == run.population_id)).one()
    settled = PrivacyLoss.from_json(population.settled) + PrivacyLoss.from_json(run.spent)
    connection.execute(update(models.populations).where(c.id == population.id).values(settled=settled.to_json()))
    connection.execute(
        update(models.runs)
        .where(models.runs.c.seq == run.seq)
        .values(state=state, message=message, request=None, ended_at=entry.now)
    )
    leases.give_back(connection, run.seq)
    body = {"state": state, "message": message, "spent": run.spent, "settled": settled.to_json()}
    entry.append("run.finish", actor, body, population=population.name, run=run_id)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
