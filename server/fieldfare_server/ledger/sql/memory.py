"""What a reader remembers between two questions, so that an answer costs what is new and not what the ledger holds.

Nothing here decides a charge: `proof` compares the tables with the journal for that. An ended run never
changes again, so `Memory` reads it once. It follows the journal, which names every run and charge that did
change, and reads those rows again; a journal that went back or forked makes it begin afresh.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from sqlalchemy import Connection, Row, and_, bindparam, case, func, or_, select

from fieldfare.accounting.filter import Price
from fieldfare.names import QUESTION
from fieldfare_server.ledger.chain import Head
from fieldfare_server.ledger.sql import models, odometer_tables
from fieldfare_server.ledger.state import budget, odometers
from fieldfare_server.ledger.state.windows import Days
from fieldfare_server.ledger.states import ACTIVE
from fieldfare_server.ledger.views import PopulationView, RunInBrief

T = TypeVar("T")

# Journal rows that are followed; behind more than these, all runs are read again, which is quicker.
_FOLLOWED = 5_000
# Charges that are read by name; more are read all.
_NAMED = 500

_j, _r, _c = models.journal.c, models.runs.c, models.charges.c
_CHARGES = ("charge.reserve", "charge.carry", "charge.commit", "charge.release")
# A request names a run alone, without its population. coalesce keeps the database from the index of populations.
_OURS = func.coalesce(_j.population, bindparam("name")) == bindparam("name")
_names = (
    *("seq", "id", "planned", "spent", "price", "next_round", "state", "accounting", "rounds", "most"),
    *("plan_digest", "started_at", "ended_at"),
)
# `asks`: whether it asks a question, by its plan's text: JSON of all runs would take longer than what it serves.
_columns = [*(_r[name] for name in _names), _r.plan.contains(QUESTION, autoescape=True).label("asks")]
_RUNS = select(*_columns).where(_r.population_id == bindparam("number")).order_by(_r.seq)
# What is new, each row with its run as that is now: one statement, because a round trip costs more than its rows.
_NEW = (
    select(_j.id.label("row"), _j.hash, _j.action, case((_j.action.in_(_CHARGES), _j.body)).label("charge"), *_columns)
    .join_from(
        models.journal, models.runs, and_(_r.id == _j.run, _r.population_id == bindparam("number")), isouter=True
    )
    .where(_j.id.between(bindparam("known"), bindparam("end")), or_(_j.id == bindparam("known"), _OURS))
)
_FOREIGN = select(_c.key, _c.price, _c.state, _c.reserved_at).where(_c.population_id == bindparam("number"))
_FOREIGN_NAMED = _FOREIGN.where(_c.key.in_(bindparam("names", expanding=True)))


class AtHead(Generic[T]):
    """Values by name, each for one end of the journal. Thread-safe."""

    def __init__(self, most: int = 256) -> None:
        """most: how many names are remembered."""
        self._lock, self._most = threading.Lock(), most
        self._known: OrderedDict[str, tuple[Head, T]] = OrderedDict()

    def get(self, head: Head, name: str, compute: Callable[[], T]) -> T:
        """`compute()`, which depends on the journal up to `head` alone; remembered for the next caller."""
        with self._lock:
            known = self._known.get(name)
        if known is not None and known[0] == head:
            return known[1]
        value = compute()
        with self._lock:
            self._known[name] = (head, value)
            self._known.move_to_end(name)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return value


@dataclass(frozen=True)
class TakenSums:
    """What the runs and charges of one population take of it."""

    sums: budget.Sums  # what all users are charged alike
    runs: int
    newest: RunInBrief | None  # the run that was started last, a question only where nothing trained; None without one
    active: tuple[RunInBrief, ...]  # the runs under way, in the order of their starts
    individual: tuple[Row[Any], ...]  # the rows of those of them that are charged to odometers
    # (where in the journal the reader began, how many runs are charged to odometers).
    history: tuple[Head, int]


class PricedRun(NamedTuple):
    """A run, and what it is charged by."""

    seq: int
    started_at: float
    ended_at: float | None
    charge: budget.RunCharge
    most: int  # the most that it could cost one user, where it was started with odometers; else 0
    asks: bool  # whether it asks a question


class _Part(NamedTuple):
    """What one run or charge takes."""

    at: float  # when it began
    sums: budget.Sums
    begun: Price


class Account:
    """What `TakenSums` of one population is made of, at one end of the journal."""

    def __init__(self, connection: Connection, population: Row[object], head: Head) -> None:
        self.head = self._began = head
        self._name, self._number = population.name, population.id
        self._spent, self._committed, self._days = budget.Total(), budget.Total(), Days()
        self._runs: dict[int, PricedRun] = {}  # all of them by `seq`, in the order of their starts
        self._individual = 0
        self._newest: Row[object] | None = None
        self._active: dict[int, Row[Any]] = {}  # runs under way, by `seq`
        # What may still change: of runs under way by `seq`, of charges that are reserved by key.
        self._open: dict[int | str, _Part] = {}
        self._read_runs(connection.execute(_RUNS, {"number": self._number}))
        self._read_charges(connection.execute(_FOREIGN, {"number": self._number}))

    def follow(self, connection: Connection, head: Head) -> bool:
        """Follow the journal to `head`; False, and nothing is changed, where beginning afresh is right or quicker."""
        if head == self.head:
            return True
        if head.ledger != self.head.ledger or not 0 <= head.count - self.head.count <= _FOLLOWED:
            return False
        between = {"known": self.head.count, "end": head.count, "name": self._name, "number": self._number}
        rows: dict[int, Row[Any]] = {row.row: row for row in connection.execute(_NEW, between)}
        known = rows.pop(self.head.count, None)
        # Only this changes what ended runs are charged.
        recomputed = any(row.action == "population.odometers" for row in rows.values())
        if known is None or known.hash != self.head.hash or recomputed:
            return False
        runs = {row.seq: row for row in rows.values() if row.seq is not None}
        keys = sorted({json.loads(row.charge)["key"] for row in rows.values() if row.charge is not None})
        if len(keys) > _NAMED:
            return False
        self._read_runs(runs[seq] for seq in sorted(runs))
        if keys:
            self._read_charges(connection.execute(_FOREIGN_NAMED, {"number": self._number, "names": keys}))
        self.head = head
        return True

    def _read_runs(self, rows: Iterable[Row[object]]) -> None:
        """Take in runs, in the order of their starts."""
        for row in rows:
            known = row.seq in self._runs
            if known and row.seq not in self._active:
                continue  # it has ended before
            active, individual = row.state in ACTIVE, row.accounting == odometers.INDIVIDUAL
            price = budget.stored_price(row.price)
            charge = budget.RunCharge(row.planned, row.spent, price, row.next_round, active, individual)
            self._runs[row.seq] = PricedRun(row.seq, row.started_at, row.ended_at, charge, row.most or 0, row.asks)
            self._take(row.seq, _Part(row.started_at, budget.parts(charge), budget.begun(charge)), final=not active)
            self._active.pop(row.seq, None)
            if active:
                self._active[row.seq] = row
            if self._newest is None or (not row.asks, row.seq) >= (not self._newest.asks, self._newest.seq):
                self._newest = row
            self._individual += individual and not known

    def _read_charges(self, rows: Iterable[Row[object]]) -> None:
        """Take in charges of other trainers that are new, or were reserved."""
        for row in rows:
            price = Price() if row.state == "released" else budget.stored_price(row.price)
            sums = budget.Sums(price if row.state == "committed" else Price(), price)
            self._take(row.key, _Part(row.reserved_at, sums, price), final=row.state != "reserved")

    def _take(self, name: int | str, part: _Part, *, final: bool) -> None:
        """Count `part` in the place of what this run or charge took before. final: it never changes again."""
        for each, sign in ((self._open.pop(name, None), -1), (part, 1)):
            if each is not None:
                self._spent.add(each.sums.spent, sign)
                self._committed.add(each.sums.committed, sign)
                self._days.add(each.at, each.begun, sign)
        if not final:
            self._open[name] = part

    def priced(self) -> list[PricedRun]:
        """Every run, in the order of their starts."""
        return list(self._runs.values())

    def begun(self, day: int) -> Price:
        """What began from that day on."""
        return self._days.since(day)

    def taken(self) -> TakenSums:
        """What is taken now."""
        active = [self._active[seq] for seq in sorted(self._active)]
        return TakenSums(
            sums=budget.Sums(self._spent.price(), self._committed.price()),
            runs=len(self._runs),
            newest=None if self._newest is None else _brief(self._newest),
            active=tuple(map(_brief, active)),
            individual=tuple(run for run in active if run.accounting == odometers.INDIVIDUAL),
            history=(self._began, self._individual),
        )


def _brief(run: Row[object]) -> RunInBrief:
    planned, leak = budget.loss(run.planned), budget.stored_price(run.price).leak
    values = {"planned": planned, "leak": leak, "rounds_left": run.rounds - run.next_round}
    return RunInBrief(**{**run._mapping, **values})


class Memory:
    """What the readers of one open ledger remember. Thread-safe."""

    def __init__(self, most: int = 256) -> None:
        """most: of how many populations."""
        self._lock, self._most = threading.Lock(), most
        self._accounts: OrderedDict[int, Account] = OrderedDict()
        self.odometers = odometer_tables.Watch()
        self.views: AtHead[PopulationView] = AtHead(most)

    def ask(self, connection: Connection, population: Row[object], head: Head, question: Callable[[Account], T]) -> T:
        """The answer of a population's account at `head`, which is where the journal ends for `connection`."""
        with self._lock:
            # What is half followed when the database fails is dropped.
            account = self._accounts.pop(population.id, None)
            if account is None or not account.follow(connection, head):
                account = Account(connection, population, head)
            self._accounts[population.id] = account
            while len(self._accounts) > self._most:
                self._accounts.popitem(last=False)
            return question(account)
