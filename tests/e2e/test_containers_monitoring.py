"""The profile `monitoring`: Prometheus takes the service's numbers with a token, and our rules fire on a deployment.

Grafana only draws what Prometheus holds, and is not started.
"""

from __future__ import annotations

import json
import urllib.error

import pytest
import yaml

from support.container_runs import plan
from support.containers import ROOT, Federation, wait_for

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(3600)]

SERVICES = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
IMAGE = SERVICES["prometheus"]["image"].partition(":-")[2].rstrip("}")
RULES = yaml.safe_load((ROOT / "deploy/monitoring/rules.yml").read_text())["groups"][0]["rules"]


def ask(federation: Federation, expression: str) -> list[tuple[dict[str, str], float]]:
    """The labels and values that Prometheus finds for an expression now."""
    command = ["promtool", "query", "instant", "--format=json", "http://localhost:9090", expression]
    return [(one["metric"], float(one["value"][1])) for one in json.loads(federation.exec("prometheus", *command))]


def firing(federation: Federation) -> set[str]:
    """Names of the alerts that fire now."""
    return {labels["alertname"] for labels, _ in ask(federation, 'ALERTS{alertstate="firing"}')}


def test_prometheus_scrapes_with_its_token_and_alerts_fire(federation: Federation) -> None:
    if not federation.engine("image", "ls", "--quiet", IMAGE).strip():
        federation.engine("pull", IMAGE, check=False)
    if not federation.engine("image", "ls", "--quiet", IMAGE).strip():
        pytest.skip(f"{IMAGE} is not here and cannot be pulled")
    federation.compose("--profile", "monitoring", "up", "--detach", "prometheus")
    wait_for(lambda: ask(federation, 'up{job="fieldfare"} == 1'))
    with pytest.raises(urllib.error.HTTPError, match="401"):
        federation.get("/metrics", token=None)
    loaded = federation.exec("prometheus", "promtool", "check", "rules", "/etc/prometheus/rules.yml")
    assert f"{len(RULES)} rules found" in loaded
    run = federation.submit(plan("watched", 4))
    federation.wait_done(run)
    spent = federation.get("/v1/populations/watched")["spent"]["epsilon"]
    wait_for(lambda: "FieldfareBudgetNearlySpent" in firing(federation), 120)
    told = ask(federation, 'fieldfare_privacy_epsilon_spent{population="watched"}')
    assert [value for _, value in told] == [pytest.approx(spent)]
    assert "FieldfareApiDown" not in firing(federation)
    federation.compose("stop", "api")
    try:
        wait_for(lambda: "FieldfareApiDown" in firing(federation), 240)
    finally:
        federation.compose("start", "api")
    wait_for(lambda: "FieldfareApiDown" not in firing(federation), 240)
