"""A task over a CSV file: one row an example, one column that says whose it is. Change it to fit your data.

The plan names it as `csv_task:CsvTask`; its table [task] sets the parameters below.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field

from fieldfare.errors import BadInput
from fieldfare.registry import Table
from fieldfare.task import Task, seeded
from fieldfare_client.tasks.scores import auc
from fieldfare_client.tasks.split import by_hash
from fieldfare_client.users import UserTable


class CsvParameters(Table):
    """A CSV file with a header: numbers, and a target that is 0 or 1."""

    file: str = Field(default="people.csv", description="the data, next to this module")
    user: str = Field(default="person", description="column that says whose row it is: the unit of privacy")
    target: str = Field(default="label", description="column to predict: 0 or 1")
    hidden: int = Field(default=8, ge=1, le=10_000, description="width of the hidden layer")
    held_out: float = Field(default=0.2, gt=0, lt=1, description="share of the users who are never trained on")


class CsvTask(Task):
    """A small perceptron on every column but those of user and target."""

    Parameters: ClassVar[type[Table]] = CsvParameters
    name: ClassVar[str] = "csv"
    score_name: ClassVar[str] = "auc"
    # Scores are shown without noise: the people they are computed on are not protected by the budget.
    held_out: ClassVar[str] = "A fifth of the users, chosen by a hash, who are never trained on; their data are public."

    def __init__(self, file: str, user: str, target: str, hidden: int, held_out: float) -> None:
        self.file, self.user, self.target = Path(__file__).with_name(file), user, target
        self.hidden, self.share = hidden, held_out
        self._table: UserTable | None = None

    def build_model(self) -> torch.nn.Module:
        with seeded(self.seed):  # the same weights on every machine
            first = torch.nn.Linear(len(self._columns()), self.hidden)
            return torch.nn.Sequential(first, torch.nn.Tanh(), torch.nn.Linear(self.hidden, 1))

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        # One number a row: (n,).
        return torch.nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], targets, reduction="none")

    def users(self) -> UserTable:
        table = self._all()
        return table.select(np.flatnonzero(~self._kept(table)))

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        table = self._all()
        rows = table.rows(np.flatnonzero(self._kept(table))).columns
        with torch.no_grad():
            return {"auc": auc(model(rows["x"])[:, 0], rows["y"])}

    def _kept(self, table: UserTable) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        return by_hash(table.pseudonyms, max(1, round(self.share * len(table))))

    def _columns(self) -> list[str]:
        """The columns that the model reads: the header alone, no user's data."""
        with self.file.open(newline="", encoding="utf-8") as lines:
            header = next(csv.reader(lines), [])
        for column in (self.user, self.target):
            if column not in header:
                raise BadInput(f"column {column!r}", f"is not in {self.file.name}.", ", ".join(header))
        return [column for column in header if column not in (self.user, self.target)]

    def _all(self) -> UserTable:
        if self._table is None:
            columns = self._columns()
            with self.file.open(newline="", encoding="utf-8") as lines:
                rows = list(csv.DictReader(lines))
            # float32, because models are; data are read once.
            inputs = np.array([[float(row[column]) for column in columns] for row in rows], np.float32)
            targets = np.array([float(row[self.target]) for row in rows], np.float32)
            self._table = UserTable.grouped(np.array([row[self.user] for row in rows]), {"x": inputs, "y": targets})
        return self._table
