"""The mask of a seed: AES-256 in counter mode from block 0 on, its keystream read as little-endian words.

A seed is 32 fresh random bytes, used for one reply and never again: two replies under one mask give away
their difference.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Final

import numpy as np

from fieldfare.errors import BadInput
from fieldfare.masking.words import RINGS, Words
from fieldfare.noise.aes import encryptor, zeros
from fieldfare.noise.chunks import CHUNK

SEED_BYTES: Final = 32


def fresh_seed() -> bytes:
    """A seed for one reply."""
    return secrets.token_bytes(SEED_BYTES)


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
