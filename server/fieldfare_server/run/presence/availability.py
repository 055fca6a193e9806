"""Simulated users that come and go, never answer, or answer late: the plan's `[availability]` table at work.

Everything is a pure function of (run seed, pseudonym, round), so a cohort is the same on one node, on many,
and under Flower's engine. It depends on no data and on no earlier cohort: sampling keeps its amplification,
and who answers is public anyway.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from fieldfare.errors import BadInput, Conflict
from fieldfare.hashing import uniforms
from fieldfare.lazily import scipy
from fieldfare.plan import Plan
from fieldfare.plan_tables import AvailabilitySpec
from fieldfare_server.run.presence.selection import NotEnoughUsers, Users

if TYPE_CHECKING:
    from flwr.serverapp import Grid

# What a random number decides: one independent family of uniforms for each.
_HOME, _SPEED, _REACH, _DROP, _LATE, _TIE = range(6)

# User indices -> pseudonyms, shape (n,): users behave by name, because indices differ between deployments.
Names = Callable[[Users], NDArray[np.uint64]]


class SimulatedAvailability:
    """How one run's users behave. See `fieldfare.plan_tables.AvailabilitySpec` for the model."""

    def __init__(self, spec: AvailabilitySpec, seed: int, timeout: float, most: int | None, names: Names) -> None:
        """
        Args:
            timeout: simulated seconds after which an answer no longer counts.
            most: how many answers a round waits for; None: for all.
        """
        self._spec, self._seed, self._timeout, self._most, self._names = spec, seed, timeout, most, names

    @classmethod
    def of(cls, plan: Plan, names: Names) -> Self | None:
        """Return the plan's simulated users; None where the plan has no `[availability]`."""
        if plan.availability is None:
            return None
        # A Poisson cohort is never cut: one user's presence would then decide whether another user is summed.
        most = None if plan.samples else plan.run.cohort
        return cls(plan.availability, plan.run.seed, plan.run.round_timeout, most, names)

    def _draw(self, names: NDArray[np.uint64], family: int, round: int = 0) -> NDArray[np.float64]:
        return uniforms(names, self._seed, family, round)

    def reachable(self, round: int, users: Users) -> NDArray[np.bool_]:
        """Return which of `users` can be asked at the hour of `round`, shape (n,)."""
        spec = self._spec
        # What no hour moves needs no look at the user's own day, and rounding keeps these bounds in order.
        always, ever = (spec.reachable * (1 + spec.daily_swing * wave) for wave in (-1.0, 1.0))
        if always >= 1:
            return np.ones(len(users), np.bool_)
        names = self._names(users)
        lots = self._draw(names, _REACH, round)
        here = lots < always
        unsure = np.flatnonzero((lots >= always) & (lots < ever))
        day_begins = self._draw(names[unsure], _HOME) * spec.time_zones
        wave = np.cos(2 * np.pi * (round / spec.rounds_per_day - day_begins))
        here[unsure] = lots[unsure] < spec.reachable * (1 + spec.daily_swing * wave)
        return here

    def seconds(self, round: int, users: Users) -> NDArray[np.float64]:
        """Return simulated seconds until each of `users` answers, shape (n,); infinite for a user who never does."""
        spec, names = self._spec, self._names(users)
        # The middle of a cell of 2^-53 is never 0, whose normal quantile is infinite.
        speeds = scipy.special.ndtri(self._draw(names, _SPEED) + 2.0**-54)
        seconds = spec.response_seconds * np.exp(spec.speed_spread * speeds)
        seconds[self._draw(names, _LATE, round) < spec.stragglers] *= spec.straggler_slowdown
        seconds[(self._draw(names, _DROP, round) < spec.dropout) | (seconds > self._timeout)] = np.inf
        return np.asarray(seconds)

    def answering(self, round: int, cohort: Users) -> Users:
        """Return those of `cohort` whose answers count, increasing: the first `most` of those who answer in time."""
        seconds = self.seconds(round, cohort)
        # Ties are broken by lot: the order of names would favour the same users in every round.
        order = np.lexsort((self._draw(self._names(cohort), _TIE, round), seconds))
        return np.sort(cohort[order[: np.isfinite(seconds).sum()][: self._most]])

    def wait(self, round: int, users: Users, select: Callable[[Users], Users]) -> Users:
        """Return a cohort from the first hour, within a simulated day from `round` on, at which enough users
        can be asked.

        Args:
            select: reachable users -> cohort; raises `NotEnoughUsers`.

        Raises:
            NotEnoughUsers: no hour of a whole day has enough.
        """
        hours = range(round, round + self._spec.rounds_per_day)  # no real time passes
        for hour in hours[:-1]:
            try:
                return select(users[self.reachable(hour, users)])
            except NotEnoughUsers:
                continue
        return select(users[self.reachable(hours[-1], users)])


def is_simulated(grid: Grid | None) -> bool:
    """Return whether all nodes of this grid are simulated: in this process, by Flower's simulation, or as stated."""
    from fieldfare_flower.own_data import is_flowers_simulation  # Flower, which no price needs

    stated = os.environ.get("FIELDFARE_NODE_AUTH") == "simulated"
    return stated or bool(getattr(grid, "simulated", False)) or is_flowers_simulation(grid)


def require_callable(plan: Plan, grid: Grid | None) -> None:
    """Refuse a sampler whose users must come when they are drawn, where the server cannot command that they do."""
    if plan.secret and not plan.participation.callable and not is_simulated(grid):
        raise Conflict(
            "participation.callable = false",
            f"scheme {plan.participation.scheme!r} calls each user in the rounds that were drawn for them; real users "
            "who come when they like decide that themselves, and it may show.",
            "callable = true where every user can be called at will (patients of a clinic, customers of a silo); else "
            "scheme = 'min-separation' with adjacency = 'zero_out'",
        )


def require_simulated(plan: Plan, grid: Grid | None) -> None:
    """Refuse a plan with simulated availability where users are real, which would leave them out for no reason; and
    one with masked sums whose blinder is not what the plan says: a party of its own, or a rehearsal's."""
    aggregation, rehearsed = plan.aggregation, getattr(grid, "blinder", None) is not None
    if aggregation.rings and not rehearsed and (is_simulated(grid) or not aggregation.party):
        what, why = "aggregation.kind = 'masked'", "these nodes have no blinder."
        near = "aggregation.blinder, on a federation; `fieldfare simulate` without it; or aggregation.kind = 'plain'"
        raise BadInput(what, why, near, code="masked-without-blinder")
    if aggregation.party and rehearsed:
        why = "names a party of its own, and a rehearsal's blinder is this process."
        raise BadInput("aggregation.blinder", why, "a plan without it", code="masked-not-rehearsed")
    if plan.availability is not None and not is_simulated(grid):
        raise Conflict("availability", "describes simulated users, and these nodes are real.", "a plan without it")
