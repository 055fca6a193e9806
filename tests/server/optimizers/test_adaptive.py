"""Adaptive optimizers against torch, against the paper's arithmetic, and with noise of a known variance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fieldfare_server.optimizers import State, StepInfo, build


def run(table: dict[str, Any], updates: torch.Tensor, std: float = 0.0) -> tuple[torch.Tensor, State]:
    optimizer, params = build(table), torch.linspace(-1, 1, updates.shape[1])
    state = optimizer.init(params)
    for t, update in enumerate(updates):
        params, state = optimizer.step(state, params, update, StepInfo(t, len(updates), std))
    return params, state


def noise(rounds: int, size: int, seed: int = 3) -> torch.Tensor:
    return torch.randn(rounds, size, generator=torch.Generator().manual_seed(seed))


def test_adamw_is_torchs() -> None:
    updates = noise(30, 5)
    params = torch.nn.Parameter(torch.linspace(-1, 1, 5))
    reference = torch.optim.AdamW([params], lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)
    for update in updates:
        params.grad = -update
        reference.step()
    table = {"kind": "adamw", "learning_rate": 0.05, "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-6, "weight_decay": 0.1}
    torch.testing.assert_close(run(table, updates)[0], params.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["fedadam", "fedadagrad", "fedyogi"])
def test_fedopt_is_algorithm_2_of_the_paper(kind: str) -> None:
    updates = noise(25, 4).numpy().astype(np.float64)
    x, m, v = np.linspace(-1, 1, 4), np.zeros(4), np.full(4, 0.01**2)
    for u in updates:
        m = 0.5 * m + 0.5 * u
        if kind == "fedadam":
            v = 0.9 * v + 0.1 * u**2
        elif kind == "fedadagrad":
            v = v + u**2
        else:
            v = v - 0.1 * u**2 * np.sign(v - u**2)
        x = x + 0.3 * m / (np.sqrt(v) + 0.01)
    table = {"kind": kind, "learning_rate": 0.3, "beta1": 0.5, "adaptivity": 0.01}
    if kind != "fedadagrad":
        table["beta2"] = 0.9
    np.testing.assert_allclose(run(table, torch.from_numpy(updates).float())[0].numpy(), x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["fedadam", "fedadagrad", "adamw"])
def test_correction_takes_exactly_the_noise_variance_out_of_the_second_moment(kind: str) -> None:
    """E[u^2] = signal^2 + sigma^2: averaged over many coordinates, what is left is the signal's."""
    signal, std, rounds = 0.2, 1.0, 200
    updates = signal + std * noise(rounds, 20_000)
    table: dict[str, Any] = {"kind": kind, "noise_correction": True, "learning_rate": 1e-6}
    _, state = run(table, updates, std)
    left = float(state["second"].double().mean()) - float(state["noise"])
    share = {"fedadam": 1 - 0.99**rounds, "fedadagrad": rounds, "adamw": 1 - 0.999**rounds}[kind]
    assert left / share == pytest.approx(signal**2, rel=0.1)
    raw = float(state["second"].double().mean()) / share
    assert raw == pytest.approx(signal**2 + std**2, rel=0.01)


@pytest.mark.parametrize("kind", ["fedadam", "fedadagrad", "fedyogi", "adamw"])
def test_without_noise_the_correction_changes_nothing(kind: str) -> None:
    updates = noise(20, 6)
    plain, _ = run({"kind": kind}, updates)
    corrected, _ = run({"kind": kind, "noise_correction": True}, updates, std=0.0)
    assert torch.equal(plain, corrected)


@pytest.mark.parametrize("kind", ["fedadam", "fedyogi", "adamw"])
def test_correction_restores_large_steps_where_signal_is_weak(kind: str) -> None:
    """Uncorrected, every denominator is about sigma; corrected, a coordinate's own signal sets it."""
    updates = 0.3 + noise(400, 500)
    table = {"kind": kind, "learning_rate": 0.01} | ({} if kind == "adamw" else {"adaptivity": 0.1})
    start = torch.linspace(-1, 1, 500)
    plain = float((run(table, updates, 1.0)[0] - start).mean())
    corrected = float((run(table | {"noise_correction": True}, updates, 1.0)[0] - start).mean())
    assert 0 < plain < corrected


def test_correction_follows_a_noise_that_differs_from_round_to_round() -> None:
    optimizer = build({"kind": "adamw", "noise_correction": True, "beta2": 0.5})
    params = torch.zeros(2)
    state = optimizer.init(params)
    for t, std in enumerate([1.0, 2.0, 3.0]):
        params, state = optimizer.step(state, params, torch.ones(2), StepInfo(t, 3, std))
    assert float(state["noise"]) == 0.5 * 9 + 0.25 * 4 + 0.125 * 1


@pytest.mark.parametrize("kind", ["fedadam", "fedadagrad", "fedyogi", "adamw"])
def test_pure_noise_does_not_make_enormous_steps(kind: str) -> None:
    """Without signal v - noise is negative half of the time; a constant floor would make such steps explode."""
    updates = noise(300, 400)
    table = {"kind": kind, "learning_rate": 0.01} | ({} if kind == "adamw" else {"adaptivity": 1e-6})
    start = torch.linspace(-1, 1, 400)
    plain = float((run(table, updates, 1.0)[0] - start).norm())
    corrected = float((run(table | {"noise_correction": True}, updates, 1.0)[0] - start).norm())
    assert plain < corrected < 8 * plain


def test_chance_is_the_spread_of_the_noise_in_the_second_moment() -> None:
    """v of pure noise, over many coordinates: mean `noise`, variance `chance`."""
    _, state = run({"kind": "fedadam", "noise_correction": True, "adaptivity": 1e-6}, 0.5 * noise(150, 20_000), 0.5)
    v = state["second"].double()
    assert float(v.mean()) == pytest.approx(float(state["noise"]), rel=0.01)
    assert float(v.var()) == pytest.approx(float(state["chance"]), rel=0.05)
