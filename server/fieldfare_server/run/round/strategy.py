"""The Flower strategy: one round, in the order of DESIGN section 3.

    select -> open (durable) -> send -> aggregate -> [void] -> privatise -> step -> checkpoint -> commit -> release

It does not wrap FedAvg: a private sum needs a fixed denominator, aggregation by parameter name, replies that can do no
harm, a charge that is durable before any model is seen, and an end that returns the last model. Nothing derived from
users' data leaves this module except privatised parameters, and those only after their charge is committed (I1).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from fieldfare.errors import BadInput, BudgetRefused, Interrupted
from fieldfare_flower import logs
from fieldfare_flower.messages import Occasion
from fieldfare_server import faults
from fieldfare_server.ledger import OpenRound
from fieldfare_server.run.presence.availability import is_simulated, require_callable, require_simulated
from fieldfare_server.run.presence.failures import Failures
from fieldfare_server.run.presence.pace import Pace
from fieldfare_server.run.presence.patience import Patience
from fieldfare_server.run.presence.selection import NotEnoughUsers, Users
from fieldfare_server.run.presence.standing import QUARANTINED, VOIDS_BEFORE_SPREADING, Standing
from fieldfare_server.run.private.dialects import CohortDialect, Round
from fieldfare_server.run.private.no_evaluation import WithoutNodeEvaluation
from fieldfare_server.run.round.aggregation import Aggregate
from fieldfare_server.run.round.replies import Answer, Receiver, Slots, limit_for
from fieldfare_server.run.round.rounds import Released
from fieldfare_server.run.session import Session
from fieldfare_server.run.stopping import stop_run

log = logging.getLogger("fieldfare.strategy")

NODE_POLL = 1.0
"""Seconds between looks for nodes that are not online yet."""
PAUSE_POLL = 0.5
"""Seconds between looks at a paused run's request."""
SETTLING = 10.0
"""Seconds that the start of a session waits for the nodes that are there to say whom they host. Later no one waits.
No sooner do the nodes that answered wrongly end a run: the first to come may be the only wrong one."""


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
    asked: Sequence[Users]
    """For each message: the users of the cohort whom its node is asked to train."""
    messages: list[Message]
    """One instruction for each node that hosts users of the cohort."""
    sum: Aggregate
    """Raw. It grows with every reply."""


class FieldfareStrategy(WithoutNodeEvaluation):
    """Runs a `Session` on a Flower `Grid`.

    Guarantee: everything that is released during and after `start` (models, scores, the ledger's public columns) is
    together (epsilon, delta)-DP for every user of the population, under the plan's adjacency, with the epsilon that
    the ledger shows; whatever nodes send, whatever crashes.
    """

    def __init__(
        self,
        session: Session,
        on_round: Callable[[RoundReport], None] = lambda report: None,
        on_sent: Callable[[int, int], None] = lambda messages, online: None,
        on_received: Callable[[int, int], None] = lambda results, failures: None,
    ) -> None:
        """
        Args:
            on_round: called after each commit.
            on_sent: called before a round is sent, with the number of messages and of nodes online.
            on_received: called when a round's replies are summed, with how many are in the sum and how many are not.
        """
        self.session = session
        self._on_round, self._on_sent, self._on_received = on_round, on_sent, on_received
        self._patience = Patience(waits=True)
        self._expected = self._users_wanted
        """How many users a round waits for: fewer after a whole timeout in which no more came."""
        self._standing = Standing(counts=not session.plan.samples)
        self._spreads = False
        """Whether nodes that have never answered well are asked for a share of a cohort only."""
        self._began: float | None = None
        """When the nodes that were there at the start got their moment to answer, of `time.monotonic`."""
        self._counted: Counter[str] = Counter()
        """What the roster refused, as far as rounds have recorded it."""
        schedule = session.account.schedule
        self._pace = None if schedule is None else Pace(schedule, session.account.clock)
        self._at_scheduled_time = False
        """Whether a scheduled time has just come, at which the last round was released: the next opens at once."""
        self._receiver = Receiver()
        self._failures = Failures(session.dialect.name)
        """Why rounds went wrong. The roster keeps those of the first look."""
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

        The plan and its task decide everything, so any further argument of Flower's signature is refused.
        `PrivateStrategy` takes them.

        Raises:
            BadInput: an argument that the plan does not leave open, before anything is sent.
            BudgetRefused, Interrupted: as `take_to_end`.
        """
        given = (initial_arrays, num_rounds, timeout, train_config, evaluate_config, evaluate_fn)
        names = ("initial_arrays", "num_rounds", "timeout", "train_config", "evaluate_config", "evaluate_fn")
        for name, value in zip(names, given, strict=True):
            if value is not None and value != 0:
                raise BadInput(
                    name, "the plan and its task decide it here.", "leave it out; or fieldfare.PrivateStrategy"
                )
        run, schedule = self.session.account.id, self.session.account.schedule
        with logs.about(run, stamp=None if schedule is None else schedule.latest):
            self.summary()
        self.take_to_end(grid)
        return Result(arrays=self._model_record())

    def take_to_end(self, grid: Grid) -> None:
        """Run from the session's next round to the plan's last. A stop request ends it with its last committed model.

        Raises:
            BudgetRefused: the budget is exhausted; the run has ended with its last committed model.
            BadInput: the released model is not finite, or every node's ClientApp is wrong; the run has ended.
            Interrupted: Ctrl-C, nodes that vanished or users that ran out; the run can be resumed.
            Refused: the same before the first commit; the run has ended, and its reservation is free again.
        """
        session, plan = self.session, self.session.plan
        require_simulated(plan, grid)
        require_callable(plan, grid)
        self._patience.waits = not is_simulated(grid)
        run, schedule = session.account.id, session.account.schedule
        stamp = None if schedule is None else schedule.latest
        try:
            try:
                while session.coming_round < plan.run.rounds:
                    # Obey the ledger: an officer may stop or pause the run between two rounds.
                    request = session.account.request()
                    if request == "stop":
                        session.finish("stopped", "stopped on request")
                        return
                    if request == "pause":
                        self._at_scheduled_time = False
                        session.heartbeat()
                        time.sleep(PAUSE_POLL)
                        continue
                    with logs.about(run, session.coming_round, stamp):
                        self._rest(grid, self._patience.pause)
                        self._attempt_round(grid)
                    self._require_finite_model()
                    self._require_answering_nodes()
            finally:
                # However the loop ends: what a group holds becomes durable, and then may be seen.
                session.rounds.commit_held()
        except BudgetRefused as refusal:
            session.finish("exhausted", str(refusal))
            raise
        except (KeyboardInterrupt, Interrupted, NotEnoughUsers) as cause:
            raise stop_run(session, cause) from None
        session.finish("done", "all rounds committed")

    def _attempt_round(self, grid: Grid) -> None:
        """One attempt at the next round. Users who are missing after a round was committed are waited for."""
        try:
            self.run_round(grid)
        except NotEnoughUsers as shortage:
            if not (self._patience.waits and self.session.coming_round):
                raise
            self.session.rounds.commit_held()  # others may wait for users as long as it takes
            self._patience.note_void()
            if self._patience.is_over(committed=True):
                raise
            log.warning("round %d cannot be opened yet: %s", self.session.coming_round, shortage)

    def _rest(self, grid: Grid, seconds: float) -> None:
        """Wait before an attempt that follows void ones; less where a request came, or users who were missing."""
        session, roster, goal = self.session, self.session.cohorts.roster, self.session.plan.report_goal
        deadline, missing = time.monotonic() + seconds, roster.reserve().size < goal
        while (left := deadline - time.monotonic()) > 0 and session.account.request() is None:
            session.heartbeat()
            time.sleep(min(max(NODE_POLL, seconds / 60), left))
            roster.look(grid)
            roster.register()
            if missing and roster.reserve().size >= goal:
                return

    def run_round(self, grid: Grid) -> bool:
        """One attempt at the next round; returns whether it was committed."""
        # Select the cohort, open the round in the ledger, and address the nodes that host the cohort.
        attempt = self._open_attempt(grid, self._select_cohort(grid))
        faults.point("strategy.sent")
        self._on_sent(len(attempt.messages), self.session.cohorts.roster.nodes_online)
        # Send, and sum each reply as it arrives.
        timeout = self.session.plan.run.round_timeout

        def tick() -> None:
            self.session.heartbeat()
            self.session.cohorts.roster.look_now_and_then(grid)

        copies = len(attempt.sum.shares)
        limit = limit_for(attempt.messages[0], copies) if attempt.messages else None
        answers = self._receiver.receive(grid, attempt.messages, timeout, tick, limit)
        reported = self._sum_replies(attempt, answers)
        faults.point("strategy.aggregated")
        self._on_received(len(reported), len(attempt.messages) - len(reported))
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
        slots = Slots([m.metadata.message_id or m.metadata.group_id for m in attempt.messages])
        reported = self._sum_replies(attempt, map(slots.take, replies))
        faults.point("strategy.aggregated")
        return (self._model_record() if self._close_attempt(attempt, reported) else None), None

    # -- the parts of a round -------------------------------------------------------------------------------------

    def _select_cohort(self, grid: Grid) -> Users:
        """Wait, up to the round's timeout, for enough users to make a round worth opening; then select."""
        session, plan, roster = self.session, self.session.plan, self.session.cohorts.roster
        if self._counts_are_secret:
            return self._sample_cohort(grid)
        deadline = time.monotonic() + plan.run.round_timeout
        self._settle(grid)
        judged_from = (self._began or 0.0) + min(SETTLING, plan.run.round_timeout)
        while True:
            roster.look(grid)
            roster.register()
            if is_simulated(grid) or time.monotonic() >= judged_from:
                self._require_right_app()
            # On a simulated grid waiting brings no further user. On a real one nodes join, and users come back.
            time_is_over = time.monotonic() >= deadline
            if time_is_over:
                self._expect_no_more(roster.reserve().size)
                roster.failures.note_silence(
                    roster.silent, roster.nodes_online, plan.run.round_timeout, roster.nodes_online
                )
            try:
                cohort = self._select_among_present()
            except NotEnoughUsers:
                if is_simulated(grid) or time_is_over:
                    raise
                cohort = np.zeros(0, np.int64)
            if time_is_over or (cohort.size and cohort.size >= plan.report_goal):
                faults.point("strategy.selected")
                return cohort
            session.heartbeat()
            time.sleep(NODE_POLL)

    def _settle(self, grid: Grid) -> None:
        """Once in a session: give the nodes that are there a moment to say whom they host."""
        if self._began is not None:
            return
        self._began = time.monotonic()
        timeout = self.session.plan.run.round_timeout
        # Simulated nodes are all ours: the cohorts are those of every other engine only if all of them have answered.
        moment = timeout if is_simulated(grid) else min(SETTLING, timeout)
        self.session.cohorts.roster.settle(grid, moment, self.session.heartbeat)

    def _select_among_present(self) -> Users:
        """A cohort among the users who are there now; empty where more are to be waited for.

        Nodes that rest are asked only where the others cannot fill a round. Their users are not waited for either:
        otherwise a node that fails, or leaves, would hold up the rest.

        Raises:
            NotEnoughUsers: too few of those who are there may take part.
        """
        plan, cohorts, index = self.session.plan, self.session.cohorts, self.session.coming_round
        roster, resting = cohorts.roster, self._standing.resting()
        quarantined = self._standing.quarantined()
        roster.set_aside(resting, quarantined)
        reliable, everyone = roster.available(), roster.reserve()
        goal = max(1, plan.report_goal)
        if plan.run.min_available is not None:
            enough = everyone.size >= plan.run.min_available
        else:
            expected = self._expected if everyone.size < self._users_wanted else self._users_wanted
            set_aside = roster.known().size - roster.known(resting).size
            enough = everyone.size >= expected or reliable.size >= max(goal, expected - set_aside)
        if not enough:
            return np.zeros(0, np.int64)
        if index == 0:
            cohorts.require_lasting(0)
        voids = self._patience.voids
        self._spreads |= voids >= VOIDS_BEFORE_SPREADING
        if self._spreads and not plan.samples:
            share = -(-plan.run.cohort // max(1, roster.nodes_online))
            spread = cohorts.spread(index, reliable, voids, share, self._standing.proven)
            with contextlib.suppress(NotEnoughUsers):
                return cohorts.select(index, spread, voids, quarantined)
        if goal <= reliable.size < everyone.size:
            with contextlib.suppress(NotEnoughUsers):
                return cohorts.select(index, reliable, voids, quarantined)
        return cohorts.select(index, everyone, voids)

    @property
    def _users_wanted(self) -> int:
        """How many users a round waits for, where the plan does not say."""
        return 1 if self.session.plan.samples else self.session.plan.run.cohort

    def _expect_no_more(self, present: int) -> None:
        """The time to wait for more users is over: rounds go on with those who are there, until more come back."""
        if present >= max(1, self.session.plan.report_goal):
            self._expected = min(self._users_wanted, present)

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
        cohort = cohorts.select(session.coming_round, cohorts.roster.available())
        faults.point("strategy.selected")
        return cohort

    def _wait_for_scheduled_time(self, grid: Grid) -> None:
        """Ask new nodes for their users; with a schedule, until the next scheduled time, and return then."""
        session, roster = self.session, self.session.cohorts.roster
        deadline = time.monotonic() + session.plan.run.round_timeout

        def look(left: float) -> None:
            session.heartbeat()
            roster.look_now_and_then(grid)

        self._settle(grid)
        roster.look(grid)
        if self._pace is not None:
            self._pace.wait(look)
            self._at_scheduled_time = True
            return
        while not roster.nodes_answered and (left := deadline - time.monotonic()) > 0:
            session.heartbeat()
            time.sleep(min(NODE_POLL, left))
            roster.look(grid)

    def _open_attempt(self, grid: Grid, cohort: Users) -> Attempt:
        """Open the round, durably, before anything of it is sent; then write one message for each node."""
        session, plan, rounds = self.session, self.session.plan, self.session.rounds
        opened = session.account.open_round(cohort)
        log.debug("round %d open, attempt %d", opened.index, opened.attempt)
        occasion = Occasion(session.account.id, opened.index, opened.attempt)
        points = rounds.points()
        by_node = session.cohorts.roster.by_node(session.cohorts.answering(opened.index, cohort))
        names = {node: names for node, (_, names) in by_node.items()}
        timeout = plan.run.round_timeout
        public = Round(occasion, points, rounds.settings(), rounds.current_clipping, timeout)
        messages, reader = session.dialect.write(public, session.schema, names)
        if isinstance(session.dialect, CohortDialect):  # the plain dialect sends Flower's own records and no others
            heads = session.shown_heads(by_node)
            for message in messages:
                message.content.update(heads[message.metadata.dst_node_id])
        asked = [users for users, _ in by_node.values()]
        return Attempt(grid, opened, cohort, asked, messages, rounds.empty_sum(occasion, points.shares, reader))

    def _sum_replies(self, attempt: Attempt, answers: Iterable[Answer]) -> list[Users]:
        """Sum the replies as they arrive; returns the users that the sum includes, one array for each node."""
        plan, total = self.session.plan, attempt.sum
        reported: list[Users] = []
        nodes = [message.metadata.dst_node_id for message in attempt.messages]
        good, silent = list[int](), set(nodes)
        in_time = False
        for answer in answers:
            # Each reply counts once, under the message that it answers. Who it says it is from decides nothing.
            if answer.slot is None:
                total.reject("duplicate or stray reply")
                continue
            users, node = attempt.asked[answer.slot], nodes[answer.slot]
            silent.discard(node)
            before = total.users
            if self._add_reply(total, answer, int(users.size), node):
                reported.append(users)
                # A user whose training fails counts with zero, so a node that is well leaves out no one.
                if total.users - before == users.size:
                    good.append(node)
            if not plan.samples and total.users >= plan.run.cohort:
                # Over-selection: later replies are neither summed nor counted as participation. A Poisson cohort is
                # never cut: one user's presence would then decide whether another user is summed.
                in_time = True
                break
        else:
            online = self.session.cohorts.roster.nodes_online
            self._failures.note_silence(silent, len(nodes), plan.run.round_timeout, online)
        # Where enough had answered, no one was late.
        failed = set(nodes).difference(good, silent if in_time else ())
        quarantined = self._standing.note_attempt(good, failed)
        for reason, count in {QUARANTINED: quarantined, **self._newly_refused()}.items():
            total.rejects[reason] += count
        total.rejects += Counter()  # drops reasons that count nothing
        return reported

    def _newly_refused(self) -> Counter[str]:
        """What the roster refused since it was last counted: it is shown with the next round."""
        refused = self.session.cohorts.roster.refused
        new = refused - self._counted
        self._counted = refused.copy()
        return new

    def _add_reply(self, total: Aggregate, answer: Answer, sent: int, node: int) -> bool:
        """Add one reply to the sum; False, and counted by its reason, where it cannot be used."""
        failures, reply = self._failures, answer.reply
        if reply is None:
            total.reject(answer.reason)
            failures.note_rejected(answer.reason, node)
            return False
        try:
            if reply.has_error():
                total.reject(failures.note_error(reply, node))
                return False
            content = reply.content
        except Exception:  # whatever a crafted reply makes Flower's message raise, it is one bad reply
            total.reject("schema")
            failures.note_rejected("schema", node)
            return False
        before = Counter(total.rejects)
        if total.add(content, sent):
            failures.note_answer()
            return True
        for reason in total.rejects - before:
            failures.note_rejected(reason, node)
        return False

    def _close_attempt(self, attempt: Attempt, reported: list[Users]) -> bool:
        """Commit the round, or void it where too few users reported; returns whether it was committed."""
        session, total, needed = self.session, attempt.sum, self.session.plan.report_goal
        if total.users < needed:
            cause = self._first_cause
            reason = f"{total.users} reports, {needed} needed" + (f"; {cause}" if cause else "")
            session.rounds.commit_held()  # a void round ends its group
            session.account.void_round(attempt.opened, reason, reports=total.users, rejects=dict(total.rejects))
            self._patience.note_void()
            count = "too few" if self._counts_are_secret else total.users
            log.warning("round %d void: %s reports", attempt.opened.index, count)
            self._require_right_app()
            return False
        if self._pace is not None:
            # The sum waits, raw. A crash before the scheduled time voids the round, however soon its replies came.
            self._wait_for_scheduled_time(attempt.grid)
        cohort, reports = int(attempt.cohort.size), total.users

        def show(released: Released) -> None:
            self._on_round(self._report_round(released, cohort, reports))

        session.rounds.commit_round(attempt.opened, total, reported, show)
        self._patience.note_commit()
        return True

    def _report_round(self, released: Released, cohort: int, reports: int) -> RoundReport:
        session, secret = self.session, self._counts_are_secret
        return RoundReport(
            round=released.next_round - 1,
            rounds=session.plan.run.rounds,
            cohort=None if secret else cohort,
            reports=None if secret else reports,
            epsilon=session.epsilon_of(released),
            epsilon_limit=session.cost.epsilon if session.cost else 0.0,
            score_name=session.model.score_name,
            score=released.score.get(session.model.score_name),
            noise_std=released.noise_std,
        )

    @property
    def _counts_are_secret(self) -> bool:
        """Under add_remove a count of reports is a count of users, and those are the secret."""
        return self.session.plan.privacy.adjacency == "add_remove"

    def _model_record(self) -> ArrayRecord:
        return self.session.model.record(self.session.params)

    def _require_finite_model(self) -> None:
        """End a run whose model diverged. The model is released and charged; further training would only spend more."""
        session = self.session
        if session.model.is_finite(session.rounds.newest.params):
            return
        last = session.coming_round - 1
        session.finish("failed", f"the model was not finite any more after round {last}")
        raise BadInput(
            f"server_optimizer and client learning rates of run {session.account.id}",
            f"the released model diverged: it is not finite after round {last}.",
            "smaller learning rates",
        )

    def _require_right_app(self) -> None:
        """End a run in whose first round most nodes answered, and none as it should: every round would be the same.

        Under `add_remove` who answers decides nothing, so such a run goes on. So does a run that has committed a round:
        its app was right once.
        """
        if self._counts_are_secret or self.session.coming_round:
            return
        roster = self.session.cohorts.roster
        seen = (roster.failures, self._failures)
        wrong = next(filter(None, (each.all_wrong(roster.nodes_online) for each in seen)), None)
        if wrong is not None:
            self.session.finish("failed", str(wrong))
            raise wrong

    @property
    def _first_cause(self) -> str:
        """What went wrong first. Empty where it would show how many users there are."""
        if self._counts_are_secret:
            return ""
        return self.session.cohorts.roster.failures.first_cause or self._failures.first_cause

    def _require_answering_nodes(self) -> None:
        patience, committed = self._patience, self.session.coming_round > 0
        silent = not (committed or self._counts_are_secret) and (
            self._failures.silent or self.session.cohorts.roster.failures.silent
        )
        if patience.is_over(committed) or (patience.voids and silent):
            few = f"{patience.voids} rounds in a row had fewer than {self.session.plan.report_goal} reports"
            cause = f" First cause: {self._first_cause}." if self._first_cause else ""
            raise Interrupted(f"run {self.session.account.id}: {few}; nothing was released or charged for them.{cause}")
