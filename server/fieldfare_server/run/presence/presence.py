"""Who is there: a policy for each way in which users come, stay and go.

| policy | where | when a round opens |
|---|---|---|
| `InProcess` | all nodes are simulated here | as soon as they have said whom they host: waiting brings no other user |
| `Federation` | real nodes join, leave and come back | when enough users are there, at the latest after the timeout |
| `Scheduled` | users whose presence is secret | at the scheduled times of the run, whoever is there |

What may be counted of those who are there, and decided from it, is the other policy: `counts`.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, ClassVar

from flwr.app import Message
from flwr.serverapp import Grid

from fieldfare.errors import Interrupted
from fieldfare_flower.own_data import Tally
from fieldfare_server.ledger.schedule import Schedule
from fieldfare_server.run.presence.availability import is_simulated
from fieldfare_server.run.presence.counts import Public, Secret
from fieldfare_server.run.presence.failures import Failures
from fieldfare_server.run.presence.patience import NODE_POLL, Patience
from fieldfare_server.run.presence.replies import ReceivedReply, Receiver, limit_for
from fieldfare_server.run.presence.selection import NotEnoughUsers, Users

if TYPE_CHECKING:
    from fieldfare_server.run.session import Session

log = logging.getLogger("fieldfare.strategy")

# Seconds that the start of a session waits for the nodes that are there to say whom they host. Later no one
# waits. No sooner do the nodes that answered wrongly end a run: the first to come may be the only wrong one.
SETTLING = 10.0
# Seconds between two heartbeats while a session waits for its scheduled time.
LONGEST_WAIT = 1.0


class Presence:
    """The nodes of one session on one grid: who is there, how long they are waited for, and how they answer."""

    waits: ClassVar[bool]  # whether time may bring users

    def __init__(self, session: Session, grid: Grid) -> None:
        self.session, self.grid = session, grid
        self.roster = session.cohorts.roster
        self.patience = Patience(self.waits)
        # Why rounds went wrong. The roster keeps those of the first look.
        self.failures = Failures(session.dialect.name)
        # Why evaluations, whose metrics ride in the rounds, went wrong.
        self.evaluations = Failures(session.dialect.name, "the nodes' @app.evaluate")
        self.failures.seen = self.evaluations.seen = self.roster.failures.seen
        self.counts = Secret(self) if session.plan.presence_is_secret else Public(self)
        self._receiver = Receiver()
        # How users fared whose data are the caller's own, as nodes of Flower's simulation say.
        self._own_data = Tally()
        # When the nodes that were there at the start got their moment to answer, of `time.monotonic`.
        self._began: float | None = None

    @staticmethod
    def of(session: Session, grid: Grid) -> Presence:
        """Return the policy of `session` on `grid`."""
        if session.account.schedule is not None:
            return Scheduled(session, grid)
        return InProcess(session, grid) if is_simulated(grid) else Federation(session, grid)

    # -- before a round --------------------------------------------------------------------------------------

    @property
    def timeout(self) -> float:
        """Seconds that a round waits for users, and then for their replies."""
        return self.session.plan.run.round_timeout

    @property
    def settling(self) -> float:
        """Seconds that the start of a session waits for nodes to say whom they host.

        The cohorts of simulated users are those of every other engine only if all nodes have answered.
        """
        return self.timeout if is_simulated(self.grid) else min(SETTLING, self.timeout)

    @property
    def judged_from(self) -> float:
        """From when on, of `time.monotonic`, wrong answers at the first look are taken for those of all nodes."""
        return (self._began or 0.0) + min(SETTLING, self.timeout) if self.waits else 0.0

    def settle(self) -> None:
        """Give the nodes that are there a moment, once in a session, to say whom they host."""
        if self._began is None:
            self._began = time.monotonic()
            with self.session.interrupts.allowed():  # nodes of this process read their data
                self.roster.settle(self.grid, self.settling, self._heartbeat)
            if self.roster.nodes_answered == self.roster.nodes_online:
                self.session.require_users(self.roster.claimed)

    @property
    def complete(self) -> bool:
        """Whether no time brings another user: all who can be there are."""
        return not (self.waits or self.roster.silent)

    def await_opening(self) -> None:
        """Wait until a round of users who may not be counted can open: at most the timeout, for the first node."""
        deadline = time.monotonic() + self.timeout
        self.settle()
        self.roster.look(self.grid)
        while not self.roster.nodes_answered and (left := deadline - time.monotonic()) > 0:
            self.session.heartbeat()
            time.sleep(min(NODE_POLL, left))
            self.roster.look(self.grid)

    def await_release(self) -> None:
        """Wait until a sum may be released: here not at all."""
        return

    def select(self) -> Users | None:
        """Wait for the moment at which the next round can open; return its cohort, None while users are awaited.

        Raises:
            NotEnoughUsers: too few users may take part, and no time brings more.
            BadInput: most nodes answered the first look, and none as it should.
        """
        try:
            return self.counts.select()
        except NotEnoughUsers as shortage:
            # Users who are missing after a round was committed are waited for.
            if not (self.waits and self.session.coming_round):
                raise
            self.session.rounds.commits.commit_held()  # others may wait for users as long as it takes
            self.patience.note_void()
            if self.patience.is_over(committed=True):
                raise
            log.warning("round %d cannot be opened yet: %s", self.session.coming_round + 1, shortage)
            return None

    def rest(self) -> None:
        """Wait before an attempt that follows void ones; less where a request came, or users who were missing."""
        session, roster, goal, seconds = self.session, self.roster, self.session.plan.report_goal, self.patience.pause
        deadline, missing = time.monotonic() + seconds, roster.reserve().size < goal
        while (left := deadline - time.monotonic()) > 0 and session.account.request() is None:
            session.heartbeat()
            time.sleep(min(max(NODE_POLL, seconds / 60), left))
            roster.look(self.grid)
            roster.register()
            if missing and roster.reserve().size >= goal:
                return

    def pause(self, seconds: float) -> None:
        """Keep the run, which an officer has paused, for `seconds`."""
        self.session.heartbeat()
        time.sleep(seconds)

    # -- during a round --------------------------------------------------------------------------------------

    def exchange(self, messages: Sequence[Message], copies: int) -> Iterable[ReceivedReply]:
        """Send `messages`; yield the answers as they arrive, until all have or the round's time is over.

        copies: how many times the arrays of an instruction come back.
        """
        limit = limit_for(messages[0], copies) if messages else None
        answers = self._receiver.receive(self.grid, messages, self.timeout, self.tick, limit)
        while True:
            with self.session.interrupts.allowed():  # nodes of this process train
                answer = next(answers, None)
            if answer is None:
                return
            if is_simulated(self.grid) and answer.slot is not None and answer.reply is not None:
                self._own_data.read(answer.reply)
            yield answer
            del answer

    def tick(self) -> None:
        """Renew the lease, and look who is there, in every loop that waits for something else."""
        self._heartbeat()
        self.roster.look_now_and_then(self.grid)

    def _heartbeat(self) -> None:
        with self.session.interrupts.allowed(at_once=False):
            self.session.heartbeat()

    # -- after a round ---------------------------------------------------------------------------------------

    def note_attempt(self, asked: Collection[int], good: Collection[int], silent: set[int], full: bool) -> Counter[str]:
        """Remember how the nodes `asked` answered; returns what the round's record says of it, by reason.

        Args:
            good: nodes whose reply is summed, with all users that they were asked for.
            silent: nodes that did not answer.
            full: enough had answered, so no one was late.
        """
        if not full:
            self.failures.note_silence(silent, len(asked), self.timeout, self.roster.nodes_online)
        failed = set(asked).difference(good, silent if full else ())
        # Adding to an empty Counter drops reasons that count nothing.
        return Counter[str]() + (self.counts.note_attempt(good, failed) + self.roster.newly_refused())

    def require_training(self) -> None:
        """Raise `EveryUserFailed` where a simulated grid says so. Real nodes do not, nor people who may be absent."""
        told = getattr(self.grid, "fault", lambda: None)
        fault = told() or self._own_data.take() if is_simulated(self.grid) else None
        if fault is not None and self.session.account.schedule is None:
            raise fault

    def counting(self) -> AbstractContextManager[None]:
        """Count how users fared whose replies are read inside the block, where a simulated grid's data are ours."""
        return self._own_data.counting() if is_simulated(self.grid) else nullcontext()

    def note_void(self, round: int, reports: int) -> None:
        """Note that an attempt had too few reports. Raises `BadInput` where every further one would have as few."""
        self.patience.note_void()
        count = self.counts.shown(reports)
        log.warning("round %d void: %s reports", round + 1, "too few" if count is None else count)
        self.require_right_app()

    def require_right_app(self) -> None:
        """End a run none of whose nodes can answer as it should. Raises `BadInput`, or `JournalRefused`."""
        wrong = self.counts.wrong_app
        if wrong is not None:
            self.session.finish("failed", str(wrong))
            raise wrong

    def require_answers(self) -> None:
        """Raise `Interrupted` where nodes have been silent, or have failed, for too long."""
        committed = self.session.coming_round > 0
        if self.patience.is_over(committed) or (self.patience.voids and self.counts.all_silent):
            voids = self.patience.voids
            few = f"{voids} rounds in a row had" if voids > 1 else "the round had"
            few += f" fewer than {self.session.plan.report_goal} reports"
            cause = f" First cause: {self.counts.first_cause}." if self.counts.first_cause else ""
            raise Interrupted(f"run {self.session.account.id}: {few}; nothing was released or charged for them.{cause}")


class InProcess(Presence):
    """All nodes are this process's, or those of an engine that it started: waiting brings no further user."""

    waits = False


class Federation(Presence):
    """Real nodes, which join, leave and come back."""

    waits = True


class Scheduled(Federation):
    """Users whose presence is secret: nothing happens at another time than a scheduled one (`ledger.schedule`).

    A round is opened and released at a scheduled time. How soon nodes answer, and how many there are, then shows
    in no time that is stored, and in no time at which a row appears, as long as the answers are in before the
    next scheduled time. A round that is late waits for the one after: that it was late is visible, and how late
    it was is not.
    """

    def __init__(self, session: Session, grid: Grid) -> None:
        super().__init__(session, grid)
        assert session.account.schedule is not None
        self._schedule = session.account.schedule
        # Whether a scheduled time has just come, at which the last round was released: the next opens at once.
        self._at_scheduled_time = False

    def await_opening(self) -> None:
        if not self._at_scheduled_time:
            self.settle()
            self.await_release()
        self._at_scheduled_time = False

    def await_release(self) -> None:
        """Wait for the scheduled time, however soon replies came. Until then the sum is raw; a crash voids the round"""
        self.roster.look(self.grid)
        await_scheduled(self._schedule, self.session.account.clock, self.tick)
        self._at_scheduled_time = True

    def pause(self, seconds: float) -> None:
        self._at_scheduled_time = False
        super().pause(seconds)


def await_scheduled(schedule: Schedule, clock: Callable[[], float], tick: Callable[[], None]) -> None:
    """Wait until the first scheduled time after now. tick: called meanwhile."""
    due = math.inf
    while True:
        now = clock()
        # A clock that is set back makes this wait longer by one interval at most.
        due = min(due, schedule.following(now))
        if due <= now:
            return
        tick()
        time.sleep(max(0.0, min(due - clock(), LONGEST_WAIT)))
