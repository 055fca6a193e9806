"""Keyed hashing of 64-bit words: randomness that anyone can recompute. Never for privacy noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply SplitMix64's finaliser (Steele, Lea and Flood 2014): a bijection of 64-bit words that looks random."""
    z = values + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def all_differ(values: NDArray[np.generic]) -> bool:
    """Return whether no value occurs twice. Sorts: `np.unique` of a million takes twenty times as long."""
    ordered = np.sort(values, axis=None)
    return not bool((ordered[1:] == ordered[:-1]).any())


def uniforms(keys: NDArray[np.uint64], *words: int) -> NDArray[np.float64]:
    """Return one number in [0, 1) for each key: float64, shape of `keys`, a function of the key and of
    `words` alone.
    """
    state = mix(keys)
    for word in words:
        state = mix(state ^ mix(np.array([word % 2**64], np.uint64)))
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53
