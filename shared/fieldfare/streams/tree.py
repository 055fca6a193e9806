"""Running noise of binary trees: at most floor(log2 T) vectors of state, one new one a round.

Before round t the open nodes are those of t's binary expansion. Round t closes nodes up to height h, the
number of trailing ones of t. The largest of them replaces the h open nodes below it, and the prefix sum
changes by exactly that difference: no running sum is kept, so nothing drifts. A node that no later round
replaces (at the top) is not stored.
"""

from __future__ import annotations

from typing import Unpack

import numpy as np

from fieldfare.errors import Unsupported
from fieldfare.factorization.dyadic import height_of, node_count
from fieldfare.noise import CHUNK, SecureNoise
from fieldfare.noise.chunks import empty
from fieldfare.streams.chunked import ChunkedStream, Rule, StreamSettings
from fieldfare.streams.ops import Array, Vector


def stored_heights(rounds: int) -> int:
    """Return how many vectors a tree stream keeps: a node of height h is needed again only if 2^(h+1) <= rounds."""
    return rounds.bit_length() - 1


class ReadNodesStream(ChunkedStream):
    """Trees of read nodes: row t of B z is scale_h z_h - sum_{l < h} carry_l z_l.

    h is the height of the node that closes in round t and z_l the open node of height l. With `scale` and
    `carry` all ones this is the plain tree. `skip` costs popcount(t) draws.

    Args:
        scale: shape (heights,), the noise of a node.
        carry: shape (heights,), what is taken back of a replaced node.
        all_rows: number the rows of z as those of the tree of all nodes (only the read ones are drawn).
    """

    name = "read-nodes"
    draws_in_place = True

    def __init__(
        self,
        numel: int,
        noise: SecureNoise,
        horizon: int,
        scale: Vector,
        carry: Vector,
        *,
        all_rows: bool = False,
        **settings: Unpack[StreamSettings],
    ) -> None:
        _refuse_restart(settings)
        self._scale, self._carry, self._all_rows = scale, carry, all_rows
        coefficients = scale.tobytes() + carry.tobytes() + bytes([all_rows])
        super().__init__(numel, noise, horizon, slots=stored_heights(horizon), coefficients=coefficients, **settings)

    def _noise_row(self, t: int) -> int:
        # Of the nodes that close in round t only the largest is read, and it is the last to be numbered.
        return node_count(t) + height_of(t + 1) if self._all_rows else t

    def replayed_rows(self, t: int) -> int:
        """Count one row for each open node that is stored."""
        return (t & ((1 << self.slots) - 1)).bit_count()

    def skip(self, t: int) -> None:
        """Go to row t from the key alone: draw its open nodes again. Raises `BadInput` unless 0 <= t <= horizon."""
        self._require_target(t)
        # The open nodes after t rounds are the binary digits of t: one node of 2^h leaves for each digit 1.
        self.round = t
        for height in range(self.slots):
            if t >> height & 1:
                closed_in = (t >> height << height) - 1
                node = empty(self.numel, self.dtype, self.device)
                self._kept.write_slot(height, self._noise.normal_(node, row=self._noise_row(closed_in)))

    def _rule(self, t: int, age: int) -> Rule:
        ops, height, stored = self._ops, height_of(t + 1), self.slots
        scale, carry = float(self._scale[height]), self._carry[:height].tolist()

        def apply(lo: int, z: Array, out: Array, kept: Array) -> None:
            if height < stored:
                kept[height] = out
            if scale != 1.0:
                ops.scale(out, scale)
            for below, share in enumerate(carry):
                if share == 1.0:
                    out -= kept[below]
                else:
                    ops.axpy(out, -share, kept[below])

        return apply


class OnlineTreeStream(ChunkedStream):
    """Honaker's online estimator: every node is estimated from itself and the nodes below it.

    Rows of z are numbered by node, in order of closing and then of size. Two draws a round on average. `skip`
    draws every node again since the last stored root closed: O(t) draws.
    """

    name = "online-tree"
    width = CHUNK  # its rule draws

    def __init__(self, numel: int, noise: SecureNoise, horizon: int, **settings: Unpack[StreamSettings]) -> None:
        _refuse_restart(settings)
        super().__init__(numel, noise, horizon, slots=stored_heights(horizon), **settings)

    def _noise_row(self, t: int) -> int:
        return node_count(t)

    def _replay_from(self, t: int) -> int:
        return t >> self.slots << self.slots

    def _rule(self, t: int, age: int) -> Rule:
        ops, height, leaf, stored = self._ops, height_of(t + 1), self._noise_row(t), self.slots
        ancestors = [(own_weight(h), self._noise.drawer("z", leaf + h, 0, self.numel)) for h in range(1, height + 1)]

        def apply(lo: int, z: Array, out: Array, kept: Array) -> None:
            out[:] = z
            for below, (weight, drawer) in enumerate(ancestors):
                # The estimate of a node: its left child's (kept), plus its right child's (out), and its own value.
                out += kept[below]
                out *= 1.0 - weight
                ops.draw(drawer, z, lo)
                ops.axpy(out, weight, z)
            if height < stored:
                kept[height] = out
            for below in range(height):
                out -= kept[below]

        return apply


def _refuse_restart(settings: StreamSettings) -> None:
    if settings.get("restart_every") is not None:
        raise Unsupported("restart_every", "is not this stream's: stamp the mechanism.", "stamped(...)")


def variance(height: int) -> float:
    """Return the variance of a node's estimate: 1 / (2 - 2^-height).

    The estimates of its children, each of variance v, add to variance 2 v. The best mean of that and of
    variance 1 has weight 2 v / (1 + 2 v) and the same number as its variance (Honaker 2015; Kairouz et al.
    2021, "Practical and Private (Deep) Learning Without Sampling or Shuffling", section 4).
    """
    return 1.0 / (2.0 - 2.0**-height)


def own_weight(height: int) -> float:
    """Return the weight of a node's own noisy value in its estimate: `variance`, to the nearest float32.

    1 - weight is a float32 too, so a float32 stream applies both as they are charged. Any weight keeps
    estimates unbiased (B C = I), and this close to the best one the variance is the same to 1e-14.
    """
    return float(np.float32(variance(height)))
