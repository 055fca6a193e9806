"""Resume runs that nobody holds: Flower does not restart a ServerApp that died.

The ledger decides. A run is an orphan when its lease was given back or its holder has been silent for too long; a
resume that comes too early, twice, or beside a coordinator that lives after all is refused by the lease and does no
harm. A run that fails again and again without committing a round is left to people.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fieldfare.errors import FieldfareError
from fieldfare_flower import logs
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.views import RunView

log = logging.getLogger("fieldfare.supervisor")

FIRST_PAUSE = 45.0
"""Seconds that a submitted resume gets to take the lease before it is submitted again."""
LONGEST_PAUSE = 600.0
MOST_ATTEMPTS = 6
"""Resumes without a committed round after which a run is left to people."""


@dataclass
class _Watched:
    round: int
    attempts: int = 0
    """Resumes that were handed over."""
    failures: int = 0
    """Hand-overs that failed since the last one that did not."""
    next_at: float = 0.0


class Supervisor:
    """Call `look` now and then with the runs that have not ended."""

    def __init__(self, resume: Callable[[RunView], None], clock: Callable[[], float] = time.monotonic) -> None:
        """resume: hands a run to the federation and returns at once; may raise `FieldfareError`."""
        self._resume, self._clock = resume, clock
        self._watched: dict[str, _Watched] = {}

    def look(self, runs: Iterable[RunView]) -> list[str]:
        """Resume what has to be resumed now; returns the runs for which that was tried."""
        tried = []
        current = {run.id: run for run in runs}
        self._watched = {run: seen for run, seen in self._watched.items() if run in current}
        for run in current.values():
            seen = self._watched.setdefault(run.id, _Watched(run.next_round))
            if run.next_round > seen.round:
                self._watched[run.id] = seen = _Watched(run.next_round)
            if run.state == "interrupted" and self._due(seen):
                with logs.about(run.id, run.next_round):
                    self._try(run, seen)
                tried.append(run.id)
        return tried

    def _due(self, seen: _Watched) -> bool:
        return seen.attempts < MOST_ATTEMPTS and self._clock() >= seen.next_at

    def _try(self, run: RunView, seen: _Watched) -> None:
        log.warning("run %s: nobody holds it at round %d of %d; resuming", run.id, run.next_round, run.rounds)
        try:
            self._resume(run)
        except FieldfareError as error:
            # Nobody took it, so nothing was tried: that says nothing against the run.
            seen.failures += 1
            self._pause(seen, seen.failures)
            log.error("run %s: could not be handed over: %s", run.id, error)
            return
        seen.failures = 0
        seen.attempts += 1
        self._pause(seen, seen.attempts)
        if seen.attempts == MOST_ATTEMPTS:
            log.error(
                "run %s: %d resumes without a committed round; after this one it is yours: fieldfare run --resume %s",
                run.id,
                seen.attempts,
                run.id,
            )

    def _pause(self, seen: _Watched, times: int) -> None:
        seen.next_at = self._clock() + min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(times - 1, 10))


def under_way(ledger: Ledger) -> list[RunView]:
    """All runs that have not ended."""
    found: list[RunView] = []
    cursor: int | None = 0
    while cursor is not None:
        page = ledger.runs(cursor=cursor or None, limit=200)
        found += [run for run in page.items if run.ended_at is None]
        cursor = page.next
    return found
