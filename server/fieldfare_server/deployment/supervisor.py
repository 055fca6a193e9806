"""Resume runs whose coordinator died: Flower does not restart a ServerApp.

The ledger decides. A run is an orphan when its lease was given back, or when its holder has been silent for
too long. A resume that comes too early, twice, or while the old coordinator still lives is refused by the
lease, and does no harm. A run that is resumed several times without committing a round is resumed once an
hour from then on, because a disk that is full, or a database that is read-only, has room again when a person
has looked at it; after a day it is left to the operator.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fieldfare.errors import FieldfareError
from fieldfare_flower import logs
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.holders import is_simulation
from fieldfare_server.ledger.views import RunView, every

log = logging.getLogger("fieldfare.supervisor")

# Seconds that a submitted resume has to take the lease before it is submitted again.
FIRST_PAUSE = 45.0
# Upper bound of that pause, which doubles with each attempt.
LONGEST_PAUSE = 600.0
# Resumes without a committed round after which the operator is told, and resumes follow once an hour.
QUICK_ATTEMPTS = 6
RARE_PAUSE = 3600.0
# Resumes without a committed round after which a run is left to the operator.
MOST_ATTEMPTS = QUICK_ATTEMPTS + 24


@dataclass
class _Watched:
    round: int
    attempts: int = 0  # resumes that the federation took
    failures: int = 0  # submissions in a row that failed
    next_at: float = 0.0  # the clock's time before which nothing is submitted


class Supervisor:
    """Resumes orphaned runs. Call `look` regularly with all runs that have not ended.

    Args:
        resume: submits a run to the federation and returns at once; may raise `FieldfareError` or OSError.
        clock: seconds that only increase.
    """

    def __init__(self, resume: Callable[[RunView], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._resume, self._clock = resume, clock
        self._watched: dict[str, _Watched] = {}

    def look(self, runs: Iterable[RunView]) -> list[str]:
        """Resume the orphans that are due; returns the ids of the runs for which that was tried."""
        tried = []
        # A simulation is one command on one machine: no federation has its users.
        current = {run.id: run for run in runs if not is_simulation(run.started_by)}
        self._watched = {run: watched for run, watched in self._watched.items() if run in current}
        for run in current.values():
            watched = self._watched.setdefault(run.id, _Watched(run.next_round))
            if run.next_round > watched.round:
                # A round was committed since: earlier attempts no longer count.
                self._watched[run.id] = watched = _Watched(run.next_round)
            is_due = watched.attempts < MOST_ATTEMPTS and self._clock() >= watched.next_at
            if run.state == "interrupted" and is_due:
                with logs.about(run.id, run.next_round):
                    self._submit(run, watched)
                tried.append(run.id)
        return tried

    def _submit(self, run: RunView, watched: _Watched) -> None:
        log.warning("run %s: no coordinator holds it at round %d of %d; resuming", run.id, run.next_round, run.rounds)
        try:
            self._resume(run)
        except (FieldfareError, OSError) as error:
            # The federation is away, or this machine's disk full, which says nothing against the run: the
            # attempt does not count.
            watched.failures += 1
            self._pause(watched, watched.failures)
            log.error("run %s: could not be submitted: %s", run.id, error)
            return
        watched.failures = 0
        watched.attempts += 1
        self._pause(watched, watched.attempts)
        if watched.attempts >= QUICK_ATTEMPTS:
            watched.next_at = self._clock() + RARE_PAUSE
            then = "no more are tried" if watched.attempts == MOST_ATTEMPTS else "the next is in an hour"
            log.error(
                "run %s: %d resumes without a committed round; %s: fieldfare run --resume %s",
                run.id,
                watched.attempts,
                then,
                run.id,
            )

    def _pause(self, watched: _Watched, times: int) -> None:
        # The exponent is bounded because a federation may be away for days.
        watched.next_at = self._clock() + min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(times - 1, 10))


def under_way(ledger: Ledger) -> list[RunView]:
    """Return all runs that have not ended."""
    return [run for run in every(ledger.runs) if run.ended_at is None]
