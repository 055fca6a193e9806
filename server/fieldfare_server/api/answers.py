"""The service's answers: a view of the ledger, then the response schema, and nothing in between.

Every answer is built in one read transaction. Two would tear it: a round committed between them gives an answer with
four committed rounds and the score of the fifth. Nothing about privacy is computed here.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.filter import PLAIN_SHARE, Price
from fieldfare.accounting.individual import Demand
from fieldfare.errors import BadInput, BudgetRefused
from fieldfare.names import OWN_APP
from fieldfare.plan import Plan
from fieldfare_server.api.population_schemas import (
    BudgetChange,
    Charge,
    History,
    Moment,
    NewCharge,
    Population,
    PopulationHistogram,
    WhatIf,
    WhatIfAnswer,
)
from fieldfare_server.api.problems import ProblemError
from fieldfare_server.api.schemas import (
    AuditRow,
    Histogram,
    Loss,
    Page,
    Point,
    Proposal,
    Request,
    ResidualTestResult,
    Round,
    Run,
    RunDetail,
    Series,
    SignedHead,
    Verification,
)
from fieldfare_server.evidence.deployments_registry import registry_entry
from fieldfare_server.evidence.document import Statement
from fieldfare_server.evidence.guarantee import guarantee
from fieldfare_server.evidence.plan_facts import plan_facts
from fieldfare_server.evidence.population_size import population_size_warnings
from fieldfare_server.evidence.statement import privacy_statement
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.evidence.words import budget_in_words
from fieldfare_server.ledger import Ledger, states, views, watch
from fieldfare_server.ledger.chain import Head
from fieldfare_server.ledger.history import history
from fieldfare_server.ledger.reads import Reader
from fieldfare_server.ledger.rules import runs
from fieldfare_server.ledger.rules.tokens import LATEST
from fieldfare_server.ledger.sql.memory import AtHead
from fieldfare_server.ledger.state import admission, budget
from fieldfare_server.planning.what_if import what_if
from fieldfare_server.run.pricing import roughly_asked

LOW, EXHAUSTED = 0.8, 0.01
"""A budget is low once this share is committed, and exhausted where the largest run that fits has less than this share
of epsilon."""
STANDS_STILL = 5.0
"""A run whose last round ended this many rounds' times ago has no projected end."""

_ROWS_A_CHECK = 20_000
"""Audit rows that one step of a chain check reads: some tenths of a second."""


@dataclass(frozen=True)
class Figures:
    """What /metrics shows of the ledger: every population, and counts over all runs by state or reason."""

    populations: tuple[Population, ...]
    rounds: dict[str, int]
    rejects: dict[str, int]
    runs: dict[str, int]
    failed_self_tests: int


class Answers:
    """Builds each answer from one snapshot of `ledger`. Thread-safe.

    root: the state directory, from which runs' stored strategies are read; None: there is none on this machine.

    An unknown name raises `ProblemError` 404, a cursor that this service did not give `ProblemError` 400.
    """

    def __init__(self, ledger: Ledger, root: Path | None = None) -> None:
        self._ledger, self._root = ledger, root
        self._counts = watch.RoundCounts(ledger)
        self._populations: AtHead[tuple[Population, views.RunInBrief | None]] = AtHead()
        self._demands: dict[tuple[str, str], Demand] = {}

    def ping(self) -> None:
        """Raise `LedgerError` unless the ledger answers and has this version's tables."""
        watch.require_current(self._ledger.database)

    def head(self) -> int:
        """The id of the newest audit row; 0 for an empty ledger."""
        return self._ledger.head().count

    def populations(self, cursor: str | None, limit: int, only: Container[str] | None = None) -> Page[Population]:
        """Populations by name, or those among `only`; the cursor is the last name of the previous page."""
        with self._ledger.snapshot() as snapshot:
            names = [name for name in snapshot.population_names() if cursor is None or name > cursor]
            names = [name for name in names if only is None or name in only]
            head = snapshot.head()
            items = tuple(self._population(snapshot, name, head) for name in names[:limit])
        return Page[Population](items=items, next=items[-1].name if len(names) > limit else None)

    def population(self, name: str) -> Population:
        """One population."""
        with self._ledger.snapshot() as snapshot:
            try:
                head = snapshot.head(name)
            except BadInput as error:
                raise _not_found(error) from None
            return self._population(snapshot, name, head)

    def _population(self, snapshot: Reader, name: str, head: Head) -> Population:
        def read() -> tuple[Population, views.RunInBrief | None]:
            view = _population_view(snapshot, name)
            return _population(view, self._fits_again(snapshot, view)), view.active_run

        # All but the end that is expected changes only with a row of the journal.
        answer, active = self._populations.get(head, name, read)
        if active is None:
            return answer
        return answer.model_copy(update={"projected_end": _projected_end(snapshot, active)})

    def _fits_again(self, snapshot: Reader, view: views.PopulationView) -> bool | None:
        """Whether the population would admit the plan of its newest run once more; None without a run."""
        run = view.newest_run
        if run is None:
            return None
        if view.state != "open":
            return False
        position, _ = snapshot.position(view.name)
        # The noise of the same plan leaks the same again. A sampled run may take less of D than the last one took.
        leak = None if run.planned.amplified else run.leak
        price = budget.quote(run.planned, position.alike, position.terms, leak)
        demand = self._demand(snapshot, run) if run.accounting == "individual" else None
        try:
            admission.admit(position, run.planned, price, demand)
        except BudgetRefused:
            return False
        return True

    def _demand(self, snapshot: Reader, run: views.RunInBrief) -> Demand:
        """What the plan of `run` asks of single users, worked out once."""
        key = run.id, run.plan_digest
        if key not in self._demands:
            if len(self._demands) >= 256:
                self._demands.clear()
            self._demands[key] = roughly_asked(Plan.stored(snapshot.run(run.id).plan), run.planned)
        return self._demands[key]

    def history(self, name: str, points: int) -> History:
        """A population's budget over time, and every change to it."""
        with self._ledger.snapshot() as snapshot:
            view = _population_view(snapshot, name)
            told = history(snapshot, name, points)
        return History(
            population=name,
            delta=view.delta,
            moments=tuple(
                Moment(
                    at=utc(moment.at),
                    limit_epsilon=moment.limit,
                    spent_epsilon=moment.spent_epsilon,
                    committed_epsilon=moment.committed_epsilon,
                )
                for moment in told.moments
            ),
            changes=tuple(
                BudgetChange(**{**dataclasses.asdict(change), "at": utc(change.at)}) for change in told.changes
            ),
        )

    def population_participation(self, name: str) -> PopulationHistogram:
        """How many users took part in how many rounds of all runs."""
        with self._ledger.snapshot() as snapshot:
            view = _population_view(snapshot, name)
            counts = snapshot.population_participation(name)
        if not counts:
            return PopulationHistogram(population=name, users=(), counted=counts is not None)
        never = max(0, (view.users or 0) - sum(counts.values()))
        users = (never, *(counts.get(times, 0) for times in range(1, max(counts) + 1)))
        return PopulationHistogram(population=name, users=users, counted=True)

    def what_if(self, name: str, asked: WhatIf) -> WhatIfAnswer:
        """The price of a run's plan with some values changed. Raises `BadInput` on an impossible plan."""
        with self._ledger.snapshot() as snapshot:
            population = _population_view(snapshot, name)
            run = _run_view(snapshot, asked.run) if asked.run else snapshot.newest_run(population)
        if run is None or run.population != name:
            raise BadInput(f"population {name!r}", "it has no such run whose plan could be changed.", "a run of it")
        result = what_if(run.plan, asked.model_dump(exclude={"run"}), self._ledger)
        plan = result.cost.plan
        return WhatIfAnswer(
            run=run.id,
            mechanism=plan.mechanism.kind,
            rounds=plan.run.rounds,
            cohort=plan.run.cohort,
            clip=plan.clipping.norm,
            epsilon=result.cost.epsilon,
            delta=plan.privacy.delta,
            noise_multiplier=result.cost.noise_multiplier,
            noise_std=result.noise_std,
            prefix_noise=result.prefix_noise,
            fits=result.fits,
            margin=result.admission.margin if result.admission and math.isfinite(result.admission.margin) else None,
            users=result.admission.users if result.admission else None,
            users_who_can_pay=result.admission.whole if result.admission else None,
            bound=result.bound,
            why=result.refusal or None,
            nearest=result.nearest or None,
        )

    def runs(
        self, cursor: str | None, limit: int, population: str | None, state: states.RunState | None = None
    ) -> Page[Run]:
        """Runs, newest first; of one population, or in one state, if given."""
        with self._ledger.snapshot() as snapshot:
            if population is not None:
                _population_view(snapshot, population)
            page = snapshot.runs(_parse_cursor(cursor), limit, population, state)
            latest = watch.latest_rounds(snapshot, [view.id for view in page.items])
        items = tuple(Run(**_run_fields(view, latest.get(view.id))) for view in page.items)
        return Page[Run](items=items, next=_format_cursor(page.next))

    def run(self, run_id: str) -> RunDetail:
        """One run with its plan, its guarantee and its newest residual test."""
        with self._ledger.snapshot() as snapshot:
            view = _run_view(snapshot, run_id)
            population = snapshot.population(view.population)
            latest = watch.latest_rounds(snapshot, [run_id]).get(run_id)
            void, rejects = self._counts.of(run_id, snapshot)
            test = watch.newest_row(snapshot, run_id, runs.RESIDUAL_TEST)
        # None for a plan of another version; the ledger's own columns are shown all the same.
        facts = plan_facts(view, self._root)
        settings = view.plan.get("run", {})
        return RunDetail(
            **_run_fields(view, latest),
            plan=view.plan,
            plan_digest=view.plan_digest,
            guarantee=guarantee(view, population, facts),
            rejects=rejects,
            void_rounds=None if view.adjacency == "add_remove" else void,
            cohort=int(settings.get("cohort", 0)),
            min_reports=facts.plan.report_goal if facts else int(settings.get("min_reports") or 0),
            noise_multiplier=facts.noise_multiplier if facts else None,
            audit=None if test is None else _residual_test(test),
        )

    def rounds(self, run_id: str, cursor: str | None, limit: int) -> Page[Round]:
        """Attempts at rounds of a run, oldest first."""
        with self._ledger.snapshot() as snapshot:
            _run_view(snapshot, run_id)
            page = snapshot.rounds(run_id, _parse_cursor(cursor), limit)
        return Page[Round](items=tuple(map(_round, page.items)), next=_format_cursor(page.next))

    def series(self, run_id: str, points: int) -> Series:
        """Committed rounds of a run, down-sampled to at most `points`."""
        with self._ledger.snapshot() as snapshot:
            view = _run_view(snapshot, run_id)
            limit = snapshot.population(view.population).epsilon
            rounds = snapshot.round_series(run_id, points)
        return Series(
            run=run_id,
            rounds=view.rounds,
            committed_rounds=view.next_round,
            planned_epsilon=view.planned_epsilon,
            limit_epsilon=limit,
            delta=view.delta,
            points=tuple(map(_point, rounds)),
        )

    def participation(self, run_id: str) -> Histogram:
        """How many users took part in how many rounds of a run."""
        with self._ledger.snapshot() as snapshot:
            view = _run_view(snapshot, run_id)
            counts = snapshot.participation_histogram(run_id)
        facts = plan_facts(view, self._root)
        users = tuple(counts.get(times, 0) for times in range(max(counts, default=0) + 1))
        return Histogram(
            run=run_id,
            users=() if view.adjacency == "add_remove" else users,
            allowed=facts.max_participations if facts else None,
            separation=facts.separation if facts else None,
        )

    def statement(self, run_id: str) -> Statement:
        """The privacy statement of a run."""
        with self._ledger.snapshot() as snapshot:
            _run_view(snapshot, run_id)
            return privacy_statement(snapshot, run_id, self._root)

    def registry_entry(self, run_id: str) -> dict[str, Any]:
        """The tier 3 registry entry of a run. Raises `BadInput` for a run that is not private."""
        with self._ledger.snapshot() as snapshot:
            _run_view(snapshot, run_id)
            return registry_entry(snapshot, run_id, root=self._root)

    def request(self, run_id: str, request: Request, actor: str, secret: str | None) -> str:
        """Record a request for the coordinator and return the run's state. Raises `ProblemError` 409 if refused.

        secret: the caller's token, here and below: a database that separates roles checks it too.
        """
        with self._ledger.snapshot() as snapshot:
            _run_view(snapshot, run_id)
        try:
            with self._ledger.presenting(secret):
                return self._ledger.request(run_id, None if request == "resume" else request, actor).state
        except BadInput as error:
            raise ProblemError(409, "request-refused", f"{error.what}: {error.why}", nearest=error.nearest) from None

    def charge(self, name: str, asked: NewCharge, actor: str, secret: str | None, anyones: bool) -> Charge:
        """Reserve, commit or release a charge. Raises as `ledger.foreign`; an unknown population is a 404."""
        with self._ledger.snapshot() as snapshot:
            _population_view(snapshot, name)
        if (asked.action == "reserve") != (asked.loss is not None):
            raise BadInput(f"action {asked.action!r}", "a loss is given to reserve it, and only then.")
        ledger, key = self._ledger, asked.key
        with ledger.presenting(secret):
            if asked.action == "reserve":
                assert asked.loss is not None
                view = ledger.reserve_charge(name, key, asked.loss, what=asked.what, why=asked.why, actor=actor)
            elif asked.action == "commit":
                view = ledger.commit_charge(name, key, actor=actor, anyones=anyones)
            else:
                view = ledger.release_charge(name, key, actor=actor, anyones=anyones)
        fields = view.model_dump(include={"population", "key", "state", "who", "what", "why", "loss"})
        closed = None if view.closed_at is None else utc(view.closed_at)
        price = {"mu": view.price.mu, "leak": view.price.leak}
        return Charge(**fields, **price, reserved_at=utc(view.reserved_at), closed_at=closed)

    def population_of(self, run_id: str) -> str:
        """The population that a run is charged to."""
        with self._ledger.snapshot() as snapshot:
            return _run_view(snapshot, run_id).population

    def change(self, name: str, secret: str | None, change: Callable[[Ledger], views.PopulationView]) -> Population:
        """Change a population's budget. Raises `ProblemError` 409 where the ledger refuses it."""
        with self._ledger.snapshot() as snapshot:
            _population_view(snapshot, name)
        try:
            with self._ledger.presenting(secret):
                change(self._ledger)
        except BadInput as error:
            raise ProblemError(409, "request-refused", f"{error.what}: {error.why}", nearest=error.nearest) from None
        return self.population(name)

    def proposal_population(self, proposal: str) -> str:
        """The population that a raise is proposed for."""
        try:
            return self._ledger.proposal_population(proposal)
        except BadInput as error:
            raise _not_found(error) from None

    def signed_head(self, since: int | None) -> SignedHead:
        """The newest signed head, and the hash of row `since`. Raises `ProblemError` 404 before the first."""
        with self._ledger.snapshot() as snapshot:
            head = snapshot.signed_head()
            row = None if since is None else snapshot.row_hash(since)
        if head is None:
            raise ProblemError(404, "not-found", "no coordinator has signed a head yet.", nearest="after the first run")
        return SignedHead(ledger=head.ledger, count=head.count, hash=head.hash, key=head.key, text=str(head), since=row)

    def audit(self, cursor: str | None, limit: int, run: str | None) -> Page[AuditRow]:
        """Audit rows, newest first; of one run if given."""
        page = self._ledger.journal_rows(_parse_cursor(cursor), limit, run=run)
        return Page[AuditRow](items=tuple(map(_audit_row, page.items)), next=_format_cursor(page.next))

    def events(self, after: int, limit: int) -> Sequence[AuditRow]:
        """Audit rows after row `after`, oldest first."""
        return [_audit_row(view) for view in self._ledger.events(after, limit)]

    def prove(self) -> Verification:
        """Follow the next rows of the journal, a bounded number; at its end, compare the tables with what it proves."""
        checked = self._ledger.proof.advance(_ROWS_A_CHECK)
        progress = None if checked.whole else f"{checked.rows} of {checked.end} rows are checked so far"
        return Verification(
            ok=checked.whole,
            complete=checked.whole or not checked.ok,
            rows=checked.rows,
            head=checked.hash if checked.rows else None,
            message=checked.fault or progress,
            table=checked.table or None,
            row=checked.row or None,
            at=datetime.now(UTC),
        )

    def verify(self) -> Verification:
        """What `fieldfare verify` says: everything checked again, from the first row."""
        self._ledger.proof.restart()
        root = self._root if self._root is not None and self._root.is_dir() else None
        report = verify(self._ledger, root, recompute=None if root is None else recharge)
        fault = report.fault
        return Verification(
            ok=report.ok,
            complete=True,
            rows=report.checked.get("audit", 0),
            head=report.head.hash if report.head and report.head.count else None,
            message=None if fault is None else str(fault),
            table=None if fault is None else fault.table,
            row=None if fault is None else fault.row,
            at=datetime.now(UTC),
        )

    def figures(self) -> Figures:
        """The ledger's figures for /metrics."""
        with self._ledger.snapshot() as snapshot:
            head = snapshot.head()
            populations = tuple(self._population(snapshot, name, head) for name in snapshot.population_names())
            states, committed = watch.run_states(snapshot, time.time())
            void, rejects = self._counts.of(None, snapshot)
            failed = watch.failed_residual_tests(snapshot)
        return Figures(populations, {"committed": committed, "void": void}, rejects, states, failed)


def utc(seconds: float) -> datetime:
    """Seconds since 1970 as a UTC time. Older versions made tokens that expire after the calendar ends."""
    return datetime.fromtimestamp(min(seconds, LATEST), UTC)


def _population_view(snapshot: Reader, name: str) -> views.PopulationView:
    try:
        return snapshot.population(name)
    except BadInput as error:
        raise _not_found(error) from None


def _run_view(snapshot: Reader, run_id: str) -> views.RunView:
    try:
        return snapshot.run(run_id)
    except BadInput as error:
        raise _not_found(error) from None


def _not_found(error: BadInput) -> ProblemError:
    return ProblemError(404, "not-found", f"{error.what}: {error.why}", nearest=error.nearest)


def _parse_cursor(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise ProblemError(400, "bad-cursor", "this cursor is not one that this service gave.", nearest="no cursor")
    return int(cursor)


def _format_cursor(cursor: int | None) -> str | None:
    return None if cursor is None else str(cursor)


def _loss(loss: PrivacyLoss, epsilon: float, delta: float) -> Loss:
    if loss.amplified:
        return Loss(epsilon=epsilon, delta=delta)
    return Loss(epsilon=epsilon, delta=delta, rho=loss.rho, mu=loss.mu if loss.gaussian else None)


def _gauge(total: Price, epsilon: float, delta: float) -> Loss:
    # With a leak that counts, the sum is not the loss of a Gaussian mechanism.
    gaussian = total.leak <= PLAIN_SHARE * delta
    mu = total.mu if gaussian else None
    return Loss(epsilon=epsilon, delta=delta, rho=total.mu_squared / 2 if gaussian else None, mu=mu)


def _population(view: views.PopulationView, fits_again: bool | None) -> Population:
    """All of a population's answer but for `projected_end`, which depends on the time."""
    return Population(
        name=view.name,
        state=view.state,
        simulated=view.simulated,
        unit=view.unit,
        adjacency=view.adjacency,
        epsilon=view.epsilon,
        delta=view.delta,
        bound_epsilon=view.bound_epsilon,
        bound_delta=view.bound_delta,
        ceiling_epsilon=view.ceiling_epsilon,
        ceiling_delta=view.ceiling_delta,
        two_persons=view.two_persons,
        reservation_seconds=view.reservation_seconds,
        proposals=tuple(
            Proposal(
                id=each.id,
                epsilon=each.epsilon,
                delta=each.delta,
                reason=each.reason,
                proposed_by=each.proposed_by,
                proposed_at=utc(each.proposed_at),
            )
            for each in view.proposals
        ),
        leak=view.leak,
        overdrawn=view.overdrawn,
        spent=_gauge(view.spent, view.spent_epsilon, view.delta),
        reserved_epsilon=view.reserved_epsilon,
        committed=_gauge(view.committed, view.committed_epsilon, view.delta),
        remaining_epsilon=view.remaining_epsilon,
        remaining_users=view.remaining_users,
        remaining_epsilon_of_all=view.remaining_epsilon_of_all,
        users=view.users,
        accounting=view.accounting,
        left=view.left,
        exhausted=view.exhausted,
        warnings=tuple(population_size_warnings(view.delta, view.users)),
        runs=view.runs_total,
        active_run=view.active_run.id if view.active_run else None,
        rounds_left=view.rounds_left if view.runs_active else None,
        projected_end=None,
        level=_level(view),
        last_run=view.newest_run.id if view.newest_run else None,
        last_run_fits=fits_again,
        in_words=budget_in_words(view.bound_epsilon, view.bound_delta, view.leak),
        created_at=utc(view.created_at),
    )


def _projected_end(snapshot: Reader, run: views.RunInBrief) -> datetime | None:
    """When the run under way ends at its recent pace; None for a run that stands still."""
    now = time.time()
    activity = watch.activity(snapshot, run.seq, now)
    if not activity.seconds_per_round or activity.last_closed_at is None or activity.state != "running":
        return None
    if now - activity.last_closed_at > STANDS_STILL * max(activity.seconds_per_round, 1.0):
        return None
    return utc(activity.last_closed_at) + timedelta(seconds=activity.seconds_per_round * run.rounds_left)


def _level(view: views.PopulationView) -> Literal["open", "low", "exhausted"]:
    if view.overdrawn or view.remaining_epsilon < EXHAUSTED * view.epsilon:
        return "exhausted"
    return "low" if view.committed_epsilon >= LOW * view.epsilon else "open"


def _run_fields(view: views.RunView, latest: watch.Latest | None) -> dict[str, Any]:
    """The fields that a `Run` and a `RunDetail` share. latest: the newest committed round, None before the first."""
    statistics = latest.statistics if latest else {}
    score = statistics.get("score")
    name = statistics.get("score_name")
    settings = view.plan.get("run")
    settings = settings if isinstance(settings, dict) else {}
    return {
        "id": view.id,
        "name": settings.get("name"),
        "tags": tuple(settings.get("tags", ())),
        "population": view.population,
        "state": view.state,
        "request": view.request,
        "task": _plan_value(view, "run", "task") or OWN_APP,
        "mechanism": _plan_value(view, "mechanism", "kind"),
        "adjacency": view.adjacency,
        "rounds": view.rounds,
        "committed_rounds": view.next_round,
        "planned": _loss(view.planned, view.planned_epsilon, view.delta),
        "spent": _loss(view.spent, view.spent_epsilon, view.delta),
        "score": score if isinstance(score, float) else None,
        "score_name": name if isinstance(name, str) else None,
        "started_at": utc(view.started_at),
        "updated_at": utc(max(view.ended_at or 0.0, latest.closed_at if latest else 0.0, view.started_at)),
        "ended_at": None if view.ended_at is None else utc(view.ended_at),
        "message": view.message or None,
    }


def _plan_value(view: views.RunView, table: str, name: str) -> str:
    # The plan may be of another version, in which the table has another shape.
    values = view.plan.get(table)
    return str(values.get(name, "unknown")) if isinstance(values, dict) else "unknown"


def _residual_test(row: views.JournalView) -> ResidualTestResult:
    return ResidualTestResult(
        passed=bool(row.body.get("passed")),
        scale=float(row.body.get("scale", 0.0)),
        message=str(row.body.get("message", "")),
        canaries=row.body.get("canaries"),
        at=utc(row.at),
    )


def _round(view: views.RoundView) -> Round:
    # The users in the sum of a committed round; the replies that came in for a void one; not yet known while open.
    reports = {"open": None, "committed": view.participants, "void": view.reports}[view.state]
    return Round(
        index=view.index,
        attempt=view.attempt,
        state=view.state,
        opened_at=utc(view.opened_at),
        closed_at=None if view.closed_at is None else utc(view.closed_at),
        cohort=view.cohort_size,
        reports=reports,
        rejects=view.rejects,
        reason=view.reason or None,
        epsilon=view.epsilon,
        checkpoint=view.checkpoint,
        statistics=view.statistics,
    )


def _point(point: views.SeriesPoint) -> Point:
    # A chart shows numbers only; in Python a bool is an int too.
    numbers = {
        name: float(value)
        for name, value in point.statistics.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    return Point(
        round=point.index,
        at=utc(point.closed_at),
        epsilon=point.epsilon,
        cohort=point.cohort_size,
        reports=point.participants,
        statistics=numbers,
    )


def _audit_row(view: views.JournalView) -> AuditRow:
    return AuditRow(
        id=view.id,
        at=utc(view.at),
        actor=view.actor,
        event=view.action,
        population=view.population,
        run=view.run,
        round=view.round,
        details=view.body,
        previous=view.previous,
        hash=view.hash,
    )
