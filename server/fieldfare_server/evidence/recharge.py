"""Charge a run again from its plan and its participation: what `fieldfare verify` holds the ledger against."""

from __future__ import annotations

import json

from fieldfare.cost import cost_of
from fieldfare.plan import Plan
from fieldfare_server.evidence.verify import Charge


def recharge(plan_json: str) -> Charge:
    """A function of (round, its participants) that gives the run's cumulative loss, as the coordinator computed it."""
    cost = cost_of(Plan.stored(json.loads(plan_json)))
    charge = cost.realised()
    return lambda round, users: cost.charged(charge.add(round, users))
