"""A clock that tests set: it stands for the ledger's clock and for all that a run waits by."""

from __future__ import annotations

import functools

import pytest

from fieldfare_server.ledger import Ledger
from fieldfare_server.run.presence import counts, identity, patience, presence, replies, roster


class FakeClock:
    """Seconds since 1970. Every look at it takes a moment, as work does between two looks."""

    def __init__(self, start: float, look: float = 1e-3) -> None:
        self.now, self._look = start, look

    def __call__(self) -> float:
        self.now += self._look
        return self.now

    def pass_seconds(self, seconds: float) -> None:
        """Let time pass: a node trains, a coordinator sleeps."""
        self.now += seconds

    monotonic, sleep = __call__, pass_seconds
    """In the place of the module `time`."""

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Let every ledger that is opened from now on, and all that runs wait for, go by this clock."""
        for module in (counts, identity, patience, presence, replies, roster):
            patch.setattr(module, "time", self)
        patch.setattr(Ledger, "open", functools.partial(Ledger.open, clock=self))
