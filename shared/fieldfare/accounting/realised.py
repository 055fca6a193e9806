"""What a run has spent so far, from who really took part.

Who took part when is public under `zero_out` and `replace_one`: the selector and the network decide it, not what users
trained on. Given the pattern P of a user, everything that is ever released of the mechanism differs between the two
worlds by at most sum over pairs of |<C_i, C_j>|, i, j in P (all rows of C), and the first t releases by at most the
planned sensitivity of the first t rows. Both grow with t, so

    spent(t) = (factor * min(planned(t), max over users of realised norm) / sigma)^2                            (1)

is an upper bound that never shrinks and never exceeds what the run reserved. Charges that depend on what happened may
be composed up to a fixed budget like fixed ones: mu^2 adds up under full adaptivity (Smith and Thakurta 2022, for
Gaussian mechanisms), and the ledger stops at the population's budget.

Under `add_remove` participation is secret, so the worst case of `charge_for` is charged, whoever was drawn.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fieldfare.accounting import PrivacyLoss, charge_for
from fieldfare.errors import BadInput
from fieldfare.mechanisms.base import Mechanism
from fieldfare.participation import (
    Adjacency,
    CyclicPoisson,
    FixedOrder,
    MinSeparation,
    Participation,
    Poisson,
    Single,
    adjacency_factor,
)

Users: TypeAlias = NDArray[np.int64]

_PLANNED_POINTS = 64
"""For mechanisms whose sensitivity is slow to compute, planned(t) is taken at the next of this many rounds."""


class RealisedCharge:
    """The running charge of one run. `add` takes a committed round's participants and returns what is spent by then.

    O(cohort x participations) a round for independent and Toeplitz mechanisms; others ask `pattern_norms` for the
    cohort's patterns. 16 bytes a user and 8 bytes a participation.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        participation: Participation,
        noise_multiplier: float,
        adjacency: Adjacency = "zero_out",
        *,
        users: int = 0,
    ) -> None:
        """users: how many indices to make room for now; more are added as they come. Raises as `charge_for`."""
        self.mechanism, self.participation = mechanism, participation
        self.noise_multiplier, self.adjacency = noise_multiplier, adjacency
        self.planned = charge_for(mechanism, participation, noise_multiplier, mechanism.rounds, adjacency)
        """What the run reserves: the most that `spent` ever becomes."""
        self.rounds = 0
        """Rounds charged so far are below this."""
        self._realised = adjacency != "add_remove"
        self._products = mechanism.column_products()
        fast = self._products is not None
        self._planned_every = 1 if fast else max(1, -(-mechanism.rounds // _PLANNED_POINTS))
        self._planned_at, self._planned_value = 0, PrivacyLoss()
        self._spent = PrivacyLoss()
        self._largest = 0.0
        self._head = np.full(users, -1, dtype=np.int32)
        self._count = np.zeros(users, dtype=np.int32)
        self._squared = np.zeros(users)
        self._round = np.empty(1024, dtype=np.int32)
        self._previous = np.empty(1024, dtype=np.int32)
        self._entries = 0

    @property
    def spent(self) -> PrivacyLoss:
        """The charge of the rounds added so far, equation (1)."""
        return self._spent

    @property
    def largest_norm(self) -> float:
        """Max over users of the realised norm, all rows of C, clip norm 1, before the adjacency's factor."""
        return float(np.sqrt(self._largest))

    def add(self, round: int, users: Users) -> PrivacyLoss:
        """Count `users` (distinct indices, shape (m,); those whose updates were summed) as participants of `round`.

        Rounds come in increasing order. Returns the loss of everything released up to and including `round`. Raises
        `BadInput`, and changes nothing, for a round out of order or a pattern that the participation does not allow:
        then no planned charge would be a bound.
        """
        self._require_next(round)
        who = np.asarray(users, dtype=np.int64)
        if who.size and (who.min() < 0 or np.unique(who).size != who.size):
            raise BadInput(f"the participants of round {round}", "must be distinct user indices from 0.")
        if self._realised:
            if who.size:
                self._grow(int(who.max()) + 1)
            self._require_allowed(round, who)
            self._count_in(round, who)
        return self._advance(round)

    @classmethod
    def restored(
        cls,
        mechanism: Mechanism,
        participation: Participation,
        noise_multiplier: float,
        adjacency: Adjacency,
        patterns: Iterable[Sequence[int]],
        rounds: int,
    ) -> Self:
        """From the ledger: `patterns` of users 0, 1, 2, ... over the `rounds` committed rounds of a run.

        Adds the same rounds as the run did, so `spent` is the same to the last bit. Raises as `add`.
        """
        user, when, known = array("q"), array("i"), 0
        for index, pattern in enumerate(patterns):
            user.extend([index] * len(pattern))
            when.extend(pattern)
            known = index + 1
        users, times = np.frombuffer(user, dtype=np.int64), np.frombuffer(when, dtype=np.int32)
        if times.size and not 0 <= int(times.min()) <= int(times.max()) < rounds:
            raise BadInput(
                f"participation in rounds {int(times.min())} to {int(times.max())}", f"{rounds} rounds are committed."
            )
        charge = cls(mechanism, participation, noise_multiplier, adjacency, users=known)
        order = np.argsort(times, kind="stable")
        starts = np.searchsorted(times[order], np.arange(rounds + 1))
        for round in range(rounds):
            charge.add(round, users[order[starts[round] : starts[round + 1]]])
        return charge

    def _require_next(self, round: int) -> None:
        if not self.rounds <= round < self.mechanism.rounds:
            raise BadInput(
                f"round {round}", f"must be in [{self.rounds}, {self.mechanism.rounds}) now.", str(self.rounds)
            )

    def _advance(self, round: int) -> PrivacyLoss:
        self.rounds = round + 1
        self._spent = self._charge()
        return self._spent

    def _charge(self) -> PrivacyLoss:
        if not self._realised:
            return self._planned_for(self.rounds)
        norm = adjacency_factor(self.adjacency) * self.largest_norm / self.noise_multiplier
        realised = norm * norm
        # planned(t) does not fall with t: what is below an earlier planned(t) is below today's.
        if realised <= self._planned_value.mu_squared:
            charge = realised
        else:
            charge = min(realised, self._planned_for(self.rounds).mu_squared)
        return PrivacyLoss(max(self._spent.mu_squared, min(charge, self.planned.mu_squared)))

    def _planned_for(self, rounds: int) -> PrivacyLoss:
        at = min(-(-rounds // self._planned_every) * self._planned_every, self.mechanism.rounds)
        if at != self._planned_at:
            self._planned_value = charge_for(
                self.mechanism, self.participation, self.noise_multiplier, at, self.adjacency
            )
            self._planned_at = at
        return self._planned_value

    def _grow(self, users: int) -> None:
        more = users - self._head.size
        if more > 0:
            more = max(more, self._head.size // 8)
            self._head = np.concatenate([self._head, np.full(more, -1, dtype=np.int32)])
            self._count = np.concatenate([self._count, np.zeros(more, dtype=np.int32)])
            self._squared = np.concatenate([self._squared, np.zeros(more)])

    def _require_allowed(self, round: int, who: Users) -> None:
        before = self._count[who] > 0
        last = np.where(before, self._round[self._head[who]] if self._entries else 0, -1)
        wrong = ~_may_follow(self.participation, self.mechanism.rounds, last, self._count[who], round)
        if wrong.any():
            index = int(np.flatnonzero(wrong)[0])
            raise BadInput(
                f"user {int(who[index])} in round {round}",
                f"last took part in round {int(last[index])}, {int(self._count[who[index]])} times in all, and "
                f"{self.participation} does not allow one more.",
            )

    def _count_in(self, round: int, who: Users) -> None:
        if self._products is not None:
            energy, products = self._products(round)
            growth = np.full(who.size, energy)
            if products.size:
                entry = self._head[who]
                active = np.flatnonzero(entry >= 0)
                while active.size:
                    at = entry[active]
                    growth[active] += 2 * products[self._round[at]]
                    entry[active] = self._previous[at]
                    active = active[entry[active] >= 0]
            self._squared[who] += growth
            self._append(round, who)
        else:
            self._append(round, who)
            patterns = [self._pattern(user) for user in who.tolist()]
            distinct = list(dict.fromkeys(patterns))
            norms = dict(zip(distinct, self.mechanism.pattern_norms(distinct) if distinct else (), strict=True))
            self._squared[who] = np.square([norms[pattern] for pattern in patterns])
        if who.size:
            self._largest = max(self._largest, float(self._squared[who].max()))

    def _append(self, round: int, who: Users) -> None:
        end = self._entries + who.size
        if end > self._round.size:
            more = max(end - self._round.size, self._round.size // 2)
            self._round = np.concatenate([self._round, np.empty(more, dtype=np.int32)])
            self._previous = np.concatenate([self._previous, np.empty(more, dtype=np.int32)])
        self._round[self._entries : end] = round
        self._previous[self._entries : end] = self._head[who]
        self._head[who] = np.arange(self._entries, end, dtype=np.int32)
        self._count[who] += 1
        self._entries = end

    def _pattern(self, user: int) -> tuple[int, ...]:
        rounds: list[int] = []
        entry = int(self._head[user])
        while entry >= 0:
            rounds.append(int(self._round[entry]))
            entry = int(self._previous[entry])
        return tuple(reversed(rounds))


def _may_follow(
    participation: Participation, rounds: int, last: NDArray[np.int32], count: NDArray[np.int32], round: int
) -> NDArray[np.bool_]:
    """Which users with (last round or -1, count) may take part in `round`; their patterns so far are allowed."""
    if not isinstance(participation, Single | MinSeparation | FixedOrder | Poisson | CyclicPoisson):
        raise BadInput(
            f"participation {type(participation).__name__}", "is not one whose realised patterns can be checked."
        )
    separation, most = participation.separation_and_count(rounds)
    fits = (count == 0) | ((round - last >= separation) & (count < most))
    if isinstance(participation, FixedOrder | CyclicPoisson):
        fits &= (count == 0) | ((round - last) % separation == 0)
    return np.asarray(fits & (count < most), dtype=np.bool_)
