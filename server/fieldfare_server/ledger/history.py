"""A population's budget over time: its limit, what was committed and what was spent after each change."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, select

from fieldfare.accounting.filter import Price
from fieldfare_server.ledger.reads import Reader
from fieldfare_server.ledger.sql import models, odometer_tables
from fieldfare_server.ledger.sql.memory import PricedRun
from fieldfare_server.ledger.sql.past import PAST
from fieldfare_server.ledger.sql.rows import population_row
from fieldfare_server.ledger.state import budget, odometers


@dataclass(frozen=True)
class BudgetMoment:
    """The budget after a change. Every epsilon is a gauge at the delta of that time; times are seconds since 1970.

    Under individual accounting `spent_epsilon` is that of the user who had spent most, and
    `committed_epsilon` that of the user who had least left.
    """

    at: float
    limit: float
    spent_epsilon: float
    committed_epsilon: float


@dataclass(frozen=True)
class TermsChange:
    """What a person did to the budget: `before` and `after` hold the terms that differ."""

    id: int
    at: float
    actor: str
    action: str
    reason: str
    before: dict[str, object] = field(default_factory=dict)
    after: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class BudgetHistory:
    """Moments, oldest first, at most as many as were asked for, and every change, newest first."""

    moments: tuple[BudgetMoment, ...]
    changes: tuple[TermsChange, ...]


class _Step(NamedTuple):
    """One thing that moved a line: the terms of the budget, or what one run holds and has spent."""

    at: float
    run: int = -1
    # mu^2, as `spent`. The gauge sets the whole leak aside, so the leaks of runs do not move it.
    committed: float = 0.0
    spent: float = 0.0
    terms: dict[str, Any] | None = None


_NOTHING = _Step(0.0)


def history(reader: Reader, name: str, points: int = 200) -> BudgetHistory:
    """Return the history of population `name`, thinned out to `points` moments; the newest is always one.

    Raises:
        BadInput: there is no such population.
    """
    with reader.snapshot() as snapshot, snapshot.read() as connection:
        runs = snapshot.priced_runs(name)
        population = population_row(connection, name)
        changes = _changes(connection, name)
        limits = [_Step(change.at, terms=change.after) for change in reversed(changes)]
        alike = [*_run_steps(connection, population, runs, points), *_foreign_steps(connection, population)]
        single = _odometer_steps(connection, population, runs, limits, alike)
        steps = sorted([*limits, *alike, *single], key=lambda step: step.at)
    return BudgetHistory(tuple(_moments(steps, population, points)), tuple(changes))


_TERMS = ("epsilon", "delta", "state", "ceiling_epsilon", "ceiling_delta", "window_epsilon", "window_every")


def _changes(connection: Connection, name: str) -> list[TermsChange]:
    """Newest first. A row holds the new terms; the old ones are those of the row before it."""
    c = models.journal.c
    query = select(models.journal).where(c.population == name, c.run.is_(None)).order_by(c.id)
    known: dict[str, object] = {}
    changes = []
    for row in connection.execute(query):
        if not row.action.startswith("population."):
            continue
        body = json.loads(row.body)
        # What is only proposed changes nothing; the row of its approval has the terms again.
        terms = () if row.action == "population.propose" else _TERMS
        after = {term: body[term] for term in terms if term in body and body[term] != known.get(term)}
        before = {term: known[term] for term in after if term in known}
        known |= after
        changes.append(TermsChange(row.id, row.at, row.actor, row.action, str(body.get("reason", "")), before, after))
    return changes[::-1]


def _run_steps(connection: Connection, population: Any, runs: list[PricedRun], points: int) -> Iterator[_Step]:
    c, r = models.runs.c, models.rounds.c
    alike = [run for run in runs if not run.charge.individual]
    committed = sum(run.charge.rounds for run in alike)
    step = max(1, -(-committed // points))
    query = select(r.run_seq, r.index, r.closed_at, r.spent).join(models.runs, c.seq == r.run_seq)
    kept = query.where(c.population_id == population.id, r.state == "committed", func.mod(r.index, step) == step - 1)
    rounds: dict[int, list[Any]] = {}
    for row in connection.execute(kept.order_by(r.id)):
        rounds.setdefault(row.run_seq, []).append(row)
    for run in alike:
        charge = run.charge
        yield _Step(run.started_at, run.seq, charge.price.mu_squared)
        for row in rounds.get(run.seq, ()):
            spent = budget.paid(charge._replace(spent=row.spent)).mu_squared
            yield _Step(row.closed_at, run.seq, charge.price.mu_squared, spent)
        if run.ended_at is not None:
            spent = budget.paid(charge).mu_squared
            yield _Step(run.ended_at, run.seq, spent, spent)


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
            yield _Step(row.closed_at, run, spent, spent)


def _moments(steps: list[_Step], population: Any, points: int) -> Iterator[BudgetMoment]:
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
            gauges = (terms.gauge(Price(max(0.0, mu_squared))) for mu_squared in (spent, committed))
            yield BudgetMoment(step.at, epsilon, *gauges)
