"""Which engine trains the next chunk, and how many users at once: decided by timing chunks of the first round.

No chunk is trained twice for it: whichever engine trains a chunk, the chunk's sum counts. The decision is
kept for the process, by model, settings and the shape of the work, and never leaves it.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from fieldfare_client.training.engines import Engine

log = logging.getLogger("fieldfare.client")

CLEARLY = 0.9
# Timings of each candidate. The first includes what is done only once: the best of the others counts.
TRIALS = 3


@dataclass(frozen=True)
class Candidate:
    """An engine, and how many users it trains at once."""

    engine: Engine
    users: int
    label: str
    trial: int | None = None  # how many users are enough to time it; None: as many as it trains


@dataclass
class EngineChoice:
    """The candidates for one shape of work, and the one that trains. A single candidate needs no timing."""

    candidates: Sequence[Candidate]
    why: str
    seconds: dict[int, list[float]] = field(default_factory=dict)  # seconds a batch, by candidate
    best: int | None = None
    key: Hashable = None  # under which the decision is kept

    def __post_init__(self) -> None:
        if len(self.candidates) == 1:
            self.best = 0

    def next(self) -> int:
        """Return the candidate for the next chunk."""
        if self.best is None:
            untimed = [i for i in range(len(self.candidates)) if len(self.seconds.get(i, ())) < TRIALS]
            if untimed:  # in turns, so that a busy moment falls on all of them
                return min(untimed, key=lambda i: len(self.seconds.get(i, ())))
            self.best = self._settle()
            KNOWN[self.key] = self.best, self.why
        return self.best

    def users(self, candidate: int) -> int:
        """Return how many users the next chunk holds, if `candidate` trains it. Small chunks are timed sooner."""
        chosen = self.candidates[candidate]
        return chosen.users if chosen.trial is None or self.best is not None else min(chosen.trial, chosen.users)

    def record(self, candidate: int, seconds: float, batches: int) -> None:
        """Note the time that a candidate took for a chunk."""
        if self.best is None and batches:
            self.seconds.setdefault(candidate, []).append(seconds / batches)

    def _settle(self) -> int:
        fastest = {i: min(times[1:]) for i, times in self.seconds.items()}
        # The first candidate needs least memory and surprises least: another must be clearly faster.
        best = min(fastest, key=lambda i: fastest[i] * (CLEARLY if i == 0 else 1.0))
        timings = ", ".join(f"{self.candidates[i].label} {1e3 * fastest[i]:.3g} ms" for i in sorted(fastest))
        self.why = f"fastest of the first chunks, per batch: {timings}"
        log.info("training %s: %s", self.candidates[best].label, self.why)
        return best

    def __str__(self) -> str:
        if self.best is None:
            return "not decided yet: too few chunks have been timed"
        return f"{self.candidates[self.best].label}: {self.why}"


# Timed decisions of this process, by shape of work and labels of the candidates: (candidate, why).
KNOWN: dict[Hashable, tuple[int, str]] = {}


def recall(choice: EngineChoice, shape: Hashable) -> EngineChoice:
    """Return `choice`, already decided if this process has decided it before; else it is for the next trainer."""
    choice.key = (shape, *(candidate.label for candidate in choice.candidates))
    if choice.best is None:
        choice.best, choice.why = KNOWN.get(choice.key, (None, choice.why))
    return choice
