"""Who took part when, in one run: arrays over users plus one linked entry a participation.

For 1 000 000 users and 2 000 rounds of 1 000: 12 MB of arrays and 16 to 32 MB of entries; a round costs
O(cohort).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray


class ParticipationRecord:
    """Realised participation of the users of one run. Rounds are added in increasing order.

    Entry e says "in round _round[e]", and _previous[e] is the same user's entry before it. A user's newest
    entry is _head[user]. Entry 0 says "never, in round -1": every user's chain ends there. _last[user] is
    that entry's round: selection asks for it of every user in every round, and a second gather takes half as
    long again.
    """

    def __init__(self, users: int = 0) -> None:
        """Make room for `users` indices now."""
        self._head = np.zeros(users, dtype=np.int32)
        self._last = np.full(users, -1, dtype=np.int32)
        self._count = np.zeros(users, dtype=np.int32)
        self._round = np.full(1024, -1, dtype=np.int32)
        self._previous = np.zeros(1024, dtype=np.int32)
        self._entries = 1

    @property
    def room(self) -> int:
        """Every index below this has its place."""
        return self._head.size

    def grow(self, users: int) -> None:
        """Make room for user indices below `users`."""
        if users > self.room:
            # In steps of an eighth, so that users who come one at a time do not copy the arrays each time.
            more = max(users - self.room, self.room // 8)
            self._head = np.concatenate([self._head, np.zeros(more, dtype=np.int32)])
            self._last = np.concatenate([self._last, np.full(more, -1, dtype=np.int32)])
            self._count = np.concatenate([self._count, np.zeros(more, dtype=np.int32)])

    def add(self, index: int, users: NDArray[np.int64]) -> None:
        """Count `users` (distinct indices, shape (m,)) as participants of round `index`."""
        if users.size:
            self.grow(int(users.max()) + 1)
        end = self._entries + users.size
        if end > self._round.size:
            more = np.empty(max(end - self._round.size, self._round.size // 2), dtype=np.int32)
            self._round = np.concatenate([self._round, more])
            self._previous = np.concatenate([self._previous, more])
        self._round[self._entries : end] = index
        self._previous[self._entries : end] = self._head[users]
        self._head[users] = np.arange(self._entries, end, dtype=np.int32)
        self._last[users] = index
        self._count[users] += 1
        self._entries = end

    def last_and_count(self, users: ArrayLike) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return (last round or -1 for never, number of rounds) of each user, both int32 of `users`' shape."""
        index = self._indices(users)
        return self._last[index], self._count[index]

    def entries(self, users: ArrayLike) -> Iterator[tuple[NDArray[np.intp], NDArray[np.int32]]]:
        """Yield every participation of `users`, newest first: first the last of each user, then the one
        before it, ...

        Yields (positions in `users` of those that have one, their rounds), both of one shape.
        """
        index = self._indices(users)
        entry = self._head[index]
        active = np.flatnonzero(entry)
        while active.size:
            at = entry[active]
            yield active, self._round[at]
            entry[active] = self._previous[at]
            active = active[entry[active] > 0]

    def patterns(self, users: ArrayLike) -> list[tuple[int, ...]]:
        """Return the increasing rounds in which each user took part; () for never."""
        newest_first: list[list[int]] = [[] for _ in range(np.size(np.asarray(users)))]
        for positions, rounds in self.entries(users):
            for position, round in zip(positions.tolist(), rounds.tolist(), strict=True):
                newest_first[position].append(round)
        return [tuple(reversed(rounds)) for rounds in newest_first]

    def histogram(self) -> dict[int, int]:
        """Return times -> how many users took part that often, from once up."""
        counts = np.bincount(self._count[self._count > 0])
        return {times: int(users) for times, users in enumerate(counts) if users}

    def _indices(self, users: ArrayLike) -> NDArray[np.int64]:
        index = np.asarray(users, dtype=np.int64)
        if index.size:
            self.grow(int(index.max()) + 1)
        return index
