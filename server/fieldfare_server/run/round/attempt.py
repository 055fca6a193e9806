"""One attempt at one round, from its opening in the ledger to its commit or void."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from flwr.app import Message

from fieldfare_flower.messages import Occasion
from fieldfare_server.ledger import OpenRound
from fieldfare_server.run.presence.failures import Failures
from fieldfare_server.run.presence.selection import Users
from fieldfare_server.run.private.dialects import CohortDialect, PublicRound
from fieldfare_server.run.round.aggregation import Aggregate
from fieldfare_server.run.round.replies import ReceivedReply
from fieldfare_server.run.session import Session


@dataclass(eq=False)
class Attempt:
    """One attempt at one round. Its sum grows with every reply."""

    opened: OpenRound
    asked: Sequence[Users]
    """For each message: the users of the cohort whom its node is asked to train, as indices."""
    messages: Sequence[Message]
    """One instruction for each node that hosts users of the cohort."""
    sum: Aggregate
    """Raw."""
    most: int | None
    """How many users' updates are summed at most; None: those of all who answer."""
    reported: list[Users] = field(default_factory=list)
    """The users that the sum includes, one array for each node."""
    good: list[int] = field(default_factory=list)
    """The nodes whose reply is summed, with all users that they were asked for."""
    full: bool = False
    """Whether enough have answered, before the others did."""

    def __post_init__(self) -> None:
        self.nodes = [message.metadata.dst_node_id for message in self.messages]
        self.silent = set(self.nodes)

    @classmethod
    def open(cls, session: Session, cohort: Users) -> Attempt:
        """Open the round, durably, before anything of it is sent; then write one message for each node."""
        plan, rounds, dialect = session.plan, session.rounds, session.dialect
        opened = session.account.open_round(cohort)
        occasion = Occasion(session.account.id, opened.index, opened.attempt)
        points = rounds.points()
        by_node = session.cohorts.roster.by_node(session.cohorts.answering(opened.index, cohort))
        names = {node: names for node, (_, names) in by_node.items()}
        timeout, metrics = plan.run.round_timeout, plan.metrics
        public = PublicRound(occasion, points, rounds.settings(), rounds.current_clipping, timeout, metrics)
        messages, reader = dialect.write(public, session.schema, names)
        if isinstance(dialect, CohortDialect):  # the plain dialect sends Flower's own records and no others
            heads = session.shown_heads(by_node)
            for message in messages:
                message.content.update(heads[message.metadata.dst_node_id])
        asked = [users for users, _ in by_node.values()]
        # Over-selection: later replies are neither summed nor counted as participation. A Poisson cohort is never cut:
        # one user's presence would then decide whether another user is summed.
        most = None if plan.samples else plan.run.cohort
        return cls(opened, asked, messages, rounds.empty_sum(occasion, points.shares, reader), most)

    def add(self, answers: Iterable[ReceivedReply], failures: Failures) -> None:
        """Sum the replies as they arrive. Each counts once, under the message that it answers.

        Who a reply says it is from decides nothing. failures: told why a reply cannot be used.
        """
        for answer in answers:
            if answer.slot is None:
                self.sum.reject("duplicate or stray reply")
                continue
            users, node, before = self.asked[answer.slot], self.nodes[answer.slot], self.sum.users
            self.silent.discard(node)
            if self._add(answer, int(users.size), node, failures):
                self.reported.append(users)
                # A user whose training fails counts with zero, so a node that is well leaves out no one.
                if self.sum.users - before == users.size:
                    self.good.append(node)
            if self.most is not None and self.sum.users >= self.most:
                self.full = True
                return

    def _add(self, answer: ReceivedReply, sent: int, node: int, failures: Failures) -> bool:
        """Add one reply to the sum; False, and counted by its reason, where it cannot be used."""
        reason = failures.refuse(answer.reply, answer.reason, node)
        if reason or answer.reply is None:
            self.sum.reject(reason)
            return False
        before = Counter(self.sum.rejects)
        if self.sum.add(answer.reply.content, sent):
            failures.note_answer()
            return True
        for reason in self.sum.rejects - before:
            failures.note_rejected(reason, node)
        return False
