"""Alert rules, dashboard and scrape settings: they ask for what the service says, and fire when they should."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient

from fieldfare_server.api import Settings, create_app
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.rules.populations import Rules
from fieldfare_server.ledger.sql import backups
from fieldfare_server.run.presence.failures import JOURNAL
from fieldfare_server.run.presence.standing import QUARANTINED
from support.ledgers import commit, start

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "deploy/monitoring"
RULES = yaml.safe_load((MONITORING / "rules.yml").read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((MONITORING / "grafana/dashboards/fieldfare.json").read_text())

promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian: prometheus)")


def expressions() -> dict[str, str]:
    asked = {rule["alert"]: rule["expr"] for rule in RULES}
    panels = {f"{p['title']} {t['refId']}": t["expr"] for p in DASHBOARD["panels"] for t in p["targets"]}
    return asked | panels


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What /metrics says of a ledger with a run, a committed round, and a refused reply; after one request."""
    copies = tmp_path_factory.mktemp("copies")
    with Ledger.open(f"sqlite:///{tmp_path_factory.mktemp('l') / 'ledger.sqlite3'}", create=True) as ledger:
        rules = Rules(reservation_seconds=3600.0)
        ledger.create_population("people", 4.0, 1e-6, rules=rules, actor="test")
        run = start(ledger, 0.8)
        run.register_users(range(3))
        commit(run, [0, 1], 0.4)
        run.void_round(run.open_round([2]), "too few", reports=0, rejects={"late": 1, JOURNAL: 1, QUARANTINED: 1})
        backups.make(ledger.url, copies)
        app = create_app(ledger.url, Settings(), backups=copies)
        with TestClient(app, base_url="http://localhost", client=("127.0.0.1", 1)) as client:
            client.get("/v1/runs")
            return str(client.get("/metrics").text)


def test_of_two_reservations_the_one_that_goes_first_is_told(tmp_path: Path) -> None:
    """Both runs have been silent for 50 seconds: one has half of its time left, the other nearly all."""
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    with Ledger.open(url, create=True, clock=lambda: time.time() - 50.0) as ledger:
        for name, seconds in (("soon", 100.0), ("late", 1e6)):
            ledger.create_population(name, 4.0, 1e-6, rules=Rules(reservation_seconds=seconds), actor="test")
            start(ledger, 0.8, population=name)
    app = create_app(url, Settings())
    with TestClient(app, base_url="http://localhost", client=("127.0.0.1", 1)) as client:
        (told,) = re.findall(r"^fieldfare_reservation_left_ratio (\S+)$", client.get("/metrics").text, re.M)
    assert 0.2 < float(told) <= 0.5


@pytest.mark.parametrize("where", expressions())
def test_every_metric_that_is_asked_for_exists(where: str, metrics: str) -> None:
    exposed = {re.split(r"[{ ]", line)[0] for line in metrics.splitlines() if not line.startswith("#")}
    asked = set(re.findall(r"\bfieldfare_\w+", expressions()[where]))
    assert asked or "up{" in expressions()[where]
    assert asked <= exposed


@pytest.mark.parametrize("where", expressions())
def test_every_label_that_is_asked_for_exists(where: str, metrics: str) -> None:
    for name, label, value in re.findall(r'\b(fieldfare_\w+)\{(\w+)="([^"]+)"\}', expressions()[where]):
        values = re.findall(rf'^{name}\{{.*{label}="([^"]+)"', metrics, re.M)
        assert values, f"{name} has no label {label}"
        # A ledger without such a run has no such series: its name must then be one of the states there are.
        assert value in {*values, "running", "interrupted"}


def test_each_alert_says_how_bad_it_is_and_what_to_do() -> None:
    for rule in RULES:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "action"}
    tested = (MONITORING / "rules.test.yml").read_text()
    assert all(tested.count(rule["alert"]) >= 2 for rule in RULES), "each must be seen to fire and seen to be quiet"


def test_the_dashboard_asks_the_provisioned_source_and_its_panels_do_not_overlap() -> None:
    source = yaml.safe_load((MONITORING / "grafana/provisioning/datasources/prometheus.yml").read_text())
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        assert {panel["datasource"]["uid"], *(t["datasource"]["uid"] for t in panel["targets"])} == {
            source["datasources"][0]["uid"]
        }
        g = panel["gridPos"]
        cells = {(x, y) for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])}
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_prometheus_scrapes_where_compose_serves_with_the_token_that_it_keeps() -> None:
    compose: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    (job,) = yaml.safe_load((MONITORING / "prometheus.yml").read_text())["scrape_configs"]
    kept = compose["api"]["command"][compose["api"]["command"].index("--metrics-token") + 1]
    (volume,) = (v.split(":")[0] for v in compose["api"]["volumes"] if v.split(":")[1] == str(Path(kept).parent))
    mounted = f"{volume}:{Path(job['authorization']['credentials_file']).parent}:ro"
    assert mounted in compose["prometheus"]["volumes"]
    assert Path(kept).name == Path(job["authorization"]["credentials_file"]).name
    assert job["static_configs"][0]["targets"] == ["api:8080"]
    assert "api" in compose["api"]["command"]  # the host name it answers to
    for name in ("prometheus", "grafana"):
        assert compose[name]["profiles"] == ["monitoring"]
        assert re.search(r":v?\d+\.\d+\.\d+\}$", compose[name]["image"])
        assert all(port.startswith("127.0.0.1:") for port in compose[name].get("ports", []))


@promtool
def test_rules_and_settings_are_what_prometheus_understands() -> None:
    for arguments in (["check", "rules", "rules.yml"], ["check", "config", "--syntax-only", "prometheus.yml"]):
        done = subprocess.run(["promtool", *arguments], cwd=MONITORING, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@promtool
def test_each_rule_fires_on_its_fault_and_not_without() -> None:
    command = ["promtool", "test", "rules", "rules.test.yml"]
    done = subprocess.run(command, cwd=MONITORING, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
