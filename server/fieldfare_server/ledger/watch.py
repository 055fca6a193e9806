"""What a service that watches a ledger asks again and again: cheap, incremental, and never in the way of a commit.

Every function reads one snapshot: that of its source if the source is a snapshot already, else a fresh one.
`RoundCounts` reads each closed round once, however often it is asked; `proof.Proof` does the same for journal
rows.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Double, and_, bindparam, func, select, text

from fieldfare.participation import PRESENCE
from fieldfare_server.ledger import views
from fieldfare_server.ledger.events.runs import Audited
from fieldfare_server.ledger.reads import ReadSource
from fieldfare_server.ledger.sql import models
from fieldfare_server.ledger.sql.journal import read_head
from fieldfare_server.ledger.sql.rows import reservations, run_row, state_now
from fieldfare_server.ledger.states import RunState

# Made once: to build a statement takes longer than to run it.
_r, _t, _j = models.runs.c, models.rounds.c, models.journal.c
_LATEST = (
    select(_r.id, _t.closed_at, _t.statistics, _t.participants)
    .join_from(
        models.runs,
        models.rounds,
        and_(_t.run_seq == _r.seq, _t.index == _r.next_round - 1, _t.state == "committed"),
    )
    .where(_r.id.in_(bindparam("names", expanding=True)))
)
_ACTIVITY = (
    select(
        state_now(bindparam("now", type_=Double)).label("state"),
        func.min(_t.opened_at),
        func.max(_t.closed_at),
        func.count(_t.id),
    )
    .join_from(models.runs, models.leases)
    .outerjoin(
        models.rounds,
        and_(_t.run_seq == _r.seq, _t.index >= _r.next_round - bindparam("recent"), _t.state == "committed"),
    )
    .where(_r.seq == bindparam("seq"))
    .group_by(_r.seq, models.leases.c.run_seq)
)
_NEWEST_ROW = (
    select(models.journal)
    .where(_j.run == bindparam("run"), _j.action.in_(bindparam("actions", expanding=True)))
    .order_by(_j.id.desc())
    .limit(1)
)

_AUDITED = (
    select(_j.run, _j.body)
    .where(_j.id > bindparam("last"), _j.id <= bindparam("end"), _j.action == Audited.action)
    .order_by(_j.id)
)

# The state is a literal because SQLite uses the small index of open rounds only for one; with a bound
# parameter, or for the smallest of them, it would read every round.
_OPEN = select(_t.id).where(text("rounds.state = 'open'"))
_NEWEST = select(func.max(_t.id))
# Where presence is secret a count of replies is a count of users, which is the secret.
_COUNTED = (
    select(_t.state, _t.rejects, func.count())
    .join_from(models.rounds, models.runs, _r.seq == _t.run_seq)
    .join(models.populations)
    .where(_t.id > bindparam("last"), _t.id <= bindparam("end"), models.populations.c.adjacency != PRESENCE)
    .group_by(_t.state, _t.rejects)
)
_COUNTED_OF = _COUNTED.where(_t.run_seq == bindparam("seq"))


def newest_row(source: ReadSource, run_id: str, *actions: str) -> views.JournalView | None:
    """Return the newest journal row of a run with one of these actions."""
    with source.read() as connection:
        row = connection.execute(_NEWEST_ROW, {"run": run_id, "actions": actions}).mappings().first()
    return None if row is None else views.JournalView(**{**row, "body": json.loads(row["body"])})


@dataclass(frozen=True)
class Latest:
    """Return the newest committed round of a run."""

    closed_at: float
    statistics: dict[str, Any]
    participants: int


def latest_rounds(source: ReadSource, run_ids: Collection[str]) -> dict[str, Latest]:
    """Return the newest committed round of each run that has one."""
    with source.read() as connection:
        rows = connection.execute(_LATEST, {"names": list(run_ids)}).all()
    return {row.id: Latest(row.closed_at, json.loads(row.statistics), row.participants) for row in rows}


@dataclass(frozen=True)
class Activity:
    """A run's state, and its pace."""

    state: RunState
    last_closed_at: float | None
    seconds_per_round: float | None


def activity(source: ReadSource, seq: int, now: float, recent: int = 20) -> Activity:
    """Return the state of run `seq` as `rows.run_view` shows it at `now`, and its `recent` rounds' mean pace."""
    with source.read() as connection:
        state, first, last, count = connection.execute(_ACTIVITY, {"seq": seq, "now": now, "recent": recent}).one()
    return Activity(state, last, (last - first) / count if count else None)


def run_states(source: ReadSource, now: float) -> tuple[dict[str, int], int]:
    """Count the runs in each state, and the rounds that all of them have committed.

    A run whose holder fell silent before `now` is interrupted, whatever its row says: as `rows.run_view` shows it.
    """
    c, state = models.runs.c, state_now(now)
    query = select(state, func.count(), func.sum(c.next_round)).join(models.leases, models.leases.c.run_seq == c.seq)
    with source.read() as connection:
        rows = connection.execute(query.group_by(state)).all()
    return {state: count for state, count, _ in rows}, sum(int(done or 0) for _, _, done in rows)


def reservations_left(source: ReadSource, now: float) -> dict[str, float]:
    """Run -> the share of its reservation's time that is left, of runs under way in populations that state one."""
    with source.read() as connection:
        return {run: max(0.0, end - now) / seconds for run, seconds, end in reservations(connection)}


class ResidualTests:
    """What the newest residual test of each run found. Reads each row of the journal once. Thread-safe."""

    def __init__(self) -> None:
        self._lock, self._read, self._passed = threading.Lock(), 0, dict[str, bool]()

    def failed(self, source: ReadSource) -> int:
        """Count the runs whose newest residual test found other noise than was charged."""
        with self._lock, source.read() as connection:
            end = read_head(connection).count
            if end < self._read:  # an older snapshot than another thread's
                self._read, self._passed = 0, {}
            for run, body in connection.execute(_AUDITED, {"last": self._read, "end": end}):
                self._passed[run] = bool(json.loads(body).get("passed"))
            self._read = end
            return sum(not passed for passed in self._passed.values())


@dataclass
class _Counted:
    last: int = 0  # every closed round up to the one with this id is counted
    void: int = 0
    rejects: Counter[str] = field(default_factory=Counter)


class RoundCounts:
    """Numbers of void rounds and refused replies, of one run or of all. Reads each closed round once. Thread-safe."""

    def __init__(self, source: ReadSource, runs: int = 256) -> None:
        """runs: how many runs' numbers are kept."""
        self._source, self._most = source, runs
        self._counted: dict[str | None, _Counted] = {}
        self._lock = threading.Lock()

    def of(self, run_id: str | None = None, source: ReadSource | None = None) -> tuple[int, dict[str, int]]:
        """Count void rounds, and refused replies by reason, of a run, or of the whole ledger.

        Raises `BadInput` if there is no such run.

        source: a snapshot to count in, instead of the newest state.
        """
        with self._lock, (source or self._source).read() as connection:
            counted = self._counted.setdefault(run_id, _Counted())
            if not self._advance(connection, counted, run_id):
                # The snapshot is older than what another thread has counted since: count it alone.
                counted = _Counted()
                self._advance(connection, counted, run_id)
            while len(self._counted) > self._most:
                # Drop any but the sum over the whole ledger, which alone is slow to compute again.
                self._counted.pop(next(name for name in self._counted if name is not None and name != run_id))
            return counted.void, dict(counted.rejects)

    def _advance(self, connection: Connection, counted: _Counted, run_id: str | None) -> bool:
        """Count the rounds closed since the last look. Return False where a newer snapshot is counted already."""
        # A round that is open now closes later, with an id below newer ones: stop before the oldest of those.
        open_ = min(connection.execute(_OPEN).scalars(), default=None)
        newest = connection.execute(_NEWEST).scalar_one() or 0
        end = newest if open_ is None else open_ - 1
        if end < counted.last:
            return False
        between: dict[str, object] = {"last": counted.last, "end": end}
        query = _COUNTED
        if run_id is not None:
            query, between["seq"] = _COUNTED_OF, run_row(connection, run_id).seq
        for state, rejects, count in connection.execute(query, between):
            counted.void += count if state == "void" else 0
            for reason, number in json.loads(rejects).items():
                counted.rejects[reason] += count * number
        counted.last = end
        return True
