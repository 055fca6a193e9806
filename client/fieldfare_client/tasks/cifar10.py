"""CIFAR-10 on 1 000 made-up users of 50 images: the benchmark of pfl-research (Granqvist et al. 2024).

Data are read from FIELDFARE_DATA: `cifar10-train.arrow` and `cifar10-test.arrow` (any user names), columns `x` uint8
(32, 32, 3) and `y` uint8. Written once with the optional packages `flwr-datasets[vision]`:

    from flwr_datasets import FederatedDataset
    from flwr_datasets.partitioner import IidPartitioner
    from fieldfare_client.storage import from_partitions, write
    dataset = FederatedDataset(dataset="uoft-cs/cifar10", partitioners={"train": IidPartitioner(1000), "test": 1})
    dataset.load_partition(0, "train"), dataset.load_partition(0, "test")
    for part in ("train", "test"):
        write(folder / f"cifar10-{part}.arrow", from_partitions(dataset.partitioners[part], {"img": "x", "label": "y"}))
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from fieldfare.task import Task, seeded
from fieldfare_client.tasks.files import table
from fieldfare_client.tasks.scores import accuracy
from fieldfare_client.users import UserTable


class Cifar10Task(Task):
    """Two convolutions and two linear layers, 1 626 442 parameters. The published run: cohort 50, 1 500 rounds, one
    local epoch, batch 10, local learning rate 0.1, server learning rate 1, clip norm 0.4. `folder`: for tests."""

    name: ClassVar[str] = "cifar10"
    score_name: ClassVar[str] = "accuracy"
    held_out: ClassVar[str] = "CIFAR-10's 10 000 public test images, given to no user."

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def build_model(self) -> nn.Module:
        with seeded(self.seed):
            return nn.Sequential(
                *(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
                *(nn.Flatten(), nn.Linear(64 * 14 * 14, 128), nn.ReLU(), nn.Linear(128, 10)),
            )

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    def prepare(self, columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        pixels = columns["x"].to(torch.float32).permute(0, 3, 1, 2)
        return pixels.div(127.5).sub_(1).contiguous(), columns["y"].to(torch.int64)

    def users(self) -> UserTable:
        return table("cifar10", "train", ("x", "y"), self.folder)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        test = table("cifar10", "test", ("x", "y"), self.folder)
        inputs, targets = self.prepare(test.rows(np.arange(len(test))).columns)
        with torch.no_grad():
            outputs = torch.cat([model(part) for part in torch.split(inputs, 500)])
        return {"accuracy": accuracy(outputs, targets), "loss": float(self.loss(outputs, targets).mean())}


TASKS = {"cifar10": Cifar10Task}
