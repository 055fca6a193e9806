"""Which users can be asked, and which node answers for each.

Nodes are asked for their users in the background: `look` sends the questions that are due, takes in the
answers that are there, and waits for nothing. A node that does not answer, or answers with an error, is asked
again after a pause that doubles. A round never waits for a node that has never answered; only the start of a
session waits a moment (`settle`) for the nodes that are there.

**Bindings.** Where nodes are authenticated, a user stays with the node that first claimed them, in all runs
(`bindings`); the claims of other nodes are refused and counted. Elsewhere a node's id lasts no longer than
its process, and a user whose node is offline goes to the next that claims them. In both cases the users of a
node that fails (`standing`) go to another node that claims them, for this session. A node that was registered
for at most N users and claims more is refused whole.

Neither decides who is charged: that is the user's number, whichever node answers for them. A user whom a
wrong node claimed is asked there and nowhere else while that node answers well; the claim costs that user a
place in the sum, never privacy.

Where presence is secret a refused claim removes the users that it names and no others, except where a node
claims more users than it was registered for: then one user more decides about all of that node (THREATS.md).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fieldfare.schema import Schema
from fieldfare_flower.bounded import ReplyLimit
from fieldfare_flower.masked import HELLO
from fieldfare_flower.messages import QUERY_USERS, read_users, read_witness, write_users_query
from fieldfare_flower.npy import BadReply
from fieldfare_flower.server_errors import outlasted, server_error
from fieldfare_flower.waits import limit_part_waits
from fieldfare_server.run.presence.failures import Failures
from fieldfare_server.run.presence.replies import (
    LONGEST_PAUSE,
    SHORTEST_PAUSE,
    SPARE_BYTES,
    ReceivedReply,
    Receiver,
    ReplySlots,
    fresh_group,
    send,
)
from fieldfare_server.run.presence.selection import Users

if TYPE_CHECKING:
    from fieldfare_server.run.presence.bindings import Bindings

# A reply with more pseudonyms is refused: 160 MB on the wire.
MOST_USERS_PER_NODE = 20_000_000
# Seconds before a node is asked again whose answer was an error. Each further pause is twice as long.
FIRST_BACK_OFF = 2.0
# Upper bound of that pause, and of the time that a question may stay without an answer.
LONGEST_BACK_OFF = 600.0
# Seconds that a first question may stay without an answer: a node may load its data before it answers.
FIRST_PATIENCE = 120.0
# Seconds between two looks for answers while a round waits for its updates; each is a write to Flower's database.
LOOK_EVERY = 1.0
# Seconds that one look may wait for the rest of an answer whose upload is under way, or broke off.
PART_WAIT = 10.0
TOO_MANY_USERS = "users: more than the node was registered for"
CLAIMED_TWICE = "user claimed by two nodes"
BOUND_ELSEWHERE = "user bound to another node"


@dataclass
class _Question:
    """What is known of asking one node for its users."""

    asked: int = 0  # how often
    slot: int = -1  # of the newest question; -1: none waits
    # When it is to be asked next: after an error, or where the newest question stays without an answer.
    due: float = 0.0


class Roster:
    """Users by index in the population, and the node that hosts each: the first node that claims a user hosts it."""

    def __init__(
        self,
        schema: Schema,
        run_id: str,
        register_users: Callable[[NDArray[np.uint64]], Users],
        dialect: str = "cohort",
        query: Mapping[str, ConfigRecord] | None = None,
    ) -> None:
        """
        Args:
            register_users: pseudonyms -> indices in the population, shape (n,), as the account answers.
            query: what goes with the query for users.
        """
        self._query = query
        self._schema, self._run_id, self._register_users = schema, run_id, register_users
        # By user index: the hosting node's id, and the pseudonym. Flower's node ids are 64 bits; 0 means no node.
        self._owner: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._name: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._answered: set[int] = set()
        # By node, for nodes that have not said which users they host.
        self._questions: dict[int, _Question] = {}
        self._slots = ReplySlots()
        self._asked: dict[int, int] = {}  # slot -> node, for questions that wait
        self._next_look = 0.0
        # (node, pseudonyms of its users), not registered yet.
        self._claims: list[tuple[int, NDArray[np.uint64]]] = []
        self._online: set[int] = set()
        self._node_names: Mapping[int, str] = {}
        self._set_aside: frozenset[int] = frozenset()
        self._failed: frozenset[int] = frozenset()  # nodes whose users other nodes may have
        # Node -> all users that it claimed, in the order in which nodes answered.
        self._claimed: dict[int, Users] = {}
        # All users in the order of their pseudonyms; None: one has changed since it was made.
        self._order: Users | None = None
        self._available: Users | None = None
        # Users whom a node has claimed, by the nodes left out. These three are kept until something changes.
        self._known: dict[frozenset[int], Users] = {}
        # Told every accepted answer, the node and its content: what else the node says in it.
        self.hear: Callable[[int, RecordDict], None] = lambda node, content: None
        # Which users, by pseudonym, may be asked at all: others are never registered, and never selected.
        self.takes: Callable[[NDArray[np.uint64]], NDArray[np.bool_]] = lambda names: np.ones(names.shape, np.bool_)
        # Records that go with every question: what the run costs, for nodes with a budget of their own; and
        # its plan, for a blinder.
        self.told: dict[str, ConfigRecord] = {}
        # What nodes have said that host nobody, and know the masks of others: node -> its answer.
        self.blinders: dict[int, RecordDict] = {}
        self.bindings: Bindings | None = None  # None where a node's identity does not outlast its process
        self.refused: Counter[str] = Counter()  # replies and claims that were not accepted, by reason
        self._told: Counter[str] = Counter()  # what of `refused` rounds have recorded
        self.failures = Failures(dialect)  # why nodes do not answer as they should, here and in rounds
        self._receiver = Receiver()

    # -- who is there ----------------------------------------------------------------------------------------

    def look(self, grid: Grid) -> None:
        """Ask the nodes whose question is due, and take in the answers that are there. Waits for nothing.

        Users of nodes that are offline stay known but are not available. `register` makes users available.
        """
        with outlasted("who is online is what it was"):
            self._note_online(grid, set(grid.get_node_ids()))
        now = time.monotonic()
        self._ask(grid, now)
        limit_part_waits(PART_WAIT)
        self._receiver.limit(grid, ReplyLimit(8 * self._most_users() + SPARE_BYTES))
        for answer in self._receiver.look(grid, self._slots) if self._slots.waiting else ():
            node = None if answer.slot is None else self._asked.pop(answer.slot, None)
            if node is None:
                self.refused["duplicate or stray reply"] += 1
            else:
                self._read_users(node, answer)
        self._next_look = time.monotonic() + LOOK_EVERY

    def look_now_and_then(self, grid: Grid) -> None:
        """Call `look`, at most every `LOOK_EVERY` seconds: for loops that wait for something else."""
        if time.monotonic() >= self._next_look:
            self.look(grid)

    def settle(self, grid: Grid, timeout: float, tick: Callable[[], None] = lambda: None) -> None:
        """Look until every node that is online has answered once, well or not, or `timeout` seconds are over.

        tick: called after every look, so that a slow node does not cost the run its lease.
        """
        deadline, pause = time.monotonic() + timeout, SHORTEST_PAUSE
        while True:
            # Taken before the look: one look begins after the deadline, for answers that came meanwhile.
            left = deadline - time.monotonic()
            self.look(grid)
            tick()
            if not self.silent or left <= 0:
                break
            time.sleep(pause)
            pause = min(pause * 1.25, LONGEST_PAUSE)

    def _ask(self, grid: Grid, now: float) -> None:
        """Send the questions that are due."""
        due = [node for node in sorted(self._online - self._answered) if self._question(node).due <= now]
        if not due:
            return
        queries = []
        for node in due:
            question = self._question(node)
            patience = min(FIRST_PATIENCE * 2.0 ** min(question.asked, 10), LONGEST_BACK_OFF)
            group = fresh_group(self._run_id, "users")
            content = write_users_query(self._run_id, {**(self._query or {}), **self.told})
            queries.append(Message(content, node, QUERY_USERS, ttl=patience, group_id=group))
            question.asked, question.due = question.asked + 1, now + patience
        outdated = {self._question(node).slot for node in due}
        self._slots.drop(outdated)
        for slot in outdated:
            self._asked.pop(slot, None)
        try:
            sent = send(grid, queries)
        except Exception as error:
            if not server_error(error):
                raise
            for node in due:
                self._question(node).slot, self._question(node).due = -1, now + FIRST_BACK_OFF
            return
        slots = self._slots.add(sent)
        for node, slot in zip(due, slots, strict=True):
            self._question(node).slot = slot
            self._asked[slot] = node

    def _question(self, node: int) -> _Question:
        return self._questions.setdefault(node, _Question())

    @property
    def silent(self) -> set[int]:
        """The nodes that are online, have been asked and have not answered at all."""
        questions = {node: self._questions.get(node) for node in self._online - self._answered}
        return {node for node, question in questions.items() if question is None or question.slot >= 0}

    def _read_users(self, node: int, answer: ReceivedReply) -> None:
        """Take in what `node` answered."""
        question, reply = self._question(node), answer.reply
        question.slot = -1
        pause = min(FIRST_BACK_OFF * 2.0 ** min(question.asked - 1, 10), LONGEST_BACK_OFF)
        question.due = time.monotonic() + pause
        try:
            if reply is not None and reply.has_error():
                self.refused[self.failures.note_error(reply, node)] += 1
                return
            if reply is None:
                raise BadReply(answer.reason, "is too large, or cannot be decoded")
            if HELLO in reply.content:
                self.blinders[node] = reply.content
                self._take_in(node, np.zeros(0, np.uint64))
                return
            names = read_users(reply.content, self._schema, MOST_USERS_PER_NODE)
            quota = self._quota(node)
            if quota is not None and names.size > quota:
                raise BadReply(TOO_MANY_USERS)
            self.failures.seen.add(read_witness(reply.content)[1])
            self.hear(node, reply.content)
        except Exception as error:  # whatever a crafted reply makes Flower's records raise, it is one bad reply
            reason = error.reason if isinstance(error, BadReply) else "schema"
            self.refused[reason] += 1
            self.failures.note_rejected(reason, node)
            return
        self.failures.note_answer()
        self._take_in(node, names)

    def _most_users(self) -> int:
        """Return the most users that a node may have whose answer is waited for."""
        quotas = [self._quota(node) for node in self._asked.values()]
        return max((MOST_USERS_PER_NODE if quota is None else quota for quota in quotas), default=0)

    def _quota(self, node: int) -> int | None:
        name = self._node_names.get(node)
        return None if self.bindings is None or name is None else self.bindings.most_users(name)

    def _take_in(self, node: int, names: NDArray[np.uint64]) -> None:
        """Take in which users `node` says it hosts."""
        self._answered.add(node)
        self._questions.pop(node, None)
        self._claims.append((node, names))

    def ask_again(self, node: int) -> None:
        """Forget which users `node` hosts until it says so anew: some may have spent a budget of their own."""
        self._answered.discard(node)
        claimed = self._claimed.pop(node, np.zeros(0, np.int64))
        self._owner[claimed[self._owner[claimed] == node]] = 0
        self._forget()

    def _note_online(self, grid: Grid, online: set[int]) -> None:
        if online != self._online:
            # First, because it asks the SuperLink, which may fail.
            names = self._node_names if self.bindings is None else self.bindings.node_names(grid)
            for node in online - self._online:
                self._questions.pop(node, None)  # it is back: it is asked at once
            self._online, self._node_names = online, names
            self._forget()

    @property
    def nodes_online(self) -> int:
        """How many nodes were online at the last look, without blinders, which host nobody."""
        return len(self._online - self.blinders.keys())

    @property
    def blinders_online(self) -> dict[int, RecordDict]:
        """`blinders`, those that were online at the last look."""
        return {node: said for node, said in self.blinders.items() if node in self._online}

    @property
    def nodes_answered(self) -> int:
        """How many nodes have said which users they host."""
        return len(self._answered)

    @property
    def claimed(self) -> NDArray[np.uint64]:
        """The pseudonyms, each once and sorted, that nodes have claimed and `register` has not seen yet."""
        return np.unique(np.concatenate([np.zeros(0, np.uint64), *(names for _, names in self._claims)]))

    def set_aside(self, resting: frozenset[int], quarantined: frozenset[int]) -> None:
        """Leave out the users of the nodes `resting` from `available` from now on; they stay a `reserve`."""
        # Where users are bound to nodes, it takes a quarantine until another node may have them.
        failed = resting if self.bindings is None else quarantined
        if (resting, failed) == (self._set_aside, self._failed):
            return
        self._set_aside, self._failed = resting, failed
        self._forget()
        # They go to another node that claims them: one that claims all users first and then fails holds none up.
        lost = np.isin(self._owner, np.fromiter(failed, np.uint64)) & (self._owner != 0)
        for node, users in self._claimed.items():
            if node in self._online and node not in resting and lost.any():
                moved = users[lost[users]]
                self._owner[moved], lost[moved] = node, False

    def newly_refused(self) -> Counter[str]:
        """Return what was refused since the last call: it is shown with the next round."""
        new = self.refused - self._told
        self._told = self.refused.copy()
        return new

    # -- users -----------------------------------------------------------------------------------------------

    def register(self) -> None:
        """Register the users of all nodes that answered since the last call.

        Where presence is secret every call leaves one row in the journal, also where no node is new. There,
        call it as often, and at the same times, whoever is present. Within a group of rounds users wait for the next.
        """
        claims, self._claims = [(node, names[self.takes(names)]) for node, names in self._claims], []
        all_names = np.concatenate([names for _, names in claims]) if claims else np.zeros(0, np.uint64)
        indices = self._register_users(all_names)
        for node, names in claims:
            claimed, indices = indices[: names.size], indices[names.size :]
            self._assign(node, names, claimed)
        if claims and self.bindings is not None:
            self.bindings.save()

    def _forget(self) -> None:
        """Forget what was counted: who is there has changed. The next question costs as much as there are users."""
        self._available, self._known = None, {}

    def _assign(self, node: int, names: NDArray[np.uint64], indices: Users) -> None:
        self._forget()
        if indices.size == 0:
            return
        missing = int(indices.max()) + 1 - self._owner.size
        if missing > 0:
            self._order = None
            self._owner = np.concatenate([self._owner, np.zeros(missing, np.uint64)])
            self._name = np.concatenate([self._name, np.zeros(missing, np.uint64)])
        name = self._node_names.get(node)
        if self.bindings is not None and name is not None:
            free = self.bindings.bind(indices, name)
            self.refused[BOUND_ELSEWHERE] += int((~free).sum())
        else:
            # A user moves to another node only when their first one is offline.
            orphaned = ~np.isin(self._owner[indices], np.fromiter(self._online, np.uint64))
            free = orphaned | (self._owner[indices] == 0)
            self.refused[CLAIMED_TWICE] += int((~free).sum())
        self._claimed[node] = indices
        self._owner[indices[free]] = node
        if not np.array_equal(self._name[indices], names):
            self._name[indices], self._order = names, None

    def available(self) -> Users:
        """Return indices of the users whose node is online and not set aside, in the order of their pseudonyms."""
        # Indices follow the order in which nodes happened to register. Pseudonyms are the same in every
        # deployment, and so is a cohort that is drawn by position from their order.
        if self._available is None:
            self._available = self._users_of(self._online - self._set_aside)
        return self._available

    def reserve(self) -> Users:
        """Return indices of all users whose node is online, set aside or not, in the order of their pseudonyms."""
        return self._users_of(self._online) if self._online & self._set_aside else self.available()

    def _users_of(self, nodes: set[int]) -> Users:
        hosted = np.isin(self._owner, np.fromiter(nodes, np.uint64)) & (self._owner != 0)
        if self._order is None:
            self._order = np.argsort(self._name, kind="stable").astype(np.int64)
        users: Users = self._order[hosted[self._order]]
        return users

    def spread(self, users: Users, most: int, proven: Iterable[int], generator: np.random.Generator) -> Users:
        """Return `users`, in their order, of whom each node that is not `proven` has at most `most`, drawn
        uniformly.

        Args:
            users: indices, shape (n,).
            most: users of a node whose key nothing proves.
            proven: nodes whose keys are proven.
            generator: of this attempt.
        """
        shuffled = generator.permutation(users.size)
        owners = self._owner[users[shuffled]]
        order = np.argsort(owners, kind="stable")
        _, first, counts = np.unique(owners[order], return_index=True, return_counts=True)
        rank = np.empty(users.size, np.int64)
        rank[shuffled[order]] = np.arange(users.size) - np.repeat(first, counts)
        kept: Users = users[(rank < most) | np.isin(self._owner[users], np.fromiter(proven, np.uint64))]
        return kept

    def known(self, without: Iterable[int] = ()) -> Users:
        """Return indices of the users whom a node, and none of `without`, claimed in this process, online or not."""
        left_out = frozenset(without)
        if left_out not in self._known:
            claimed = (self._owner != 0) & ~np.isin(self._owner, np.fromiter(left_out, np.uint64))
            self._known[left_out] = np.flatnonzero(claimed).astype(np.int64)
            self._known[left_out].flags.writeable = False
        return self._known[left_out]

    def names(self, users: Users) -> NDArray[np.uint64]:
        """Return the pseudonyms of users (indices), shape (len(users),)."""
        return self._name[users]

    def by_node(self, cohort: Users) -> dict[int, tuple[Users, NDArray[np.uint64]]]:
        """Return, for each node that hosts some of `cohort`: their indices and their pseudonyms."""
        if not cohort.size:
            return {}
        owners = self._owner[cohort]
        order = np.argsort(owners, kind="stable")
        nodes, starts = np.unique(owners[order], return_index=True)
        groups = np.split(cohort[order], starts[1:])
        return {int(node): (group, self._name[group]) for node, group in zip(nodes, groups, strict=True)}
