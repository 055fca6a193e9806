"""What a tests' deployment trains: mounted into its containers, imported by the tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from fieldfare.schema import Schema
from fieldfare.task import seeded
from fieldfare_client.tasks.digits import DigitsTask


class Digits400(DigitsTask):
    """`digits` on 400 made-up users: 200 for each of two nodes."""

    def __init__(self) -> None:
        super().__init__(users_count=400)


class Halves(Digits400):
    """Whether a digit is five or more, of the same users: two classes, as an ROC curve needs them."""

    name: ClassVar[str] = "halves"

    def build_model(self) -> torch.nn.Module:
        with seeded(self.seed):
            return torch.nn.Sequential(torch.nn.Linear(64, 2))

    def known_schema(self) -> Schema:
        return Schema.of_layers(64, 2)

    def prepare(self, columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        inputs, digits = super().prepare(columns)
        return inputs, (digits >= 5).to(torch.int64)
