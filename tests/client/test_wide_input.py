"""A wide first layer, trained without a copy of its weights for each user, gives what the loop gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fieldfare.plan import ClientSpec
from fieldfare.schema import Schema
from fieldfare.task import Task
from fieldfare_client.training.trainer import Trainer
from fieldfare_client.training.wide_input import InputLayer
from fieldfare_client.users import UserTable

INPUTS, ROWS = 80, 7


class Wide(Task):
    """A first layer with many inputs; users with `sizes` rows."""

    name = "wide"
    score_name = "loss"
    held_out = "Nothing is evaluated."

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        generator = np.random.default_rng(0)
        count = sum(sizes)
        self.columns: dict[str, np.ndarray[Any, Any]] = {
            "x": generator.normal(size=(count, INPUTS)).astype(np.float32),
            "y": generator.integers(0, 3, count),
        }

    def build_model(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            return nn.Sequential(nn.Linear(INPUTS, 12), nn.Tanh(), nn.Linear(12, 3))

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    def users(self) -> UserTable:
        ids = [str(user) for user in range(len(self.sizes))]
        return UserTable(ids, np.concatenate(([0], np.cumsum(self.sizes))), self.columns)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"loss": 0.0}


def updates(task: Wide, engine: str, **settings: Any) -> torch.Tensor:
    """Of every user, (users, d)."""
    seen: list[torch.Tensor] = []
    client = ClientSpec(engine=engine, learning_rate=0.2, **settings)
    trainer = Trainer(task, client, lambda updates: seen.append(updates.clone()))
    model = task.build_model()
    start = Schema.of(model).flatten(dict(model.named_parameters()))
    trainer.train([start], [1.0], task.users(), np.arange(len(task.sizes)), at_round=0)
    return torch.cat(seen)


@pytest.fixture
def layers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shape of the inputs of every first layer that is trained in this way."""
    shapes: list[tuple[int, ...]] = []
    made = InputLayer.__init__

    def note(layer: InputLayer, inputs: torch.Tensor, *others: Any) -> None:
        shapes.append(tuple(inputs.shape))
        made(layer, inputs, *others)

    monkeypatch.setattr(InputLayer, "__init__", note)
    return shapes


@pytest.mark.parametrize(
    ("sizes", "settings", "rows"),
    [
        ([ROWS] * 4, {"epochs": 1, "batch_size": 3}, ROWS),
        ([ROWS] * 4, {"epochs": 3, "batch_size": 4}, ROWS),  # rows count once, whatever the epochs
        ([ROWS] * 4, {"steps": 4, "batch_size": 3}, ROWS),
        ([ROWS] * 3 + [0], {"steps": 3, "batch_size": 3}, ROWS),
        ([ROWS] * 4, {"steps": 2, "batch_size": 3}, 6),  # one row of each user is not used
        ([ROWS, 6, 1, 0], {"epochs": 2, "batch_size": 4}, 16),
    ],
)
def test_users_get_the_update_of_the_loop(
    sizes: list[int], settings: dict[str, int], rows: int, layers: list[tuple[int, ...]]
) -> None:
    task = Wide(sizes)
    torch.testing.assert_close(updates(task, "batched", **settings), updates(task, "loop", **settings))
    assert layers == [(sum(size > 0 for size in sizes), rows, INPUTS)]


def test_a_row_that_is_not_used_may_hold_anything() -> None:
    task = Wide([ROWS] * 4)
    clean = updates(task, "batched", steps=2, batch_size=3)
    whole = task.columns["x"].copy()
    for row in range(ROWS):  # the one of the first user that two batches of three leave out
        task.columns["x"] = whole.copy()
        task.columns["x"][row] = np.nan
        changed = updates(task, "batched", steps=2, batch_size=3)
        assert torch.equal(changed[1:], clean[1:])
        if bool(changed[0].any()):
            assert torch.equal(changed[0], clean[0])
            return
    raise AssertionError("every row is used")
