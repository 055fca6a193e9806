"""Connections that cannot be held: a time and a length for each whole request, a time for each answer, and
slots.

Uvicorn limits the time between two requests, and h11 the length of a head (16 KiB). Neither limits how long a
head or a body may take, how long an answer may wait for its reader, or how many connections one address
opens.

A slot is never refused to a newcomer, who may hold a valid token: where all are taken, an older connection
gives way, and no connection that has shown a valid token gives way to one that has not.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

log = logging.getLogger(__name__)

# Time in which a client must send a whole request: line, headers and body. `guard` answers 408 to a slower body.
REQUEST_SECONDS = 10.0
# Time for that answer, and for a last answer to reach its reader, before the connection is cut.
GRACE_SECONDS = 1.0
# Time that an answer may wait for a client that does not read.
ANSWER_SECONDS = 20.0
# Most bytes of a request as it is sent, framing of chunks included: that may be far longer than what it carries.
REQUEST_BYTES = 2**20
# Most connections of all clients together. The other files of the process are the ledger's.
CONNECTIONS = min(2_048, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
# Most connections of one address, and of one token. Browsers behind one proxy share an address, so it is not small.
CONNECTIONS_EACH = 512

# The name in a request's state of its connection, a `LimitedProtocol`.
CONNECTION = "fieldfare.connection"


class ConnectionSlots:
    """Who holds the connections: those without a valid token by their address, the others by their token."""

    def __init__(self) -> None:
        # As a dict keeps them: the oldest first.
        self._held: dict[tuple[bool, str], dict[LimitedProtocol, None]] = {}

    def take(self, connection: LimitedProtocol, owner: str, *, proven: bool) -> None:
        """Give `connection` a slot; its owner's oldest, or else one of who holds most, gives way if there is none."""
        self.give_back(connection)
        own = self._held.get((proven, owner), {})
        if len(own) >= CONNECTIONS_EACH:
            self._cut(own)
        elif sum(map(len, self._held.values())) >= CONNECTIONS:
            # Those without a token first, whoever holds most.
            self._cut(self._held[min(self._held, key=lambda each: (each[0], -len(self._held[each])))])
        self._held.setdefault((proven, owner), {})[connection] = None
        connection.slot = (proven, owner)

    def give_back(self, connection: LimitedProtocol) -> None:
        """Free the connection's slot, if it has one."""
        slot, connection.slot = connection.slot, None
        if slot is not None:
            del self._held[slot][connection]
            if not self._held[slot]:
                del self._held[slot]

    def _cut(self, held: dict[LimitedProtocol, None]) -> None:
        """Cut the oldest connection, of those that no answer is under way on if there are any."""
        oldest = next((each for each in held if not each.answering), next(iter(held)))
        self.give_back(oldest)
        oldest.transport.abort()


_slots = ConnectionSlots()


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 by h11, with the limits of this module. What breaks one is cut without an answer."""

    slot: tuple[bool, str] | None = None
    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _received = 0

    @property
    def began(self) -> float:
        """When the present request began, by the loop's clock."""
        return float(self.app_state["fieldfare.began"])

    @property
    def answering(self) -> bool:
        """Whether a whole request waits for the end of its answer."""
        return self.cycle is not None and not self.cycle.response_complete and not self._reading

    def connection_made(self, transport: Any) -> None:
        """Take a slot and start the time of the first request."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, CONNECTION: self}
        _slots.take(self, self.client[0] if self.client else "unknown", proven=False)
        self._begin()

    def prove(self, token: str) -> None:
        """Hold the slot in the name of a valid token, for as long as the connection lasts."""
        if self.slot is not None and not self.slot[0]:
            _slots.take(self, token, proven=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop()
        self.resume_writing()
        _slots.give_back(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read; a request's time and length count from its first byte to its last."""
        if self._deadline is None:
            self._begin()
        self._received += len(data)
        super().data_received(data)
        self._follow()

    def on_response_complete(self) -> None:
        """Go on to the next request, or cut the connection if its last answer is not read."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._cut_soon()
        elif self._deadline is None and self._reading:
            self._begin()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection on which no request follows."""
        super().timeout_keep_alive_handler()
        self._cut_soon()

    def pause_writing(self) -> None:
        """Start the time that the client has to read what was sent."""
        super().pause_writing()
        self._unread = self.loop.call_later(ANSWER_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Note that the client reads."""
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        super().resume_writing()

    @property
    def _reading(self) -> bool:
        """Whether a request has begun to arrive, or the first is waited for, and the rest is missing."""
        state = self.conn.their_state
        first = self.cycle is None
        return state is h11.SEND_BODY or (state is h11.IDLE and (first or bool(self.conn.trailing_data[0])))

    def _begin(self) -> None:
        self.app_state["fieldfare.began"] = self.loop.time()
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self._late)

    def _follow(self) -> None:
        if not self._reading:
            self._stop()
        elif self._received > REQUEST_BYTES:
            log.info("cut a connection whose request was longer than %d bytes", REQUEST_BYTES)
            self.transport.abort()

    def _stop(self) -> None:
        self._received = 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        self._deadline = None
        if not self._reading:
            return
        log.info("a request did not arrive within %g s", REQUEST_SECONDS)
        if self.conn.their_state is h11.SEND_BODY:
            self._cut_soon()
        else:
            self.transport.abort()

    def _cut_soon(self) -> None:
        self.loop.call_later(GRACE_SECONDS, self.transport.abort)
