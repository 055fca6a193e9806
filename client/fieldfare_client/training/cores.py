"""`client.workers = "auto"`: one process or one a core, chosen by timing the rounds of this run.

Workers take time to start, and a small model loses more in handing its rounds over than they gain. So a
node trains alone for `PATIENCE` seconds in all, starts them while it goes on, and lets them train `TRIALS`
rounds once all are ready. They stay if they are clearly faster, by the wall clock; no round is trained twice.
Of nodes of one process, the time from the first one's beginning to the last one's end counts.
"""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass, field

from fieldfare.plan_tables import ClientSpec
from fieldfare.task import OBJECT
from fieldfare_client import forked
from fieldfare_client.shared_users import ray_job
from fieldfare_client.training.choice import CLEARLY, TRIALS

log = logging.getLogger("fieldfare.client")

# Seconds of training alone before workers are started: a shorter run is over before they would pay.
PATIENCE = 2.0
ROOM = 2**30  # bytes of sums, float64, on the RAM disk


def cores() -> int:
    """Return how many cores this process may use."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1_000_000
    return max(1, min(os.cpu_count() or 1, here))


def processes(client: ClientSpec, task: str, numbers: int = 1) -> int:
    """Return how many processes this machine trains `task` in: as many as the plan asks for, at most one a
    core.

    One where it could not be forked, unless the plan names a number and others can import the task; and in
    an actor of Ray, which has one for each core. Where the plan leaves it open, their sums fit into `ROOM`.

    numbers: of one process's sum.
    """
    if (client.workers == "auto" or task.startswith(OBJECT)) and (forked.why_not_by_default() or ray_job()):
        return 1
    if client.workers == "auto":
        return max(1, min(cores(), ROOM // (8 * numbers)))
    return min(client.workers, os.cpu_count() or 1)


@dataclass
class CoreChoice:
    """Whether rounds of one shape of work train in worker processes."""

    spent: float = 0.0  # seconds that rounds took which this process trained alone
    # Seconds a batch of the newest rounds that this process trained alone.
    alone: list[float] = field(default_factory=list)
    together: list[float] = field(default_factory=list)  # seconds a batch of the rounds that workers trained
    workers: bool | None = None  # the decision, once there is one
    why: str = "not decided yet: too few rounds have been timed"
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _under_way: int = 0
    _since: float = 0.0
    # Batches of the nodes whom workers have trained since `_since`, when none was under way.
    _batches: int = 0

    @property
    def wants_workers(self) -> bool:
        """Whether workers should be there by now: to be tried, or because they train."""
        return self.spent >= PATIENCE and len(self.alone) == TRIALS if self.workers is None else self.workers

    def record(self, together: bool, seconds: float, batches: int) -> None:
        """Note how long a round of `batches` batches took, in workers or alone."""
        if self.workers is not None or not batches:
            return
        if not together:
            self.spent += seconds
            self.alone = [*self.alone, seconds / batches][-TRIALS:]
            return
        self.together.append(seconds / batches)
        if len(self.together) == TRIALS:
            # The first round of the workers includes what is done only once.
            theirs, own = min(self.together[1:]), min(self.alone)
            self._settle(theirs < CLEARLY * own, f"{1e3 * theirs:.3g} ms a batch in workers, {1e3 * own:.3g} ms alone")

    def begin(self, now: float) -> None:
        """Note that a node's users begin to train in workers."""
        with self._lock:
            if not self._under_way:
                self._since, self._batches = now, 0
            self._under_way += 1

    def end(self, now: float, batches: int) -> None:
        """Note that a node's users have trained `batches` batches in workers; 0 where that failed."""
        with self._lock:
            self._under_way -= 1
            self._batches += batches
            if not self._under_way:
                self.record(True, now - self._since, self._batches)

    def give_up(self, why: str) -> None:
        """Train alone from now on: the workers failed."""
        self._settle(False, why)

    def _settle(self, workers: bool, why: str) -> None:
        self.workers, self.why = workers, why
        log.info("training in %s: %s", "worker processes" if workers else "one process", why)
