"""What follows from a run's stored plan and its planned charge: sensitivity, noise multiplier, participation limits."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fieldfare.accounting import PrivacyLoss
from fieldfare.errors import FieldfareError
from fieldfare.mechanisms import Mechanism, build
from fieldfare.participation import Participation, Single, adjacency_factor
from fieldfare.plan import RESOLUTION, Plan
from fieldfare_server.files.strategies import StoredStrategy, StrategyError
from fieldfare_server.ledger.views import RunView


@dataclass(frozen=True)
class PlanFacts:
    """The numbers behind a run, as this version computes them.

    `sensitivity` includes the factor of the plan's adjacency; `bound` and `how` say what kind of number it is and how
    it was computed. `noise_multiplier` is None where rounds have different ones.
    """

    plan: Plan
    mechanism: Mechanism
    participation: Participation
    sensitivity: float
    bound: str
    how: str
    noise_multiplier: float | None
    separation: int
    max_participations: int


def plan_facts(run: RunView, root: Path | None = None) -> PlanFacts | None:
    """The facts of a run; None when this version cannot read the run's plan.

    root: the state directory, in which the run's strategy is stored. None: the strategy is built from the plan; for
        kinds that search for an optimum that may be another one than the run applies, so it is for display only.

    Raises:
        StrategyError: the strategy is not there.
    """
    try:
        # The cache needs a hashable key, and the plan of a view is a dict.
        plan = json.dumps(run.plan, sort_keys=True, separators=(",", ":"))
        stored = None if root is None else StoredStrategy(root, run.id, run.strategy, run.format)
        return _facts(plan, run.planned, run.format, stored)
    except StrategyError:
        raise
    except (FieldfareError, ValueError, TypeError):
        return None


@lru_cache(maxsize=256)
def _facts(plan_json: str, planned: PrivacyLoss, format: int, strategy: StoredStrategy | None) -> PlanFacts:
    table = json.loads(plan_json)
    plan = Plan.stored(table)
    participation = plan.participation.build()
    if strategy is None:
        mechanism = build(plan.mechanism, plan.run.rounds, participation)
        if format == 0:
            mechanism = mechanism.first_charge()
    else:
        mechanism = strategy.cost(table).mechanism
    unadjusted = mechanism.sensitivity(participation)
    sensitivity = adjacency_factor(plan.privacy.adjacency) * float(unadjusted)
    separation, most = participation.separation_and_count(plan.run.rounds)
    return PlanFacts(
        plan=plan,
        mechanism=mechanism,
        participation=participation,
        sensitivity=sensitivity,
        bound=unadjusted.bound,
        how=unadjusted.how,
        noise_multiplier=_noise_multiplier(planned, mechanism, sensitivity, float(table.get(RESOLUTION, 0.0))),
        separation=separation,
        max_participations=most,
    )


def _noise_multiplier(
    planned: PrivacyLoss, mechanism: Mechanism, sensitivity: float, resolution: float
) -> float | None:
    """The noise multiplier that the ledger's charge implies.

    The plan may leave it to calibration, so it is solved from 2 rho = (sensitivity / sigma)^2 + resolution.
    """
    if planned.sampled:
        # A sampled event records sigma divided by the norm of C's longest column.
        multipliers = {event.noise_multiplier for event in planned.sampled}
        return multipliers.pop() * float(mechanism.sensitivity(Single())) if len(multipliers) == 1 else None
    of_noise = 2 * planned.rho - resolution
    return sensitivity / math.sqrt(of_noise) if of_noise > 0 else None
