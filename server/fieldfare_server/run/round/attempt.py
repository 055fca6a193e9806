"""One attempt at one round, from its opening in the ledger to its commit or void."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import ConfigRecord, Message

from fieldfare.metrics import MetricsSpec
from fieldfare_flower.messages import Occasion, read_metrics
from fieldfare_server.ledger import OpenRound
from fieldfare_server.run.presence.cohorts import Cohorts
from fieldfare_server.run.presence.failures import Failures
from fieldfare_server.run.presence.replies import ReceivedReply
from fieldfare_server.run.presence.selection import Users
from fieldfare_server.run.round.aggregation import Aggregate
from fieldfare_server.run.round.dialects import Dialect, PublicRound
from fieldfare_server.run.round.masked import MaskedSum
from fieldfare_server.run.round.rounds import Rounds


@dataclass(eq=False)
class Attempt:
    """One attempt at one round. Its sum grows with every reply."""

    opened: OpenRound
    # For each message: the users of the cohort whom its node is asked to train, as indices.
    asked: Sequence[Users]
    # One instruction for each node that hosts users of the cohort, and before them as many for their evaluations.
    messages: Sequence[Message]
    sum: Aggregate | MaskedSum  # raw
    most: int | None  # how many users' updates are summed at most; None: those of all who answer
    # The users that the sum includes, one array for each node.
    reported: list[Users] = field(default_factory=list)
    # The nodes whose reply is summed, with all users that they were asked for.
    good: list[int] = field(default_factory=list)
    full: bool = False  # whether enough have answered, before the others did
    metrics: MetricsSpec | None = None  # what rides in the sum

    def __post_init__(self) -> None:
        # How many messages ask for one: they are the first.
        self.evaluations = len(self.messages) - len(self.asked)
        self.nodes = [message.metadata.dst_node_id for message in self.messages[self.evaluations :]]
        self.silent = set(self.nodes)
        self._unmeasured = set(self.nodes[: self.evaluations])  # nodes whose evaluation has not been answered
        self._measured: dict[int, tuple[float, ...]] = {}  # of nodes of one user each: the user's metrics
        self.included: list[int] = []  # the nodes whose reply is summed

    @classmethod
    def open(
        cls,
        rounds: Rounds,
        cohorts: Cohorts,
        dialect: Dialect,
        shown: Callable[[Iterable[int]], Mapping[int, Mapping[str, ConfigRecord]]],
        cohort: Users,
    ) -> Attempt:
        """Open the round, durably, before anything of it is sent; then write one message for each node.

        shown: records that go to each node besides (`Session.shown_heads`), where the dialect tells them.
        """
        plan, account = rounds.plan, rounds.account
        opened = account.open_round(cohort)
        occasion = Occasion(account.id, opened.index, opened.attempt)
        points = rounds.points()
        by_node = cohorts.roster.by_node(cohorts.answering(opened.index, cohort))
        names = {node: names for node, (_, names) in by_node.items()}
        timeout, metrics = plan.run.round_timeout, plan.metrics
        public = PublicRound(occasion, points, rounds.settings(), rounds.current_clipping, timeout, metrics)
        messages, reader = dialect.write(public, rounds.model.schema, names)
        if dialect.tells:
            heads = shown(by_node)
            for message in messages:
                message.content.update(heads[message.metadata.dst_node_id])
        rounds.sums.instruct(messages, points.shares)
        asked = [users for users, _ in by_node.values()]
        # Over-selection: later replies are neither summed nor counted as participation. A Poisson cohort is
        # never cut: one user's presence would then decide whether another user is summed.
        most = None if plan.samples else plan.run.cohort
        return cls(opened, asked, messages, rounds.sums.empty(occasion, points.shares, reader), most, metrics=metrics)

    def add(self, answers: Iterable[ReceivedReply], failures: Failures, evaluations: Failures) -> None:
        """Sum the replies as they arrive. Each counts once, under the message that it answers.

        failures, evaluations: told why a reply, or one to an evaluation, cannot be used.
        """
        for answer in answers:
            if answer.slot is None:
                self.sum.reject("duplicate or stray reply")
                continue
            place = answer.slot - self.evaluations
            # Who a reply says it is from decides nothing.
            node = self.nodes[place if place >= 0 else answer.slot]
            if place < 0:
                self._unmeasured.discard(node)
                self._measure(answer, node, evaluations)
            elif not self.full:
                self._add_of(self.asked[place], answer, node, failures)
            del answer
            if self.full and self._unmeasured.isdisjoint(self.included):
                break
        # With the update of the same user, or not at all: whoever is in the sum is charged.
        for node in self.included:
            if node in self._measured:
                self.sum.ride(self._measured[node])

    def _add_of(self, users: Users, answer: ReceivedReply, node: int, failures: Failures) -> None:
        """Add the reply of a node that was asked for `users`."""
        before = self.sum.users
        self.silent.discard(node)
        if self._add(answer, int(users.size), node, failures):
            self.reported.append(users)
            self.included.append(node)
            # A user whose training fails counts with zero, so a node that is well leaves out no one.
            if self.sum.users - before == users.size:
                self.good.append(node)
        self.full = self.most is not None and self.sum.users >= self.most

    def _measure(self, answer: ReceivedReply, node: int, failures: Failures) -> None:
        """Keep the metrics of an evaluation; one that cannot be read is counted, one that tells none is not: whether
        a user has a metric is the user's."""
        reason = failures.refuse(answer.reply, answer.reason, node)
        if not reason and answer.reply is not None and self.metrics is not None:
            try:
                self._measured[node] = read_metrics(self.metrics, answer.reply.content)
            except Exception:  # whatever a crafted reply makes Flower's records raise, it is one reply
                reason = "schema"
                failures.note_rejected(reason, node)
        if reason:
            self.sum.reject(f"evaluation: {reason}")
        else:
            failures.note_answer()

    def _add(self, answer: ReceivedReply, sent: int, node: int, failures: Failures) -> bool:
        """Add one reply to the sum; False, and counted by its reason, where it cannot be used."""
        reason = failures.refuse(answer.reply, answer.reason, node)
        if reason or answer.reply is None:
            self.sum.reject(reason)
            return False
        before = Counter(self.sum.rejects)
        if self.sum.add(answer.reply.content, sent, node):
            failures.note_answer()
            return True
        for reason in self.sum.rejects - before:
            failures.note_rejected(reason, node)
        return False
