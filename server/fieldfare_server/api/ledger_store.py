"""The ledger behind the API: views to answers. Computes nothing about privacy; that is the ledger's and the core's."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from fieldfare.accounting import PrivacyLoss
from fieldfare.errors import BadInput
from fieldfare_server.api.problems import ProblemError
from fieldfare_server.api.schemas import (
    AuditResult,
    AuditRow,
    Histogram,
    Loss,
    Page,
    Point,
    Population,
    Round,
    Run,
    RunDetail,
    Series,
    Verification,
)
from fieldfare_server.api.store import Request, TokenRecord, Totals
from fieldfare_server.evidence.deployments_registry import registry_entry
from fieldfare_server.evidence.guarantee import guarantee, plan_facts
from fieldfare_server.evidence.statement import Statement, privacy_statement
from fieldfare_server.ledger import Ledger, runs, views, watch

_CHECKED_AT_ONCE = 20_000
"""Audit rows."""


def moment(seconds: float) -> datetime:
    """Seconds since 1970 as a UTC time."""
    return datetime.fromtimestamp(seconds, UTC)


class LedgerStore:
    """A `Store` over an open `Ledger`, which it closes."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._database = ledger, ledger.database
        self._counts = watch.RoundCounts(self._database)
        self._chain = watch.ChainWatch(self._database)
        self._populations: OrderedDict[str, tuple[int, views.PopulationView]] = OrderedDict()
        self._lock = threading.Lock()

    def ping(self) -> None:
        """Raises `LedgerError` unless the ledger answers and has this version's tables."""
        watch.require_current(self._database)

    def head(self) -> int:
        """The newest audit id."""
        return self._ledger.head().count

    # -- populations

    def populations(self, cursor: str | None, limit: int) -> Page[Population]:
        """By name; the cursor is the last name of the page before."""
        names = sorted(view.name for view in self._ledger.populations())
        after = [name for name in names if cursor is None or name > cursor]
        items = tuple(self.population(name) for name in after[:limit])
        return Page[Population](items=items, next=items[-1].name if len(after) > limit else None)

    def population(self, name: str) -> Population:
        """Raises `ProblemError` 404 if there is none of that name."""
        view = self._population(name)
        now = watch.activity(self._database, name) if view.runs_active else None
        end = None
        if now is not None and now.seconds_per_round is not None and now.last_closed_at is not None:
            end = moment(now.last_closed_at) + timedelta(seconds=now.seconds_per_round * now.rounds_left)
        return Population(
            name=view.name,
            state=view.state,
            simulated=view.simulated,
            unit=view.unit,
            adjacency=view.adjacency,
            epsilon=view.epsilon,
            delta=view.delta,
            spent=_loss(view.spent, view.spent_epsilon, view.delta),
            reserved_epsilon=view.reserved_epsilon,
            committed=_loss(view.committed, view.committed_epsilon, view.delta),
            remaining_epsilon=view.remaining_epsilon,
            users=view.users,
            runs=view.runs_total,
            active_run=now.run if now else None,
            rounds_left=view.rounds_left if view.runs_active else None,
            projected_end=end,
            created_at=moment(view.created_at),
        )

    def _population(self, name: str) -> views.PopulationView:
        # A population changes only with an audit row, so the newest row's number says whether the last answer holds.
        head = self.head()
        with self._lock:
            known = self._populations.get(name)
        if known is not None and known[0] == head:
            return known[1]
        try:
            view = self._ledger.population(name)
        except BadInput as error:
            raise _not_found(error) from None
        with self._lock:
            self._populations[name] = (head, view)
            while len(self._populations) > 1024:
                self._populations.popitem(last=False)
        return view

    # -- runs

    def runs(self, cursor: str | None, limit: int, population: str | None) -> Page[Run]:
        """Newest first."""
        try:
            page = self._ledger.runs(_number(cursor), limit, population)
        except BadInput as error:
            raise _not_found(error) from None
        latest = watch.latest_rounds(self._database, [view.id for view in page.items])
        items = tuple(Run(**_run(view, latest.get(view.id))) for view in page.items)
        return Page[Run](items=items, next=_text(page.next))

    def run(self, run_id: str) -> RunDetail:
        """Raises `ProblemError` 404 if there is none of that id."""
        view = self._run(run_id)
        latest = watch.latest_rounds(self._database, [run_id]).get(run_id)
        void, rejects = self._counts.of(run_id)
        plan = view.plan.get("run", {})
        facts = plan_facts(view)
        cohort = int(plan.get("cohort", 0))
        return RunDetail(
            **_run(view, latest),
            plan=view.plan,
            plan_digest=view.plan_digest,
            guarantee=guarantee(view, self._population(view.population)),
            rejects=rejects,
            void_rounds=None if view.adjacency == "add_remove" else void,
            cohort=cohort,
            min_reports=facts.plan.report_goal if facts else int(plan.get("min_reports") or 0),
            noise_multiplier=facts.noise_multiplier if facts else None,
            audit=self._audit(run_id),
        )

    def _run(self, run_id: str) -> views.RunView:
        try:
            return self._ledger.run(run_id)
        except BadInput as error:
            raise _not_found(error) from None

    def _audit(self, run_id: str) -> AuditResult | None:
        row = watch.newest_row(self._database, run_id, runs.RESIDUAL_TEST)
        if row is None:
            return None
        return AuditResult(
            passed=bool(row.body.get("passed")),
            scale=float(row.body.get("scale", 0.0)),
            message=str(row.body.get("message", "")),
            canaries=row.body.get("canaries"),
            at=moment(row.at),
        )

    def rounds(self, run_id: str, cursor: str | None, limit: int) -> Page[Round]:
        """Attempts, oldest first."""
        self._run(run_id)
        page = self._ledger.rounds(run_id, _number(cursor), limit)
        return Page[Round](items=tuple(_round(view) for view in page.items), next=_text(page.next))

    def series(self, run_id: str, points: int) -> Series:
        """Committed rounds, thinned out."""
        view = self._run(run_id)
        return Series(
            run=run_id,
            rounds=view.rounds,
            committed_rounds=view.next_round,
            planned_epsilon=view.planned_epsilon,
            limit_epsilon=self._population(view.population).epsilon,
            delta=view.delta,
            points=tuple(_point(point) for point in self._ledger.round_series(run_id, points)),
        )

    def participation(self, run_id: str) -> Histogram:
        """Counts of users by number of rounds."""
        view = self._run(run_id)
        facts = plan_facts(view)
        counts = self._ledger.participation_histogram(run_id)
        users = tuple(counts.get(times, 0) for times in range(max(counts, default=0) + 1))
        return Histogram(
            run=run_id,
            users=() if view.adjacency == "add_remove" else users,
            allowed=facts.max_participations if facts else None,
            separation=facts.separation if facts else None,
        )

    def statement(self, run_id: str) -> Statement:
        """The privacy statement of a run."""
        self._run(run_id)
        return privacy_statement(self._ledger, run_id)

    def registry_entry(self, run_id: str) -> dict[str, Any]:
        """The tier 3 registry entry of a run. Raises `BadInput` for a run that is not private."""
        self._run(run_id)
        return registry_entry(self._ledger, run_id)

    def request(self, run_id: str, what: Request, actor: str) -> str:
        """Ask the coordinator. Raises `ProblemError` 409 where the ledger refuses."""
        self._run(run_id)
        try:
            return self._ledger.request(run_id, None if what == "resume" else what, actor).state
        except BadInput as error:
            raise ProblemError(409, "request-refused", f"{error.what}: {error.why}", nearest=error.nearest) from None

    # -- audit log

    def audit(self, cursor: str | None, limit: int, run: str | None) -> Page[AuditRow]:
        """Newest first."""
        page = self._ledger.journal_rows(_number(cursor), limit, run=run)
        return Page[AuditRow](items=tuple(_row(view) for view in page.items), next=_text(page.next))

    def events(self, after: int, limit: int) -> Sequence[AuditRow]:
        """Oldest first, after row `after`."""
        return [_row(view) for view in self._ledger.events(after, limit)]

    def verify(self, restart: bool = False) -> Verification:
        """Checks the next rows, some tenths of a second's worth."""
        if restart:
            self._chain.restart()
        return _verification(self._chain.advance(_CHECKED_AT_ONCE))

    def totals(self) -> Totals:
        """Counters over the whole ledger."""
        states, committed = watch.run_states(self._database, time.time())
        void, rejects = self._counts.of()
        failed = watch.failed_residual_tests(self._database)
        return Totals({"committed": committed, "void": void}, rejects, states, failed)

    # -- tokens

    def token(self, secret: str) -> TokenRecord | None:
        """The token of this secret if it is valid now."""
        view = self._ledger.check_token(secret)
        if view is None:
            return None
        end = None if view.expires_at is None else moment(view.expires_at)
        return TokenRecord(view.id, view.name, frozenset(view.scopes), end)

    def record_token_use(self, token_id: str, name: str, what: str) -> None:
        """One audit row."""
        self._ledger.record_token_use(token_id, what, actor=f"token {name}")

    def close(self) -> None:
        """Close the ledger."""
        self._ledger.close()


def _not_found(error: BadInput) -> ProblemError:
    return ProblemError(404, "not-found", f"{error.what}: {error.why}", nearest=error.nearest)


def _number(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise ProblemError(400, "bad-cursor", "this cursor is not one that this service gave.", nearest="no cursor")
    return int(cursor)


def _text(cursor: int | None) -> str | None:
    return None if cursor is None else str(cursor)


def _loss(loss: PrivacyLoss, epsilon: float, delta: float) -> Loss:
    if loss.sampled:
        return Loss(epsilon=epsilon, delta=delta)
    return Loss(epsilon=epsilon, delta=delta, rho=loss.rho, mu=loss.mu if loss.gaussian else None)


def _run(view: views.RunView, latest: watch.Latest | None) -> dict[str, Any]:
    statistics = latest.statistics if latest else {}
    score = statistics.get("score")
    name = statistics.get("score_name")
    return {
        "id": view.id,
        "population": view.population,
        "state": view.state,
        "request": view.request,
        "task": str(_at(view.plan, "run", "task")),
        "mechanism": str(_at(view.plan, "mechanism", "kind")),
        "adjacency": view.adjacency,
        "rounds": view.rounds,
        "committed_rounds": view.next_round,
        "planned": _loss(view.planned, view.planned_epsilon, view.delta),
        "spent": _loss(view.spent, view.spent_epsilon, view.delta),
        "score": score if isinstance(score, float) else None,
        "score_name": name if isinstance(name, str) else None,
        "started_at": moment(view.started_at),
        "updated_at": moment(max(view.ended_at or 0.0, latest.closed_at if latest else 0.0, view.started_at)),
        "ended_at": None if view.ended_at is None else moment(view.ended_at),
        "message": view.message or None,
    }


def _at(plan: dict[str, Any], table: str, name: str) -> object:
    inner = plan.get(table)
    return inner.get(name, "unknown") if isinstance(inner, dict) else "unknown"


def _round(view: views.RoundView) -> Round:
    committed: Literal[True, False] = view.state == "committed"
    return Round(
        index=view.index,
        attempt=view.attempt,
        state=view.state,
        opened_at=moment(view.opened_at),
        closed_at=None if view.closed_at is None else moment(view.closed_at),
        cohort=view.cohort_size,
        reports=None if view.state == "open" else view.participants if committed else view.reports,
        rejects=view.rejects,
        reason=view.reason or None,
        epsilon=view.epsilon,
        checkpoint=view.checkpoint,
        statistics=view.statistics,
    )


def _point(point: views.SeriesPoint) -> Point:
    numbers = {
        name: float(value)
        for name, value in point.statistics.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    return Point(
        round=point.index,
        at=moment(point.closed_at),
        epsilon=point.epsilon,
        cohort=point.cohort_size,
        reports=point.participants,
        statistics=numbers,
    )


def _row(view: views.JournalView) -> AuditRow:
    return AuditRow(
        id=view.id,
        at=moment(view.at),
        actor=view.actor,
        event=view.action,
        population=view.population,
        run=view.run,
        round=view.round,
        details=view.body,
        previous=view.previous,
        hash=view.hash,
    )


def _verification(checked: watch.Checked) -> Verification:
    so_far = None if checked.whole else f"{checked.rows} of {checked.end} rows are checked so far"
    return Verification(
        ok=checked.whole,
        complete=checked.whole or not checked.ok,
        rows=checked.rows,
        head=checked.hash if checked.rows else None,
        message=checked.fault or so_far,
        at=datetime.now(UTC),
    )
