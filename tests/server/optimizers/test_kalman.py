"""Gains: closed forms, recursions and the full filter agree; correlated noise gets its own gain."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldfare.mechanisms import build
from fieldfare_server.optimizers.kalman import best_gain, gains, smoothed_variance
from oracles.kalman import Belief, full_kalman, stationary


@pytest.mark.parametrize(
    ("variances", "error", "gain", "contraction"),
    [
        ((1.0, 0.0, 0.1), 0.2701562, 0.2701562, 0.5326720),
        ((1.0, 0.3, 0.1), 0.3656854, 0.5224077, 0.2280944),
        ((2.0, 0.5, 0.0), 0.6513878, 0.4342585, 0.3200633),
        ((1.0, 0.1, 0.05), 0.3, 0.3333333, 0.4444444),
    ],
)
def test_papers_riccati_fixed_points(
    variances: tuple[float, float, float], error: float, gain: float, contraction: float
) -> None:
    """disk.md section 2: p_inf and k_inf as printed, c_k with the erratum applied ((1 - k)^2)."""
    found = stationary(*variances, noisy_input=True)
    assert found == pytest.approx((error, gain, contraction), abs=1e-6)


def test_contraction_is_the_rate_at_which_gains_settle() -> None:
    k = np.array(gains(None, 0.1, (1.0,), True, 60).gain)
    end = stationary(1.0, 0.0, 0.1)
    ratio = (k[12] - end.gain) / (k[11] - end.gain)
    assert ratio == pytest.approx(end.contraction, rel=1e-3)
    assert k[-1] == pytest.approx(end.gain, abs=1e-12)


def test_papers_gain_is_not_optimal_with_noisy_input_and_misstates_its_error() -> None:
    """The counter-example of disk.md section 1.4: claimed .3657, true .4718, while the Kalman gain reaches .4633."""
    kalman, printed = stationary(1.0, 0.3, 0.1), stationary(1.0, 0.3, 0.1, noisy_input=True)

    def true_error(k: float) -> float:
        return ((1 - k) ** 2 * 0.4 + k**2) / (1 - (1 - k) ** 2)

    assert printed.error == pytest.approx(0.3657, abs=1e-4)
    assert true_error(printed.gain) == pytest.approx(0.4718, abs=1e-4)
    assert kalman.error == pytest.approx(0.4633, abs=1e-4)
    assert kalman.gain == pytest.approx(0.4633, abs=1e-4)
    assert true_error(kalman.gain) == pytest.approx(kalman.error, abs=1e-12)


def test_curvature_above_the_noise_is_refused_for_the_papers_gain() -> None:
    with pytest.raises(ValueError, match="below the noise"):
        stationary(1.0, 1.0, 0.1, noisy_input=True)


@pytest.mark.parametrize(("kappa", "innovation"), [(0.5, 0.5), (0.7, 0.49 / 0.3), (0.9, 8.1)])
def test_best_fixed_gain_for_white_noise_is_the_riccati_one(kappa: float, innovation: float) -> None:
    assert best_gain(innovation) == pytest.approx(kappa, abs=1e-6)
    assert stationary(1.0, 0.0, innovation).gain == pytest.approx(kappa, abs=1e-12)


@pytest.mark.parametrize(("kappa", "factor"), [(0.3, 0.17647), (0.5, 0.33333), (0.7, 0.53846), (0.9, 0.81818)])
def test_white_noise_behind_the_filter(kappa: float, factor: float) -> None:
    assert smoothed_variance(kappa) == pytest.approx(factor, abs=1e-5)


def test_white_formula_is_wrong_for_correlated_noise() -> None:
    """anti-PGD noise z_t - z_{t-1}: kappa^2 / (2 - kappa) of it passes, so slow signals afford a larger gain."""
    anti = (2.0, -1.0)
    assert smoothed_variance(0.5, anti) == pytest.approx(0.5 / 1.5 * 0.5)
    assert best_gain(0.05, anti) > best_gain(0.05) + 0.05
    assert best_gain(8.1, anti) < best_gain(8.1) - 0.01


@given(innovation=st.floats(1e-3, 50), lag=st.floats(-0.49, 0.49), kappa=st.floats(0.01, 1.0))
@settings(max_examples=60, deadline=None)
def test_no_fixed_gain_beats_the_best(innovation: float, lag: float, kappa: float) -> None:
    def error(k: float) -> float:
        return smoothed_variance(k, (1.0, lag)) + innovation * (1 - k) ** 2 / (1 - (1 - k) ** 2)

    assert error(best_gain(innovation, (1.0, lag))) <= error(kappa) * (1 + 1e-9)


def test_adaptive_gain_is_the_scalar_riccati_recursion() -> None:
    """S3 from p_{-1} = sigma_w^2, and S4 where it starts at its fixed point."""
    p, expected = 1.0, []
    for _ in range(20):
        k = (p + 0.4) / (p + 0.4 + 1.0)
        expected.append(k)
        p = (1 - k) * (p + 0.4)
    np.testing.assert_allclose(gains(None, 0.4, (1.0,), False, 20).gain, expected, rtol=1e-12)
    fixed = stationary(1.0, 0.0, 0.4)
    assert (fixed.error + 0.4) / (fixed.error + 1.4) == pytest.approx(fixed.gain)


@given(innovation=st.floats(1e-3, 5), lag=st.floats(-0.49, 0.49))
@settings(max_examples=25, deadline=None)
def test_adaptive_gain_ends_at_the_best_fixed_one_whatever_the_noise(innovation: float, lag: float) -> None:
    adaptive = gains(None, innovation, (1.0, lag), True, 1000).gain
    assert adaptive[-1] == pytest.approx(best_gain(innovation, (1.0, lag)), rel=1e-6)
    assert all(a >= b - 1e-12 for a, b in itertools.pairwise(adaptive)), "confidence only grows"


def test_adaptive_gain_is_better_than_the_best_fixed_one_early_and_as_good_late() -> None:
    """Exact error from impulse responses, for noise that differences white noise."""
    lags, innovation = (1.0, -0.5), 0.001

    def error(k: tuple[float, ...]) -> float:
        drift, weights = 0.0, np.zeros(0)
        for gain in k:
            weights = np.concatenate([weights * (1 - gain), [gain]])
            drift = (1 - gain) ** 2 * (drift + innovation)
        return float(weights @ weights + 2 * lags[1] * (weights[1:] @ weights[:-1]) + drift)

    for rounds, least, most in [(10, 0.0, 0.5), (400, 0.999, 1.001)]:
        adaptive = error(gains(None, innovation, lags, True, rounds).gain)
        constant = error(gains(best_gain(innovation, lags), innovation, lags, True, rounds).gain)
        assert least <= adaptive / constant <= most


def test_full_filter_with_scalar_covariances_is_the_scalar_recursion() -> None:
    rng = np.random.default_rng(2)
    d, q, eye = 4, 0.3, np.eye(4)
    root = rng.normal(size=(d, d))
    hessian = root @ root.T / d
    belief, mean, steps = Belief(np.zeros(d), eye), np.zeros(d), gains(None, q, (1.0,), False, 15).gain
    for k in steps:
        seen, displacement = rng.normal(size=d), rng.normal(size=d)
        belief = full_kalman(
            belief, seen, displacement=displacement, hessian=hessian, noise=eye, innovation=q * eye, curvature=0 * eye
        )
        ahead = mean + hessian @ displacement
        mean = ahead + k * (seen - ahead)
        np.testing.assert_allclose(belief.mean, mean, rtol=1e-10)
    assert belief.covariance == pytest.approx(eye * belief.covariance[0, 0], abs=1e-12)


def test_full_filter_tracks_a_quadratic_better_than_its_observations() -> None:
    """Exact dynamics, no innovation: the covariance it claims is the error it makes."""
    rng = np.random.default_rng(7)
    d, eye, trials = 3, np.eye(3), 400
    hessian = np.diag([1.0, 0.5, 0.1])
    total, claimed = 0.0, 0.0
    for _ in range(trials):
        x, belief = rng.normal(size=d), Belief(np.zeros(d), 100.0 * eye)
        moved = np.zeros(d)
        for _ in range(12):
            seen = hessian @ x + rng.normal(size=d)
            belief = full_kalman(
                belief, seen, displacement=moved, hessian=hessian, noise=eye, innovation=0 * eye, curvature=0 * eye
            )
            error = float(((belief.mean - hessian @ x) ** 2).mean())
            moved = -0.3 * belief.mean
            x = x + moved
        total, claimed = total + error / trials, float(np.trace(belief.covariance)) / d
    assert claimed == pytest.approx(1 / 12, rel=0.02), "twelve looks at one thing"
    assert total == pytest.approx(claimed, rel=0.15)


@pytest.mark.parametrize(("kappa", "ratio"), [(0.3, 0.0870), (0.5, 0.2263), (0.7, 0.4449), (0.9, 0.7752)])
def test_tree_noise_behind_the_filter_is_forecast_from_its_profile(kappa: float, ratio: float) -> None:
    """disk.md section 5, T = 1024."""
    found = build({"kind": "tree", "estimator": "plain"}, 1024).autocovariance()
    assert smoothed_variance(kappa, found) == pytest.approx(ratio, abs=2e-3)
