"""Running noise of binary trees: at most floor(log2 T) vectors of state, one new one a round.

Before round t the open nodes are those of t's binary expansion. Round t closes nodes up to height h = trailing ones of
t; its largest replaces the h open ones below it, and the prefix sum changes by exactly that: no running sum is kept, so
nothing drifts. A node that no later round replaces (the top ones) is not stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fieldfare.errors import BadInput
from fieldfare.factorization.dyadic import height_of, node_count
from fieldfare.streams.chunked import ChunkedStream, Ops, Span

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fieldfare.noise import Drawer, SecureNoise


def stored_heights(rounds: int) -> int:
    """Vectors a tree stream keeps: a node of height h is needed again only if 2^(h+1) <= rounds."""
    return rounds.bit_length() - 1


class ReadNodesStream(ChunkedStream):
    """Trees of read nodes: row t of B z is scale_h z_h - sum_{l < h} carry_l z_l.

    h is the height of the node that closes in round t and z_l the open node of height l. `scale`, shape (heights,), is
    the node's noise; `carry`, shape (heights,), what is taken back of a replaced node. Both 1: the plain tree. With
    `all_rows` the rows of z are numbered as those of the tree of all nodes (only the read ones are drawn).
    `skip` costs popcount(t) draws.
    """

    name = "read-nodes"

    def __init__(
        self,
        numel: int,
        noise: SecureNoise,
        horizon: int,
        scale: NDArray[np.float64],
        carry: NDArray[np.float64],
        *,
        all_rows: bool = False,
        **settings: Any,
    ) -> None:
        if settings.get("restart_every") is not None:
            raise BadInput("restart_every", "is not this stream's: stamp the mechanism.", "stamped(...)")
        self._scale, self._carry, self._all_rows = scale, carry, all_rows
        self.slots = stored_heights(horizon)
        about = scale.tobytes() + carry.tobytes() + bytes([all_rows])
        super().__init__(numel, noise, horizon, coefficients=about, **settings)

    def _row_of(self, t: int) -> int:
        return node_count(t) + height_of(t + 1) if self._all_rows else t

    def skip(self, t: int) -> None:
        """Go to row t from the key alone: the open nodes are drawn again."""
        if not 0 <= t <= self.horizon:
            raise BadInput(f"skip to round {t}", f"must be in [0, {self.horizon}].", str(min(max(t, 0), self.horizon)))
        self.round = t
        for height in range(self.slots):
            if t >> height & 1:
                last = (t >> height << height) - 1
                self._draw_kept(height, self._row_of(last))

    def _chunk(self, t: int, age: int, out: Span, z: Span, buffers: Span, ops: Ops, lo: int) -> None:
        height = height_of(t + 1)
        out[:] = z
        if height < self.slots:
            buffers[height] = z
        if self._scale[height] != 1.0:
            ops.scale(out, float(self._scale[height]))
        for below in range(height):
            if self._carry[below] == 1.0:
                out -= buffers[below]
            else:
                ops.axpy(out, -float(self._carry[below]), buffers[below])


class OnlineTreeStream(ChunkedStream):
    """Honaker's online estimator: every node is estimated from itself and the nodes below it.

    Rows of z are numbered by node, in order of closing and then of size. Two draws a round on average. `skip` draws
    every node again since the last stored root closed: O(t) draws.
    """

    name = "online-tree"

    def __init__(self, numel: int, noise: SecureNoise, horizon: int, **settings: Any) -> None:
        if settings.get("restart_every") is not None:
            raise BadInput("restart_every", "is not this stream's: stamp the mechanism.", "stamped(...)")
        self.slots = stored_heights(horizon)
        self._above: list[Drawer] = []
        super().__init__(numel, noise, horizon, **settings)

    def _row_of(self, t: int) -> int:
        return node_count(t)

    def _replay_from(self, t: int) -> int:
        return t >> self.slots << self.slots

    def _before(self, t: int, age: int) -> None:
        leaf, height = self._row_of(t), height_of(t + 1)
        self._above = [self._noise.drawer("z", leaf + h, 0, self.numel) for h in range(1, height + 1)]

    def _chunk(self, t: int, age: int, out: Span, z: Span, buffers: Span, ops: Ops, lo: int) -> None:
        height = len(self._above)
        out[:] = z
        for h, draw in enumerate(self._above, start=1):
            weight = own_weight(h)
            out += buffers[h - 1]
            out *= 1.0 - weight
            ops.draw(draw, z, lo)
            ops.axpy(out, weight, z)
        if height < self.slots:
            buffers[height] = out
        for below in range(height):
            out -= buffers[below]


def variance(height: int) -> float:
    """Of a node's estimate: 1 / (2 - 2^-height).

    The estimates of its children, each of variance v, add to variance 2 v; the best mean of that and of variance 1 has
    weight 2 v / (1 + 2 v) and variance the same (Honaker 2015; Kairouz et al. 2021, "Practical and Private (Deep)
    Learning Without Sampling or Shuffling", section 4).
    """
    return 1.0 / (2.0 - 2.0**-height)


def own_weight(height: int) -> float:
    """Weight of a node's own noisy value in its estimate: `variance`, to the nearest float32.

    1 - weight is then one too, so a float32 stream applies both as they are charged. Any weight keeps estimates
    unbiased (B C = I), and this close to the best one the variance is the same to 1e-14.
    """
    return float(np.float32(variance(height)))
