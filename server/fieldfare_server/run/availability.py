"""Simulated users that come and go, never answer, or answer late: the plan's `[availability]` at work.

A pure function of (run seed, pseudonym, round), so that a cohort is the same on one node, on many, and under Flower's
engine. It looks at no data and at no earlier cohort: sampling keeps what it earns, and who answers is public anyway.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
from flwr.serverapp import Grid
from numpy.typing import NDArray
from scipy.special import ndtri

from fieldfare.errors import BadInput
from fieldfare.hashing import uniforms
from fieldfare.plan import AvailabilitySpec, Plan
from fieldfare_server.run.selection import NotEnoughUsers, Users

_HOME, _SPEED, _REACH, _DROP, _LATE, _TIE = range(6)


class SimulatedAvailability:
    """How one run's users behave. `names` must be set to indices -> pseudonyms before it is asked anything."""

    def __init__(self, spec: AvailabilitySpec, seed: int, timeout: float, most: int | None) -> None:
        """timeout: simulated seconds after which nobody counts. most: answers that are waited for; None: for all."""
        self.spec, self._seed, self._timeout, self._most = spec, seed, timeout, most
        self.names: Callable[[Users], NDArray[np.uint64]] = lambda users: users.astype(np.uint64)
        self._later = 0

    @classmethod
    def of(cls, plan: Plan) -> SimulatedAvailability | None:
        """The plan's crowd; None where the plan says nothing about availability."""
        if plan.availability is None:
            return None
        # A Poisson cohort is never cut: one user's presence would then decide whether another one is summed.
        most = None if plan.samples else plan.run.cohort
        return cls(plan.availability, plan.run.seed, plan.run.round_timeout, most)

    def _draw(self, names: NDArray[np.uint64], what: int, round: int = 0) -> NDArray[np.float64]:
        return uniforms(names, self._seed, what, round)

    def __call__(self, round: int, users: Users) -> NDArray[np.bool_]:
        """Which of `users` can be asked in `round`, shape (n,): see `fieldfare.plan.AvailabilitySpec`."""
        spec, names, at = self.spec, self.names(users), round + self._later
        begins = self._draw(names, _HOME) * spec.time_zones
        wave = np.cos(2 * np.pi * (at / spec.rounds_per_day - begins))
        return np.asarray(self._draw(names, _REACH, at) < spec.reachable * (1 + spec.daily_swing * wave))

    def seconds(self, round: int, users: Users) -> NDArray[np.float64]:
        """Simulated seconds until each of `users` answers, shape (n,); infinite for one who never does."""
        spec, names = self.spec, self.names(users)
        # The middle of a cell of 2^-53: never 0, whose normal quantile is infinite.
        took = spec.response_seconds * np.exp(spec.speed_spread * ndtri(self._draw(names, _SPEED) + 2.0**-54))
        took[self._draw(names, _LATE, round) < spec.stragglers] *= spec.straggler_slowdown
        took[(self._draw(names, _DROP, round) < spec.dropout) | (took > self._timeout)] = np.inf
        return np.asarray(took)

    def answers(self, round: int, cohort: Users) -> Users:
        """Those of `cohort` whose answers count, increasing: who answers in time, and among the first."""
        took = self.seconds(round, cohort)
        # Ties are broken by lot: the order of names would favour the same users in every round.
        order = np.lexsort((self._draw(self.names(cohort), _TIE, round), took))
        return np.sort(cohort[order[: np.isfinite(took).sum()][: self._most]])

    def wait(self, select: Callable[[], Users]) -> Users:
        """A cohort, from the first moment of the next simulated day at which enough users can be asked.

        Nobody waits in real time. Raises `NotEnoughUsers` where no moment of a whole day has enough.
        """
        for later in range(self.spec.rounds_per_day):
            self._later = later
            try:
                return select()
            except NotEnoughUsers:
                if later == self.spec.rounds_per_day - 1:
                    raise
            finally:
                self._later = 0
        raise AssertionError("a day has at least one round")


def require_simulated(plan: Plan, grid: Grid | None) -> None:
    """Refuse a plan with made-up availability where users are real: they would be left out for no reason."""
    ours = bool(getattr(grid, "simulated", False)) or os.environ.get("FIELDFARE_NODE_AUTH") == "simulated"
    if plan.availability is not None and not ours:
        raise BadInput("availability", "describes simulated users, and these nodes are real.", "a plan without it")
