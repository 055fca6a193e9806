"""The models of the simulation benchmark and its made-up data. Needs numpy and torch only: peers import it too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

USERS, ROWS, BATCH, RATE, CLIP = 50, 50, 10, 0.1, 0.4


class Gru(nn.Module):
    """A small next-character model."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.recurrent = nn.Embedding(64, 32), nn.GRU(32, 64, batch_first=True)
        self.head = nn.Linear(64, 64)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(self.recurrent(self.embedding(inputs))[0])
        return outputs


def lenet() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


def cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * 14 * 14, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


def mlp(inputs: int, hidden: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 10))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...] | None]] = {
    "mlp-2k": (lambda: mlp(64, 32), (64,)),
    "mlp-197k": (lambda: mlp(3072, 64), (3072,)),
    "lenet-62k": (lenet, (3, 32, 32)),
    "cnn-1.6M": (cnn, (3, 32, 32)),
    "gru-25k": (Gru, None),
}


def make(name: str) -> nn.Module:
    """A model of `MODELS`, with the same weights every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return MODELS[name][0]()


def example_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of each example, shape (n,)."""
    if outputs.ndim == 3:
        return nn.functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none").mean(1)
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def columns(name: str) -> dict[str, Any]:
    """Random rows of all users, user after user."""
    shape, generator, rows = MODELS[name][1], np.random.default_rng(0), USERS * ROWS
    if shape is None:
        return {"x": generator.integers(0, 64, (rows, 20)), "y": generator.integers(0, 64, (rows, 20))}
    return {"x": generator.standard_normal((rows, *shape), np.float32), "y": generator.integers(0, 10, rows)}
