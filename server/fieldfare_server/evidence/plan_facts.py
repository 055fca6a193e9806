"""What follows from a run's stored plan and its planned charge: sensitivity, noise multiplier, participation limits."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from fieldfare.accounting import PrivacyLoss
from fieldfare.costing import implied_noise
from fieldfare.errors import BadInput, FieldfareError
from fieldfare.mechanisms import Mechanism, build
from fieldfare.names import RESOLUTION
from fieldfare.participation import Participation, adjacency_factor
from fieldfare.plan import Plan
from fieldfare_server.files.strategies import StoredStrategy, StrategyError, without_search
from fieldfare_server.ledger.views import RunView


@dataclass(frozen=True)
class PlanFacts:
    """The numbers behind a run, as this version computes them.

    `sensitivity` includes the factor of the plan's adjacency and belongs to the strategy that the run
    applies; it is None where that is not at hand. `bound` and `how` say what kind of number it is and how it
    was computed. `noise_multiplier` is None where rounds have different ones, or without a sensitivity.
    """

    plan: Plan
    participation: Participation
    sensitivity: float | None
    bound: str
    how: str
    noise_multiplier: float | None
    separation: int
    max_participations: int


def plan_facts(run: RunView, root: Path | None = None) -> PlanFacts | None:
    """Return the facts of a run; None when this version cannot read the run's plan.

    root: the state directory, in which the run's strategy is stored. Without it, or without the file, a
        strategy that no optimiser decides is built from the plan; what an optimiser decided is not searched
        for again, and not shown.
    """
    try:
        # The cache needs a hashable key, and the plan of a view is a dict.
        plan = json.dumps(run.plan, sort_keys=True, separators=(",", ":"))
        stored = StoredStrategy(root, run.id, run.strategy, run.planned) if root else None
        # A file may be missing today and be copied back tomorrow, so its absence is not cached.
        strategy = stored if stored is not None and stored.readable else None
        return _facts(plan, run.planned, strategy)
    except (FieldfareError, ValueError, TypeError):
        return None


@lru_cache(maxsize=256)
def _facts(plan_json: str, planned: PrivacyLoss, strategy: StoredStrategy | None) -> PlanFacts:
    table = json.loads(plan_json)
    plan = Plan.stored(table)
    participation = plan.participation.build()
    mechanism, sigma = _applied(plan, table, planned, strategy)
    separation, most = participation.separation_and_count(plan.run.rounds)
    facts = PlanFacts(plan, participation, None, "", "", None, separation, most)
    if mechanism is None:
        return facts
    unadjusted = mechanism.sensitivity(participation)
    sensitivity = adjacency_factor(plan.privacy.adjacency) * float(unadjusted)
    return replace(facts, sensitivity=sensitivity, bound=unadjusted.bound, how=unadjusted.how, noise_multiplier=sigma)


def _applied(
    plan: Plan, table: dict[str, Any], planned: PrivacyLoss, strategy: StoredStrategy | None
) -> tuple[Mechanism | None, float | None]:
    """Return the mechanism that the run applies, None where an optimiser decided it and its result is not at
    hand; and its noise multiplier, as stored or else as the ledger's charge implies it."""
    try:
        if strategy is not None:
            with contextlib.suppress(BadInput):  # the ledger's charge is not its plan's: `verify` says so
                cost = strategy.cost(table)
                return cost.mechanism, cost.noise_multiplier
        mechanism = build(plan.mechanism, plan.run.rounds, plan.participation.build(), without_search())
    except StrategyError:
        return None, None
    resolution = float(table.get(RESOLUTION, 0.0))
    sigma = implied_noise(planned, mechanism, plan.participation.build(), plan, resolution)
    return mechanism, None if math.isnan(sigma) else sigma
