"""A task's model, read and written as one flat vector of parameters."""

from __future__ import annotations

import torch

from fieldfare.errors import BadInput
from fieldfare.schema import Schema
from fieldfare.task import load_task


class TaskModel:
    """Builds the task's model once; `evaluate` loads parameters into that one module.

    Raises:
        BadInput: there is no such task, or its model has buffers, which would travel without noise.
    """

    def __init__(self, name: str) -> None:
        self.task = load_task(name)
        self._module = self.task.build_model()
        try:
            self.schema = Schema.of(self._module)
        except ValueError as error:
            raise BadInput(f"run.task = {name!r}", str(error)) from None
        self.initial = self.schema.flatten(dict(self._module.named_parameters()))
        """The public initial parameters, flat float32 (d,)."""

    def evaluate(self, params: torch.Tensor) -> dict[str, float]:
        """The task's scores of the parameters `params`, flat float32 (d,)."""
        named = self.schema.split(params)
        with torch.no_grad():
            for name, parameter in self._module.named_parameters():
                if parameter.requires_grad:
                    parameter.copy_(named[name])
        return self.task.evaluate(self._module)
