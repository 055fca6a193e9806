"""The models of the simulation benchmark and its made-up data. Needs numpy and torch only: peers import it too."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import nn

ROWS, BATCH, RATE, CLIP = 50, 10, 0.1, 0.005
"""The clip norm is shorter than the updates of every model here. It also keeps the noise of a small cohort below the
model itself: with 0.4, every peer that does not stop at it trained NaN from the seventh round on, at another speed."""
COHORT = 50
POPULATION, SEPARATION = 16, 8
"""Users there are, in cohorts; and after how many rounds one may take part again."""
LARGEST = 10.0
"""Of the weights of a model that a benchmark believes. They begin at most at 4, in an embedding."""
EPSILON, NOISE = 8.0, 12.0
"""What a run may spend at delta 1e-6, and about the noise multiplier that this takes: peers add that much."""


class Recurrent(nn.Module):
    """A small next-character model around a GRU or an LSTM."""

    def __init__(self, kind: type[nn.GRU | nn.LSTM]) -> None:
        super().__init__()
        self.embedding, self.recurrent = nn.Embedding(64, 32), kind(32, 64, batch_first=True)
        self.head = nn.Linear(64, 64)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(self.recurrent(self.embedding(inputs))[0])
        return outputs


class Transformer(nn.Module):
    """A small next-character model with one layer of causal attention."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.place = nn.Embedding(64, 48), nn.Parameter(torch.zeros(20, 48))
        self.first, self.second = nn.LayerNorm(48), nn.LayerNorm(48)
        self.attend, self.mix = nn.Linear(48, 144), nn.Linear(48, 48)
        self.hidden = nn.Sequential(nn.Linear(48, 192), nn.GELU(), nn.Linear(192, 48))
        self.head = nn.Linear(48, 64)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        values = self.embedding(inputs) + self.place
        heads = [part.unflatten(-1, (4, 12)).transpose(-2, -3) for part in self.attend(self.first(values)).chunk(3, -1)]
        mixed = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        values = values + self.mix(mixed.transpose(-2, -3).flatten(-2))
        outputs: torch.Tensor = self.head(values + self.hidden(self.second(values)))
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
    "gru-25k": (lambda: Recurrent(nn.GRU), None),
    "lstm-31k": (lambda: Recurrent(nn.LSTM), None),
    "transformer-35k": (Transformer, None),
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


def require_finite(notes: list[str], name: str) -> None:
    """Raise `RuntimeError` unless one of the `notes` of a system says that its model stayed small."""
    largest = [json.loads(note)["largest"] for note in notes if '"largest"' in note]
    if len(largest) != 1 or not largest[0] < LARGEST:
        raise RuntimeError(f"{name} trained a model whose largest weight is {largest}: its speed says nothing")


def largest(weights: Iterable[torch.Tensor]) -> str:
    """A system's note about its model when its turns are over."""
    # By torch: Python's `max` passes over a NaN that is not its first.
    return json.dumps({"largest": float(torch.stack([weight.detach().abs().max() for weight in weights]).max())})


def columns(name: str, users: int) -> dict[str, Any]:
    """Random rows of `users` users, user after user."""
    shape, generator, rows = MODELS[name][1], np.random.default_rng(0), users * ROWS
    if shape is None:
        return {"x": generator.integers(0, 64, (rows, 20)), "y": generator.integers(0, 64, (rows, 20))}
    return {"x": generator.standard_normal((rows, *shape), np.float32), "y": generator.integers(0, 10, rows)}
