"""Which users can be asked, and which node answers for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fieldfare.schema import Schema
from fieldfare_flower.messages import QUERY_USERS, read_users, write_users_query
from fieldfare_flower.npy import BadReply
from fieldfare_server.run.failures import Failures
from fieldfare_server.run.replies import Receiver, fresh_group
from fieldfare_server.run.selection import Users

MOST_USERS_PER_NODE = 20_000_000
"""A reply with more pseudonyms is refused: 160 MB on the wire."""


class Roster:
    """Users by index in the population, and the node that hosts each: the first node that claims a user hosts it."""

    def __init__(
        self,
        schema: Schema,
        run_id: str,
        register_users: Callable[[NDArray[np.uint64]], Users],
        dialect: str = "cohort",
    ) -> None:
        """register_users: pseudonyms -> indices in the population, shape (n,), as the account answers."""
        self._schema, self._run_id, self._register_users = schema, run_id, register_users
        # By user index: the hosting node's id, and the pseudonym. Flower's node ids are 64 bits; 0 means no node.
        self._owner: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._name: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._asked: set[int] = set()
        self._claims: list[tuple[int, NDArray[np.uint64]]] = []
        """(node, pseudonyms of its users), not registered yet."""
        self._online: set[int] = set()
        self._available: Users | None = None
        self.hear: Callable[[RecordDict], None] = lambda content: None
        """Told the content of every accepted answer: what else the node says in it."""
        self.refused: Counter[str] = Counter()
        """Replies and claims that were not accepted, by reason."""
        self.failures = Failures(dialect)
        """Why nodes do not answer as they should, here and in rounds."""
        self._receiver = Receiver()

    def ask_new_nodes(self, grid: Grid, timeout: float, tick: Callable[[], None] = lambda: None) -> None:
        """Ask nodes that are new for their users, who become available once they are registered.

        Users of nodes that are offline stay known but are not available. `tick` is called while waiting: a node that is
        slow to answer must not cost the run its lease.
        """
        self._note_online(set(grid.get_node_ids()))
        new_nodes = sorted(self._online - self._asked)
        queries = [
            Message(write_users_query(self._run_id), node, QUERY_USERS, group_id=fresh_group(self._run_id, "users"))
            for node in new_nodes
        ]
        silent = set(new_nodes)
        for answer in self._receiver.receive(grid, queries, timeout, tick) if queries else ():
            if answer.slot is None:
                self.refused["duplicate or stray reply"] += 1
                continue
            node = new_nodes[answer.slot]
            silent.discard(node)
            self._read_users(node, answer.reply)
        self.failures.note_silence(len(silent), len(new_nodes), timeout)

    def _read_users(self, node: int, reply: Message | None) -> None:
        """Take in what `node` answered; None: something that cannot be decoded."""
        try:
            if reply is not None and reply.has_error():
                self.refused[self.failures.note_error(reply)] += 1
                return
            if reply is None:
                raise BadReply("schema", "cannot be decoded")
            names = read_users(reply.content, self._schema, MOST_USERS_PER_NODE)
            self.hear(reply.content)
        except Exception as error:  # whatever a crafted reply makes Flower's records raise, it is one bad reply
            reason = error.reason if isinstance(error, BadReply) else "schema"
            self.refused[reason] += 1
            self.failures.note_rejected(reason)
            return
        self.failures.note_answer()
        self._asked.add(node)
        self._claims.append((node, names))

    def _note_online(self, online: set[int]) -> None:
        if online != self._online:
            self._online, self._available = online, None

    @property
    def nodes_online(self) -> int:
        """How many nodes were online at the last look."""
        return len(self._online)

    @property
    def nodes_answered(self) -> int:
        """How many nodes have said which users they host."""
        return len(self._asked)

    def register(self) -> None:
        """Register the users of all nodes that answered since the last call.

        Under `add_remove` every call leaves one row in the journal, also where no node is new. There, call it as often,
        and at the same times, whoever is present.
        """
        claims, self._claims = self._claims, []
        all_names = np.concatenate([names for _, names in claims]) if claims else np.zeros(0, np.uint64)
        indices = self._register_users(all_names)
        for node, names in claims:
            claimed, indices = indices[: names.size], indices[names.size :]
            self._assign(node, names, claimed)

    def _assign(self, node: int, names: NDArray[np.uint64], indices: Users) -> None:
        self._available = None
        if indices.size == 0:
            return
        missing = int(indices.max()) + 1 - self._owner.size
        if missing > 0:
            self._owner = np.concatenate([self._owner, np.zeros(missing, np.uint64)])
            self._name = np.concatenate([self._name, np.zeros(missing, np.uint64)])
        # A user moves to another node only when their first one is offline.
        orphaned = ~np.isin(self._owner[indices], np.fromiter(self._online, np.uint64))
        free = orphaned | (self._owner[indices] == 0)
        self.refused["user claimed by two nodes"] += int((~free).sum())
        self._owner[indices[free]] = node
        self._name[indices[free]] = names[free]

    def available(self) -> Users:
        """Indices of the users whose node is online, in the order of their pseudonyms.

        Indices are given out in the order in which nodes happened to register. Pseudonyms are the same in every
        deployment, and so is a cohort that is drawn by position from this order.
        """
        if self._available is None:
            online = np.isin(self._owner, np.fromiter(self._online, np.uint64)) & (self._owner != 0)
            order = np.argsort(self._name, kind="stable").astype(np.int64)
            self._available = order[online[order]]
        return self._available

    def known(self) -> Users:
        """Indices of the users whom a node has claimed in this process, online or not."""
        return np.flatnonzero(self._owner != 0).astype(np.int64)

    def names(self, users: Users) -> NDArray[np.uint64]:
        """Pseudonyms of users (indices), shape (len(users),)."""
        return self._name[users]

    def by_node(self, cohort: Users) -> dict[int, tuple[Users, NDArray[np.uint64]]]:
        """For each node that hosts some of `cohort`: their indices and their pseudonyms."""
        if not cohort.size:
            return {}
        owners = self._owner[cohort]
        order = np.argsort(owners, kind="stable")
        nodes, starts = np.unique(owners[order], return_index=True)
        groups = np.split(cohort[order], starts[1:])
        return {int(node): (group, self._name[group]) for node, group in zip(nodes, groups, strict=True)}
