"""Whether the tables say what the journal proves, asked once before every charge: the journal is the budget.

`Proof` replays the journal once and keeps the state that it gives. Each further check costs the rows that are new
since, and compares with the tables: every population, every token, every run under way and every run that
changed, the open rounds, the guards, every charge of another trainer, and in turn `_SLICE` of the runs that
have ended. The first
check of a process reads all of the ledger: every run, and every closed round, participation and user too. The
odometers and pledges of all users are read and hashed at every check, and decoded when their bytes, or what
the journal says of them, are new. What a charge is admitted by is the replayed state, never a column.

`evidence.verify` is the first check and more: charges recomputed from participation, checkpoints, nonces.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import itemgetter
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, bindparam, func, literal_column, select, text, true, union_all

from fieldfare.errors import LedgerCorrupt, LedgerError
from fieldfare.signed_head import HeadRefused, SignedHead
from fieldfare_server.ledger import chain
from fieldfare_server.ledger.events.base import Record, Unfit
from fieldfare_server.ledger.events.populations import Recomputed
from fieldfare_server.ledger.rules.fold import apply
from fieldfare_server.ledger.rules.populations import find
from fieldfare_server.ledger.sql import migrate, models, odometer_tables
from fieldfare_server.ledger.sql.database import Database, fetch
from fieldfare_server.ledger.state import odometers
from fieldfare_server.ledger.state.state import FoldedAttempt, FoldedPopulation, FoldedRun, State
from fieldfare_server.ledger.states import ACTIVE

T = TypeVar("T")

# Damage can turn any value into one of another type, length or sign.
_DAMAGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
# Journal rows that one snapshot reads.
_BATCH = 2000
# Columns whose values no message shows: where presence is secret a count of users is secret.
_SECRET = ("cohort", "cohort_size", "digest", "participants", "reason", "rejects", "reports", "salt", "users")
# Ended runs that each check compares again: those of 10 000 in turn by 312 charges.
_SLICE = 32


# Made once: to build a statement takes longer than to run it.
_h, _j, _r, _t, _p = models.head.c, models.journal.c, models.runs.c, models.rounds.c, models.participations.c
JOURNAL = select(models.journal).where(_j.id > bindparam("rows")).order_by(_j.id).limit(bindparam("most"))
_POPULATIONS = select(models.populations).order_by(models.populations.c.id)
_PROPOSALS = select(models.proposals).order_by(models.proposals.c.id)
_TOKENS = select(models.tokens).order_by(models.tokens.c.id)
_CHARGES = select(models.charges).order_by(models.charges.c.population_id, models.charges.c.key)
_RUN = select(models.runs).where(_r.id == bindparam("name"))
# Literals, as all these statements have no list among their parameters (`fetch`).
_ACTIVE = _r.state.in_([literal_column(f"'{state}'") for state in ACTIVE])
# One list for each index, because SQLite reads every run where they stand in one condition.
_CHANGING = union_all(
    select(_r.seq).where(_r.population_id.in_(select(models.populations.c.id)), _ACTIVE),
    select(_r.seq).where(_r.seq > bindparam("compared"), _r.seq <= bindparam("end")),
)
_RUNS = select(models.runs).where(_r.seq.in_(_CHANGING)).order_by(_r.seq)
_KEPT = select(models.odometers.c.population_id).distinct()
_PLEDGED = select(models.pledges.c.run_seq).distinct()
_ROUNDS = (
    select(
        models.rounds,
        _p.run_seq.label("of_run"),
        _p.index.label("of_round"),
        _p.count.label("number"),
        _p.users.label("blob"),
        _p.charges.label("charged"),
    )
    .outerjoin(models.participations, _p.round_id == _t.id)
    .where(
        _t.run_seq == select(_r.seq).where(_r.id == bindparam("name")).scalar_subquery(),
        _t.index.between(bindparam("first"), bindparam("last")),
    )
)
# Runs that are charged alike, and a user of which has a charge of its own.
_CHARGED = (
    select(_r.id)
    .join_from(models.participations, models.runs, _p.run_seq == _r.seq)
    .where(_p.charges.is_not(None), _r.accounting != odometers.INDIVIDUAL)
    .limit(1)
)
_COUNTS = {
    table.name: select(func.count()).select_from(table)
    for table in (models.rounds, models.participations, models.users)
}
_u, _of = models.users, models.populations.c
_USERS = select(_u).where(
    _u.c.population_id == select(_of.id).where(_of.name == bindparam("name")).scalar_subquery(),
    _u.c.first.between(bindparam("low"), bindparam("high")),
)
_END = select(_h.id.label("head"), _h.ledger, _h.count, _h.hash)
# The same, and how many rows the tables have, which spares the reading of each that is empty and has to
# be; once for each open round, or with none. A literal state, and rounds that are found first: else SQLite does not use
# the small index of open ones.
_open = select(models.rounds).where(text("rounds.state = 'open'")).cte("opened").prefix_with("MATERIALIZED")
_NOW = select(
    *(_h.id.label("head"), _h.ledger, _h.count, _h.hash, _h.signed),
    *(
        select(func.count()).select_from(table).correlate(None).scalar_subquery().label(table.name)
        for table in (models.proposals, models.tokens, models.charges, models.odometers, models.pledges, models.runs)
    ),
    select(func.max(_r.seq)).correlate(None).scalar_subquery().label("last_run"),
    select(func.max(_t.id)).correlate(None).scalar_subquery().label("newest"),
    select(func.count()).where(_t.id > bindparam("since")).correlate(None).scalar_subquery().label("new"),
    _open,
    _r.id.label("run"),
).select_from(models.head.outerjoin(_open, true()).outerjoin(models.runs, _r.seq == _open.c.run_seq))


class Late(Exception):
    """So much is to be read first that other writers would wait too long for this transaction."""


class Disproved(LedgerError):
    """The tables do not say what the journal proves, or the journal is not whole. No new charge is taken."""

    def __init__(self, ledger: str, fault: str) -> None:
        super().__init__(
            f"ledger {ledger}",
            f"it does not say what its journal proves: {fault}. No new charge is taken.",
            "find who changed it; `fieldfare ledger rebuild` for a table, `fieldfare ledger mend` for audit and head",
        )
        self.fault = fault


@dataclass(frozen=True)
class Checked:
    """How far the journal was followed, and the first thing that does not fit ("" for none)."""

    rows: int
    hash: str
    fault: str = ""
    end: int = 0  # how many rows the ledger had when it was last read
    table: str = ""
    row: str = ""  # where the fault is

    @property
    def ok(self) -> bool:
        """Whether all rows that were followed are whole and allowed, and the tables say the same."""
        return not self.fault

    @property
    def whole(self) -> bool:
        """Whether those are all rows of the ledger."""
        return self.ok and self.rows == self.end


class Replay:
    """The journal of one ledger as it is followed, and the tables beside it. Not thread-safe."""

    def __init__(self, name: str, *, thorough: bool = False) -> None:
        """Begin before the first row of the ledger `name`. thorough: as of `State`."""
        self._name, self._thorough = name, thorough
        self._clear()

    def _clear(self) -> None:
        self._state = State(self._thorough)
        self._rows, self._end, self._ledger, self._hash = 0, 0, "", ""
        self._now: list[dict[str, Any]] = []  # `_NOW`, as it was read last
        self._signed: str | None = None  # the signed head that was compared last
        # A fault in the journal or in rows that never change again: it stays.
        self._broken: Unfit | None = None
        self._unlike: Unfit | None = None  # what the last comparison found; the next one may find it mended
        self._touched: set[str] = set()  # runs that the journal has changed since they were last compared
        # Ended runs with `seq` up to this one are compared; the next slice begins after it.
        self._compared = 0
        # The largest id of `rounds` at the last comparison; None before the first, which counts all rows.
        self._newest_round: int | None = None
        self._rounds = 0  # how many rows `rounds` had then
        self._recomputed: set[str] = set()  # runs whose recomputed charges were compared
        # Population -> (hash of the stored odometers and pledges, what the journal says of them), as last compared.
        self._accounts: dict[str, tuple[str, object]] = {}

    def examine(self, connection: Connection) -> State:
        """The state at the end of the journal, in the transaction of `connection`, which may write after.

        Raises `Unfit` for the first row that does not fit, unless every table says what the journal proves.
        """
        self._step(connection, _BATCH)
        while self._broken is None and self._rows < self._end:
            self._step(connection, _BATCH)
        fault = self._broken or self._unlike
        if fault is not None:
            raise fault
        return self._state

    # -- following -------------------------------------------------------------------------------------------

    def _step(self, connection: Connection, most: int, *, compare: bool = True) -> None:
        """Follow at most `most` rows, compare the tables if those were the last, and note what does not fit."""
        self._unlike = None
        try:
            self._follow(connection, most, _NOW if compare else _END)
        except Unfit as unfit:
            self._broken = unfit
        except _DAMAGE as error:
            self._broken = Unfit("database", self._name, f"{type(error).__name__}: {error}")
        if compare and self._broken is None and self._unlike is None and self._rows == self._end:
            try:
                self._compare(connection)
            except Unfit as unfit:
                self._unlike = unfit
            except _DAMAGE as error:
                self._unlike = Unfit("database", self._name, f"{type(error).__name__}: {error}")

    def _follow(self, connection: Connection, most: int, now: Select[Any]) -> None:
        self._now = fetch(connection, now, since=2**31 - 1 if self._newest_round is None else self._newest_round)
        if {row["head"] for row in self._now} != {1}:
            raise LedgerCorrupt("table head", "it has not one row.")
        head, self._end = self._now[0], self._now[0]["count"]
        if self._rows == 0:
            self._ledger, self._hash = head["ledger"], chain.genesis(head["ledger"])
        if self._rows < self._end:
            there = [row for row in fetch(connection, JOURNAL, rows=self._rows, most=most) if row["id"] <= self._end]
            self._walk(there)
            self._compare_closed(connection)
            if self._rows < self._end and len(there) < most:
                raise Unfit("audit", str(self._rows + 1), f"it is missing: the journal ended at row {self._end}")
        behind = self._rows > self._end or (self._rows == self._end and self._hash != head["hash"])
        if behind or head["ledger"] != self._ledger:
            # An old copy was put back. The newest one, if it comes back, is accepted again.
            why = f"the ledger says that it ends in row {self._end}, which is not the row {self._rows} that was seen"
            self._unlike = Unfit("audit", str(self._end), why)

    def _walk(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            self._apply(row)

    def _apply(self, row: dict[str, object]) -> None:
        require_next(row, self._rows + 1, self._hash)
        record = self._take(row)
        self._rows, self._hash = record.number, str(row["hash"])
        # A charge is certified before its run is started.
        if record.run in self._state.runs:
            self._touched.add(str(record.run))
        if isinstance(record.event, Recomputed):
            self._touched.update(record.event.runs)

    def _take(self, row: dict[str, object]) -> Record:
        return apply(self._state, row)

    # -- rows that never change again ------------------------------------------------------------------------

    def _compare_closed(self, connection: Connection) -> None:
        """Compare rounds that were closed, and users that were registered, in the rows just read; then drop them."""
        closing = [name for name in self._touched if name in self._state.runs and _closed(self._state.runs[name])]
        for name in closing:
            self._compare_rounds(connection, name, self._state.runs[name])
        for name in self._touched - self._recomputed:
            run = self._state.runs.get(name)
            if run is not None and run.recomputed is not None:
                _compare_recomputed(connection, name, run.recomputed)
                self._recomputed.add(name)
        for name, population in self._state.populations.items():
            if population.chunks:
                _compare_users(connection, name, population)
                population.chunks.clear()

    def _compare_rounds(self, connection: Connection, name: str, run: FoldedRun) -> None:
        closed = _closed(run)
        indices = [index for index, _ in closed]
        for row in fetch(connection, _ROUNDS, name=name, first=min(indices), last=max(indices)):
            attempt = closed.pop((row["index"], row["attempt"]), None)
            if attempt is None:
                continue
            label = f"{name} {row['index']}.{row['attempt']}"
            _compare_round(label, row, attempt)
            taken = attempt.taken
            if taken is None:
                if row["blob"] is not None:
                    raise Unfit("participations", f"{name} {row['index']}", "the journal does not name it")
                continue
            there = (row["of_run"], row["of_round"], row["number"]) == (row["run_seq"], row["index"], taken.count)
            if not there or sha256(row["blob"]) != taken.users:
                raise Unfit("participations", f"{name} {row['index']}", "these are not the users that took part")
            if taken.charges is not None and _digest(row["charged"], row["number"]) != taken.charges:
                raise Unfit("participations", f"{name} {row['index']}", "these are not the charges of its users")
            del run.attempts[row["index"], row["attempt"]]
        for index, number in sorted(closed):
            raise Unfit("rounds", f"{name} {index}.{number}", "it is missing")
        for key in _closed(run):
            del run.attempts[key]

    # -- rows that may change --------------------------------------------------------------------------------

    def _compare(self, connection: Connection) -> None:
        """Compare the tables with the replayed state, all of which was followed."""
        state = self._state
        census = self._now[0]
        budgets = {name: population.row for name, population in state.populations.items()}
        rows = _compare_table(connection, _POPULATIONS, "populations", budgets, {}, lambda row: str(row["name"]))
        names = {row["id"]: row["name"] for row in rows}
        if census["signed"] != self._signed:
            self._compare_signed(connection, census)
            self._signed = census["signed"]
        charges = {f"{name} {key}": c for name, each in state.populations.items() for key, c in each.charges.items()}
        tables: tuple[tuple[Select[Any], str, Mapping[str, object], Callable[[dict[str, Any]], str]], ...] = (
            (_PROPOSALS, "proposals", state.proposals, itemgetter("id")),
            (_TOKENS, "tokens", state.tokens, itemgetter("id")),
            (_CHARGES, "charges", charges, lambda row: f"{names.get(row['population_id'])} {row['key']}"),
        )
        for query, table, wanted, label in tables:
            if wanted or census[table]:
                _compare_table(connection, query, table, wanted, names, label)
        compared, numbers = self._compare_runs(connection, names, census)
        self._compare_open()
        self._compare_odometers(connection, names, numbers, census)
        for name in migrate.damage(connection):
            raise Unfit("schema", name, "it differs from what the migrations make")
        self._count(connection, census)
        self._touched.clear()
        self._compared = compared

    def _compare_signed(self, connection: Connection, head: Mapping[str, Any]) -> None:
        """Compare the signed head, where there is one, with the row that it names. Raises `Unfit`."""
        if head["signed"] is None:
            return
        try:
            signed = SignedHead.parse(str(head["signed"]))
        except HeadRefused as error:
            raise Unfit("head", "1", error.why) from None
        # Mostly the row that was followed last, which then need not be read again.
        there = self._hash if signed.count == self._rows else None
        there = there or connection.execute(select(_j.hash).where(_j.id == signed.count)).scalar()
        if signed.ledger != head["ledger"] or there != signed.hash:
            raise Unfit("head", "1", f"row {signed.count} is not the one that was signed")

    def _compare_runs(
        self, connection: Connection, names: Mapping[int, str], census: Mapping[str, Any]
    ) -> tuple[int, dict[str, int]]:
        """Compare runs under way, changed runs and a slice of the others; returns where the next begins, and `seq`."""
        everything = self._newest_round is None
        end = 2**31 - 1 if everything else self._compared + _SLICE
        known = self._state.runs.keys() if everything else self._touched | self._active()
        rows = fetch(connection, _RUNS, compared=self._compared, end=end)
        # Those that have just ended, and those that have not and that the table calls so.
        for name in sorted(known - {row["id"] for row in rows}):
            rows += fetch(connection, _RUN, name=name)
        for row in rows:
            wanted = expected("runs", row["id"], self._state.runs).row
            shown = {**row, "plan": sha256(row["plan"]), "population": names.get(row["population_id"])}
            compare("runs", row["id"], shown, wanted)
        _require_all("runs", known, [row["id"] for row in rows])
        numbers = {row["id"]: row["seq"] for row in rows}
        if census["runs"] != len(self._state.runs):
            raise Unfit("runs", str(census["last_run"]), "there are more or fewer than the journal names")
        return end if end < (census["last_run"] or 0) else 0, numbers

    def _compare_odometers(
        self, connection: Connection, names: Mapping[int, str], numbers: Mapping[str, int], census: Mapping[str, Any]
    ) -> None:
        """Compare what users have spent and what runs were pledged of them, and note it as its `standing`."""
        numbers = {name: numbers[name] for name in self._active() if self._state.runs[name].row.individual}
        kept = {number for number, name in names.items() if self._state.populations[name].row.individual}
        for number in sorted(kept):
            name = names[number]
            population = self._state.populations[name]
            runs = [run for run in population.runs if run.row.individual]
            settled = odometer_tables.stored(connection, models.odometers, number) if census["odometers"] else []
            pledged = [odometer_tables.stored(connection, models.pledges, numbers[run.row.id]) for run in runs]
            stored = [settled, *pledged]
            users = population.row.users
            said = [(run.row.id, run.pledged, len(run.newcomers)) for run in runs]
            now = odometer_tables.fingerprint(stored), (users, population.settled, said)
            if population.standing is None or self._accounts.get(name) != now:
                population.standing = None
                population.standing = _standing(name, population, runs, stored)
                self._accounts[name] = now
        for table, owners, known in (("odometers", _KEPT, kept), ("pledges", _PLEDGED, set(numbers.values()))):
            there = connection.execute(owners).scalars() if census[table] else ()
            for other in sorted(set(there) - known):
                raise Unfit(table, str(other), "the journal does not name it")

    def _active(self) -> set[str]:
        """Runs under way."""
        populations = self._state.populations.values()
        return {run.row.id for population in populations for run in population.runs}

    def _compare_open(self) -> None:
        left = {name: self._state.runs[name] for name in self._active() if self._state.runs[name].open is not None}
        for row in self._now if self._now[0]["id"] is not None else ():
            label = f"{row['run']} {row['index']}.{row['attempt']}"
            run = left.pop(row["run"], None)
            if run is None or run.open != (row["index"], row["attempt"]):
                raise Unfit("rounds", label, "the journal does not name it as open")
            _compare_round(label, row, run.attempts[run.open])
        for name, run in left.items():
            raise Unfit("rounds", f"{name} {run.row.next_round}", "it is open, and its row is not")

    def _count(self, connection: Connection, census: Mapping[str, Any]) -> None:
        """Compare how many rows there are with what the journal says: all at first, then those of new rounds."""
        wanted = self._state.counts
        newest = census["newest"] or 0
        if self._newest_round is None:
            for name, number in wanted.items():
                if connection.execute(_COUNTS[name]).scalar_one() != number:
                    raise Unfit(name, "", f"there are not {number} rows, as the journal says")
            for run in connection.execute(_CHARGED).scalars():
                raise Unfit("participations", run, "its users are charged singly, and the journal says alike")
        elif census["new"] != wanted["rounds"] - self._rounds:
            raise Unfit("rounds", str(newest), "the journal does not name it")
        self._newest_round, self._rounds = newest, wanted["rounds"]


def _closed(run: FoldedRun) -> dict[tuple[int, int], FoldedAttempt]:
    return {key: attempt for key, attempt in run.attempts.items() if key != run.open}


def _digest(blob: object, count: int) -> str:
    return odometers.digest(odometer_tables.decode(blob, count)) if isinstance(blob, bytes) else ""


def _compare_recomputed(connection: Connection, name: str, digest: str) -> None:
    query = select(_p.charges, _p.count.label("number")).join(models.runs, _r.seq == _p.run_seq).where(_r.id == name)
    rounds = [_digest(row.charges, row.number) for row in connection.execute(query.order_by(_p.index))]
    if odometers.digest_of_rounds(rounds) != digest:
        raise Unfit("participations", name, "these are not the charges that were recomputed")


def _standing(
    name: str, population: FoldedPopulation, runs: list[FoldedRun], stored: list[list[dict[str, object]]]
) -> odometers.OdometerStanding:
    """The odometers of a population. Raises `Unfit` unless they are what the journal says."""
    users = population.row.users
    held = odometers.nothing(users)
    try:
        settled = odometer_tables.assemble(stored[0], users, "odometers")
        caps = [odometer_tables.assemble(rows, users, "pledges") for rows in stored[1:]]
    except LedgerError as error:
        raise Unfit("odometers", name, error.why) from None
    if odometers.digest(settled) != population.settled:
        raise Unfit("odometers", name, "they are not what ended runs have cost")
    for run, values in zip(runs, caps, strict=True):
        there = values[: run.newcomers[0].first] if run.newcomers else values
        same = odometers.digest(there) == run.pledged
        if not same or any((values[new.first : new.first + new.count] != new.cap).any() for new in run.newcomers):
            raise Unfit("pledges", f"{name} {run.row.id}", "they are not what the run was admitted with")
        held = held + values
    # What runs under way have taken is within what is held for them.
    return odometers.OdometerStanding(settled, settled, held, tuple((run.row.id, run.row.most or 0) for run in runs))


class Proof(Replay):
    """A replay that a process keeps, and asks before every charge. Thread-safe."""

    def __init__(self, database: Database) -> None:
        super().__init__(database.name)
        self._database = database
        self._lock = threading.RLock()

    def advance(self, most: int | None = None, *, compare: bool = True) -> Checked:
        """Follow at most `most` more journal rows (None: all), and compare the tables at the end if `compare`.

        Each batch is one short snapshot, so that a long journal is not read in one long transaction.
        """
        with self._lock:
            left = most
            while self._broken is None and (left is None or left > 0):
                size = _BATCH if left is None else min(_BATCH, left)
                left = None if left is None else left - size
                with self._database.read() as connection:
                    self._step(connection, size, compare=compare)
                if self._rows >= self._end:
                    break
            fault = self._broken or self._unlike
            table, row = (fault.table, fault.row) if fault else ("", "")
            return Checked(self._rows, self._hash, str(fault or ""), self._end, table, row)

    def restart(self) -> None:
        """Begin with the first row again at the next `advance`."""
        with self._lock:
            self._clear()

    def ask(self, population: str, question: Callable[[FoldedPopulation], T]) -> T:
        """`question` of a population as the journal leaves it now, for a price that a transaction then decides by.

        No table is compared, and no odometer can be asked for. Raises `Disproved` if the journal is not whole.
        """
        with self._lock:
            checked = self.advance(compare=False)
            if not checked.ok:
                raise Disproved(self._name, checked.fault)
            return question(replace(find(self._state, population), standing=None))

    def require(self, connection: Connection, end: int | None = None) -> State:
        """As `examine`. Raises `Disproved`, naming the row, unless every table says what the journal proves.

        end: how many rows the journal has. Raises `Late` then, if many of them are new, and at the first time.
        """
        with self._lock:
            if end is not None and (self._newest_round is None or end - self._rows > _BATCH):
                raise Late
            try:
                return self.examine(connection)
            except Unfit as unfit:
                raise Disproved(self._name, str(unfit)) from None


# -- comparisons ---------------------------------------------------------------------------------------------


def _compare_table(
    connection: Connection,
    query: Select[Any],
    table: str,
    wanted: Mapping[str, object],
    names: Mapping[int, str],
    label: Callable[[dict[str, Any]], str] = itemgetter("id"),
) -> list[dict[str, Any]]:
    """Compare all rows of a table with those that the log makes, by their labels; returns them. Raises `Unfit`.

    names: populations by id.
    """
    rows, stored = fetch(connection, query), []
    for row in rows:
        stored.append(name := label(row))
        shown: dict[str, object] = {**row, "population": names.get(row.get("population_id", 0))}
        if "salt" in row:
            shown["salt"] = sha256(row["salt"])
        compare(table, name, shown, expected(table, name, wanted))
    _require_all(table, wanted, stored)
    return rows


def _compare_users(connection: Connection, name: str, population: FoldedPopulation) -> None:
    firsts = [chunk.first for chunk in population.chunks]
    between = {"name": name, "low": min(firsts), "high": max(firsts)}
    stored = {row.first: (row.count, row.hashes) for row in connection.execute(_USERS, between)}
    for chunk in population.chunks:
        count, hashes = stored.pop(chunk.first, (0, b""))
        if count != chunk.count or len(hashes) != 8 * count or sha256(hashes) != chunk.hashes:
            raise Unfit("users", f"{name} {chunk.first}", "they are not the users that were registered")
    if stored:
        raise Unfit("users", f"{name} {min(stored)}", "the journal does not name them")


def _compare_round(label: str, row: Mapping[str, Any], attempt: FoldedAttempt) -> None:
    """Compare a row of `rounds`. Raises `Unfit`."""
    shown = {
        **row,
        "run": attempt.row.run,
        "statistics": sha256(row["statistics"].encode()),
        "rejects": _json("rounds", label, row["rejects"]),
        "cohort": None if row["cohort"] is None else sha256(row["cohort"]),
    }
    compare("rounds", label, shown, attempt.row)


def expected(table: str, label: str, replayed: Mapping[str, T]) -> T:
    """What the journal says of a row. Raises `Unfit` if it does not name it."""
    if label not in replayed:
        raise Unfit(table, label, "the journal does not name it")
    return replayed[label]


def compare(table: str, label: str, row: Mapping[str, object], wanted: Any) -> None:
    """Compare columns with a row that the log makes. Raises `Unfit`, naming the first that differs."""
    for column, value in zip(wanted._fields, wanted, strict=True):
        if row[column] != value:
            if column in _SECRET:
                raise Unfit(table, label, f"{column} is not what the journal says")
            raise Unfit(table, label, f"{column} is {row[column]!r}, and the journal says {value!r}")


def _require_all(table: str, wanted: Iterable[str], stored: Iterable[str]) -> None:
    """Raise `Unfit` for the first row that is missing."""
    for name in sorted(set(wanted) - set(stored)):
        raise Unfit(table, name, "it is missing")


def hash_row(row: Mapping[str, object]) -> str:
    """`chain.row_hash`; "" for a row that cannot be hashed."""
    try:
        return chain.row_hash(row)
    except (TypeError, ValueError):
        return ""


def require_next(row: Mapping[str, object], number: int, previous: str) -> None:
    """Raise `Unfit` unless `row` of the journal is row `number`, goes on from the hash before it, and is whole."""
    if row["id"] != number:
        raise Unfit("audit", str(number), "it is missing")
    if row["previous"] != previous:
        raise Unfit("audit", str(number), f"it does not follow row {number - 1}")
    if hash_row(row) != row["hash"]:
        raise Unfit("audit", str(number), "it was changed after it was written")


def sha256(data: object) -> str:
    """SHA-256 in hex; of anything, because SQLite returns whatever type an edit left in a column."""
    return hashlib.sha256(data if isinstance(data, bytes) else str(data).encode()).hexdigest()


# Most rounds have the same few rejects, or none. What it returns is only compared.
_loads = lru_cache(maxsize=1024)(json.loads)


def _json(table: str, label: str, value: str) -> object:
    try:
        return _loads(value)
    except ValueError:
        raise Unfit(table, label, "it is not JSON") from None
