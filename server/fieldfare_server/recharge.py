"""Charge a run again from its plan and its participation: what `fieldfare verify` holds the ledger against."""

from __future__ import annotations

from fieldfare.cost import cost_of
from fieldfare.plan import Plan
from fieldfare.realised import PatternCharge
from fieldfare_server.ledger.verify import Charge


def recharge(plan_json: str) -> Charge:
    """A function of (round, patterns of its participants) that gives the run's loss after each round, in order."""
    plan = Plan.model_validate_json(plan_json)
    cost = cost_of(plan)
    return PatternCharge(cost.mechanism, cost.participation, cost.noise_multiplier, plan.privacy.adjacency).after
