"""The model of a Flower app that is not a `Task`: arrays by name, of which some are trained.

The run keeps the trained arrays as one flat float32 vector, like the model of a task. Frozen and tied arrays
and buffers are put around it wherever the model is sent or shown, so that `load_state_dict(strict=True)`
takes it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from fieldfare.atomic import replace_file
from fieldfare.errors import BadInput, CheckpointError
from fieldfare.lazily import torch
from fieldfare.schema import Arrays, Schema
from fieldfare.trees import refuse_trees
from fieldfare_flower.npy import BadReply, read_array, write_array
from fieldfare_server.run.round.roles import FLOATS, SMALLEST_VARIANCE, Roles, is_statistic, is_variance

# In the run's directory: the public arrays that it began with, and their roles.
INITIAL = "initial.safetensors"
_ALL = (*FLOATS, "bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))


class OwnModel:
    """Initial arrays with their roles.

    Args:
        arrays: the initial values by name, in the order in which they are sent.
        roles: of each.
        buffer_weight: what multiplies private buffers in the vector that is clipped.
    """

    score_name = ""  # the app's own evaluation has no one score
    shows_released = False

    def __init__(self, arrays: Mapping[str, NDArray[Any]], roles: Roles, buffer_weight: float = 1.0) -> None:
        self.values, self.roles = dict(arrays), roles
        names = roles.named("trained")
        self.schema = Schema(names, tuple(tuple(self.values[name].shape) for name in names))
        # By trained name: the flat vector holds the array's value times this.
        self.weights = {name: buffer_weight if is_statistic(name) else 1.0 for name in names}
        self.buffer_weight = buffer_weight
        scaled = {name: torch.from_numpy(np.asarray(self.values[name] * self.weights[name])) for name in names}
        self.initial = self.schema.flatten(scaled)  # the public initial parameters, flat float32 (d,)
        if not self.initial.isfinite().all():
            why = "in float32, in which updates are summed, values that are trained are infinite."
            raise BadInput("initial_arrays", why, "values of at most 3.4e38", code="array-values")
        # Where they are the same floats, they are those of the vector: one copy less of the model.
        alike = {name for name in names if self.values[name].dtype == np.float32 and self.weights[name] == 1.0}
        self.values |= {name: value for name, value in self.schema.arrays(self.initial).items() if name in alike}
        self._newest: tuple[torch.Tensor, dict[str, Array]] = self.initial, {}
        # Encoded once: these never change.
        self._kept = {name: write_array(value) for name, value in self.values.items() if roles.of[name] != "trained"}

    @classmethod
    def read(cls, record: ArrayRecord) -> dict[str, NDArray[Any]]:
        """Return the values of Flower's record by name.

        Raises:
            BadInput: no record, a type that cannot travel in a private model, or values that are not finite.
        """
        if not isinstance(record, ArrayRecord):
            refuse_trees("initial_arrays", record)
            why = f"is a {type(record).__name__}."
            nearest = "ArrayRecord(model.state_dict()), or of a list of arrays"
            raise BadInput("initial_arrays", why, nearest, code="array-unusable")
        values = {}
        for name, array in record.items():
            try:
                values[name] = np.array(read_array(array, _ALL, None), order="C")  # as safetensors stores
            except BadReply as error:
                raise BadInput(
                    f"initial_arrays[{name!r}]",
                    f"cannot be used ({error}).",
                    "numbers of types " + ", ".join(_ALL),
                    code="array-unusable",
                ) from None
            odd = values[name].size - int(np.isfinite(values[name]).sum())
            if odd:
                why = f"{odd} of {values[name].size} values are NaN or infinite, and so would every model be."
                raise BadInput(f"initial_arrays[{name!r}]", why, "finite values", code="array-values")
        return values

    def evaluate(self, params: torch.Tensor) -> dict[str, float]:
        """Return nothing: the app's `evaluate_fn` runs after the commit."""
        return {}

    def is_finite(self, params: torch.Tensor) -> bool:
        """Return whether every released value is finite in the type in which it is sent."""
        return all(bool(np.isfinite(value).all()) for value in self.sent(params).values())

    def sent(self, params: torch.Tensor) -> Arrays:
        """Return the trained arrays as nodes get them: in their own types. Do not change them."""
        if self._newest[0] is not params:
            self._newest = params, {}  # nobody asks for the bytes of an older model
        arrays = {}
        with np.errstate(over="ignore"):  # an overflow of float16 ends the run as diverged
            for name, value in self.schema.arrays(params).items():
                weight, dtype = self.weights[name], self.values[name].dtype
                cast = np.asarray(value if weight == 1.0 else value / weight).astype(dtype, copy=False)
                arrays[name] = (
                    np.asarray(np.maximum(cast, dtype.type(SMALLEST_VARIANCE))) if is_variance(name) else cast
                )
        return arrays

    def encoded(self, params: torch.Tensor) -> dict[str, Array]:
        """Return all arrays as they travel. Result and next round ask for the same released model."""
        if self._newest[0] is not params or not self._newest[1]:
            trained = {name: write_array(value) for name, value in self.sent(params).items()}
            self._newest = params, self._complete(trained, self._kept)
        return self._newest[1]

    def complete(self, params: torch.Tensor) -> Arrays:
        """Return all arrays by name, in the order of the initial ones."""
        return self._complete(self.sent(params), self.values)

    def record(self, params: torch.Tensor) -> ArrayRecord:
        """Return all arrays as Flower's record."""
        return ArrayRecord(self.encoded(params))

    def tensors(self, params: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return all arrays as tensors, for the file of the final model."""
        return {name: torch.from_numpy(np.array(value)) for name, value in self.complete(params).items()}

    def _complete(self, trained: Mapping[str, Any], kept: Mapping[str, Any]) -> dict[str, Any]:
        whole = {}
        for name, role in self.roles.of.items():
            first = self.roles.first_names.get(name, name) if role == "tied" else name
            whole[name] = trained[first] if first in trained else kept[first]
        return whole

    # -- in the run's directory ------------------------------------------------------------------------------

    def layout(self) -> str:
        """Return the SHA-256 of names, types, shapes and roles, not of values: what a resumed run must find again."""
        described = [[name, value.dtype.name, value.shape] for name, value in self.values.items()]
        text = json.dumps([described, dict(self.roles.of), dict(self.roles.first_names), self.buffer_weight])
        return hashlib.sha256(text.encode()).hexdigest()

    def save(self, directory: Path) -> None:
        """Write the initial arrays, durably: a resumed run begins from the same ones."""
        note = {
            "names": list(self.values),
            "roles": dict(self.roles.of),
            "first_names": dict(self.roles.first_names),
            "changing": list(self.roles.changing),
            "buffer_weight": self.buffer_weight,
        }
        tensors = {name: torch.from_numpy(np.array(value)) for name, value in self.values.items()}
        from safetensors.torch import save  # imports PyTorch

        replace_file(directory / INITIAL, save(tensors, metadata={"fieldfare": json.dumps(note)}), mode=0o644)

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Return what `save` wrote. Raises `CheckpointError` where it is missing or torn."""
        path = directory / INITIAL
        try:
            with safe_open(path, framework="pt") as file:
                note = json.loads(file.metadata()["fieldfare"])
                values = {name: file.get_tensor(name).numpy() for name in note["names"]}
            roles = Roles(
                {name: note["roles"][name] for name in note["names"]}, note["first_names"], tuple(note["changing"])
            )
            return cls(values, roles, float(note["buffer_weight"]))
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"initial arrays {path}",
                f"they cannot be read ({error}).",
                "its backup",
                code="initial-arrays-unreadable",
            ) from None
