"""`POST /v1/populations/NAME/charges`: who may charge, what is refused by name, and that a repeat changes nothing."""

from __future__ import annotations

from typing import Any

from fastapi.testclient import TestClient
from live_ledger import LiveLedger

URL = "/v1/populations/aircraft/charges"
NEW: dict[str, Any] = {"key": "a", "loss": {"mu": 0.1}, "what": "ranker", "why": "weekly training"}


def post(client: TestClient, secret: str | None, body: dict[str, Any], url: str = URL) -> Any:
    return client.post(url, json=body, headers={} if secret is None else {"Authorization": f"Bearer {secret}"})


def test_a_loss_is_reserved_once_and_committed_once(local: TestClient, live: LiveLedger) -> None:
    secret = live.token("charge")
    made = [post(local, secret, NEW).json() for _ in range(2)]
    assert made[0] == made[1]
    assert (made[0]["state"], made[0]["mu"], made[0]["who"]) == ("reserved", 0.1, "token officer")
    assert post(local, secret, {"key": "a", "action": "commit"}).json()["state"] == "committed"
    assert len(live.ledger.charges("aircraft")) == 1


def test_a_charge_is_its_own_tokens_or_an_admins(local: TestClient, live: LiveLedger) -> None:
    one, two = (
        live.ledger.create_token(name, ("charge",), populations=("aircraft",), actor="test")[0]
        for name in ("one", "two")
    )
    post(local, one, NEW)
    for body in (NEW, {"key": "a", "action": "commit"}, {"key": "a", "action": "release"}):
        answer = post(local, two, body)
        assert (answer.status_code, "token one" in answer.text) == (422, True), answer.text
    assert live.ledger.charge("aircraft", "a").state == "reserved"
    assert post(local, live.token("admin"), {"key": "a", "action": "release"}).json()["state"] == "released"


def test_who_may_not_charge_is_refused(local: TestClient, live: LiveLedger) -> None:
    assert post(local, None, NEW).status_code == 401
    assert post(local, live.token("read"), NEW).status_code == 403
    assert not live.ledger.charges("aircraft")


def test_bad_charges_are_refused_by_name(local: TestClient, live: LiveLedger) -> None:
    secret = live.token("charge")
    post(local, secret, NEW)
    for body, status, why in (
        ({**NEW, "loss": {"mu": 0.2}}, 422, "names another loss"),
        ({**NEW, "key": "b", "loss": {"mu": -1}}, 422, "greater than or equal to 0"),
        ({**NEW, "key": "b", "loss": {"mu": 400}}, 409, "the budget is"),
        ({"key": "b"}, 422, "a loss is given to reserve it"),
        ({"key": "b", "action": "commit"}, 422, "none with that key"),
        ({**NEW, "key": ""}, 422, "at least 1"),
    ):
        answer = post(local, secret, body)
        assert (answer.status_code, why in answer.text) == (status, True), answer.text
    assert post(local, secret, NEW, "/v1/populations/nobody/charges").status_code == 404
    assert len(live.ledger.charges("aircraft")) == 1
