"""A thread that keeps a run's lease while its coordinator is busy.

Privatising and scoring a large model may take longer than a lease lasts. A run is safe without this thread,
because a coordinator that was replaced cannot write any more; but its work would be lost, and a round that
always takes too long would never be committed. A dead process has no threads, so its lease runs out. A
session that hangs is given up too: the thread renews the lease only for a limited time after the session's
last sign of progress.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from fieldfare.errors import LedgerError

log = logging.getLogger("fieldfare.lease_keeper")

# Seconds without progress after which a session counts as hung, and its lease is left to run out.
LONGEST = 3600.0


class LeaseKeeper:
    """Renews a lease at regular intervals from `start` until `stop`."""

    def __init__(self, renew: Callable[[], None], every: float, longest: float = LONGEST) -> None:
        """every: seconds between renewals. longest: seconds without `note_progress` until the thread ends.

        A `LedgerError` of `renew` is logged and the call repeated: the session's next write meets the same
        error.
        """
        self._renew, self._every, self._longest = renew, every, longest
        self._stopped = threading.Event()
        self._progress_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="fieldfare-lease-keeper", daemon=True)

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    def note_progress(self) -> None:
        """Note that the session is alive and moving."""
        self._progress_at = time.monotonic()

    def stop(self) -> None:
        """End the renewals: after this returns, the lease is not renewed again. Calling it twice is harmless."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._every):
            if time.monotonic() - self._progress_at > self._longest:
                log.error("no progress of the session for %.0f s: its lease is left to run out", self._longest)
                return
            try:
                self._renew()
            except LedgerError as error:
                log.warning("the lease could not be renewed: %s", error)
