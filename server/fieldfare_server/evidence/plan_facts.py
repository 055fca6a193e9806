"""What follows from a run's stored plan and its planned charge: sensitivity, noise multiplier, participation limits."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import lru_cache

from fieldfare.accounting import PrivacyLoss, discretised
from fieldfare.errors import FieldfareError
from fieldfare.mechanisms import Mechanism, build
from fieldfare.participation import Participation, Single, adjacency_factor
from fieldfare.plan import Plan
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


def plan_facts(run: RunView) -> PlanFacts | None:
    """The facts of a run; None when this version cannot read the run's plan."""
    try:
        # The cache needs a hashable key, and the plan of a view is a dict.
        return _facts(json.dumps(run.plan, sort_keys=True, separators=(",", ":")), run.planned)
    except (FieldfareError, ValueError, TypeError):
        return None


@lru_cache(maxsize=256)
def _facts(plan_json: str, planned: PrivacyLoss) -> PlanFacts:
    plan = Plan.stored(json.loads(plan_json))
    participation = plan.participation.build()
    mechanism = build(plan.mechanism, plan.run.rounds, participation)
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
        noise_multiplier=_noise_multiplier(planned, mechanism, sensitivity, plan.privacy.rounding == "discrete"),
        separation=separation,
        max_participations=most,
    )


def _noise_multiplier(planned: PrivacyLoss, mechanism: Mechanism, sensitivity: float, discrete: bool) -> float | None:
    """The noise multiplier that the ledger's charge implies.

    The plan may leave it to calibration, so it is solved from 2 rho = (sensitivity / sigma)^2, which discrete noise
    raises a little (`discretised`).
    """
    if planned.sampled:
        # A sampled event records sigma divided by the norm of C's longest column.
        multipliers = {event.noise_multiplier for event in planned.sampled}
        return multipliers.pop() * float(mechanism.sensitivity(Single())) if len(multipliers) == 1 else None
    if planned.rho <= 0:
        return None
    share = discretised.SHARE if discrete and not planned.concentrated else 1.0
    return sensitivity * math.sqrt(share / (2 * planned.rho))
