"""Who is drawn in which round of balls in bins, random allocation and b-min-sep, from words of secret bits
alone.

Every user index has other words, a function of the run's key, the draw's name and the user. So a draw depends
neither on how many users there are nor on who is available, answers or fails, and a resumed run finds the
same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fieldfare.participation import BallsInBins, BMinSep, RandomAllocation

Users: TypeAlias = NDArray[np.int64]

# (n, try, draw's name) -> n secret uniform 64-bit words, shape (n,): word i is user i's at this try, whatever n is.
Words: TypeAlias = Callable[[int, int, str], NDArray[np.uint64]]


class SecretBins:
    """The bin of every user index in one draw, independent and uniform in 0 .. n - 1, whatever the number of
    users.

    A word w of 64 bits gives bin w mod n, unless w is beyond the last whole multiple of n: then the user's
    next word decides. Without that rejection some bins would be more probable than the 1 / n that is charged.
    The participation names the draw that a round belongs to; only the draw that was asked for last is kept.
    """

    def __init__(self, participation: BallsInBins | RandomAllocation, words: Words) -> None:
        self._participation, self._n, self._words = participation, participation.bins, words
        self._name, self._of = "", np.empty(0, dtype=np.int64)

    def serves(self, round: int, users: Users) -> NDArray[np.bool_]:
        """Return which of `users` have the bin of `round`, shape (n,)."""
        name, needed = self._participation.draw_of(round), int(users.max(initial=-1)) + 1
        if name != self._name:
            self._name, self._of = name, np.empty(0, dtype=np.int64)
        if needed > self._of.size:
            self._of = self._draw(max(needed, self._of.size + self._of.size // 2))
        return np.asarray(self._of[users] == round % self._n)

    def _draw(self, count: int) -> NDArray[np.int64]:
        bins, open_users, attempt = np.empty(count, dtype=np.int64), np.arange(count), 0
        last = (1 << 64) // self._n * self._n - 1
        while open_users.size:
            words = self._words(int(open_users[-1]) + 1, attempt, self._name)[open_users]
            fair = words <= np.uint64(last)
            bins[open_users[fair]] = (words[fair] % np.uint64(self._n)).astype(np.int64)
            open_users, attempt = open_users[~fair], attempt + 1
        return bins


class SecretRests:
    """Who is drawn in which round of b-min-sep: for every user index by its own words, whatever the number of
    users.

    The first round at which a user may be drawn, 0 .. b - 1, has weights 1, p, .., p: the *warm start*, by
    which every round is as likely as every other. The rounds of a run are gone through in order, and again
    from the first one where there are more users than before, or for an earlier round.
    """

    def __init__(self, participation: BMinSep, words: Words) -> None:
        self._participation, self._words = participation, words
        self._next = 0
        # The first round, from the next one on, in which each user may be drawn.
        self._free = np.empty(0, dtype=np.int64)
        self._drawn = np.empty(0, dtype=np.bool_)  # who was drawn in the round before the next one

    def serves(self, round: int, users: Users) -> NDArray[np.bool_]:
        """Return which of `users` are drawn in `round`, shape (n,)."""
        needed = int(users.max(initial=-1)) + 1
        if needed > self._free.size or round < self._next - 1:
            count = max(needed, self._free.size)
            self._next, self._free = 0, self._start(count if count == self._free.size else count + count // 8)
        while self._next <= round:
            coins = self._uniforms(self._free.size, self._participation.draw_of(self._next))
            # Never above the rate that is charged: as for Poisson coins.
            tossed = coins + 2.0**-53 <= self._participation.rate
            self._drawn = tossed & (self._free <= self._next)
            self._free[self._drawn] = self._next + self._participation.separation
            self._next += 1
        return np.asarray(self._drawn[users])

    def _start(self, count: int) -> NDArray[np.int64]:
        apart, rate = self._participation.separation, self._participation.rate
        weights = np.concatenate([[1.0], np.full(apart - 1, rate)])
        limits = np.cumsum(weights)[:-1] / weights.sum()
        return np.searchsorted(limits, self._uniforms(count, "start"), side="right").astype(np.int64)

    def _uniforms(self, count: int, draw: str) -> NDArray[np.float64]:
        words = self._words(count, 0, draw)
        return np.asarray((words >> np.uint64(11)).astype(np.float64) * 2.0**-53)
