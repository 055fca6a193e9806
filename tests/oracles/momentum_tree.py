"""What the paper of the tree over discounted updates says of noise and sensitivity, and the product does not need."""

from __future__ import annotations

import numpy as np

from fieldfare.arrays import Floats
from fieldfare.mechanisms.momentum_tree import MomentumTree


def touched_nodes(period: int, rounds: int) -> int:
    """V of theorem 4: the most nodes that one user touches who takes part every `period` rounds.

    With ceil(rounds / period) participations; the paper's rounds / period is too small when it is no integer.
    """
    top, inside = rounds.bit_length() - 1, period.bit_length() - 1
    many = (min(top, inside) + 1) * -(-rounds // period)
    return many + sum(rounds >> height for height in range(inside + 1, top + 1))


def momentum_row_norms(tree: MomentumTree) -> Floats:
    """Standard deviation of NOISE_t of equation 4, for sigma = clip = 1: shape (rounds,)."""
    t = np.arange(1, tree.rounds + 1)
    variance = np.zeros(len(t))
    for height, scale in enumerate(tree.scale):
        since = (t & ((1 << height) - 1)).astype(float)
        variance += np.where(t >> height & 1, np.square(scale * np.power(tree.momentum, since)), 0.0)
    return np.asarray((1 - tree.momentum) * np.sqrt(variance), dtype=np.float64)
