"""A run on a Flower grid: one round, in the order of DESIGN section 3.

    select -> open (durable) -> send -> aggregate -> [void] -> privatise -> step -> checkpoint -> commit -> release

With masks the server reads no reply: after [void] the set is closed (durable), then opened once (`masked`).

It is no FedAvg: a private sum needs a fixed denominator, aggregation by parameter name, replies that can do
no harm, a charge that is durable before any model is seen, and an end that returns the last model. Nothing
derived from users' data leaves this module except privatised parameters, and those only after their charge is
committed (I1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from fieldfare.errors import (
    BudgetRefused,
    CheckpointError,
    EveryUserFailed,
    Interrupted,
    LedgerError,
    is_of_the_disk,
)
from fieldfare.plan import Plan
from fieldfare.questions import Estimate
from fieldfare_flower import logs
from fieldfare_server import faults
from fieldfare_server.ledger import OpenRound
from fieldfare_server.run.presence.availability import require_callable, require_simulated
from fieldfare_server.run.presence.presence import Presence
from fieldfare_server.run.presence.selection import NotEnoughUsers, Users
from fieldfare_server.run.round.aggregation import Aggregate
from fieldfare_server.run.round.attempt import Attempt
from fieldfare_server.run.round.distant_blinder import DistantBlinder
from fieldfare_server.run.round.masked import MaskedSum
from fieldfare_server.run.round.record import Released
from fieldfare_server.run.round.stopping import require_finite_model, stop_run

if TYPE_CHECKING:
    from fieldfare_server.run.session import Session

log = logging.getLogger("fieldfare.strategy")

# Makes the nodes that train a plan's task.
GridOf: TypeAlias = Callable[[Plan], Grid]

# Seconds between looks at a paused run's request.
PAUSE_POLL = 0.5


@dataclass(frozen=True)
class RoundReport:
    """What may be shown of a committed round: public, or post-processing of what was released and charged."""

    round: int
    rounds: int
    cohort: int | None  # Users asked. None where a count of users is secret; so is `reports`.
    reports: int | None
    epsilon: float
    epsilon_limit: float
    score_name: str
    score: float | None
    noise_std: float
    # Private means over the last rounds, of what the plan's `[metrics]` lists.
    metrics: Mapping[str, Estimate] = field(default_factory=dict)


class FieldfareStrategy:
    """Runs a `Session` on a Flower `Grid`.

    Guarantee: everything that is released during and after `start` (models, scores, the ledger's public
    columns) is together (epsilon, delta)-DP for every user of the population, under the plan's adjacency,
    with the epsilon that the ledger shows; whatever nodes send, whatever crashes.
    """

    def __init__(
        self,
        session: Session,
        on_round: Callable[[RoundReport], None] = lambda report: None,
        on_sent: Callable[[int, int], None] = lambda messages, online: None,
        on_received: Callable[[int, int], None] = lambda results, failures: None,
        run_config: Mapping[str, object] | None = None,
    ) -> None:
        """
        Args:
            on_round: called after each commit.
            on_sent: called before a round is sent, with the number of messages and of nodes online.
            on_received: called when a round's replies are summed, with how many are in the sum and how many
                are not.
            run_config: what the app's Context says, for a grid that cannot show it.
        """
        self.session, self._run_config = session, run_config or {}
        self._on_round, self._on_sent, self._on_received = on_round, on_sent, on_received
        self._presence: Presence | None = None

    def start(self, grid: Grid) -> Result:
        """Log the plan's public shape, run to the plan's last round, and return the last committed model.

        Raises as `take_to_end`.
        """
        session, run = self.session, self.session.plan.run
        with logs.about(session.account.id, stamp=session.stamp):
            noise = (session.cost.mechanism.kind if session.cost else "no", session.noise_multiplier)
            shape = (session.account.id, run.rounds, run.cohort, *noise)
            log.info("run %s: %d rounds of %d users, %s noise, multiplier %.4g", *shape)
        self.take_to_end(grid)
        return Result(arrays=session.model.record(session.params))

    def take_to_end(self, grid: Grid) -> None:
        """Run from the session's next round to the plan's last. A stop request ends it with its last
        committed model.

        Raises:
            BudgetRefused: the budget is exhausted; the run has ended with its last committed model.
            BadInput: the released model is not finite, or every node's ClientApp is wrong; the run has ended.
            JournalRefused: the nodes saw a journal that this one does not go on from; the run has ended.
            Interrupted: Ctrl-C, a full disk, nodes that vanished, users that ran out, or users whose data are
                the caller's own and all of whom failed; the run can be resumed.
            Refused: nodes or users, as above, before the first commit; the run has ended, and its reservation
                is free.
        """
        session, plan = self.session, self.session.plan
        require_simulated(plan, grid)
        require_callable(plan, grid)
        presence = self._meet(grid)
        with session.interrupts:
            self._take_to_end(presence)

    def _take_to_end(self, presence: Presence) -> None:
        """Do as `take_to_end`, where a Ctrl-C breaks nothing."""
        session, plan = self.session, self.session.plan
        try:
            try:
                while session.coming_round < plan.run.rounds:
                    session.interrupts.check()
                    # Obey the ledger: an officer may stop or pause the run between two rounds.
                    request = session.account.request()
                    if request == "stop":
                        session.finish("stopped", "stopped on request")
                        return
                    if request == "pause":
                        presence.pause(PAUSE_POLL)
                        continue
                    with logs.about(session.account.id, session.coming_round, session.stamp):
                        presence.rest()
                        self.run_round(presence.grid)
                    require_finite_model(session)
                    presence.require_answers()
            finally:
                # However the loop ends: what a group holds becomes durable, and then may be seen.
                session.rounds.commits.commit_held()
            session.finish("done", "all rounds committed")
        except BudgetRefused as refusal:
            session.finish("exhausted", str(refusal))
            raise
        except (KeyboardInterrupt, Interrupted, NotEnoughUsers, EveryUserFailed) as cause:
            raise stop_run(session, cause) from cause.__cause__
        except (LedgerError, CheckpointError, OSError) as cause:
            if session.ended or not (isinstance(cause, OSError) or is_of_the_disk(cause)):
                raise
            raise stop_run(session, cause) from cause

    def run_round(self, grid: Grid) -> bool:
        """Make one attempt at the next round; return whether it was committed. Raises as `take_to_end`."""
        session, presence = self.session, self._meet(grid)
        if (closed := session.rounds.sums.closed) is not None:  # a crash left it: the same set is opened, and no other
            return self._commit(presence, closed.opened, closed.total, closed.reported)

        # Select among the users who are there, and whose participation and odometer allow it.
        cohort = presence.select()
        if cohort is None:
            return False
        session.rounds.sums.require_approval()
        session.require_going_on(presence.failures.seen)

        # Open the round in the ledger, and address the nodes that host the cohort.
        attempt = Attempt.open(session.rounds, session.cohorts, session.dialect, session.shown_heads, cohort)
        opened, total, asked = attempt.opened, attempt.sum, len(attempt.nodes)
        log.debug("round %d open, attempt %d", opened.index + 1, opened.attempt)
        faults.point("strategy.sent")
        self._on_sent(asked, presence.roster.nodes_online)

        # Send, and sum each reply as it arrives.
        with presence.counting():
            attempt.add(presence.exchange(attempt.messages, len(total.shares)), presence.failures, presence.evaluations)
        attempt.messages = ()  # and with them the model as it was sent
        total.rejects += presence.note_attempt(attempt.nodes, attempt.good, attempt.silent, attempt.full)
        presence.require_training()
        session.require_going_on(presence.failures.seen)
        faults.point("strategy.aggregated")
        self._on_received(len(attempt.reported), asked - len(attempt.reported))

        # Too few reports: the round is void. Nothing is released or charged, and no noise row is used.
        needed, nodes = session.plan.report_goal, session.plan.aggregation.fewest_nodes
        wrong = presence.counts.wrong_app is not None
        if total.users < needed or len(attempt.included) < nodes or wrong:
            cause = presence.counts.first_cause
            reason = f"{total.users} reports, {needed} needed" + (f"; {cause}" if cause else "")
            if nodes:
                reason = f"{len(attempt.included)} nodes, {nodes} needed; {reason}"
            session.rounds.commits.commit_held()  # a void round ends its group
            session.account.void_round(opened, reason, reports=total.users, rejects=dict(total.rejects))
            presence.note_void(opened.index, total.users)
            return False

        # The set is final. With masks: durably, before its sum is opened.
        opened = session.rounds.sums.close(opened, total, attempt.included, attempt.reported)
        return self._commit(presence, opened, total, attempt.reported)

    def _commit(
        self, presence: Presence, opened: OpenRound, total: Aggregate | MaskedSum, reported: Sequence[Users]
    ) -> bool:
        """Privatise, step, checkpoint, commit and release."""
        presence.await_release()
        counted = presence.counts.shown(int(opened.cohort.size)), presence.counts.shown(total.users)
        self.session.rounds.commit_round(
            opened, total, reported, lambda released: self._on_round(self._report(released, *counted))
        )
        presence.patience.note_commit()
        return True

    def _meet(self, grid: Grid) -> Presence:
        """Return who is there on `grid`: one memory for the session."""
        if self._presence is None:
            self.session.meet(grid)
            self._presence = Presence.of(self.session, grid)
            blinder = getattr(grid, "blinder", None) or DistantBlinder(self._presence)
            self.session.rounds.sums.meet(blinder, grid, self._run_config)
        self._presence.grid = grid
        return self._presence

    def _report(self, released: Released, cohort: int | None, reports: int | None) -> RoundReport:
        session = self.session
        return RoundReport(
            round=released.next_round - 1,
            rounds=session.plan.run.rounds,
            cohort=cohort,
            reports=reports,
            epsilon=session.epsilon_of(released),
            epsilon_limit=session.cost.epsilon if session.cost else 0.0,
            score_name=session.model.score_name,
            score=released.score.get(session.model.score_name),
            noise_std=released.noise_std,
            metrics=session.rounds.metrics.read(released.metrics, released.next_round - 1),
        )
