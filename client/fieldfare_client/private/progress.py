"""How far a node is: lines in its own log, never a message."""

from __future__ import annotations

import logging
import time

log = logging.getLogger("fieldfare.client")

SECONDS = 10.0
SHARE = 0.1


class Progress:
    """Counts trained users; logs a line where both 10 s and a tenth of the users have passed since the last one."""

    def __init__(self, users: int) -> None:
        self._users, self._done = users, 0
        self._began = self._last_time = time.monotonic()
        self._last_done = 0

    def count(self) -> None:
        """Count one more user who is done."""
        self._done += 1
        now = time.monotonic()
        late = now - self._last_time >= SECONDS and self._done - self._last_done >= SHARE * self._users
        if late or self._done == self._users:
            self._last_time, self._last_done = now, self._done
            log.info("trained %d of %d users in %.1f s", self._done, self._users, now - self._began)
