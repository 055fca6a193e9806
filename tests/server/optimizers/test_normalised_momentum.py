"""Normalised momentum: steps of exact length, and the descent lemma along every path."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldfare_server.optimizers import StepInfo, build


@given(seed=st.integers(0, 2**31), scale=st.sampled_from([1e-30, 1e-3, 1.0, 1e30]))
@settings(max_examples=50, deadline=None)
def test_every_step_has_the_length_of_the_learning_rate(seed: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    optimizer = build({"kind": "normalised-momentum", "learning_rate": 0.25})
    params = torch.zeros(8)
    state = optimizer.init(params)
    for t in range(5):
        moved, state = optimizer.step(state, params, torch.randn(8, generator=generator) * scale, StepInfo(t, 5, 0.0))
        assert float((moved - params).norm()) == pytest.approx(0.25, rel=1e-5)
        params = moved


def test_no_update_is_no_step() -> None:
    optimizer, params = build({"kind": "normalised-momentum"}), torch.ones(3)
    moved, _ = optimizer.step(optimizer.init(params), params, torch.zeros(3), StepInfo(0, 1, 0.0))
    assert torch.equal(moved, params)


def test_momentum_starts_at_zero_and_averages() -> None:
    optimizer, params = build({"kind": "normalised-momentum", "momentum": 0.75, "normalise": False}), torch.zeros(1)
    state = optimizer.init(params)
    for t in range(3):
        params, state = optimizer.step(state, params, torch.ones(1), StepInfo(t, 3, 0.0))
    assert float(state["momentum"]) == 1 - 0.75**3


@given(seed=st.integers(0, 2**31))
@settings(max_examples=50, deadline=None)
def test_lemma_5_holds_along_every_path(seed: int) -> None:
    """mean ||grad F(w_t)|| <= 3 (F(w_1) - F(w_{T+1})) / (2 eta T) + 3 L eta / 4 + (3/T) sum ||m_t - grad F(w_t)||,
    for any directions at all (Tran and Cutkosky 2022, Lemma 5, before the expectation)."""
    rng = np.random.default_rng(seed)
    eta, steps, d = 0.05, 40, 5
    curvature = np.linspace(0.1, 1.0, d)  # L = 1
    optimizer = build({"kind": "normalised-momentum", "learning_rate": eta, "momentum": 0.0})
    params = torch.from_numpy(rng.normal(size=d))
    state = optimizer.init(params)
    value = 0.5 * float(curvature @ params.numpy() ** 2)
    first, gradients, errors = value, [], []
    for t in range(steps):
        gradient = curvature * params.numpy()
        direction = gradient + rng.normal(size=d) * rng.choice([0.0, 0.1, 2.0])
        gradients.append(np.linalg.norm(gradient))
        errors.append(np.linalg.norm(direction - gradient))
        params, state = optimizer.step(state, params, torch.from_numpy(-direction), StepInfo(t, steps, 0.0))
    last = 0.5 * float(curvature @ params.numpy() ** 2)
    bound = 1.5 * (first - last) / (eta * steps) + 0.75 * eta + 3 * np.mean(errors)
    assert np.mean(gradients) <= bound + 1e-9
