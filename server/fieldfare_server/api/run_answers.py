"""What is answered about runs. What a plan's mathematics answers is imported when it is first asked for."""

from __future__ import annotations

import json
from pathlib import Path

from fieldfare.participation import hides_presence
from fieldfare_server.api.blinder_answers import blinder_state
from fieldfare_server.api.cursors import format_cursor, parse_cursor
from fieldfare_server.api.refusal import allowed, known
from fieldfare_server.api.schemas import (
    Histogram,
    Page,
    Point,
    Request,
    ResidualTestResult,
    Round,
    Run,
    RunDetail,
    Series,
)
from fieldfare_server.api.service import Written
from fieldfare_server.ledger import Ledger, states, watch
from fieldfare_server.ledger.events.runs import Audited


class RunAnswers:
    """Builds each answer about runs from one snapshot of `ledger`."""

    def __init__(self, ledger: Ledger, root: Path | None = None) -> None:
        self._ledger, self._root = ledger, root
        self._counts, self._tests = watch.RoundCounts(ledger), watch.ResidualTests()

    def runs(
        self,
        cursor: str | None,
        limit: int,
        population: str | None,
        state: states.RunState | None = None,
        asks: bool | None = None,
    ) -> Page[Run]:
        """Return runs, newest first; of one population, in one state, or asking a question or not, if given."""
        with self._ledger.snapshot() as snapshot, known():
            page = snapshot.runs(parse_cursor(cursor), limit, population, state, asks=asks)
            latest = watch.latest_rounds(snapshot, [view.id for view in page.items])
            blinders = [blinder_state(snapshot, view) for view in page.items]
        items = tuple(
            Run.of(view, latest.get(view.id), blinder=blinder)
            for view, blinder in zip(page.items, blinders, strict=True)
        )
        return Page[Run](items=items, next=format_cursor(page.next))

    def run(self, run_id: str) -> RunDetail:
        """Return one run with its plan, its guarantee and its newest residual test."""
        from fieldfare_server.evidence.guarantee import guarantee
        from fieldfare_server.evidence.plan_facts import plan_facts

        with self._ledger.snapshot() as snapshot, known():
            view = snapshot.run(run_id)
            population = snapshot.population(view.population)
            latest = watch.latest_rounds(snapshot, [run_id]).get(run_id)
            void, rejects = self._counts.of(run_id, snapshot)
            test = watch.newest_row(snapshot, run_id, Audited.action)
            blinder = blinder_state(snapshot, view)
        # None for a plan of another version; the ledger's own columns are shown all the same.
        facts = plan_facts(view, self._root)
        settings = view.plan.get("run", {})
        return RunDetail.of(
            view,
            latest,
            blinder=blinder,
            guarantee=guarantee(view, population, facts),
            rejects=rejects,
            void_rounds=None if hides_presence(view.adjacency) else void,
            cohort=int(settings.get("cohort", 0)),
            min_reports=facts.plan.report_goal if facts else int(settings.get("min_reports") or 0),
            noise_multiplier=facts.noise_multiplier if facts else None,
            audit=None if test is None else ResidualTestResult.model_validate(test.body | {"at": test.at}),
        )

    def rounds(self, run_id: str, cursor: str | None, limit: int) -> Page[Round]:
        """Return attempts at rounds of a run, oldest first."""
        with self._ledger.snapshot() as snapshot, known():
            page = snapshot.rounds(run_id, parse_cursor(cursor), limit)
        return Page[Round](items=tuple(map(Round.of, page.items)), next=format_cursor(page.next))

    def series(self, run_id: str, points: int) -> Series:
        """Return committed rounds of a run, down-sampled to at most `points`."""
        with self._ledger.snapshot() as snapshot, known():
            view = snapshot.run(run_id)
            limit = snapshot.population(view.population).epsilon
            rounds = tuple(map(Point.of, snapshot.round_series(run_id, points)))
        own = {"run": run_id, "committed_rounds": view.next_round, "limit_epsilon": limit, "points": rounds}
        return Series.model_validate(vars(view) | own)

    def participation(self, run_id: str) -> Histogram:
        """Return how many users took part in how many rounds of a run."""
        from fieldfare_server.evidence.plan_facts import plan_facts

        with self._ledger.snapshot() as snapshot, known():
            view = snapshot.run(run_id)
            counts = snapshot.participation_histogram(run_id)
        facts = plan_facts(view, self._root)
        users = tuple(counts.get(times, 0) for times in range(max(counts, default=0) + 1))
        return Histogram(
            run=run_id,
            users=() if hides_presence(view.adjacency) else users,
            allowed=facts.max_participations if facts else None,
            separation=facts.separation if facts else None,
        )

    def report(self, run_id: str, as_: Written, *, alone: bool = False) -> str:
        """Return the privacy statement of a run; `alone` as in `privacy_statement`."""
        from fieldfare_server.evidence.statement import privacy_statement

        self.population_of(run_id)
        with self._ledger.snapshot() as snapshot:
            statement = privacy_statement(snapshot, run_id, self._root, alone=alone)
        if as_ == "json":
            return json.dumps(statement.to_json(), ensure_ascii=False, allow_nan=False)
        return statement.to_html() if as_ == "html" else statement.to_markdown()

    def registry_entry(self, run_id: str) -> dict[str, object]:
        """Return the tier 3 registry entry of a run. Raises `BadInput` for a run that is not private."""
        from fieldfare_server.evidence.deployments_registry import registry_entry

        self.population_of(run_id)
        with self._ledger.snapshot() as snapshot:
            return registry_entry(snapshot, run_id, root=self._root)

    def request(self, run_id: str, request: Request, actor: str, secret: str | None) -> str:
        """Record a request for the coordinator and return the run's state. Raises `ProblemError` 409 if
        refused.

        secret: the caller's token, here and below: a database that separates roles checks it too.
        """
        self.population_of(run_id)
        with allowed(), self._ledger.database.presenting(secret):
            return self._ledger.request(run_id, None if request == "resume" else request, actor).state

    def population_of(self, run_id: str) -> str:
        """Return the population that a run is charged to."""
        with self._ledger.snapshot() as snapshot, known():
            return snapshot.run(run_id).population
