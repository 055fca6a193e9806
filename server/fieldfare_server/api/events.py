"""Server-sent events: one task looks for new ledger rows, every client gets them from a queue of bounded length.

Ids are audit ids, so a client that reconnects with Last-Event-ID misses nothing: what it lacks is read from the ledger
up to where its queue begins. A client too far behind gets one `reset` event (load everything anew) instead of a replay.
Each event is encoded once, however many clients there are.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator

from anyio import to_thread

from fieldfare_server.api.schemas import AuditRow
from fieldfare_server.api.settings import Settings
from fieldfare_server.api.store import Store

log = logging.getLogger(__name__)
_BATCH = 500


class TooManyClients(Exception):
    """Every event stream the settings allow is in use."""


def encode(row: AuditRow) -> bytes:
    """One event. The hash stays out: it is the ledger table's business, not the live view's."""
    body = row.model_dump(mode="json", include={"id", "at", "event", "population", "run", "round"})
    return f"id: {row.id}\nevent: ledger\ndata: {json.dumps(body, separators=(',', ':'))}\n\n".encode()


def _control(kind: str, position: int) -> bytes:
    return f'id: {position}\nevent: {kind}\ndata: {{"position":{position}}}\n\n'.encode()


class Client:
    """One subscriber. `overflowed` is set when it fell too far behind; its stream then ends and it reconnects."""

    def __init__(self, size: int) -> None:
        self.queue: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue(size)
        self.overflowed = False

    def put(self, item: tuple[int, bytes]) -> None:
        """Hand over one event, or mark the client as lost."""
        try:
            self.queue.put_nowait(item)
        except asyncio.QueueFull:
            self.overflowed = True

    def end(self) -> None:
        """Ask the stream to end after what is queued."""
        if self.queue.full():
            self.overflowed = True
        else:
            self.queue.put_nowait(None)


class Broker:
    """Polls the ledger in one task and fans out to the clients."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store, self._settings = store, settings
        self._clients: set[Client] = set()
        self._position: int | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._closing = False

    @property
    def clients(self) -> int:
        """Streams open now."""
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
                await self._look()
            except Exception:
                # The ledger may be away for a moment; clients stay connected and catch up when it is back.
                log.warning("events: the ledger cannot be read", exc_info=True)
            await asyncio.sleep(self._settings.event_poll_seconds)

    async def _look(self) -> None:
        if self._position is None:
            self._position = await to_thread.run_sync(self._store.head)
            self._ready.set()
        while True:
            rows = await to_thread.run_sync(self._store.events, self._position, _BATCH)
            for row in rows:
                item = (row.id, encode(row))
                self._position = row.id
                for client in self._clients:
                    client.put(item)
            if len(rows) < _BATCH:
                return

    async def stream(self, last_id: int | None) -> AsyncIterator[bytes]:
        """The bytes for one client, from after `last_id` (None: from now). Raises `TooManyClients` at once."""
        if len(self._clients) >= self._settings.event_clients:
            raise TooManyClients
        return self._run(last_id)

    async def _run(self, last_id: int | None) -> AsyncIterator[bytes]:
        client = Client(self._settings.event_queue)
        # Inside the generator: one that is never started must not leave a client behind.
        self._clients.add(client)
        try:
            yield b"retry: 2000\n\n"
            await self._ready.wait()
            head = self._position or 0
            sent = head if last_id is None else last_id
            if sent > head or head - sent > self._settings.event_replay:
                # From another ledger, or too much to replay.
                yield _control("reset", head)
                sent = head
            else:
                yield _control("hello", sent)
            while sent < head:
                rows = await to_thread.run_sync(self._store.events, sent, _BATCH)
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
            self._clients.discard(client)
