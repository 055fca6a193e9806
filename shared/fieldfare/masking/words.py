"""Numbers as words: whole cells of a grid, modulo 2^32 or 2^64, where a one-time mask hides them perfectly.

The mask of a seed is AES-256 in counter mode from block 0 on, its keystream read as little-endian words. A seed is 32
fresh random bytes, used for one reply and never again: two replies under one mask give away their difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fieldfare.errors import BadInput
from fieldfare.noise.aes import encryptor, zeros
from fieldfare.noise.chunks import CHUNK

# Elements of the ring, shape (n,): little-endian, as on the wire.
Words: TypeAlias = NDArray[np.unsignedinteger[Any]]

# Bits of a word -> (the words themselves, the same bits as two's complement).
RINGS: Final[Mapping[int, tuple[np.dtype[np.generic], np.dtype[np.generic]]]] = {
    32: (np.dtype("<u4"), np.dtype("<i4")),
    64: (np.dtype("<u8"), np.dtype("<i8")),
}
SEED_BYTES: Final = 32
_FURTHEST: Final = 2.0**62  # cells that no honest number reaches: beyond, float64 has no int64


def encode(values: NDArray[np.floating[Any]], spacing: float, bits: int, scale: float = 1.0) -> Words:
    """The nearest cells of the grid (ties to even) of scale x `values`, shape (n,), as words of `bits` bits.

    Raises `BadInput` for what is not finite, or further than 2^62 cells from 0.
    """
    words: Words = np.empty(len(values), RINGS[bits][0])
    for lo in range(0, len(values), CHUNK):  # what it is made from stays in the processor's cache
        cells = values[lo : lo + CHUNK].astype(np.float64) * scale / spacing
        words[lo : lo + CHUNK] = whole_cells(cells).view(np.uint64)
    return words


def whole_cells(cells: NDArray[np.float64]) -> NDArray[np.int64]:
    """The nearest whole numbers, ties to even, shape (n,). Raises `BadInput` as `encode`."""
    if not (np.abs(cells) <= _FURTHEST).all():  # "not <=" refuses NaN too
        raise BadInput("numbers of a masked sum", "must be finite and below 2^62 cells.", code="words-range")
    return np.rint(cells).astype(np.int64)


def read(words: Words, spacing: float) -> NDArray[np.float64]:
    """The numbers that `words` stand for, read as two's complement, shape (n,).

    It tells on which side of the ring's edge a sum lies, where one user may move it: read only what is noised.
    """
    numbers: NDArray[np.float64] = words.view(RINGS[8 * words.itemsize][1]) * np.float64(spacing)
    return numbers


def add_mask_(words: Words, seed: bytes) -> Words:
    """words <- words + mask of `seed`, modulo the ring, in place; return `words`. Raises `BadInput` for no seed."""
    if len(seed) != SEED_BYTES:
        raise BadInput(f"a seed of {len(seed)} bytes", f"a mask has {SEED_BYTES}.", code="mask-seed")
    stream = encryptor(seed, 0, 0)
    for lo in range(0, len(words), CHUNK):
        span = words[lo : lo + CHUNK]
        span += np.frombuffer(stream.update(zeros(span.nbytes)), words.dtype)
    return words


def sum_masks(seeds: Iterable[bytes], numel: int, bits: int) -> Words:
    """The sum of the masks of `seeds`, modulo 2^bits, shape (numel,)."""
    total: Words = np.zeros(numel, RINGS[bits][0])
    for seed in seeds:
        add_mask_(total, seed)
    return total
