"""What may be counted of who is there, and decided from it: everything (`Public`), or nothing (`Secret`).

Under `zero_out` and `replace_one` who took part and how many reported is public, so a round may wait for
enough users, be void without them, and a run may end because nobody answers. Where a user's presence is the
secret, none of this may be: how many users there are decides neither whether a round takes place nor when,
and is shown nowhere.
"""

from __future__ import annotations

import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from fieldfare.errors import Refused
from fieldfare_server import faults
from fieldfare_server.run.presence.patience import NODE_POLL
from fieldfare_server.run.presence.selection import NotEnoughUsers, TooFewHere, Users
from fieldfare_server.run.presence.standing import QUARANTINED, VOIDS_BEFORE_SPREADING, Standing

if TYPE_CHECKING:
    from fieldfare_server.run.presence.presence import Presence


log = logging.getLogger("fieldfare.strategy")


class Counts(ABC):
    """What the presence of users may decide and show."""

    def __init__(self, presence: Presence) -> None:
        self.presence, self.session = presence, presence.session
        self.cohorts, self.roster = presence.session.cohorts, presence.session.cohorts.roster

    @abstractmethod
    def select(self) -> Users:
        """Wait for the moment at which a round can open, and draw its cohort. Raises as `Presence.select`."""

    @abstractmethod
    def shown(self, count: int) -> int | None:
        """Return `count` where it may be shown, else None."""

    def note_attempt(self, good: Collection[int], failed: Collection[int]) -> Counter[str]:
        """Note which nodes answered an instruction well, or failed; returns what the round's record says of it."""
        return Counter()

    @property
    def wrong_app(self) -> Refused | None:
        """The refusal of a run in whose first round most nodes answered, and none as it should; else None."""
        return None

    @property
    def first_cause(self) -> str:
        """What went wrong first. Empty where it would show how many users there are."""
        return ""

    @property
    def all_silent(self) -> bool:
        """Whether nothing was committed, most nodes had their time, and none ever answered anything."""
        return False


class Secret(Counts):
    """Whoever is there is sampled. How many they are decides nothing: not whether, when or how often."""

    def select(self) -> Users:
        self.presence.await_opening()
        # A row of its own in the journal, whoever is there. A group of simulated rounds, which the journal shows
        # as one, has one row, before it.
        if not self.session.rounds.commits.holds:
            self.roster.register()
        cohort = self.cohorts.select(self.session.coming_round, self.roster.available())
        faults.point("strategy.selected")
        return cohort

    def shown(self, count: int) -> int | None:
        return None


class Public(Counts):
    """A round waits for enough users; nodes that fail are asked less; a run that cannot succeed ends."""

    def __init__(self, presence: Presence) -> None:
        super().__init__(presence)
        plan = self.session.plan
        # How many users a round waits for, where the plan does not say.
        self._wanted = 1 if plan.samples else plan.run.cohort
        # How many users a round waits for: fewer after a whole timeout in which no more came.
        self._expected = self._wanted
        self._standing = Standing(counts=not plan.samples)
        self._said = False  # whether it was said that users are missing
        # Whether nodes that have never answered well are asked for a share of a cohort only.
        self._spreads = False

    def shown(self, count: int) -> int | None:
        return count

    def select(self) -> Users:
        """Wait, up to the round's timeout, for enough users to make a round worth opening; then select."""
        presence, roster, goal = self.presence, self.roster, self.session.plan.report_goal
        deadline = time.monotonic() + presence.timeout
        presence.settle()
        while True:
            roster.look(presence.grid)
            roster.register()
            if time.monotonic() >= presence.judged_from:
                presence.require_right_app()
            time_is_over = time.monotonic() >= deadline or presence.complete
            if time_is_over:
                self._expect_no_more(roster.reserve().size)
                silent, online = roster.silent, roster.nodes_online
                roster.failures.note_silence(silent, online, presence.timeout, online)
            try:
                cohort = self._select_among_present()
            except NotEnoughUsers:
                if time_is_over or not presence.waits:
                    raise
                cohort = np.zeros(0, np.int64)
            if time_is_over and not cohort.size and not self.session.coming_round:
                raise TooFewHere(0, self._needed, roster.reserve().size, self.first_cause)
            if time_is_over or (cohort.size and cohort.size >= goal and self._on_enough_nodes()):
                faults.point("strategy.selected")
                return cohort
            self._say_what_is_missing(deadline)
            self.session.heartbeat()
            time.sleep(NODE_POLL)

    def _on_enough_nodes(self) -> bool:
        """Whether the users who are there live on as many nodes as a masked sum must have: else it would be void."""
        fewest = self.session.plan.aggregation.fewest_nodes
        return not fewest or len(self.roster.by_node(self.roster.available())) >= fewest

    @property
    def _needed(self) -> int:
        """How many users must be there for a round."""
        plan = self.session.plan
        return max(1, plan.report_goal) if plan.run.min_available is None else plan.run.min_available

    def _say_what_is_missing(self, deadline: float) -> None:
        """Say once, at the first look that finds too few users: how many are needed, how long they are awaited."""
        here, left = self.roster.reserve().size, max(0.0, deadline - time.monotonic())
        if not self._said and here < self._needed:
            log.warning("%d users needed, %d here: waiting for at most %.0f s", self._needed, here, left)
            self._said = True

    def _select_among_present(self) -> Users:
        """Return a cohort among the users who are there now; empty where more are to be waited for.

        Raises:
            NotEnoughUsers: too few of those who are there may take part.
        """
        plan, cohorts, roster, index = self.session.plan, self.cohorts, self.roster, self.session.coming_round
        resting, quarantined = self._standing.resting(), self._standing.quarantined()
        roster.set_aside(resting, quarantined)
        reliable, everyone = roster.available(), roster.reserve()
        goal = max(1, plan.report_goal)
        if plan.run.min_available is not None:
            enough = everyone.size >= plan.run.min_available
        else:
            expected = self._expected if everyone.size < self._wanted else self._wanted
            # Users of nodes that rest are not waited for: else a node that fails, or leaves, would hold up the rest.
            set_aside = roster.known().size - roster.known(resting).size
            enough = everyone.size >= expected or reliable.size >= max(goal, expected - set_aside)
        if not enough:
            return np.zeros(0, np.int64)
        if index == 0:
            cohorts.require_lasting(0)
        voids = self.presence.patience.voids
        self._spreads |= voids >= VOIDS_BEFORE_SPREADING
        if self._spreads and not plan.samples:
            share = -(-plan.run.cohort // max(1, roster.nodes_online))
            spread = cohorts.spread(index, reliable, voids, share, self._standing.proven)
            with contextlib.suppress(NotEnoughUsers):
                return cohorts.select(index, spread, voids, quarantined)
        # Nodes that rest are asked only where the others cannot fill a round.
        if goal <= reliable.size < everyone.size:
            with contextlib.suppress(NotEnoughUsers):
                return cohorts.select(index, reliable, voids, quarantined)
        return cohorts.select(index, everyone, voids)

    def _expect_no_more(self, present: int) -> None:
        """Wait no more for users: rounds go on with those who are there, until more come back."""
        if present >= max(1, self.session.plan.report_goal):
            self._expected = min(self._wanted, present)

    def note_attempt(self, good: Collection[int], failed: Collection[int]) -> Counter[str]:
        spent = self.presence.failures.spent
        while spent:
            self.roster.ask_again(spent.pop())
        return Counter({QUARANTINED: self._standing.note_attempt(good, failed)})

    @property
    def wrong_app(self) -> Refused | None:
        """Every round would be the same. Once a round is committed there is none: the app was right once."""
        if self.session.coming_round:
            return None
        seen = (self.roster.failures, self.presence.failures, self.presence.evaluations)
        return next(filter(None, (each.all_wrong(self.roster.nodes_online) for each in seen)), None)

    @property
    def first_cause(self) -> str:
        presence = self.presence
        return self.roster.failures.first_cause or presence.failures.first_cause or presence.evaluations.first_cause

    @property
    def all_silent(self) -> bool:
        silent = self.presence.failures.silent or self.roster.failures.silent
        return not self.session.coming_round and silent
