"""Bounds that are shown and never charged, against the paper's numbers; and their refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent
from dp_accounting.rdp import RdpAccountant

from fieldfare.accounting import PoissonGaussian, PrivacyLoss, gaussian_epsilon
from fieldfare.accounting.informational import last_iterate, simple_zcdp_epsilon
from fieldfare.errors import BadInput
from oracles.fixed_size_cohorts import fixed_size_epsilon
from oracles.last_iterate import last_iterate_noise
from support.refusals import Coded, coded

HOLDS: dict[str, Any] = {"only_last_released": True, "convex": True, "smoothness": 1.0, "participations": 1}


def steps(n: int, power: float, v: float = 3.0) -> np.ndarray:
    k = np.arange(1, n + 1)
    return v * (1 - k / n) ** power / n if power else np.full(n, v / n)


@pytest.mark.parametrize("power", [0, 0.5, 1, 2])
@pytest.mark.parametrize("rho", [0.3, 1.0, 4.0])
def test_the_optimal_schedule_costs_every_step_the_same(power: float, rho: float) -> None:
    eta = steps(50, power)
    sigma = last_iterate_noise(eta, rho)
    assert np.sum(sigma**2) == pytest.approx(eta[0] ** 2 / rho**2)
    assert last_iterate(eta, sigma, **HOLDS).rho == pytest.approx(rho**2 / 2)


def test_schedules_of_the_paper() -> None:
    np.testing.assert_allclose(last_iterate_noise(steps(8, 0.5), 1.0)[:7], 0.13258, atol=5e-6)
    np.testing.assert_allclose(
        last_iterate_noise(steps(8, 1), 1.0),
        [0.16901, 0.15547, 0.14062, 0.12402, 0.10482, 0.08119, 0.04688, 0],
        atol=6e-6,
    )
    np.testing.assert_allclose(last_iterate_noise(steps(8, 0), 1.0), [0] * 7 + [0.375], atol=1e-12)


@pytest.mark.parametrize(
    ("rho", "delta", "epsilon"),
    [(1, 1e-5, 5.298526), (1, 1e-6, 5.756522), (0.5, 1e-5, 2.524263), (0.5, 1e-6, 2.753261), (2, 1e-5, 11.597052)],
)
def test_simple_conversion_table(rho: float, delta: float, epsilon: float) -> None:
    assert simple_zcdp_epsilon(rho**2 / 2, delta) == pytest.approx(epsilon, abs=6e-7)


def test_another_vector_of_the_simple_conversion() -> None:
    assert simple_zcdp_epsilon(0.02, 1e-3) == pytest.approx(0.76338, abs=6e-6)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"only_last_released": False}, coded("unsupported", "the last-iterate bound")),
        ({"convex": False}, coded("unsupported", "the last-iterate bound")),
        ({"smoothness": math.inf}, coded("unsupported", "the last-iterate bound")),
        ({"smoothness": math.nan}, coded("unsupported", "the last-iterate bound")),
        ({"smoothness": 6.0}, coded("unsupported", "the last-iterate bound")),
        ({"participations": 2}, coded("unsupported", "the last-iterate bound")),
        ({"participations": 0}, coded("unsupported", "the last-iterate bound")),
    ],
)
def test_refuses_where_an_assumption_fails(change: dict[str, Any], why: Coded) -> None:
    eta = np.full(4, 0.5)
    with pytest.raises(BadInput, check=why):
        last_iterate(eta, np.ones(4), **{**HOLDS, **change})


def test_a_last_step_without_noise_is_not_private() -> None:
    assert last_iterate([1.0, 1.0], [1.0, 0.0], **HOLDS).rho == math.inf
    assert last_iterate([1.0, 0.0], [1.0, 0.0], **HOLDS).rho == 0.5


@pytest.mark.parametrize(("users", "cohort", "sigma", "rounds"), [(100, 10, 4.0, 50), (1000, 10, 2.0, 300)])
def test_fixed_size_cohorts_between_poisson_and_renyi_accounting(users, cohort, sigma, rounds) -> None:
    """Poisson sampling of an update of the same size costs less; the Renyi bound for fixed sizes costs more."""
    delta = 1e-6
    found = fixed_size_epsilon(users, cohort, sigma, rounds, delta)
    accountant = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    accountant.compose(SampledWithoutReplacementDpEvent(users, cohort, GaussianDpEvent(sigma / 2)), rounds)
    poisson = PrivacyLoss(sampled=(PoissonGaussian(cohort / users, sigma / 2, rounds),)).epsilon(delta)
    plain = gaussian_epsilon(2 * math.sqrt(rounds) / sigma, delta)
    assert poisson <= found <= min(accountant.get_epsilon(delta), plain)


def test_a_cohort_of_everybody_is_one_gaussian() -> None:
    exact = gaussian_epsilon(2 * math.sqrt(20) / 30.0, 1e-6)
    assert exact <= fixed_size_epsilon(7, 7, 30.0, 20, 1e-6) <= exact * (1 + 1e-3)


def test_fixed_size_requests_are_bounded() -> None:
    for users, cohort, sigma, rounds, delta in ((5, 6, 1.0, 1, 1e-6), (5, 1, 1e-4, 10, 1e-6), (5, 1, 1.0, 1, 1e-13)):
        with pytest.raises(BadInput):
            fixed_size_epsilon(users, cohort, sigma, rounds, delta)


def test_it_is_not_a_loss_and_cannot_be_composed_into_one() -> None:
    shown = last_iterate([1.0], [1.0], **HOLDS)
    assert shown.charged is False
    assert shown.epsilon(1e-5) > 0
    with pytest.raises(TypeError):
        PrivacyLoss() + shown  # type: ignore


@pytest.mark.parametrize(
    "call",
    [
        lambda: last_iterate([], [], **HOLDS),
        lambda: last_iterate([1.0], [1.0, 1.0], **HOLDS),
        lambda: last_iterate([-1.0], [1.0], **HOLDS),
        lambda: last_iterate([1.0], [math.nan], **HOLDS),
        lambda: last_iterate_noise([1.0, 2.0], 1.0),
        lambda: last_iterate_noise([1.0], 0.0),
        lambda: simple_zcdp_epsilon(-1.0, 1e-5),
        lambda: simple_zcdp_epsilon(1.0, 0.0),
    ],
)
def test_refuses_what_is_no_schedule(call) -> None:
    with pytest.raises(BadInput):
        call()
