"""What nodes are told where a plan's runs are masked, made without a run."""

from __future__ import annotations

from fieldfare.cost import Cost
from fieldfare.costing import cost_with_resolution, privatiser_of
from fieldfare.plan import Plan
from fieldfare_flower.masked import Masking

INSTRUCTION = "cd" * 32


def masking_of_plan(plan: Plan, blinder: str, numel: int) -> tuple[Masking, Cost]:
    """What an instruction to send `numel` numbers says, and what the run costs."""
    cost = cost_with_resolution(plan, {}, plan.riders.joint_bound, numel, plan.most_users)
    ring = privatiser_of(plan, cost, numel)
    said = blinder, ring.spacing_log2, ring.bits, plan.digest()
    return Masking(*said, weights=plan.riders.weights, instruction=INSTRUCTION), cost
