"""Send messages to nodes and receive their replies as they arrive, each under the message that it answers.

All that a reply says of itself is written by its sender. What counts is the message that it answers: whoever
knows that message's id has received it. Ids are hashes over a fresh random token (`fresh_group`), so no other
node can guess one (spec/door.md 4.3).
"""

from __future__ import annotations

import logging
import secrets
import sys
import time
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass

from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid

from fieldfare_flower.bounded import LOOK_BYTES, LOOK_DATA, SCHEMA, ReplyLimit, is_of_connection, limit_replies, refusal
from fieldfare_flower.npy import data_size
from fieldfare_flower.server_errors import outlasted, server_error
from fieldfare_flower.waits import limit_part_waits

log = logging.getLogger("fieldfare.strategy")

SHORTEST_PAUSE = 0.02
# Seconds between two looks for replies. Flower's own loop waits three seconds.
LONGEST_PAUSE = 0.5
TOKEN_BYTES = 16
# The arrays of a reply may have this many times the bytes of those that were sent, and as many more: a
# ClientApp may answer float32 with float64.
TIMES_SENT, SPARE_BYTES = 2, 1 << 20


def fresh_group(run: str, round: int | str) -> str:
    """Return a group id that no one can guess, for one message. It appears in the lines that the node logs."""
    return f"{run}/{round}/{secrets.token_hex(TOKEN_BYTES)}"


@dataclass(frozen=True)
class ReceivedReply:
    """What came for one message."""

    slot: int | None  # which of the messages it answers, by position; None: none that still waits
    reply: Message | None  # None: a reply that is too large, or that cannot be decoded at all
    reason: str = SCHEMA  # why there is none


class ReplySlots:
    """Which messages still wait for their reply. The first reply to a message counts."""

    def __init__(self, ids: Sequence[str | None] = ()) -> None:
        """ids: as `add`'s."""
        self._slots: dict[str, int] = {}
        self._next = 0
        self.add(ids)

    def add(self, ids: Sequence[str | None]) -> range:
        """Wait for the replies to further messages; returns their slots.

        Args:
            ids: of the messages or their groups, in order; empty or None where the message could not be sent.
        """
        added = range(self._next, self._next + len(ids))
        self._slots.update({known: slot for slot, known in zip(added, ids, strict=True) if known})
        self._next += len(ids)
        return added

    def drop(self, slots: Container[int]) -> None:
        """Wait no longer for the replies of `slots`."""
        self._slots = {known: slot for known, slot in self._slots.items() if slot not in slots}

    @property
    def waiting(self) -> list[str]:
        """The ids that have no reply yet."""
        return list(self._slots)

    def take(self, reply: Message) -> ReceivedReply:
        """Take `reply` under the message that it answers."""
        for key in (reply.metadata.reply_to_message_id, reply.metadata.group_id):
            if isinstance(key, str) and key in self._slots:
                slot, reason = self._slots.pop(key), refusal(reply)
                return ReceivedReply(slot, None, reason) if reason else ReceivedReply(slot, reply)
        return ReceivedReply(None, reply)

    def fail(self, message_id: str) -> ReceivedReply:
        """Note that the message `message_id` has a reply that cannot be decoded."""
        return ReceivedReply(self._slots.pop(message_id, None), None)


def send(grid: Grid, messages: Sequence[Message]) -> list[str]:
    """Send `messages`; returns their ids in order, empty where a message could not be sent."""
    ids = list(grid.push_messages(list(messages)))
    if len(ids) != len(messages):  # a grid that leaves out what it refused: each message knows its own id
        sent = set(ids)
        ids = [known if (known := message.metadata.message_id) in sent else "" for message in messages]
    return ids


def limit_for(sent: Message, copies: int = 1) -> ReplyLimit:
    """Return what a reply to the instruction `sent` may hold, where its arrays come back `copies` times."""
    records = [record for record in sent.content.values() if isinstance(record, ArrayRecord)]
    size = sum(data_size(array) for record in records for array in record.values())
    return ReplyLimit(TIMES_SENT * copies * size + SPARE_BYTES, copies * sum(map(len, records)))


class Receiver:
    """Receives the replies of one run. It remembers whether a node sent what Flower itself cannot decode."""

    def __init__(self) -> None:
        # Pulling together is faster, and is given up for good at the first reply that breaks a whole look.
        self._one_by_one = False
        self._batch = sys.maxsize  # how many replies are pulled together

    def limit(self, grid: Grid, limit: ReplyLimit) -> None:
        """Take no reply beyond `limit` from now on, and pull large ones a few at a time."""
        together = min(LOOK_BYTES // limit.most, LOOK_DATA // limit.data)
        self._batch = max(1, together) if limit_replies(grid, limit) else sys.maxsize

    def receive(
        self,
        grid: Grid,
        messages: Sequence[Message],
        timeout: float,
        tick: Callable[[], None] = lambda: None,
        limit: ReplyLimit | None = None,
    ) -> Iterator[ReceivedReply]:
        """Send `messages`, then yield their replies until all have arrived or the time is over.

        Args:
            timeout: seconds after which the round goes on without the missing replies.
            tick: called after every look, so that a slow node does not cost the run its lease.
            limit: what one reply may hold; None: anything.
        """
        deadline, pause = time.monotonic() + timeout, SHORTEST_PAUSE
        slots = ReplySlots(_send_in_time(grid, messages, deadline, tick))
        while slots.waiting:
            before, left = len(slots.waiting), deadline - time.monotonic()
            # Within a look, Flower waits for the rest of a reply whose upload broke off: minutes, unless told less.
            limit_part_waits(max(left, 0.0))
            if limit is not None:  # in every look: `tick` may have pulled other messages
                self.limit(grid, limit)
            yield from self.look(grid, slots)
            tick()
            # `left` was taken before the look: one look begins after the deadline, for replies that came meanwhile.
            if not slots.waiting or left <= 0:
                return
            # Each look is a write to the SuperLink's database: the pause grows while nothing comes.
            pause = SHORTEST_PAUSE if len(slots.waiting) < before else min(pause * 1.25, LONGEST_PAUSE)
            time.sleep(pause)

    def look(self, grid: Grid, slots: ReplySlots) -> Iterator[ReceivedReply]:
        """Yield the replies that are there now, without waiting for any. None where the SuperLink fails for a
        moment.

        Flower decodes all replies of a look together, and a crafted one raises for all of them. After the
        first such error the run's replies are pulled one at a time, so that each costs its own message only.
        """
        with outlasted("replies are looked for again"):
            yield from self._look(grid, slots)

    def _look(self, grid: Grid, slots: ReplySlots) -> Iterator[ReceivedReply]:
        if not self._one_by_one:
            try:
                ids = slots.waiting
                for first in range(0, len(ids), self._batch):
                    yield from map(slots.take, _pull(grid, ids[first : first + self._batch]))
                return
            except _Undecodable as error:
                log.warning("a reply cannot be decoded (%s): replies are pulled one at a time from now on", error)
                self._one_by_one = True
        for message_id in slots.waiting:
            try:
                yield from map(slots.take, _pull(grid, [message_id]))
            except _Undecodable:
                yield slots.fail(message_id)


def _send_in_time(grid: Grid, messages: Sequence[Message], deadline: float, tick: Callable[[], None]) -> list[str]:
    """Call `send` again and again while the SuperLink fails; empty ids where it fails until `deadline`."""
    while True:
        try:
            return send(grid, messages)
        except Exception as error:
            if not server_error(error):
                raise
            log.warning("the SuperLink cannot take instructions (%s)", error)
            if time.monotonic() >= deadline:
                return [""] * len(messages)
            tick()
            time.sleep(LONGEST_PAUSE)


class _Undecodable(Exception):
    """Flower's own decoding of a reply failed."""


def _pull(grid: Grid, ids: list[str]) -> Iterator[Message]:
    """Yield `grid.pull_messages`; errors of the connection are raised as they are, those of decoding told apart."""
    try:
        for reply in grid.pull_messages(ids):
            yield reply
            del reply  # here and on its way: one model less in memory while the next one comes
    except Exception as error:
        # The connection is to blame, not a reply: the caller waits and asks again.
        if is_of_connection(error):
            raise
        # The class alone: the text may quote what the node sent.
        raise _Undecodable(type(error).__name__) from None
