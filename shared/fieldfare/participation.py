"""Who may take part how often: the participation patterns over which a sensitivity is maximised.

A *pattern* is the increasing tuple of rounds (0-based) in which one user takes part. A `Participation`
describes the set of patterns that the selector enforces; `fieldfare.mechanisms` maximises over that set.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from fieldfare.errors import BadInput

Adjacency = Literal["zero_out", "add_remove", "replace_one"]
PRESENCE: Final = "add_remove"
"""The adjacency under which a user's presence is the secret, and with it every count of users."""


def hides_presence(adjacency: str) -> bool:
    """Return whether counts of users, and times that count them, are secret under `adjacency`."""
    return adjacency == PRESENCE


ADJACENCIES: tuple[Adjacency, ...] = get_args(Adjacency)


def adjacency_factor(adjacency: Adjacency) -> int:
    """Return what multiplies every sensitivity: 2 for `replace_one` (one user's update becomes another's), else 1."""
    return 2 if adjacency == "replace_one" else 1


class Participation(ABC):
    """A set of allowed patterns. Final subclasses are frozen dataclasses."""

    @abstractmethod
    def separation_and_count(self, rounds: int) -> tuple[int, int]:
        """Return (b, k): any two rounds of an allowed pattern differ by at least b, and it has at most k
        rounds.

        Every allowed pattern is (k, b)-min-separated, so a bound that holds for all of those holds here.
        """

    @abstractmethod
    def allows(self, pattern: Sequence[int], rounds: int) -> bool:
        """Return whether `pattern` (increasing rounds in [0, rounds)) is allowed."""

    def patterns(self, rounds: int) -> Iterator[tuple[int, ...]]:
        """Yield every allowed non-empty pattern. Exponential in `rounds`: for tests with rounds <= 16."""
        _, k = self.separation_and_count(rounds)
        for size in range(1, k + 1):
            for pattern in itertools.combinations(range(rounds), size):
                if self.allows(pattern, rounds):
                    yield pattern


def _positive(field: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise BadInput(f"{field} = {value}", "must be at least 1.", "1", code="at-least-one")


def _increasing(pattern: Sequence[int], rounds: int) -> bool:
    inside = all(0 <= t < rounds for t in pattern)
    return inside and all(a < b for a, b in itertools.pairwise(pattern))


@dataclass(frozen=True)
class Single(Participation):
    """Each user takes part at most once."""

    def separation_and_count(self, rounds: int) -> tuple[int, int]:
        return rounds, 1

    def allows(self, pattern: Sequence[int], rounds: int) -> bool:
        return len(pattern) <= 1 and _increasing(pattern, rounds)


@dataclass(frozen=True)
class MinSeparation(Participation):
    """A user's rounds are at least `separation` apart (|i - j| >= separation), at most `max_participations`
    of them.

    `max_participations=None` means as many as the separation leaves room for: ceil(rounds / separation).
    """

    separation: int
    max_participations: int | None = None

    def __post_init__(self) -> None:
        _positive("separation", self.separation)
        _positive("max_participations", self.max_participations)

    def separation_and_count(self, rounds: int) -> tuple[int, int]:
        most = -(-rounds // self.separation)
        return self.separation, most if self.max_participations is None else min(self.max_participations, most)

    def allows(self, pattern: Sequence[int], rounds: int) -> bool:
        _, k = self.separation_and_count(rounds)
        spaced = all(b - a >= self.separation for a, b in itertools.pairwise(pattern))
        return len(pattern) <= k and spaced and _increasing(pattern, rounds)


@dataclass(frozen=True)
class FixedOrder(Participation):
    """Epochs of `period` rounds in one fixed cohort order: a user takes part in rounds s, s + period, ..."""

    period: int
    max_participations: int | None = None

    def __post_init__(self) -> None:
        _positive("period", self.period)
        _positive("max_participations", self.max_participations)

    def separation_and_count(self, rounds: int) -> tuple[int, int]:
        most = -(-rounds // self.period)
        return self.period, most if self.max_participations is None else min(self.max_participations, most)

    def allows(self, pattern: Sequence[int], rounds: int) -> bool:
        _, k = self.separation_and_count(rounds)
        in_step = len({t % self.period for t in pattern}) <= 1
        return len(pattern) <= k and in_step and _increasing(pattern, rounds)


@dataclass(frozen=True)
class Poisson(Participation):
    """Every round includes each user independently with probability `rate`. Without amplification: any pattern."""

    rate: float

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise BadInput(f"rate = {self.rate}", "must be in (0, 1].", "1.0", code="rate-range")

    def separation_and_count(self, rounds: int) -> tuple[int, int]:
        return 1, rounds

    def allows(self, pattern: Sequence[int], rounds: int) -> bool:
        return _increasing(pattern, rounds)


@dataclass(frozen=True)
class CyclicPoisson(Participation):
    """A user is in one of `groups` random groups; round t includes each user of group t mod groups at `rate`.

    The published reduction (Choquette-Choo et al. 2023, "(Amplified) Banded Matrix Factorization") needs a
    strategy with at most `groups` bands; without amplification any pattern within one residue class is
    possible.
    """

    groups: int
    rate: float

    def __post_init__(self) -> None:
        _positive("groups", self.groups)
        if not 0 < self.rate <= 1:
            raise BadInput(f"rate = {self.rate}", "must be in (0, 1].", "1.0", code="rate-range")

    def separation_and_count(self, rounds: int) -> tuple[int, int]:
        return self.groups, -(-rounds // self.groups)

    def allows(self, pattern: Sequence[int], rounds: int) -> bool:
        return len({t % self.groups for t in pattern}) <= 1 and _increasing(pattern, rounds)


@dataclass(frozen=True)
class BallsInBins(Participation):
    """Each user draws one of `bins` bins for the whole run; round t includes the users of bin t mod bins.

    `accounting.balls_in_bins` has what this sampling earns where the bins are secret.
    """

    bins: int

    def __post_init__(self) -> None:
        _positive("bins", self.bins)

    def separation_and_count(self, rounds: int) -> tuple[int, int]:
        return self.bins, -(-rounds // self.bins)

    def allows(self, pattern: Sequence[int], rounds: int) -> bool:
        return len({t % self.bins for t in pattern}) <= 1 and _increasing(pattern, rounds)

    def draw_of(self, round: int) -> str:
        """Return the name of the draw that decides who takes part in `round`: one for the whole run."""
        return "bins"


@dataclass(frozen=True)
class RandomAllocation(Participation):
    """Each user draws one of `bins` rounds afresh in every block of `bins` rounds, independently of other
    blocks.

    In a last block that the run cuts short, a user who drew a round beyond its end takes no part.
    `accounting.allocation` has what this sampler earns where the draws are secret. whole: charge such a block
    as a whole one; runs that began so go on so.
    """

    bins: int
    whole: bool = False

    def __post_init__(self) -> None:
        _positive("bins", self.bins)

    def separation_and_count(self, rounds: int) -> tuple[int, int]:
        # The last round of a block and the first of the next may both be a user's: the distance is 1.
        return 1, -(-rounds // self.bins)

    def allows(self, pattern: Sequence[int], rounds: int) -> bool:
        return len({t // self.bins for t in pattern}) == len(pattern) and _increasing(pattern, rounds)

    def draw_of(self, round: int) -> str:
        """Return the name of the draw that decides who takes part in `round`: one for each block."""
        return f"bins.{round // self.bins}"


@dataclass(frozen=True)
class BMinSep(Participation):
    """After a round a user rests for `separation` - 1 rounds, and then takes part in each with probability
    `rate`.

    How long users rest at the start of the run is drawn such that every round is as likely as every other
    (`accounting.chained`, which has what this sampler earns where the draws are secret).
    """

    separation: int
    rate: float

    def __post_init__(self) -> None:
        _positive("separation", self.separation)
        if not 0 < self.rate <= 1:
            raise BadInput(f"rate = {self.rate}", "must be in (0, 1].", "1.0", code="rate-range")

    @property
    def period(self) -> float:
        """Mean number of rounds from one participation of a user to the next."""
        return self.separation - 1 + 1 / self.rate

    def separation_and_count(self, rounds: int) -> tuple[int, int]:
        return self.separation, -(-rounds // self.separation)

    def allows(self, pattern: Sequence[int], rounds: int) -> bool:
        return all(b - a >= self.separation for a, b in itertools.pairwise(pattern)) and _increasing(pattern, rounds)

    def shortened(self, factor: float) -> BMinSep:
        """Return 1 / `factor` of the period, hence `factor` times the cohort: the pause stays unless it is
        too long for it.
        """
        period = max(1.0, self.period / factor)
        separation = min(self.separation, math.floor(period))
        return BMinSep(separation, min(1.0, 1 / (period - separation + 1)))

    def draw_of(self, round: int) -> str:
        """Return the name of the draw of `round`: a coin for each user."""
        return f"coins.{round}"


@dataclass(frozen=True)
class TruncatedPoisson(Participation):
    """Every round includes each user independently with probability `rate`, and at most `cap` users in all.

    Where more are drawn, a secret lot among them decides. `enrolled`: the most users that there ever are, a
    public number, which bounds how probable that is (`accounting.truncated.TruncatedGaussian`).
    """

    rate: float
    cap: int
    enrolled: int

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise BadInput(f"rate = {self.rate}", "must be in (0, 1].", "1.0", code="rate-range")
        _positive("cap", self.cap)
        _positive("enrolled", self.enrolled)

    def separation_and_count(self, rounds: int) -> tuple[int, int]:
        return 1, rounds

    def allows(self, pattern: Sequence[int], rounds: int) -> bool:
        return _increasing(pattern, rounds)


IN_STEP = (FixedOrder, CyclicPoisson, BallsInBins)
"""Where all rounds of one user leave the same remainder on division by the separation."""
BINNED = (BallsInBins, RandomAllocation)  # where each user draws one round of a block, uniformly
SAMPLED = (Poisson, CyclicPoisson, TruncatedPoisson, BMinSep, *BINNED)
"""Where secret coins decide who takes part, for each user independently of all others."""
CALLED = frozenset({"balls-in-bins", "random-allocation", "b-min-sep", "truncated-poisson"})
"""Schemes that are charged for their secret draws alone: only under `add_remove`, only with Gaussian noise,
and where real users can be called at will. Plans say so by `callable = true`."""


def users_asked(cohort: int, over_selection: float) -> int:
    """Return how many users are asked so that `cohort` of them report. Poisson schemes ask those that coins choose."""
    return math.ceil(cohort * over_selection)
