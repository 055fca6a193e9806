"""How a run draws its noise, by the `format` that it was started with."""

from __future__ import annotations

from typing import Literal

NONCES = 1
"""The `format` from which on a run's noise rows are drawn under nonces."""
STAIRCASE = 3
"""The `format` from which on float64 noise is drawn by map 3 (`fieldfare.noise.staircase`): that of new runs. Their
charge follows the rule of format 2."""
SEEDED = "seeded"
"""The noise source of a run with a fixed seed: not private. Every other source has a random key for this run alone."""


def has_nonces(format: int, noise_source: str) -> bool:
    """Whether each committed round of a run has a nonce.

    A run with a fixed seed has none, whatever its format: it is not private, and its seed must give the same model.
    """
    return format >= NONCES and noise_source != SEEDED


def noise_map(format: int) -> Literal[2, 3]:
    """How a run of that format turns bits into floats, from its first row to its last."""
    return 3 if format >= STAIRCASE else 2
