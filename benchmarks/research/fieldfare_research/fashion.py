"""Fashion-MNIST, an image a user: the protocol of the correlated-noise paper's CIFAR-10 runs, on data that Debian has.

60 000 training and 10 000 test images of 28 x 28 grey pixels in ten classes (Zalando 2017, MIT). Rows 0 to 49 999 are
users of one image each, as many as CIFAR-10 has; rows 50 000 to 59 999 are for tuning; the test images are scored.

`fieldfare data fetch fashion` writes `fashion-train.arrow`, `-tune` and `-test`: columns `x` uint8 (28, 28), `y` uint8.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fieldfare.errors import Unreadable, WrongForm
from fieldfare.lazily import torch
from fieldfare.registry import USERS, Table
from fieldfare.schema import Schema
from fieldfare.task import Task, seeded
from fieldfare_client.sources import Package, Parts, Source
from fieldfare_client.tasks.scores import accuracy
from fieldfare_client.users import UserTable
from fieldfare_research.tables import SCORED, Scored, table

TRAIN_ROWS = 50_000
FOLDER = "usr/share/datasets/fashion-mnist"


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read a gzipped IDX file of bytes: magic 0 0 8 D, D lengths of four bytes (big-endian), the values row by row.

    Raises `BadInput` for any other file.
    """
    try:
        data = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise Unreadable(path.name, f"cannot be read as gzip: {error}.") from None
    dimensions = data[3] if len(data) > 3 else 0
    start = 4 + 4 * dimensions
    if data[:3] != b"\0\0\x08" or not dimensions or len(data) < start:
        raise Unreadable(path.name, "is no IDX file of bytes.")
    shape = np.frombuffer(data, ">u4", dimensions, 4).astype(np.int64)
    if len(data) - start != math.prod(shape.tolist()):
        raise WrongForm(path.name, f"has {len(data) - start} values, not {' x '.join(map(str, shape))}.")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def build(folder: Path, train_rows: int = TRAIN_ROWS) -> tuple[Parts, dict[str, Any]]:
    """Tables of the unpacked Debian package, an image a user, and their counts."""
    parts: Parts = {}
    digests = {}
    for part, stem in (("train", "train"), ("test", "t10k")):
        images = read_idx(folder / FOLDER / f"{stem}-images-idx3-ubyte.gz")
        labels = read_idx(folder / FOLDER / f"{stem}-labels-idx1-ubyte.gz")
        if images.ndim != 3 or images.shape[1:] != (28, 28) or labels.shape != images.shape[:1] or labels.max() > 9:
            raise WrongForm(f"{stem}-images", f"have shape {images.shape}, with labels of shape {labels.shape}.")
        parts[part] = _one_each(part, 0, images, labels)
        digests[part] = {"x": _digest(images), "y": _digest(labels)}
        if part == "train":
            parts["train"] = _one_each("train", 0, images[:train_rows], labels[:train_rows])
            parts["tune"] = _one_each("train", train_rows, images[train_rows:], labels[train_rows:])
    return parts, {"arrays": digests}


def _digest(values: NDArray[np.uint8]) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()


def _one_each(part: str, first: int, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> UserTable:
    ids = [f"fashion-{part}-{row}" for row in range(first, first + len(labels))]
    return UserTable(ids, np.arange(len(ids) + 1), {"x": images, "y": labels})


SOURCE = Source(
    "fashion",
    build,
    rule=1,
    package=Package(
        client="apt",
        name="dataset-fashion-mnist",
        version="0.0~git20200523.55506a9-1",
        file="dataset-fashion-mnist_0.0~git20200523.55506a9-1_all.deb",
        size=30_900_652,
        sha256="39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
        licence="Expat (MIT), Zalando SE 2017",
        licence_member="usr/share/doc/dataset-fashion-mnist/copyright",
    ),
    members=tuple(
        f"{FOLDER}/{stem}-{kind}-ubyte.gz" for stem in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
    ),
)


class FashionParameters(Table):
    """Fashion-MNIST, one image a user."""

    users: int = Field(default=TRAIN_ROWS, ge=1, le=TRAIN_ROWS, description="the first rows", json_schema_extra=USERS)
    model: Literal["cnn", "cnn-small"] = Field(
        default="cnn", description="26 010 parameters with pooling, or 18 842 without"
    )
    coin: int | None = Field(
        default=None, ge=0, description="seed of coins, one an image, that leave about half of `users` out"
    )
    scored: Scored = SCORED


class FashionTask(Task):
    """Convolutions with tanh, as Papernot et al. 2021 train on this data set. One example a user: privacy is that of
    an example. `folder`: for tests."""

    Parameters: ClassVar[type[Table]] = FashionParameters
    name: ClassVar[str] = "fashion"
    score_name: ClassVar[str] = "accuracy"
    held_out: ClassVar[str] = "Fashion-MNIST's 10 000 public test images, or 10 000 training images set apart."

    def __init__(
        self,
        users: int = TRAIN_ROWS,
        model: Literal["cnn", "cnn-small"] = "cnn",
        coin: int | None = None,
        scored: Scored = "test",
        folder: Path | None = None,
    ) -> None:
        self.users_count, self.model, self.coin, self.scored, self.folder = users, model, coin, scored, folder
        self._scored: tuple[torch.Tensor, torch.Tensor] | None = None

    def build_model(self) -> torch.nn.Module:
        nn = torch.nn
        with seeded(self.seed):
            if self.model == "cnn-small":
                return nn.Sequential(
                    *(nn.Conv2d(1, 16, 8, stride=3, padding=2), nn.Tanh(), nn.Conv2d(16, 32, 4, stride=2), nn.Tanh()),
                    *(nn.Flatten(), nn.Linear(288, 32), nn.Tanh(), nn.Linear(32, 10)),
                )
            return nn.Sequential(
                *(nn.Conv2d(1, 16, 8, stride=2, padding=2), nn.Tanh(), nn.MaxPool2d(2, 1)),
                *(nn.Conv2d(16, 32, 4, stride=2), nn.Tanh(), nn.MaxPool2d(2, 1)),
                *(nn.Flatten(), nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10)),
            )

    def known_schema(self) -> Schema:
        second, third, last, flat = (2, 5, 7, 288) if self.model == "cnn-small" else (3, 7, 9, 512)
        return Schema.with_biases({0: (16, 1, 8, 8), second: (32, 16, 4, 4), third: (32, flat), last: (10, 32)})

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")

    def prepare(self, columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        pixels = columns["x"].to(torch.float32).unsqueeze(1)
        return pixels.div_(127.5).sub_(1), columns["y"].to(torch.int64)

    def users(self) -> UserTable:
        return self.candidates().select(np.flatnonzero(self.taken()))

    def candidates(self) -> UserTable:
        """The first `users` rows, whatever the coins say."""
        everybody = table("fashion", "train", ("x", "y"), self.folder)
        return everybody.select(np.arange(min(self.users_count, len(everybody))))

    def taken(self) -> NDArray[np.bool_]:
        """Which of the candidates are users, (candidates,): all of them, or those whose coin fell so."""
        count = len(self.candidates())
        if self.coin is None:
            return np.ones(count, bool)
        return np.random.default_rng(self.coin).random(count) < 0.5

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        if self._scored is None:
            images = table("fashion", self.scored, ("x", "y"), self.folder)
            self._scored = self.prepare(images.rows(np.arange(len(images))).columns)
        inputs, targets = self._scored
        with torch.no_grad():
            outputs = torch.cat([model(part) for part in torch.split(inputs, 1000)])
        return {"accuracy": accuracy(outputs, targets), "loss": float(self.loss(outputs, targets).mean())}
