"""The scheduled times of a run where presence is secret: the only times of that run which the ledger holds.

How long a round takes tells how many users it had, which is the secret of that adjacency. The run therefore acts at
start + k x seconds, k = 0, 1, 2, ..., and whatever is stored of it has the newest of those times that has passed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from sqlalchemy import Row


@dataclass(frozen=True)
class Schedule:
    """The times start + k x seconds. Both are public: the plan names `seconds`, and a person chooses the start."""

    start: float  # when the run was admitted, in seconds since 1970
    seconds: float

    @classmethod
    def of(cls, run: Row[Any]) -> Self | None:
        """Return the schedule of a row of `runs`: its plan's `run.round_seconds`; None where the plan names none."""
        plan = json.loads(run.plan)
        table = plan.get("run") if isinstance(plan, Mapping) else None
        seconds = table.get("round_seconds") if isinstance(table, Mapping) else None
        return None if seconds is None else cls(run.started_at, float(seconds))

    def latest(self, now: float) -> float:
        """Return the newest scheduled time up to `now`; the start for an earlier `now` (a clock was set back)."""
        return self._time(max(0, self._number(now)))

    def following(self, now: float) -> float:
        """Return the first scheduled time after `now`; before the start as if times went back from it."""
        return self._time(self._number(now) + 1)

    def _number(self, now: float) -> int:
        number = math.floor((now - self.start) / self.seconds)
        # The quotient is rounded: at a scheduled time itself it may lie on the wrong side of the whole number.
        while self._time(number) > now:
            number -= 1
        while self._time(number + 1) <= now:
            number += 1
        return number

    def _time(self, number: int) -> float:
        return self.start + number * self.seconds


def scheduled(run: Row[object], now: float) -> float:
    """Return `now` as it may be stored of `run`, a row: its newest scheduled time; without a schedule `now`."""
    schedule = Schedule.of(run)
    return now if schedule is None else schedule.latest(now)
