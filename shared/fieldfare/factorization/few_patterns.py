"""All patterns of a participation, where they are few enough to try each one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from fieldfare.participation import IN_STEP, MinSeparation, Participation

# Most patterns that are listed.
_MOST = 20_000


def in_step_patterns(participation: Participation, rounds: int) -> list[tuple[int, ...]] | None:
    """Return every pattern of a fixed (or cyclic) order that no other contains, 0-based, or None.

    None for other participations, and for orders capped below their length with more than 20 000 patterns. A
    cost that never falls when a pattern gains a round has its maximum among these.
    """
    if not isinstance(participation, IN_STEP):
        return None
    period, k = participation.separation_and_count(rounds)
    classes = [range(start, rounds, period) for start in range(min(period, rounds))]
    if sum(math.comb(len(c), min(k, len(c))) for c in classes) > _MOST:
        return None
    return [pattern for c in classes for pattern in itertools.combinations(c, min(k, len(c)))]


def few_patterns(participation: Participation, rounds: int) -> list[tuple[int, ...]] | None:
    """Return `in_step_patterns`, and for a minimum separation every pattern of it; None when there are more
    than 20 000.
    """
    if not isinstance(participation, MinSeparation):
        return in_step_patterns(participation, rounds)
    b, k = participation.separation_and_count(rounds)
    patterns = list(itertools.islice(_separated(0, rounds, b, k), _MOST + 1))
    return patterns if len(patterns) <= _MOST else None


def _separated(start: int, rounds: int, separation: int, count: int) -> Iterator[tuple[int, ...]]:
    """Yield non-empty patterns in [start, rounds) of at most `count` rounds that are `separation` apart."""
    for first in range(start, rounds):
        yield (first,)
        if count > 1:
            for rest in _separated(first + separation, rounds, separation, count - 1):
                yield (first, *rest)
