"""The auditor of a whole release: real sessions with canaries, nodes, clipping, coins, sums, noise and a resume."""

from __future__ import annotations

from typing import Any

import pytest

import fieldfare as ff
from fieldfare.cost import Cost
from fieldfare.costing import cost_of
from fieldfare_server.cli.progress import local_grid
from fieldfare_server.evidence import canary_runs
from fieldfare_server.evidence.canaries import CanaryEstimates
from fieldfare_server.run.pricing import price_with_model

ADD_REMOVE = {"mechanism": "independent", "adjacency": "add_remove"}
BANDED = {"mechanism": {"kind": "banded", "bands": 3}, "adjacency": "add_remove"}
PLANS: dict[str, dict[str, Any]] = {
    "nu": {
        "mechanism": "nu",
        "client": {"engine": "loop"},
        "participation": {"scheme": "min-separation", "separation": 4},
    },
    "tree": {"mechanism": "tree", "participation": {"scheme": "fixed-order", "period": 4}},
    "poisson": {**ADD_REMOVE, "participation": {"scheme": "poisson", "rate": 0.25}},
    "bins": {**ADD_REMOVE, "mechanism": "nu", "participation": {"scheme": "balls-in-bins", "bins": 4}},
    "allocation": {**ADD_REMOVE, "participation": {"scheme": "random-allocation", "bins": 4}},
    "b-min-sep": {**BANDED, "participation": {"scheme": "b-min-sep", "separation": 3, "rate": 0.5}},
    "truncated": {
        **ADD_REMOVE,
        "participation": {"scheme": "truncated-poisson", "rate": 0.1, "cap": 900, "enrolled": 5000},
    },
    "cyclic": {**BANDED, "participation": {"scheme": "cyclic-poisson", "groups": 3, "rate": 0.5}},
    "two queries": {"mechanism": "blt", "server_optimizer": {"kind": "disk"}},
    "adaptive clip": {"mechanism": "independent", "clip": {"kind": "adaptive-quantile", "norm": 0.1}},
}
LOOSE = ("cyclic", "adaptive clip", "two queries")
"""Where the charge is for a worse round than most, for a count beside the update, or for a second vector."""


def priced(changes: dict[str, Any]) -> tuple[Cost, dict[str, bytes]]:
    plan = ff.Plan(**{"task": "digits", "epsilon": 4, "delta": 1e-5, "rounds": 12, "cohort": 20, **changes})
    decided: dict[str, bytes] = {}
    if plan.draws_its_price:
        return price_with_model(plan, decided, draw=lambda: (bytes(16), 1)), decided
    return cost_of(plan, decided), decided


def audited(kind: str) -> tuple[CanaryEstimates, str]:
    """The attack on a plan, as `fieldfare audit` makes it."""
    cost, decided = priced(PLANS[kind])
    played = canary_runs.attack(cost, decided, cost.noise_multiplier, lambda plan: local_grid(plan, 2))
    assert played is not None
    return played


@pytest.mark.parametrize("kind", PLANS)
def test_a_release_tells_what_is_charged_and_no_more(kind: str) -> None:
    """False alarms: one in a million a plan for the fault; of the closeness, 5 standard errors at 3 points.

    Of the lower bound, more than four standard deviations.
    """
    found, fault = audited(kind)
    assert fault == ""
    if kind not in LOOSE:
        # Coins decide: of what is claimed, 44 attacks on the other six gave .75 with a standard deviation of
        # .06, twelve on truncated sampling .69 and .10. Of those one in some hundreds is below .4, as was asked.
        assert found.threshold_lower_bound > 0.25 * found.claimed
        for point in found.tradeoff[:3]:
            assert abs(point["measured"] - point["charged"]) < 5 * point["standard_error"] + 0.04 * point["charged"]
