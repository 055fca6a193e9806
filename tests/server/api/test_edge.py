"""What one client can do to the others by holding connections: each phase of a request, each rate, each number.

Every cell attacks one service on this machine for a moment, from one address, with no token. Meanwhile from the same
address a valid token reads, an administrator stops a run, and anybody asks for its health; each is answered. And every
connection of the attack ends when its time is over, after which all slots are free.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import httpx
import pytest
from live_ledger import LiveLedger

from fieldfare_server.api import Settings, connections, create_app
from fieldfare_server.api.server import config, serve_in_thread

SECONDS = 1.0
"""Of a request, here."""
LONGEST, NEVER = 15.0, 20.0
"""Seconds that no connection of an attack and no answer may last, whatever a busy machine adds to the one of a request;
and those after which the test gives up, as it does where the service ends nothing."""
SLOTS = 128
AGAIN = 0.5
"""Seconds after which a connection that ended is opened again. A slot is for one that sends its request within the time
in which all slots change hands, here a third of a second; of the 512 that an address has in earnest, longer."""

HEAD = b"Host: localhost\r\nX-Long: "
START: dict[str, bytes] = {
    "nothing": b"",
    "head": b"GET /healthz HTTP/1.1\r\n" + HEAD,
    "body": b"POST /v1/populations HTTP/1.1\r\n" + HEAD + b"\r\nContent-Length: 16000\r\n\r\n",
    "chunks": b"POST /v1/populations HTTP/1.1\r\n" + HEAD + b"\r\nTransfer-Encoding: chunked\r\n\r\n",
    "extensions": b"POST /v1/populations HTTP/1.1\r\n" + HEAD + b"\r\nTransfer-Encoding: chunked\r\n\r\n",
    "too large": b"POST /v1/populations HTTP/1.1\r\n" + HEAD + b"\r\nContent-Length: 99000000\r\n\r\n",
    "second": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HT",
    "answer": b"",
}
"""What opens each phase."""
MORE: dict[str, bytes] = {
    "nothing": b"\r\n",
    "chunks": b"1\r\nx\r\n",
    "extensions": b"1;" + b"y" * 8_000 + b"\r\nx\r\n",
    "answer": b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50,
}
"""What carries it on; elsewhere a letter."""
RATES: dict[str, tuple[float, int]] = {"silent": (LONGEST, 1), "drip": (0.1, 1), "flood": (0.0, 4_000)}
"""Seconds between two pieces, and how often a piece is repeated."""


@pytest.fixture(scope="module")
def limits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "REQUEST_SECONDS", SECONDS)
        patch.setattr(connections, "ANSWER_SECONDS", SECONDS)
        patch.setattr(connections, "GRACE_SECONDS", 0.2)
        patch.setattr(connections, "CONNECTIONS_EACH", SLOTS)
        yield


@contextmanager
def attack(url: str, phase: str, rate: str, count: int) -> Iterator[Callable[[], list[float]]]:
    """`count` connections at a time, each opened anew when it ends; yields what stops them and tells their times."""
    parts = urlsplit(url)
    lasted: list[float] = []
    done = threading.Event()
    pause, repeat = RATES[rate]
    piece = MORE.get(phase, b"y") * (1 if phase == "answer" else repeat)

    async def one(stream: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        out.write(START[phase])
        reading = asyncio.create_task(stream.read())
        while not reading.done() and not out.is_closing():
            out.write(piece)
            # What the service does not take is not waited for here.
            await asyncio.wait([reading], timeout=max(pause, 0.01))
        await reading

    async def unread(stream: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        while not out.is_closing() and stream.exception() is None and not stream.at_eof():
            out.write(piece)
            await asyncio.sleep(0.1)
            if rate == "drip" and stream._buffer:  # type: ignore[attr-defined]
                await stream.read(1)

    async def worker() -> None:
        while not done.is_set():
            begun = time.monotonic()
            try:
                # A small buffer: what is not read stays with the service.
                stream, out = await asyncio.open_connection(parts.hostname, parts.port, limit=1024)
            except OSError:
                await asyncio.sleep(0.01)
                continue
            with suppress(OSError, TimeoutError):
                await asyncio.wait_for((unread if phase == "answer" else one)(stream, out), NEVER)
            lasted.append(time.monotonic() - begun)
            out.transport.abort()
            await asyncio.sleep(0 if done.is_set() else AGAIN)

    async def all_of_them() -> None:
        await asyncio.gather(*(worker() for _ in range(count)))

    thread = threading.Thread(target=asyncio.run, args=(all_of_them(),), daemon=True)
    thread.start()

    def stop() -> list[float]:
        done.set()
        thread.join(60)
        assert not thread.is_alive()
        return lasted

    try:
        yield stop
    finally:
        stop()


@pytest.mark.parametrize(
    ("rate", "count"),
    [("drip", 3 * SLOTS)]
    + [pytest.param(*each, marks=pytest.mark.slow) for each in (("drip", 1), ("silent", 1), ("silent", 3 * SLOTS))]
    + [pytest.param("flood", each, marks=pytest.mark.slow) for each in (1, 6)],
)
def test_no_phase_at_any_rate_by_any_number_keeps_others_out(
    rate: str, count: int, limits: None, live: LiveLedger
) -> None:
    reader = {"Authorization": f"Bearer {live.token('read')}"}
    officer = {"Authorization": f"Bearer {live.token('admin')}"}
    worst: dict[str, float] = {}
    with serve_in_thread(config(create_app(live.url, Settings(burst=60)), port=0)) as url:

        def ask(method: str, path: str, header: dict[str, str]) -> float:
            begun, answer = time.monotonic(), None
            while answer is None:
                # Each on a connection of its own, as from another program. On a busy machine all slots may change hands
                # before its token was read: then it asks again, within the time that every answer has.
                try:
                    answer = httpx.request(method, f"{url}{path}", headers=header, timeout=NEVER)
                except httpx.RemoteProtocolError:
                    assert time.monotonic() - begun < LONGEST, (method, path)
            # A caller without a token has what its address leaves of the number of requests a minute.
            assert answer.status_code in ((200, 202) if header else (200, 429)), (method, path, answer.text)
            return time.monotonic() - begun

        for phase in START:
            with attack(url, phase, rate, count) as stop:
                end = time.monotonic() + SECONDS / 2
                times = []
                while time.monotonic() < end:
                    times.append(ask("GET", "/v1/me", reader))
                    times.append(ask("GET", "/healthz", {}))
                    times.append(ask("POST", "/v1/runs/run-3/stop", officer))
                lasted = stop()
            worst[phase] = round(max(times), 3)
            assert lasted, phase
            assert max(times) < LONGEST, (phase, max(times))
            assert max(lasted) < LONGEST, (phase, max(lasted))
        for _ in range(100):
            if not connections._slots._held:
                break
            time.sleep(0.1)
        assert not connections._slots._held
    print(f"slowest answer, s: {worst}")
