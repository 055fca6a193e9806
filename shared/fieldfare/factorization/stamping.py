"""Sensitivity of a block-diagonal strategy: copies of one block, the last one cut at the horizon.

Squared column sums add over blocks: a pattern P costs sum_s ||sum_{t in P, t in block s} C_t||^2. Both
programs below maximise that over patterns of at most k rounds that are at least b apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fieldfare.arrays import Floats

# Additions of the exact program (well below a second) beyond which the caller reports an upper bound instead.
_WORK = 20_000_000


def block_rounds(restart_every: int | None, rounds: int) -> int:
    """Return how many rounds one block runs: min(restart_every, rounds)."""
    return rounds if restart_every is None else min(restart_every, rounds)


def block_lengths(block: int, n: int) -> list[int]:
    """Return the rounds of each block among the first n, for blocks of `block` rounds."""
    whole, rest = divmod(n, block)
    return [block] * whole + ([rest] if rest else [])


def best_split(lengths: Sequence[int], gains: Mapping[int, Floats], count: int) -> float:
    """Return the upper bound: the best split of `count` participations into blocks. The separation across a
    restart is forgotten.

    Args:
        lengths: rounds of each block, in order.
        gains: for each length, the squared sensitivity of a block with at most 0, 1, ... participations.
        count: the most participations of one user.

    Returns:
        The norm, not its square.
    """
    best = np.zeros(count + 1)  # best[j]: squared bound with at most j participations in the blocks so far
    for length in lengths:
        better = best.copy()
        for i, gain in enumerate(gains[length]):
            better[i:] = np.maximum(better[i:], best[: count + 1 - i] + gain)
        best = better
    return float(np.sqrt(best[count]))


def tight_patterns(c: Floats, lengths: Sequence[int], separation: int, count: int) -> float | None:
    """Return the exact sensitivity for Toeplitz blocks with non-negative non-increasing coefficients, under
    min-separation.

    Moving a participation earlier inside its block never lowers a norm (equation 1 of `toeplitz`) and never
    forbids a later one. So some worst pattern is tight: in each block it has rounds o, o + b, ..., where o is
    the earliest round that the previous participation allows. The state is (participations used, last
    participation).

    Args:
        c: coefficients of a whole block, shape (block,).
        lengths: rounds of each block, in order; only the last may be shorter than the block.
        separation: b, the least distance between two of a user's rounds.
        count: k, the most participations of one user.

    Returns:
        The norm, or None when the program would take too many steps.
    """
    b, work = separation, 0
    cached: dict[tuple[int, int], Floats] = {}

    def gains(m: int, offset: int) -> Floats:
        """Return the squared norms of the tight patterns of 0, 1, ... rounds from `offset` in a block of m rounds."""
        if (m, offset) not in cached:
            most = min(count, -(-(m - offset) // b))
            summed, squares = np.zeros(m), [0.0]
            for j in range(most):
                first = offset + j * b
                summed[first:] += c[: m - first]
                squares.append(float(summed @ summed))
            cached[m, offset] = np.array(squares)
        return cached[m, offset]

    # best[last][u]: largest squared norm so far with u participations, the last one in round `last`.
    best: dict[int, Floats] = {-b: np.concatenate([[0.0], np.full(count, -np.inf)])}
    start = 0
    for m in lengths:
        following: dict[int, Floats] = {}

        def keep(last: int, values: Floats, into: dict[int, Floats] = following, free: int = start + m - b) -> None:
            # Rounds at least b before the next block all leave it free: they are one state.
            last = max(last, free)
            into[last] = np.maximum(into[last], values) if last in into else values

        for last, values in best.items():
            keep(last, values)
            offset = max(0, last + b - start)
            gain = gains(m, offset) if offset < m else np.zeros(1)
            work += len(gain)
            for j in range(1, len(gain)):
                shifted = np.concatenate([np.full(j, -np.inf), values[: count + 1 - j] + gain[j]])
                keep(start + offset + (j - 1) * b, shifted)
        if work * count > _WORK:
            return None
        best, start = following, start + m
    return float(np.sqrt(max(float(values.max()) for values in best.values())))
