"""What each user has spent, and what runs under way may still take: the tables of individual accounting.

`fieldfare.accounting.individual` has the theorem. Everything here is in its units, 2^-44 mu^2. Of each user:

    room = M - base - settled - sum over runs under way of cap,        room >= 0, always                         (1)

* *base* is what all users are charged alike: worst-case runs and charges of other trainers;
* *settled* is what ended runs have cost the user (table `odometers`);
* *cap* is the most that a run under way may cost the user: min(room, the run's most) when it is admitted. It covers
  what the run has taken and what it may still take (its pledge), so no other run can make it end early, and each run
  can judge its users without knowing of the others.

A commit stores what its round cost each participant next to the participation (`participations.charges`), in the same
transaction. The end of a run adds these to `odometers`, and its caps are free again.

The journal proves all of it: `run.start` has the digest of the caps, `users.register` the caps of newcomers,
`round.commit` the digest of its charges, `run.finish` that of the odometers.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fieldfare.accounting.filter import Price, Rectangle
from fieldfare.accounting.individual import MOST_UNITS, UNIT, Units, from_units
from fieldfare_server.ledger.state import budget

INDIVIDUAL = "individual"
WORST_CASE = "worst-case"
# How many classes a histogram of what users have left has: tenths of the budget.
BINS = 10


def digest(values: Units) -> str:
    """SHA-256 of the numbers without the zeros at the end, hex: users who joined and paid nothing change nothing."""
    paid = values != 0
    size = values.size - int(paid[::-1].argmax()) if paid.any() else 0
    return hashlib.sha256(values[:size].astype("<u8").tobytes()).hexdigest()


def digest_of_rounds(digests: Iterable[str]) -> str:
    """SHA-256 of the digests of a run's charges, round by round, hex."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()


@lru_cache(maxsize=256)
def limit_units(terms: budget.Terms) -> int:
    """M in units, rounded down: the most for which the filter's epsilon is at most the budget's."""
    limit = min(MOST_UNITS, math.floor(Rectangle.of(terms.epsilon, terms.delta, terms.leak).mu_squared / UNIT))
    while limit > 0 and not terms.hold(Price(from_units(limit))):
        limit -= 1 + (limit >> 52)
    return limit


def units_of(price: Price) -> int:
    """mu^2 of a price in units, rounded up."""
    return math.ceil(price.mu_squared / UNIT)


def price_of(units: int) -> Price:
    """What so many units of mu^2 take, without a leak."""
    return Price(from_units(units)) if units else Price()


def pledge(room: Units, most: int) -> Units:
    """The caps of a run that can cost one user `most`, for users with `room`, shape (n,)."""
    return np.clip(room, 0, most).astype(np.int64)


def nothing(users: int) -> Units:
    """Zeros, shape (users,), read-only and in 8 bytes: a population without odometers in use has millions of them."""
    return np.broadcast_to(np.int64(0), (users,))


def histogram(room: Units, limit: int) -> tuple[int, ...]:
    """How many users have up to a tenth of the budget left, up to two tenths, ..., all of it, shape (BINS,)."""
    if limit <= 0:
        return (int(room.size), *(0,) * (BINS - 1))
    # An exact integer class: ceil(BINS room / limit), at least the first.
    classes = -(-room.astype(object) * BINS // limit) if limit > 2**58 else -(-room * BINS // limit)
    counts = np.bincount(np.clip(classes.astype(np.int64), 1, BINS) - 1, minlength=BINS)
    return tuple(int(count) for count in counts)


@dataclass(frozen=True)
class Left:
    """What the users of a population have left, in figures."""

    most_committed: int  # `OdometerStanding.most_committed`
    largest: int | None  # what the user who has most left has left; None without users
    having_most: int  # how many users have as much
    least: int | None  # what the user who has least left has left; None without users
    exhausted: int  # how many have nothing left
    classes: tuple[int, ...]  # `histogram`


@dataclass(eq=False)
class OdometerStanding:
    """The odometers of a population's users, all (n,), as one snapshot has them."""

    settled: Units  # what ended runs have cost
    spent: Units  # that, and what the runs under way have taken so far
    held: Units  # the caps of the runs under way, added up
    runs: tuple[tuple[str, int], ...]  # (id, most) of the runs under way, in the order of their starts

    @property
    def most_spent(self) -> int:
        """What the user who has spent most has spent."""
        return int(self.spent.max(initial=0))

    def most_committed(self, limit: int, base: int) -> int:
        """The most that is settled and held of any user, or would be held of a newcomer."""
        newcomer = sum(newcomer_caps(self.runs, limit - base).values())
        return max(int((self.settled + self.held).max(initial=0)), newcomer)

    def room(self, limit: int, base: int) -> Units:
        """Equation (1), shape (n,)."""
        left: Units = np.maximum(max(limit - base, 0) - self.settled - self.held, 0)
        return left

    def left(self, limit: int, base: int) -> Left:
        """What users have left under this budget."""
        room = self.room(limit, base)
        return Left(
            most_committed=self.most_committed(limit, base),
            largest=int(room.max()) if room.size else None,
            having_most=int(np.count_nonzero(room == room.max())) if room.size else 0,
            least=int(room.min()) if room.size else None,
            exhausted=int(np.count_nonzero(room == 0)),
            classes=histogram(room, limit),
        )

    def newcomer_room(self, limit: int, base: int) -> int:
        """What a user who is registered now would have left."""
        return max(limit - base - sum(newcomer_caps(self.runs, limit - base).values()), 0)


def newcomer_caps(runs: Sequence[tuple[str, int]], room: int) -> dict[str, int]:
    """The cap of a new user with `room` in each of `runs`, (id, most) in the order of their starts."""
    pledged = {}
    for run_id, most in runs:
        pledged[run_id] = max(0, min(room, most))
        room -= pledged[run_id]
    return pledged
