"""Running noise of any lower-triangular B, given row by row: with all of z in memory, or drawn again."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Unpack

from fieldfare.errors import WrongForm
from fieldfare.noise import CHUNK, SecureNoise
from fieldfare.streams.chunked import ChunkedStream, Rule, StreamSettings, require_vector
from fieldfare.streams.ops import Array, Vector

# `rows(t)`: row t's coefficients of z_0 .. z_t, shape (t + 1,), within a block.
Rows = Callable[[int], Vector]


class _RowStream(ChunkedStream):
    """A stream of B given by `rows`; `identity` tells this B from another."""

    keeps_past: ClassVar[bool]

    def __init__(
        self,
        numel: int,
        noise: SecureNoise,
        horizon: int,
        rows: Rows,
        *,
        identity: bytes = b"",
        **settings: Unpack[StreamSettings],
    ) -> None:
        self._rows = rows
        slots = min(horizon, settings.get("restart_every") or horizon) if self.keeps_past else 0
        super().__init__(numel, noise, horizon, slots=slots, coefficients=identity, **settings)


class MemoryStream(_RowStream):
    """Keeps every row of z since the last restart: min(horizon, restart_every) vectors."""

    name = "memory"
    keeps_past = True
    draws_in_place = True

    def _rule(self, t: int, age: int) -> Rule:
        ops = self._ops
        own, past = _split_row(self._rows, age)

        def apply(lo: int, z: Array, out: Array, kept: Array) -> None:
            kept[age] = out
            ops.scale(out, own)
            for i, weight in past:
                ops.axpy(out, weight, kept[i])

        return apply


class ReplayStream(_RowStream):
    """The numbers of `MemoryStream`, bit for bit, without its memory: draws past rows of z again from the
    key.

    That is a draw for every non-zero coefficient of row t.
    """

    name = "replay"
    keeps_past = False
    width = CHUNK  # its rule draws

    def _replay_from(self, t: int) -> int:
        return t

    def _rule(self, t: int, age: int) -> Rule:
        ops = self._ops
        own, past = _split_row(self._rows, age)
        drawers = [(weight, self._noise.drawer("z", t - age + i, 0, self.numel)) for i, weight in past]

        def apply(lo: int, z: Array, out: Array, kept: Array) -> None:
            out[:] = z
            ops.scale(out, own)
            for weight, drawer in drawers:
                ops.draw(drawer, z, lo)
                ops.axpy(out, weight, z)

        return apply


def _split_row(rows: Rows, t: int) -> tuple[float, list[tuple[int, float]]]:
    """Return the row t: the coefficient of z_t, and (i, coefficient of z_i) for those before it that are not
    0, latest first.
    """
    row = require_vector(f"row {t} of B", rows(t), t + 1)
    if len(row) != t + 1:
        raise WrongForm(f"row {t} of B with {len(row)} coefficients", "B is lower-triangular.", str(t + 1))
    own, *past = row[::-1].tolist()
    return own, [(t - lag, weight) for lag, weight in enumerate(past, start=1) if weight != 0]
