"""A thread that keeps a run's lease while its coordinator is busy: privatising and scoring a large model takes longer
than a lease lasts.

It is safe without this: a coordinator that was taken over can write nothing more. But its work would be lost, and a
round that always takes too long would never be committed. A dead process has no threads, so its lease runs out as
before. One that hangs is given up too: the heart beats only for so long after the last sign of the session itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from fieldfare.errors import LedgerError

log = logging.getLogger("fieldfare.heart")

LONGEST = 3600.0
"""Seconds without a sign of the session after which it counts as hung, and its lease is left to run out."""


class LeaseKeeper:
    """Calls `beat` every `every` seconds from `start` until `stop`; `alive` is the session's own sign of life."""

    def __init__(self, beat: Callable[[], None], every: float, longest: float = LONGEST) -> None:
        """beat: may raise `LedgerError`, which is logged and tried again: the session's next write will meet it too."""
        self._beat, self._every, self._longest = beat, every, longest
        self._stopped = threading.Event()
        self._alive_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="fieldfare-heart", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def alive(self) -> None:
        """The session gets on."""
        self._alive_at = time.monotonic()

    def stop(self) -> None:
        """Beat no more once this returns. Calling it again does nothing."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._every):
            if time.monotonic() - self._alive_at > self._longest:
                log.error("no sign of the session for %.0f s: its lease is left to run out", self._longest)
                return
            try:
                self._beat()
            except LedgerError as error:
                log.warning("the lease could not be renewed: %s", error)
