"""The estimated innovation: against models whose process variance is known, for white and for correlated noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fieldfare_server.optimizers import StepInfo, build
from fieldfare_server.optimizers.innovation import LAGS, PRIOR, Innovation
from fieldfare_server.optimizers.kalman import best_gain

Floats = NDArray[np.float64]

ROUNDS, SIZE = 150, 4000
WHITE, DIFFERENCED = (1.0,), (1.0, -0.8 / 1.64)


def noise(lags: tuple[float, ...], rng: np.random.Generator) -> Floats:
    """Unit variance; `DIFFERENCED`: z_t - 0.8 z_{t-1}."""
    z = rng.normal(size=(ROUNDS + 1, SIZE))
    return z[1:] if lags == WHITE else np.asarray((z[1:] - 0.8 * z[:-1]) / np.sqrt(1.64))


def scalar_model(q: float, lags: tuple[float, ...], seed: int, **spec: Any) -> tuple[list[Innovation], Floats]:
    """SIZE independent copies of the scalar model g_t = g_{t-1} + sqrt(q) v_t, seen through noise of std 0.5.

    DiSK in doppler mode filters it; (what is known after, gain) of every round. The base stands still.
    """
    rng = np.random.default_rng(seed)
    g = np.cumsum(np.sqrt(q) * rng.normal(size=(ROUNDS, SIZE)), axis=0) + 3.0 * rng.normal(size=SIZE)
    observed = torch.from_numpy(0.5 * (g + noise(lags, rng))).float()
    optimizer = build({"kind": "disk", "mode": "doppler", "base": {"kind": "sgd", "learning_rate": 1e-9}, **spec})
    params = torch.zeros(SIZE)
    state, known, gains = optimizer.init(params), [], []
    for t in range(ROUNDS):
        info = StepInfo(t, ROUNDS, 0.5, lags)
        gains.append(optimizer.gain(state, info))  # type: ignore[attr-defined]
        params, state = optimizer.step(state, params, observed[t], info)
        known.append(Innovation.from_tensor(state["innovation"]))
    return known, np.array(gains)


@pytest.mark.parametrize("lags", [WHITE, DIFFERENCED], ids=["white", "differenced"])
@pytest.mark.parametrize("q", [0.01, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("kappa", ["auto", "adaptive"])
def test_finds_the_process_variance_of_a_scalar_kalman_model(q: float, lags: tuple[float, ...], kappa: str) -> None:
    """Within six of its own standard errors, which 4 000 copies make small; `value` is one above the estimate."""
    known, gains = scalar_model(q, lags, seed=3, kappa=kappa)
    error = np.sqrt(known[-1].variance) / known[-1].exposure
    assert error < 0.015 * (0.2 + q)
    assert known[-1].moved / known[-1].exposure == pytest.approx(q, abs=6 * error)
    assert known[-1].value == pytest.approx(known[-1].moved / known[-1].exposure + error)
    assert gains[0] == 1.0
    assert gains[-1] == pytest.approx(best_gain(q, lags), rel=0.1)


@pytest.mark.parametrize("lags", [WHITE, DIFFERENCED], ids=["white", "differenced"])
def test_what_does_not_move_is_smoothed_but_still_heard(lags: tuple[float, ...]) -> None:
    known, gains = scalar_model(0.0, lags, seed=4, kappa="auto")
    assert 0 < known[-1].value < 2e-3
    assert gains[-1] < 0.1
    assert (np.diff(gains[:30]) < 0).sum() > 20


def test_a_cold_start_is_forgotten() -> None:
    known, gains = scalar_model(0.1, WHITE, seed=5, kappa="adaptive", start="zero")
    assert gains[0] < 1.0
    assert known[2].value > 0.2
    assert known[-1].value == pytest.approx(0.1, abs=0.01)


def test_before_anything_is_seen_it_is_the_published_gain() -> None:
    optimizer = build({"kind": "disk", "kappa": "auto"})
    state = optimizer.init(torch.zeros(3))
    _, state = optimizer.step(state, torch.zeros(3), torch.ones(3), StepInfo(0, 9, 1.0, WHITE))
    assert optimizer.gain(state, StepInfo(1, 9, 1.0, WHITE)) == pytest.approx(0.7)  # type: ignore[attr-defined]
    assert best_gain(PRIOR, WHITE) == pytest.approx(0.7)


def test_the_noise_in_the_filter_is_followed_exactly() -> None:
    """`smoothed` and `covariance` for gains that change, against the covariance matrix of the noise."""
    lags, gains = (1.0, -0.4, 0.15, -0.05), [1.0, 0.6, 0.3, 0.8, 0.05, 0.5]
    matrix = np.array([[lags[abs(i - j)] if abs(i - j) < 4 else 0.0 for j in range(6)] for i in range(6)])
    known, weights = Innovation(), np.zeros(6)
    for t, gain in enumerate(gains):
        assert known.smoothed == pytest.approx(weights @ matrix @ weights, abs=1e-12)
        assert known.covariance(lags) == pytest.approx(matrix[t] @ weights, abs=1e-12)
        known = known.observe(gain, 1.0, 10, lags)
        weights = weights * (1 - gain)
        weights[t] = gain


def test_survives_as_a_tensor() -> None:
    known = Innovation(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, np.linspace(0, 1, LAGS))
    again = Innovation.from_tensor(known.to_tensor())
    assert again[:6] == known[:6]
    np.testing.assert_array_equal(again.weights, known.weights)


def test_looking_ahead_over_curvature_errs_towards_less_smoothing() -> None:
    """A quadratic, one-point mode: more than the true innovation, a far better gradient than the published gain's."""
    rng, rate = np.random.default_rng(0), 0.3
    h = torch.from_numpy(np.resize([1.0, 0.5, 0.1], 600)).float()
    pushes = torch.from_numpy(np.cumsum(0.1 * rng.normal(size=(ROUNDS, 600)), axis=0)).float()
    noises = torch.from_numpy(rng.normal(size=(ROUNDS, 600))).float()
    errors = {}
    for kappa in ("auto", 0.7):
        optimizer = build({"kind": "disk", "kappa": kappa, "base": {"kind": "sgd", "learning_rate": rate}})
        x, found = torch.full((600,), 3.0), []
        state = optimizer.init(x)
        for t in range(ROUNDS):
            info = StepInfo(t, ROUNDS, 1.0, WHITE)
            (point,), *_ = optimizer.points(state, x, info)
            gradient = pushes[t] - h * x
            x, state = optimizer.step(state, x, pushes[t] - h * point + noises[t], info)
            found.append(float((state["filtered"] - gradient).square().mean()))
        errors[kappa] = np.mean(found[20:])
        if kappa == "auto":
            assert Innovation.from_tensor(state["innovation"]).value > 0.01
    assert errors["auto"] < 0.6 * errors[0.7]
