from __future__ import annotations

import itertools
import json
import re
import threading

import ledger_data
import pytest
from fastapi.testclient import TestClient
from live_ledger import LiveLedger, client_at

from fieldfare_server.api import Settings, health
from fieldfare_server.api.answers import Answers
from fieldfare_server.api.auth import Buckets
from fieldfare_server.api.schemas import Verification
from fieldfare_server.ledger.sql import journal
from fieldfare_server.ledger.sql.proof import Checked
from fieldfare_server.ledger.views import View
from support.waiting import until


def test_a_population_says_budget_spent_and_rounds_left(local: TestClient) -> None:
    page = local.get("/v1/populations").json()
    assert page["next"] is None
    one = local.get("/v1/populations/aircraft").json()
    assert page["items"] == [one]
    assert (one["epsilon"], one["rounds_left"], one["active_run"]) == (8.0, 10, "run-3")


def test_pages_follow_the_cursor_to_the_end(local: TestClient) -> None:
    seen, cursor = [], None
    while True:
        params = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = local.get("/v1/runs", params=params).json()
        seen += [run["id"] for run in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == ["run-3", "run-2", "run-1"]


def test_unchanged_answers_are_304(local: TestClient, live: LiveLedger) -> None:
    first = local.get("/v1/populations/aircraft")
    tag = first.headers["etag"]
    for condition in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = local.get("/v1/populations/aircraft", headers={"If-None-Match": condition})
        assert (again.status_code, again.content) == (304, b"")
        # The page's own files too: a proxy that compresses them makes their tags weak.
        page = condition.replace(tag, local.get("/").headers["etag"])
        assert local.get("/", headers={"If-None-Match": page}).status_code == 304
    live.commit()
    changed = local.get("/v1/populations/aircraft", headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/v1/populations/trains", 404, "not-found"),
        ("/v1/runs/none", 404, "not-found"),
        ("/v1/runs?limit=0", 422, "invalid-request"),
        ("/v1/runs?limit=many", 422, "invalid-request"),
        ("/v1/runs?cursor=zzz", 400, "bad-cursor"),
        ("/v1/runs/run-3/series?points=1", 422, "invalid-request"),
        ("/nowhere", 404, "not-found"),
        ("/assets/..%2f..%2fapp.py", 404, "not-found"),
    ],
)
def test_errors_are_problem_details(local: TestClient, path: str, status: int, kind: str) -> None:
    answer = local.get(path)
    body = answer.json()
    assert answer.status_code == status == body["status"]
    assert answer.headers["content-type"] == "application/problem+json"
    assert body["type"] == f"urn:fieldfare:problem:{kind}"
    assert body["title"]


def test_other_methods_are_refused(local: TestClient) -> None:
    answer = local.delete("/v1/runs/run-3")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
    assert answer.headers["content-type"] == "application/problem+json"


def test_stopping_an_ended_run_is_a_conflict(local: TestClient, live: LiveLedger) -> None:
    headers = {"Authorization": f"Bearer {live.token('admin')}"}
    answer = local.post("/v1/runs/run-1/stop", headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:fieldfare:problem:request-refused")


def test_a_lost_ledger_is_503_and_not_ready_but_healthy(local: TestClient, live: LiveLedger) -> None:
    assert local.get("/readyz").json()["status"] == "ok"
    with live.away():
        assert local.get("/v1/runs").status_code == 503
        assert local.get("/healthz").status_code == 200
        ready = local.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "unavailable")
        assert "fieldfare_ledger_up 0.0" in local.get("/metrics").text
    assert local.get("/readyz").status_code == 200


def test_why_a_ledger_is_not_ready_is_told_to_those_who_may_read_it(live: LiveLedger, settings: Settings) -> None:
    """A probe from anywhere was told a population's name and budget, and the file of the ledger."""
    of_one = live.ledger.create_token("one", ("admin",), actor="test", populations=("aircraft",))[0]
    tokens = {"of all": live.token("read"), "of one": of_one, "guessed": "ff_" + 12 * "0" + "_" + 64 * "0"}
    ledger_data.forge(live.ledger, "UPDATE populations SET epsilon = 99 WHERE name = 'aircraft'")
    told = {}
    with client_at("10.0.0.9", live.url, settings) as client:
        for who, token in {**tokens, "nobody": None}.items():
            ready = client.get("/readyz", headers={"Authorization": f"Bearer {token}"} if token else {})
            told[who] = ready.status_code, "aircraft" in ready.text
        with live.away():
            assert str(live.ledger.database.path) not in client.get("/readyz").text
    assert told == {"of all": (503, True), "of one": (503, False), "guessed": (503, False), "nobody": (503, False)}


def test_a_broken_chain_is_not_ready_and_says_where(live: LiveLedger, settings: Settings) -> None:
    ledger_data.forge(live.ledger, "UPDATE audit SET actor = actor || '!' WHERE id = 3")
    with client_at("127.0.0.1", live.url, settings) as client:
        ready = client.get("/readyz")
        assert ready.status_code == 503
        assert "audit 3" in ready.json()["checks"]["chain"]
        ledger_data.forge(live.ledger, "UPDATE audit SET actor = rtrim(actor, '!') WHERE id = 3")
        assert client.get("/readyz").status_code == 503, "a broken chain does not heal by itself"


class LongChain:
    """Stands in for `Proof`: a journal of 3 rows whose check takes as many steps as the test allows."""

    steps = threading.Semaphore(0)

    def __init__(self, _: object) -> None:
        self.rows = 0

    def advance(self, _: int | None = None) -> Checked:
        self.steps.acquire(timeout=20)
        self.rows = min(self.rows + 1, 3)
        return Checked(self.rows, "hash", end=3)

    def restart(self) -> None:
        self.rows = 0


def test_a_long_chain_is_not_called_whole_before_it_is_and_holds_nobody_up(
    live: LiveLedger, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "Proof", LongChain)
    monkeypatch.setattr(health, "PATIENCE", 0.5)

    def verify(answers: Answers) -> Verification:
        # As long as the ledger: with one step for all of it.
        LongChain.steps.acquire(timeout=20)
        return answers.prove()

    monkeypatch.setattr(Answers, "verify", verify)
    monkeypatch.setattr(LongChain, "steps", threading.Semaphore(0))
    steps = LongChain.steps
    admin = {"Authorization": f"Bearer {live.token('admin')}"}
    with client_at("127.0.0.1", live.url, settings) as client:
        assert client.get("/readyz").status_code == 503
        assert client.get("/v1/audit/verification").json()["complete"] is False
        steps.release()
        assert "fieldfare_ledger_chain_ok 0.0" not in client.get("/metrics").text, "not known is not broken"
        until(lambda: "1 of 3 rows" in client.get("/readyz").json()["checks"]["chain"])
        assert client.get("/readyz").status_code == 503
        assert client.get("/v1/runs").status_code == 200
        steps.release(2)
        until(lambda: client.get("/readyz").status_code == 200)
        assert client.get("/readyz").json()["checks"]["chain"] == "3 rows verified"
        assert "fieldfare_ledger_chain_ok 1.0" in client.get("/metrics").text
        # Checking every row again does not take back what is known, and is not answered with it either.
        again = client.post("/v1/audit/verification", headers=admin).json()
        assert (again["ok"], again["complete"]) == (False, False)
        assert client.get("/readyz").status_code == 200
        steps.release(1000)
        until(lambda: client.get("/v1/audit/verification").json()["ok"])


def test_an_unforeseen_error_shows_nothing_of_itself(local: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: object) -> None:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(Answers, "population", explode)
    answer = local.get("/v1/populations/aircraft")
    assert answer.status_code == 500
    assert "hunter2" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/", "/docs", "/v1/runs", "/healthz", "/nowhere", "/metrics"])
def test_every_answer_carries_the_security_headers(local: TestClient, path: str) -> None:
    headers = local.get(path, headers={"Origin": "https://elsewhere.example"}).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert not [name for name in headers if name.startswith("access-control-")], "no other origin may read"


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "localhost:80:80", "[::1", "127.0.0.2"])
def test_unknown_hosts_are_refused(local: TestClient, host: str) -> None:
    assert local.get("/healthz", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:8000", "[::1]:8000", "[::1]"])
def test_known_hosts_are_answered(local: TestClient, host: str) -> None:
    assert local.get("/healthz", headers={"Host": host}).status_code == 200


def test_large_requests_are_refused(live: LiveLedger) -> None:
    settings = Settings(max_body_bytes=100, max_target_bytes=200)
    with client_at("127.0.0.1", live.url, settings) as client:
        assert client.post("/v1/runs/run-3/stop", content=b"x" * 101).status_code == 413
        assert client.post("/v1/runs/run-3/stop", content=iter([b"x" * 60, b"x" * 60])).status_code == 413
        assert client.post("/v1/runs/run-3/stop", content=b"x" * 100).status_code == 401
        assert client.get("/v1/runs?cursor=" + "a" * 300).status_code == 414


def test_a_client_that_asks_too_often_waits(live: LiveLedger) -> None:
    settings = Settings(requests_per_minute=1, burst=3)
    with client_at("127.0.0.1", live.url, settings) as client:
        codes = [client.get("/healthz").status_code for _ in range(4)]
        assert codes == [200, 200, 200, 429]
        assert int(client.get("/healthz").headers["retry-after"]) > 30


def test_buckets_refill_and_forget() -> None:
    now = [0.0]
    buckets = Buckets(60, 2, keys=3, clock=lambda: now[0])
    assert [buckets.take("a") == 0 for _ in range(3)] == [True, True, False]
    now[0] = 1.0
    assert [buckets.take("a") == 0 for _ in range(2)] == [True, False]
    for key in "bcd":
        assert buckets.take(key) == 0
    assert buckets.take("a") == 0, "the oldest key is forgotten, so memory stays bounded"


def test_metrics_have_base_units_and_no_names_of_users_or_nodes(local: TestClient) -> None:
    local.get("/v1/runs/run-3")
    local.get("/secret/path/of/a/client")
    text = local.get("/metrics").text
    assert 'fieldfare_privacy_epsilon_limit{population="aircraft"} 8.0' in text
    assert 'fieldfare_rounds_total{state="committed"} 10.0' in text
    assert 'fieldfare_http_requests_total{method="GET",route="/v1/runs/{run_id}",status="200"} 1.0' in text
    assert 'route="unmatched"' in text
    assert "secret" not in text
    labels = {part.split("=")[0] for line in text.splitlines() if "{" in line for part in _labels(line)}
    assert labels <= {"population", "state", "reason", "method", "route", "status", "le", "place"}


def _labels(line: str) -> list[str]:
    return re.findall(r'([a-z_]+="[^"]*")', line[line.index("{") :])


def test_the_export_has_every_row_in_order(local: TestClient, live: LiveLedger) -> None:
    rows = [json.loads(line) for line in local.get("/v1/audit/export").text.splitlines()]
    assert [row["id"] for row in rows] == list(range(1, live.rows + 1))
    assert all(b["previous"] == a["hash"] for a, b in itertools.pairwise(rows))


def _kinds_of(base: type[View]) -> list[type[View]]:
    return [each for kind in base.__subclasses__() for each in (kind, *_kinds_of(kind))]


def test_the_openapi_document_has_examples_problems_and_no_orphans(local: TestClient) -> None:
    document = local.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    models = {each.__name__: each for each in _kinds_of(View)}
    assert schemas["Population"]["examples"]
    assert schemas["Run"]["examples"]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            good = next(answer for status, answer in operation["responses"].items() if status.startswith("2"))
            reference = good["content"].get("application/json", {}).get("schema", {}).get("$ref")
            if reference is not None:
                name = reference.rpartition("/")[2]
                kind = name.removeprefix("Page_").rstrip("_")
                shown = schemas[kind].get("examples")
                assert shown, (path, name)
                models[kind].model_validate(shown[0])
    used = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
    assert used == set(schemas) | used
    for path, operations in document["paths"].items():
        for operation in operations.values():
            for status, answer in operation["responses"].items():
                if status.startswith(("4", "5")) and path != "/readyz":
                    assert "application/problem+json" in answer["content"], (path, status)


def test_the_document_names_its_operations_its_server_and_every_field(local: TestClient) -> None:
    document = local.get("/openapi.json").json()
    operations = [each for ways in document["paths"].values() for each in ways.values()]
    names = [each["operationId"] for each in operations]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-z]+(_[a-z]+)*", name) for name in names)
    assert not [name for name in names if "_v1_" in name], "a name, and not a path"
    assert document["servers"][0]["url"] == "/"
    assert all({"400", "413", "429"} <= set(each["responses"]) for each in operations)
    bare = [
        f"{name}.{field}"
        for name, schema in document["components"]["schemas"].items()
        for field, told in schema.get("properties", {}).items()
        if "description" not in told and "$ref" not in told
    ]
    assert bare == []
