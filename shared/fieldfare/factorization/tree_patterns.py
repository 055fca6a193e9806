"""The participation pattern that costs most in a binary tree, by dynamic programming over the tree.

A pattern P costs sum over nodes |P intersected with the node|^2. The evenly spaced pattern is *not* always
the worst: 8 of 24 rounds, at least 3 apart, cost up to 88, and at most 86 when they are exactly 3 apart.
There are two trees:

- all nodes: every dyadic node that closes by round n;
- read nodes: only those that a prefix sum reads, which are the left children and the roots (a node of height
  h with an even index). There is exactly one per round: the largest that closes in it.

**Method.** For a node of height h let K_h[c, e, f] be the largest cost, inside the node and without the
node's c^2, of c participations in it, when the first may not come before offset e and the round from which
the *next* one is allowed lies at most f behind the node's end. Two children compose by a max-plus product
over the offset between them. All nodes of one height share one table; the nodes of n's binary expansion
compose from left to right. Nodes no longer than the separation b hold at most one participation, so the
tables start at height floor(log2 b).

**Offsets.** In the tree of all nodes, moving a participation inside its block of 2^floor(log2 b) rounds
changes nothing. So every participation may be pushed to its block's start or to b rounds after the one
before, and all offsets are m b modulo the block, m <= k. For the read nodes the position inside a block
matters: all b offsets are kept while that is cheap. Beyond, the lowest heights count as if they were always
read, which gives an upper bound.

**Discounted nodes.** With weights decay^(last - t) (momentum) a node's cost depends on where inside it a user
took part. Nodes of at most b rounds are still exact. In a longer node c participations weigh at most decay^d
sum_{j < c} decay^(j b), where d, which the table knows, is the distance of the last one from the node's end.
This upper bound is attained by gaps of exactly b.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fieldfare.arrays import Floats, Indices
from fieldfare.factorization.sensitivity import require_increasing

_NEVER = -np.inf
# Table operations up to which the read nodes are treated exactly; 1e9 take about a second.
_WORK = 1.5e9


def largest_square_sum(rounds: int, separation: int, count: int, *, read_only: bool) -> tuple[int, bool]:
    """Return the max over patterns P of sum over nodes |P in node|^2.

    Args:
        rounds: nodes that close by this round count; at least 1.
        separation: the least distance between two rounds of a pattern.
        count: the most rounds of a pattern.
        read_only: count only the nodes that a prefix sum reads.

    Returns:
        The value, and whether it is exact; otherwise it is an upper bound. It grows with `rounds` and `count`
            and falls
        with `separation`.
    """
    b = min(separation, rounds)
    k = min(count, -(-rounds // b))
    block = b.bit_length() - 1
    cell = block
    if read_only:
        cell = next((h for h in range(block) if _work(rounds, b, k, h) <= _WORK), block)
    value = _Maxima(rounds, b, k, cell, read_only, 1.0, np.ones(rounds.bit_length())).solve()
    return round(value), not read_only or cell == 0


def largest_discounted_sum(
    rounds: int, separation: int, count: int, *, read_only: bool, decay: float, scale: Floats
) -> float:
    """Return an upper bound of max over P of sum over nodes (sum_{t in P and node} decay^(last - t) /
    scale[height])^2.

    `decay` is in [0, 1]; `scale` is positive, shape (heights,). The rest is as for `largest_square_sum`.
    """
    b = min(separation, rounds)
    k = min(count, -(-rounds // b))
    block = b.bit_length() - 1
    cell = 0 if _work(rounds, b, k, 0) <= _WORK else block
    return _Maxima(rounds, b, k, cell, read_only, decay, scale).solve()


def _offsets(b: int, k: int, cell: int) -> Indices:
    residues = np.unique(np.arange(k + 1) * b % (1 << cell))
    return np.flatnonzero(np.isin(np.arange(b) % (1 << cell), residues)).astype(np.int64)


def _work(rounds: int, b: int, k: int, cell: int) -> float:
    width = float(len(_offsets(b, k, cell)))
    total = 0.0
    for height in range(b.bit_length() - 1, rounds.bit_length() - 2):
        most = min(k, -(-(1 << height) // b)) + 1
        total += most * most * width**3
    return total


class _Maxima:
    """K_h as arrays of shape (participations, first offset, offset left for the next one)."""

    def __init__(self, rounds: int, b: int, k: int, cell: int, read_only: bool, decay: float, scale: Floats) -> None:
        self.rounds, self.b, self.k, self.cell, self.read_only = rounds, b, k, cell, read_only
        self.decay, self.scale = decay, scale
        self.block = b.bit_length() - 1
        self.offsets = _offsets(b, k, cell)
        spaced = np.concatenate([[0.0], np.cumsum(np.power(decay, float(b) * np.arange(k)))])
        # Offsets are positions only where cell = 0; pushed participations do not tell the distance from the end.
        late = np.power(decay, (b - 1 - self.offsets).astype(float)) if cell == 0 else np.ones(len(self.offsets))
        self.own = np.square(spaced[:, None] * late[None, :])

    def solve(self) -> float:
        top = self.rounds.bit_length() - 1
        tables = {self.block: self._single()}
        for height in range(self.block, top - 1):
            tables[height + 1] = self._children(tables[height], height, slice(None))
        if top == self.block:
            state = tables[top][:, :1]
        else:
            state = self._children(tables[top - 1], top - 1, slice(0, 1))
        state = self._owned(state, top)
        for height in range(top - 1, self.block - 1, -1):
            if self.rounds >> height & 1:
                state = self._join(state, self._owned(tables[height], height))
        return self._tail(state[:, 0])

    def _children(self, table: Floats, height: int, first: slice) -> Floats:
        """Join two nodes of one height that stand next to each other; the right one is never read."""
        owned = self._owned(table, height)
        return self._join(owned[:, first], table if self.read_only else owned)

    def _owned(self, table: Floats, height: int) -> Floats:
        """Add what the nodes themselves cost."""
        owned: Floats = table + self.own[: len(table), None, :] / self.scale[height] ** 2
        return owned

    def _single(self) -> Floats:
        """Return K for nodes of 2^block <= b rounds: none or one participation."""
        size, offsets = 1 << self.block, self.offsets
        worth = self._worth(np.arange(size), size, self.block)
        table = np.full((2, len(offsets), len(offsets)), _NEVER)
        table[0][np.maximum(offsets - size, 0)[:, None] <= offsets[None, :]] = 0.0
        latest = np.minimum(offsets + size - self.b, size - 1)
        earliest = np.concatenate([[0], latest[:-1] + 1])  # each column holds only its positions
        if self.cell:
            earliest[:] = 0
        for j, (lo, hi) in enumerate(zip(earliest, latest, strict=True)):
            if hi >= lo:
                from_here = np.maximum.accumulate(worth[lo : hi + 1][::-1])[::-1]
                firsts = offsets[offsets <= hi]
                table[1, : len(firsts), j] = from_here[np.maximum(firsts - lo, 0)]
        return table[: self.k + 1]

    def _worth(self, at: Indices, end: int, heights: int) -> Floats:
        """Return what nodes of height < `heights`, closed by `end`, charge for one participation at offset `at`."""
        total = np.zeros(len(at))
        for height in range(heights):
            index = at >> height
            charged = (index + 1) << height <= end
            weight = np.ones(len(at))
            if height >= self.cell:
                weight = np.power(self.decay, (((index + 1) << height) - 1 - at).astype(float))
                if self.read_only:
                    charged &= index % 2 == 0
            total += np.where(charged, np.square(weight / self.scale[height]), 0.0)
        return total

    def _join(self, left: Floats, right: Floats) -> Floats:
        """Return the max-plus product: `left` participations before, `right` ones after, at most k together."""
        counts = min(self.k + 1, len(left) + len(right) - 1)
        joined = np.full((counts, left.shape[1], right.shape[2]), _NEVER)
        free = np.maximum.accumulate(left, axis=2)  # a next round that may come early may also come late
        for before in range(min(len(left), counts)):
            room = min(len(right), counts - before)
            view = joined[before : before + room]
            for i in range(len(self.offsets)):
                column = free[before, :, i]
                if np.isfinite(column).any():
                    np.maximum(view, column[None, :, None] + right[:room, i][:, None, :], out=view)
        return joined

    def _tail(self, state: Floats) -> float:
        """Add the last rounds: fewer than a block, so they hold at most one participation."""
        best = float(state.max())
        length = self.rounds & ((1 << self.block) - 1)
        if length == 0 or self.k == 0:
            return best
        worth = self._worth(np.arange(length), length, self.block)
        later = np.maximum.accumulate(worth[::-1])[::-1]
        room = self.offsets < length
        return max(best, float((state[: self.k, room] + later[self.offsets[room]]).max()))


def node_norms(
    patterns: Sequence[Sequence[int]], rounds: int, *, read_only: bool, decay: float = 1.0, scale: Floats | None = None
) -> Floats:
    """Return ||sum of C's columns|| for each pattern, for many users at once, in O(log rounds) passes.

    C has a row for each (read) node that closes by round `rounds`, with entries decay^(last - t) /
    scale[height] at the node's rounds t.

    Args:
        patterns: increasing rounds from 0. Rounds at or after `rounds` are not released and contribute
            nothing.
        rounds: how many rounds are released.
        read_only: only the nodes that a prefix sum reads.
        decay: 1 for a plain count.
        scale: positive, shape (heights,); None for all ones.

    Returns:
        Shape (len(patterns),).

    Raises:
        BadInput: a pattern is not increasing from 0.
    """
    sizes = np.array([len(pattern) for pattern in patterns], dtype=np.int64)
    taken = np.concatenate([np.asarray(pattern, dtype=np.int64) for pattern in patterns]) if sizes.sum() else sizes[:0]
    users = np.repeat(np.arange(len(patterns)), sizes)
    wrong = taken < 0
    wrong[1:] |= (np.diff(taken) <= 0) & (np.diff(users) == 0)
    if wrong.any():
        require_increasing(patterns[int(users[np.argmax(wrong)])])  # raises
    taken, users = taken[taken < rounds], users[taken < rounds]
    total = np.zeros(len(patterns))
    for height in range(rounds.bit_length()):
        index = taken >> height
        inside = (index + 1) << height <= rounds
        if read_only:
            inside &= index % 2 == 0
        node, user = index[inside], users[inside]
        if not len(node):
            continue
        weight = np.power(decay, ((node + 1) << height) - 1 - taken[inside])
        starts = np.flatnonzero(np.concatenate([[True], (np.diff(node) != 0) | (np.diff(user) != 0)]))
        summed = np.add.reduceat(weight, starts)
        if scale is not None:
            summed = summed / scale[height]
        total += np.bincount(user[starts], np.square(summed), minlength=len(patterns))
    return np.asarray(np.sqrt(total), dtype=np.float64)


def column_norms(rounds: int, *, read_only: bool, decay: float = 1.0, scale: Floats | None = None) -> Floats:
    """Return ||column t of C||, t < rounds, for the C of `node_norms`: shape (rounds,).

    Args:
        rounds: nodes that close by this round count.
        read_only: whether C has the nodes alone that a prefix sum reads.
        decay: as in `node_norms`.
        scale: standard deviation of a node's noise by height, shape (heights,); None: 1 for all.
    """
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
