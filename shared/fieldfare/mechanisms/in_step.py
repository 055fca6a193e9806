"""The maximal patterns of a fixed cohort order, when there are few enough to try them all."""

from __future__ import annotations

import itertools
import math

from fieldfare.participation import CyclicPoisson, FixedOrder, Participation

_MOST = 20_000


def in_step_patterns(participation: Participation, rounds: int) -> list[tuple[int, ...]] | None:
    """Every pattern of a fixed (or cyclic) order that no other contains, 0-based, or None.

    None for other participations, and for orders capped below their length with more than 20 000 patterns. A cost
    that never falls when a round is added to a pattern has its maximum among these.
    """
    if not isinstance(participation, FixedOrder | CyclicPoisson):
        return None
    period, k = participation.separation_and_count(rounds)
    classes = [range(start, rounds, period) for start in range(min(period, rounds))]
    if sum(math.comb(len(c), min(k, len(c))) for c in classes) > _MOST:
        return None
    return [pattern for c in classes for pattern in itertools.combinations(c, min(k, len(c)))]
