"""Clients that hold connections: heads without end, heads that never end, and many at once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi.testclient import TestClient
from live_ledger import LiveLedger, client_at

from fieldfare_server.api import Settings, connections, create_app
from fieldfare_server.api.answers import Answers
from fieldfare_server.api.events import Broker, TooManyClients
from fieldfare_server.api.server import config, serve_in_thread
from fieldfare_server.cli.output import visible
from fieldfare_server.ledger import Ledger


@pytest.fixture
def url(live: LiveLedger, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.5)
    monkeypatch.setattr(connections, "CONNECTIONS_EACH", 20)
    with serve_in_thread(config(create_app(live.url, Settings()), port=0)) as address:
        yield address


def opened(url: str) -> socket.socket:
    parts = urlsplit(url)
    assert parts.hostname
    return socket.create_connection((parts.hostname, parts.port or 80), timeout=20)


def whole_answer(connection: socket.socket) -> bytes:
    """A whole answer of /healthz: its head and body may come one after the other."""
    said = b""
    while not said.endswith(b"}"):
        more = connection.recv(65536)
        assert more, said
        said += more
    return said


def ended(connection: socket.socket, within: float) -> bool:
    """Whether the server closes the connection within some seconds."""
    connection.settimeout(within)
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


def refused(connection: socket.socket, data: bytes, most: int, pause: float = 0.0) -> bool:
    """Whether the server closes the connection before `data` was sent `most` times."""
    try:
        for _ in range(most):
            connection.sendall(data)
            time.sleep(pause)
    except OSError:
        return True
    return False


def test_a_head_that_never_ends_in_time_is_cut(url: str) -> None:
    with opened(url) as silent, opened(url) as half, opened(url) as second:
        half.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Half: ")
        second.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert whole_answer(second).startswith(b"HTTP/1.1 200")
        second.sendall(b"GET /healthz HT")
        for connection in (silent, half, second):
            assert ended(connection, 15)


def test_a_slow_trickle_is_cut_too(url: str) -> None:
    with opened(url) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        assert refused(slow, b"X: y\r\n", most=150, pause=0.1)


def test_a_head_without_end_costs_little_and_stalls_no_other_client(url: str) -> None:
    with opened(url) as endless:
        endless.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ")
        # Far less than this is taken: what fits into the socket's buffers, and not into the server's memory.
        assert refused(endless, b"y" * 65536, most=300)
        assert httpx.get(f"{url}/healthz", timeout=15).status_code == 200


def test_an_idle_connection_is_kept_for_the_next_request(url: str) -> None:
    with httpx.Client(base_url=url, timeout=15) as client:
        assert client.get("/healthz").status_code == 200
        time.sleep(1.2)
        assert client.get("/healthz").status_code == 200
    with opened(url) as kept:
        for _ in range(2):
            kept.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert whole_answer(kept).startswith(b"HTTP/1.1 200")
            time.sleep(1.2)


def test_the_oldest_connection_of_an_address_gives_way(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 100.0)
    held = [opened(url) for _ in range(20)]
    with contextlib.ExitStack() as close:
        for connection in held:
            close.enter_context(connection)
        assert httpx.get(f"{url}/healthz", timeout=15).status_code == 200
        assert ended(held[0], 15)


def test_a_connection_that_showed_a_valid_token_gives_way_to_none_without(url: str, live: LiveLedger) -> None:
    header = {"Authorization": f"Bearer {live.token('read')}"}
    with httpx.Client(base_url=url, timeout=15, headers=header) as client, contextlib.ExitStack() as close:
        assert client.get("/v1/me").status_code == 200
        transport = client._transport
        assert isinstance(transport, httpx.HTTPTransport)
        kept = transport._pool.connections[0]
        for _ in range(40):
            close.enter_context(opened(url))
        assert client.get("/v1/me").status_code == 200
        assert transport._pool.connections == [kept]


def test_where_all_slots_are_taken_those_without_a_token_give_way_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", 4)
    cut: list[str] = []

    class Connection:
        slot: tuple[bool, str] | None = None
        answering = False

        def __init__(self, name: str) -> None:
            self.transport = SimpleNamespace(abort=lambda: cut.append(name))

    slots = connections.ConnectionSlots()
    take: Callable[..., None] = slots.take
    busy = Connection("busy")
    busy.answering = True
    take(busy, "127.0.0.1", proven=False)
    for name in ("a", "b"):
        officer = Connection(name)
        take(officer, "127.0.0.1", proven=False)
        take(officer, "officer", proven=True)
    take(Connection("idle"), "127.0.0.1", proven=False)
    assert cut == []
    take(Connection("new"), "127.0.0.2", proven=False)
    assert cut == ["idle"], "of who holds most without a token, the oldest that no answer is under way on"
    take(Connection("newer"), "127.0.0.3", proven=False)
    take(Connection("newest"), "127.0.0.4", proven=False)
    assert cut == ["idle", "busy", "new"]


LARGE = b"POST /v1/populations HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99000\r\n\r\n"
CHUNKED = b"POST /v1/populations HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (LARGE, b"413"),
        (CHUNKED + b"4e20\r\n" + b"y" * 20_000 + b"\r\n", b"413"),
        (CHUNKED + b"5\r\nhello\r\n", b"408"),
        (b"GET /healthz HTTP/1.1\r\nHost: elsewhere\r\n\r\n", b"421"),
    ],
)
def test_the_connection_ends_with_a_refusal_of_the_guard(url: str, sent: bytes, status: bytes) -> None:
    with opened(url) as connection:
        connection.sendall(sent)
        answer = connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 " + status)
        assert b"\r\nconnection: close\r\n" in answer
        assert ended(connection, 15)


def test_head_and_body_have_one_time_together(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 6.0)
    with opened(url) as connection:
        begun = time.monotonic()
        connection.sendall(CHUNKED[:-2])
        time.sleep(5.5)
        connection.sendall(b"\r\n5\r\nhello\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 408")
        assert time.monotonic() - begun < 11.4, "6 s, and not 6 more for the body; the rest is for a busy machine"


def test_framing_of_chunks_counts_against_a_requests_length(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 100.0)
    with opened(url) as connection:
        connection.sendall(CHUNKED)
        # Each piece carries one byte, and ten times the number that is cut would carry less than a body may have.
        assert refused(connection, b"1;" + b"y" * 8_000 + b"\r\nx\r\n", most=1_300)


def test_pages_of_one_token_share_all_streams_and_give_way_to_another_caller(live: LiveLedger) -> None:
    async def run() -> None:
        broker = Broker(Answers(live.ledger), Settings(event_clients=4, event_clients_each=2, event_poll_seconds=0.02))
        await broker.start()
        pages = [await broker.stream(None, "page") for _ in range(4)]
        for each in pages:
            await anext(each)
        assert broker.clients == 4, "no other caller wants one"
        with pytest.raises(TooManyClients):
            await broker.stream(None, "page")
        others = []
        for _ in range(2):
            others.append(await broker.stream(None, "other"))
            await anext(others[-1])
        with pytest.raises(TooManyClients):
            await broker.stream(None, "third")
        ends = [len([part async for part in each]) for each in pages[:2]]
        assert (ends, broker.clients) == ([1, 1], 4), "its two oldest have said hello and ended"
        await broker.stop()

    asyncio.run(run())


def test_a_page_that_reconnects_takes_the_place_of_its_old_stream(live: LiveLedger) -> None:
    header = {"Authorization": f"Bearer {live.token('read')}"}
    app = create_app(live.url, Settings(event_ping_seconds=0.05))
    with serve_in_thread(config(app, port=0)) as url, contextlib.ExitStack() as held:

        def listen(page: str) -> httpx.Response:
            stream = httpx.stream("GET", f"{url}/v1/events", headers={**header, "Fieldfare-Page": page}, timeout=15)
            answer = held.enter_context(stream)
            assert answer.status_code == 200
            return answer

        def streams(number: int) -> bool:
            end = time.monotonic() + 15
            while time.monotonic() < end and app.state.broker.clients != number:
                time.sleep(0.02)
            return bool(app.state.broker.clients == number)

        first = listen("a").iter_raw()
        next(first)
        other = listen("b").iter_raw()
        next(other)
        assert streams(2)
        again = listen("a").iter_raw()
        next(again)
        assert streams(2)
        for _ in first:  # what it was sent before; then it ends
            pass
        assert next(other)
        assert next(again)


def test_a_flood_from_one_address_does_not_stop_a_token_behind_it(live: LiveLedger) -> None:
    settings = Settings(requests_per_minute=1, burst=3)
    token = {"Authorization": f"Bearer {live.token('read')}"}
    with client_at("192.0.2.7", live.url, settings) as client:
        assert [client.get("/v1/me").status_code for _ in range(5)] == [401, 401, 401, 429, 429]
        assert [client.get("/v1/me", headers=token).status_code for _ in range(4)] == [200, 200, 200, 429]


def test_a_revoked_token_is_refused_although_its_limit_is_remembered(remote: TestClient, live: LiveLedger) -> None:
    secret, view = live.ledger.create_token("officer", ("read",), actor="test")
    assert remote.get("/v1/me", headers={"Authorization": f"Bearer {secret}"}).status_code == 200
    live.ledger.revoke_token(view.id, actor="test")
    assert remote.get("/v1/me", headers={"Authorization": f"Bearer {secret}"}).status_code == 401


def test_an_expired_token_stays_expired_when_the_clock_is_set_back(ledger_url: str) -> None:
    now = [1000.0]
    with Ledger.open(ledger_url, create=True, clock=lambda: now[0]) as ledger:
        secret, _ = ledger.create_token("officer", ("read",), actor="test", expires_at=2000.0)
        assert ledger.check_token(secret) is not None
        now[0] = 2500.0
        assert ledger.check_token(secret) is None
        ledger.create_token("other", ("read",), actor="test")  # any row: the ledger has seen this time
        now[0] = 1500.0
        assert ledger.check_token(secret) is None


def test_a_terminal_gets_no_control_characters() -> None:
    assert (
        visible("a\x1b]0;owned\x07b\x9bc\u202ed\nnext \u00e9\u4f60")
        == "a\ufffd]0;owned\ufffdb\ufffdc\ufffdd\nnext \u00e9\u4f60"
    )
