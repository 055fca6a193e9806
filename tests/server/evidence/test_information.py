"""Bounds that are shown and never charged: right where they apply, and refused by name where they do not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.informational import simple_zcdp_epsilon
from fieldfare.errors import BadInput
from fieldfare.plan import Plan
from fieldfare_server.evidence.information import information, last_iterate_of


def plan(**changes: Any) -> Plan:
    table: dict[str, Any] = {
        "privacy": {"population": "people", "noise_multiplier": 2.0, "delta": 1e-5},
        "run": {"task": "digits", "rounds": 10, "cohort": 4},
        "mechanism": {"kind": "independent"},
    }
    return Plan.parse({**table, **changes})


def test_constant_steps_gain_by_the_number_of_rounds_after_a_users_own() -> None:
    """rho = max_k eta / sqrt(sum_{j >= k} (eta sigma / 2)^2): the last round has one round of noise, so 2 / sigma.

    One round is the Gaussian mechanism under replace_one: sensitivity 2, rho = (2 / sigma)^2 / 2.
    """
    assert last_iterate_of(plan(), 2.0, 1).rho == pytest.approx((2 / 2.0) ** 2 / 2)


def test_falling_steps_gain() -> None:
    falling = plan(server_optimizer={"kind": "sgd", "learning_rate": 0.5, "schedule": {"kind": "polynomial"}})
    eta = 0.5 * (1 - np.arange(10) / 10)
    tail = np.sqrt(np.cumsum(np.square(eta)[::-1])[::-1])
    assert last_iterate_of(falling, 3.0, 1).rho == pytest.approx(float((eta / (1.5 * tail)).max()) ** 2 / 2)


@pytest.mark.parametrize(
    ("changes", "most", "why"),
    [
        ({"mechanism": {"kind": "nu"}}, 1, "correlated"),
        ({}, 3, "takes part 3 times"),
        ({"server_optimizer": {"kind": "sgd", "momentum": 0.9}}, 1, "plain SGD"),
        ({"server_optimizer": {"kind": "fedadam"}}, 1, "plain SGD"),
        ({"participation": {"scheme": "poisson", "rate": 0.1}}, 1, "sampled"),
        ({"clipping": {"kind": "normalised"}}, 1, "clipping"),
    ],
)
def test_a_plan_that_does_not_fit_is_told_why(changes: dict[str, Any], most: int, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        last_iterate_of(plan(**changes), 2.0, most)
    assert why in dict(information(plan(**changes), 2.0, most, PrivacyLoss(1.0)))["epsilon of the last model alone"]


def test_the_rows_say_what_they_are() -> None:
    loss = PrivacyLoss(0.25)
    rows = dict(information(plan(), 2.0, 1, loss))
    looser = float(rows["epsilon as rho + 2 sqrt(rho log 1/delta)"].partition(" ")[0])
    assert simple_zcdp_epsilon(loss.rho, 1e-5) <= looser <= (1 + 1e-5) * simple_zcdp_epsilon(loss.rho, 1e-5)
    shown = rows["epsilon of the last model alone"]
    assert math.isclose(float(shown.split(",")[0]), last_iterate_of(plan(), 2.0, 1).epsilon(1e-5), rel_tol=1e-5)
    assert "convex" in shown
    assert "every round's model is released" in shown
