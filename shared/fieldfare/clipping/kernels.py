"""The arithmetic of clipping on a block of updates: norms that never overflow, scaling that never exceeds a bound."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fieldfare.clipping.base import ClippingSpec, Layout
from fieldfare.lazily import torch

# Squares that are added in float32: any order of adding n positive numbers errs by at most n 2^-24, a norm by half.
_BLOCK = 128

# Between these largest coordinates, no square that matters overflows or vanishes in float32.
_PLAIN = (1e-6, 1e15)

# Elements that are widened to float64 at a time.
_CHUNK = 1 << 20


def norms(updates: torch.Tensor) -> torch.Tensor:
    """Return the L2 norm of each row, float32 (users, d) -> float64 (users,), within a relative 2^-17.9 =
    4.1e-6.

    Not finite if and only if the row is not. A row's norm depends on that row alone.
    """
    # float32 inside a block, float64 between: nearly as fast as float32 alone, and the error stays bounded.
    whole = updates.shape[1] // _BLOCK * _BLOCK
    parts = [updates[:, whole:].to(torch.float64)]
    if whole:
        blocks = updates[:, :whole].reshape(updates.shape[0], whole // _BLOCK, _BLOCK)
        blocks = torch.linalg.vector_norm(blocks, dim=2)
        largest = blocks.amax(dim=1)
        parts.append(torch.linalg.vector_norm(blocks, dim=1, dtype=torch.float64)[:, None])
    row_norms: torch.Tensor = torch.linalg.vector_norm(torch.cat(parts, dim=1), dim=1)
    # A block's norm is 1 to sqrt(128) times its largest coordinate: rows are seldom read a second time.
    if whole and not (12 * _PLAIN[0] <= (most := largest.cpu().numpy())).all() & (most <= _PLAIN[1]).all():
        peak = _peaks(updates)
        odd = (peak != 0) & ~((peak >= _PLAIN[0]) & (peak <= _PLAIN[1]))
        if bool(odd.any()):
            row_norms[odd] = _wide_norms(updates[odd])
    return row_norms


def clip_(updates: torch.Tensor, spec: ClippingSpec, layout: Layout) -> None:
    """Clip each row of `updates`, float32 (users, d), in place.

    Guarantee: every row is finite afterwards and its norm, computed in float64, is at most `spec.bound`. A
    row with a NaN or an infinity, or beyond `linf_filter`, becomes zero. Rows do not influence each other.
    Raises ValueError on another dtype or shape, or a layout that does not cover d.
    """
    _require(updates)
    blocks = spec.blocks(layout, updates.shape[1])
    if len(blocks) > 1 or spec.linf_filter is not None or updates.shape[1] == 0:
        _zero_bad_rows_(updates, spec)
        for columns, part in blocks:
            _scale_(updates[:, columns], part.factors(norms(updates[:, columns]).cpu().numpy()))
        return
    ((_, whole),) = blocks
    measured = norms(updates).cpu().numpy()  # for so few numbers torch's operations take longer
    bad = ~np.isfinite(measured)  # as the row is: no reading of its own for that
    if bad.any():
        updates[torch.from_numpy(bad).to(updates.device)], measured[bad] = 0.0, 0.0
    _scale_(updates, whole.factors(measured))


def count_over(updates: torch.Tensor, spec: ClippingSpec) -> int:
    """Return how many rows of `updates`, float32 (users, d), exceed `spec.norm`: the sum of e of
    `AdaptiveQuantile`.

    Call it before `clip_`. It zeroes, and does not count, the rows that `clip_` would zero.
    Raises ValueError on another dtype or shape.
    """
    _require(updates)
    _zero_bad_rows_(updates, spec)
    return int((norms(updates) > spec.norm).sum())


def _require(updates: torch.Tensor) -> None:
    if updates.ndim != 2 or updates.dtype != torch.float32:
        raise ValueError(f"updates must be float32 (users, d), not {updates.dtype} {tuple(updates.shape)}")


def _zero_bad_rows_(updates: torch.Tensor, spec: ClippingSpec) -> None:
    """Zero the rows that are not finite or beyond the filter."""
    if updates.shape[1] == 0:
        return
    peak = _peaks(updates)
    bad = ~torch.isfinite(peak)
    if spec.linf_filter is not None:
        bad |= peak > spec.linf_filter
    if bool(bad.any()):
        updates[bad] = 0.0


def _scale_(block: torch.Tensor, factors: NDArray[np.float64]) -> None:
    """Multiply row i by factors[i], float64 (users,). The product errs by at most 2^-23 of itself."""
    plain = (factors == 0) | ((factors > 1e-30) & (factors < 1e30))
    # Most cohorts have rows to shorten; one in which every factor is 1 is left untouched, bit for bit.
    if (factors[plain] != 1.0).any():
        block.mul_(torch.from_numpy(np.where(plain, factors, 1.0).astype(np.float32)[:, None]).to(block.device))
    for row in np.flatnonzero(~plain).tolist():
        # In float64, piece by piece. The factor of a huge vector is below the smallest normal float32.
        for columns in _chunks(block[row : row + 1]):
            block[row, columns] = (block[row, columns].to(torch.float64) * float(factors[row])).to(torch.float32)


def _peaks(updates: torch.Tensor) -> torch.Tensor:
    """Return the largest magnitude in each row, (users,). NaN where the row has one."""
    return torch.maximum(updates.amax(dim=1), -updates.amin(dim=1))


def _wide_norms(updates: torch.Tensor) -> torch.Tensor:
    """Compute `norms` in float64, where the square of no float32 overflows or vanishes; slower."""
    squared = torch.zeros(updates.shape[0], dtype=torch.float64, device=updates.device)
    # Row by row: how many rows there are must not decide in which order one of them is added up.
    for place, row in enumerate(updates):
        for columns in _chunks(row[None]):
            squared[place] += row[columns].to(torch.float64).square().sum()
    return squared.sqrt()


def _chunks(updates: torch.Tensor) -> list[slice]:
    """Return columns in runs of at most `_CHUNK` elements."""
    users, numel = updates.shape
    width = max(1, _CHUNK // max(1, users))
    return [slice(start, min(start + width, numel)) for start in range(0, numel, width)]
