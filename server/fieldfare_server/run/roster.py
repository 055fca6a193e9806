"""Which users are there, and which node answers for each."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fieldfare.schema import Schema
from fieldfare_flower.messages import QUERY_USERS, BadReply, read_users, write_users_query
from fieldfare_flower.waits import limit_part_waits

MOST_USERS_PER_NODE = 20_000_000
"""More pseudonyms than this in one reply are refused: 160 MB on the wire."""

Indices = NDArray[np.int64]


def replies_as_they_come(
    grid: Grid, messages: Iterable[Message], timeout: float, tick: Callable[[], None] = lambda: None
) -> Iterator[Message]:
    """Send, then yield replies until all are there or `timeout` seconds are over.

    Polls by itself, because Flower's own loop sleeps three seconds between polls: here after a quarter of the time
    waited so far, and at last twice a second, for each look is a write to the SuperLink's database. `tick` is called
    while waiting. Flower waits inside of a look for the rest of a reply that broke off on its way, by itself for
    minutes: here until the deadline. One look begins after it, for the replies that came meanwhile.
    """
    waiting = {message_id for message_id in grid.push_messages(messages) if message_id}
    deadline, pause = time.monotonic() + timeout, 0.02
    while waiting:
        before, left = len(waiting), deadline - time.monotonic()
        limit_part_waits(max(left, 0.0))
        for reply in grid.pull_messages(list(waiting)):
            waiting.discard(reply.metadata.reply_to_message_id)
            yield reply
        tick()
        if not waiting or left <= 0:
            return
        pause = 0.02 if len(waiting) < before else min(pause * 1.25, 0.5)
        time.sleep(pause)


class Roster:
    """Users by index in the population, and the node that hosts each: the first node that claims a user has it."""

    def __init__(self, schema: Schema, run: str, register: Callable[[NDArray[np.uint64]], Indices]) -> None:
        self._schema, self._run, self._register = schema, run, register
        self._owner: NDArray[np.uint64] = np.zeros(0, np.uint64)  # Flower's node ids are 64 bits, 0 is nobody
        self._name: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._asked: set[int] = set()
        self._online: set[int] = set()
        self._available: Indices | None = None
        self.refused: Counter[str] = Counter()

    def refresh(self, grid: Grid, timeout: float, tick: Callable[[], None] = lambda: None) -> None:
        """Ask nodes that are new for their users; forget none, but only users of nodes online now are available.

        `tick` is called while waiting: a node that is slow to answer must not cost the run its lease.
        """
        online = set(grid.get_node_ids())
        if online != self._online:
            self._online, self._available = online, None
        new = sorted(self._online - self._asked)
        queries = [Message(write_users_query(self._run), node, QUERY_USERS) for node in new]
        claims: list[tuple[int, NDArray[np.uint64]]] = []
        for reply in replies_as_they_come(grid, queries, timeout, tick) if queries else ():
            if reply.has_error():
                self.refused["error reply"] += 1
                continue
            try:
                users = read_users(reply.content, self._schema, MOST_USERS_PER_NODE)
            except BadReply as error:
                self.refused[error.reason] += 1
                continue
            self._asked.add(reply.metadata.src_node_id)
            claims.append((reply.metadata.src_node_id, users))
        # Once a look, also when nobody is new: how often users are registered must not tell how many there are.
        everybody = np.concatenate([users for _, users in claims]) if claims else np.zeros(0, np.uint64)
        indices = self._register(everybody)
        for node, users in claims:
            mine, indices = indices[: users.size], indices[users.size :]
            self._claim(node, users, mine)

    def _claim(self, node: int, users: NDArray[np.uint64], indices: Indices) -> None:
        self._available = None
        if indices.size == 0:
            return
        most = int(indices.max()) + 1
        if most > self._owner.size:
            grow = most - self._owner.size
            self._owner = np.concatenate([self._owner, np.zeros(grow, np.uint64)])
            self._name = np.concatenate([self._name, np.zeros(grow, np.uint64)])
        gone = ~np.isin(self._owner[indices], np.fromiter(self._online, np.uint64))
        mine = gone | (self._owner[indices] == 0)
        self.refused["user claimed by two nodes"] += int((~mine).sum())
        self._owner[indices[mine]] = node
        self._name[indices[mine]] = users[mine]

    def available(self) -> Indices:
        """Indices of the users whose node is online, in the order of their pseudonyms.

        Indices are given out in the order in which nodes happened to register; pseudonyms are the same in every
        deployment, so a cohort drawn by position from this order is too.
        """
        if self._available is None:
            online = np.isin(self._owner, np.fromiter(self._online, np.uint64)) & (self._owner != 0)
            order = np.argsort(self._name, kind="stable").astype(np.int64)
            self._available = order[online[order]]
        return self._available

    def names(self, users: Indices) -> NDArray[np.uint64]:
        """Pseudonyms of users (indices), shape (len(users),)."""
        return self._name[users]

    def by_node(self, cohort: Indices) -> dict[int, tuple[Indices, NDArray[np.uint64]]]:
        """For each node that hosts some of `cohort`: their indices and their names on the wire."""
        if not cohort.size:
            return {}
        owners = self._owner[cohort]
        order = np.argsort(owners, kind="stable")
        nodes, starts = np.unique(owners[order], return_index=True)
        groups = np.split(cohort[order], starts[1:])
        return {int(node): (group, self._name[group]) for node, group in zip(nodes, groups, strict=True)}
