"""Charge a run again from its plan and its participation: what `fieldfare verify` holds the ledger against."""

from __future__ import annotations

from collections.abc import Sequence

from fieldfare.accounting import PrivacyLoss
from fieldfare.cost import cost_of
from fieldfare.plan import Plan
from fieldfare_server.ledger.verify import Charge


def recharge(plan_json: str) -> Charge:
    """A function of (round, patterns of its participants) that gives the run's loss after each round, in order."""
    plan = Plan.model_validate_json(plan_json)
    charge = cost_of(plan).realised()

    def after(index: int, patterns: Sequence[tuple[int, ...]]) -> PrivacyLoss:
        return charge.after(index, patterns)

    return after
