"""Whether one more charge fits, by exact composition of everything spent and everything reserved."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from fieldfare.accounting import PrivacyLoss
from fieldfare.errors import BudgetRefused

NOTHING = PrivacyLoss()


def compose(losses: Iterable[PrivacyLoss]) -> PrivacyLoss:
    """The loss of all of them together (adaptive composition)."""
    total = NOTHING
    for loss in losses:
        total = total + loss
    return total


@lru_cache(maxsize=8192)
def epsilon(loss: PrivacyLoss, delta: float) -> float:
    """`loss.epsilon(delta)`, cached: views ask for the same values again and again."""
    return 0.0 if loss == NOTHING else float(loss.epsilon(delta))


def at_most(small: PrivacyLoss, large: PrivacyLoss) -> bool:
    """Whether `small` is part of `large`: no part of it larger, no more events of any sampled kind. No tolerance."""
    if not (small.mu_squared <= large.mu_squared and small.concentrated <= large.concentrated):
        return False
    room = _events(large)
    return all(count <= room.get(kind, 0) for kind, count in _events(small).items())


def _events(loss: PrivacyLoss) -> dict[tuple[float, float], int]:
    counts: dict[tuple[float, float], int] = {}
    for event in loss.sampled:
        kind = (event.rate, event.noise_multiplier)
        counts[kind] = counts.get(kind, 0) + event.count
    return counts


@dataclass(frozen=True)
class Room:
    """The largest single Gaussian run that still fits: its mu, and its epsilon taken alone."""

    mu: float
    epsilon: float


@lru_cache(maxsize=1024)
def room(committed: PrivacyLoss, limit: float, delta: float) -> Room:
    """What still fits under (`limit`, `delta`) together with `committed`. Never too large; exact to 2**-30 of mu.

    Cached: what is committed changes when runs start and end, not with their rounds.
    """
    if epsilon(committed, delta) > limit:
        return Room(0.0, 0.0)
    low, high = 0.0, 1.0
    while (committed + PrivacyLoss(mu_squared=high * high)).epsilon(delta) <= limit and high < 1e6:
        low, high = high, 2 * high
    steps = 16 if committed.sampled else 40  # sampled parts cost a numerical convolution a step
    for _ in range(steps):
        middle = (low + high) / 2
        fits = (committed + PrivacyLoss(mu_squared=middle * middle)).epsilon(delta) <= limit
        low, high = (middle, high) if fits else (low, middle)
    return Room(low, epsilon(PrivacyLoss(mu_squared=low * low), delta))


def require(name: str, committed: PrivacyLoss, planned: PrivacyLoss, limit: float, delta: float) -> None:
    """Raise `BudgetRefused`, naming what would fit, unless `planned` fits together with `committed`."""
    total = float((committed + planned).epsilon(delta))
    if math.isfinite(total) and total <= limit:
        return
    left = room(committed, limit, delta)
    raise BudgetRefused(
        f"a run of epsilon {epsilon(planned, delta):.6g} on population {name!r}",
        f"with what is spent and reserved (epsilon {epsilon(committed, delta):.6g}) it would come to epsilon "
        f"{total:.6g}, and the budget is {limit:.6g} at delta {delta:.3g}.",
        f"a run of epsilon {_down(left.epsilon)} at delta {delta:.3g} (mu {_down(left.mu)})"
        if left.mu > 0
        else "wait for a run to end, or have the budget raised",
    )


def _down(value: float) -> str:
    """`value` in six digits, rounded down, so that a limit that an error names is allowed."""
    if value <= 0:
        return "0"
    scale = 10.0 ** (5 - math.floor(math.log10(value)))
    return f"{math.floor(value * scale) / scale:.6g}"
