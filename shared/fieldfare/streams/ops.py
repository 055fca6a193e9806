"""The few vector operations that streams need: numpy on the host, torch on an accelerator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fieldfare.lazily import torch
from fieldfare.noise import Drawer
from fieldfare.noise.chunks import DEVICE_CHUNK, in_chunks, scratch

Vector = NDArray[np.float64]
# A numpy array on the host, a tensor on an accelerator: operators work on both, functions are those of `Ops`.
Array = Any


class Ops(ABC):
    """On the host no result depends on where a chunk was cut."""

    @abstractmethod
    def array(self, x: torch.Tensor) -> Array:
        """Return the same memory as an array."""

    @abstractmethod
    def tensor(self, x: Array) -> torch.Tensor:
        """Return the same memory as a tensor."""

    @abstractmethod
    def scratch(self, name: str, size: int, like: Array) -> Array:
        """Return a vector of `size` elements of the kind of `like`, contents undefined, that lives until the
        chunk is done.
        """

    @abstractmethod
    def each_chunk(self, work: Callable[[int, int], None], n: int, threads: int | None) -> None:
        """Call `work(lo, hi)` on chunks that together are [0, n)."""

    @abstractmethod
    def draw(self, drawer: Drawer, x: Array, lo: int) -> None:
        """Draw x: x = the elements of the drawer's row from `lo` on"""

    @abstractmethod
    def axpy(self, y: Array, a: float, x: Array) -> None:
        """Add in place: y += a x. The product is rounded to y's dtype, never `a` itself: what is applied is
        what was charged.
        """

    @abstractmethod
    def scale(self, y: Array, a: float) -> None:
        """Scale in place: y *= a, rounded in the same way"""

    @abstractmethod
    def combine(self, y: Array, z: Array, weights: Vector, rows: Array) -> None:
        """Combine: y = z + sum_i weights_i rows_i; `weights` shape (m,), all of them float32 values, `rows` m
        arrays like y.
        """

    @abstractmethod
    def decay(self, rows: Array, factors: Vector, z: Array) -> None:
        """Decay in place: rows_i = factors_i rows_i + z, rounded twice; arguments as in `combine`"""


class _Host(Ops):
    def array(self, x: torch.Tensor) -> Array:
        return x.numpy()

    def tensor(self, x: Array) -> torch.Tensor:
        return torch.from_numpy(x)

    def scratch(self, name: str, size: int, like: Array) -> Array:
        return scratch(name, size, like.dtype)

    def each_chunk(self, work: Callable[[int, int], None], n: int, threads: int | None) -> None:
        in_chunks(work, n, 0, threads)

    def draw(self, drawer: Drawer, x: Array, lo: int) -> None:
        drawer.into(x.reshape(-1), lo)

    def axpy(self, y: Array, a: float, x: Array) -> None:
        product = scratch("product", y.size, y.dtype).reshape(y.shape)
        np.multiply(x, a, out=product, dtype=np.float64, casting="same_kind")
        np.add(y, product, out=y)

    def scale(self, y: Array, a: float) -> None:
        np.multiply(y, a, out=y, dtype=np.float64, casting="same_kind")

    def combine(self, y: Array, z: Array, weights: Vector, rows: Array) -> None:
        # einsum reads each row once and multiplies and adds in the same pass. BLAS would be faster still, but
        # its rounding depends on its own number of threads.
        np.einsum("i,ibj->bj", weights.astype(y.dtype), rows, out=y)
        np.add(y, z, out=y)

    def decay(self, rows: Array, factors: Vector, z: Array) -> None:
        np.multiply(rows, factors.astype(rows.dtype)[:, None, None], out=rows)
        np.add(rows, z, out=rows)


class _Device(Ops):
    def array(self, x: torch.Tensor) -> Array:
        return x

    def tensor(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def scratch(self, name: str, size: int, like: Array) -> Array:
        return torch.empty(size, dtype=like.dtype, device=like.device)

    def each_chunk(self, work: Callable[[int, int], None], n: int, threads: int | None) -> None:
        for lo in range(0, n, DEVICE_CHUNK):
            work(lo, min(lo + DEVICE_CHUNK, n))

    def draw(self, drawer: Drawer, x: Array, lo: int) -> None:
        drawer.to_device(x.reshape(-1), lo)

    def axpy(self, y: Array, a: float, x: Array) -> None:
        y.add_((x.double() * a).to(y.dtype))

    def scale(self, y: Array, a: float) -> None:
        y.copy_(y.double() * a)

    def combine(self, y: Array, z: Array, weights: Vector, rows: Array) -> None:
        y.copy_(z)
        for weight, row in zip(weights.tolist(), rows, strict=True):
            y.add_(row, alpha=weight)

    def decay(self, rows: Array, factors: Vector, z: Array) -> None:
        for row, factor in zip(rows, factors.tolist(), strict=True):
            row *= factor
            row += z


HOST: Final = _Host()
DEVICE: Final = _Device()


def ops_on(device: torch.device) -> Ops:
    return HOST if device.type == "cpu" else DEVICE
