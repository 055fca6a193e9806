"""Flower's SuperNode, which looks more often for work while there is some.

    python -Pm fieldfare_flower.supernode ARGUMENT ...        (those of flower-supernode)

Flower 1.41's SuperNode sleeps three seconds whenever it finds no message, and half a second whenever its ClientApp has
not answered yet, and has no setting for either. A round has one of each on its way, so it cannot take less than three
seconds. Here the name `time` in the module of that loop, in this process alone, stands for a `Pace`, and parts of a
message are looked for sooner (`fieldfare_flower.waits`). A Flower that looks different is run as it is, with a warning.

The loop also takes any reply for the answer to the message it has just received. One reply too many, as after the death
of an executor, and it answers each message when the next one comes: too late for every round. Here it goes on to the
next message when it has answered the last one.

And one answer of status 500 to its heartbeat, as from a SuperLink whose disk is full, ends the thread that beats: the
node goes on, and counts as away for ever. Here it beats again, or, where that cannot help, ends and is started again.

And it says which round a message is of on a line of its own. Here its lines of JSON carry that instead.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from fieldfare_flower import logs
from fieldfare_flower import programs as logged
from fieldfare_flower.waits import look_sooner

log = logging.getLogger("fieldfare.supernode")

FIRST_LOOK, LAST_LOOK, SLOWER = 0.2, 3.0, 1.25
"""Seconds before the first look after work, and at most; the factor between two looks. Eleven looks in ten seconds, and
Flower's own pace after that: nodes without work cost the SuperLink what they always did."""
REPLY_LOOK = 0.05
"""Seconds between looks for the ClientApp's answer: into this process's own memory."""


class Pace:
    """What the SuperNode's loop takes for the module `time`."""

    def __init__(self) -> None:
        self._next = LAST_LOOK

    def sleep(self, seconds: float) -> None:
        """Sleep for less than `seconds` where that is one of the loop's two waits."""
        if seconds >= LAST_LOOK:
            time.sleep(self._next)
            self._next = min(self._next * SLOWER, LAST_LOOK)
        else:
            self._next = FIRST_LOOK
            time.sleep(min(seconds, REPLY_LOOK))


def quicken(loop: ModuleType) -> bool:
    """Give the module of the SuperNode's loop a `Pace`; False where it does not tell time as 1.41's does."""
    if getattr(loop, "time", None) is not time:
        return False
    loop.time = Pace()  # type: ignore[attr-defined]
    return True


def keep_in_step(loop: ModuleType) -> bool:
    """Make the module of the SuperNode's loop answer a message before it asks for the next one."""
    pull, push = getattr(loop, "_pull_and_store_message", None), getattr(loop, "_push_messages", None)
    if pull is None or push is None:
        return False
    latest = ""

    def pull_one(*, receive: Callable[[], Any], **rest: Any) -> Any:
        def noting() -> Any:
            nonlocal latest
            if (found := receive()) is not None:
                latest = found[0].metadata.message_id
            return found

        return pull(receive=noting, **rest)

    def push_its_answer(*, send: Callable[..., Any], **rest: Any) -> None:
        answered = set()

        def noting(message: Any, *more: Any) -> Any:
            answered.add(message.metadata.reply_to_message_id)
            return send(message, *more)

        while latest not in answered:
            push(send=noting, **rest)

    loop._pull_and_store_message, loop._push_messages = pull_one, push_its_answer  # type: ignore[attr-defined]
    return True


def keep_beating(connection: ModuleType) -> bool:
    """Make the module of the SuperNode's connection survive what its SuperLink may get over."""
    sender, httpx = getattr(connection, "HeartbeatSender", None), getattr(connection, "httpx", None)
    if sender is None or httpx is None:
        return False

    def lasting(beat: Callable[[], bool]) -> Any:
        def beat_or_end() -> bool:
            try:
                return beat()
            except Exception as error:
                if isinstance(error, httpx.HTTPStatusError) and error.response.status_code >= 500:
                    log.warning("the SuperLink answered a heartbeat with %d", error.response.status_code)
                    return False
                log.error("no more heartbeats, so this node ends: %s", error)
                signal.raise_signal(signal.SIGINT)
                raise

        return sender(beat_or_end)

    connection.HeartbeatSender = lasting  # type: ignore[attr-defined]
    return True


class Headings(logging.Filter):
    """Takes out the loop's heading of each message, and puts what it says on the lines that follow in that thread.

    The strategy's messages have the group RUN/ROUND; those that are of no round have none.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """False for a heading."""
        if isinstance(record.msg, str) and record.msg.startswith("[RUN %s"):
            group = str(record.args[1]) if isinstance(record.args, tuple) and len(record.args) > 1 else ""
            run, _, round_ = group.rpartition("/")
            logs.now_about(run, int(round_) if round_.isdecimal() else None)
            return False
        return True


def main() -> None:
    """See the module."""
    from flwr.supercore.inflatable.inflatable_utils import pull_objects
    from flwr.supernode import fleet_http_connection, start_client_internal
    from flwr.supernode.cli import flower_supernode

    logged.take_over()
    if logs.as_json():
        logging.getLogger("flwr").addFilter(Headings())
    # All of them, whatever the first one says.
    mended = [quicken(start_client_internal), keep_in_step(start_client_internal), keep_beating(fleet_http_connection)]
    if not all([*mended, look_sooner(pull_objects)]):
        log.warning("this Flower's SuperNode waits in another way than 1.41's: it keeps its own pace")
    flower_supernode()


if __name__ == "__main__":
    main()
