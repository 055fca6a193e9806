"""Draw each round's cohort with randomness that follows from the run's key."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fieldfare.noise import SecureNoise
from fieldfare.plan import Plan
from fieldfare_server.run.presence.availability import SimulatedAvailability
from fieldfare_server.run.presence.roster import Roster
from fieldfare_server.run.presence.selection import Affords, Payable, Selector, Users
from fieldfare_server.run.rehearsal import Account


class Cohorts:
    """The users of one run, who of them is asked in a round, and, in a simulation, who of those answers.

    Raises `BadInput` as `Selector`.
    """

    def __init__(
        self,
        plan: Plan,
        roster: Roster,
        account: Account,
        noise: SecureNoise,
        affords: Affords,
        payable: Payable = lambda users: None,
    ) -> None:
        """affords, payable: what users have left of their own budget; as `Selector`'s."""
        self._account, self._noise = account, noise
        self.roster = roster
        self._availability = SimulatedAvailability.of(plan, self.roster.names)
        self._selector = Selector(
            plan.participation.build(),
            plan.run.rounds,
            plan.run.cohort,
            plan.run.over_selection,
            order=noise.generator("order", 0),
            words=self._secret_words,
            fewest=max(1, plan.report_goal),
            affords=affords,
            payable=payable,
        )

    def _secret_words(self, count: int, attempt: int, draw: str) -> NDArray[np.uint64]:
        """Return cryptographic words, because amplification is charged; of a draw and of no attempt at a
        round, because bins hold for the whole run or block."""
        return np.frombuffer(self._noise.bytes(8 * count, row=attempt, stream=draw), dtype="<u8")

    def select(self, round: int, available: Users, voids: int = 0, without: Iterable[int] = ()) -> Users:
        """Return the cohort of `round` among `available` users, by randomness that only this attempt uses.

        Args:
            voids: attempts at this round, in this process, that too few users answered. They are drawn with
                other randomness, because the same users might not answer again. A round that a crash voided
                is drawn as before, so that the resumed run is the one that would have been without the crash.
            without: nodes whose users no later round counts on.

        Raises:
            NotEnoughUsers: as `Selector.select`.
        """
        stream = f"select.{voids}" if voids else "select"
        known = self.roster.known(without)
        # One generator for all hours that a simulation may have to try.
        generator = self._noise.generator(stream, round)

        def select(candidates: Users) -> Users:
            return self._selector.select(
                round,
                candidates,
                self._account.participation,
                generator,
                lambda count: self._noise.uniform(count, row=round, stream=stream),
                known,
            )

        if self._availability is None:
            return select(available)
        return self._availability.wait(round, available, select)

    def spread(self, round: int, users: Users, voids: int, most: int, proven: Iterable[int]) -> Users:
        """Return `users`, of whom each node that is not `proven` has at most `most`, by randomness of this attempt."""
        return self.roster.spread(users, most, proven, self._noise.generator(f"spread.{voids}", round))

    def require_lasting(self, round: int) -> None:
        """Raise `NotEnoughUsers` where the users known by now, if they stay, cannot fill all rounds from `round` on."""
        self._selector.require_lasting(round, self.roster.known(), self._account.participation)

    def answering(self, round: int, cohort: Users) -> Users:
        """Return those of `cohort` who are sent the round: all of them, or the simulated users whose answers count."""
        return cohort if self._availability is None else self._availability.answering(round, cohort)
