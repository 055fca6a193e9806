"""Clients that hold connections: heads without end, heads that never end, and many at once. Findings R8 to R10."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi.testclient import TestClient

from conftest import LiveLedger, client_at
from fieldfare_server.api import Settings, connections, create_app
from fieldfare_server.api.server import config, serve_in_thread
from fieldfare_server.cli.output import visible
from fieldfare_server.ledger import Ledger


@pytest.fixture
def url(live: LiveLedger, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(connections, "CONNECTIONS_OF_ADDRESS", 20)
    with serve_in_thread(config(create_app(live.url, Settings()), port=0)) as address:
        yield address


def opened(url: str) -> socket.socket:
    parts = urlsplit(url)
    assert parts.hostname
    return socket.create_connection((parts.hostname, parts.port or 80), timeout=20)


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
        assert second.recv(65536).startswith(b"HTTP/1.1 200")
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
            assert kept.recv(65536).startswith(b"HTTP/1.1 200")
            time.sleep(1.2)


def test_an_address_has_a_number_of_connections_and_gets_them_back(url: str) -> None:
    held = [opened(url) for _ in range(20)]
    try:
        with opened(url) as more:
            assert ended(more, 15)
    finally:
        for connection in held:
            connection.close()
    end = time.monotonic() + 15
    while time.monotonic() < end:
        try:
            assert httpx.get(f"{url}/healthz", timeout=15).status_code == 200
            return
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError("closed connections still count")


def test_one_caller_cannot_take_all_event_streams(live: LiveLedger) -> None:
    settings = Settings(event_clients=8, event_clients_each=2, event_ping_seconds=0.05)
    first, second = live.token("read"), live.token("read")
    with serve_in_thread(config(create_app(live.url, settings), port=0)) as url:
        done = threading.Event()
        taken = threading.Semaphore(0)

        def hold(secret: str) -> None:
            with httpx.stream("GET", f"{url}/v1/events", headers={"Authorization": f"Bearer {secret}"}) as answer:
                chunks = answer.iter_raw()  # kept: a generator that is dropped closes its stream
                next(chunks)
                taken.release()
                done.wait(20)

        threads = [threading.Thread(target=hold, args=(first,), daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        assert all(taken.acquire(timeout=20) for _ in threads)
        with httpx.stream("GET", f"{url}/v1/events", headers={"Authorization": f"Bearer {first}"}) as third:
            assert (third.status_code, third.headers.get("retry-after")) == (503, "10")
        with httpx.stream("GET", f"{url}/v1/events", headers={"Authorization": f"Bearer {second}"}) as answer:
            assert answer.status_code == 200
        done.set()
        for thread in threads:
            thread.join(20)


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
