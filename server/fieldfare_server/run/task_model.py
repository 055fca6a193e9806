"""A task's model, read and written as one flat vector of parameters."""

from __future__ import annotations

import torch

from fieldfare.errors import BadInput
from fieldfare.schema import Schema
from fieldfare.task import complete_state, load_task


class TaskModel:
    """Builds the task's model once; `evaluate` loads parameters into that one module.

    Raises:
        BadInput: there is no such task, or its model cannot be noised.
    """

    def __init__(self, name: str) -> None:
        self.task = load_task(name)
        self._module = self.task.build_model()
        try:
            self.schema = Schema.of(self._module)
        except ValueError as error:
            raise BadInput(f"run.task = {name!r}", str(error)) from None
        self._buffers = [(value, value.clone()) for value in self._module.buffers()]
        self.initial = self.schema.flatten(dict(self._module.named_parameters()))
        """The public initial parameters, flat float32 (d,)."""

    def state(self, params: torch.Tensor) -> dict[str, torch.Tensor]:
        """The model's full state dict (`complete_state`) with the parameters `params`, flat float32 (d,)."""
        return complete_state(self._module, self.schema.split(params))

    def evaluate(self, params: torch.Tensor) -> dict[str, float]:
        """The task's scores of the parameters `params`, flat float32 (d,). The task gets the model in eval mode."""
        named = self.schema.split(params)
        with torch.no_grad():
            for name, parameter in self._module.named_parameters():
                if parameter.requires_grad:
                    parameter.copy_(named[name])
        try:
            return self.task.evaluate(self._module.eval())
        finally:
            # Statistics that a forward pass in training mode leaves behind are no part of the released model.
            with torch.no_grad():
                for value, kept in self._buffers:
                    value.copy_(kept)
