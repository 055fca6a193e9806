"""Nodes over a network, in this process: they come and go, take their time, and lie, by a clock that tests set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from flwr.app import Message

from fieldfare_flower.messages import QUERY_USERS
from support.clock import FakeClock
from support.federation import Lie, LyingGrid


class TimedGrid(LyingGrid):
    """Nodes 2, 3, ... of real users.

    Args:
        lies: node -> what it does to its training replies.
        query_lies: node -> what it does to its answers to the question for its users.
        away: (node, seconds since the start) -> whether it is offline.
        takes: (node, message type) -> seconds until it answers; infinite: never.
    """

    simulated = False

    def __init__(
        self,
        nodes: int,
        clock: FakeClock,
        lies: dict[int, Lie] | None = None,
        query_lies: dict[int, Lie] | None = None,
        away: Callable[[int, float], bool] = lambda node, at: False,
        takes: Callable[[int, str], float] = lambda node, kind: 0.5,
        task: str = "support.federation:TinyTask",
    ) -> None:
        super().__init__(nodes, lies, task)
        self._clock, self._start, self._away, self._takes = clock, clock.now, away, takes
        self._query_lies = query_lies or {}
        self._sent_at: dict[str, float] = {}
        self.asked: list[tuple[float, int, str]] = []
        """(seconds since the start, node, message type) of every message."""

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return self._clock.now - self._start

    def get_node_ids(self) -> Iterable[int]:
        return [node for node in super().get_node_ids() if not self._away(node, self.now)]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        self.asked += [(self.now, m.metadata.dst_node_id, m.metadata.message_type) for m in messages]
        ids = list(super().push_messages(messages))
        self._sent_at.update(dict.fromkeys(ids, self.now))
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterator[Message]:
        for message_id in list(message_ids):
            message = self._waiting.get(message_id)
            if message is None:
                continue
            node, kind = message.metadata.dst_node_id, message.metadata.message_type
            if not self._away(node, self.now) and self.now >= self._sent_at[message_id] + self._takes(node, kind):
                yield from super().pull_messages([message_id])

    def answer(self, message: Message) -> Message:
        reply = super().answer(message)
        lie = self._query_lies.get(message.metadata.dst_node_id)
        return lie(message, reply) if lie is not None and message.metadata.message_type == QUERY_USERS else reply
