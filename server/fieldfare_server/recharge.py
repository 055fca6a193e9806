"""Charge a run again from its plan and its participation: what `fieldfare verify` holds the ledger against."""

from __future__ import annotations

from fieldfare.cost import cost_of
from fieldfare.plan import Plan
from fieldfare_server.ledger.verify import Charge


def recharge(plan_json: str) -> Charge:
    """A function of (round, its participants) that gives the run's cumulative loss, as the coordinator computed it."""
    return cost_of(Plan.model_validate_json(plan_json)).realised().add
