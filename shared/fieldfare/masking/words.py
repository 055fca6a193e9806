"""Numbers as words: whole cells of a grid, modulo 2^32 or 2^64, where a one-time mask hides them perfectly.

The mask of a seed is AES-256 in counter mode from block 0 on, its keystream read as little-endian words. A seed is 32
fresh random bytes, used for one reply and never again: two replies under one mask give away their difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fieldfare.errors import BadInput
from fieldfare.noise.aes import encryptor, zeros
from fieldfare.noise.chunks import CHUNK, scratch

# Elements of the ring, shape (n,): little-endian, as on the wire.
Words: TypeAlias = NDArray[np.unsignedinteger[Any]]

# Bits of a word -> (the words themselves, the same bits as two's complement).
RINGS: Final[Mapping[int, tuple[np.dtype[np.generic], np.dtype[np.generic]]]] = {
    32: (np.dtype("<u4"), np.dtype("<i4")),
    64: (np.dtype("<u8"), np.dtype("<i8")),
}
SEED_BYTES: Final = 32
_FURTHEST: Final = 2.0**51  # cells that no honest number reaches: `Privatiser.of` keeps sums and noise below
# Added to a float64 up to there it rounds it to a whole number, which then is the sum's low bits: in half the time
# that `rint` and `astype` take.
_SHIFT: Final = np.float64(3 * _FURTHEST)


def encode(parts: Sequence[tuple[NDArray[np.floating[Any]], float]], spacing: float, bits: int) -> Words:
    """The nearest cells of the grid (ties to even) of numbers, one part after another, as words of `bits` bits.

    parts: numbers, shape (n,), and what they are multiplied by. spacing: a power of two.
    Raises `BadInput` for what is not finite, or further than 2^51 cells from 0.
    """
    words: Words = np.empty(sum(len(values) for values, _ in parts), RINGS[bits][0])
    at, kind = 0, np.dtype(np.float64)
    for values, scale in parts:
        for lo in range(0, len(values), CHUNK):  # what it is made from stays in the processor's cache
            part = values[lo : lo + CHUNK]
            cells = np.multiply(part, scale / spacing, out=scratch("cells", len(part), kind), dtype=kind)
            words[at : at + len(part)] = whole_cells(cells).view(np.uint64)
            at += len(part)
    return words


def whole_cells(cells: NDArray[np.float64]) -> NDArray[np.int64]:
    """The nearest whole numbers, ties to even, shape (n,). Raises `BadInput` as `encode`."""
    if not max(cells.max(initial=0.0), -cells.min(initial=0.0)) <= _FURTHEST:  # "not <=" refuses NaN too
        raise BadInput("numbers of a masked sum", "must be finite and at most 2^51 cells.", code="words-range")
    whole: NDArray[np.int64] = (cells + _SHIFT).view(np.int64)
    whole -= _SHIFT.view(np.int64)
    return whole


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
        mask = scratch("mask", span.nbytes + 16, np.dtype(np.uint8))  # `update_into` asks for a block more
        stream.update_into(zeros(span.nbytes), mask.data)
        span += mask[: span.nbytes].view(words.dtype)
    return words


def sum_masks(seeds: Iterable[bytes], numel: int, bits: int) -> Words:
    """The sum of the masks of `seeds`, modulo 2^bits, shape (numel,)."""
    total: Words = np.zeros(numel, RINGS[bits][0])
    for seed in seeds:
        add_mask_(total, seed)
    return total
