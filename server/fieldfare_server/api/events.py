"""Server-sent events: one task reads new audit rows and puts them into a bounded queue for each client.

Event ids are audit ids, so a client that reconnects with Last-Event-ID misses nothing: the rows that it lacks
are read from the ledger, up to where its queue begins. A client that is too far behind gets one `reset` event
(load everything again) instead of a replay. Each event is encoded once for all clients.

sse-starlette would save the encoding and the pings, about 25 lines. Replay, overflow and reset would stay
here, so the service has no dependency for the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable

from anyio import to_thread

from fieldfare_server.api.answers import Answers
from fieldfare_server.api.schemas import AuditRow
from fieldfare_server.api.settings import Settings

log = logging.getLogger(__name__)
_BATCH = 500


class TooManyClients(Exception):
    """All event streams that the settings allow are in use, and no caller holds more of them than its share."""


def encode(row: AuditRow) -> bytes:
    """Return one event. It leaves out the details and hashes of the row: the page needs to know only what changed."""
    body = row.model_dump(mode="json", include={"id", "at", "event", "population", "run", "round"})
    return f"id: {row.id}\nevent: ledger\ndata: {json.dumps(body, separators=(',', ':'))}\n\n".encode()


def _control(kind: str, position: int) -> bytes:
    return f'id: {position}\nevent: {kind}\ndata: {{"position":{position}}}\n\n'.encode()


class Subscriber:
    """A subscriber. One that falls too far behind is `overflowed`: its stream ends after its queue; it reconnects."""

    def __init__(self, size: int, caller: str = "", page: str | None = None) -> None:
        self.caller, self.page = caller, page
        self.queue: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue(size)
        self.overflowed = False

    def put(self, item: tuple[int, bytes]) -> None:
        """Queue one event; a full queue marks the client as overflowed."""
        try:
            self.queue.put_nowait(item)
        except asyncio.QueueFull:
            self.overflowed = True

    def end(self) -> None:
        """End the stream after the events in its queue."""
        if self.queue.full():
            self.overflowed = True
        else:
            self.queue.put_nowait(None)


class Broker:
    """Polls the ledger in one task and passes every event to all clients."""

    def __init__(self, answers: Answers, settings: Settings, look: Callable[[], None] = lambda: None) -> None:
        """look: called at each poll, so that what the service must notice does not wait for somebody who asks."""
        self._answers, self._settings, self._look = answers, settings, look
        self._clients: dict[Subscriber, None] = {}  # the open streams, the oldest first
        self._position: int | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._closing = False

    @property
    def clients(self) -> int:
        """The number of open streams."""
        return len(self._clients)

    async def start(self) -> None:
        """Start polling."""
        self._closing = False
        self._task = asyncio.create_task(self._poll(), name="fieldfare-events")

    async def stop(self) -> None:
        """Stop polling and end every stream, so that the server can shut down."""
        self._closing = True
        for client in self._clients:
            client.end()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _poll(self) -> None:
        while True:
            try:
                await self._read_new_rows()
                self._look()
            except Exception:
                # The ledger may be away for a moment. Clients stay connected and catch up when it is back.
                log.warning("events: the ledger cannot be read", exc_info=True)
            await asyncio.sleep(self._settings.event_poll_seconds)

    async def _read_new_rows(self) -> None:
        if self._position is None:
            self._position = await to_thread.run_sync(self._answers.head)
            self._ready.set()
        if not self._clients:
            head = await to_thread.run_sync(self._answers.head)
            # A client that came meanwhile counts from the old position: its rows are read below.
            if not self._clients:
                self._position = head
                return
        while True:
            rows = await to_thread.run_sync(self._answers.events, self._position, _BATCH)
            for row in rows:
                item = (row.id, encode(row))
                self._position = row.id
                for client in self._clients:
                    client.put(item)
            if len(rows) < _BATCH:
                return

    async def stream(self, last_id: int | None, caller: str = "", page: str | None = None) -> AsyncIterator[bytes]:
        """Return one client's bytes: events after `last_id`, or from now on for None. Raises `TooManyClients`
        at once.

        Args:
            last_id: the newest event that the client has.
            caller: a token or an address. Where all streams are in use, who has more than
                `event_clients_each` of them loses its oldest to one who has fewer.
            page: what the client calls itself; a stream of the same caller and page ends, for this one takes
                its place.
        """
        for client in [client for client in self._clients if page is not None and client.page == page]:
            if client.caller == caller:
                self._drop(client)
        if len(self._clients) >= self._settings.event_clients:
            held = Counter(client.caller for client in self._clients)
            most, number = held.most_common(1)[0]
            if number <= self._settings.event_clients_each or held[caller] >= self._settings.event_clients_each:
                raise TooManyClients
            self._drop(next(client for client in self._clients if client.caller == most))
        return self._run(last_id, caller, page)

    def _drop(self, client: Subscriber) -> None:
        del self._clients[client]
        client.end()

    async def _run(self, last_id: int | None, caller: str, page: str | None) -> AsyncIterator[bytes]:
        client = Subscriber(self._settings.event_queue, caller, page)
        # Subscribe inside the generator: one that is never started must not leave a client behind.
        self._clients[client] = None
        try:
            yield b"retry: 2000\n\n"
            await self._ready.wait()
            # The queue holds every event after `head`; events up to it come from the ledger. Both may hold an
            # event that arrived during the replay, so the loop below skips ids that were sent already.
            head = self._position or 0
            sent = head if last_id is None else last_id
            if sent > head or head - sent > self._settings.event_replay:
                # The id is from another ledger, or there is too much to replay.
                yield _control("reset", head)
                sent = head
            else:
                yield _control("hello", sent)
            while sent < head:
                rows = await to_thread.run_sync(self._answers.events, sent, _BATCH)
                if not rows:
                    break
                for row in rows:
                    yield encode(row)
                sent = rows[-1].id
            while not self._closing:
                if client.overflowed and client.queue.empty():
                    return
                try:
                    item = await asyncio.wait_for(client.queue.get(), self._settings.event_ping_seconds)
                except TimeoutError:
                    yield b": ping\n\n"
                    continue
                if item is None:
                    return
                if item[0] > sent:
                    sent = item[0]
                    yield item[1]
        finally:
            self._clients.pop(client, None)
