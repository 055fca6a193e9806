"""The Flower strategy: one round, in the order of DESIGN section 3.

    select -> open (durable) -> send -> aggregate -> [void] -> privatise -> step -> checkpoint -> commit -> release

It does not wrap FedAvg: a private sum needs a fixed denominator, aggregation by parameter name, replies that can do no
harm, a charge that is durable before any model is seen, and an end that returns the last model. Nothing derived from
users' data leaves this module except privatised parameters, and those only after their charge is committed (I1).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fieldfare.errors import BadInput, BudgetRefused, Interrupted
from fieldfare_flower import logs
from fieldfare_flower.messages import TRAIN, Occasion, TrainInstruction, write_points
from fieldfare_server import faults
from fieldfare_server.ledger import OpenRound
from fieldfare_server.run.aggregation import Aggregate
from fieldfare_server.run.availability import require_simulated
from fieldfare_server.run.pace import Pace
from fieldfare_server.run.replies import receive_replies
from fieldfare_server.run.selection import Users
from fieldfare_server.run.session import Session

log = logging.getLogger("fieldfare.strategy")

NODE_POLL = 1.0
"""Seconds between looks for nodes that are not online yet."""
PAUSE_POLL = 0.5
"""Seconds between looks at a paused run's request."""
MOST_VOIDS = 20
"""Consecutive void rounds after which the run stops (resumable): the nodes are gone or broken."""


@dataclass(frozen=True)
class RoundReport:
    """What may be shown of a committed round: public, or post-processing of what was released and charged."""

    round: int
    rounds: int
    cohort: int | None
    """Users asked. None under `add_remove`, where a count of users is secret; so is `reports`."""
    reports: int | None
    epsilon: float
    epsilon_limit: float
    score_name: str
    score: float | None
    noise_std: float


@dataclass(frozen=True, eq=False)
class Attempt:
    """One attempt at one round, from its opening in the ledger to its commit or void."""

    grid: Grid
    opened: OpenRound
    cohort: Users
    """Users selected, as indices, shape (n,)."""
    asked: Mapping[int, Users]
    """By node id: the users of the cohort that this node is asked to train."""
    messages: list[Message]
    """One instruction for each node in `asked`."""
    sum: Aggregate
    """Raw. It grows with every reply."""


class FieldfareStrategy(Strategy):
    """Runs a `Session` on a Flower `Grid`.

    Guarantee: everything that is released during and after `start` (models, scores, the ledger's public columns) is
    together (epsilon, delta)-DP for every user of the population, under the plan's adjacency, with the epsilon that
    the ledger shows; whatever nodes send, whatever crashes.
    """

    def __init__(self, session: Session, on_round: Callable[[RoundReport], None] = lambda report: None) -> None:
        """on_round: called after each commit."""
        self.session = session
        self._on_round = on_round
        self._voids = 0
        """Consecutive void attempts at the next round, in this process."""
        schedule = session.account.schedule
        self._pace = None if schedule is None else Pace(schedule, session.account.clock)
        self._at_scheduled_time = False
        """Whether a scheduled time has just come, at which the last round was released: the next opens at once."""
        self._attempt: Attempt | None = None
        """Between Flower's `configure_train` and `aggregate_train`; `start` passes the attempt itself."""

    def summary(self) -> None:
        """Log the plan's public shape."""
        session, run = self.session, self.session.plan.run
        noise = (session.cost.mechanism.kind if session.cost else "no", session.noise_multiplier)
        shape = (session.account.id, run.rounds, run.cohort, *noise)
        log.info("run %s: %d rounds of %d users, %s noise, multiplier %.4g", *shape)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int = 0,
        timeout: float = 0.0,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run from the session's next round to the plan's last, and return the last committed model.

        The plan decides rounds, timeout and settings. The other arguments complete Flower's signature and are not
        used. A stop request ends the run with its last committed model.

        Raises:
            BudgetRefused: the budget is exhausted; the run has ended with its last committed model.
            BadInput: the released model is not finite; the run has ended.
            Interrupted: Ctrl-C, or nodes that vanished; the run can be resumed.
        """
        session, plan = self.session, self.session.plan
        require_simulated(plan, grid)
        run, schedule = session.account.id, session.account.schedule
        stamp = None if schedule is None else schedule.latest
        with logs.about(run, stamp=stamp):
            self.summary()
        try:
            while session.next_round < plan.run.rounds:
                # Obey the ledger: an officer may stop or pause the run between two rounds.
                request = session.account.request()
                if request == "stop":
                    session.finish("stopped", "stopped on request")
                    return Result(arrays=self._model_record())
                if request == "pause":
                    self._at_scheduled_time = False
                    session.heartbeat()
                    time.sleep(PAUSE_POLL)
                    continue
                with logs.about(run, session.next_round, stamp):
                    self.run_round(grid)
                self._require_finite_model()
                self._require_answering_nodes()
        except BudgetRefused as refusal:
            session.finish("exhausted", str(refusal))
            raise
        except KeyboardInterrupt:
            # Leaving the session gives the lease back; the ledger keeps the reservation for the resumed run.
            raise Interrupted(
                f"run {session.account.id} was interrupted after {session.next_round} of {plan.run.rounds} rounds. "
                f"Continue it with --resume {session.account.id}."
            ) from None
        session.finish("done", "all rounds committed")
        return Result(arrays=self._model_record())

    def run_round(self, grid: Grid) -> bool:
        """One attempt at the next round; returns whether it was committed."""
        # Select the cohort, open the round in the ledger, and address the nodes that host the cohort.
        attempt = self._open_attempt(grid, self._select_cohort(grid))
        faults.point("strategy.sent")
        # Send, and sum each reply as it arrives.
        timeout = self.session.plan.run.round_timeout
        reported = self._sum_replies(attempt, receive_replies(grid, attempt.messages, timeout, self.session.heartbeat))
        faults.point("strategy.aggregated")
        # Privatise, step, checkpoint, commit and release; or void the round.
        return self._close_attempt(attempt, reported)

    # -- Flower's interface: the same round in two calls ------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Select the cohort, open the round in the ledger, and address the nodes that host the cohort."""
        self._attempt = self._open_attempt(grid, self._select_cohort(grid))
        return self._attempt.messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Sum the replies, then commit the round or void it.

        Returns the released parameters, or None where too few users reported. Never returns metrics of clients.
        """
        attempt, self._attempt = self._attempt, None
        if attempt is None:
            raise RuntimeError("aggregate_train without configure_train")
        reported = self._sum_replies(attempt, replies)
        faults.point("strategy.aggregated")
        return (self._model_record() if self._close_attempt(attempt, reported) else None), None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """None: a client's evaluation would be users' data outside of the guarantee."""
        return ()

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing: see `configure_evaluate`."""
        return None

    # -- the parts of a round -------------------------------------------------------------------------------------

    def _select_cohort(self, grid: Grid) -> Users:
        """Wait, up to the round's timeout, for enough users to make a round worth opening; then select."""
        session, plan, cohorts = self.session, self.session.plan, self.session.cohorts
        if self._counts_are_secret:
            return self._sample_cohort(grid)
        needed = plan.run.min_available
        if needed is None:
            needed = 1 if plan.samples else plan.run.cohort
        deadline = time.monotonic() + plan.run.round_timeout
        while True:
            cohorts.roster.ask_new_nodes(grid, plan.run.round_timeout, session.heartbeat)
            cohorts.roster.register()
            available = cohorts.roster.available()
            enough = available.size >= needed
            cohort = cohorts.select(session.next_round, available, self._voids) if enough else available[:0]
            if (enough and cohort.size >= plan.report_goal) or time.monotonic() >= deadline:
                faults.point("strategy.selected")
                return cohort
            session.heartbeat()
            time.sleep(NODE_POLL)

    def _sample_cohort(self, grid: Grid) -> Users:
        """Sample the users that are there. How many there are decides nothing: not whether, when or how often.

        Under a schedule the coordinator looks for nodes until the scheduled time comes, and opens the round then.
        Without one (a simulated population) it waits, at most the round's timeout, for the first node.
        """
        session, cohorts = self.session, self.session.cohorts
        if not self._at_scheduled_time:
            self._wait_for_scheduled_time(grid)
        self._at_scheduled_time = False
        cohorts.roster.register()
        cohort = cohorts.select(session.next_round, cohorts.roster.available())
        faults.point("strategy.selected")
        return cohort

    def _wait_for_scheduled_time(self, grid: Grid) -> None:
        """Ask new nodes for their users; with a schedule, until the next scheduled time, and return then."""
        session, roster = self.session, self.session.cohorts.roster
        timeout = session.plan.run.round_timeout
        deadline = time.monotonic() + timeout

        def ask(left: float) -> None:
            session.heartbeat()
            if left > 2 * NODE_POLL:
                roster.ask_new_nodes(grid, min(timeout, left / 2), session.heartbeat)

        roster.ask_new_nodes(grid, timeout, session.heartbeat)
        if self._pace is not None:
            self._pace.wait(ask)
            self._at_scheduled_time = True
            return
        while not roster.nodes_answered and (left := deadline - time.monotonic()) > 0:
            session.heartbeat()
            time.sleep(min(NODE_POLL, left))
            roster.ask_new_nodes(grid, timeout, session.heartbeat)

    def _open_attempt(self, grid: Grid, cohort: Users) -> Attempt:
        """Open the round, durably, before anything of it is sent; then write one message for each node."""
        session, plan, rounds = self.session, self.session.plan, self.session.rounds
        opened = session.account.open_round(cohort)
        log.debug("round %d open, attempt %d", opened.index, opened.attempt)
        occasion = Occasion(session.account.id, opened.index, opened.attempt)
        points, weights, shares, batches = rounds.points()
        batches = opened.index if batches is None else batches
        arrays = tuple(session.schema.arrays(point) for point in points)
        # Encoded once and shared: a message costs one reference, not one model.
        encoded: dict[str, ArrayRecord | ConfigRecord] = {**write_points(arrays), **session.shown_head()}
        asked: dict[int, Users] = {}
        messages: list[Message] = []
        by_node = session.cohorts.roster.by_node(session.cohorts.answering(opened.index, cohort))
        for node, (users, names) in by_node.items():
            instruction = TrainInstruction(occasion, arrays, weights, names, rounds.settings(), len(shares), batches)
            content = instruction.write(encoded)
            # The group id appears in the lines that the node logs.
            group = f"{session.account.id}/{opened.index}"
            messages.append(Message(content, node, TRAIN, ttl=plan.run.round_timeout + 60.0, group_id=group))
            asked[node] = users
        return Attempt(grid, opened, cohort, asked, messages, rounds.empty_sum(occasion, shares))

    def _sum_replies(self, attempt: Attempt, replies: Iterable[Message]) -> list[Users]:
        """Sum the replies as they arrive; returns the users that the sum includes, one array for each node."""
        plan = self.session.plan
        waiting = dict(attempt.asked)
        reported: list[Users] = []
        for reply in replies:
            if reply.has_error():
                attempt.sum.reject("error reply")
                continue
            # Each reply counts once, under the node that sent it: a second reply of a node is a duplicate, and a reply
            # of a node that was not asked is stray.
            users = waiting.pop(reply.metadata.src_node_id, None)
            if users is None:
                attempt.sum.reject("duplicate or stray reply")
                continue
            if attempt.sum.add(reply.content, sent=int(users.size)):
                reported.append(users)
            if not plan.samples and attempt.sum.users >= plan.run.cohort:
                # Over-selection: later replies are neither summed nor counted as participation. A Poisson cohort is
                # never cut: one user's presence would then decide whether another user is summed.
                break
        return reported

    def _close_attempt(self, attempt: Attempt, reported: list[Users]) -> bool:
        """Commit the round, or void it where too few users reported; returns whether it was committed."""
        session, total, needed = self.session, attempt.sum, self.session.plan.report_goal
        if total.users < needed:
            reason = f"{total.users} reports, {needed} needed"
            session.account.void_round(attempt.opened, reason, reports=total.users, rejects=dict(total.rejects))
            self._voids += 1
            count = "too few" if self._counts_are_secret else total.users
            log.warning("round %d void: %s reports", attempt.opened.index, count)
            return False
        if self._pace is not None:
            # The sum waits, raw. A crash before the scheduled time voids the round, however soon its replies came.
            self._wait_for_scheduled_time(attempt.grid)
        session.rounds.commit_round(attempt.opened, total, reported)
        self._voids = 0
        self._on_round(self._report_round(attempt))
        return True

    def _report_round(self, attempt: Attempt) -> RoundReport:
        session, released, secret = self.session, self.session.released, self._counts_are_secret
        return RoundReport(
            round=attempt.opened.index,
            rounds=session.plan.run.rounds,
            cohort=None if secret else int(attempt.cohort.size),
            reports=None if secret else attempt.sum.users,
            epsilon=session.epsilon(),
            epsilon_limit=session.cost.epsilon if session.cost else 0.0,
            score_name=session.task.score_name,
            score=released.score.get(session.task.score_name),
            noise_std=released.noise_std,
        )

    @property
    def _counts_are_secret(self) -> bool:
        """Under add_remove a count of reports is a count of users, and those are the secret."""
        return self.session.plan.privacy.adjacency == "add_remove"

    def _model_record(self) -> ArrayRecord:
        return ArrayRecord({name: Array(value) for name, value in self.session.model_arrays().items()})

    def _require_finite_model(self) -> None:
        """End a run whose model diverged. The model is released and charged; further training would only spend more."""
        session = self.session
        if bool(torch.isfinite(session.params).all()):
            return
        last = session.next_round - 1
        session.finish("failed", f"the model was not finite any more after round {last}")
        raise BadInput(
            f"server_optimizer and client learning rates of run {session.account.id}",
            f"the released model diverged: it is not finite after round {last}.",
            "smaller learning rates",
        )

    def _require_answering_nodes(self) -> None:
        if self._voids >= MOST_VOIDS:
            few = f"{self._voids} rounds in a row had fewer than {self.session.plan.report_goal} reports"
            raise Interrupted(
                f"run {self.session.account.id}: {few}; nothing was released or charged for them. Resume when nodes "
                "are back."
            )
