"""The models of the simulation benchmark as a task that a user writes: a model, a loss, users, a score; no more."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import nn

from fieldfare.task import Table, Task
from fieldfare_client.users import UserTable
from simulation_models import ROWS, columns, example_loss, make


class BenchParameters(Table):
    """What a process needs to know that loads the task by its name."""

    model: str = "mlp-2k"
    users: int = 800


class BenchTask(Task):
    """One of `MODELS` on random data."""

    Parameters: ClassVar[type[Table]] = BenchParameters

    name = "bench"
    score_name = "none"
    held_out = "Nothing is evaluated."

    def __init__(self, model: str, users: int) -> None:
        self.model, self.count = model, users

    def build_model(self) -> nn.Module:
        return make(self.model)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return example_loss(outputs, targets)

    def users(self) -> UserTable:
        return UserTable(
            [str(user) for user in range(self.count)],
            np.arange(self.count + 1) * ROWS,
            columns(self.model, self.count),
        )

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"none": 0.0}
