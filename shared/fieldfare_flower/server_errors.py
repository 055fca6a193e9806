"""A SuperLink that fails at a request for a moment is asked again.

Its database is locked, or its disk full. With SQLite, a node that uploads a gigabyte locks the database for
longer than the SuperLink waits, and every party's requests meet an answer of status 500. Flower 1.41 repeats
requests after 502, 503 and 504 only. Where it gives up after a 500, one node's upload costs others what is
theirs:

* the ServerApp, the replies of a look: the SuperLink delivers a reply once, and one part that cannot be
  pulled loses all replies that were pulled with it;
* the ServerApp, its life: the thread ends that sends its task's heartbeats, and a minute later the SuperLink
  takes the task for dead (HeartbeatSender, pull request 5230);
* a SuperNode, its reply, or its process: an error while it asks for its next message ends it.

Upstream: no issue is known. Unnecessary once Flower's `make_simple_http_retry_invoker` takes 500 for an error
that passes, and its heartbeats do. Everything here changes objects of this process only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fieldfare_flower import private
from fieldfare_flower.private import log

# Seconds before a request is repeated: at first, and at most. Each pause is twice as long as the last.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
# Seconds for which a ServerApp repeats a request that the SuperLink fails at. No answer makes a round wait longer.
PATIENCE = 20.0
# The same for a SuperNode, which has only its own round to lose.
NODE_PATIENCE = 120.0
# What a ServerApp's grid asks alone, or in the middle of a look. Whole looks are repeated by their callers.
_REPEATED = frozenset({"GetNodes", "PullObject", "PushObject", "ConfirmMessageReceived"})
# What a thread of Flower's asks again by itself, but only after errors of the connection.
_BY_FLOWER = frozenset({"SendTaskHeartbeat", "PushLogs"})


def server_error(error: Exception) -> int:
    """Return the status, 500 or more, with which the SuperLink answered; 0 for any other error."""
    status = getattr(getattr(error, "response", None), "status_code", 0)
    return status if isinstance(status, int) and status >= 500 else 0


@contextmanager
def outlasted(loss: str) -> Iterator[None]:
    """Guard requests that the caller repeats later: logs a server error, with `loss`, and raises every other error."""
    try:
        yield
    except Exception as error:
        if not server_error(error):
            raise
        log.warning("the SuperLink failed: %s (%s)", loss, error)


def ask_again(ask: Callable[[], object], patience: float) -> object:
    """Return `ask()`, repeated after every server error for at most `patience` seconds; raises what the last
    one raises.
    """
    deadline, pause = time.monotonic() + patience, FIRST_PAUSE
    while True:
        try:
            return ask()
        except Exception as error:
            if not server_error(error) or time.monotonic() + pause > deadline:
                raise
            log.warning("the SuperLink failed at a request, which is repeated in %.1f s: %s", pause, error)
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def outlast_server_errors(grid: object) -> bool:
    """Let a ServerApp's `grid` repeat requests, and its task's heartbeats and log go on; False where it
    cannot.

    Flower's simulation and grids of this process have no SuperLink to ask: they return False without a
    warning.
    """
    if type(grid).__name__ not in ("HttpGrid", "GrpcGrid"):
        return False
    client = getattr(grid, "_runtime_client", None)
    ask, lost = getattr(client, "_unary_unary", None), private.find("httpx:TransportError")
    if client is None or ask is None or lost is None:
        private.warn("a server error may end the ServerApp, or lose replies")
        return False
    if getattr(ask, "__module__", "") == __name__:
        return True

    def ask_and_repeat(*, rpc_method: str = "", **request: object) -> object:
        name = rpc_method.rpartition("/")[2]
        try:
            return ask_again(lambda: ask(rpc_method=rpc_method, **request), PATIENCE if name in _REPEATED else 0.0)
        except Exception as error:
            if name in _BY_FLOWER and server_error(error):
                log.warning("the SuperLink failed at %s, which Flower repeats: %s", name, error)
                raise lost(str(error)) from error
            raise

    client._unary_unary = ask_and_repeat
    return True


def repeat_requests_of_nodes(client: type | None) -> bool:
    """Let clients of the class `client` repeat requests, heartbeats aside; False where they do not ask like that."""
    ask = getattr(client, "_unary_unary", None)
    if client is None or ask is None:
        return False

    def ask_and_repeat(self: object, *, rpc_method: str = "", **request: object) -> object:
        patience = 0.0 if rpc_method.endswith("Heartbeat") else NODE_PATIENCE
        return ask_again(lambda: ask(self, rpc_method=rpc_method, **request), patience)

    client._unary_unary = ask_and_repeat  # type: ignore[attr-defined]
    return True
