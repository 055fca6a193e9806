"""Clipping of one user's update by numpy, for nodes without PyTorch: the formulas of the kinds, float64 norms."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fieldfare.clipping.base import ClippingSpec, Layout

# Elements that are widened to float64 at a time: what stays in a processor's cache.
_CHUNK = 1 << 15


def clip_one(update: NDArray[np.float32], spec: ClippingSpec, layout: Layout) -> tuple[float, ...]:
    """Clip `update`, float32 (d,), in place. Returns the indicators of `spec.counts`.

    Guarantee: as `clip_` and `count_over`. Afterwards every value is finite, and the norm, computed in
    float64, is at most `spec.bound`. An update with a NaN or an infinity, or beyond `linf_filter`, becomes
    zero and is not counted.

    Raises:
        ValueError: another dtype or shape, or a layout that does not cover d.
    """
    if update.ndim != 1 or update.dtype != np.float32:
        raise ValueError(f"an update must be float32 (d,), not {update.dtype} {update.shape}")
    whole = _norm(update)  # finite exactly where the update is
    far = spec.linf_filter is not None and float(np.abs(update).max(initial=0.0)) > spec.linf_filter
    if far or not math.isfinite(whole):
        update[:], whole = 0.0, 0.0
    for columns, part in spec.blocks(layout, update.size):
        block = update[columns]
        (factor,) = part.factors(np.array([whole if block.size == update.size else _norm(block)]))
        if factor != 1.0:
            for chunk in _chunks(block):
                np.multiply(chunk, factor, out=chunk, dtype=np.float64, casting="same_kind")
    return (float(whole > spec.norm),) * spec.counts


def _norm(block: NDArray[np.float32]) -> float:
    """Compute the norm in float64, where the square of no float32 overflows or vanishes."""
    with np.errstate(invalid="ignore"):
        wide = (part.astype(np.float64) for part in _chunks(block))
        return math.sqrt(math.fsum(float(part @ part) for part in wide))


def _chunks(block: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    return [block[start : start + _CHUNK] for start in range(0, block.size, _CHUNK)]
