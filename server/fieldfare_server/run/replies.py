"""Send messages to nodes and receive their replies as they arrive."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from flwr.app import Message
from flwr.serverapp import Grid

from fieldfare_flower.waits import limit_part_waits

SHORTEST_PAUSE = 0.02
LONGEST_PAUSE = 0.5
"""Seconds between two looks for replies. Flower's own loop waits three seconds."""


def receive_replies(
    grid: Grid, messages: Iterable[Message], timeout: float, tick: Callable[[], None] = lambda: None
) -> Iterator[Message]:
    """Send `messages`, then yield their replies until all have arrived or the time is over.

    The pause between looks grows to a quarter of the time waited so far, because each look is a write to the
    SuperLink's database.

    Args:
        timeout: seconds after which the round goes on without the missing replies.
        tick: called after every look, so that a slow node does not cost the run its lease.
    """
    waiting = {message_id for message_id in grid.push_messages(messages) if message_id}
    deadline, pause = time.monotonic() + timeout, SHORTEST_PAUSE
    while waiting:
        before, left = len(waiting), deadline - time.monotonic()
        # Within a look, Flower waits for the rest of a reply whose upload broke off: minutes, unless it is told less.
        limit_part_waits(max(left, 0.0))
        for reply in grid.pull_messages(list(waiting)):
            waiting.discard(reply.metadata.reply_to_message_id)
            yield reply
        tick()
        # `left` was taken before the look: one look begins after the deadline, for replies that came during the last.
        if not waiting or left <= 0:
            return
        pause = SHORTEST_PAUSE if len(waiting) < before else min(pause * 1.25, LONGEST_PAUSE)
        time.sleep(pause)
