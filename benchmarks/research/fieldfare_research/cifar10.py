"""CIFAR-10 on made-up users: 50 000 of one image each, as in the correlated-noise and DiSK papers, or fewer.

Data are read from FIELDFARE_DATA, in either of two forms:

* the publisher's binary form: the folder `cifar-10-batches-bin`, or its files `data_batch_1.bin` to `_5.bin` and
  `test_batch.bin`. The parameter `users` deals the images out in the files' order; without it there are 1 000 users of
  50 images, the benchmark of pfl-research (Granqvist et al. 2024);
* `cifar10-train.arrow` and `cifar10-test.arrow` (any user names), columns `x` uint8 (32, 32, 3) and `y` uint8. Written
  once with the optional packages `flwr-datasets[vision]`:

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
from numpy.typing import NDArray
from pydantic import Field

from fieldfare.errors import NotFound, Unreadable, WrongForm
from fieldfare.lazily import torch
from fieldfare.registry import USERS, Table
from fieldfare.schema import Schema
from fieldfare.task import Task, seeded
from fieldfare_client.sources import data_folder
from fieldfare_client.tasks.scores import accuracy
from fieldfare_client.users import UserTable
from fieldfare_research.tables import table

RECORD = 1 + 3 * 32 * 32
"""Bytes of one image: its label, then its red, green and blue pixels row by row."""
BINARY = {"train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test": ("test_batch.bin",)}
USUAL_USERS = 1000


def read_binary(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """(images (n, 32, 32, 3), labels (n,)) of one file of the binary form. Raises `BadInput` for any other file."""
    try:
        data = np.fromfile(path, np.uint8)
    except OSError as error:
        raise Unreadable(str(path), f"cannot be read: {error.strerror}.") from None
    if not data.size or data.size % RECORD:
        raise WrongForm(path.name, f"has {data.size} bytes, not {RECORD} an image (CIFAR-100 has {RECORD + 1}).")
    records = data.reshape(-1, RECORD)
    if records[:, 0].max() > 9:
        raise WrongForm(path.name, f"has label {records[:, 0].max()}.", "0 to 9")
    return np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), records[:, 0].copy()


def _binary_folder(folder: Path | None) -> Path | None:
    """Where the files of the binary form are: `folder` or its `cifar-10-batches-bin`, if they are there."""
    for place in () if folder is None else (folder, folder / "cifar-10-batches-bin"):
        if (place / BINARY["train"][0]).is_file():
            return place
    return None


class Cifar10Parameters(Table):
    """CIFAR-10 on made-up users."""

    users: int | None = Field(
        default=None,
        ge=1,
        le=50_000,
        description="of the binary form: 50 000 have one image each; without it 1 000, or those of the .arrow file",
        json_schema_extra=USERS,
    )


class Cifar10Task(Task):
    """Two convolutions and two linear layers, 1 626 442 parameters. The published run: cohort 50, 1 500 rounds, one
    local epoch, batch 10, local learning rate 0.1, server learning rate 1, clip norm 0.4. `folder`: for tests."""

    Parameters: ClassVar[type[Table]] = Cifar10Parameters
    name: ClassVar[str] = "cifar10"
    score_name: ClassVar[str] = "accuracy"
    held_out: ClassVar[str] = "CIFAR-10's 10 000 public test images, given to no user."

    def __init__(self, users: int | None = None, folder: Path | None = None) -> None:
        self.users_count, self.folder = users, folder

    def build_model(self) -> torch.nn.Module:
        nn = torch.nn
        with seeded(self.seed):
            return nn.Sequential(
                *(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
                *(nn.Flatten(), nn.Linear(64 * 14 * 14, 128), nn.ReLU(), nn.Linear(128, 10)),
            )

    def known_schema(self) -> Schema:
        weights = {0: (32, 3, 3, 3), 2: (64, 32, 3, 3), 6: (128, 64 * 14 * 14), 8: (10, 128)}
        return Schema.with_biases(weights)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")

    def prepare(self, columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        pixels = columns["x"].to(torch.float32).permute(0, 3, 1, 2)
        return pixels.div(127.5).sub_(1).contiguous(), columns["y"].to(torch.int64)

    def users(self) -> UserTable:
        return self._part("train")

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        test = self._part("test")
        inputs, targets = self.prepare(test.rows(np.arange(len(test))).columns)
        with torch.no_grad():
            outputs = torch.cat([model(part) for part in torch.split(inputs, 500)])
        return {"accuracy": accuracy(outputs, targets), "loss": float(self.loss(outputs, targets).mean())}

    def _part(self, part: str) -> UserTable:
        folder = self.folder or data_folder()
        binary = _binary_folder(folder)
        if folder is not None and (folder / f"cifar10-{part}.arrow").is_file():
            binary = None
        if binary is None:
            if self.users_count is not None:
                what = f"task.users = {self.users_count}"
                raise NotFound(what, "deals out images of the binary form, which is not there.", "cifar-10-batches-bin")
            remedy = "the publisher's folder cifar-10-batches-bin, or the file that its task's module describes"
            return table("cifar10", part, ("x", "y"), self.folder, remedy)
        files = [read_binary(binary / name) for name in BINARY[part]]
        images, labels = (np.concatenate(parts) for parts in zip(*files, strict=True))
        users = (self.users_count or USUAL_USERS) if part == "train" else 1
        if users > len(labels):
            raise WrongForm(f"task.users = {users}", f"{binary} has {len(labels)} images.", str(len(labels)))
        offsets = np.arange(users + 1) * len(labels) // users
        return UserTable([f"cifar10-{part}-{user}" for user in range(users)], offsets, {"x": images, "y": labels})
