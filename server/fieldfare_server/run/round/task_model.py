"""The model of a run: what the server needs of it, and the one that a task builds."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Protocol

from flwr.app import ArrayRecord

from fieldfare.errors import FieldfareError, Interrupted
from fieldfare.lazily import torch
from fieldfare.plan import Plan
from fieldfare.schema import Schema
from fieldfare.task import complete_state, load_task, schema_of
from fieldfare_flower.npy import write_array
from fieldfare_server.run.round.own_model import INITIAL, OwnModel


class Model(Protocol):
    """One flat vector of trained parameters, and how it is scored and shown."""

    schema: Schema  # names and shapes of what is trained
    initial: torch.Tensor  # the public initial parameters, flat float32 (d,)

    @property
    def shows_released(self) -> bool: ...
    @property
    def score_name(self) -> str: ...
    def evaluate(self, params: torch.Tensor) -> dict[str, float]: ...
    def is_finite(self, params: torch.Tensor) -> bool: ...
    def record(self, params: torch.Tensor) -> ArrayRecord: ...
    def tensors(self, params: torch.Tensor) -> dict[str, torch.Tensor]: ...
    def save(self, directory: Path) -> None: ...


class TaskModel:
    """Builds the task's model once; `evaluate` loads parameters into that one module.

    Raises:
        BadInput: there is no such task, or its model cannot be noised.
    """

    def __init__(self, name: str) -> None:
        self.task = load_task(name)
        self._module = self.task.build_model()
        self.schema = schema_of(self.task, self._module)
        self._buffers = [(value, value.clone()) for value in self._module.buffers()]
        # The public initial parameters, flat float32 (d,).
        self.initial = self.schema.flatten(dict(self._module.named_parameters()))

    @property
    def shows_released(self) -> bool:
        """Whether statistics hold the parameters themselves."""
        return self.task.shows_released

    @property
    def score_name(self) -> str:
        """The key of `evaluate` by which models are compared."""
        return self.task.score_name

    def evaluate(self, params: torch.Tensor) -> dict[str, float]:
        """Return the task's scores of `params`, flat float32 (d,), in eval mode. Raises `Interrupted` if it fails."""
        named = self.schema.split(params)
        with torch.no_grad():
            for name, parameter in self._module.named_parameters():
                if parameter.requires_grad:
                    parameter.copy_(named[name])
        try:
            # Numbers of numpy and of torch, too, and the ledger keeps JSON.
            return {name: float(value) for name, value in self.task.evaluate(self._module.eval()).items()}
        except FieldfareError:
            raise
        except (Exception, SystemExit) as error:  # any: it is the task's code
            last = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} ({Path(last.filename).name}, line {last.lineno})"
            raise Interrupted(f"evaluate() of its task failed: {text}.") from error
        finally:
            # Statistics that a forward pass in training mode leaves behind are no part of the released model.
            with torch.no_grad():
                for value, kept in self._buffers:
                    value.copy_(kept)

    def is_finite(self, params: torch.Tensor) -> bool:
        """Return whether every parameter is finite."""
        return bool(torch.isfinite(params).all())

    def record(self, params: torch.Tensor) -> ArrayRecord:
        """Return the parameters as Flower's record."""
        return ArrayRecord({name: write_array(value) for name, value in self.schema.arrays(params).items()})

    def tensors(self, params: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the model's full state dict (`complete_state`) with the parameters `params`, flat float32 (d,)."""
        return complete_state(self._module, self.schema.split(params))

    def save(self, directory: Path) -> None:
        """Do nothing: the task builds the same model anywhere."""


def model_of(plan: Plan, directory: Path) -> Model:
    """Return the model of a run of `plan` whose files are in `directory`: of its task, or the arrays that its
    app began with.

    Raises:
        BadInput: there is no such task.
        CheckpointError: the app's initial arrays are missing or torn.
    """
    if plan.run.task or not (directory / INITIAL).exists():
        return TaskModel(plan.task_reference)
    return OwnModel.load(directory)
