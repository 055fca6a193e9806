"""What each user has spent, and what runs under way may still take: the tables of individual accounting.

`fieldfare.accounting.individual` has the theorem. Everything here is in its units, 2^-44 mu^2. Of each user:

    room = M - base - settled - sum over runs under way of cap,        room >= 0, always                         (1)

* *base* is what all users are charged alike: worst-case runs and charges of other trainers;
* *settled* is what ended runs have cost the user (table `odometers`);
* *cap* is the most that a run under way may cost the user: min(room, the run's most) when it is admitted. It covers
  what the run has taken and what it may still take (its pledge), so no other run can make it end early, and each run
  can judge its users without knowing of the others.

A commit stores what its round cost each participant next to the participation (`participations.charges`), in the same
transaction. The end of a run adds these to `odometers`, and its caps are free again.

The journal proves all of it: `run.start` has the digest of the caps, `users.register` the caps of newcomers,
`round.commit` the digest of its charges, `run.finish` that of the odometers.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, Row, delete, insert, select

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.filter import Price, Rectangle
from fieldfare.accounting.individual import MOST_UNITS, UNIT, Demand, Units, from_units
from fieldfare.errors import BudgetRefused, LedgerError
from fieldfare.text import decimal
from fieldfare_server.ledger import blobs, budget, models
from fieldfare_server.ledger.states import ACTIVE

INDIVIDUAL = "individual"
WORST_CASE = "worst-case"
BINS = 10
"""How many classes a histogram of what users have left has: tenths of the budget."""

_BLOCK = 1 << 16
"""Users in one row of `odometers` or `pledges`."""
_VERSION = b"\x01"


# -- units in the database ------------------------------------------------------------------------------------------


def encode(values: Units) -> bytes:
    """The blob of numbers in [0, 2^63): a version byte, then zlib of little-endian 64-bit integers."""
    return _VERSION + zlib.compress(values.astype("<u8").tobytes(), 1)


def decode(blob: bytes, count: int) -> Units:
    """The `count` numbers of `blob`. Raises ValueError if it holds others. Never inflates beyond 8 bytes a number."""
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(blob[1:], 8 * count + 1)
    except zlib.error as error:
        raise ValueError(f"the charges do not inflate: {error}") from None
    if blob[:1] != _VERSION or len(data) != 8 * count or not inflater.eof or inflater.unused_data:
        raise ValueError(f"not the charges of {count} users")
    values = np.frombuffer(data, dtype="<u8")
    if values.size and int(values.max()) >= 2**63:
        raise ValueError("a charge is out of range")
    return values.astype(np.int64)


def digest(values: Units) -> str:
    """SHA-256 of the numbers without the zeros at the end, hex: users who joined and paid nothing change nothing."""
    paid = values != 0
    size = values.size - int(paid[::-1].argmax()) if paid.any() else 0
    return hashlib.sha256(values[:size].astype("<u8").tobytes()).hexdigest()


def digest_of_rounds(rounds: Iterable[Units]) -> str:
    """SHA-256 of the digests of a run's charges, round by round, hex."""
    return digest_of_digests(map(digest, rounds))


def digest_of_digests(digests: Iterable[str]) -> str:
    """`digest_of_rounds` of rounds whose digests these are."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def fingerprint(tables: Iterable[Iterable[Mapping[str, Any]]]) -> str:
    """SHA-256 of rows (first, count, blob) of several tables, as they are stored, hex."""
    hasher = hashlib.sha256()
    for number, rows in enumerate(tables):
        for row in rows:
            parts = (number, row["first"], row["count"], len(row["blob"]))
            hasher.update(repr(parts).encode())
            hasher.update(row["blob"] if isinstance(row["blob"], bytes) else str(row["blob"]).encode())
    return hasher.hexdigest()


# -- the arithmetic -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def limit_units(terms: budget.Terms) -> int:
    """M in units, rounded down: the most for which the filter's epsilon is at most the budget's."""
    limit = min(MOST_UNITS, math.floor(Rectangle.of(terms.epsilon, terms.delta, terms.leak).mu_squared / UNIT))
    while limit > 0 and not terms.hold(Price(from_units(limit))):
        limit -= 1 + (limit >> 52)
    return limit


def units_of(price: Price) -> int:
    """mu^2 of a price in units, rounded up."""
    return math.ceil(price.mu_squared / UNIT)


def pledge(room: Units, most: int) -> Units:
    """The caps of a run that can cost one user `most`, for users with `room`, shape (n,)."""
    return np.clip(room, 0, most).astype(np.int64)


@dataclass(frozen=True)
class Admission:
    """Whether enough users have enough left for a run, and how many have how much."""

    fits: bool
    users: int
    able: int
    """Users who can pay for one participation or more."""
    whole: int
    """Users who can pay for the most that the run can cost them."""
    participations: int
    """How many participations all users together can pay for."""
    needed: int
    """How many participations the run needs."""
    at_once: int
    """How many users it needs who can pay for one participation."""


def nothing(users: int) -> Units:
    """Zeros, shape (users,), read-only and in 8 bytes: a population without odometers in use has millions of them."""
    return np.broadcast_to(np.int64(0), (users,))


def admission(room: Units, demand: Demand, newcomer_room: int = 0) -> Admission:
    """The check of spec/budgets.md 2.3: sum min(a_u, k) >= rounds x cohort, and enough users for `separation` rounds.

    a_u is how many tightly packed participations the room of user u pays. Necessary for reaching the end; random
    choices may still leave a round short, which then waits, and nothing is overspent.

    Args:
        room: of each user who can be asked, shape (n,).
        newcomer_room: of each of `demand.newcomers`.
    """
    costs = np.asarray(demand.costs, dtype=np.int64)
    pays = np.searchsorted(costs, room, side="right")
    new = int(np.searchsorted(costs, newcomer_room, side="right"))
    able = int((pays > 0).sum()) + (demand.newcomers if new else 0)
    participations = int(pays.sum()) + new * demand.newcomers
    needed, at_once = demand.rounds * demand.cohort, demand.cohort * min(demand.separation, demand.rounds)
    return Admission(
        fits=participations >= needed and able >= at_once,
        users=int(room.size) + demand.newcomers,
        able=able,
        whole=int((room >= demand.most).sum()) + (demand.newcomers if newcomer_room >= demand.most else 0),
        participations=participations,
        needed=needed,
        at_once=at_once,
    )


def histogram(room: Units, limit: int) -> tuple[int, ...]:
    """How many users have up to a tenth of the budget left, up to two tenths, ..., all of it, shape (BINS,)."""
    if limit <= 0:
        return (int(room.size), *(0,) * (BINS - 1))
    # An exact integer class: ceil(BINS room / limit), at least the first.
    classes = -(-room.astype(object) * BINS // limit) if limit > 2**58 else -(-room * BINS // limit)
    counts = np.bincount(np.clip(classes.astype(np.int64), 1, BINS) - 1, minlength=BINS)
    return tuple(int(count) for count in counts)


_STEPS = 4096


def largest(room: Units, demand: Demand, newcomer_room: int = 0) -> int:
    """The most that a run may cost one user to be admitted with the same rounds and cohorts, in units; 0: no such run.

    Found to one part in `_STEPS` of `demand.most`: with more noise all its costs fall in proportion.
    """
    low, high = 0, _STEPS
    while high - low > 1:
        middle = (low + high) // 2
        costs = tuple(max(1, cost * middle // _STEPS) for cost in demand.costs)
        less = replace(demand, most=demand.most * middle // _STEPS, costs=costs)
        low, high = (middle, high) if admission(room, less, newcomer_room).fits else (low, middle)
    return demand.most * low // _STEPS


def refusal(
    population: str,
    found: Admission,
    demand: Demand,
    room: Units,
    newcomer_room: int,
    limit: int,
    terms: budget.Terms,
) -> BudgetRefused:
    """Why too few users have enough left, and how many have how much. Counts only: never one user's value."""

    def epsilon(units: int) -> str:
        return f"{terms.gauge(Price(from_units(units))):.4g}" if units else "0"

    shares = [
        f"{count} have {'up to ' if share < BINS else ''}{share * 100 // BINS} %"
        for share, count in enumerate(histogram(room, limit), start=1)
        if count
    ]
    nothing = int(np.count_nonzero(room == 0))
    one, whole = epsilon(demand.costs[0]), epsilon(demand.most)
    return BudgetRefused(
        f"a run of {demand.rounds} rounds of {demand.cohort} users on population {population!r}",
        f"{found.able} of {found.users} users have left what one round costs them (epsilon {one}), {found.whole} what "
        f"the run can cost them at most (epsilon {whole}); the run needs {found.needed} participations and "
        f"{found.at_once} users at once, and what is left pays for {found.participations}. Of the budget, epsilon "
        f"{terms.epsilon:.6g} at delta {decimal(terms.delta, 3)}: {nothing} users have nothing left; "
        f"{', '.join(shares)}.",
        f"a run of epsilon {float(epsilon(less)) * 0.999:.4g}, fewer rounds, or a smaller cohort"
        if (less := largest(room, demand, newcomer_room))
        else "fewer rounds, a smaller cohort, or other users",
    )


@dataclass(frozen=True)
class Asked:
    """A run that would be charged to a population's odometers: what it asks of single users, and its price."""

    population: str
    demand: Demand
    planned: PrivacyLoss
    price: Price


def admit(standing: Standing, terms: budget.Terms, common: Price, asked: Asked) -> Units:
    """The caps of a run that starts now, shape (users,).

    Args:
        standing: what users have spent, and what is held of them.
        terms: the budget.
        common: what all users are charged alike, spent and reserved.

    Raises:
        BudgetRefused: too few users have enough left.
    """
    demand = asked.demand
    limit, base = limit_units(terms), units_of(common)
    room, newcomer = standing.room(limit, base), standing.newcomer_room(limit, base)
    if not room.size and not demand.newcomers:
        # No user is known yet: each who comes can pay what a newcomer has left.
        if newcomer < demand.most:
            held = Price(from_units(limit - newcomer), common.leak)
            raise budget.refusal(asked.population, asked.planned, asked.price, held, terms)
        return pledge(room, demand.most)
    found = admission(room, demand, newcomer)
    everyone = admission(np.full(room.size, limit, dtype=np.int64), demand, limit)
    # With too few users even for a whole budget, the run waits for users, and the budget is not what refuses it.
    if not found.fits and (everyone.fits or not found.able):
        raise refusal(asked.population, found, demand, room, newcomer, limit, terms)
    return pledge(room, demand.most)


# -- what the tables say --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Left:
    """What the users of a population have left, in figures."""

    most_committed: int
    """`Standing.most_committed`."""
    largest: int | None
    """What the user who has most left has left; None without users."""
    exhausted: int
    """How many have nothing left."""
    classes: tuple[int, ...]
    """`histogram`."""


@dataclass(eq=False)
class Standing:
    """The odometers of a population's users, all (n,), as one snapshot has them."""

    settled: Units
    """What ended runs have cost."""
    spent: Units
    """That, and what the runs under way have taken so far."""
    held: Units
    """The caps of the runs under way, added up."""
    runs: tuple[tuple[str, int], ...]
    """(id, most) of the runs under way, in the order of their starts."""

    @property
    def most_spent(self) -> int:
        """What the user who has spent most has spent."""
        return int(self.spent.max(initial=0))

    def most_committed(self, limit: int, base: int) -> int:
        """The most that is settled and held of any user, or would be held of a newcomer."""
        newcomer = sum(newcomer_caps(self.runs, limit - base).values())
        return max(int((self.settled + self.held).max(initial=0)), newcomer)

    def room(self, limit: int, base: int) -> Units:
        """Equation (1), shape (n,)."""
        left: Units = np.maximum(limit - base - self.settled - self.held, 0)
        return left

    def left(self, limit: int, base: int) -> Left:
        """What users have left under this budget."""
        room = self.room(limit, base)
        return Left(
            most_committed=self.most_committed(limit, base),
            largest=int(room.max()) if room.size else None,
            exhausted=int(np.count_nonzero(room == 0)),
            classes=histogram(room, limit),
        )

    def newcomer_room(self, limit: int, base: int) -> int:
        """What a user who is registered now would have left."""
        return max(limit - base - sum(newcomer_caps(self.runs, limit - base).values()), 0)


def is_individual(population: Row[Any]) -> bool:
    """Whether the ledger keeps odometers of this population."""
    return bool(population.accounting == INDIVIDUAL)


class UnderWay(NamedTuple):
    """A run under way that is charged to odometers."""

    seq: int
    id: str
    most: int
    next_round: int


def active_runs(connection: Connection, population_id: int) -> list[UnderWay]:
    """The runs of a population that are under way and charged to odometers, in the order of their starts."""
    c = models.runs.c
    query = select(c.seq, c.id, c.most, c.next_round).where(
        c.population_id == population_id, c.accounting == INDIVIDUAL, c.state.in_(ACTIVE)
    )
    return [UnderWay(*row) for row in connection.execute(query.order_by(c.seq))]


def settled(connection: Connection, population_id: int, users: int) -> Units:
    """Table `odometers`, shape (users,); 0 where there is no row."""
    return assemble(stored_settled(connection, population_id), users, "odometers")


def stored_settled(connection: Connection, population_id: int) -> list[dict[str, Any]]:
    """Rows (first, count, blob) of table `odometers`, by `first`."""
    c = models.odometers.c
    query = select(c.first, c.count, c.spent.label("blob")).where(c.population_id == population_id)
    return [dict(row) for row in connection.execute(query.order_by(c.first)).mappings()]


def caps(connection: Connection, run_seq: int, users: int) -> Units:
    """Table `pledges` of a run, shape (users,); 0 where there is no row."""
    return assemble(stored_caps(connection, run_seq), users, "pledges")


def stored_caps(connection: Connection, run_seq: int) -> list[dict[str, Any]]:
    """Rows (first, count, blob) of table `pledges`, by `first`."""
    c = models.pledges.c
    query = select(c.first, c.count, c.caps.label("blob")).where(c.run_seq == run_seq)
    return [dict(row) for row in connection.execute(query.order_by(c.first)).mappings()]


def taken(
    connection: Connection, run_seq: int, users: int, since: int = 0, proven: Mapping[int, str] | None = None
) -> Units:
    """What the committed rounds of a run, from round `since` on, have cost each user, shape (users,).

    proven: round -> the digest of its charges, by the journal; None: not compared.

    Raises `LedgerError` on a blob that is corrupt, or that is not what the journal says.
    """
    found = {}
    total = np.zeros(users, dtype=np.int64)
    c = models.participations.c
    query = select(c.index, c.count, c.users, c.charges).where(c.run_seq == run_seq, c.index >= since).order_by(c.index)
    for index, count, blob, charged in connection.execute(query):
        try:
            units = decode(charged or b"", count)
            total[blobs.decode(blob, count)] += units
        except (ValueError, IndexError) as error:
            raise LedgerError(f"round {index}", f"what it cost its users is corrupt: {error}.") from None
        if proven is not None:
            found[index] = digest(units)
    if proven is not None and found != proven:
        raise LedgerError(
            f"what a run of {len(proven)} rounds has cost its users",
            "it is not what the journal proves, so it is not settled.",
            "`fieldfare verify` names the row that was changed",
        )
    return total


def assemble(rows: Iterable[Mapping[str, Any]], users: int, table: str) -> Units:
    """The numbers of rows (first, count, blob), which come by `first`, shape (users,); 0 where there is no row.

    Raises `LedgerError` on a blob that is corrupt, and on rows that share users or name others than there are.
    """
    rows = list(rows)
    if not rows:
        return nothing(users)
    values = np.zeros(users, dtype=np.int64)
    end = 0
    for row in rows:
        first, count = row["first"], row["count"]
        try:
            if not end <= first <= first + count <= users:
                raise ValueError("users that another row has, or that there are not")
            values[first : first + count] = decode(row["blob"], count)
            end = first + count
        except (TypeError, ValueError) as error:
            raise LedgerError(f"table {table}", f"row {first} is corrupt: {error}.") from None
    return values


def standing(connection: Connection, population: Row[Any]) -> Standing:
    """The odometers of a population, read whole."""
    users = population.users
    before = settled(connection, population.id, users)
    spent, held = before.copy(), np.zeros(users, dtype=np.int64)
    runs = active_runs(connection, population.id)
    for run in runs:
        spent += taken(connection, run.seq, users)
        held += caps(connection, run.seq, users)
    return Standing(before, spent, held, tuple((run.id, run.most) for run in runs))


# -- writes, each in its caller's transaction ---------------------------------------------------------------------


def write_caps(connection: Connection, run_seq: int, values: Units, first: int = 0) -> None:
    """Insert the caps of users `first`, `first` + 1, ... of a run."""
    for at in range(0, values.size, _BLOCK):
        part = values[at : at + _BLOCK]
        row = {"run_seq": run_seq, "first": first + at, "count": part.size, "caps": encode(part)}
        connection.execute(insert(models.pledges).values(row))


def pledge_newcomers(connection: Connection, population: Row[Any], base: int, first: int, count: int) -> dict[str, int]:
    """Pledge `count` new users to every run under way, in the order of their starts; {run: the cap of each of them}.

    population: the row before they were added.
    """
    runs = active_runs(connection, population.id)
    if not runs or not count:
        return {}
    room = limit_units(budget.Terms(population.epsilon, population.delta, population.leak)) - base
    pledged = newcomer_caps([(run.id, run.most) for run in runs], room)
    for run in runs:
        write_caps(connection, run.seq, np.full(count, pledged[run.id], dtype=np.int64), first)
    return pledged


def newcomer_caps(runs: Sequence[tuple[str, int]], room: int) -> dict[str, int]:
    """The cap of a new user with `room` in each of `runs`, (id, most) in the order of their starts."""
    pledged = {}
    for run_id, most in runs:
        pledged[run_id] = max(0, min(room, most))
        room -= pledged[run_id]
    return pledged


def settle(connection: Connection, population: Row[Any], run: Row[Any]) -> str:
    """Add what a run has taken to the odometers, and free its caps. Returns the digest of the odometers.

    Raises `LedgerError` unless both are what the journal proves: the sum is journaled as what users have spent.
    """
    before = settled(connection, population.id, population.users)
    if digest(before) != _settled_digest(connection, population.name):
        raise LedgerError(
            f"the odometers of population {population.name!r}",
            "they are not what the journal proves, so no run is settled.",
            "`fieldfare verify` names what was changed",
        )
    c = models.journal.c
    commits = select(c.round, c.body).where(c.run == run.id, c.action == "round.commit")
    proven = {row.round: json.loads(row.body)["charges"] for row in connection.execute(commits)}
    after = before + taken(connection, run.seq, population.users, proven=proven)
    write_settled(connection, population.id, after)
    connection.execute(delete(models.pledges).where(models.pledges.c.run_seq == run.seq))
    return digest(after)


def _settled_digest(connection: Connection, population: str) -> str:
    """Digest of the odometers of now, by the journal."""
    c = models.journal.c
    named = (c.population == population, c.action.in_(("run.finish", "population.odometers")))
    for body in connection.execute(select(c.body).where(*named).order_by(c.id.desc())).scalars():
        if "odometers" in (about := json.loads(body)):
            return str(about["odometers"])
    return digest(np.zeros(0, dtype=np.int64))


def write_settled(connection: Connection, population_id: int, values: Units) -> None:
    """Replace the odometers of a population."""
    connection.execute(delete(models.odometers).where(models.odometers.c.population_id == population_id))
    for at in range(0, values.size, _BLOCK):
        part = values[at : at + _BLOCK]
        if part.any():
            row = {"population_id": population_id, "first": at, "count": part.size, "spent": encode(part)}
            connection.execute(insert(models.odometers).values(row))


# -- for readers who ask again and again --------------------------------------------------------------------------


@dataclass(eq=False)
class _Watched:
    shape: tuple[Any, ...]
    """What the arrays depend on but for the rounds of runs under way."""
    standing: Standing
    rounds: dict[int, int] = field(default_factory=dict)
    """Run -> how many of its committed rounds are counted."""
    left: tuple[int, int, Left] | None = None
    """(limit, base, what is left under them): a round moves neither."""


class Watch:
    """Standings of populations that are asked for again and again: each committed round is read once. Thread-safe."""

    def __init__(self, most: int = 8) -> None:
        """most: populations that are remembered; an older one is read again."""
        self._lock, self._most = threading.Lock(), most
        self._watched: OrderedDict[int, _Watched] = OrderedDict()

    def standing(
        self, connection: Connection, population: Row[Any], runs: Sequence[UnderWay], history: object
    ) -> Standing:
        """As `standing` of the same snapshot. The arrays are shared: read them before the next call, change nothing.

        Args:
            runs: as `active_runs`.
            history: which journal this is, and how many runs it has charged to these odometers.
        """
        with self._lock:
            known = self._follow(connection, population, runs, history)
            return replace(known.standing, spent=known.standing.spent.copy())

    def figures(
        self, connection: Connection, population: Row[Any], runs: Sequence[UnderWay], history: object, base: int
    ) -> tuple[int, Left]:
        """(what the user who has spent most has spent, what is left); base as in equation (1), the rest as `standing`.

        What is left is worked out when a run starts or ends, users come or the budget changes, and not each round.
        """
        limit = limit_units(budget.Terms(population.epsilon, population.delta, population.leak))
        with self._lock:
            known = self._follow(connection, population, runs, history)
            if known.left is None or known.left[:2] != (limit, base):
                known.left = limit, base, known.standing.left(limit, base)
            return known.standing.most_spent, known.left[2]

    def _follow(
        self, connection: Connection, population: Row[Any], runs: Sequence[UnderWay], history: object
    ) -> _Watched:
        shape = (population.users, history, tuple(run.seq for run in runs))
        known = self._watched.get(population.id)
        same = known is not None and known.shape == shape
        if known is None or not same or any(known.rounds[run.seq] > run.next_round for run in runs):
            # An older snapshot than the last is rare, and is read whole as well.
            known = _Watched(shape, standing(connection, population))
        else:
            for run in runs:
                if run.next_round > (since := known.rounds[run.seq]):
                    known.standing.spent += taken(connection, run.seq, population.users, since)
        known.rounds = {run.seq: run.next_round for run in runs}
        self._watched[population.id] = known
        self._watched.move_to_end(population.id)
        while len(self._watched) > self._most:
            self._watched.popitem(last=False)
        return known
