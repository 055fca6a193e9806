"""What a run has spent so far, from the users who really took part.

Under `zero_out` and `replace_one`, who took part when is public: the selector and the network decide it, not
what users trained on. Given the pattern P of a user, everything that the run ever shows of the mechanism
differs between the two worlds by at most sum over pairs of |<C_i, C_j>|, i, j in P (all rows of C), and its
first t rounds by at most the planned sensitivity of the first t rows. Both grow with t, so

    spent(t) = (factor * min(planned(t), max over users of realised norm) / sigma)^2                            (1)

is an upper bound that never shrinks and never exceeds what the run reserved. Charges that depend on what
happened compose up to a fixed budget as fixed ones do: mu^2 adds up under full adaptivity (Smith and Thakurta
2022, for Gaussian mechanisms), and the ledger stops at the population's budget.

Where presence is secret so is participation, and the run is charged the worst case of `charge_for`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fieldfare.accounting import PrivacyLoss, charge_for
from fieldfare.arrays import Floats
from fieldfare.errors import NotAllowed, OutOfRange, Unsupported
from fieldfare.hashing import all_differ
from fieldfare.mechanisms.base import Mechanism
from fieldfare.participation import (
    IN_STEP,
    Adjacency,
    MinSeparation,
    Participation,
    Poisson,
    Single,
    adjacency_factor,
    hides_presence,
)
from fieldfare.participation_record import ParticipationRecord

Users: TypeAlias = NDArray[np.int64]


class Growth(NamedTuple):
    """What one more round adds to users' squared norms, by users."""

    # The increase of sum |<C_i, C_j>|, clip norm 1, before the adjacency's factor, shape (m,).
    squared: Floats
    earlier: NDArray[np.int32]  # in how many rounds each took part before, shape (m,)


# For mechanisms whose sensitivity is slow to compute, planned(t) is taken at the next of this many rounds.
_PLANNED_POINTS = 64


class RealisedCharge:
    """The running charge of one run. `add` takes a round's participants and returns what is spent by then.

    O(cohort x participations) a round for independent and Toeplitz mechanisms; others ask `pattern_norms` for
    the cohort's patterns. 16 bytes a user and 8 bytes a participation.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        participation: Participation,
        noise_multiplier: float,
        adjacency: Adjacency = "zero_out",
        *,
        users: int = 0,
        whole: PrivacyLoss | None = None,
    ) -> None:
        """
        Args:
            users: how many indices to make room for now; `add` makes room for more.
            whole: the certified charge of the whole run, which every round costs: when a run stops may depend
                on what it released. None: as `charge_for`, whose errors this raises.
        """
        self.mechanism, self.participation = mechanism, participation
        self.noise_multiplier, self.adjacency = noise_multiplier, adjacency
        self._whole = whole
        if whole is None:
            whole = charge_for(mechanism, participation, noise_multiplier, mechanism.rounds, adjacency)
        self.planned = whole  # what the run reserves: the most that `spent` ever becomes
        self.rounds = 0  # rounds charged so far are below this
        # Where presence is secret, a charge that followed from who took part would tell it: the planned one
        # is charged instead.
        self._realised = not hides_presence(adjacency)
        self._products = mechanism.column_products()
        self._newest: tuple[int, tuple[float, Floats]] = (-1, (0.0, np.empty(0)))
        # What `growth` was asked last, and its answer: a round's charge asks what its users' odometers did.
        self._grown: tuple[int, Users, Growth] | None = None
        # Toeplitz and independent kinds give <C_i, C_j> of a round at once; the others are asked for patterns.
        fast = self._products is not None
        # A planned charge of the other kinds takes a sensitivity each: few points stand for the rounds before them.
        self._planned_every = 1 if fast else max(1, -(-mechanism.rounds // _PLANNED_POINTS))
        self._planned_at, self._planned_value = 0, PrivacyLoss()
        self._spent = PrivacyLoss()
        self._largest = 0.0
        self._record = ParticipationRecord(users)
        self._squared = np.zeros(users)  # each user's realised norm, squared

    @property
    def spent(self) -> PrivacyLoss:
        """The charge of the rounds added so far, equation (1)."""
        return self._spent

    @property
    def largest_norm(self) -> float:
        """Max over users of the realised norm, all rows of C, clip norm 1, before the adjacency's factor."""
        return float(np.sqrt(self._largest))

    def add(self, round: int, users: Users) -> PrivacyLoss:
        """Count `users` as participants of `round`.

        Args:
            round: above all earlier ones.
            users: distinct indices, shape (m,), of those whose updates were summed.

        Returns:
            The loss of all rounds up to and including `round`.

        Raises:
            BadInput: a round out of order, or a pattern that the participation does not allow, for which no
                planned charge would be a bound. Nothing changes then.
        """
        self._require_next(round)
        cohort = np.asarray(users, dtype=np.int64)
        if cohort.size and (cohort.min() < 0 or not all_differ(cohort)):
            raise OutOfRange(f"the participants of round {round}", "must be distinct user indices from 0.")
        if self._realised:
            self._require_allowed(round, cohort)
            self._count_in(round, cohort)
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
        whole: PrivacyLoss | None = None,
    ) -> Self:
        """Rebuild from the ledger: `patterns` of users 0, 1, 2, ... over the `rounds` committed rounds of a
        run.

        Adds the same rounds as the run did, so `spent` is the same to the last bit. Raises as `add`.

        Args:
            mechanism, participation, noise_multiplier, adjacency: of the run's plan and its cost.
            patterns: for each user, the increasing rounds of the run in which they took part.
            rounds: committed rounds of the run; every round in `patterns` is below it.
            whole: as for a new charge.
        """
        # Arrays and not lists: a large run has millions of participations.
        flat_users, flat_rounds, known = array("q"), array("i"), 0
        for index, pattern in enumerate(patterns):
            flat_users.extend([index] * len(pattern))
            flat_rounds.extend(pattern)
            known = index + 1
        users, times = np.frombuffer(flat_users, dtype=np.int64), np.frombuffer(flat_rounds, dtype=np.int32)
        if times.size and not 0 <= int(times.min()) <= int(times.max()) < rounds:
            raise OutOfRange(
                f"participation in rounds {int(times.min())} to {int(times.max())}", f"{rounds} rounds are committed."
            )
        charge = cls(mechanism, participation, noise_multiplier, adjacency, users=known, whole=whole)
        order = np.argsort(times, kind="stable")
        starts = np.searchsorted(times[order], np.arange(rounds + 1))
        # Round by round, as the run did, so that `spent` is the same to the last bit.
        for round in range(rounds):
            charge.add(round, users[order[starts[round] : starts[round + 1]]])
        return charge

    def _require_next(self, round: int) -> None:
        if not self.rounds <= round < self.mechanism.rounds:
            raise OutOfRange(
                f"round {round}", f"must be in [{self.rounds}, {self.mechanism.rounds}) now.", str(self.rounds)
            )

    def _advance(self, round: int) -> PrivacyLoss:
        self.rounds = round + 1
        self._spent = self._charge()
        return self._spent

    def _charge(self) -> PrivacyLoss:
        if self._whole is not None:
            return self._whole
        if not self._realised:
            return self._planned_for(self.rounds)
        norm = adjacency_factor(self.adjacency) * self.largest_norm / self.noise_multiplier
        realised = norm * norm
        # planned(t) does not fall with t: a charge below an earlier planned(t) is below this one, which is
        # then never computed.
        if realised <= self._planned_value.mu_squared:
            charge = realised
        else:
            charge = min(realised, self._planned_for(self.rounds).mu_squared)
        # A charge never shrinks, and never exceeds what was reserved.
        return PrivacyLoss(max(self._spent.mu_squared, min(charge, self.planned.mu_squared)))

    def _planned_for(self, rounds: int) -> PrivacyLoss:
        at = min(-(-rounds // self._planned_every) * self._planned_every, self.mechanism.rounds)
        if at != self._planned_at:
            self._planned_value = charge_for(
                self.mechanism, self.participation, self.noise_multiplier, at, self.adjacency
            )
            self._planned_at = at
        return self._planned_value

    def _require_allowed(self, round: int, cohort: Users) -> None:
        last, count = self._record.last_and_count(cohort)
        wrong = ~_may_follow(self.participation, self.mechanism.rounds, last, count, round)
        if wrong.any():
            index = int(np.flatnonzero(wrong)[0])
            raise NotAllowed(
                f"user {int(cohort[index])} in round {round}",
                f"last took part in round {int(last[index])}, {int(count[index])} times in all, and "
                f"{self.participation} does not allow one more.",
            )

    def growth(self, round: int, users: Users) -> Growth:
        """Return what taking part in `round` would add to each user's squared norm, all rows of C. Changes
        nothing.

        Args:
            round: above all rounds of these users.
            users: indices, shape (m,).
        """
        cohort = np.array(users, dtype=np.int64)
        if self._grown is None or self._grown[0] != round or not np.array_equal(self._grown[1], cohort):
            self._grown = round, cohort, self._growth(round, cohort)
        return self._grown[2]

    def _growth(self, round: int, cohort: Users) -> Growth:
        self._record.grow(int(cohort.max()) + 1 if cohort.size else 0)
        if self._record.room > self._squared.size:
            self._squared = np.concatenate([self._squared, np.zeros(self._record.room - self._squared.size)])
        earlier = self._record.last_and_count(cohort)[1]
        if self._products is not None:
            # ||sum of columns||^2 grows by the new column's own square and twice its products with the earlier ones.
            energy, products = self._products_of(round)
            squared = np.full(cohort.size, energy)
            if products.size:
                for positions, rounds in self._record.entries(cohort):
                    squared[positions] += 2 * products[rounds]
            return Growth(squared, earlier)
        patterns = [(*pattern, round) for pattern in self._record.patterns(cohort)]
        distinct = list(dict.fromkeys(patterns))
        norms = dict(zip(distinct, self.mechanism.pattern_norms(distinct) if distinct else (), strict=True))
        squared = np.square(np.asarray([norms[pattern] for pattern in patterns]))
        return Growth(squared - self._squared[cohort], earlier)

    def _products_of(self, round: int) -> tuple[float, Floats]:
        """Return the inner products of column `round`; a round's selection and its charge ask for the same."""
        assert self._products is not None
        if self._newest[0] != round:
            self._newest = (round, self._products(round))
        return self._newest[1]

    def _count_in(self, round: int, cohort: Users) -> None:
        growth = self.growth(round, cohort)
        self._grown = None  # it was what they had before
        self._squared[cohort] += growth.squared
        self._record.add(round, cohort)
        if cohort.size:
            self._largest = max(self._largest, float(self._squared[cohort].max()))


def _may_follow(
    participation: Participation, rounds: int, last: NDArray[np.int32], count: NDArray[np.int32], round: int
) -> NDArray[np.bool_]:
    """Return which users with (last round or -1, count) may take part in `round`; their patterns so far are allowed."""
    if not isinstance(participation, (Single, MinSeparation, Poisson, *IN_STEP)):
        raise Unsupported(
            f"participation {type(participation).__name__}", "is not one whose realised patterns can be checked."
        )
    separation, most = participation.separation_and_count(rounds)
    fits = (count == 0) | ((round - last >= separation) & (count < most))
    if isinstance(participation, IN_STEP):
        fits &= (count == 0) | ((round - last) % separation == 0)
    return np.asarray(fits & (count < most), dtype=np.bool_)
