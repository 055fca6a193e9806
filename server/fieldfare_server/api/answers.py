"""The service's answers: one snapshot of the ledger becomes one view, and nothing in between.

Every answer is built in one read transaction. Two would tear it: a round committed between them gives an
answer with four committed rounds and the score of the fifth. Nothing about privacy is computed here. What a
plan's mathematics answers is imported when it is first asked for: a command that reads a budget needs none of
it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fieldfare.accounting.individual import Demand
from fieldfare.errors import Conflict, NotFound
from fieldfare_server.api.cursors import Order, part
from fieldfare_server.api.journal_answers import JournalAnswers
from fieldfare_server.api.outlook import outlook, projected_end
from fieldfare_server.api.population_schemas import (
    Charge,
    NewCharge,
    Population,
    PopulationHistogram,
    WhatIf,
    WhatIfAnswer,
)
from fieldfare_server.api.refusal import allowed, known
from fieldfare_server.api.run_answers import RunAnswers
from fieldfare_server.api.schemas import Page
from fieldfare_server.ledger import Ledger, views, watch
from fieldfare_server.ledger.chain import Head
from fieldfare_server.ledger.history import History, history
from fieldfare_server.ledger.reads import Reader
from fieldfare_server.ledger.sql.memory import AtHead
from fieldfare_server.ledger.state.windows import day_of

# How many of a population's newest ended runs say what score a plan may be expected to reach.
COMPARED: Final = 200


@dataclass(frozen=True)
class Figures:
    """What /metrics shows of the ledger: every population, and counts over all runs by state or reason."""

    populations: tuple[Population, ...]
    rounds: dict[str, int]
    rejects: dict[str, int]
    runs: dict[str, int]
    failed_self_tests: int
    # Run -> the share of its reservation's time that is left; about 1 while a coordinator holds it.
    reservations: dict[str, float]


class Answers(RunAnswers, JournalAnswers):
    """Builds each answer from one snapshot of `ledger`. Thread-safe.

    root: the state directory, from which runs' stored strategies are read; None: there is none on this
    machine.

    An unknown name raises `ProblemError` 404, a cursor that this service did not give `ProblemError` 400.
    """

    def __init__(self, ledger: Ledger, root: Path | None = None) -> None:
        super().__init__(ledger, root)
        self._populations: AtHead[tuple[Population, views.RunInBrief | None]] = AtHead(1024)
        self._demands: dict[tuple[str, str], Demand] = {}

    def populations(
        self,
        cursor: str | None,
        limit: int,
        only: Container[str] | None = None,
        order: Order = "name",
        search: str = "",
    ) -> Page[Population]:
        """Return populations whose name holds `search`, in this order; those among `only`.

        Args:
            cursor: of the previous page; None for the first.
            limit: populations on a page, at most.
            only: names that the caller may see; None: all.
            order: by name, or by how near the limit they are.
            search: a part of the name.
        """
        with self._ledger.snapshot() as snapshot:
            names = [name for name in snapshot.population_names() if only is None or name in only]
            names = [name for name in names if search.casefold() in name.casefold()]
            head = snapshot.head()
            return part(names, lambda name: self._population(snapshot, name, head, only), order, cursor, limit)

    def population(self, name: str, only: Container[str] | None = None) -> Population:
        """Return one population; `only` as in `populations`."""
        with self._ledger.snapshot() as snapshot:
            with known():
                head = snapshot.head(name)
            return self._population(snapshot, name, head, only)

    def _population(self, snapshot: Reader, name: str, head: Head, only: Container[str] | None = None) -> Population:
        def read() -> tuple[Population, views.RunInBrief | None]:
            view = snapshot.population(name)
            return Population.of(view, outlook(snapshot, view, self._demand), snapshot.together(view)), view.active_run

        # All but the end that is expected changes only with a row of the journal, and calendar windows at midnight.
        answer, active = self._populations.get(head, f"{name} {day_of(snapshot.now())}", read)
        end = None if active is None else projected_end(snapshot, active)
        # Whoever knows the budget of one population could take it from the sum, and has that of the others.
        together = answer.together if only is None else None
        return answer.model_copy(update={"projected_end": end, "together": together})

    def _demand(self, snapshot: Reader, run: views.RunInBrief) -> Demand:
        """Return what the plan of `run` asks of single users, worked out once."""
        from fieldfare.plan import Plan
        from fieldfare_server.run.pricing import roughly_asked

        key = run.id, run.plan_digest
        if key not in self._demands:
            if len(self._demands) >= 1024:
                self._demands.clear()
            self._demands[key] = roughly_asked(Plan.stored(snapshot.run(run.id).plan), run.planned)
        return self._demands[key]

    def history(self, name: str, points: int) -> History:
        """Return a population's budget over time, and every change to it."""
        with self._ledger.snapshot() as snapshot, known():
            return history(snapshot, name, points)

    def charges(self, name: str) -> tuple[Charge, ...]:
        """Return what other trainers have charged to a population, oldest first."""
        with self._ledger.snapshot() as snapshot, known():
            return tuple(map(Charge.of, snapshot.charges(name)))

    def population_participation(self, name: str) -> PopulationHistogram:
        """Return how many users took part in how many rounds of all runs."""
        with self._ledger.snapshot() as snapshot, known():
            view = snapshot.population(name)
            counts = snapshot.population_participation(name)
        if not counts:
            return PopulationHistogram(population=name, users=(), counted=counts is not None)
        never = max(0, (view.users or 0) - sum(counts.values()))
        users = (never, *(counts.get(times, 0) for times in range(1, max(counts) + 1)))
        return PopulationHistogram(population=name, users=users, counted=True)

    def what_if(self, name: str, asked: WhatIf) -> WhatIfAnswer:
        """The price of a run's plan with some values changed. Raises `BadInput` on an impossible plan."""
        from fieldfare_server.planning.expected import expected_score
        from fieldfare_server.planning.what_if import what_if

        with self._ledger.snapshot() as snapshot, known():
            population = snapshot.population(name)
            asked_for = asked.run or (population.newest_run.id if population.newest_run else None)
            run = snapshot.run(asked_for) if asked_for else None
            done = snapshot.runs(None, COMPARED, name, "done").items
            latest = watch.latest_rounds(snapshot, [one.id for one in done])
        if run is None or run.population != name:
            raise NotFound(f"population {name!r}", "it has no such run whose plan could be changed.", "a run of it")
        price = what_if(run.plan, asked.model_dump(exclude={"run"}), self._ledger)
        ended = [(one, latest[one.id].statistics) for one in done if one.id in latest]
        return WhatIfAnswer.of(run.id, price, expected_score(price.cost.plan, price.cost.epsilon, ended))

    def charge(self, name: str, asked: NewCharge, actor: str, secret: str | None, anyones: bool) -> Charge:
        """Reserve, commit or release a charge. Raises as `ledger.foreign`; an unknown population is a 404."""
        self._require(name)
        if (asked.action == "reserve") != (asked.loss is not None):
            raise Conflict(f"action {asked.action!r}", "a loss is given to reserve it, and only then.")
        ledger, key = self._ledger, asked.key
        with ledger.database.presenting(secret):
            if asked.loss is not None:
                made = ledger.reserve_charge(name, key, asked.loss, what=asked.what, why=asked.why, actor=actor)
            else:
                close = ledger.commit_charge if asked.action == "commit" else ledger.release_charge
                made = close(name, key, actor=actor, anyones=anyones)
        return Charge.of(made)

    def change(
        self,
        name: str,
        secret: str | None,
        only: Container[str] | None,
        change: Callable[[Ledger], views.PopulationView],
    ) -> Population:
        """Change a population's budget, and return it. Raises `ProblemError` 409 where the ledger refuses it."""
        self._require(name)
        with allowed(), self._ledger.database.presenting(secret):
            change(self._ledger)
        return self.population(name, only)

    def proposal_population(self, proposal: str) -> str:
        """Return the population that a raise is proposed for."""
        with known():
            return self._ledger.proposal_population(proposal)

    def figures(self) -> Figures:
        """Return the ledger's figures for /metrics."""
        with self._ledger.snapshot() as snapshot:
            head = snapshot.head()
            populations = tuple(self._population(snapshot, name, head) for name in snapshot.population_names())
            states, committed = watch.run_states(snapshot, time.time())
            void, rejects = self._counts.of(None, snapshot)
            failed = self._tests.failed(snapshot)
            left = watch.reservations_left(snapshot, time.time())
        return Figures(populations, {"committed": committed, "void": void}, rejects, states, failed, left)

    def _require(self, name: str) -> None:
        with self._ledger.snapshot() as snapshot, known():
            snapshot.population(name)
