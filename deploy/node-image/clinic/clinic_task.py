"""Does a patient return within a month? Logistic regression on a clinic's visits; the users are its patients.

The node's data is a CSV file with the columns of `COLUMNS`; CLINIC_DATA names it. CLINIC_NAME is a prefix for patients'
ids that only this clinic gives out, so that no other clinic's patient has the same id.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from fieldfare.errors import BadInput
from fieldfare.task import Task, seeded
from fieldfare_client.users import UserTable

FEATURES = ("age", "length_of_stay", "visits_last_year")
COLUMNS = ("patient", *FEATURES, "returned")
CENTRE, SCALE = np.array([50.0, 4.0, 1.0], np.float32), np.array([20.0, 3.0, 1.5], np.float32)
"""Public, and the same on all nodes: values computed from the data would reveal something about it."""


class ClinicTask(Task):
    """3 features, one output."""

    name: ClassVar[str] = "clinic"
    score_name: ClassVar[str] = "accuracy"
    held_out: ClassVar[str] = "1 000 synthetic visits, of no real patient."

    def build_model(self) -> torch.nn.Module:
        with seeded(self.seed):
            return torch.nn.Linear(len(FEATURES), 1)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], targets, reduction="none")

    def users(self) -> UserTable:
        path = Path(os.environ.get("CLINIC_DATA", "/data/visits.csv"))
        prefix = os.environ.get("CLINIC_NAME", "")
        try:
            with path.open(newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            values = [[float(row[name]) for name in (*FEATURES, "returned")] for row in rows]
            patients = [f"{prefix}{row['patient']}" for row in rows]
        except (OSError, KeyError, TypeError, ValueError) as error:
            # The error's message may quote a patient's row, so only its type is reported.
            raise BadInput(f"CLINIC_DATA = {str(path)!r}", f"{type(error).__name__}.", ",".join(COLUMNS)) from None
        table = np.asarray(values, np.float32).reshape(-1, len(FEATURES) + 1)
        return UserTable.grouped(np.asarray(patients), {"x": (table[:, :-1] - CENTRE) / SCALE, "y": table[:, -1]})

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        generator = np.random.default_rng(20)
        x = torch.from_numpy(generator.normal(size=(1000, len(FEATURES))).astype(np.float32))
        y = (x @ torch.tensor([0.3, 0.5, 1.0]) > 0).float()
        with torch.no_grad():
            correct = ((model(x)[:, 0] > 0).float() == y).float().mean()
        return {"accuracy": float(correct)}
