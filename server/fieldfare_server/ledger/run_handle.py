"""One run, as its coordinator writes it: register users, open, commit or void rounds, finish.

Nothing is sent before `open_round` returns, and nothing is shown before `commit_round` returns. A commit is one
transaction: the round, who took part, the charge, the noise row, the checkpoint's digest, the statistics.
Where users are simulated, several rounds may share one transaction (`begin_groups`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sqlalchemy import Connection, select

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.individual import Units
from fieldfare.errors import BudgetRefused, LedgerCorrupt, LedgerError, OutOfRange, OutOfTurn
from fieldfare_server import faults
from fieldfare_server.ledger.events.base import loads
from fieldfare_server.ledger.events.runs import Committed, RunInterrupted
from fieldfare_server.ledger.rules.rounds import require_charge
from fieldfare_server.ledger.rules.runs import finish
from fieldfare_server.ledger.schedule import Schedule
from fieldfare_server.ledger.sql import leases, models, odometer_tables, rounds
from fieldfare_server.ledger.sql.hold import Hold, RunFacts
from fieldfare_server.ledger.sql.journal import Clock, Entry, Journal, clean
from fieldfare_server.ledger.sql.registration import Registration
from fieldfare_server.ledger.sql.rounds import Commitment, Held, OpenRound, Outcome
from fieldfare_server.ledger.sql.rows import participation, run_row
from fieldfare_server.ledger.sql.tables import Tables
from fieldfare_server.ledger.state import odometers
from fieldfare_server.ledger.state.formats import has_nonces
from fieldfare_server.ledger.states import EndState, Request

# The checkpoint of a round that is held: its group gives it one.
_UNNAMED = "0" * 64


class RunHandle:
    """The write side of one run, for the coordinator that holds its lease. Not thread-safe, except `heartbeat`.

    As a context manager it gives the lease back at the end, so that the run can be resumed at once. Every
    write raises `LedgerError` if another coordinator has taken the run over.
    """

    def __init__(self, journal: Journal, run_id: str, token: int, lease_seconds: float) -> None:
        with journal.database.read() as connection:
            run = run_row(connection, run_id)
            c = models.populations.c
            population = connection.execute(select(models.populations).where(c.id == run.population_id)).one()
            try:
                self._participation = participation(connection, run.seq, population.users)
            except ValueError as error:
                raise LedgerCorrupt(f"run {run_id}", f"its participation record is corrupt: {error}.") from None
            self._open = rounds.find_open(connection, run.seq)
            self._run = RunFacts(
                id=run.id,
                seq=run.seq,
                planned=PrivacyLoss.from_json(run.planned),
                population=population.name,
                population_id=population.id,
                adjacency=population.adjacency,
                delta=population.delta,
                salt=population.salt,
                schedule=Schedule.of(run),
                nonces=has_nonces(run.noise_source),
                simulated=population.simulated,
                individual=run.accounting == odometers.INDIVIDUAL,
            )
            self._most: int = run.most or 0
            # Without odometers both stay empty. Units of 2^-44 mu^2, by the index of the user in the population.
            self._caps = self._taken = np.zeros(0, dtype=np.int64)
            if self._run.individual:
                self._caps = odometer_tables.caps(connection, run.seq, population.users)
                self._taken = odometer_tables.taken(connection, run.seq, population.users)
            self._least = int(self._caps.min(initial=self._most))
            self.nonces: list[bytes] | None = rounds.nonces(connection, self._run, run.next_round)
            """Of the committed rounds, in order; None for a run without nonces."""
        self._hold = Hold(journal, self._run, token, lease_seconds)
        self._registration = Registration(self._hold, population.users)
        self.schedule = self._run.schedule  # when the rounds may be opened and released; None: at any time
        self.clock: Clock = journal.clock  # seconds since 1970, by which the schedule is kept
        self.planned = self._run.planned  # what the run reserved
        self.lease_seconds = lease_seconds  # how long this coordinator may be silent
        self.individual = self._run.individual  # whether the run is charged to its users' odometers
        self._over = False
        self._held: list[Held] = []  # rounds of the group under way, which the ledger does not know yet
        self._opened_at = 0.0
        self.grouped = False  # whether rounds are held, to be committed several at a time: `begin_groups`
        self.id: str = run.id
        self.rounds: int = run.rounds
        self.next_round: int = run.next_round
        # Loss of this run's committed rounds together.
        self.spent: PrivacyLoss = PrivacyLoss.from_json(run.spent)
        self.checkpoint: str | None = run.checkpoint  # digest of the newest committed checkpoint

    def __enter__(self) -> RunHandle:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if not self._over:
            text = "" if error is None else type(error).__name__
            # The text of an error may count users; what a task says as it ends the process may quote their rows.
            if isinstance(error, Exception) and not self._run.hides_presence:
                text += f": {error}"
            if isinstance(error, SystemExit):  # of a signal: a restart, or `flwr stop`
                text = "its process was told to end; resume it, or end it: fieldfare abandon"
            # What stopped the run is told, not that the ledger could not note it: then its lease runs out by itself.
            with contextlib.suppress(*((LedgerError,) if error is not None else ())):
                self.hand_back(text)

    # -- the lease -------------------------------------------------------------------------------------------

    def heartbeat(self) -> None:
        """Renew the lease; cheap enough for every loop. Raises `LedgerError` if the run was taken over."""
        self._hold.heartbeat()

    def hand_back(self, message: str = "") -> None:
        """Stop here and let anyone resume at once; the reservation stays. The state becomes `interrupted`."""

        message = clean(message, 2000)

        def work(connection: Connection, entry: Entry) -> None:
            leases.give_back(connection, self._run.seq)
            self._run.record(entry, RunInterrupted(message))

        self._hold.write(work)
        self._over = True

    # -- users -----------------------------------------------------------------------------------------------

    @property
    def users(self) -> int:
        """How many users the population has, as far as this coordinator knows."""
        return self._registration.count

    def register_users(self, ids: ArrayLike) -> NDArray[np.int64]:
        """Return each user's index in the population, shape (len(ids),); new users get the next ones.

        Known users cost no transaction, except where presence is secret: there every call writes exactly one
        journal row, whether a user is new or not, because a row only for new users would tell that one is
        present. There, call it at moments that do not depend on who is present.

        Args:
            ids: pseudonyms, uint64, shape (n,).

        Raises:
            ValueError: `ids` is another kind of array.
        """
        indices = self._registration.register(ids)
        self._participation.grow(self.users)
        if self._run.individual and self.users > self._caps.size:
            with self._hold.database.read() as connection:
                self._caps = odometer_tables.caps(connection, self._run.seq, self.users)
            self._least = int(self._caps.min(initial=self._most))
            self._taken = np.concatenate([self._taken, np.zeros(self.users - self._taken.size, dtype=np.int64)])
        return indices

    def allowance(self, indices: ArrayLike) -> Units | None:
        """Return what this run may still take of each user, in units of 2^-44 mu^2, shape (n,); None: all it needs.

        None: without odometers, and where each of these users is pledged all that the run can cost.
        """
        pledged = self.pledged(indices)
        return None if pledged is None else pledged - self._taken[self._registration.require_known(indices)]

    def pledged(self, indices: ArrayLike) -> Units | None:
        """Return what this run may take of each user in all its rounds; None and units as `allowance`."""
        if not self._run.individual or self._least >= self._most:
            return None
        caps = self._caps[self._registration.require_known(indices)]
        return None if (caps >= self._most).all() else caps

    def participation(self, indices: ArrayLike) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return (last committed round, -1 for never; number of rounds), each int32 of `indices`' shape."""
        return self._participation.last_and_count(self._registration.require_known(indices))

    def patterns(self, indices: ArrayLike) -> list[tuple[int, ...]]:
        """Return the committed rounds of this run in which each user took part, increasing; () for never."""
        return self._participation.patterns(self._registration.require_known(indices))

    # -- rounds ----------------------------------------------------------------------------------------------

    def open_round(self, cohort: ArrayLike) -> OpenRound:
        """Make the next round durable before anything of it is sent.

        Args:
            cohort: distinct user indices; may be empty, as Poisson sampling can select no user.

        Raises:
            LedgerError: another round is open, the last round is done, or the run was taken over.
        """
        users = np.sort(self._registration.require_known(cohort))
        index = self.next_round
        if index >= self.rounds:
            raise OutOfTurn(f"round {index} of run {self.id}", f"the run has {self.rounds} rounds.", "finish the run")
        if self.grouped:
            self._opened_at = self.clock()
            self._open = OpenRound(index, self._tries(), index, users, id=0)
            return self._open
        self._open = self._hold.write(partial(rounds.open_next, self._run, index, users))
        faults.point("ledger.round.opened")
        return self._open

    def open_round_pending(self) -> OpenRound | None:
        """Return the round that a crash left open: to roll forward if its checkpoint is complete, else to void."""
        return self._open

    def close_round(self, round: OpenRound, closing: str, nodes: int) -> OpenRound:
        """Make the set of a masked round final, durably, before its sum is opened; returns the round, closed.

        From here on it is committed, or its run ends: `void_round` is refused.

        Args:
            closing: SHA-256, hex, of the file with the masked sum, who is in it, and the boxes.
            nodes: how many nodes are in it, at least 2.
        """
        self._hold.write(lambda connection, entry: rounds.close(entry, self._run, round, closing, nodes))
        self._open = replace(round, closing=closing)
        faults.point("ledger.round.closed")
        return self._open

    def receipts(self) -> list[str]:
        """Return what blinders signed of all masked rounds of this ledger, in order (`masking.receipts`)."""
        c = models.journal.c
        where = c.action == Committed.action, c.body.like('%"receipt":%')
        with self._hold.database.read() as connection:
            bodies = connection.execute(select(c.body).where(*where).order_by(c.id)).scalars()
            return [loads(body)["receipt"] for body in bodies]

    def void_round(
        self, round: OpenRound, reason: str, *, reports: int = 0, rejects: Mapping[str, int] | None = None
    ) -> None:
        """Close `round` with nothing released: no charge, no participation, and its noise row is free again."""
        reason, rejects = clean(reason, 2000), dict(rejects or {})
        # A round of a group is not in the ledger before its group: to be void it must be opened there first.
        if round.id == 0:
            self._require_none_held()
            self._open = round = self._hold.write(partial(rounds.open_next, self._run, round.index, round.cohort))
        self._hold.write(lambda connection, entry: rounds.void(entry, self._run, round, reason, reports, rejects))
        self._open = None
        faults.point("ledger.round.voided")

    def commit_round(self, round: OpenRound, outcome: Outcome, checkpoint_digest: str) -> None:
        """Charge `round` durably. What the round made may be seen only after this returns.

        Repeating the call after a lost connection is safe.

        Args:
            round: the open round.
            checkpoint_digest: SHA-256, hex.

        Raises:
            BudgetRefused: `outcome.spent` is out of bounds, or a user would pay more than the odometer has left.
            BadInput: an argument is malformed.
            LedgerError: the round is not open, or the run was taken over.
        """
        made = self._prepare(round, outcome, checkpoint_digest)
        self._hold.write(lambda connection, entry: rounds.commit(entry, self._run, round, made))
        faults.point("ledger.round.committed")
        self._count_in(round, made, outcome.nonce)
        self.checkpoint = checkpoint_digest

    def _prepare(self, round: OpenRound, outcome: Outcome, checkpoint_digest: str) -> Commitment:
        users = self._registration.require_known(outcome.participants)
        made = rounds.prepare(self._run, round, users, outcome, checkpoint_digest)
        if made.charges is not None:
            self._require_allowance(round, made.users, made.charges)
        return made

    def _count_in(self, round: OpenRound, made: Commitment, nonce: bytes | None) -> None:
        if made.charges is not None:
            self._taken[made.users] += made.charges
        self._participation.add(round.index, made.users)
        if self.nonces is not None and nonce is not None:
            self.nonces.append(nonce)
        self.next_round, self.spent = round.index + 1, made.spent
        self._open = None

    def _require_allowance(self, round: OpenRound, users: NDArray[np.int64], charges: Units) -> None:
        if charges.size and int(charges.min()) < 0:
            raise OutOfRange(f"the charges of round {round.index} of run {self.id}", "a charge is never negative.")
        over = charges > self._caps[users] - self._taken[users]
        if over.any():
            why = f"it would cost {int(over.sum())} of its {users.size} users more than they have left."
            near = "end the run with its last committed model"
            raise BudgetRefused(f"round {round.index} of run {self.id}", why, near, code="users-spent")

    # -- groups of rounds ------------------------------------------------------------------------------------

    def begin_groups(self) -> None:
        """Hold rounds from now on, and write each group of them to the ledger in one transaction.

        Only for users who are simulated, and where rounds have no public schedule; else nothing changes. The
        caller must keep all that a round made to itself until `commit_group` returns. A crash before that
        loses the group: the ledger does not know its rounds, so they are run again, under new nonces.
        """
        self.grouped = self._run.simulated and self._run.schedule is None

    def hold_round(self, round: OpenRound, outcome: Outcome) -> None:
        """Do as `commit_round`, but nothing is durable before `commit_group` returns.

        Participation, odometers, nonces, `spent` and `next_round` go on from here as if it were. Raises as
        `commit_round`.
        """
        made = self._prepare(round, outcome, _UNNAMED)
        require_charge(self.id, round.index, self.spent, outcome.spent, self._run.planned)
        self._held.append(Held(round, made, self._opened_at, self.clock()))
        self._count_in(round, made, outcome.nonce)

    def commit_group(self, checkpoint_digest: str) -> None:
        """Charge all rounds that are held durably, in one transaction. What they made may be seen after this returns.

        Args:
            checkpoint_digest: of the checkpoint after the last of them, SHA-256, hex.

        Raises as `commit_round`; nothing of the group is in the ledger then.
        """
        held = self._held
        if held:
            self._hold.write(lambda connection, entry: rounds.commit_group(entry, self._run, held, checkpoint_digest))
            faults.point("ledger.round.committed")
            self._held, self.checkpoint = [], checkpoint_digest

    def _tries(self) -> int:
        """How many attempts at the next round the ledger has."""
        if self._held:  # the first attempt: a void round ends its group
            return 0
        with self._hold.database.read() as connection:
            return Tables(connection).runs[run_row(connection, self.id).id].tries

    def _require_none_held(self) -> None:
        if self._held:
            raise OutOfTurn(f"run {self.id}", f"{len(self._held)} rounds are held.", "commit_group")

    # -- the end ---------------------------------------------------------------------------------------------

    def request(self) -> Request | None:
        """Tell what was asked of this run through `Ledger.request`, if anything. Within a group: nothing yet."""
        if self._held:
            return None
        with self._hold.database.read() as connection:
            wish: Request | None = run_row(connection, self.id).request
        return wish

    def finish(self, state: EndState, message: str = "") -> None:
        """End the run: what it spent stays charged, what it reserved beyond that returns. An open round is voided."""
        self._require_none_held()
        if self._open is not None and self._open.closing is None:  # else the end itself is the end of the round
            self.void_round(self._open, f"the run ended: {state}")

        def work(connection: Connection, entry: Entry) -> None:
            settled = None  # else the run's spent loss joins its users' odometers, as it does the settled total
            if self._run.individual:
                population = entry.state.populations[self._run.population]
                settled = entry.contents.keep_units(odometer_tables.settle(connection, population, self.id))
            event = finish(entry.state, self.id, state, clean(message, 2000), settled)
            entry.append(event, self.id, population=self._run.population, run=self.id)
            leases.give_back(connection, self._run.seq)
            faults.point("ledger.run.finishing")

        self._hold.write(work)
        self._over = True
        faults.point("ledger.run.finished")
