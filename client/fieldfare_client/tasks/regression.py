"""Synthetic linear regression with a chosen spectrum, to compare results with theory exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fieldfare.errors import OutOfRange
from fieldfare.lazily import torch
from fieldfare.registry import Table
from fieldfare.schema import Schema
from fieldfare.task import Task
from fieldfare_client.users import UserTable


def power_law(dimension: int, exponent: float) -> NDArray[np.float64]:
    """Return eigenvalues proportional to i^-exponent, i = 1..dimension, with sum `dimension`."""
    values: NDArray[np.float64] = np.arange(1, dimension + 1, dtype=np.float64) ** -exponent
    values *= dimension / values.sum()
    return values


class RegressionParameters(Table):
    """Made-up users with inputs of a chosen spectrum."""

    users: int = Field(default=2000, ge=1, le=10_000_000, description="how many users")
    rows_per_user: int = Field(default=1, ge=1, le=1_000_000, description="examples of each user")
    dimensions: int = Field(default=20, ge=1, le=1_000_000, description="of an input, where spectrum is a number")
    spectrum: Annotated[float, Field(ge=0)] | tuple[Annotated[float, Field(gt=0)], ...] = Field(
        default=0.5, description="of the inputs' covariance: a for eigenvalues proportional to i^-a, or the eigenvalues"
    )
    noise: float = Field(default=0.3, ge=0, description="standard deviation of the targets around the line")
    nonzero: int | None = Field(
        default=None, ge=1, description="entries of the true weights that are not 0; without it all of them"
    )
    inputs: Literal["normal", "signs"] = Field(
        default="normal", description="inputs' distribution: normal, or -1 and 1 with even chance"
    )
    draw: int = Field(default=0, ge=0, description="seed of users and true weights; public")


class RegressionTask(Task):
    """y = <x, theta*> + noise, x ~ N(0, diag(eigenvalues)), ||theta*|| = 1; loss (y - <x, theta>)^2 / 2, no
    bias.

    `inputs = "signs"` draws x from {-1, 1} times the roots of the eigenvalues; `nonzero` makes theta* sparse.

    Every user holds `rows_per_user` examples. The score is the exact excess risk
    (theta - theta*)^T diag(eigenvalues) (theta - theta*) / 2: an expectation, which needs no user's data.
    """

    Parameters: ClassVar[type[Table]] = RegressionParameters
    name: ClassVar[str] = "regression"
    score_name: ClassVar[str] = "excess_risk"
    least_is_best: ClassVar[bool] = True
    held_out: ClassVar[str] = "The expectation over the known distribution: no data at all."

    @classmethod
    def configured(cls, parameters: RegressionParameters) -> RegressionTask:
        spectrum = parameters.spectrum
        eigenvalues = spectrum if isinstance(spectrum, tuple) else power_law(parameters.dimensions, spectrum)
        return cls(
            *(eigenvalues, parameters.users, parameters.rows_per_user, parameters.noise),
            *(parameters.nonzero, parameters.inputs, parameters.draw),
        )

    def __init__(
        self,
        eigenvalues: Sequence[float] | NDArray[np.float64] | None = None,
        users_count: int = 2000,
        rows_per_user: int = 1,
        noise: float = 0.3,
        nonzero: int | None = None,
        inputs: Literal["normal", "signs"] = "normal",
        draw: int | None = None,
    ) -> None:
        self.eigenvalues = np.asarray(power_law(20, 0.5) if eigenvalues is None else eigenvalues, np.float64)
        if self.eigenvalues.ndim != 1 or not (self.eigenvalues > 0).all():
            raise OutOfRange("eigenvalues", "must be positive numbers.", "power_law(20, 0.5)")
        self.users_count, self.rows_per_user, self.noise = users_count, rows_per_user, noise
        self.inputs, self.draw = inputs, self.seed if draw is None else draw
        size = len(self.eigenvalues)
        if nonzero is not None and nonzero > size:
            raise OutOfRange(f"task.nonzero = {nonzero}", f"there are {size} weights.", str(size))
        direction = np.random.default_rng(self.draw).normal(size=size)
        direction[nonzero if nonzero is not None else size :] = 0
        self.target: NDArray[np.float64] = direction / np.linalg.norm(direction)

    def build_model(self) -> torch.nn.Module:
        linear = torch.nn.Linear(len(self.eigenvalues), 1, bias=False)
        torch.nn.init.zeros_(linear.weight)
        return torch.nn.Sequential(linear)

    def known_schema(self) -> Schema:
        return Schema(("0.weight",), ((1, len(self.eigenvalues)),))

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (outputs[:, 0] - targets).square() / 2

    def users(self) -> UserTable:
        generator = np.random.default_rng((self.draw, 1))
        rows = self.users_count * self.rows_per_user
        shape = rows, len(self.eigenvalues)
        units = generator.normal(size=shape) if self.inputs == "normal" else 2.0 * generator.integers(0, 2, shape) - 1
        inputs = units * np.sqrt(self.eigenvalues)
        targets = inputs @ self.target + self.noise * generator.normal(size=rows)
        offsets = np.arange(self.users_count + 1) * self.rows_per_user
        columns = {"x": inputs.astype(np.float32), "y": targets.astype(np.float32)}
        return UserTable([f"regression-{user}" for user in range(self.users_count)], offsets, columns)

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        (weight,) = model.parameters()
        away = weight.detach().double().cpu().numpy()[0] - self.target
        return {"excess_risk": float((self.eigenvalues * away**2).sum() / 2)}


TASKS = {"regression": RegressionTask}
