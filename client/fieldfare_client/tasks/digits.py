"""Handwritten digits of 8 x 8 pixels (scikit-learn's `digits`, 1 797 images): small enough for every test run."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import Field

from fieldfare.errors import NotInstalled
from fieldfare.lazily import torch
from fieldfare.registry import Table
from fieldfare.schema import Schema
from fieldfare.task import Task, seeded
from fieldfare_client.tasks.scores import accuracy
from fieldfare_client.tasks.split import by_labels
from fieldfare_client.users import UserTable

CLASSES = 10
TEST_ROWS = 297


def _source() -> Path:
    """Return the file in the installed scikit-learn, which is not imported: an import takes longer than a round."""
    spec = importlib.util.find_spec("sklearn")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if path.is_file():
            return path
    raise NotInstalled("run.task = 'digits'", "needs the package scikit-learn.", "pip install 'fieldfare[client]'")


class MadeUpUsers(Table):
    """Images without natural users, dealt to made-up ones."""

    users: int = Field(default=100, ge=1, le=1_000_000, description="how many users")
    concentration: float = Field(
        default=1.0,
        ge=0,
        description="of the Dirichlet distribution from which each user's mix of classes is drawn; 0: all alike",
    )


class DigitsParameters(MadeUpUsers):
    """scikit-learn's digits on made-up users."""

    hidden: int = Field(default=32, ge=1, le=100_000, description="width of the hidden layer")


class DigitsTask(Task):
    """A 64-32-10 perceptron (2 410 parameters) on made-up users, because the images have no natural ones.

    Args:
        users_count: how many users.
        concentration: of the Dirichlet distribution from which each user's mix of digits is drawn; None
            spreads the images evenly.
        hidden: width of the hidden layer.
    """

    Parameters: ClassVar[type[Table]] = DigitsParameters
    name: ClassVar[str] = "digits"
    score_name: ClassVar[str] = "accuracy"
    held_out: ClassVar[str] = "297 public images that are given to no user."

    @classmethod
    def configured(cls, parameters: DigitsParameters) -> DigitsTask:
        return cls(parameters.users, parameters.concentration or None, parameters.hidden)

    def __init__(self, users_count: int = 100, concentration: float | None = 1.0, hidden: int = 32):
        self.users_count, self.concentration, self.hidden = users_count, concentration, hidden
        self._table: UserTable | None = None
        self._test: tuple[torch.Tensor, torch.Tensor] | None = None

    def build_model(self) -> torch.nn.Module:
        with seeded(self.seed):
            return torch.nn.Sequential(
                torch.nn.Linear(64, self.hidden), torch.nn.ReLU(), torch.nn.Linear(self.hidden, CLASSES)
            )

    def known_schema(self) -> Schema:
        return Schema.of_layers(64, self.hidden, CLASSES)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")

    def prepare(self, columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return columns["x"].to(torch.float32) / 16, columns["y"].to(torch.int64)

    def users(self) -> UserTable:
        self._read()
        assert self._table is not None
        return self._table

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        self._read()
        assert self._test is not None
        inputs, targets = self._test
        with torch.no_grad():
            outputs = model(inputs)
            loss = float(self.loss(outputs, targets).mean())
        return {"accuracy": accuracy(outputs, targets), "loss": loss}

    def _read(self) -> None:
        if self._table is not None:
            return
        table = np.loadtxt(_source(), np.uint8, delimiter=",")
        pixels, labels = table[:, :-1], table[:, -1]
        generator = np.random.default_rng(1797)
        order = generator.permutation(len(labels))
        test, train = order[:TEST_ROWS], order[TEST_ROWS:]
        owner = by_labels(labels[train], self.users_count, self.concentration, generator)
        ids = [f"digits-{user}" for user in range(self.users_count)]
        self._test = self.prepare({"x": torch.from_numpy(pixels[test]), "y": torch.from_numpy(labels[test])})
        self._table = UserTable.owned(ids, owner, {"x": pixels[train], "y": labels[train]})


TASKS = {"digits": DigitsTask}
