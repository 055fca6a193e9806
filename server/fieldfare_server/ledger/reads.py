"""Everything that can be asked of a ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import Connection, Select, and_, func, or_, select

from fieldfare.accounting import PrivacyLoss
from fieldfare.errors import BadInput
from fieldfare.names import is_name
from fieldfare.participation_record import ParticipationRecord
from fieldfare_server.ledger import blobs, budget, models, views
from fieldfare_server.ledger.chain import Head
from fieldfare_server.ledger.journal import Clock, read_head

MOST = 1000
"""The longest page."""
HELD = ("running", "paused", "stopping")
"""States in which somebody holds the run's lease, or has fallen silent."""


class Source(Protocol):
    """What opens read transactions: a `Database`, a `Reader`, or a transaction that is open already."""

    def read(self) -> AbstractContextManager[Connection]:
        """A read-only transaction on one consistent snapshot."""


@dataclass(frozen=True)
class OpenTransaction:
    """A `Source` whose every read sees the same open transaction."""

    connection: Connection

    def read(self) -> AbstractContextManager[Connection]:
        """The open transaction, which stays open."""
        return nullcontext(self.connection)


class Reader:
    """The read side of a ledger. Every method is one consistent snapshot; all return frozen views."""

    def __init__(self, source: Source, clock: Clock) -> None:
        self._source, self._clock = source, clock

    def read(self) -> AbstractContextManager[Connection]:
        """A read-only transaction on one consistent snapshot."""
        return self._source.read()

    @contextmanager
    def snapshot(self) -> Iterator[Reader]:
        """A reader whose answers all come from one transaction, for an answer that is made of several.

        Its transaction ends with the `with` block. The functions of `watch` accept it too.
        """
        with self.read() as connection:
            yield Reader(OpenTransaction(connection), self._clock)

    def populations(self) -> tuple[views.PopulationView, ...]:
        """All populations, by name."""
        with self.read() as connection:
            rows = connection.execute(select(models.populations).order_by(models.populations.c.name)).all()
            return tuple(self._population(connection, row) for row in rows)

    def population(self, name: str) -> views.PopulationView:
        """One population. Raises `BadInput` if there is none of that name."""
        with self.read() as connection:
            return self._population(connection, population_row(connection, name))

    def runs(self, cursor: int | None = None, limit: int = 50, population: str | None = None) -> views.RunPage:
        """Runs, newest first; of one population if given."""
        with self.read() as connection:
            query = _runs().order_by(models.runs.c.seq.desc()).limit(_limit(limit) + 1)
            if cursor is not None:
                query = query.where(models.runs.c.seq < cursor)
            if population is not None:
                query = query.where(models.populations.c.name == population_row(connection, population).name)
            rows = connection.execute(query).all()
        items = tuple(self._run(row) for row in rows[:limit])
        return views.RunPage(items=items, next=items[-1].seq if len(rows) > limit else None)

    def run(self, run_id: str) -> views.RunView:
        """One run. Raises `BadInput` if there is none of that id."""
        with self.read() as connection:
            run_row(connection, run_id)
            row = connection.execute(_runs().where(models.runs.c.id == run_id)).one()
        return self._run(row)

    def rounds(self, run_id: str, cursor: int | None = None, limit: int = 100) -> views.RoundPage:
        """Attempts at rounds of a run, oldest first."""
        with self.read() as connection:
            run = run_row(connection, run_id)
            seq, hide = run.seq, run.population_id in _secretive(connection)
            query = select(models.rounds).where(models.rounds.c.run_seq == seq, models.rounds.c.id > (cursor or 0))
            rows = connection.execute(query.order_by(models.rounds.c.id).limit(_limit(limit) + 1)).all()
        items = tuple(_round(row, run_id, hide) for row in rows[:limit])
        return views.RoundPage(items=items, next=items[-1].id if len(rows) > limit else None)

    def round_series(self, run_id: str, points: int = 200) -> tuple[views.SeriesPoint, ...]:
        """At most `points` committed rounds, evenly spread and with the newest, thinned out in the database."""
        if points < 2:
            raise BadInput(f"points = {points}", "a series has two ends.", "2")
        c = models.rounds.c
        with self.read() as connection:
            run = run_row(connection, run_id)
            last = run.next_round - 1
            step = max(1, -(-run.next_round // (points - 1)))
            query = (
                select(
                    c.index, c.epsilon, c.participants, c.cohort_size, c.reports, c.opened_at, c.closed_at, c.statistics
                )
                .where(c.run_seq == run.seq, c.state == "committed", or_(c.index % step == 0, c.index == last))
                .order_by(c.index)
            )
            rows = connection.execute(query).mappings().all()
            hidden = dict.fromkeys(_COUNTS) if run.population_id in _secretive(connection) else {}
        return tuple(
            views.SeriesPoint(**{**row, **hidden, "statistics": json.loads(row["statistics"])}) for row in rows
        )

    def events(self, after_id: int = 0, limit: int = 100) -> tuple[views.EventView, ...]:
        """What happened after event `after_id`, oldest first."""
        with self.read() as connection:
            query = select(models.audit).where(models.audit.c.id > after_id).order_by(models.audit.c.id)
            rows = connection.execute(query.limit(_limit(limit))).mappings().all()
            hide = secretive_names(connection)
        return tuple(views.EventView(**event_values(row, hide)) for row in rows)

    def audit_log(
        self, cursor: int | None = None, limit: int = 100, *, run: str | None = None, population: str | None = None
    ) -> views.AuditPage:
        """Audit rows, newest first, with their hashes; of one run or population if given."""
        with self.read() as connection:
            query = select(models.audit).order_by(models.audit.c.id.desc()).limit(_limit(limit) + 1)
            if cursor is not None:
                query = query.where(models.audit.c.id < cursor)
            if run is not None:
                query = query.where(models.audit.c.run == run)
            if population is not None:
                query = query.where(models.audit.c.population == population)
            rows = connection.execute(query).mappings().all()
            hide = secretive_names(connection)
        items = tuple(views.AuditView(**event_values(row, hide)) for row in rows[:limit])
        return views.AuditPage(items=items, next=items[-1].id if len(rows) > limit else None)

    def participation_histogram(self, run_id: str) -> dict[int, int]:
        """How many users took part how many times in this run, from once up; {} under `add_remove`."""
        with self.read() as connection:
            run = run_row(connection, run_id)
            if run.population_id in _secretive(connection):
                return {}
            return participation(connection, run.seq).histogram()

    def tokens(self) -> tuple[views.TokenView, ...]:
        """All API tokens, oldest first, without their secrets."""
        with self.read() as connection:
            rows = connection.execute(select(models.tokens).order_by(models.tokens.c.created_at)).mappings().all()
        return tuple(token_view(row) for row in rows)

    def head(self) -> Head:
        """Where the audit log ends: keep it elsewhere to notice an old copy put back."""
        with self.read() as connection:
            return read_head(connection)

    def _population(self, connection: Connection, row: Any) -> views.PopulationView:
        c = models.runs.c
        active = connection.execute(
            select(c.planned, c.spent, c.rounds, c.next_round).where(
                c.population_id == row.id, c.state.in_(models.ACTIVE)
            )
        ).all()
        total = connection.execute(select(func.count()).where(c.population_id == row.id)).scalar_one()
        settled = PrivacyLoss.from_json(row.settled)
        spent = budget.compose([settled, *(PrivacyLoss.from_json(run.spent) for run in active)])
        committed = budget.compose([settled, *(PrivacyLoss.from_json(run.planned) for run in active)])
        spent_epsilon, committed_epsilon = (budget.epsilon(loss, row.delta) for loss in (spent, committed))
        left = budget.room(committed, row.epsilon, row.delta) if row.state == "open" else budget.Room(0.0, 0.0)
        return views.PopulationView(
            name=row.name,
            epsilon=row.epsilon,
            delta=row.delta,
            adjacency=row.adjacency,
            unit=row.unit,
            simulated=row.simulated,
            state=row.state,
            users=None if row.adjacency == "add_remove" else row.users,
            spent=spent,
            spent_epsilon=spent_epsilon,
            committed=committed,
            committed_epsilon=committed_epsilon,
            reserved_epsilon=max(0.0, committed_epsilon - spent_epsilon),
            remaining_epsilon=left.epsilon,
            remaining_mu=left.mu,
            rounds_left=sum(run.rounds - run.next_round for run in active),
            runs_active=len(active),
            runs_total=total,
            created_at=row.created_at,
            created_by=row.created_by,
        )

    def _run(self, row: Any) -> views.RunView:
        planned, spent = PrivacyLoss.from_json(row.planned), PrivacyLoss.from_json(row.spent)
        silent = row.state in HELD and (not row.holder or self._clock() >= row.renewed_at + row.seconds)
        return views.RunView(
            id=row.id,
            seq=row.seq,
            population=row.population,
            plan=json.loads(row.plan),
            plan_digest=row.plan_digest,
            adjacency=row.adjacency,
            delta=row.delta,
            rounds=row.rounds,
            next_round=row.next_round,
            planned=planned,
            planned_epsilon=budget.epsilon(planned, row.delta),
            spent=spent,
            spent_epsilon=budget.epsilon(spent, row.delta),
            noise_source=row.noise_source,
            trust_node_ids=row.trust_node_ids,
            state="interrupted" if silent else row.state,
            request=row.request,
            message=row.message,
            checkpoint=row.checkpoint,
            started_at=row.started_at,
            started_by=row.started_by,
            ended_at=row.ended_at,
        )


def population_row(connection: Connection, name: str) -> Any:
    """The row of a population. Raises `BadInput` that names the populations there are."""
    query = select(models.populations).where(models.populations.c.name == name)
    row = connection.execute(query).first() if is_name(name) else None
    if row is None:
        names = connection.execute(select(models.populations.c.name).order_by(models.populations.c.name)).scalars()
        known = ", ".join(names) or "create it: `fieldfare population create`"
        raise BadInput(f"population {name[:100]!r}", "the ledger has none of that name.", known)
    return row


def run_row(connection: Connection, run_id: str) -> Any:
    """The row of a run. Raises `BadInput` if there is none."""
    query = select(models.runs).where(models.runs.c.id == run_id)
    row = connection.execute(query).first() if is_name(run_id) else None
    if row is None:
        raise BadInput(f"run {run_id[:100]!r}", "the ledger has none of that id.", "one that `fieldfare runs` lists")
    return row


def participation(connection: Connection, run_seq: int, users: int = 0) -> ParticipationRecord:
    """Realised participation of a run. Raises ValueError, naming the round, if a blob is corrupt."""
    c = models.participations.c
    record = ParticipationRecord(users)
    query = select(c.index, c.count, c.users).where(c.run_seq == run_seq).order_by(c.index)
    for index, count, blob in connection.execute(query):
        record.add(index, blobs.decode(blob, count))
    return record


def token_view(row: Any) -> views.TokenView:
    """A token's row without its digest."""
    shown = {name: row[name] for name in views.TokenView.model_fields}
    return views.TokenView(**{**shown, "scopes": tuple(row["scopes"].split())})


def _runs() -> Select[Any]:
    return (
        select(
            models.runs,
            models.populations.c.name.label("population"),
            models.populations.c.adjacency,
            models.populations.c.delta,
            models.leases.c.holder,
            models.leases.c.renewed_at,
            models.leases.c.seconds,
        )
        .join(models.populations, models.runs.c.population_id == models.populations.c.id)
        .join(models.leases, and_(models.leases.c.run_seq == models.runs.c.seq))
    )


def _round(row: Any, run_id: str, hide: bool) -> views.RoundView:
    return views.RoundView(
        id=row.id,
        run=run_id,
        index=row._mapping["index"],
        attempt=row.attempt,
        noise_row=row.noise_row,
        state=row.state,
        cohort_size=None if hide else row.cohort_size,
        reports=None if hide else row.reports,
        participants=None if hide else row.participants,
        spent=None if row.spent is None else PrivacyLoss.from_json(row.spent),
        epsilon=row.epsilon,
        checkpoint=row.checkpoint,
        statistics=json.loads(row.statistics),
        rejects={} if hide else json.loads(row.rejects),
        reason="" if hide else row.reason,
        opened_at=row.opened_at,
        closed_at=row.closed_at,
    )


def event_values(row: Any, hide: Set[str]) -> dict[str, Any]:
    """The fields of an event's view. hide: populations whose counts are not shown (`secretive_names`)."""
    body = json.loads(row["body"])
    if row["population"] in hide:
        secret = _SECRET | {"reason"} if row["action"] == "round.void" else _SECRET
        body = {name: value for name, value in body.items() if name not in secret}
    return {**row, "body": body}


def secretive_names(connection: Connection) -> set[str]:
    """Names of the populations where a user's presence is the secret, and with it every count of users."""
    c = models.populations.c
    return set(connection.execute(select(c.name).where(c.adjacency == "add_remove")).scalars())


def _secretive(connection: Connection) -> set[int]:
    c = models.populations.c
    return set(connection.execute(select(c.id).where(c.adjacency == "add_remove")).scalars())


_COUNTS = ("participants", "cohort_size", "reports")
_SECRET = frozenset(
    (
        "blind",
        "cohort",
        "cohort_size",
        "count",
        "first",
        "hashes",
        "participant_count",
        "participants",
        "rejects",
        "reports",
    )
)


def _limit(limit: int) -> int:
    if not 1 <= limit <= MOST:
        raise BadInput(f"limit = {limit}", "out of range.", str(min(max(limit, 1), MOST)))
    return limit
