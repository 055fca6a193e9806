"""How long a run waits for nodes that are away or fail, and how it spaces its attempts meanwhile.

A void round costs nothing but two journal rows and the nodes' work, so the first is repeated at once. Each
further one is preceded by a pause that doubles, up to `LONGEST_PAUSE`. A run that has committed a round has
spent budget: it waits `LONGEST_ABSENCE` for the next one before it stops, and no person is needed when its
nodes come back. A run without a committed round has spent nothing: it ends sooner, and says why to the person
who has just started it.

On a grid of this process no time brings nodes back: attempts follow at once, and their number alone decides.
"""

from __future__ import annotations

import time

# Seconds between looks for nodes that are not online yet.
NODE_POLL = 1.0
# Consecutive void rounds before a run stops (resumable) whose nodes no time brings back.
MOST_VOIDS = 20
FIRST_PAUSE = 1.0
# Seconds between two attempts at a round.
LONGEST_PAUSE = 300.0
# Seconds without a committed round after which a run stops (resumable) that has committed one.
LONGEST_ABSENCE = 86_400.0


class Patience:
    """Consecutive attempts at the next round that came to nothing, in this process.

    Args:
        waits: whether time may bring nodes back.
    """

    def __init__(self, waits: bool) -> None:
        self.waits = waits
        self.voids = 0
        self._since = time.monotonic()

    def note_commit(self) -> None:
        """Note that a round was committed."""
        self.voids, self._since = 0, time.monotonic()

    def note_void(self) -> None:
        """Note that an attempt came to nothing."""
        self.voids += 1

    @property
    def pause(self) -> float:
        """Seconds to wait before the next attempt."""
        if not self.waits or self.voids < 2:
            return 0.0
        return min(FIRST_PAUSE * 2.0 ** min(self.voids - 2, 30), LONGEST_PAUSE)

    def is_over(self, committed: bool) -> bool:
        """Return whether the run stops now. committed: whether it has committed a round."""
        if self.waits and committed:
            return self.voids > 0 and time.monotonic() - self._since >= LONGEST_ABSENCE
        return self.voids >= MOST_VOIDS
