"""Whether a ledger is what its writers made it: the chain, every row, every charge, every checkpoint.

It finds every changed, added, missing or reordered row and, given the head that a coordinator held, a journal
that was cut short or an old copy that was put back. It cannot find a forger who rewrites the whole journal
consistently, and the held head with it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, RowMapping, and_, select, text
from sqlalchemy.exc import SQLAlchemyError

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.filter import Price
from fieldfare.accounting.individual import Units
from fieldfare.errors import BadInput, FieldfareError
from fieldfare.nonces import digest_of
from fieldfare.participation import hides_presence
from fieldfare_server.files.checkpoint import RunFiles
from fieldfare_server.files.strategies import StoredStrategy, StrategyError
from fieldfare_server.ledger import Head, Ledger, chain
from fieldfare_server.ledger.events.base import Record, Unfit
from fieldfare_server.ledger.events.heads import Converted
from fieldfare_server.ledger.rules.fold import apply
from fieldfare_server.ledger.sql import blobs, migrate, models, odometer_tables
from fieldfare_server.ledger.sql.journal import read_head
from fieldfare_server.ledger.sql.proof import (
    compare_charges,
    compare_chunks,
    compare_populations,
    compare_proposals,
    compare_round,
    compare_run,
    compare_signed,
    compare_tokens,
    dictionaries,
    hash_row,
    require_all,
    sha256,
)
from fieldfare_server.ledger.state import odometers
from fieldfare_server.ledger.state.accounts import Accounts, Step, step
from fieldfare_server.ledger.state.rows import Fact, UsersRow
from fieldfare_server.ledger.state.state import FoldedAttempt, FoldedRun, State

T = TypeVar("T")


@dataclass(frozen=True)
class DueCharge:
    """What one run must be charged, computed again."""

    spent: Callable[[int, NDArray[np.int64]], PrivacyLoss]
    """(round, indices of its participants) -> the run's cumulative loss. It is called for the run's committed
    rounds in order, so it may keep state."""
    planned: PrivacyLoss | None = None
    """What the run reserves; None: not compared."""
    units: Callable[[int, NDArray[np.int64]], Units] | None = None
    """What a round costs each of its participants by the odometers; called before `spent` of the same round."""
    leak: float | None = None
    """Least d of its price; None where the run chose it, or it is not compared."""


Recompute = Callable[[str, StoredStrategy], DueCharge]
"""(plan_json, the strategy that the run applies) -> a fresh `DueCharge`. Raises `StrategyError` where the
charge cannot be recomputed although the ledger may be whole."""


@dataclass(frozen=True)
class Mismatch:
    """The first row that does not fit."""

    table: str
    row: str
    why: str

    def __str__(self) -> str:
        return f"{self.table} {self.row}: {self.why}"


@dataclass(frozen=True)
class VerifyReport:
    """What was checked, and the first fault if there is one."""

    ledger: str
    head: Head | None
    fault: Mismatch | None
    checked: Mapping[str, int] = field(default_factory=dict)
    """How many of each were checked: audit (journal rows), populations, users, runs, rounds, charges,
    checkpoints, tokens."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Run -> why its charges could not be recomputed: the strategy that the ledger names is missing or
    altered.
    """
    unpinned: Mapping[str, str] = field(default_factory=dict)
    """The same for converted runs, of which no strategy was kept."""

    @property
    def ok(self) -> bool:
        return self.fault is None


def recharge(plan_json: str, strategy: StoredStrategy) -> DueCharge:
    """Return the `DueCharge` of a plan, computed from participation as its coordinator computes it. Nothing
    is optimised.

    Raises `StrategyError` where the stored strategy is not there.
    """
    # A certified charge is computed again from its seed: the bound that the strategy's file records is not
    # believed.
    cost = strategy.cost(json.loads(plan_json)).certified_again()
    charge = cost.realised()
    return DueCharge(
        lambda round, users: cost.charged(charge.add(round, users)),
        cost.loss,
        leak=cost.leak,
        units=None if not cost.single else lambda round, users: cost.increments(charge.growth(round, users)),
    )


def verify(
    ledger: Ledger,
    store_root: Path | None = None,
    *,
    recompute: Recompute | None = None,
    held: Head | None = None,
    strategies: Path | None = None,
) -> VerifyReport:
    """Check everything and stop at the first row that does not fit.

    Args:
        ledger: an open ledger.
        store_root: the directory of the runs' files (None: checkpoints are not checked).
        recompute: how to charge a plan, `recharge` (None: charges are compared with the journal, not
            recomputed).
        held: the end of the journal as it is known outside the database.
        strategies: the directory of the runs' files, for strategies alone (None: `store_root`).
    """
    try:
        with ledger.database.read() as connection:
            return verify_on(connection, ledger.url, store_root, recompute=recompute, held=held, strategies=strategies)
    except FieldfareError as error:
        return VerifyReport(ledger.url, None, Mismatch("database", ledger.url, str(error)))


def verify_on(
    connection: Connection,
    name: str,
    store_root: Path | None = None,
    *,
    recompute: Recompute | None = None,
    held: Head | None = None,
    strategies: Path | None = None,
) -> VerifyReport:
    """Return `verify` in the transaction of `connection`; `name` is the ledger's name in the report."""
    verification = _Verification(store_root, recompute, held, strategies or store_root)
    fault = None
    try:
        verification.run(connection)
    except Unfit as unfit:
        fault = Mismatch(unfit.table, unfit.row, unfit.why)
    except (FieldfareError, SQLAlchemyError, OSError, ArithmeticError, TypeError, ValueError) as error:
        # Damage can turn any value into one of another type, length or sign.
        fault = Mismatch("database", name, f"{type(error).__name__}: {error}")
    return VerifyReport(
        name, verification.head, fault, verification.checked, verification.missing, verification.unpinned
    )


_STREAM = {"yield_per": 1000}
"""Rows of large tables are read in pieces, not into one list."""


class _Verification:
    def __init__(
        self, store_root: Path | None, recompute: Recompute | None, held: Head | None, strategies: Path | None
    ) -> None:
        self._root, self._recompute, self._held = store_root, recompute, held
        self._files = strategies or Path()
        self.head: Head | None = None
        self.checked: dict[str, int] = {}
        self.missing: dict[str, str] = {}
        self.unpinned: dict[str, str] = {}
        self._units: dict[tuple[str, int], tuple[NDArray[np.int64], Units]] = {}
        """(run, round) -> its participants and what each was charged, where there are odometers."""

        self._converted: Converted | None = None
        self._steps: dict[str, list[Step]] = {}
        """What moved the odometers of each population."""

    def _note(self, state: State, record: Record, facts: tuple[Fact, ...]) -> None:
        if isinstance(record.event, Converted):
            self._converted = record.event
        moved = step(state, record)
        if moved is not None:
            self._steps.setdefault(moved[0], []).append(moved[1])

    def run(self, connection: Connection) -> None:
        if connection.dialect.name == "sqlite":
            for (line,) in connection.execute(text("PRAGMA integrity_check(1)")).all():
                if line != "ok":
                    raise Unfit("database", "file", str(line))
            for table, row, parent, _ in connection.execute(text("PRAGMA foreign_key_check")).all():
                raise Unfit(str(table), str(row), f"it refers to a missing row of {parent}")
        state = self._chain(connection)
        compare_signed(connection)
        names = self._populations(connection, state)
        compare_proposals(connection, names, state)
        self._tokens(connection, state)
        self._objects(connection)
        self._runs(connection, state, names)
        self._odometers(connection, state, names)
        self._foreign(connection, state, names)
        for name in migrate.damage(connection):
            raise Unfit("schema", name, "it differs from what the migrations make")

    def _chain(self, connection: Connection) -> State:
        self.head = head = read_head(connection)
        state, previous, number = State(), chain.genesis(head.ledger), 0
        rows = connection.execute(select(models.journal).order_by(models.journal.c.id), execution_options=_STREAM)
        for row in dictionaries(rows):
            number += 1
            if row["id"] != number:
                raise Unfit("audit", str(number), f"it is missing; row {row['id']} follows")
            if row["previous"] != previous:
                raise Unfit("audit", str(number), "it does not continue the row before")
            if row["hash"] != hash_row(row):
                raise Unfit("audit", str(number), "its content is not what its hash was made of")
            previous = row["hash"]
            if self._held is not None and self._held.count == number and self._held.hash != previous:
                raise Unfit("audit", str(number), "it is not the row that was seen in its place")
            apply(state, row, self._note)
            self.checked["audit"] = number
        if (head.count, head.hash) != (number, previous):
            raise Unfit("audit", str(number + 1), f"it is missing: the journal ended at row {head.count}")
        if self._held is not None and (self._held.ledger, number < self._held.count) != (head.ledger, False):
            raise Unfit("audit", str(number + 1), f"it is missing: row {self._held.count} was seen once")
        return state

    def _populations(self, connection: Connection, state: State) -> dict[int, str]:
        names = compare_populations(connection, state)
        for number, name in names.items():
            population = state.populations[name]
            count = self._users(connection, number, name, population.chunks)
            if not hides_presence(population.row.adjacency):  # there a count of users is secret
                self.checked["users"] = self.checked.get("users", 0) + count
        self.checked["populations"] = len(names)
        return names

    def _users(self, connection: Connection, number: int, name: str, chunks: list[UsersRow]) -> int:
        where = models.users.c.population_id == number
        rows = connection.execute(select(models.users).where(where).order_by(models.users.c.first)).mappings()
        stored = {row["first"]: (row["count"], row["hashes"]) for row in rows}
        compare_chunks(name, chunks, stored)
        return sum(chunk.count for chunk in chunks)

    def _tokens(self, connection: Connection, state: State) -> None:
        compare_tokens(connection, state)
        self.checked["tokens"] = len(state.tokens)

    def _objects(self, connection: Connection) -> None:
        """Check that each object is what its name says: the log names it by that SHA-256."""
        for name, content in connection.execute(select(models.objects), execution_options=_STREAM):
            if sha256(content) != name:
                raise Unfit("objects", name, "its content has another SHA-256")
        if self._converted is not None:
            _require_originals(connection, self._converted)

    def _runs(self, connection: Connection, state: State, names: dict[int, str]) -> None:
        rows = connection.execute(select(models.runs).order_by(models.runs.c.seq)).mappings().all()
        for row in rows:
            run = compare_run(row, names, state)
            self._rounds(connection, row["seq"], row["id"], run)
            self._charges(connection, row, run)
            self._checkpoints(row["id"], run)
        require_all("runs", state.runs, [row["id"] for row in rows])
        self.checked["runs"] = len(rows)

    def _rounds(self, connection: Connection, seq: int, run_id: str, run: FoldedRun) -> None:
        query = select(models.rounds).where(models.rounds.c.run_seq == seq).order_by(models.rounds.c.id)
        left = dict(run.attempts)
        for row in dictionaries(connection.execute(query, execution_options=_STREAM)):
            key = (row["index"], row["attempt"])
            label = f"{run_id} {key[0]}.{key[1]}"
            expected: FoldedAttempt | None = left.pop(key, None)
            if expected is None:
                raise Unfit("rounds", label, "the journal does not name it")
            compare_round(label, row, expected)
            self.checked["rounds"] = self.checked.get("rounds", 0) + 1
        for index, attempt in sorted(left):
            raise Unfit("rounds", f"{run_id} {index}.{attempt}", "it is missing")

    def _charges(self, connection: Connection, row: RowMapping, run: FoldedRun) -> None:
        seq, run_id = row["seq"], row["id"]
        charge = self._charge_of(run_id, row["plan"], run)
        if charge is not None:
            _require_reserved(run_id, run, charge)
        committed = {index: a for (index, _), a in run.attempts.items() if a.row.state == "committed"}
        singly: list[Units] = []
        for index, users, units in self._participations(connection, seq, run_id, committed, run.recomputed):
            if units is not None:
                self._units[run_id, index] = (users, units)
                singly.append(units)
            if charge is None:
                continue
            if units is not None and charge.units is not None:
                _require_same_units(f"{run_id} {index}", units, charge.units(index, users))
            right = charge.spent(index, users)
            recorded = PrivacyLoss.from_json(committed[index].row.spent or "")
            if not recorded.agrees_with(right):
                why = f"its charge is {recorded}, and its plan and participation give {right}"
                raise Unfit("rounds", f"{run_id} {index}", why)
            self.checked["charges"] = self.checked.get("charges", 0) + 1
        if run.recomputed is not None and odometers.digest_of_rounds(singly) != run.recomputed:
            raise Unfit("participations", run_id, "these are not the charges that were recomputed")

    def _charge_of(self, run_id: str, plan: str, run: FoldedRun) -> DueCharge | None:
        if self._recompute is None:
            return None
        strategy = run.row.strategy
        try:
            return self._recompute(plan, StoredStrategy(self._files, run_id, strategy, run.planned))
        except StrategyError as error:
            (self.unpinned if strategy is None else self.missing)[run_id] = str(error)
            return None
        except BadInput as error:
            raise Unfit("runs", run_id, f"what it reserved is not what its plan costs: {error}") from None

    def _participations(
        self, connection: Connection, seq: int, run_id: str, committed: dict[int, FoldedAttempt], recomputed: str | None
    ) -> Iterator[tuple[int, NDArray[np.int64], Units | None]]:
        """Yield (round, its participants, what each was charged) of each committed round in order, checked
        against the journal. None: the run is not charged to odometers."""
        c = models.participations.c
        r = models.rounds.c
        # The outer join finds a participation whose round is another run's, has another index, or was not
        # committed.
        same = and_(r.id == c.round_id, r.run_seq == c.run_seq, r.index == c.index, r.state == "committed")
        query = (
            select(c.index, c.count, c.users, r.id, c.charges)
            .outerjoin(models.rounds, same)
            .where(c.run_seq == seq)
            .order_by(c.index)
        )
        expected = iter(sorted(committed))
        for index, count, blob, round_id, charged in connection.execute(query, execution_options=_STREAM):
            label = f"{run_id} {index}"
            wanted = next(expected, None)
            if wanted is not None and index > wanted:
                raise Unfit("participations", f"{run_id} {wanted}", "it is missing")
            if index != wanted:
                raise Unfit("participations", label, "the journal does not name it")
            if round_id is None:
                raise Unfit("participations", label, "it refers to another round")
            attempt = committed[index]
            taken = attempt.taken
            assert taken is not None  # it is committed
            if sha256(blob) != taken.users or count != taken.count:
                raise Unfit("participations", label, "these are not the users that took part")
            if (charged is None) != (taken.charges is None and recomputed is None):
                raise Unfit("participations", label, "the journal says otherwise whether its users were charged singly")
            try:
                units = None if charged is None else odometer_tables.decode(charged, count)
                if units is not None and recomputed is None and odometers.digest(units) != taken.charges:
                    raise Unfit("participations", label, "these are not the charges that were committed")
                yield index, blobs.decode(blob, count), units
            except ValueError as error:
                raise Unfit("participations", label, str(error)) from None
        wanted = next(expected, None)
        if wanted is not None:
            raise Unfit("participations", f"{run_id} {wanted}", "it is missing")

    def _checkpoints(self, run_id: str, run: FoldedRun) -> None:
        if self._root is None:
            return
        rounds = sorted((index, a) for (index, _), a in run.attempts.items() if a.row.state == "committed")
        committed = {a.row.checkpoint: index for index, a in rounds}
        nonces = [a.row.nonce for _, a in rounds if a.row.nonce is not None]
        files = RunFiles(self._root, run_id)
        digests = files.digests()
        for name, digest in digests.items():
            if name != digest:
                raise Unfit("checkpoints", f"{run_id} {name}", f"its bytes have the digest {digest}")
            if name not in committed:
                raise Unfit("checkpoints", f"{run_id} {name}", "no committed round names it")
            so_far = [bytes.fromhex(nonce) for nonce in nonces[: committed[name] + 1]]
            if files.nonces(name) != (digest_of(so_far) if so_far else None):
                raise Unfit("checkpoints", f"{run_id} {name}", "its nonces are not those of the ledger's rounds")
            base = files.noise_base(name)
            if base is not None and not files.holds_noise(base):
                raise Unfit("checkpoints", f"{run_id} {name}", f"the noise state {base} that it names is not whole")
        newest = run.row.checkpoint
        # Checkpoints of an ended run are destroyed with its key.
        if run.row.active and newest is not None and newest not in digests and not files.holds(newest):
            raise Unfit("checkpoints", f"{run_id} {newest}", "it is missing, and it is the newest that was committed")
        self.checked["checkpoints"] = self.checked.get("checkpoints", 0) + len(digests)

    def _odometers(self, connection: Connection, state: State, names: dict[int, str]) -> None:
        """Replay what every user of a population spent and what runs held of it, step by step."""
        runs = {run.id: run for run in connection.execute(select(models.runs.c.id, models.runs.c.seq))}
        for number, name in names.items():
            population = state.populations[name]
            accounts, steps = Accounts(self._taken), self._steps.get(name, [])
            for each in steps:
                accounts.apply(each)
            users = population.row.users
            if (odometer_tables.settled(connection, number, users) != accounts.settled_of(users)).any():
                raise Unfit("odometers", name, "they are not what ended runs have cost")
            held = {runs[run_id].seq: caps for run_id, caps in accounts.caps.items()}
            where = models.runs.c.population_id == number
            pledged = select(models.pledges.c.run_seq).join(models.runs).where(where).distinct()
            for seq in set(connection.execute(pledged).scalars()) | set(held):
                right = held.get(seq)
                if right is None or (odometer_tables.caps(connection, seq, users) != right).any():
                    raise Unfit("pledges", f"{name} {seq}", "they are not what the run was admitted with")
            if steps:
                self.checked["odometers"] = self.checked.get("odometers", 0) + users

    def _taken(self, run: str, index: int | None = None) -> list[tuple[NDArray[np.int64], Units]]:
        if index is not None:
            return [self._units[run, index]]
        return [taken for (name, _), taken in sorted(self._units.items(), key=lambda item: item[0]) if name == run]

    def _foreign(self, connection: Connection, state: State, names: dict[int, str]) -> None:
        compare_charges(connection, names, state)
        self.checked["charges of others"] = sum(len(each.charges) for each in state.populations.values())


def _require_same_units(label: str, recorded: Units, right: Units) -> None:
    """Require equal units but for rounding: another machine may add in another order, which moves a float's
    last bits.
    """
    close = np.abs(recorded - right) <= 2 + (right >> 30)
    if recorded.shape != right.shape or not close.all():
        raise Unfit("participations", label, "its plan and participation give other charges for single users")


def _require_originals(connection: Connection, said: Converted) -> None:
    """Raise `Unfit` unless the rows of the log that was converted are there, and end where the event says.

    Where rows of secret populations are left out, the others cannot be chained: they must be there, and as
    many.
    """
    c, end, number = models.objects.c, chain.genesis(said.ledger), 0
    for name in said.rows:
        content = connection.execute(select(c.content).where(c.hash == name)).scalar()
        if content is None:
            raise Unfit("objects", name, "it is missing, and holds rows of the log that was converted")
        for line in zlib.decompress(content).splitlines():
            number += 1
            end = chain.row_hash({**json.loads(line), "previous": end})
    if number + said.omitted != said.count or (end != said.hash and not said.omitted):
        raise Unfit("audit", "1", "the rows that it names are not those of the log that was converted")


def _require_reserved(run_id: str, run: FoldedRun, charge: DueCharge) -> None:
    """Raise `Unfit` unless what the run reserved is what its plan costs."""
    planned, price = run.planned, run.row.price
    if charge.planned is not None and not planned.agrees_with(charge.planned):
        raise Unfit("runs", run_id, f"its planned loss is {planned}, and its plan gives {charge.planned}")
    if charge.leak is not None and price is not None:
        leak = Price.from_json(price).leak
        if leak < charge.leak * (1 - 1e-9):
            raise Unfit("runs", run_id, f"its price has the leak {leak}, and its noise leaks {charge.leak}")
