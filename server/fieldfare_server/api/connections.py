"""Connections that cannot be held: a time for each request's head, a length, and a number for each address.

Uvicorn limits the time between two requests, and h11 the length of a head (16 KiB). Neither limits how long a head may
take or how many connections one address opens, so that a thousand half-sent heads would stay open for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

log = logging.getLogger(__name__)

HEAD_SECONDS = 10.0
"""Time in which a client must send a request's line and headers."""
CONNECTIONS = 2_048
"""Most connections of all clients together."""
CONNECTIONS_OF_ADDRESS = 512
"""Most connections of one address. Browsers behind one proxy share its address, so it is not small."""

_open: Counter[str] = Counter()


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 by h11, with the limits of this module. A connection above a limit is closed without an answer."""

    _head_timer: asyncio.TimerHandle | None = None
    _counted: str | None = None

    def connection_made(self, transport: Any) -> None:
        """Count the connection and start the time of its first head."""
        super().connection_made(transport)
        address = self.client[0] if self.client else "unknown"
        if _open[address] >= CONNECTIONS_OF_ADDRESS or len(self.connections) > CONNECTIONS:
            transport.abort()
            return
        self._counted = address
        _open[address] += 1
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_watch()
        if self._counted is not None:
            _open[self._counted] -= 1
            if not _open[self._counted]:
                del _open[self._counted]
            self._counted = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read; the head's time runs from its first byte to its last."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            if self._head_timer is None:
                self._watch_head()
        else:
            self._stop_watch()

    def _watch_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _stop_watch(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        # Between two requests of a connection uvicorn's own keep-alive time runs.
        waiting_for_next = self.cycle is not None and not self.conn.trailing_data[0]
        if not self.transport.is_closing() and self.conn.their_state is h11.IDLE and not waiting_for_next:
            log.info("closed a connection whose request did not arrive within %g s", HEAD_SECONDS)
            self.transport.abort()
