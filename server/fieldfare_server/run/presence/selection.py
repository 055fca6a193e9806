"""Who is asked to take part in a round: only users whom the plan's participation still allows.

What the accountant assumes is enforced here, from realised participation. Schemes:

- *single, min-separation*: one cohort, uniformly among the users that are available and allowed;
- *fixed order*: users are dealt to `period` places once in a run; a round's cohort comes from one place;
- *Poisson*: every available user independently with probability `rate`. Cohorts vary in size. They are
  neither filled up nor cut: that would be another scheme than the one for which amplification is proven;
- *cyclic Poisson*: users are put into `groups` groups independently and uniformly once in a run; the round's
  group is sampled as above;
- *truncated Poisson*: as Poisson, and of more than `cap` users who are drawn the `cap` with the smallest
  coins are kept. A round with users beyond the `enrolled` of the plan, for whom the cap is not charged, is
  refused;
- *balls in bins*: every user draws a bin, uniformly, by its own word of secret bits; a round's cohort is
  every available user of its bin. The bin holds for the whole run: no void round and no crash draws again;
- *random allocation*: the same, with a bin for every block of rounds, which holds in that block;
- *b-min-sep*: a user who has not been drawn for `separation` - 1 rounds is drawn by a secret coin of this
  user and this round. Draws count, whether or not their user was available or answered: the rest that follows
  is a matter of coins alone, so that a void round, a crash and a user's silence change no other round.

**To last to the end.** A uniform cohort may leave users whose rounds no later round can use, and the run dies
before its end with its budget spent. So, for the first two kinds, a cohort is as large as every later round
can also be (at most `cohort`, at least `fewest`). Where a uniform cohort would leave too little for that, the
users with most rounds left are taken instead, ties by lot, which is optimal (`fieldfare.capacity`). It is
decided from who took part, which is public under the adjacencies that these kinds allow, and never from data.
It is exact where all users stay and everyone who is asked reports; every round decides again from what has
happened.

The caller derives all randomness from the run's key, so that a resumed run selects the same cohort. Where
amplification is charged, the randomness must also be secret from anyone who sees some of the cohorts: Poisson
coins are therefore cryptographic, never a generator's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfare.capacity import Capacity, is_plentiful
from fieldfare.errors import Conflict, NotGiven, OutOfRange, Refused, Unsupported
from fieldfare.participation import (
    BINNED,
    IN_STEP,
    SAMPLED,
    BMinSep,
    CyclicPoisson,
    FixedOrder,
    MinSeparation,
    Participation,
    Poisson,
    Single,
    TruncatedPoisson,
    users_asked,
)
from fieldfare_server.run.presence.secret_draws import SecretBins, SecretRests, Words

Users: TypeAlias = NDArray[np.int64]
# Realised participation in this run: user indices -> (last round or -1, number of rounds), as the ledger answers.
Taken: TypeAlias = Callable[[Users], tuple[NDArray[np.int32], NDArray[np.int32]]]
# How many more rounds each user may take part in, and how many from now on each must rest, shape (n,) each.
_State: TypeAlias = tuple[NDArray[Any], NDArray[Any]]

# (round, user indices) -> which of them have enough left of their budget, shape (n,); None: all.
Affords: TypeAlias = Callable[[int, Users], NDArray[np.bool_] | None]

# n -> n secret uniforms in [0, 1) on the grid of 2^-53, shape (n,): `fieldfare.noise.SecureNoise.uniform`.
Coins: TypeAlias = Callable[[int], NDArray[np.float64]]

# User indices -> in how many rounds of this run each can pay to take part, shape (n,); None: in all.
Payable: TypeAlias = Callable[[Users], NDArray[np.int64] | None]

_BLOCK = 1 << 16


@dataclass(frozen=True)
class Eligibility:
    """How many users may take part, and why the others may not. Public except where presence is secret."""

    available: int
    eligible: int
    resting: int  # users who took part too recently, or have another place in the order
    exhausted: int  # users who took part as often as the plan allows
    overdrawn: int = 0  # users whom the plan allows to take part, and whose odometer does not


class NotEnoughUsers(Refused):
    """Fewer users than a round needs may take part now, or all together cannot fill the rounds that are left."""

    def __init__(self, round: int, fewest: int, standing: Eligibility, rounds: int = 0) -> None:
        """Keep which rounds cannot be filled, where it is rounds. rounds: those that are left."""
        self.standing = standing
        if rounds:
            super().__init__(
                f"{rounds} rounds of at least {fewest} reports",
                f"the {standing.available} users who are there cannot fill them, as often and as far apart as the plan "
                "lets one user take part.",
                "more users, fewer rounds, a smaller cohort and min_reports, or a participation of more rounds a user",
            )
            return
        super().__init__(
            f"the cohort of round {round + 1}",
            f"{fewest} users are needed, and of {standing.available} available ones {standing.eligible} may take part "
            f"({standing.resting} rest until later rounds, {standing.exhausted} have done all their rounds"
            + (f", {standing.overdrawn} have too little of their budget left)." if standing.overdrawn else ")."),
            f"a cohort of {standing.eligible}, or more users"
            if standing.eligible
            else "more users, or more participations",
        )


class TooFewHere(NotEnoughUsers):
    """Fewer users have been named by the nodes than a round needs, and the time to wait for more is over."""

    def __init__(self, round: int, needed: int, here: int, cause: str) -> None:
        """cause: what went wrong first, if anything did."""
        self.standing = Eligibility(here, here, 0, 0)
        Refused.__init__(
            self,
            f"the cohort of round {round + 1}",
            f"{needed} users are needed, {here} here." + (f" First cause: {cause}." if cause else ""),
            "more nodes, or a smaller cohort and min_reports",
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
        words: Words | None = None,
        fewest: int = 0,
        affords: Affords = lambda round, users: None,
        payable: Payable = lambda users: None,
    ) -> None:
        """
        Args:
            affords: who has enough left of their own budget.
            payable: for how many rounds each has, where later rounds are provided for.
            cohort: users wanted in each round; for sampling only the mean's denominator, not a target.
            over_selection: users asked per user wanted.
            order: a generator that depends on the run's key alone; fixed order and cyclic Poisson place users
                by it.
            words: from the run's key alone; balls in bins, random allocation and b-min-sep draw users by
                them.
            fewest: a cohort of fewer users is refused (0: never).

        Raises:
            BadInput: a scheme or number that cannot be enforced.
        """
        if not isinstance(participation, (Single, MinSeparation, FixedOrder, *SAMPLED)):
            raise Unsupported(
                f"participation {type(participation).__name__}", "no selector enforces it.", "MinSeparation"
            )
        for name, value in (("rounds", rounds), ("cohort", cohort)):
            if value < 1:
                raise OutOfRange(f"{name} = {value}", "must be at least 1.", "1")
        if not 0 <= fewest <= cohort:
            raise OutOfRange(f"fewest = {fewest}", f"must be in [0, cohort = {cohort}].", str(cohort))
        if not 1 <= over_selection < math.inf:
            raise OutOfRange(f"over_selection = {over_selection}", "must be a finite number of at least 1.", "1.0")
        if isinstance(participation, SAMPLED) and over_selection != 1:
            raise Conflict(
                f"over_selection = {over_selection}",
                "sampling includes every user independently; asking more users would be another scheme.",
                "1.0",
            )
        self.participation, self.rounds, self.cohort = participation, rounds, cohort
        self.fewest, self.over_selection = fewest, over_selection
        self._affords, self._payable = affords, payable
        self.asked = users_asked(cohort, over_selection)
        self._separation, self._most = participation.separation_and_count(rounds)
        # Places are a function of the run's key and are not stored: a resumed run finds the same ones.
        self._places: _Places | SecretBins | SecretRests | None = None
        if isinstance(participation, (*BINNED, BMinSep)):
            if words is None:
                raise NotGiven("words", f"{type(participation).__name__} needs secret bits that place users.")
            if isinstance(participation, BMinSep):
                self._places = SecretRests(participation, words)
            else:
                self._places = SecretBins(participation, words)
        elif isinstance(participation, IN_STEP):
            if order is None:
                raise NotGiven("order", f"{type(participation).__name__} needs a generator that places users.")
            balanced = isinstance(participation, FixedOrder)
            self._places = _Places(self._separation, int(order.integers(0, 2**63)), balanced)
        # Under fixed order, every `_stride`-th round has the same users, and they may take part in each of those.
        self._stride, self._apart = (self._separation, 1) if self._places is not None else (1, self._separation)

    def select(
        self,
        round: int,
        available: ArrayLike,
        taken: Taken,
        generator: np.random.Generator,
        coins: Coins,
        known: ArrayLike | None = None,
    ) -> Users:
        """Return the cohort of `round`: increasing distinct indices from `available`, all of them allowed to
        take part.

        Uniform without replacement among eligible users, unless too few would be left for later rounds.
        O(cohort) where there are plenty of users; O(n) otherwise.

        Args:
            available: distinct user indices, int64 (n,).
            taken: the ledger's realised participation.
            generator: from the run's key and this round; for all schemes but Poisson.
            coins: the same, for Poisson schemes.
            known: the users who may take part in later rounds, `available` and others; None: `available`
                alone.

        Raises:
            NotEnoughUsers: fewer than `fewest` users may take part. Never for Poisson schemes: a cohort may
                be empty.
        """
        if not 0 <= round < self.rounds:
            raise OutOfRange(f"round {round}", f"must be in [0, {self.rounds}).", str(self.rounds - 1))
        users = np.asarray(available, dtype=np.int64)
        pool = self._in_place(round, users)
        if isinstance(self._places, SecretBins | SecretRests):
            # The secret draw has chosen already. Nothing may be filtered after it, or the charge would be for
            # another sampler.
            return np.sort(pool)
        if isinstance(self.participation, Poisson | CyclicPoisson | TruncatedPoisson):
            # Each user has their own coin, whoever else is available. Adding one grid step rounds the
            # probability down, never above the rate that is charged.
            tossed = coins(int(pool.max(initial=-1)) + 1)[pool]
            included = tossed + 2.0**-53 <= self.participation.rate
            cohort, lots = pool[included], tossed[included]
            if isinstance(self.participation, TruncatedPoisson):
                self._require_enrolled(known, users)
                # Below the rate a coin is uniform, whatever the rate: the smallest are a lot among those who are drawn.
                cohort = cohort[np.argsort(lots, kind="stable")[: self.participation.cap]]
            return np.sort(self._solvent(round, cohort))
        everyone = pool if known is None else self._in_place(round, np.asarray(known, dtype=np.int64))
        # Asked of everybody who may still come, not of those who are here: who is here now must not decide
        # whether later rounds can be filled.
        plenty = self._has_plenty(round, self._count_whole(everyone))
        if plenty and pool.size > 8 * self.asked:
            # Distinct users in uniformly random order: the first eligible ones among them are a uniform cohort.
            drawn = pool[generator.choice(pool.size, 2 * self.asked, replace=False)]
            fit = self._solvent(round, drawn[self._eligible(round, *taken(drawn))])
            if fit.size >= self.asked:
                return np.sort(fit[: self.asked])
        last, count = taken(pool)
        eligible = self._eligible(round, last, count)
        fit, had = pool[eligible], count[eligible]
        solvent = self._affords(round, fit)
        if solvent is not None:
            fit, had = fit[solvent], had[solvent]
        if fit.size < self.fewest:
            raise NotEnoughUsers(round, self.fewest, self.standing(round, users, taken))
        # A smaller cohort now can be what lets every later round reach its minimum.
        state = None if plenty else self._state(round, everyone, taken)
        size = self.cohort if state is None else self._largest(round, state)
        asked = min(users_asked(size, self.over_selection), fit.size)
        places = generator.choice(fit.size, asked, replace=False, shuffle=False)
        if state is not None and not self._lasts_after(round, size, state, everyone, fit[places]):
            shuffled = generator.permutation(fit.size)
            # Who has most rounds left goes first, in random order among equals: those with few are saved for
            # rounds that need them.
            left = self._rounds_of(fit) - had
            places = shuffled[np.argsort(-left[shuffled], kind="stable")[:asked]]
        return np.sort(fit[places])

    def _require_enrolled(self, known: ArrayLike | None, available: Users) -> None:
        """Refuse to draw from more users than the cap on the cohort is charged for."""
        assert isinstance(self.participation, TruncatedPoisson)
        everyone = available if known is None else np.asarray(known, dtype=np.int64)
        if everyone.size > self.participation.enrolled:
            raise OutOfRange(
                f"participation.enrolled = {self.participation.enrolled}",
                "more users than the plan states have enrolled, and the cap on a round's users is charged for no more.",
                "a run that states how many users there ever are",
            )

    def can_last(self, round: int, known: ArrayLike, taken: Taken) -> bool:
        """Return whether `known` users, if they all stay, can fill all rounds from `round` on with `fewest`
        users each. O(n).
        """
        if isinstance(self.participation, SAMPLED):  # its cohorts may be empty
            return True
        users, fewest = np.asarray(known, dtype=np.int64), max(1, self.fewest)
        places = range(round, min(self.rounds, round + self._stride))
        states = ((at, *self._state(at, self._in_place(at, users), taken)) for at in places)
        return all(self._capacity(*state).lasts(self._left(state[0]), fewest) for state in states)

    def require_lasting(self, round: int, known: ArrayLike, taken: Taken) -> None:
        """Raise `NotEnoughUsers` unless `can_last`."""
        if not self.can_last(round, known, taken):
            standing = self.standing(round, known, taken)
            raise NotEnoughUsers(round, max(1, self.fewest), standing, self.rounds - round)

    def _left(self, round: int) -> int:
        """Return how many rounds from `round` on its users may fill, `round` included."""
        return -(-(self.rounds - round) // self._stride)

    def _rounds_of(self, users: Users) -> NDArray[np.int64]:
        """Return how many rounds of the run each may take part in and can pay for, shape (n,)."""
        payable = self._payable(users)
        return np.full(users.shape, self._most) if payable is None else np.minimum(payable, self._most)

    def _count_whole(self, users: Users) -> int:
        """Return how many of them can pay for as many rounds as the plan allows."""
        payable = self._payable(users)
        return int(users.size) if payable is None else int((payable >= self._most).sum())

    def _has_plenty(self, round: int, users: int) -> bool:
        past, left = round // self._stride + 1, self._left(round) - 1
        return is_plentiful(users, left, self.cohort, self._apart, self._most, past=past, asked=self.asked)

    def _state(self, round: int, users: Users, taken: Taken) -> _State:
        last, count = taken(users)
        rest = np.where(count > 0, last + self._separation - round, 0) if self._apart > 1 else np.zeros_like(count)
        return self._rounds_of(users) - count, rest

    def _capacity(self, round: int, left: NDArray[Any], rest: NDArray[Any]) -> Capacity:
        """Return what users in this state can still give from `round` on."""
        return Capacity.of(np.minimum(left, -(-self._left(round) // self._apart)), rest, self._apart)

    def _largest(self, round: int, state: _State) -> int:
        """Return the largest cohort that all rounds from `round` on can have; `fewest` where there is none."""
        fewest = max(1, self.fewest)
        return self._capacity(round, *state).largest(self._left(round), self.cohort, fewest) or fewest

    def _lasts_after(self, round: int, size: int, state: _State, everyone: Users, cohort: Users) -> bool:
        asked = np.zeros(int(max(everyone.max(initial=0), cohort.max(initial=0))) + 1, np.bool_)
        asked[cohort] = True
        (left, rest), asked = state, asked[everyone]
        after = self._capacity(round, left - asked, np.where(asked, self._apart - 1, rest - 1))
        return after.lasts(self._left(round) - 1, size)

    def standing(self, round: int, available: ArrayLike, taken: Taken) -> Eligibility:
        """Return how many of `available` may take part in `round`, and why the others may not. O(n)."""
        users = np.asarray(available, dtype=np.int64)
        pool = self._in_place(round, users)
        last, count = taken(pool)
        exhausted = int((count >= self._most).sum())
        allowed = pool[self._eligible(round, last, count)]
        eligible = int(self._solvent(round, allowed).size)
        resting = int(users.size) - int(allowed.size) - exhausted
        return Eligibility(int(users.size), eligible, resting, exhausted, int(allowed.size) - eligible)

    def _solvent(self, round: int, users: Users) -> Users:
        """Return those of `users`, all of whom may take part, who have enough left of their budget for it."""
        solvent = self._affords(round, users)
        return users if solvent is None else users[solvent]

    def _eligible(self, round: int, last: NDArray[np.int32], count: NDArray[np.int32]) -> NDArray[np.bool_]:
        rested = (count == 0) | (round - last >= self._separation)
        return np.asarray((count < self._most) & rested, dtype=np.bool_)

    def _in_place(self, round: int, users: Users) -> Users:
        if self._places is None:
            return users
        placed: Users = users[self._places.serves(round, users)]
        return placed


class _Places:
    """A fixed place in 0 .. n - 1 for every user index, from a seed; the same whatever the number of users.

    balanced: of every n consecutive indices one is dealt to each place, so cohorts are equal (fixed order).
    Otherwise users are placed independently and uniformly, so a user's absence does not change the law of
    another user's place.
    """

    def __init__(self, places: int, seed: int, balanced: bool) -> None:
        self._n, self._seed, self._balanced = places, seed, balanced
        self._block = places * max(1, _BLOCK // places) if balanced else _BLOCK
        self._of = np.empty(0, dtype=np.int32)

    def serves(self, round: int, users: Users) -> NDArray[np.bool_]:
        """Return which of `users` have the place of `round`, shape (n,)."""
        return np.asarray(self.of(users) == round % self._n)

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
