"""A population's budget over time: its limit, what was committed and what was spent after each change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, func, select

from fieldfare.accounting.filter import Price
from fieldfare.accounting.individual import UNIT, Units, from_units
from fieldfare_server.ledger import blobs, budget, models, odometers
from fieldfare_server.ledger.reads import Source
from fieldfare_server.ledger.rows import population_row
from fieldfare_server.ledger.states import ACTIVE


@dataclass(frozen=True)
class Moment:
    """The budget after a change. Every epsilon is a gauge at the delta of that time; times are seconds since 1970.

    Under individual accounting `spent_epsilon` is that of the user who had spent most, and `committed_epsilon` is an
    upper bound: what runs of the past were pledged of each user is not kept, so each counts with the most that it could
    cost one user, up to the limit. `PopulationView` has the exact value of now.
    """

    at: float
    limit: float
    spent_epsilon: float
    committed_epsilon: float


@dataclass(frozen=True)
class Change:
    """What a person did to the budget: `before` and `after` hold the terms that differ."""

    id: int
    at: float
    actor: str
    action: str
    reason: str
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class History:
    """Moments, oldest first, at most as many as were asked for, and every change, newest first."""

    moments: tuple[Moment, ...]
    changes: tuple[Change, ...]


class _Step(NamedTuple):
    """One thing that moved a line: the terms of the budget, or what one run holds and has spent."""

    at: float
    run: int = -1
    committed: float = 0.0
    """mu^2, as `spent`. The gauge sets the whole leak aside, so the leaks of runs do not move it."""
    spent: float = 0.0
    terms: dict[str, Any] | None = None


_NOTHING = _Step(0.0)


def history(source: Source, name: str, points: int = 200) -> History:
    """The history of population `name`, thinned out to `points` moments; the newest is always one.

    Raises:
        BadInput: there is no such population.
    """
    with source.read() as connection:
        population = population_row(connection, name)
        changes = _changes(connection, name)
        limits = [_Step(change.at, terms=change.after) for change in reversed(changes)]
        runs = [*_run_steps(connection, population, points), *_odometer_steps(connection, population)]
        others = _foreign_steps(connection, population)
        steps = sorted([*limits, *runs, *others], key=lambda step: step.at)
    return History(tuple(_moments(steps, population, points)), tuple(changes))


_TERMS = ("epsilon", "delta", "state", "ceiling_epsilon", "ceiling_delta")


def _changes(connection: Connection, name: str) -> list[Change]:
    """Newest first. A row holds the new terms; the old ones are those of the row before it."""
    c = models.journal.c
    query = select(models.journal).where(c.population == name, c.run.is_(None)).order_by(c.id)
    known: dict[str, Any] = {}
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
        changes.append(Change(row.id, row.at, row.actor, row.action, str(body.get("reason", "")), before, after))
    return changes[::-1]


def _run_steps(connection: Connection, population: Any, points: int) -> Iterator[_Step]:
    c, r = models.runs.c, models.rounds.c
    ours = select(models.runs).where(c.population_id == population.id, c.accounting != odometers.INDIVIDUAL)
    runs = connection.execute(ours.order_by(c.seq)).all()
    rows = [budget.Charge(run.planned, run.spent, run.price, run.next_round, run.state in ACTIVE) for run in runs]
    wholes = budget.prices(rows, population.leak)
    committed = sum(run.next_round for run in runs)
    step = max(1, -(-committed // points))
    query = select(r.run_seq, r.index, r.closed_at, r.spent).join(models.runs, c.seq == r.run_seq)
    kept = query.where(c.population_id == population.id, r.state == "committed", func.mod(r.index, step) == step - 1)
    rounds: dict[int, list[Any]] = {}
    for row in connection.execute(kept.order_by(r.id)):
        rounds.setdefault(row.run_seq, []).append(row)
    for run, charge, whole in zip(runs, rows, wholes, strict=True):
        yield _Step(run.started_at, run.seq, whole.mu_squared)
        for row in rounds.get(run.seq, ()):
            spent = budget.paid(charge._replace(spent=row.spent), whole).mu_squared
            yield _Step(row.closed_at, run.seq, whole.mu_squared, spent)
        if run.ended_at is not None:
            spent = budget.paid(charge, whole).mu_squared
            yield _Step(run.ended_at, run.seq, spent, spent)


_ODOMETERS = -2
"""Stands for all runs under individual accounting in `_Step.run`; charges of other trainers have numbers below."""


def _odometer_steps(connection: Connection, population: Any) -> Iterator[_Step]:
    """What the user who had spent most had spent, and the most that could be committed, as individual runs moved it."""
    c, r, p = models.runs.c, models.rounds.c, models.participations.c
    ours = (c.population_id == population.id, c.accounting == odometers.INDIVIDUAL)
    runs = {run.seq: run for run in connection.execute(select(models.runs).where(*ours).order_by(c.seq))}
    query = select(p.run_seq, p.count.label("number"), p.users, p.charges, r.closed_at)
    rounds = connection.execute(query.where(p.round_id == r.id, p.run_seq == c.seq).where(*ours).order_by(r.id)).all()
    moves: list[tuple[float, int, int, Any]] = [(run.started_at, 0, run.seq, None) for run in runs.values()]
    moves += [(row.closed_at, 1, row.run_seq, row) for row in rounds]
    moves += [(run.ended_at, 2, run.seq, None) for run in runs.values() if run.ended_at is not None]
    settled = np.zeros(population.users, dtype=np.int64)
    spent = settled.copy()
    taken: dict[int, Units] = {}
    most = 0
    for at, kind, seq, row in sorted(moves, key=lambda move: move[:3]):
        # A run from before odometers has no `most`: its charges were recomputed after its end.
        if kind == 0:
            taken[seq] = np.zeros(population.users, dtype=np.int64)
        elif kind == 1:
            users = blobs.decode(row.users, row.number)
            units = odometers.decode(row.charges, row.number)
            taken[seq][users] += units
            spent[users] += units
            most = max(most, int(spent[users].max(initial=0)))
        else:
            settled += taken.pop(seq)
        held = int(settled.max(initial=0)) + sum(runs[other].most or 0 for other in taken)
        committed, now = (from_units(units) if units else 0.0 for units in (max(held, most), most))
        yield _Step(at, _ODOMETERS, committed, now)


def _foreign_steps(connection: Connection, population: Any) -> Iterator[_Step]:
    c = models.charges.c
    rows = connection.execute(select(models.charges).where(c.population_id == population.id).order_by(c.key))
    for number, row in enumerate(rows, start=1):
        run, cost = _ODOMETERS - number, Price.from_json(row.price).mu_squared
        yield _Step(row.reserved_at, run, cost)
        if row.closed_at is not None:
            spent = cost if row.state == "committed" else 0.0
            yield _Step(row.closed_at, run, spent, spent)


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
            alike = held.get(_ODOMETERS, _NOTHING)
            reserved = committed
            if alike.committed > alike.spent:
                # Admission keeps the sum within the limit, or the user who has spent most is beyond it.
                limit = odometers.limit_units(terms) * UNIT
                reserved = max(committed - alike.committed + alike.spent, min(committed, limit))
            # The sums may fall below 0 by their last bits.
            gauges = (terms.gauge(Price(max(0.0, mu_squared))) for mu_squared in (spent, reserved))
            yield Moment(step.at, epsilon, *gauges)
