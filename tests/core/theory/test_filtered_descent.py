"""DiSK's convergence bound: reference numbers, its limit without a filter, and the premise on clipping."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fieldfare.errors import BadInput
from oracles.filtered_descent import FilteredDescent, clip_growth


def test_without_a_filter_it_is_the_bound_of_noisy_descent() -> None:
    assert FilteredDescent(1.0, 0.1, 1.0).bound(1.0, 7.0, 1000, 1.0) == pytest.approx(0.1222222, abs=1e-7)


@pytest.mark.parametrize(
    ("kappa", "gamma", "factor"),
    [(0.7, -1.0, 14.714), (0.7, 0.5, 79.857), (0.7, 1.0, 22.714), (0.5, -1.0, 17.0), (0.5, 1.0, 25.0),
     (0.9, -1.0, 13.444)],
)  # fmt: skip
def test_difference_factor(kappa: float, gamma: float, factor: float) -> None:
    assert FilteredDescent(1.0, 1e-9, kappa, gamma).difference_factor == pytest.approx(factor, abs=1e-3)


@pytest.mark.parametrize(
    ("kappa", "gamma", "growth"),
    [(0.7, 0.5, 1.0), (0.7, 0.2, 3.2857), (0.7, -1.0, 1.857), (0.5, 0.5, 3.0), (0.5, -1.0, 3.0), (0.5, 1.0, 1.0),
     (0.3, -1.0, 5.667)],
)  # fmt: skip
def test_how_much_the_combination_can_exceed_one_gradient(kappa: float, gamma: float, growth: float) -> None:
    """The text's (2 - kappa) / kappa is too small for 0 < gamma < 1 (gamma = 0.2: 3.29, not 1.86)."""
    assert clip_growth(kappa, gamma) == pytest.approx(growth, abs=1e-3)
    rng = np.random.default_rng(0)
    share = (1 - kappa) / (kappa * gamma)
    pairs = rng.choice([-1.0, 1.0], size=(100, 2))
    assert np.abs(share * pairs[:, 0] + (1 - share) * pairs[:, 1]).max() == pytest.approx(growth, abs=1e-3)


@pytest.mark.parametrize("kappa", [0.1, 0.3, 0.5, 0.7, 1.0])
def test_at_the_storm_radius_the_worst_case_takes_back_what_the_filter_gives(kappa: float) -> None:
    """kappa / (2 - kappa) of the noise is left, and the noise must grow by ((2 - kappa) / kappa)^2."""
    assert kappa / (2 - kappa) * clip_growth(kappa, -1.0) ** 2 == pytest.approx((2 - kappa) / kappa)


@pytest.mark.parametrize("ratio", [1.0, 0.5, 0.25, 0.1])
def test_corollary_1_holds_from_ten_times_its_printed_horizon(ratio: float) -> None:
    """L = F(x_0) - F* = d sigma^2 = 1. At the printed least horizon the theorem does not give the corollary's rate."""
    gradient = 2.0 * ratio
    least = 2.0 * (16 / ratio**3 + 16 / ratio**2 - 4 / ratio - 4) + gradient

    def theorem_over_corollary(rounds: int) -> float:
        eta = min(1 / (2 + 4 / ratio - ratio), math.sqrt((2 * ratio + gradient) / (2 * rounds)) / ratio)
        setting = FilteredDescent(1.0, eta, ratio * eta)
        assert setting.beta <= 1 / (2 * ratio) + 1e-12
        return setting.bound(1.0, gradient, rounds, 1.0) / (8 * math.sqrt(ratio / rounds))

    assert theorem_over_corollary(math.ceil(10 * least)) <= 1
    assert theorem_over_corollary(math.ceil(least)) > 1


@pytest.mark.parametrize(
    ("rate", "kappa", "gamma"), [(2.0, 1.0, -1.0), (0.1, 0.0, -1.0), (0.1, 0.5, 0.0), (0.5, 0.05, 0.5)]
)
def test_refusals(rate: float, kappa: float, gamma: float) -> None:
    with pytest.raises(BadInput):
        FilteredDescent(1.0, rate, kappa, gamma)
