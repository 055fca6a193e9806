"""Budgets changed over HTTP, tampering shown over HTTP, heads that clients keep, and tokens for some populations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ledger_data
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from fieldfare.signed_head import HeadRefused, SignedHead, follow
from fieldfare_server.api import Settings, create_app
from fieldfare_server.api.http_client import Client
from fieldfare_server.api.schemas import NewestHead as HeadAnswer
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.rules.populations import Rules
from support.refusals import coded


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    with ledger_data.new_ledger(ledger_url) as opened:
        yield opened


@pytest.fixture
def client(ledger: Ledger, ledger_url: str) -> Iterator[TestClient]:
    app = create_app(ledger_url, Settings(verify_seconds=0, metrics_seconds=0))
    with TestClient(app, base_url="http://localhost", client=("127.0.0.1", 1)) as client:
        yield client


def bearer(ledger: Ledger, name: str, *scopes: str, populations: tuple[str, ...] | None = None) -> dict[str, str]:
    secret, _ = ledger.create_token(name, scopes, populations=populations, actor="test")  # type: ignore[arg-type]
    return {"Authorization": f"Bearer {secret}"}


def test_a_budget_is_changed_with_a_reason(client: TestClient, ledger: Ledger) -> None:
    admin, reader = bearer(ledger, "ann", "admin"), bearer(ledger, "page", "read")
    at = "/v1/populations/aircraft"
    assert client.post(f"{at}/raise", json={"epsilon": 9, "reason": "x"}).status_code == 401
    assert client.post(f"{at}/raise", json={"epsilon": 9, "reason": "x"}, headers=reader).status_code == 403
    raised = client.post(f"{at}/raise", json={"epsilon": 9.0, "reason": "agreed"}, headers=admin)
    assert (raised.status_code, raised.json()["epsilon"], raised.json()["bound_epsilon"]) == (200, 9.0, 9.0)
    tightened = client.post(f"{at}/tighten", json={"epsilon": 3.0, "reason": "less"}, headers=admin).json()
    assert (tightened["epsilon"], tightened["bound_epsilon"]) == (3.0, 9.0)
    for path, body, status in (
        ("raise", {"epsilon": 1.0, "reason": "x"}, 409),
        ("raise", {"epsilon": 10.0}, 422),
        ("raise", {"epsilon": 10.0, "reason": ""}, 422),
        ("raise", {"epsilon": -1.0, "reason": "x"}, 422),
        ("raise", {"epsilon": 10.0, "reason": "x", "who": "me"}, 422),
        ("raise", {"epsilon": "10", "reason": "x"}, 422),
        ("tighten", {"epsilon": True, "reason": "x"}, 422),
        ("tighten", {"epsilon": 4.0, "reason": "x"}, 409),
        ("reopen", {"reason": "x"}, 409),
    ):
        assert client.post(f"{at}/{path}", json=body, headers=admin).status_code == status, (path, body)
    week = {"epsilon": 1.0, "every": "week", "reason": "slowly"}
    for body, status in (
        ({**week, "every": "hour"}, 422),
        ({**week, "epsilon": "1"}, 422),
        ({**week, "every": None}, 409),
        ({**week, "epsilon": 3.1}, 409),
    ):
        assert client.post(f"{at}/window", json=body, headers=admin).status_code == status, body
    assert client.post(f"{at}/window", json=week, headers=reader).status_code == 403
    assert client.post(f"{at}/note", json={"text": "x"}, headers=reader).status_code == 403
    paced = client.post(f"{at}/window", json=week, headers=admin).json()["window"]
    assert (paced["epsilon"], paced["every"]) == (1.0, "week")
    assert client.post(f"{at}/window", json={"reason": "over"}, headers=admin).json()["window"] is None
    assert client.post(f"{at}/note", json={"text": "read me"}, headers=admin).status_code == 200
    assert client.get(f"{at}/history", headers=reader).json()["changes"][0]["reason"] == "read me"
    assert client.post(f"{at}/close", json={"reason": "over"}, headers=admin).json()["state"] == "closed"
    assert client.post(f"{at}/reopen", json={"reason": "again"}, headers=admin).json()["state"] == "open"
    assert client.post("/v1/populations/none/close", json={"reason": "x"}, headers=admin).status_code == 404
    ledger_data.start(ledger, "run-1")
    refused = client.post(f"{at}/tighten", json={"epsilon": 1e-6, "reason": "x"}, headers=admin)
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:fieldfare:problem:budget-refused")


def test_two_persons_over_http(client: TestClient, ledger: Ledger) -> None:
    ledger.create_population("two", 1.0, 1e-6, rules=Rules(two_persons=True), actor="officer")
    ann, bob = bearer(ledger, "ann", "admin"), bearer(ledger, "bob", "admin")
    other = bearer(ledger, "cid", "admin", populations=("aircraft",))
    made = client.post("/v1/populations/two/raise", json={"epsilon": 2.0, "reason": "more"}, headers=ann).json()
    assert (made["epsilon"], made["proposals"][0]["proposed_by"]) == (1.0, "token ann")
    at = f"/v1/proposals/{made['proposals'][0]['id']}"
    assert client.post(f"{at}/approve", headers=ann).status_code == 409
    assert client.post(f"{at}/approve", headers=other).status_code == 403
    assert client.get("/v1/populations/two").json()["epsilon"] == 1.0
    approved = client.post(f"{at}/approve", headers=bob).json()
    assert (approved["epsilon"], approved["proposals"]) == (2.0, [])
    assert client.post(f"{at}/approve", headers=bob).status_code == 409
    assert client.post("/v1/proposals/00/approve", headers=bob).status_code == 404
    again = client.post("/v1/populations/two/raise", json={"epsilon": 3.0, "reason": "more"}, headers=ann).json()
    at = f"/v1/proposals/{again['proposals'][0]['id']}"
    assert client.post(f"{at}/withdraw", json={"reason": "no"}, headers=bob).json()["proposals"] == []


def test_a_token_for_one_population_sees_that_one(client: TestClient, ledger: Ledger) -> None:
    ledger.create_population("others", 1.0, 1e-6, actor="officer")
    ledger_data.start(ledger, "run-1")
    mine, theirs = (bearer(ledger, name, "read", "admin", populations=(name,)) for name in ("aircraft", "others"))
    assert [item["name"] for item in client.get("/v1/populations", headers=theirs).json()["items"]] == ["others"]
    assert client.get("/v1/me", headers=theirs).json()["populations"] == ["others"]
    for path in ("/v1/populations/aircraft", "/v1/runs", "/v1/runs?population=aircraft", "/v1/runs/run-1"):
        assert client.get(path, headers=theirs).status_code == 403, path
    for path in ("/rounds", "/series", "/participation", "/report", "/registry-entry"):
        assert client.get(f"/v1/runs/run-1{path}", headers=theirs).status_code == 403, path
    for path in ("/v1/audit", "/v1/audit/verification", "/v1/audit/export", "/v1/audit/head", "/metrics", "/v1/events"):
        assert client.get(path, headers=mine).status_code == 403, path
    assert client.post("/v1/runs/run-1/stop", headers=theirs).status_code == 403
    for path in ("close", "raise", "tighten", "reopen"):
        body = {"reason": "x"}
        assert client.post(f"/v1/populations/aircraft/{path}", json=body, headers=theirs).status_code == 403
    assert client.get("/v1/runs?population=aircraft", headers=mine).status_code == 200
    assert client.post("/v1/runs/run-1/stop", headers=mine).status_code == 202


def test_a_token_for_one_population_is_not_told_what_budgets_add_up_to(client: TestClient, ledger: Ledger) -> None:
    """Who knows one budget could take it from the sum, and would have the other."""
    ledger.create_population("secret", 1.0, 1e-6, adjacency="add_remove", actor="officer")
    run, at = ledger_data.start(ledger, "run-1"), "/v1/populations/aircraft"
    whole, mine = bearer(ledger, "all", "admin"), bearer(ledger, "one", "admin", populations=("aircraft",))

    def told(headers: dict[str, str]) -> list[Any]:
        note = client.post(f"{at}/note", json={"text": "looked at"}, headers=headers).json()
        (listed,) = client.get("/v1/populations?search=aircraft", headers=headers).json()["items"]
        (nearest,) = client.get("/v1/populations?search=aircraft&order=nearness", headers=headers).json()["items"]
        views = [client.get(at, headers=headers).json(), listed, nearest, note]
        assert all(view["active_run"] == run.id and view["bound_epsilon"] == 8.0 for view in views)
        return [view["together"] and view["together"]["populations"] for view in views]

    def statement(headers: dict[str, str]) -> str:
        return client.get(f"/v1/runs/{run.id}/report?format=markdown", headers=headers).text

    assert told(whole) == [2, 2, 2, 2]
    assert told(mine) == [None] * 4
    assert told(whole) == [2, 2, 2, 2], "the answer that is kept stays whole"
    assert "all 2 populations" in statement(whole)
    assert "populations of this ledger" not in statement(mine)
    assert "Guarantee for all runs of the population" in statement(mine)


OF_THE_SERVICE = ("/healthz", "/readyz", "/v1/me")
"""Routes that show no population."""


def test_a_token_for_one_population_gets_no_route_of_another(client: TestClient, ledger: Ledger) -> None:
    """Every operation of the document, so that a new route is tried too."""
    ledger.create_population("others", 1.0, 1e-6, actor="officer")
    ledger.create_population("two", 1.0, 1e-6, rules=Rules(two_persons=True), actor="officer")
    waiting = ledger.raise_population("two", epsilon=2.0, reason="more", actor="ann").proposals[0].id
    ledger_data.start(ledger, "run-1")
    mine = bearer(ledger, "bob", "read", "charge", "admin", populations=("others",))
    bodies = {
        "charges": {"key": "k", "loss": {"mu": 0.01}, "what": "x", "why": "y"},
        "raise": {"epsilon": 2.0, "reason": "x"},
        "tighten": {"epsilon": 0.9, "reason": "x"},
        "window": {"epsilon": 0.5, "every": "week", "reason": "x"},
        "note": {"text": "x"},
        **{key: {"reason": "x"} for key in ("close", "reopen", "withdraw")},
    }
    before, tried = ledger.head().count, 0
    for path, operations in client.get("/openapi.json").json()["paths"].items():
        at = path.format(name="aircraft", run_id="run-1", proposal=waiting)
        for method in operations:
            answer = client.request(method, at, headers=mine, json=bodies.get(at.rpartition("/")[2]))
            if path == "/v1/populations":
                assert [item["name"] for item in answer.json()["items"]] == ["others"]
            elif path not in OF_THE_SERVICE:
                assert answer.status_code == 403, (method, at, answer.text)
            tried += 1
    assert tried > 25
    rows = ledger.events(before, 10)
    assert [row.action for row in rows] == ["token.use"], "nothing else was written"


def test_a_tampered_budget_is_named_everywhere_and_nothing_is_charged(client: TestClient, ledger: Ledger) -> None:
    assert client.get("/readyz").status_code == 200
    admin = bearer(ledger, "ann", "admin")
    with ledger.database.engine.begin() as connection:
        connection.execute(text("UPDATE populations SET epsilon = 1000"))
    ready = client.get("/readyz")
    assert ready.status_code == 503
    assert "populations aircraft: epsilon" in ready.json()["checks"]["chain"]
    shown = client.get("/v1/audit/verification").json()
    assert (shown["ok"], shown["table"], shown["row"]) == (False, "populations", "aircraft")
    assert 'fieldfare_ledger_fault{row="aircraft",table="populations"} 1.0' in client.get("/metrics").text
    assert "fieldfare_ledger_chain_ok 0.0" in client.get("/metrics").text
    refused = client.post("/v1/populations/aircraft/raise", json={"epsilon": 2000, "reason": "x"}, headers=admin)
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:fieldfare:problem:ledger-disproved")
    assert "aircraft" in refused.json()["detail"]
    # The page's verify is `verify`.
    assert client.post("/v1/audit/verification", headers=admin).json()["row"] == "aircraft"
    with ledger.database.engine.begin() as connection:
        connection.execute(text("UPDATE populations SET epsilon = 8"))
    assert client.post("/v1/audit/verification", headers=admin).json()["ok"] is True
    assert client.get("/readyz").status_code == 200


def test_clients_keep_the_head_and_refuse_another_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ledger_url: str
) -> None:
    with Ledger.open(ledger_url, create=True, head_file=tmp_path / "ledger.head", coordinator=True) as ledger:
        app = create_app(ledger_url)
        with TestClient(app, base_url="http://localhost", client=("127.0.0.1", 1)) as local:
            assert local.get("/v1/audit/head").status_code == 404
            ledger.create_population("people", 4.0, 1e-6, actor="officer")
            first = SignedHead.parse(local.get("/v1/audit/head").json()["text"])
            ledger.raise_population("people", epsilon=5.0, reason="x", actor="officer")
            answer = local.get(f"/v1/audit/head?since={first.count}").json()
            second = SignedHead.parse(answer["text"])
            assert follow(first, second, {first.count: answer["since"]}) == second
            assert local.get("/v1/audit/head?since=99").json()["since"] is None

            def signed_head(_: Client, since: int | None = None) -> HeadAnswer:
                query = "" if since is None else f"?since={since}"
                return HeadAnswer.model_validate(local.get(f"/v1/audit/head{query}").json())

            monkeypatch.setattr(Client, "signed_head", signed_head)
            kept = tmp_path / "kept"
            with Client("http://localhost") as one:
                one.watch_head(kept)
                assert SignedHead.parse(kept.read_text()) == second
                one.watch_head(kept)
                key = (tmp_path / "ledger.key").read_bytes()
                kept.write_text(str(SignedHead.of(second.ledger, 1, "0" * 64, key)))
                with pytest.raises(HeadRefused, check=coded("head-refused", "the journal of ledger")):
                    one.watch_head(kept)
                kept.write_text(str(SignedHead.of(second.ledger, 99, second.hash, key)))
                with pytest.raises(HeadRefused, check=coded("head-refused", "the journal of ledger")):
                    one.watch_head(kept)
