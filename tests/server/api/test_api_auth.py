from __future__ import annotations

import http.client
from urllib.parse import urlsplit

import pytest
from fastapi.testclient import TestClient
from live_ledger import LiveLedger, client_at

from fieldfare_server.api import Settings, create_app
from fieldfare_server.api.server import config, serve_in_thread
from fieldfare_server.ledger.sql import tokens

READS = ("/v1/populations", "/v1/runs", "/v1/runs/run-3", "/v1/audit", "/v1/me", "/metrics", "/v1/audit/export")


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


@pytest.mark.parametrize("path", READS)
def test_a_caller_on_this_machine_reads_without_a_token(local: TestClient, path: str) -> None:
    assert local.get(path).status_code == 200


@pytest.mark.parametrize("path", [*READS, "/v1/events"])
def test_a_caller_elsewhere_does_not(remote: TestClient, path: str) -> None:
    answer = remote.get(path)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"])
def test_what_a_local_proxy_forwards_is_not_local(local: TestClient, header: str) -> None:
    assert local.get("/v1/runs", headers={header: "127.0.0.1"}).status_code == 401


def test_nginx_as_it_comes_is_not_local(live: LiveLedger, settings: Settings) -> None:
    """`proxy_pass http://127.0.0.1:8080;` alone asks in HTTP/1.0, under that name, and adds no header."""
    with serve_in_thread(config(create_app(live.url, settings), port=0)) as address:
        for version, status in ((10, 401), (11, 200)):
            asking = http.client.HTTPConnection(urlsplit(address).netloc, timeout=10)
            asking._http_vsn, asking._http_vsn_str = version, f"HTTP/{version / 10}"  # type: ignore[attr-defined]
            asking.request("GET", "/v1/runs", headers={"Host": urlsplit(address).netloc})
            assert asking.getresponse().status == status
            asking.close()


def test_a_name_that_points_here_is_not_local(live: LiveLedger) -> None:
    """A page on evil.example that rebinds its name to 127.0.0.1 must not read through the visitor's browser."""
    settings = Settings(hosts=("localhost", "budget.example"))
    with client_at("127.0.0.1", live.url, settings) as client:
        client.base_url = "http://budget.example"
        assert client.get("/v1/runs").status_code == 401
        assert client.get("/v1/runs", headers={"Host": "evil.example"}).status_code == 421


@pytest.mark.parametrize("what", ["stop", "pause", "resume"])
def test_changing_needs_admin_even_here(local: TestClient, live: LiveLedger, what: str) -> None:
    assert local.post(f"/v1/runs/run-3/{what}").status_code == 401
    read = live.token("read")
    assert local.post(f"/v1/runs/run-3/{what}", headers=bearer(read)).status_code == 403
    assert live.run.request() is None
    admin = live.token("read", "admin")
    assert local.post(f"/v1/runs/run-3/{what}", headers=bearer(admin)).status_code == 202
    assert live.run.request() == (None if what == "resume" else what)


def test_a_valid_token_reads_from_anywhere(remote: TestClient, live: LiveLedger) -> None:
    token = live.token("read")
    answer = remote.get("/v1/me", headers=bearer(token))
    shown = {"name": "officer", "scopes": ["read"], "anonymous": False, "expires_at": None, "populations": None}
    assert answer.json() == shown


def test_a_token_of_an_older_version_that_outlasts_the_calendar_still_reads(
    remote: TestClient, live: LiveLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its expiry had no date, and each of its requests ended in an internal error."""
    monkeypatch.setattr(tokens, "LATEST", float("inf"))
    secret, _ = live.ledger.create_token("long", ("read",), expires_at=1e300, actor="test")
    answer = remote.get("/v1/me", headers=bearer(secret))
    assert (answer.status_code, answer.json()["expires_at"][:4]) == (200, "9999")


def test_a_wrong_token_is_refused_on_this_machine_too(local: TestClient) -> None:
    """Otherwise a mistyped token would quietly read as anonymous."""
    assert local.get("/v1/runs", headers=bearer("nonsense")).status_code == 401
    assert local.get("/v1/runs", headers={"Authorization": "Basic eDp5"}).status_code == 401


def test_guessing_is_slowed(live: LiveLedger) -> None:
    settings = Settings(failed_logins_per_minute=3)
    with client_at("192.0.2.7", live.url, settings) as client:
        codes = [client.get("/v1/runs", headers=bearer("nonsense")).status_code for _ in range(5)]
        assert codes == [401, 401, 401, 429, 429]
        slowed = client.get("/v1/runs", headers=bearer("nonsense"))
        assert int(slowed.headers["retry-after"]) >= 1
        # Twelve wrong tokens behind the same proxy must not stop an administrator.
        good = live.token("admin")
        assert client.post("/v1/runs/run-3/stop", headers=bearer(good)).status_code == 202


def test_reads_by_a_token_are_audited_once_a_while(remote: TestClient, live: LiveLedger) -> None:
    token = live.token("read")
    for _ in range(5):
        remote.get("/v1/runs", headers=bearer(token))
    uses = [row.body for row in live.ledger.events(0, 1000) if row.action == "token.use"]
    assert uses == [{"id": live.ledger.tokens()[0].id, "what": "read"}]
