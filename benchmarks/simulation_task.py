"""The models of the simulation benchmark as Fieldfare's tasks, where training processes find them too."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from fieldfare.task import Task
from fieldfare_client.users import UserTable
from simulation_models import MODELS, ROWS, USERS, columns, example_loss, make


class BenchTask(Task):
    """One of `MODELS` on random data."""

    name = "bench"
    score_name = "none"
    held_out = "Nothing is evaluated."

    def __init__(self, model: str) -> None:
        self.model = model

    def build_model(self) -> nn.Module:
        return make(self.model)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return example_loss(outputs, targets)

    def users(self) -> UserTable:
        return UserTable([str(user) for user in range(USERS)], np.arange(USERS + 1) * ROWS, columns(self.model))

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"none": 0.0}


class TASKS:
    """One `BenchTask` a model, by names that `reference` gives."""


def _attribute(model: str) -> str:
    return model.replace(".", "_")  # a dot would be another attribute


def reference(model: str) -> str:
    """What `load_task` knows the model's task by."""
    return f"simulation_task:TASKS.{_attribute(model)}"


for _model in MODELS:
    setattr(TASKS, _attribute(_model), BenchTask(_model))
