"""Who is asked to take part in a round: only users whom the plan's participation still allows.

What the accountant assumes is enforced here, from realised participation. Schemes:

- *single, min-separation*: one cohort of fixed size, uniformly among the users that are available and allowed;
- *fixed order*: users are dealt to `period` places once in a run; a round's cohort comes from one place;
- *Poisson*: every available user independently with probability `rate`. Cohorts vary in size. They are neither filled
  up nor cut: that would be another scheme than the one for which amplification is proven;
- *cyclic Poisson*: users are put into `groups` groups independently and uniformly once in a run; the round's group is
  sampled as above.

The caller derives all randomness from the run's key, so that a resumed run selects the same cohort. Where amplification
is charged, the randomness must also be secret from anyone who sees some of the cohorts: Poisson coins are therefore
cryptographic, never a generator's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfare.errors import BadInput, Refused
from fieldfare.participation import CyclicPoisson, FixedOrder, MinSeparation, Participation, Poisson, Single

Users: TypeAlias = NDArray[np.int64]
Taken: TypeAlias = Callable[[Users], tuple[NDArray[np.int32], NDArray[np.int32]]]
"""Realised participation in this run: user indices -> (last round or -1, number of rounds), as the ledger answers."""

Affords: TypeAlias = Callable[[int, Users], NDArray[np.bool_] | None]
"""(round, user indices) -> which of them have enough left of their budget, shape (n,); None: all."""

Coins: TypeAlias = Callable[[int], NDArray[np.float64]]
"""n -> n secret uniforms in [0, 1) on the grid of 2^-53, shape (n,): `fieldfare.noise.SecureNoise.uniform`."""

_BLOCK = 1 << 16


@dataclass(frozen=True)
class Standing:
    """How many users may take part, and why the others may not. Public except under `add_remove`."""

    available: int
    eligible: int
    resting: int
    """Users who took part too recently, or have another place in the order."""
    exhausted: int
    """Users who took part as often as the plan allows."""
    overdrawn: int = 0
    """Users whom the plan allows to take part, and whose odometer does not."""


class NotEnoughUsers(Refused):
    """Fewer users than a round needs may take part now."""

    def __init__(self, round: int, fewest: int, standing: Standing) -> None:
        self.standing = standing
        super().__init__(
            f"the cohort of round {round}",
            f"{fewest} users are needed, and of {standing.available} available ones {standing.eligible} may take part "
            f"({standing.resting} rest until later rounds, {standing.exhausted} have done all their rounds"
            + (f", {standing.overdrawn} have too little of their budget left)." if standing.overdrawn else ")."),
            f"a cohort of {standing.eligible}, or more users"
            if standing.eligible
            else "more users, or more participations",
        )


class Selector:
    """Chooses the cohorts of one run. It has no state that a resumed run would miss: places follow from the key."""

    def __init__(
        self,
        participation: Participation,
        rounds: int,
        cohort: int,
        over_selection: float = 1.0,
        *,
        order: np.random.Generator | None = None,
        fewest: int = 0,
        affords: Affords = lambda round, users: None,
    ) -> None:
        """
        Args:
            affords: who has enough left of their own budget.
            cohort: users wanted in each round; for Poisson schemes only the mean's denominator, not a target.
            over_selection: users asked per user wanted.
            order: a generator that depends on the run's key alone; fixed order and cyclic Poisson place users by it.
            fewest: a cohort of fewer users is refused (0: never).

        Raises:
            BadInput: a scheme or number that cannot be enforced.
        """
        if not isinstance(participation, Single | MinSeparation | FixedOrder | Poisson | CyclicPoisson):
            raise BadInput(f"participation {type(participation).__name__}", "no selector enforces it.", "MinSeparation")
        for name, value in (("rounds", rounds), ("cohort", cohort)):
            if value < 1:
                raise BadInput(f"{name} = {value}", "must be at least 1.", "1")
        if not 0 <= fewest <= cohort:
            raise BadInput(f"fewest = {fewest}", f"must be in [0, cohort = {cohort}].", str(cohort))
        if not 1 <= over_selection < math.inf:
            raise BadInput(f"over_selection = {over_selection}", "must be a finite number of at least 1.", "1.0")
        if isinstance(participation, Poisson | CyclicPoisson) and over_selection != 1:
            raise BadInput(
                f"over_selection = {over_selection}",
                "Poisson schemes include every user independently; asking more users would be another scheme.",
                "1.0",
            )
        self.participation, self.rounds, self.cohort = participation, rounds, cohort
        self.fewest = fewest
        self._affords = affords
        self.asked = users_asked(cohort, over_selection)
        self._separation, self._most = participation.separation_and_count(rounds)
        self._places: _Places | None = None
        if isinstance(participation, FixedOrder | CyclicPoisson):
            if order is None:
                raise BadInput("order", f"{type(participation).__name__} needs a generator that places users.")
            balanced = isinstance(participation, FixedOrder)
            self._places = _Places(self._separation, int(order.integers(0, 2**63)), balanced)

    def select(
        self, round: int, available: ArrayLike, taken: Taken, generator: np.random.Generator, coins: Coins
    ) -> Users:
        """The cohort of `round`: increasing distinct indices from `available`, all of them allowed to take part.

        Uniform without replacement among eligible users. O(cohort) where most users are eligible; O(n) otherwise.

        Args:
            available: distinct user indices, int64 (n,).
            taken: the ledger's realised participation.
            generator: from the run's key and this round; for all schemes but Poisson.
            coins: the same, for Poisson schemes.

        Raises:
            NotEnoughUsers: fewer than `fewest` users may take part. Never for Poisson schemes: a cohort may be empty.
        """
        if not 0 <= round < self.rounds:
            raise BadInput(f"round {round}", f"must be in [0, {self.rounds}).", str(self.rounds - 1))
        users = np.asarray(available, dtype=np.int64)
        pool = self._in_place(round, users)
        if isinstance(self.participation, Poisson | CyclicPoisson):
            # Each user has their own coin, whoever else is available. Adding one grid step rounds the probability down,
            # never above the rate that is charged.
            tossed = coins(int(pool.max(initial=-1)) + 1)[pool]
            return np.sort(self._solvent(round, pool[tossed + 2.0**-53 <= self.participation.rate]))
        if pool.size > 8 * self.asked:
            # Distinct users in uniformly random order: the first eligible ones among them are a uniform cohort.
            drawn = pool[generator.choice(pool.size, 2 * self.asked, replace=False)]
            fit = self._solvent(round, drawn[self._eligible(round, *taken(drawn))])
            if fit.size >= self.asked:
                return np.sort(fit[: self.asked])
        fit = self._solvent(round, pool[self._eligible(round, *taken(pool))])
        if fit.size < self.fewest:
            raise NotEnoughUsers(round, self.fewest, self.standing(round, users, taken))
        size = min(self.asked, fit.size)
        return np.sort(fit[generator.choice(fit.size, size, replace=False, shuffle=False)])

    def standing(self, round: int, available: ArrayLike, taken: Taken) -> Standing:
        """How many of `available` may take part in `round`, and why the others may not. O(n)."""
        users = np.asarray(available, dtype=np.int64)
        pool = self._in_place(round, users)
        last, count = taken(pool)
        exhausted = int((count >= self._most).sum())
        allowed = pool[self._eligible(round, last, count)]
        eligible = int(self._solvent(round, allowed).size)
        resting = int(users.size) - int(allowed.size) - exhausted
        return Standing(int(users.size), eligible, resting, exhausted, int(allowed.size) - eligible)

    def _solvent(self, round: int, users: Users) -> Users:
        """Those of `users`, all of whom may take part, who have enough left of their budget for it."""
        solvent = self._affords(round, users)
        return users if solvent is None else users[solvent]

    def _eligible(self, round: int, last: NDArray[np.int32], count: NDArray[np.int32]) -> NDArray[np.bool_]:
        if isinstance(self.participation, Poisson | CyclicPoisson):
            return np.ones(count.shape, dtype=np.bool_)
        rested = (count == 0) | (round - last >= self._separation)
        return np.asarray((count < self._most) & rested, dtype=np.bool_)

    def _in_place(self, round: int, users: Users) -> Users:
        if self._places is None:
            return users
        placed: Users = users[self._places.of(users) == round % self._separation]
        return placed


class _Places:
    """A fixed place in 0 .. n - 1 for every user index, from a seed; the same whatever the number of users.

    balanced: of every n consecutive indices one is dealt to each place, so cohorts are equal (fixed order). Otherwise
    users are placed independently and uniformly, so a user's absence does not change the law of another user's place.
    """

    def __init__(self, places: int, seed: int, balanced: bool) -> None:
        self._n, self._seed, self._balanced = places, seed, balanced
        self._block = places * max(1, _BLOCK // places) if balanced else _BLOCK
        self._of = np.empty(0, dtype=np.int32)

    def of(self, users: Users) -> NDArray[np.int32]:
        needed = int(users.max(initial=-1)) + 1
        if needed > self._of.size:
            blocks = range(self._of.size // self._block, -(-needed // self._block))
            self._of = np.concatenate([self._of, *map(self._draw, blocks)])
        return self._of[users]

    def _draw(self, block: int) -> NDArray[np.int32]:
        generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence((self._seed, block))))
        if not self._balanced:
            return generator.integers(0, self._n, self._block, dtype=np.int32)
        hands = np.tile(np.arange(self._n, dtype=np.int32), (self._block // self._n, 1))
        return np.asarray(generator.permuted(hands, axis=1).reshape(-1), dtype=np.int32)


def users_asked(cohort: int, over_selection: float) -> int:
    """How many users are asked so that `cohort` of them report. Poisson schemes ask those whom the coins choose."""
    return math.ceil(cohort * over_selection)


def require_possible(participation: Participation, rounds: int, cohort: int, users: int) -> None:
    """Refuse a plan that needs more participations than `users` users may give. Poisson schemes always run.

    Every round needs `cohort` users, and a user takes part once in any `separation` consecutive rounds.

    Raises:
        BadInput: with the largest cohort that is possible.
    """
    if isinstance(participation, Poisson | CyclicPoisson):
        return
    separation, most = participation.separation_and_count(rounds)
    needed = max(-(-rounds * cohort // most), cohort * min(separation, rounds))
    if users < needed:
        largest = min(users * most // rounds, users // min(separation, rounds))
        raise BadInput(
            f"{rounds} rounds of {cohort} users with at most {most} participations at least {separation} rounds apart",
            f"need {needed} users, and the population has {users}.",
            f"cohort {largest}" if largest else f"{needed} users",
        )
