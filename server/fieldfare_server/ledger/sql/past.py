"""What users had spent, and what was held of them, at each time of the past: for the history of a population.

Each start, round and end of a run under individual accounting is replayed once by a process and then remembered, so a
page that asks again reads no participation again.
"""

from __future__ import annotations

import heapq
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from sqlalchemy import Connection, Row, select

from fieldfare.accounting.individual import from_units
from fieldfare_server.ledger.sql import blobs, models, odometer_tables
from fieldfare_server.ledger.sql.memory import PricedRun
from fieldfare_server.ledger.state.accounts import Book

# Time -> the limit of then, less what all users were charged alike, in units.
Left: TypeAlias = Callable[[float], int]

# (time, kind, run, the participation of a round; of an end, a row where the run was charged whole).
_Move: TypeAlias = tuple[float, int, int, Any]

_MOST_POINTS = 10_000
_ROUNDS_AT_ONCE = 1000
_START, _ROUND, _END = range(3)


class PastPoint(NamedTuple):
    """What holds from a time on, in mu^2, beyond what all users are charged alike."""

    at: float
    committed: float  # spent and held of the user who has least left, or held of a user who would come then
    spent: float  # by the user who has spent most


class _Population(Book):
    """One population as the moves so far have left it. Its runs are named by their `seq`."""

    def __init__(self, users: int) -> None:
        super().__init__(users)
        self.spent = np.zeros(users, dtype=np.int64)  # what ended runs have cost, and what the others have taken
        self.most_spent = 0
        self.last = -math.inf  # when the newest move happened
        self.counted: dict[int, int] = {}  # run -> how many of its rounds are counted
        self.ended: set[int] = set()
        self.points: list[PastPoint] = []

    def grow(self, users: int, left: int) -> None:
        """Make room for `users` users: a new one is held what a newcomer is."""
        new = max(0, users - self.spent.size)
        self.register(new, left)
        self.spent = np.append(self.spent, np.zeros(new, dtype=np.int64))

    def note(self, at: float, left: int | None = None) -> None:
        """Add a point. left: of `Left`, where what is committed may have changed."""
        spent = from_units(self.most_spent) if self.most_spent else 0.0
        if left is None and self.points:
            committed = self.points[-1].committed
        else:
            largest = self.standing().most_committed(left or 0, 0)
            committed = from_units(largest) if largest else 0.0
        point = PastPoint(max(at, self.points[-1].at if self.points else at), max(committed, spent), spent)
        if not self.points or self.points[-1][1:] != point[1:]:
            self.points.append(point)
        if len(self.points) > _MOST_POINTS:
            # Of two neighbours the earlier time and the larger values: the lines never show less than there was.
            old = self.points
            pairs = zip(old[:-1:2], old[1::2], strict=False)
            self.points = [PastPoint(a.at, max(a.committed, b.committed), b.spent) for a, b in pairs]
            self.points += old[-1:] if len(old) % 2 else []


class Past:
    """Points of populations that are asked for again and again. Thread-safe."""

    def __init__(self, most: int = 4) -> None:
        """most: populations that are remembered; an older one is read again."""
        self._lock, self._most = threading.Lock(), most
        self._known: OrderedDict[tuple[str, int], _Population] = OrderedDict()

    def points(
        self, connection: Connection, population: Row[object], priced: Iterable[PricedRun], left: Left
    ) -> list[PastPoint]:
        """All points of a population with odometers, oldest first. Raises ValueError on a corrupt participation.

        priced: its runs in the order of their starts.
        """
        runs = {run.seq: run for run in priced if run.charge.individual}
        ledger = connection.execute(select(models.head.c.ledger)).scalar_one()
        with self._lock:
            known = self._known.pop((ledger, population.id), None)
            if known is None or not _goes_on(known, runs):
                known = _Population(population.users)
            _replay(connection, known, population.users, runs, left)
            self._known[ledger, population.id] = known
            while len(self._known) > self._most:
                self._known.popitem(last=False)
            return list(known.points)


def _goes_on(known: _Population, runs: dict[int, PricedRun]) -> bool:
    """Whether `runs` are what is known, and newer things. Not so after a recomputation, and in an older snapshot."""
    if any(seq not in runs or runs[seq].charge.rounds < counted for seq, counted in known.counted.items()):
        return False
    return all(seq in known.counted or run.started_at >= known.last for seq, run in runs.items())


def _replay(connection: Connection, known: _Population, users: int, runs: dict[int, PricedRun], left: Left) -> None:
    """Bring `known` up to `runs`."""
    known.grow(users, left(known.last))
    new = (_moves(connection, run, known) for run in runs.values() if run.seq not in known.ended)
    # Within a run the order is the journal's, whatever its clock says.
    for move in heapq.merge(*new, key=lambda move: move[:3]):
        at, kind, seq, row = move
        if kind == _START:
            # A run from before odometers is pledged 0: its charges were recomputed after its end.
            known.start(str(seq), runs[seq].most, left(at))
        elif kind == _ROUND:
            who, units = blobs.decode(row.users, row.number), odometer_tables.decode(row.charges or b"", row.number)
            known.take(str(seq), who, units)
            known.spent[who] += units
            known.most_spent = max(known.most_spent, int(known.spent[who].max(initial=0)))
        else:
            taken = known.taken[str(seq)]
            # What the run cost beyond what its rounds took, where it was charged whole.
            known.spent += known.end(str(seq), whole=row) - taken
            known.most_spent = int(known.spent.max(initial=0))
            known.ended.add(seq)
        known.note(at, None if kind == _ROUND else left(at))
        known.last = max(known.last, at)


def _moves(connection: Connection, run: PricedRun, known: _Population) -> Iterator[_Move]:
    """What is new of one run, in order."""
    if run.seq not in known.counted:
        yield run.started_at, _START, run.seq, None
    p, r = models.participations.c, models.rounds.c
    query = select(p.count.label("number"), p.users, p.charges, r.closed_at).join(models.rounds, r.id == p.round_id)
    for first in range(known.counted.get(run.seq, 0), run.charge.rounds, _ROUNDS_AT_ONCE):
        some = (p.run_seq == run.seq, p.index >= first, p.index < min(run.charge.rounds, first + _ROUNDS_AT_ONCE))
        for row in connection.execute(query.where(*some).order_by(p.index)):
            yield row.closed_at, _ROUND, run.seq, row
    known.counted[run.seq] = run.charge.rounds
    if run.ended_at is not None:
        yield run.ended_at, _END, run.seq, odometer_tables.is_whole(connection, run.seq)


# Of this process.
PAST = Past()
