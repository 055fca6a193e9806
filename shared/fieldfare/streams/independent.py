"""Running noise of B = I."""

from __future__ import annotations

from fieldfare.streams.chunked import ChunkedStream, Rule


class IndependentStream(ChunkedStream):
    """B = I: fresh noise every round. No state."""

    name = "independent"
    draws_in_place = True

    def _replay_from(self, t: int) -> int:
        return t

    def _rule(self, t: int, age: int) -> Rule:
        return lambda lo, z, out, kept: None  # z is the row
