"""The blinder on a node of its own, asked through Flower. What it says is believed for its signature alone."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from flwr.app import Message, RecordDict

from fieldfare.aggregation import NO_ANSWER
from fieldfare.errors import Interrupted
from fieldfare.masking.boxes import read_key
from fieldfare_flower.bounded import ReplyLimit
from fieldfare_flower.masked import QUERY_MASKS, REFUSALS, Hello, MasksAsked, MasksRefused
from fieldfare_server.run.presence.replies import LONGEST_PAUSE, SPARE_BYTES, Receiver, fresh_group

if TYPE_CHECKING:
    from fieldfare_server.run.presence.presence import Presence

# Seconds, at least, before the same question is sent again: its node may have ended with it.
LEAST_PATIENCE = 10.0
_REFUSED = re.compile(r"<class 'MasksRefused'> ([a-z-]{1,20})")


class DistantBlinder:
    """The one that the plan names, wherever among the nodes it is."""

    def __init__(self, presence: Presence) -> None:
        self._presence = presence
        self.public_key = presence.session.plan.aggregation.party
        self._receiver = Receiver()

    def hello(self, run: str, plan: str) -> Hello:
        """Whom and what it answers for. Raises `Interrupted` where it is not there until the round's timeout."""
        deadline = time.monotonic() + self._presence.timeout
        while not (here := self._here(run, plan)):
            self._wait(deadline, run)
        return next(iter(here.values()))

    def answer(self, content: RecordDict) -> RecordDict:
        """The answer to a question. It is sent again and again: the same question has the same answer.

        Raises `MasksRefused` where a rule forbids it, `Interrupted` where the blinder is silent until the timeout.
        """
        timeout = self._presence.timeout
        deadline, asked = time.monotonic() + timeout, MasksAsked.read(content)
        limit = ReplyLimit(8 * asked.numel + SPARE_BYTES)
        while True:
            for node in self._here(asked.run, asked.plan):
                seconds = min(max(LEAST_PATIENCE, timeout / 3), max(LEAST_PATIENCE, deadline - time.monotonic()))
                group = fresh_group(asked.run, "masks")
                question = Message(content, node, QUERY_MASKS, ttl=seconds, group_id=group)
                grid, tick = self._presence.grid, self._presence.tick
                for received in self._receiver.receive(grid, [question], seconds, tick, limit):
                    reply = received.reply
                    if reply is not None and not reply.has_error():
                        return reply.content
                    told = _REFUSED.fullmatch(str(reply.error.reason)) if reply is not None else None
                    if told is not None and told[1] in REFUSALS:
                        raise MasksRefused(asked, told[1])
            self._wait(deadline, asked.run)

    def _here(self, run: str, plan: str) -> dict[int, Hello]:
        """The nodes that are online and have shown that they are the blinder, and what each says to `run`."""
        roster, (_, key) = self._presence.roster, read_key(self.public_key)
        roster.look(self._presence.grid)
        said = {node: Hello.read(content, run, plan, key) for node, content in roster.blinders_online.items()}
        return {node: hello for node, hello in said.items() if hello is not None}

    def _wait(self, deadline: float, run: str) -> None:
        """Wait a moment. Raises `Interrupted` after `deadline`."""
        if time.monotonic() >= deadline:
            raise Interrupted(f"run {run}: {NO_ANSWER}.")
        self._presence.tick()
        time.sleep(LONGEST_PAUSE)
