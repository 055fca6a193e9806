"""Which participation pattern a binary tree fears most, exactly, by dynamic programming over the tree.

A pattern P costs sum over nodes |P intersected with the node|^2. The evenly spaced pattern is *not* always the worst:
8 of 24 rounds, at least 3 apart, cost up to 88, and at most 86 when they are exactly 3 apart. Two trees are served:

- all nodes: every dyadic node that closes by round n;
- read nodes: only those that a prefix sum reads, which are the left children and the roots (a node of height h with an
  even index). There is exactly one per round: the largest that closes in it.

**How.** For a node of height h let K_h[c, e, f] be the largest cost, inside the node and without the node's own c^2, of
c participations in it, when the first may not come before offset e and the round from which the *next* one is
allowed lies at most f behind the node's end. Two children compose by a max-plus product over what lies between
them; all nodes of one height share one table; the nodes of n's binary expansion compose from left to right. Nodes
no longer than the separation b hold at most one participation, so the tables start at height floor(log2 b).

**How few offsets suffice.** In the tree of all nodes, moving a participation inside its block of 2^floor(log2 b) rounds
changes nothing, so every participation may be pushed to its block's start or to b rounds after the one before.
Then all offsets are m b modulo the block, m <= k. For the read nodes the position inside a block matters: all b
offsets are kept while that is cheap; beyond, the lowest heights are counted as if always read (an upper bound).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fieldfare.errors import BadInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Counts = NDArray[np.int64]

_NEVER = -np.inf
_WORK = 2.0e9
"""Table operations (about a second each 1e9) up to which the read nodes are treated exactly."""


def largest_square_sum(rounds: int, separation: int, count: int, *, read_only: bool) -> tuple[int, bool]:
    """max over patterns of at most `count` rounds, at least `separation` apart, of sum over nodes |P in node|^2.

    `rounds` >= 1; nodes that close by round `rounds` count, or the read ones of them. Returns (value, exact): if not
    exact the value is an upper bound. Monotone in all three arguments but decreasing in `separation`.
    """
    b = min(separation, rounds)
    k = min(count, -(-rounds // b))
    block = b.bit_length() - 1
    cell = block
    if read_only:
        cell = next((h for h in range(block) if _work(rounds, b, k, h) <= _WORK), block)
    value = _Tables(rounds, b, k, cell, read_only).solve()
    return round(value), not read_only or cell == 0


def _offsets(b: int, k: int, cell: int) -> Counts:
    residues = np.unique(np.arange(k + 1) * b % (1 << cell))
    return np.flatnonzero(np.isin(np.arange(b) % (1 << cell), residues)).astype(np.int64)


def _work(rounds: int, b: int, k: int, cell: int) -> float:
    width = float(len(_offsets(b, k, cell)))
    total = 0.0
    for height in range(b.bit_length() - 1, rounds.bit_length() - 2):
        most = min(k, -(-(1 << height) // b)) + 1
        total += most * most * width**3
    return total


class _Tables:
    def __init__(self, rounds: int, b: int, k: int, cell: int, read_only: bool) -> None:
        self.rounds, self.b, self.k, self.cell, self.read_only = rounds, b, k, cell, read_only
        self.block = b.bit_length() - 1
        self.offsets = _offsets(b, k, cell)

    def solve(self) -> float:
        top = self.rounds.bit_length() - 1
        tables = {self.block: self._single()}
        for height in range(self.block, top - 1):
            below = tables[height]
            right = below if self.read_only else _own(below)
            tables[height + 1] = self._join(_own(below), right)
        if top == self.block:
            state = tables[top][:, :1]
        else:
            below = tables[top - 1]
            state = self._join(_own(below)[:, :1], below if self.read_only else _own(below))
        state = _own(state)
        for height in range(top - 1, self.block - 1, -1):
            if self.rounds >> height & 1:
                state = self._join(state, _own(tables[height]))
        return self._tail(state[:, 0])

    def _single(self) -> Array:
        """K for nodes of 2^block <= b rounds: none or one participation."""
        size, offsets = 1 << self.block, self.offsets
        worth = self._worth(np.arange(size), size, self.block)
        table = np.full((2, len(offsets), len(offsets)), _NEVER)
        table[0][np.maximum(offsets - size, 0)[:, None] <= offsets[None, :]] = 0.0
        latest = np.minimum(offsets + size - self.b, size - 1)
        for i, first in enumerate(offsets):
            inside = latest >= first
            if first < size and inside.any():
                best = np.maximum.accumulate(worth[first:])
                table[1, i, inside] = best[latest[inside] - first]
        return table[: self.k + 1]

    def _worth(self, at: Counts, end: int, heights: int) -> Array:
        """Nodes of height < `heights`, closed by `end`, that one participation at offset `at` is charged for."""
        total = np.zeros(len(at))
        for height in range(heights):
            index = at >> height
            charged = (index + 1) << height <= end
            if self.read_only and height >= self.cell:
                charged &= index % 2 == 0
            total += charged
        return total

    def _join(self, left: Array, right: Array) -> Array:
        """Max-plus product: `left` participations before, `right` ones after, at most k together."""
        counts = min(self.k + 1, len(left) + len(right) - 1)
        joined = np.full((counts, left.shape[1], right.shape[2]), _NEVER)
        for before in range(min(len(left), counts)):
            room = min(len(right), counts - before)
            view = joined[before : before + room]
            for i in range(len(self.offsets)):
                column = left[before, :, i]
                if np.isfinite(column).any():
                    np.maximum(view, column[None, :, None] + right[:room, i][:, None, :], out=view)
        return joined

    def _tail(self, state: Array) -> float:
        """The last rounds, fewer than a block, hold one more participation at most."""
        best = float(state[:, -1].max())
        length = self.rounds & ((1 << self.block) - 1)
        if length == 0 or self.k == 0:
            return best
        worth = self._worth(np.arange(length), length, self.block)
        later = np.maximum.accumulate(worth[::-1])[::-1]
        room = self.offsets < length
        return max(best, float((state[: self.k, room] + later[self.offsets[room]]).max()))


def _own(table: Array) -> Array:
    """Add the node's own c^2."""
    return table + np.square(np.arange(len(table), dtype=np.float64))[:, None, None]


def node_norms(
    patterns: Sequence[Sequence[int]],
    rounds: int,
    *,
    read_only: bool,
    decay: float = 1.0,
    scale: Array | None = None,
) -> Array:
    """||sum of C's columns|| for each pattern of 0-based rounds, shape (len(patterns),), for many users at once.

    C has a row per (read) node that closes by round `rounds`, with entries decay^(last - t) / scale[height] at the
    node's rounds t; `decay` 1 and no `scale` count. Later rounds contribute nothing: they are not released. O(log
    rounds) passes over all participations. Raises `BadInput` for rounds that are negative or not increasing.
    """
    sizes = np.array([len(pattern) for pattern in patterns], dtype=np.int64)
    at = np.concatenate([np.asarray(pattern, dtype=np.int64) for pattern in patterns]) if sizes.sum() else sizes[:0]
    who = np.repeat(np.arange(len(patterns)), sizes)
    wrong = at < 0
    wrong[1:] |= (np.diff(at) <= 0) & (np.diff(who) == 0)
    if wrong.any():
        bad = tuple(int(t) for t in patterns[int(who[np.argmax(wrong)])])
        raise BadInput(f"pattern {bad}", "must be increasing rounds from 0.")
    at, who = at[at < rounds], who[at < rounds]
    total = np.zeros(len(patterns))
    for height in range(rounds.bit_length()):
        index = at >> height
        inside = (index + 1) << height <= rounds
        if read_only:
            inside &= index % 2 == 0
        node, user = index[inside], who[inside]
        if not len(node):
            continue
        weight = np.power(decay, ((node + 1) << height) - 1 - at[inside])
        starts = np.flatnonzero(np.concatenate([[True], (np.diff(node) != 0) | (np.diff(user) != 0)]))
        summed = np.add.reduceat(weight, starts)
        if scale is not None:
            summed = summed / scale[height]
        total += np.bincount(user[starts], np.square(summed), minlength=len(patterns))
    return np.asarray(np.sqrt(total), dtype=np.float64)


def column_norms(rounds: int, *, read_only: bool, decay: float = 1.0, scale: Array | None = None) -> Array:
    """||column t of C||, t < rounds, of the same C as `node_norms`."""
    at = np.arange(rounds)
    total = np.zeros(rounds)
    for height in range(rounds.bit_length()):
        index = at >> height
        inside = (index + 1) << height <= rounds
        if read_only:
            inside &= index % 2 == 0
        weight = np.power(decay, ((index + 1) << height) - 1 - at) / (1.0 if scale is None else scale[height])
        total += np.where(inside, np.square(weight), 0.0)
    return np.asarray(np.sqrt(total), dtype=np.float64)
