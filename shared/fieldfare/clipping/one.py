"""Clipping of one user's update by numpy, for nodes without PyTorch: the formulas of the kinds, float64 norms."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fieldfare.clipping.base import ClippingSpec, Layout

_CHUNK = 1 << 20
"""Elements that are widened to float64 at a time."""


def clip_one(update: NDArray[np.float32], spec: ClippingSpec, layout: Layout) -> tuple[float, ...]:
    """Clip `update`, float32 (d,), in place. Returns the indicators of `spec.counts`.

    Guarantee: as `clip_` and `count_over`. Afterwards every value is finite, and the norm, computed in float64, is at
    most `spec.bound`. An update with a NaN or an infinity, or beyond `linf_filter`, becomes zero and is not counted.

    Raises:
        ValueError: another dtype or shape, or a layout that does not cover d.
    """
    if update.ndim != 1 or update.dtype != np.float32:
        raise ValueError(f"an update must be float32 (d,), not {update.dtype} {update.shape}")
    peak = max((float(np.abs(part).max()) for part in _chunks(update)), default=0.0, key=_nan_first)
    if not math.isfinite(peak) or (spec.linf_filter is not None and peak > spec.linf_filter):
        update[:] = 0.0
    counts = (float(_norm(update) > spec.norm),) * spec.counts
    for columns, part in spec.blocks(layout, update.size):
        block = update[columns]
        (factor,) = part.factors(np.array([_norm(block)]))
        if factor != 1.0:
            for chunk in _chunks(block):
                chunk[:] = chunk.astype(np.float64) * factor
    return counts


def _nan_first(value: float) -> float:
    """A key by which a NaN is the largest."""
    return math.inf if math.isnan(value) else value


def _norm(block: NDArray[np.float32]) -> float:
    """In float64, where the square of no float32 overflows or vanishes."""
    return math.sqrt(math.fsum(float(np.square(part.astype(np.float64)).sum()) for part in _chunks(block)))


def _chunks(block: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    return [block[start : start + _CHUNK] for start in range(0, block.size, _CHUNK)]
