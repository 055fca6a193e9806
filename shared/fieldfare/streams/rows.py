"""Running noise of any lower-triangular B, given row by row: with all of z in memory, or drawn again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Unpack

import numpy as np

from fieldfare.errors import BadInput
from fieldfare.streams.chunked import ChunkedStream, Piece, Rule, Settings, require_vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fieldfare.noise import SecureNoise

Rows = Callable[[int], "NDArray[np.float64]"]
"""`rows(t)`: row t's coefficients of z_0 .. z_t, shape (t + 1,), within a block."""


class MemoryStream(ChunkedStream):
    """Any lower-triangular B, from memory: keeps every row of z since the last restart.

    That is min(horizon, restart_every) vectors. `identity`: the bytes that tell this B from another.
    """

    name = "memory"
    draws_in_place = True

    def __init__(
        self,
        numel: int,
        noise: SecureNoise,
        horizon: int,
        rows: Rows,
        *,
        identity: bytes = b"",
        **settings: Unpack[Settings],
    ) -> None:
        self._rows = rows
        slots = min(horizon, settings.get("restart_every") or horizon)
        super().__init__(numel, noise, horizon, slots=slots, coefficients=identity, **settings)

    def _rule(self, t: int, age: int) -> Rule:
        ops = self._ops
        own, past = _split_row(self._rows, age)

        def apply(piece: Piece) -> None:
            _, _, out, kept = piece
            kept[age] = out
            ops.scale(out, own)
            for i, weight in past:
                ops.axpy(out, weight, kept[i])

        return apply


class ReplayStream(ChunkedStream):
    """The same numbers as `MemoryStream`, bit for bit, without its memory: draws past rows of z again from the key.

    Needs O(numel) memory, and a draw for every non-zero coefficient of row t.
    """

    name = "replay"

    def __init__(
        self,
        numel: int,
        noise: SecureNoise,
        horizon: int,
        rows: Rows,
        *,
        identity: bytes = b"",
        **settings: Unpack[Settings],
    ) -> None:
        self._rows = rows
        super().__init__(numel, noise, horizon, coefficients=identity, **settings)

    def _replay_from(self, t: int) -> int:
        return t

    def _rule(self, t: int, age: int) -> Rule:
        ops = self._ops
        own, past = _split_row(self._rows, age)
        drawn = [(weight, self._noise.drawer("z", t - age + i, 0, self.numel)) for i, weight in past]

        def apply(piece: Piece) -> None:
            lo, z, out, _ = piece
            out[:] = z
            ops.scale(out, own)
            for weight, drawer in drawn:
                ops.draw(drawer, z, lo)
                ops.axpy(out, weight, z)

        return apply


def _split_row(rows: Rows, t: int) -> tuple[float, list[tuple[int, float]]]:
    """Row t: the coefficient of z_t, and (i, coefficient of z_i) for those before it that are not 0, latest first."""
    row = require_vector(f"row {t} of B", rows(t), t + 1)
    if len(row) != t + 1:
        raise BadInput(f"row {t} of B with {len(row)} coefficients", "B is lower-triangular.", str(t + 1))
    own, *past = row[::-1].tolist()
    return own, [(t - lag, weight) for lag, weight in enumerate(past, start=1) if weight != 0]
