"""Wait for a run's scheduled times (`ledger.schedule`): where presence is secret nothing happens at another
time.

A round is opened and released at a scheduled time. How soon nodes answer, and how many there are, then shows
in no time that is stored, and in no time at which a row appears, as long as the answers are in before the
next scheduled time. A round that is late waits for the one after: that it was late is visible, and how late
it was is not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from fieldfare_server.ledger.schedule import Schedule

# Seconds between two heartbeats while waiting.
LONGEST_WAIT = 1.0


def await_scheduled(
    schedule: Schedule,
    clock: Callable[[], float],
    tick: Callable[[float], None],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until the first scheduled time after now. tick: called meanwhile, with the seconds that are left."""
    due = math.inf
    while True:
        now = clock()
        # A clock that is set back costs no more than one interval.
        due = min(due, schedule.following(now))
        if due <= now:
            return
        tick(due - now)
        sleep(max(0.0, min(due - clock(), LONGEST_WAIT)))
