"""Run Flower's SuperNode with five repairs; or as a node that starts no app, and answers by itself (`main`).

    python -Pm fieldfare_flower.supernode ARGUMENT ...        (the arguments of flower-supernode)

Each but the last replaces a name in one of Flower's modules, in this process only. A Flower without that name
runs without the repair, with a warning.

* `patch_poll_interval`: Flower 1.41 sleeps three seconds whenever it finds no message, and half a second
  whenever its ClientApp has not answered yet. Every round meets both, so no round takes less than three
  seconds. Upstream: no issue is known. Unnecessary once flower-supernode has a setting for it.
* `answer_before_pull`: the SuperNode takes any reply for the answer to the message that it has just received
  (pull request 5628 made it wait for *a* reply). After one reply too many, as when an executor dies, it
  answers each message only when the next one arrives: too late for every round. Unnecessary once it waits for
  the reply to that message.
* `survive_http_500`: one answer of status 500 to a heartbeat, as from a SuperLink whose disk is full, ends
  the thread that sends them (HeartbeatSender, pull request 5230). The node goes on working, but counts as
  offline for ever. Upstream: no issue is known; for tasks pull request 7910 handles such failures.
  Unnecessary once nodes do the same.
* `repeat_requests_of_nodes`: such an answer to any other request loses the node's reply, or ends the node;
  see `fieldfare_flower.server_errors`.
* `main` ends the process when Flower's program returns: that happens after an error, as from an answer that
  is no message, which Flower only logs. The server of its Runtime API would keep alive a process that asks
  for no message, and no supervisor would start it again. Upstream: no issue is known. Unnecessary once
  flower-supernode exits then.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from flwr.app import Message

from fieldfare_flower import logs, private
from fieldfare_flower.private import log
from fieldfare_flower.server_errors import repeat_requests_of_nodes, server_error
from fieldfare_flower.waits import shorten_part_waits

# Seconds before the first poll after work, and at most; the factor between two polls. An idle node costs the
# SuperLink no more than Flower's own: eleven polls in the first ten seconds, and Flower's pace after that.
FIRST_POLL, LAST_POLL, GROWTH = 0.2, 3.0, 1.25
# Seconds between two polls for the ClientApp's reply, which ask this process's own memory.
REPLY_POLL = 0.05


class FastTime:
    """Stands in for the module `time` in the SuperNode's loop, and sleeps for less."""

    def __init__(self) -> None:
        self._next = LAST_POLL

    def sleep(self, seconds: float) -> None:
        """Sleep for at most `seconds`."""
        if seconds >= LAST_POLL:  # the loop found no message
            time.sleep(self._next)
            self._next = min(self._next * GROWTH, LAST_POLL)
        else:  # the loop waits for its ClientApp, so there is work
            self._next = FIRST_POLL
            time.sleep(min(seconds, REPLY_POLL))


def patch_poll_interval(loop: ModuleType | None) -> bool:
    """Give `loop`, the module of the SuperNode's loop, a `FastTime`; False where it does not sleep as 1.41's does."""
    if loop is None or getattr(loop, "time", None) is not time:
        return False
    loop.time = FastTime()  # type: ignore[attr-defined]
    return True


def answer_before_pull(loop: ModuleType | None) -> bool:
    """Make `loop` send replies until one answers the latest message, before it pulls the next one."""
    pull, push = getattr(loop, "_pull_and_store_message", None), getattr(loop, "_push_messages", None)
    if loop is None or pull is None or push is None:
        return False
    latest = ""

    def pull_message(*, receive: Callable[[], Any], **rest: Any) -> Any:
        def receive_and_note() -> object:
            nonlocal latest
            if (received := receive()) is not None:
                latest = received[0].metadata.message_id
            return received

        return pull(receive=receive_and_note, **rest)

    def push_until_answered(*, send: Callable[..., Any], **rest: Any) -> None:
        answered = set()

        def send_and_note(message: Any, *more: Any) -> Any:
            answered.add(message.metadata.reply_to_message_id)
            return send(message, *more)

        while latest not in answered:
            push(send=send_and_note, **rest)

    loop._pull_and_store_message, loop._push_messages = pull_message, push_until_answered  # type: ignore[attr-defined]
    return True


def survive_http_500(connection: ModuleType | None) -> bool:
    """Make `connection`, the module that sends heartbeats, retry after a server error; end the node after any
    other.

    A node that ends is started again by what supervises it; a node without heartbeats would be offline for
    ever.
    """
    sender = getattr(connection, "HeartbeatSender", None)
    if connection is None or sender is None:
        return False

    def make_sender(beat: Callable[[], bool]) -> Any:
        def beat_or_end() -> bool:
            try:
                return beat()
            except Exception as error:
                if status := server_error(error):
                    log.warning("the SuperLink answered a heartbeat with %d", status)
                    return False  # Flower's sender tries again
                log.error("no more heartbeats, so this node ends: %s", error)
                signal.raise_signal(signal.SIGINT)
                raise

        return sender(beat_or_end)

    connection.HeartbeatSender = make_sender  # type: ignore[attr-defined]
    return True


def answer_here(loop: ModuleType | None, answer: Callable[[Message], Message]) -> None:
    """Make `loop` answer each message by `answer`, in this process.

    No app is fetched or started: code that the server sends never runs where this node's secrets are.

    Raises `FlowerDiffers` where the loop cannot be taken over.
    """
    inflate = private.find("flwr.supercore.inflatable.inflatable_utils:pull_and_inflate_object_from_tree")
    insert, ended = getattr(loop, "_insert_message", None), getattr(loop, "RunNotRunningException", None)
    if loop is None or not hasattr(loop, "_pull_and_store_message") or inflate is None or insert is None or not ended:
        raise private.FlowerDiffers(f"this node cannot answer without an app: {private.LACKS}.")

    def pull_and_answer(
        *, state: Any, object_store: Any, receive: Any, pull_object: Any, confirm_message_received: Any, **rest: Any
    ) -> int | None:
        try:
            if (received := receive()) is None:
                return None
            (head, tree), run = received, received[0].metadata.run_id
            message = inflate(
                tree,
                lambda known: pull_object(run, known),
                lambda known: confirm_message_received(run, known),
                return_type=Message,
            )
        except ended:
            return None
        except Exception as error:  # whatever is no message costs itself, and no later one
            log.warning("a message cannot be read: %s", type(error).__name__)
            return None
        message.metadata.__dict__["_message_id"] = head.metadata.message_id
        state.get_message_processing_duration = lambda message_id: 0.0  # of no app: Flower would log an error a reply
        insert(answer(message), state, object_store)
        return int(run)

    loop._pull_and_store_message = pull_and_answer  # type: ignore[attr-defined]


def repair() -> list[str]:
    """Apply every repair that this Flower has room for; returns the effects of those that it has not."""
    loop = private.find("flwr.supernode.start_client_internal")
    client = private.find("flwr.supernode.fleet_http_client:FleetHttpClient")
    repairs = {
        "it polls at its own pace": patch_poll_interval(loop),
        "a stray reply may delay all later ones": answer_before_pull(loop),
        "a server error may end its heartbeats": survive_http_500(private.find("flwr.supernode.fleet_http_connection")),
        "a server error may lose its reply": repeat_requests_of_nodes(client),
    }
    return [effect for effect, applied in repairs.items() if not applied]


def main(answer: Callable[[Message], Message] | None = None) -> None:
    """See the module. answer: to every message, instead of any app."""
    supernode = private.load_program("flower-supernode")
    # After Flower was imported, which gives its logger a handler.
    logs.configure("info")
    shorten_part_waits()
    if answer is not None:
        answer_here(private.find("flwr.supernode.start_client_internal"), answer)
        sys.argv.append("--isolation=process")  # the other kind starts an executor of apps
    if left_out := repair():
        private.warn("of this SuperNode, " + "; ".join(left_out))
    supernode()
    log.error("this node asks for no more messages, so its process ends")
    logging.shutdown()
    os._exit(1)  # an exit would wait for the server's thread


if __name__ == "__main__":
    main()
