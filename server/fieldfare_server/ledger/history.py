"""A population's budget over time: its limit, what was committed and what was spent after each change."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic import Field
from sqlalchemy import Connection, func, select

from fieldfare.accounting.filter import Price
from fieldfare_server.ledger.reads import Reader
from fieldfare_server.ledger.sql import models, odometer_tables
from fieldfare_server.ledger.sql.memory import PricedRun
from fieldfare_server.ledger.sql.past import PAST
from fieldfare_server.ledger.sql.rows import population_row
from fieldfare_server.ledger.state import budget, odometers
from fieldfare_server.ledger.views import Time, View, like, utc


class Moment(View):
    """A population's budget after a change. Every epsilon is a gauge at the delta of that time.

    Under individual accounting `spent_epsilon` is that of the user who had spent most, and
    `committed_epsilon` that of the user who had least left.
    """

    at: Time = Field(description="when it changed")
    limit_epsilon: float = Field(description="the limit then")
    spent_epsilon: float = Field(description="what committed rounds had used")
    committed_epsilon: float = Field(description="that and what was reserved")


class BudgetChange(View):
    """What a person did to a budget: who, when, why, and the terms that changed."""

    id: int = Field(description="the audit row")
    at: Time = Field(description="when")
    actor: str = Field(description="who")
    action: str = Field(description="what was done")
    reason: str = Field(description="why, in their words")
    before: dict[str, Any] = Field(description="the terms that changed, as they were")
    after: dict[str, Any] = Field(description="the same, as they are since")


class History(View):
    """A population's budget over time: moments oldest first, down-sampled, and every change, newest first."""

    model_config = like(
        population="aircraft",
        delta=1e-5,
        moments=[{"at": "2026-01-01T12:24:00Z", "limit_epsilon": 2.0, "spent_epsilon": 0.61, "committed_epsilon": 1.0}],
        changes=[
            {
                "id": 7,
                "at": "2026-01-01T12:20:00Z",
                "actor": "officer",
                "action": "population.raise",
                "reason": "a second study, approved on 1 January",
                "before": {"epsilon": 1.0},
                "after": {"epsilon": 2.0},
            }
        ],
    )

    population: str = Field(description="the population")
    delta: float = Field(description="that every epsilon of now is at")
    moments: tuple[Moment, ...] = Field(description="oldest first")
    changes: tuple[BudgetChange, ...] = Field(description="newest first")


class _Step(NamedTuple):
    """One thing that moved a line: the terms of the budget, or what one run holds and has spent; in order."""

    at: float
    run: int = -1
    # mu^2, as `spent`. The gauge sets the whole leak aside, so the leaks of runs do not move it.
    committed: float = 0.0
    spent: float = 0.0
    terms: dict[str, Any] | None = None


_NOTHING = _Step(0.0)


def history(reader: Reader, name: str, points: int = 200) -> History:
    """Return the history of population `name`, thinned out to `points` moments; the newest is always one.

    Raises:
        BadInput: there is no such population.
    """
    with reader.snapshot() as snapshot, snapshot.read() as connection:
        runs = snapshot.priced_runs(name)
        population = population_row(connection, name)
        changes, limits = _changes(connection, name)
        alike = [*_run_steps(connection, runs, points), *_foreign_steps(connection, population)]
        single = _odometer_steps(connection, population, runs, limits, alike)
        steps = sorted([*limits, *alike, *single], key=lambda step: step.at)
    moments = tuple(_moments(steps, population, points))
    return History(population=name, delta=population.delta, moments=moments, changes=tuple(changes))


_TERMS = ("epsilon", "delta", "state", "ceiling_epsilon", "ceiling_delta", "window_epsilon", "window_every")


def _changes(connection: Connection, name: str) -> tuple[list[BudgetChange], list[_Step]]:
    """Newest first, and as steps, oldest first. A row holds the new terms; the old ones are those of the row before."""
    c = models.journal.c
    # The database looks among rows that name no run. They are few; those of the population hold all its rounds.
    query = select(models.journal).where(c.run.is_(None), func.coalesce(c.population, "") == name).order_by(c.id)
    known, changes, steps = dict[str, object](), list[BudgetChange](), list[_Step]()
    for row in connection.execute(query):
        if not row.action.startswith("population."):
            continue
        body = json.loads(row.body)
        # What is only proposed changes nothing; the row of its approval has the terms again.
        terms = () if row.action == "population.propose" else _TERMS
        after = {term: body[term] for term in terms if term in body and body[term] != known.get(term)}
        before = {term: known[term] for term in after if term in known}
        known |= after
        said = {"reason": str(body.get("reason", "")), "before": before, "after": after}
        changes.append(BudgetChange.model_validate({**row._mapping, **said}))
        steps.append(_Step(max(row.at, steps[-1].at if steps else row.at), terms=after))
    return changes[::-1], steps


def _run_steps(connection: Connection, runs: list[PricedRun], points: int) -> Iterator[_Step]:
    r = models.rounds.c
    alike = [run for run in runs if not run.charge.individual]
    committed = sum(run.charge.rounds for run in alike)
    step = max(1, -(-committed // points))
    # By run and index, which the table is found by: to look at every round for its index takes seconds for millions.
    far = {run.seq: run.charge.rounds for run in alike if run.charge.rounds >= step}
    indices = range(step - 1, max(far.values(), default=0), step)
    kept = (r.state == "committed", r.run_seq.in_(far), r.index.in_(indices))
    query = select(r.run_seq, r.index, r.closed_at, r.spent).where(*kept).order_by(r.id)
    rounds: dict[int, list[Any]] = {}
    for row in connection.execute(query):
        rounds.setdefault(row.run_seq, []).append(row)
    for run in alike:
        charge, at = run.charge, run.started_at
        yield _Step(at, run.seq, charge.price.mu_squared)
        for row in rounds.get(run.seq, ()):
            at, spent = max(at, row.closed_at), budget.paid(charge._replace(spent=row.spent)).mu_squared
            yield _Step(at, run.seq, charge.price.mu_squared, spent)
        if run.ended_at is not None:
            spent = budget.paid(charge).mu_squared
            yield _Step(max(at, run.ended_at), run.seq, spent, spent)


# Stands for all runs under individual accounting in `_Step.run`; charges of other trainers have numbers below.
_ODOMETERS = -2


def _odometer_steps(
    connection: Connection, population: Any, runs: list[PricedRun], limits: list[_Step], alike: list[_Step]
) -> list[_Step]:
    """What the user who had spent most had spent, and what was committed of the one who had least left."""
    if not odometer_tables.is_individual(population):
        return []
    times, terms = [], [budget.Terms(population.epsilon, population.delta, population.leak)]
    for step in limits:
        assert step.terms is not None
        epsilon, delta = step.terms.get("epsilon", terms[-1].epsilon), step.terms.get("delta", terms[-1].delta)
        times.append(step.at)
        terms.append(budget.Terms(epsilon, delta, population.leak))
    moments, totals = [], [0.0]
    held: dict[int, float] = {}
    for step in sorted(alike, key=lambda step: step.at):
        moments.append(step.at)
        totals.append(max(0.0, totals[-1] + step.committed - held.get(step.run, 0.0)))
        held[step.run] = step.committed

    def left(at: float) -> int:
        common = odometers.units_of(Price(totals[bisect_right(moments, at)]))
        return odometers.limit_units(terms[bisect_right(times, at)]) - common

    points = PAST.points(connection, population, runs, left)
    return [_Step(point.at, _ODOMETERS, point.committed, point.spent) for point in points]


def _foreign_steps(connection: Connection, population: Any) -> Iterator[_Step]:
    c = models.charges.c
    rows = connection.execute(select(models.charges).where(c.population_id == population.id).order_by(c.key))
    for number, row in enumerate(rows, start=1):
        run, cost = _ODOMETERS - number, Price.from_json(row.price).mu_squared
        yield _Step(row.reserved_at, run, cost)
        if row.closed_at is not None:
            spent = cost if row.state == "committed" else 0.0
            yield _Step(max(row.reserved_at, row.closed_at), run, spent, spent)


def _moments(steps: list[_Step], population: Any, points: int) -> Iterator[Moment]:
    """Sums are cheap and gauges are not: sum every step, gauge only the moments that are kept."""
    every = max(1, -(-len(steps) // points))
    epsilon, delta = population.epsilon, population.delta
    spent = committed = 0.0
    held: dict[int, _Step] = {}
    for i, step in enumerate(steps):
        if step.terms is not None:
            epsilon, delta = step.terms.get("epsilon", epsilon), step.terms.get("delta", delta)
        else:
            before = held.get(step.run, _NOTHING)
            held[step.run] = step
            committed += step.committed - before.committed
            spent += step.spent - before.spent
        if i % every == 0 or i == len(steps) - 1 or step.terms is not None:
            terms = budget.Terms(epsilon, delta, population.leak)
            # The sums may fall below 0 by their last bits.
            spent_epsilon, gauged = (terms.gauge(Price(max(0.0, mu_squared))) for mu_squared in (spent, committed))
            at = utc(step.at)
            yield Moment(at=at, limit_epsilon=epsilon, spent_epsilon=spent_epsilon, committed_epsilon=gauged)
