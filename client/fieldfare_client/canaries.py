"""Users whose presence is easy to see: what `fieldfare audit` trains in the place of a plan's task.

A canary's update points along a coordinate of its own and is longer than any clip norm. As many coordinates
again belong to nobody: what is seen there is what an absent user shows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from fieldfare.lazily import torch
from fieldfare.task import Task, seeded
from fieldfare_client.users import Column, UserTable

NAME = "canaries_"
# Length of a gradient: a step of any learning rate is longer than a clip norm.
_LONG = 1e6


def model_of(coordinates: int) -> torch.nn.Module:
    """Return a model that answers row number i with its weight i; all weights are 0."""

    class Weights(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = torch.nn.Parameter(torch.zeros(coordinates))

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return self.weights[rows]

    with seeded(0):
        return Weights()


class Canaries(Task):
    """`count` canaries with one row each, and 2 `count` coordinates."""

    name: ClassVar[str] = "canaries"
    score_name: ClassVar[str] = "nothing"
    held_out: ClassVar[str] = "Nothing is scored."

    def __init__(self, count: int) -> None:
        self.count = count

    def build_model(self) -> torch.nn.Module:
        return model_of(2 * self.count)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return -_LONG * outputs

    def users(self) -> UserTable:
        rows = np.arange(self.count)
        columns: dict[str, Column] = {"x": rows, "y": np.zeros(self.count, np.float32)}
        return UserTable([f"canary {row}" for row in rows], np.arange(self.count + 1), columns)

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        return {self.score_name: 0.0}


def __getattr__(name: str) -> Callable[[], Canaries]:
    """Make `canaries_N` for every N: plans name their task by module and attribute. Raises AttributeError."""
    size = name.removeprefix(NAME)
    if size == name or not size.isdecimal():
        raise AttributeError(name)
    return functools.partial(Canaries, int(size))
