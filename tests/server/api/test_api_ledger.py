"""The service over a real ledger, on both databases: what it says is what the ledger holds."""

from __future__ import annotations

from collections.abc import Iterator

import ledger_data
import pytest
from fastapi.testclient import TestClient

from fieldfare.errors import BadInput, LedgerError
from fieldfare_server.api import Settings, create_app
from fieldfare_server.cli.progress import local_grid
from fieldfare_server.evidence.residual_test import run_residual_test
from fieldfare_server.evidence.verify import verify
from fieldfare_server.ledger import Ledger, NewRun, watch
from fieldfare_server.ledger.sql.proof import Proof
from support.postgres import Cluster


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    with ledger_data.new_ledger(ledger_url) as opened:
        yield opened


@pytest.fixture
def client(ledger: Ledger, ledger_url: str) -> Iterator[TestClient]:
    app = create_app(ledger_url, Settings(verify_seconds=0, metrics_seconds=0))
    with TestClient(app, base_url="http://localhost", client=("127.0.0.1", 1)) as client:
        yield client


def client_of(ledger_url: str) -> TestClient:
    """A service that has seen nothing yet."""
    app = create_app(ledger_url, Settings(verify_seconds=0, metrics_seconds=0))
    return TestClient(app, base_url="http://localhost", client=("127.0.0.1", 1))


def bearer(ledger: Ledger, *scopes: str) -> dict[str, str]:
    secret, _ = ledger.create_token("officer", scopes, actor="test")  # type: ignore[arg-type]
    return {"Authorization": f"Bearer {secret}"}


def test_there_must_be_a_ledger(ledger_url: str) -> None:
    with pytest.raises(LedgerError):
        create_app(ledger_url)


def test_an_empty_budget_says_so(client: TestClient) -> None:
    one = client.get("/v1/populations/aircraft").json()
    assert (one["spent"]["epsilon"], one["committed"]["epsilon"]) == (0, 0)
    assert one["remaining_epsilon"] == pytest.approx(8.0, rel=1e-4)
    assert (one["rounds_left"], one["active_run"], one["projected_end"]) == (None, None, None)


def test_a_run_is_shown_as_committed_and_not_otherwise(client: TestClient, ledger: Ledger) -> None:
    run = ledger_data.start(ledger, "run-1")
    before = client.get("/v1/populations/aircraft").json()
    assert before["spent"]["epsilon"] == 0
    for _ in range(5):
        ledger_data.commit(run)
    ledger_data.void(run)
    one = client.get("/v1/populations/aircraft").json()
    assert one["spent"]["epsilon"] == pytest.approx(run.spent.epsilon(1e-5))
    assert one["committed"]["epsilon"] == pytest.approx(ledger.run("run-1").planned.epsilon(1e-5))
    assert one["committed"]["mu"] == pytest.approx(2 / ledger_data.SIGMA)
    assert (one["rounds_left"], one["active_run"], one["users"]) == (11, "run-1", ledger_data.USERS)
    assert one["projected_end"] is not None

    detail = client.get("/v1/runs/run-1").json()
    assert (detail["committed_rounds"], detail["void_rounds"], detail["cohort"]) == (5, 1, 50)
    assert detail["rejects"] == {"late": 10, "error reply": 7}
    assert (detail["score"], detail["score_name"]) == (0.64, "AUC")
    assert detail["noise_multiplier"] == pytest.approx(ledger_data.SIGMA)
    assert client.get("/v1/runs").json()["items"][0]["score"] == 0.64

    rounds = client.get("/v1/runs/run-1/rounds").json()["items"]
    assert [(r["index"], r["state"]) for r in rounds] == [(t, "committed") for t in range(5)] + [(5, "void")]
    assert rounds[0]["reports"] == 48
    series = client.get("/v1/runs/run-1/series").json()
    assert [p["round"] for p in series["points"]] == list(range(5))
    assert series["limit_epsilon"] == 8.0
    histogram = client.get("/v1/runs/run-1/participation").json()
    # 4 rounds of 48 distinct users, and a fifth with the first 48 again.
    assert (histogram["users"], histogram["allowed"], histogram["separation"]) == ([0, 144, 48], 4, 4)


def test_counts_of_a_round_that_was_open_are_not_lost(ledger: Ledger) -> None:
    """The open round has a lower number than ones that close before it."""
    counts = watch.RoundCounts(ledger.database)
    one, two = ledger_data.start(ledger, "run-1"), ledger_data.start(ledger, "run-2")
    opened = one.open_round([1, 2, 3])
    ledger_data.commit(two)
    assert counts.of() == (0, {})
    one.void_round(opened, "no reports", rejects={"late": 3})
    assert counts.of() == (1, {"late": 5})
    assert counts.of() == (1, {"late": 5})
    assert counts.of("run-2") == (0, {"late": 2})


def test_a_long_run_is_thinned_out(client: TestClient, ledger: Ledger) -> None:
    run = ledger_data.start(ledger, "run-1", rounds=40)
    for _ in range(40):
        ledger_data.commit(run)
    points = client.get("/v1/runs/run-1/series?points=10").json()["points"]
    assert len(points) <= 10
    assert points[0]["round"] == 0
    assert points[-1]["round"] == 39


def test_the_coordinator_sees_a_request(client: TestClient, ledger: Ledger) -> None:
    run = ledger_data.start(ledger, "run-1")
    admin = bearer(ledger, "read", "admin")
    assert client.post("/v1/runs/run-1/pause", headers=admin).json()["state"] == "paused"
    assert run.request() == "pause"
    assert client.post("/v1/runs/run-1/resume", headers=admin).status_code == 202
    assert run.request() is None
    assert client.post("/v1/runs/run-1/stop", headers=admin).json()["state"] == "stopping"
    assert run.request() == "stop"
    assert client.get("/v1/runs/run-1").json()["request"] == "stop"
    taken_back = client.post("/v1/runs/run-1/resume", headers=admin)
    assert (taken_back.status_code, taken_back.json()["type"]) == (409, "urn:fieldfare:problem:request-refused")
    run.finish("stopped", "on request")
    assert client.post("/v1/runs/run-1/stop", headers=admin).status_code == 409
    assert client.post("/v1/runs/none/stop", headers=admin).status_code == 404
    actors = [row["actor"] for row in client.get("/v1/audit").json()["items"] if row["event"] == "run.request"]
    assert actors == ["token officer"] * 3


def test_tokens_are_the_ledgers(client: TestClient, ledger: Ledger) -> None:
    secret, view = ledger.create_token("dashboard", ("read",), actor="test")
    headers = {"Authorization": f"Bearer {secret}"}
    assert client.get("/v1/me", headers=headers).json()["name"] == "dashboard"
    for wrong in (secret[:-1] + ("0" if secret[-1] != "0" else "1"), secret + "0", "ff_x", "x" * 5000):
        assert client.get("/v1/me", headers={"Authorization": f"Bearer {wrong}"}).status_code == 401
    uses = [row for row in client.get("/v1/audit").json()["items"] if row["event"] == "token.use"]
    assert [row["details"] for row in uses] == [{"id": view.id, "what": "read"}]
    assert secret not in client.get("/v1/audit/export").text
    ledger.revoke_token(view.id, actor="test")
    assert client.get("/v1/me", headers=headers).status_code == 401


def test_the_guarantee_says_what_was_charged(client: TestClient, ledger: Ledger) -> None:
    ledger_data.start(ledger, "run-1")
    card = client.get("/v1/runs/run-1").json()["guarantee"]
    facts = {fact["name"]: fact["value"] for fact in card["facts"]}
    assert facts["Noise multiplier"] == "4"
    assert "at most 4 of 16 rounds, at least 4 rounds apart" in facts["Participation"]
    assert facts["Sampling assumption"].startswith("none")
    epsilon = float(card["statement"].split("(")[1].split(",")[0])
    assert ledger.run("run-1").planned.epsilon(1e-5) <= epsilon <= ledger.run("run-1").planned.epsilon(1e-5) + 0.01
    assert any("server" in line for line in card["not_covered"])


def test_a_plan_of_another_version_still_has_a_card(client: TestClient, ledger: Ledger) -> None:
    described = ledger_data.plan()
    text = described.to_json().replace('"independent"', '"retired-kind"')
    ledger.start_run(
        NewRun(
            text,
            "00" * 32,
            "aircraft",
            16,
            ledger_data.PrivacyLoss(mu_squared=0.1),
            noise_source="secure-box-muller",
            key_commitment="k",
            trust_node_ids=True,
            id="old",
        ),
        holder="test",
    )
    detail = client.get("/v1/runs/old").json()
    assert any("another version" in fact["value"] for fact in detail["guarantee"]["facts"])
    assert any("lie" in line for line in detail["guarantee"]["not_covered"])
    assert client.get("/v1/runs/old/participation").json()["allowed"] is None


def test_a_changed_row_is_found_by_the_next_look(client: TestClient, ledger: Ledger) -> None:
    ledger_data.commit(ledger_data.start(ledger, "run-1"))
    assert client.get("/readyz").json()["status"] == "ok"
    verified = client.get("/v1/audit/verification").json()
    assert (verified["ok"], verified["rows"]) == (True, ledger.head().count)
    ledger_data.forge(ledger, "UPDATE audit SET actor = 'nobody' WHERE id = 2")
    admin = bearer(ledger, "admin")
    found = client.post("/v1/audit/verification", headers=admin).json()
    assert not found["ok"]
    assert "audit 2" in found["message"]
    assert client.get("/readyz").status_code == 503


def test_a_missing_end_is_found(ledger: Ledger) -> None:
    ledger_data.commit(ledger_data.start(ledger, "run-1"))
    watcher = Proof(ledger.database)
    assert watcher.advance().ok
    ledger_data.forge(ledger, "DELETE FROM audit WHERE id = (SELECT max(id) FROM audit)")
    assert "missing" in Proof(ledger.database).advance().fault
    ledger_data.forge(
        ledger, "UPDATE head SET count = count - 1, hash = (SELECT hash FROM audit ORDER BY id DESC LIMIT 1)"
    )
    # The head fits again, as after a restored backup; who has seen more still notices.
    assert "ends in row" in watcher.advance().fault


def test_a_chain_is_followed_a_bounded_number_of_rows_at_a_time(ledger: Ledger) -> None:
    run = ledger_data.start(ledger, "run-1")
    watcher = Proof(ledger.database)
    part = watcher.advance(2)
    assert (part.rows, part.ok, part.whole) == (2, True, False)
    ledger_data.commit(run)
    while not part.whole:
        part = watcher.advance(2)
        assert part.ok
    assert part.rows == ledger.head().count
    watcher.restart()
    assert watcher.advance(1).rows == 1


def test_a_ledger_that_goes_away_and_comes_back(
    client: TestClient, ledger: Ledger, ledger_url: str, request: pytest.FixtureRequest
) -> None:
    path = ledger.database.path
    if path is None:
        cluster: Cluster = request.getfixturevalue("postgres")
        away, back = cluster.stop, cluster.start
    else:
        elsewhere = path.with_suffix(".away")
        away, back = (lambda: path.rename(elsewhere)), (lambda: elsewhere.rename(path))  # type: ignore[assignment]
    away()
    try:
        assert client.get("/readyz").status_code == 503
        assert client.get("/v1/populations").status_code == 503
        assert client.get("/healthz").status_code == 200
    finally:
        back()
    assert client.get("/readyz").status_code == 200


def test_metrics_come_from_the_ledger(client: TestClient, ledger: Ledger) -> None:
    run = ledger_data.start(ledger, "run-1")
    ledger_data.commit(run)
    ledger_data.void(run)
    lines = client.get("/metrics").text.splitlines()
    assert 'fieldfare_rounds_total{state="committed"} 1.0' in lines
    assert 'fieldfare_rounds_total{state="void"} 1.0' in lines
    assert 'fieldfare_updates_rejected_total{reason="late"} 2.0' in lines
    assert 'fieldfare_runs{state="running"} 1.0' in lines
    assert 'fieldfare_rounds_left{population="aircraft"} 15.0' in lines
    assert "fieldfare_ledger_chain_ok 1.0" in lines
    assert "fieldfare_noise_self_test_failed_runs 0.0" in lines


def test_metrics_know_a_lost_lease_a_failed_self_test_and_a_broken_chain(
    client: TestClient, ledger: Ledger, ledger_url: str
) -> None:
    run = ledger_data.start(ledger, "run-1")
    ledger_data.start(ledger, "run-2")
    ledger.record_residual_test("run-1", {"passed": False}, actor="test")
    ledger.record_residual_test("run-2", {"passed": False}, actor="test")
    ledger.record_residual_test("run-2", {"passed": True}, actor="test")
    run.hand_back("gone")
    with ledger.database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE leases SET renewed_at = renewed_at - 1000, holder = 'elsewhere'")
    lines = client.get("/metrics").text.splitlines()
    assert 'fieldfare_runs{state="interrupted"} 2.0' in lines
    assert not [line for line in lines if line.startswith('fieldfare_runs{state="running"}')]
    assert "fieldfare_noise_self_test_failed_runs 1.0" in lines
    ledger_data.forge(ledger, "UPDATE audit SET actor = 'somebody else' WHERE id = 2")
    assert "fieldfare_ledger_chain_ok 0.0" in client_of(ledger_url).get("/metrics").text.splitlines()


def test_a_reader_in_the_middle_of_a_read_does_not_hold_a_commit_up(ledger: Ledger, ledger_url: str) -> None:
    run = ledger_data.start(ledger, "run-1")
    with Ledger.open(ledger_url) as other, other.database.read() as connection:
        seen = connection.exec_driver_sql("SELECT count(*) FROM rounds").scalar_one()
        ledger_data.commit(run)  # would wait for 60 s and fail if a reader could block it
        assert connection.exec_driver_sql("SELECT count(*) FROM rounds").scalar_one() == seen == 0


def test_notes_are_part_of_a_log_that_verifies(ledger: Ledger) -> None:
    run = ledger_data.start(ledger, "run-1")
    ledger_data.commit(run)
    _, token = ledger.create_token("dashboard", ("read",), actor="test")
    ledger.record_token_use(token.id, "read", actor="token dashboard")
    ledger.record_residual_test("run-1", {"passed": True, "scale": 1.0, "message": "whole"}, actor="test")
    ledger.revoke_token(token.id, actor="test")
    ledger.record_token_use(token.id, "read", actor="a request that was under way")
    report = verify(ledger)
    assert report.ok, report.fault
    with pytest.raises(BadInput):
        ledger.record_residual_test("none", {"passed": True}, actor="test")


def test_an_audit_is_stored_and_shown(client: TestClient, ledger: Ledger) -> None:
    ledger_data.commit(ledger_data.start(ledger, "run-1"))
    assert client.get("/v1/runs/run-1").json()["audit"] is None
    result = run_residual_test(ledger, "run-1", actor="test", numbers=2**19, grid_of=lambda plan: local_grid(plan, 2))
    assert result.residual.passed
    assert result.canaries is not None
    shown = client.get("/v1/runs/run-1").json()["audit"]
    assert shown["passed"]
    assert shown["scale"] == result.residual.scale
    # The whole plan is attacked, at a delta that some thousand scores resolve.
    assert shown["canaries"]["claimed"] == ledger.run("run-1").planned.epsilon(shown["canaries"]["delta"])
    assert abs(shown["canaries"]["gaussian_estimate"] - shown["canaries"]["claimed"]) < (
        5 * shown["canaries"]["gaussian_standard_error"]
    )
    assert [point["epsilon"] for point in shown["canaries"]["tradeoff"]] == [0.0, 0.5, 1.0, 2.0, 4.0]
    with pytest.raises(BadInput):
        run_residual_test(ledger, "none", actor="test")
