"""How many rounds a set of users can still fill, when each takes part so often at most, and so far apart.

The state of a user is (left, rest): they may take part `left` more times, and not in the next `rest` rounds.
Two rounds of one user are at least `separation` apart. The question is whether there is a timetable in which
each of the next `rounds` rounds has `size` of the users.

**Theorem.** If there is a timetable, then there is one whose first round has the users with the most rounds
left among those who do not rest; ties do not matter. So the greedy timetable answers the question exactly.

*Proof.* Let a timetable have v and not u in its first round t, where neither rests and left(u) >= left(v).
Let U = (u_1 < u_2 < ...) and V = (v_1 = t < v_2 < ...) be their rounds, u_1 > t. If |U| <= left(v), exchange
U and V altogether: |V| <= left(v) <= left(u). Otherwise |U| > left(v) >= |V|. Let i be the largest number
with v_j <= u_j for all j <= i. Then v_{i+1} > u_{i+1}, or V ends at v_i; u_{i+1} exists in both cases. Give u
the rounds v_1 .. v_i, u_{i+1}, ... and v the rounds u_1 .. u_i, v_{i+1}, ...: both keep how many rounds they
have, and both new gaps are wide enough, because u_{i+1} - v_i >= u_{i+1} - u_i and v_{i+1} - u_i > u_{i+1} -
u_i. Now u is in round t, and every round has as many users as before. Repeat until the first round is the
greedy one. QED

From the start, when no user rests and all have `most` rounds left, the answer has a closed form (`fills`):
walk through the users in a circle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Beyond so many rounds `Capacity.lasts` only compares totals: a timetable would cost more than a round.
EXACT_ROUNDS = 20_000


def fills(users: int, rounds: int, size: int, separation: int, most: int) -> bool:
    """Return whether `users` users who have not taken part yet can fill `rounds` rounds of `size` users.
    Exact.

    Any `separation` rounds in a row need distinct users, and no user gives more than `most` rounds: both are
    necessary. Where they hold, let visit j = 0 .. rounds x size - 1 be of user j mod `users`: a user returns
    after at least floor(users / size) >= separation rounds, and at most ceil(rounds x size / users) <= most
    times.

    Args:
        users, rounds, size: how many there are; size is users a round.
        separation: rounds from one participation of a user to the next, at least 1.
        most: participations of one user in all rounds.
    """
    return users >= size * min(separation, rounds) and users * most >= rounds * size


@dataclass(frozen=True)
class Capacity:
    """Users by (rest, left): `counts[rest, left]` of them, int64 (separation, most + 1)."""

    counts: NDArray[np.int64]

    @classmethod
    def of(cls, left: ArrayLike, rest: ArrayLike, separation: int) -> Capacity:
        """Count users.

        Args:
            left: how often each user may still take part, int (users,); 0 or negative for never.
            rest: how many rounds from now on each must still wait, int (users,), below `separation`; negative
                for none.
            separation: the least distance between two rounds of one user, at least 1.
        """
        remaining = np.maximum(np.asarray(left, np.int64), 0)
        waiting = np.minimum(np.maximum(np.asarray(rest, np.int64), 0), separation - 1)
        width = int(remaining.max(initial=0)) + 1
        counts = np.bincount(waiting * width + remaining, minlength=separation * width)
        return cls(counts.reshape(separation, width).astype(np.int64))

    def lasts(self, rounds: int, size: int) -> bool:
        """Return whether there is a timetable of `rounds` rounds with `size` users each.

        Exact up to `EXACT_ROUNDS` rounds. Beyond, only the totals are compared: "yes" is then necessary and
        not sufficient. O(rounds x most), or O(separation x most) where a walk in a circle shows it.
        """
        if rounds <= 0 or size == 0:
            return True
        separation, width = self.counts.shape
        left = np.arange(width)
        # No user gives more rounds than fit: what is above that neither helps nor costs.
        fitting = np.minimum(left, -(-np.maximum(rounds - np.arange(separation)[:, None], 0) // separation))
        if int((self.counts * fitting).sum()) < rounds * size:
            return False
        if self._walk_lasts(rounds, size):
            return True
        if rounds > EXACT_ROUNDS:
            return bool(self.counts[:, 1:].sum() >= size * separation)
        # By falling number of rounds left, without those who have none; column -1 is "one more round".
        ready = self.counts[0, :0:-1].copy()
        back = self.counts[:, :0:-1].copy()
        back[0] = 0
        for round in range(rounds):
            returning = back[round % separation]
            ready += returning
            upto = np.cumsum(ready)
            if not upto.size or int(upto[-1]) < size:
                return False
            taken = np.clip(size - (upto - ready), 0, ready)
            ready -= taken
            # They return `separation` rounds later, with one round less: the same place in the circle.
            returning[1:] = taken[:-1]
            returning[0] = 0
        return True

    def _walk_lasts(self, rounds: int, size: int) -> bool:
        """Return whether a walk in a circle, as in `fills`, is a timetable: sufficient, and far cheaper than
        the greedy one.

        For some q, walk through the N users who have at least q rounds left, by rising rest. Visit j of the
        first pass is in round floor(j / size), so no visit is too early where the first of those who rest r
        rounds has at least r x size users before them. The rest is as in `fills`, with q rounds for each
        user.
        """
        separation, width = self.counts.shape
        # [rest, q]: how many users rest so long and have at least q rounds left; and how many of those rest less.
        having = self.counts[:, ::-1].cumsum(axis=1)[:, ::-1]
        before = having.cumsum(axis=0) - having
        in_time = ((having == 0) | (before // size >= np.arange(separation)[:, None])).all(axis=0)
        users = before[-1] + having[-1]
        enough = (users >= size * min(separation, rounds)) & (users * np.arange(width) >= rounds * size)
        return bool((in_time & enough).any())

    def largest(self, rounds: int, most: int, fewest: int = 0) -> int:
        """Return the largest size in [fewest, most] for which `lasts(rounds, size)`; 0 where there is none."""
        if self.lasts(rounds, most):
            return most
        low, high = max(fewest, 1) - 1, most
        while high - low > 1:
            size = (low + high) // 2
            low, high = (size, high) if self.lasts(rounds, size) else (low, size)
        return low if low >= max(fewest, 1) else 0


def is_plentiful(users: int, rounds: int, size: int, separation: int, most: int, *, past: int, asked: int) -> bool:
    """Return whether `users` users can fill `rounds` more rounds whoever took part in the past ones.
    Sufficient, O(1).

    Args:
        users: how many there are.
        rounds: rounds to come.
        size: users needed in each of them.
        separation, most: limits of each user, of all rounds, past ones included.
        past: rounds that have been.
        asked: the most users that a past round had.

    At most past x asked / (q + 1) users took part more than q times, and at most asked x min(past, separation
    - 1) rest. All others have at least most - q rounds left.
    """
    if rounds == 0:
        return True
    resting = asked * min(past, separation - 1)
    for spent in sorted({0, most // 4, most // 2, 3 * most // 4}):
        others = users - resting - past * asked // (spent + 1)
        if spent < most and others > 0 and fills(others, rounds, size, separation, most - spent):
            return True
    return False
