"""Which engine trains the next chunk, and how many users at once: decided by timing real chunks of the first round.

Nothing is computed twice for it: whichever engine trains a chunk, the chunk's sum counts. What was found is kept for
the process, by model, settings and the shape of the work, and never leaves it.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from fieldfare_client.training.engines import Engine

log = logging.getLogger("fieldfare.client")

CLEARLY = 0.9
TRIALS = 3
"""Timings of each candidate; the best one counts, because the first includes what is done only once."""


@dataclass(frozen=True)
class Candidate:
    """An engine, and how many users it trains at once."""

    engine: Engine
    users: int
    label: str


@dataclass
class Choice:
    """The candidates for one shape of work. With a single candidate there is nothing to time."""

    candidates: Sequence[Candidate]
    why: str
    seconds: dict[int, list[float]] = field(default_factory=dict)
    """Seconds a batch, by candidate."""
    _best: int | None = None

    def next(self) -> int:
        """The candidate for the next chunk."""
        if len(self.candidates) == 1:
            return 0
        if self._best is None:
            waiting = [i for i in range(len(self.candidates)) if len(self.seconds.get(i, ())) < TRIALS]
            if waiting:
                return min(waiting, key=lambda i: len(self.seconds.get(i, ())))
            self._settle()
        assert self._best is not None
        return self._best

    def record(self, candidate: int, seconds: float, batches: int) -> None:
        """What a chunk took."""
        if self._best is None and len(self.candidates) > 1 and batches:
            self.seconds.setdefault(candidate, []).append(seconds / batches)

    def drop(self, candidate: int, reason: str) -> None:
        """A candidate that cannot train this model after all: it is not asked again."""
        self.seconds[candidate] = [float("inf")] * TRIALS
        log.warning("training %s: not possible (%s)", self.candidates[candidate].label, reason)

    def _settle(self) -> None:
        took = {i: min(times) for i, times in self.seconds.items()}
        # The first candidate needs least memory and surprises least: another must be clearly faster.
        self._best = min(took, key=lambda i: took[i] * (CLEARLY if i == 0 else 1.0))
        said = ", ".join(f"{self.candidates[i].label} {1e3 * took[i]:.3g} ms" for i in sorted(took))
        self.why = f"fastest of the first chunks, per batch: {said}"
        log.info("training %s: %s", self.candidates[self._best].label, self.why)

    def __str__(self) -> str:
        if len(self.candidates) == 1:
            return f"{self.candidates[0].label}: {self.why}"
        if self._best is None:
            return "not decided yet: too few chunks have been timed"
        return f"{self.candidates[self._best].label}: {self.why}"


KNOWN: dict[Hashable, tuple[int, str]] = {}
"""Decisions of this process, by shape of work and labels of the candidates: (candidate, why)."""


def recall(choice: Choice, shape: Hashable) -> Choice:
    """`choice`, already decided if this process has decided it before."""
    known = KNOWN.get((shape, *(candidate.label for candidate in choice.candidates)))
    if known is not None:
        choice._best, choice.why = known
    return choice


def remember(choice: Choice, shape: Hashable) -> None:
    """Keep a decision for other trainers of the process."""
    if choice._best is not None:
        KNOWN[shape, *(candidate.label for candidate in choice.candidates)] = (choice._best, choice.why)
