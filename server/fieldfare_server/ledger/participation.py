"""Who took part when, in one run: arrays over users plus one linked entry a participation.

For 1 000 000 users and 2 000 rounds of 1 000: 12 MB of arrays and 16 to 32 MB of entries; a round costs O(cohort).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


class ParticipationState:
    """Realised participation of the users of one run. Rounds are added in increasing order."""

    def __init__(self, users: int = 0) -> None:
        self._head = np.full(users, -1, dtype=np.int32)
        self._last = np.full(users, -1, dtype=np.int32)
        self._count = np.zeros(users, dtype=np.int32)
        self._round = np.empty(1024, dtype=np.int32)
        self._previous = np.empty(1024, dtype=np.int32)
        self._entries = 0

    def grow(self, users: int) -> None:
        """Make room for user indices below `users`."""
        more = users - self._head.size
        if more > 0:
            self._head = np.concatenate([self._head, np.full(more, -1, dtype=np.int32)])
            self._last = np.concatenate([self._last, np.full(more, -1, dtype=np.int32)])
            self._count = np.concatenate([self._count, np.zeros(more, dtype=np.int32)])

    def add(self, index: int, users: NDArray[np.int64]) -> None:
        """Count `users` (distinct) as participants of round `index`."""
        if users.size:
            self.grow(int(users.max()) + 1)
        end = self._entries + users.size
        if end > self._round.size:
            size = max(end, 2 * self._round.size)
            self._round = np.concatenate([self._round, np.empty(size - self._round.size, dtype=np.int32)])
            self._previous = np.concatenate([self._previous, np.empty(size - self._previous.size, dtype=np.int32)])
        self._round[self._entries : end] = index
        self._previous[self._entries : end] = self._head[users]
        self._head[users] = np.arange(self._entries, end, dtype=np.int32)
        self._last[users] = index
        self._count[users] += 1
        self._entries = end

    def last_and_count(self, users: ArrayLike) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """(last round or -1 for never, number of rounds) of each user, both int32 of `users`' shape."""
        index = np.asarray(users, dtype=np.int64)
        if index.size:
            self.grow(int(index.max()) + 1)
        return self._last[index], self._count[index]

    def patterns(self, users: ArrayLike) -> list[tuple[int, ...]]:
        """The increasing rounds in which each user took part; () for never."""
        index = np.asarray(users, dtype=np.int64)
        if index.size:
            self.grow(int(index.max()) + 1)
        entry = self._head[index]
        found: list[list[int]] = [[] for _ in range(index.size)]
        active = np.flatnonzero(entry >= 0)
        while active.size:
            at = entry[active]
            for user, when in zip(active.tolist(), self._round[at].tolist(), strict=True):
                found[user].append(when)
            entry[active] = self._previous[at]
            active = active[entry[active] >= 0]
        return [tuple(reversed(rounds)) for rounds in found]

    def histogram(self) -> dict[int, int]:
        """How many users took part how many times, from once up."""
        counts = np.bincount(self._count[self._count > 0])
        return {times: int(users) for times, users in enumerate(counts) if users}
