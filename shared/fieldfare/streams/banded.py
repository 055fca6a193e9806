"""Running noise of banded B, and of the inverse of banded C: a ring of the last p - 1 rows."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from fieldfare.errors import OutOfRange
from fieldfare.noise import SecureNoise
from fieldfare.streams.chunked import ChunkedStream, Rule, StreamSettings, require_vector
from fieldfare.streams.kept import RING_WIDTH
from fieldfare.streams.ops import Array, Vector


class WindowStream(ChunkedStream):
    """Banded B: row t is sum_{i < p} beta_i z_{t-i}, `beta` shape (p,). Keeps the last p - 1 rows of z."""

    name = "window"
    width = RING_WIDTH

    def __init__(
        self, numel: int, noise: SecureNoise, horizon: int, beta: Vector, **settings: Unpack[StreamSettings]
    ) -> None:
        self._beta = require_vector("beta", beta, 1)[:horizon]
        self.draws_in_place = len(self._beta) == 1
        super().__init__(
            numel, noise, horizon, slots=len(self._beta) - 1, coefficients=self._beta.tobytes(), **settings
        )

    def _replay_from(self, t: int) -> int:
        return max(0, t - self.slots)

    def _rule(self, t: int, age: int) -> Rule:
        ops, slots, first, weights = self._ops, self.slots, float(self._beta[0]), _by_slot(self._beta, t)

        def apply(lo: int, z: Array, out: Array, kept: Array) -> None:
            if slots == 0:  # `out` is `z`
                if first != 1:
                    out *= first
                return
            ops.combine(out, z if first == 1 else z * first, weights, kept)
            kept[t % slots] = z

        return apply


class InverseBandStream(ChunkedStream):
    """B = C^-1 for banded C: solves C y = z row by row, y_t = (z_t - sum_{0<i<p} c_i y_{t-i}) / c_0.

    Keeps the last p - 1 rows of y. `skip` replays every round since the last restart: y is a recursion.

    Args:
        c: first column of C, shape (p,); c_0 is not 0.
        column_norms: shape (horizon,), or (restart_every,) when stamped. C's columns are divided by these
            numbers: row t is column_norms[t] y_t. None: all ones.
    """

    name = "inverse-band"
    width = RING_WIDTH

    def __init__(
        self,
        numel: int,
        noise: SecureNoise,
        horizon: int,
        c: Vector,
        *,
        column_norms: Vector | None = None,
        **settings: Unpack[StreamSettings],
    ) -> None:
        self._c = require_vector("c", c, 1)[:horizon]
        if self._c[0] == 0:
            raise OutOfRange("c[0] = 0", "makes C singular.", "1")
        block = min(horizon, settings.get("restart_every") or horizon)
        self._norms = None if column_norms is None else require_vector("column_norms", column_norms, block)
        coefficients = self._c.tobytes() + (b"" if self._norms is None else self._norms.tobytes())
        super().__init__(numel, noise, horizon, slots=len(self._c) - 1, coefficients=coefficients, **settings)

    def _rule(self, t: int, age: int) -> Rule:
        ops, slots, first, weights = self._ops, self.slots, float(self._c[0]), -_by_slot(self._c, t)
        norm = None if self._norms is None else float(self._norms[age])

        def apply(lo: int, z: Array, out: Array, kept: Array) -> None:
            if slots:
                ops.combine(out, z, weights, kept)
            else:
                out[:] = z
            if first != 1:
                out /= first
            if slots:
                kept[t % slots] = out  # before it is scaled: the recursion is in y
            if norm is not None:
                ops.scale(out, norm)

        return apply


def _by_slot(coefficients: Vector, t: int) -> Vector:
    """Return coefficients of lags 1 .. p by the ring's slots: lag i in slot (t - i) mod p. Unused ones hold zeros."""
    # The ring is never rotated: the weights turn instead, which costs p numbers and not p vectors.
    p = len(coefficients) - 1
    out = np.empty(p)
    lags = np.arange(1, p + 1)
    out[(t - lags) % max(p, 1)] = coefficients[1:]
    return out
