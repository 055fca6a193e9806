"""SGD against its own three lines of arithmetic and against torch.optim.SGD."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fieldfare.errors import BadInput
from fieldfare_server.optimizers import StepInfo, build, parse
from support.refusals import Coded, coded

ROWS = {
    row["id"]: row
    for row in json.loads((Path(__file__).parents[2] / "reference" / "toeplitz.json").read_text())["rows"]
}


def run(table: dict[str, Any], updates: torch.Tensor) -> torch.Tensor:
    optimizer = build(table)
    params = torch.linspace(-1, 1, updates.shape[1])
    state = optimizer.init(params)
    for t, update in enumerate(updates):
        params, state = optimizer.step(state, params, update, StepInfo(t, len(updates), 0.0))
    return params


def test_plain_sgd_is_federated_averaging() -> None:
    update = torch.tensor([[0.5, -2.0]])
    assert torch.equal(run({"kind": "sgd", "learning_rate": 1.0}, update), torch.tensor([-0.5, -1.0]))


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_is_torchs(nesterov: bool) -> None:
    updates = torch.randn(20, 5, generator=torch.Generator().manual_seed(1))
    table = {"kind": "sgd", "learning_rate": 0.3, "momentum": 0.9, "nesterov": nesterov}
    params = torch.nn.Parameter(torch.linspace(-1, 1, 5))
    reference = torch.optim.SGD([params], lr=0.3, momentum=0.9, nesterov=nesterov)
    for update in updates:
        params.grad = -update
        reference.step()
    torch.testing.assert_close(run(table, updates), params.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["momentum0.9_identity_mean_n64", "momentum0.9_identity_mean_n512"])
def test_independent_noise_behind_momentum_is_another_workload(name: str) -> None:
    """Unit vectors in place of noise: the model's rows are the workload's, prefix sums of momentum sums."""
    n, momentum = ROWS[name]["params"]["n"], ROWS[name]["params"]["momentum"]
    optimizer = build({"kind": "sgd", "learning_rate": 1.0, "momentum": momentum})
    params = torch.zeros(n, dtype=torch.float64)
    state, squared = optimizer.init(params), 0.0
    for t, unit in enumerate(torch.eye(n, dtype=torch.float64)):
        params, state = optimizer.step(state, params, unit, StepInfo(t, n, 0.0))
        squared += float(params @ params)
    assert squared / n == pytest.approx(ROWS[name]["value"], rel=1e-9)


def test_weight_decay_is_decoupled() -> None:
    table = {"kind": "sgd", "learning_rate": 0.5, "weight_decay": 0.2}
    torch.testing.assert_close(run(table, torch.zeros(1, 3)), torch.tensor([-0.9, 0.0, 0.9]))


@pytest.mark.parametrize(
    ("table", "nearest"),
    [
        ({"kind": "sdg"}, coded("kind-unknown", "server_optimizer.kind")),
        ({"kind": "sgd", "learning_rat": 1.0}, coded("key-unknown", "server_optimizer.learning_rat", "learning_rate")),
        ({"kind": "sgd", "nesterov": True}, coded("values-conflict", "server_optimizer")),
        (
            {"kind": "sgd", "learning_rate": True},
            coded("values-conflict", "server_optimizer.learning_rate", "learning_rate = True"),
        ),
        ({"kind": "sgd", "schedule": {"kind": "cosin"}}, coded("kind-unknown", "server_optimizer.schedule.kind")),
    ],
)
def test_refusals(table: dict[str, Any], nearest: Coded) -> None:
    with pytest.raises(BadInput, check=nearest):
        parse(table)
