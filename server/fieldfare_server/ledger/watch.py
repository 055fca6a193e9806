"""What a service that watches a ledger asks again and again: cheap, incremental, and never in the way of a commit.

Every function is one read-only snapshot. Sums over rounds are kept up by `RoundCounts`, which reads each closed round
once however often it is asked; the chain is checked by `ChainWatch`, which does the same for audit rows.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, and_, case, func, or_, select, text

from fieldfare_server.ledger import chain, migrate, models, reads, views
from fieldfare_server.ledger.database import Database
from fieldfare_server.ledger.journal import read_head
from fieldfare_server.ledger.notes import RUN_AUDIT
from fieldfare_server.ledger.reads import event_values, run_row, secretive_names

_BATCH = 2000


def require_current(database: Database) -> None:
    """Raise `LedgerError` unless the database answers and has this version's tables."""
    with database.read() as connection:
        found = migrate.version(connection)
    if found != _latest():
        migrate.check(database)


@lru_cache(maxsize=1)
def _latest() -> str:
    return migrate.latest()


def audit_after(source: reads.Source, after: int, limit: int) -> tuple[views.AuditView, ...]:
    """Audit rows after row `after`, oldest first, with their hashes."""
    with source.read() as connection:
        rows = _audit_rows(connection, after, limit)
        hide = secretive_names(connection)
    return tuple(views.AuditView(**event_values(row, hide)) for row in rows)


def newest_row(source: reads.Source, run_id: str, action: str) -> views.EventView | None:
    """The newest audit row of a run with that action."""
    c = models.audit.c
    query = select(models.audit).where(c.run == run_id, c.action == action).order_by(c.id.desc()).limit(1)
    with source.read() as connection:
        row = connection.execute(query).mappings().first()
    return None if row is None else views.EventView(**{**row, "body": json.loads(row["body"])})


def _audit_rows(connection: Connection, after: int, limit: int) -> list[dict[str, Any]]:
    query = select(models.audit).where(models.audit.c.id > after).order_by(models.audit.c.id).limit(limit)
    return [dict(row) for row in connection.execute(query).mappings()]


@dataclass(frozen=True)
class Latest:
    """The newest committed round of a run."""

    closed_at: float
    statistics: dict[str, Any]


def latest_rounds(source: reads.Source, run_ids: Collection[str]) -> dict[str, Latest]:
    """The newest committed round of each run that has one."""
    r, run = models.rounds.c, models.runs.c
    join = and_(r.run_seq == run.seq, r.index == run.next_round - 1, r.state == "committed")
    query = select(run.id, r.closed_at, r.statistics).join_from(models.runs, models.rounds, join)
    with source.read() as connection:
        rows = connection.execute(query.where(run.id.in_(list(run_ids)))).all()
    return {row.id: Latest(row.closed_at, json.loads(row.statistics)) for row in rows}


@dataclass(frozen=True)
class Activity:
    """What a population's newest run under way is, and how fast it goes."""

    run: str
    rounds_left: int
    last_closed_at: float | None
    seconds_per_round: float | None


def activity(source: reads.Source, population: str, recent: int = 20) -> Activity | None:
    """The newest run under way of `population`, with the mean pace of its last `recent` rounds; None without one."""
    run, r = models.runs.c, models.rounds.c
    with source.read() as connection:
        query = select(run.seq, run.id, run.rounds, run.next_round).join_from(models.runs, models.populations)
        active = query.where(models.populations.c.name == population, run.state.in_(models.ACTIVE))
        row = connection.execute(active.order_by(run.seq.desc()).limit(1)).first()
        if row is None:
            return None
        times = select(func.min(r.opened_at), func.max(r.closed_at), func.count()).where(
            r.run_seq == row.seq, r.index >= row.next_round - recent, r.state == "committed"
        )
        first, last, count = connection.execute(times).one()
    pace = (last - first) / count if count else None
    return Activity(row.id, row.rounds - row.next_round, last, pace)


def run_states(source: reads.Source, now: float) -> tuple[dict[str, int], int]:
    """(how many runs are in each state, how many rounds all of them have committed).

    A run whose holder fell silent before `now` is interrupted, as `reads` shows it, whatever its row says.
    """
    c, lease = models.runs.c, models.leases.c
    silent = and_(c.state.in_(reads.HELD), or_(lease.holder == "", lease.renewed_at + lease.seconds <= now))
    state = case((silent, "interrupted"), else_=c.state)
    query = select(state, func.count(), func.sum(c.next_round)).join(models.leases, lease.run_seq == c.seq)
    with source.read() as connection:
        rows = connection.execute(query.group_by(state)).all()
    return {state: count for state, count, _ in rows}, sum(int(done or 0) for _, _, done in rows)


def failed_self_tests(source: reads.Source) -> int:
    """How many runs' newest empirical audit found another noise than was charged."""
    c = models.audit.c
    newest = select(func.max(c.id)).where(c.action == RUN_AUDIT).group_by(c.run)
    with source.read() as connection:
        bodies = connection.execute(select(c.body).where(c.id.in_(newest))).scalars().all()
    return sum(not json.loads(body).get("passed") for body in bodies)


@dataclass
class _Counted:
    upto: int = 0
    void: int = 0
    rejects: Counter[str] = field(default_factory=Counter)


class RoundCounts:
    """Void rounds and refused replies, of one run or of all, each closed round read once. Thread-safe."""

    def __init__(self, source: reads.Source, runs: int = 256) -> None:
        self._source, self._most = source, runs
        self._counted: dict[str | None, _Counted] = {}
        self._lock = threading.Lock()

    def of(self, run_id: str | None = None, source: reads.Source | None = None) -> tuple[int, dict[str, int]]:
        """(void rounds, refused replies by reason) of a run, or of the whole ledger. Raises `BadInput` on no run.

        source: a snapshot to count in, instead of the newest state.
        """
        with self._lock, (source or self._source).read() as connection:
            counted = self._counted.setdefault(run_id, _Counted())
            if not self._advance(connection, counted, run_id):
                # The snapshot is older than what another thread has counted since: count it alone.
                counted = _Counted()
                self._advance(connection, counted, run_id)
            while len(self._counted) > self._most:
                # Any but the ledger's own sum, which is the one that is slow to make anew.
                self._counted.pop(next(name for name in self._counted if name is not None and name != run_id))
            return counted.void, dict(counted.rejects)

    def _advance(self, connection: Connection, counted: _Counted, run_id: str | None) -> bool:
        c = models.rounds.c
        # A round that is open now closes later, with a number below newer ones: stop before the oldest of those.
        # Written out: SQLite uses the small index of open rounds only for a literal, and would else read every round.
        open_ = min(connection.execute(select(c.id).where(text("rounds.state = 'open'"))).scalars(), default=None)
        newest = connection.execute(select(func.max(c.id))).scalar_one() or 0
        end = newest if open_ is None else open_ - 1
        if end < counted.upto:
            return False
        # Under add_remove a count of replies is a count of users, and those are the secret.
        p = models.populations.c
        secretive = select(models.runs.c.seq).join(models.populations).where(p.adjacency == "add_remove")
        query = select(c.state, c.rejects, func.count()).where(
            c.id > counted.upto, c.id <= end, c.run_seq.not_in(secretive)
        )
        if run_id is not None:
            query = query.where(c.run_seq == run_row(connection, run_id).seq)
        for state, rejects, count in connection.execute(query.group_by(c.state, c.rejects)):
            counted.void += count if state == "void" else 0
            for reason, number in json.loads(rejects).items():
                counted.rejects[reason] += count * number
        counted.upto = end
        return True


@dataclass(frozen=True)
class Checked:
    """How far the chain was followed, of how many rows, and the first thing that does not fit ("" for none)."""

    rows: int
    hash: str
    fault: str = ""
    end: int = 0
    """Rows that the ledger had when it was last looked at."""

    @property
    def ok(self) -> bool:
        """Whether every row that was looked at followed the one before."""
        return not self.fault

    @property
    def whole(self) -> bool:
        """Whether that was every row there is."""
        return self.ok and self.rows == self.end


class ChainWatch:
    """Follows the audit chain: `advance` checks what is new since the last time. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._checked = Checked(0, "")
        self._lock = threading.Lock()

    def advance(self, most: int | None = None) -> Checked:
        """Check at most `most` rows (None: all) after those checked before; a fault is never forgotten."""
        with self._lock:
            self._checked = self._follow(self._checked, most)
            return self._checked

    def restart(self) -> None:
        """Begin again with the first row at the next `advance`."""
        with self._lock:
            self._checked = Checked(0, "")

    def _follow(self, checked: Checked, most: int | None) -> Checked:
        # In batches of one short snapshot each, so that a long log is not read in one long transaction. The end is
        # taken first: rows appended meanwhile are the next call's business.
        with self._database.read() as connection:
            end = read_head(connection)
        if checked.rows == 0:
            checked = Checked(0, chain.genesis(end.ledger), checked.fault)
        rows, hash_, fault = checked.rows, checked.hash, checked.fault
        until = end.count if most is None else min(end.count, rows + most)
        while not fault and rows < until:
            batch = self._batch(rows, min(_BATCH, until - rows))
            if not batch:
                fault = f"row {rows + 1} of {end.count} is missing"
            for row in batch:
                fault = _fault(row, rows, hash_)
                if fault:
                    break
                rows, hash_ = row["id"], row["hash"]
        if not fault and (rows > end.count or (rows == end.count and hash_ != end.hash)):
            fault = f"the ledger says that it ends in row {end.count}, which is not the row {rows} that was seen"
        return Checked(rows, hash_, fault, end.count)

    def _batch(self, after: int, limit: int) -> list[dict[str, Any]]:
        with self._database.read() as connection:
            return _audit_rows(connection, after, limit)


def _fault(row: dict[str, Any], rows: int, hash_: str) -> str:
    if row["id"] != rows + 1:
        return f"row {rows + 1} is missing"
    if row["previous"] != hash_:
        return f"row {row['id']} does not follow row {rows}"
    if chain.row_hash(row) != row["hash"]:
        return f"row {row['id']} was changed after it was written"
    return ""
