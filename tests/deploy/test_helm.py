"""The Helm chart renders the system of docker-compose.yml as Kubernetes understands it, and closes what that closes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from support.helm_chart import CHART, ChartError, lint, merged, render, renderer

pytestmark = pytest.mark.skipif(not renderer(), reason="needs helm, or Debian's golang-go and its sprig")

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
NODE = {"name": "clinic-a", "secret": "clinic-a", "config": 'partition-id=0 num-partitions=2 task="digits"'}
NODES = {"nodes": [NODE, {**NODE, "name": "clinic-b", "secret": "clinic-b", "image": "clinic-b/node:1"}]}
CLOSED = {"ledger": {"enabled": False, "externalTo": [{"ipBlock": {"cidr": "10.0.0.7/32"}}]}}
OPEN = {"gate": {"from": [{"ipBlock": {"cidr": "203.0.113.0/24"}}], "serviceType": "LoadBalancer"}}
TLS = {"api": {"tlsSecret": "page-tls", "hosts": ["fl.example.org"], "from": [{"podSelector": {}}]}}
COMBINATIONS = [{}, NODES, CLOSED, OPEN, TLS, {**NODES, **CLOSED, **OPEN, **TLS}]

Objects = dict[tuple[str, str], dict[str, Any]]


def objects(values: dict[str, Any]) -> Objects:
    return {(o["kind"], o["metadata"]["name"]): o for o in render(values)}


def pods(found: Objects) -> dict[str, dict[str, Any]]:
    return {name: o["spec"]["template"] for (_, name), o in found.items() if "template" in o.get("spec", {})}


@pytest.mark.parametrize("values", COMBINATIONS, ids=range(len(COMBINATIONS)))
@pytest.mark.parametrize("version", ["1.27", "1.34"])
def test_every_object_is_one_that_kubernetes_knows(values: dict[str, Any], version: str) -> None:
    found = render(values)
    assert len({(o["kind"], o["metadata"]["name"]) for o in found}) == len(found) > 20
    for one in found:
        kubernetes_validate.validate(one, version, strict=True)


SCHEMA = json.loads((CHART / "values.schema.json").read_text())


@pytest.mark.parametrize("values", COMBINATIONS, ids=range(len(COMBINATIONS)))
def test_helm_takes_the_values_that_there_are(values: dict[str, Any]) -> None:
    jsonschema.validate(merged(yaml.safe_load((CHART / "values.yaml").read_text()), values), SCHEMA)


@pytest.mark.parametrize(
    "wrong",
    [
        {"ledger": {"enable": False}},
        {"gate": {"serviceType": "Loadbalancer"}},
        {"nodes": [{"name": "x", "config": ""}]},
        {"nodes": [{**NODE, "name": "Clinic A"}]},
        {"coordinator": {"storage": "20 GB"}},
        {"password": "secret"},
    ],
)
def test_helm_refuses_values_that_nobody_reads(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(merged(yaml.safe_load((CHART / "values.yaml").read_text()), wrong), SCHEMA)


@pytest.mark.skipif(renderer() != "helm", reason="needs helm")
@pytest.mark.parametrize("values", COMBINATIONS, ids=range(len(COMBINATIONS)))
def test_helm_itself_finds_nothing(values: dict[str, Any]) -> None:
    assert "0 chart(s) failed" in lint(values)


def test_a_wrong_object_would_not_pass() -> None:
    wrong = objects({})["Deployment", "gate"]
    wrong["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": "eight"}]
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.34", strict=True)


def flags(command: list[str]) -> set[str]:
    """What a Flower program is told, but for addresses, which differ between the two."""
    return {
        flag.split("=")[0] if "host" in flag or "address" in flag else flag
        for flag in command
        if flag[:2] == "--" != flag
    }


@pytest.mark.parametrize("name", ["superlink", "coordinator", "supervisor", "gate", "node-1", "executor-1"])
def test_services_run_what_compose_runs(name: str) -> None:
    found = pods(objects({"nodes": [{**NODE, "name": "1", "config": "x"}]}))
    pod = found["node-1" if name == "executor-1" else name]["spec"]
    there = pod["containers"][1 if name == "executor-1" else 0]
    ours = [*COMPOSE[name].get("entrypoint", []), *COMPOSE[name].get("command", [])]
    config = {flag for flag in flags(ours) if flag.startswith("--node-config")}
    theirs = {flag for flag in flags(there["command"]) if not flag.startswith("--node-config")}
    assert theirs == flags(ours) - config
    programs = {"flower-superlink", "flower-superexec", "supervise", "/etc/gate/start.sh"}
    programs |= {"fieldfare_flower.coordinator", "fieldfare_flower.supernode", "fieldfare_flower.warm"}
    assert programs & set(there["command"]) == programs & set(ours) != set()


def test_the_gate_decides_by_the_very_files_that_compose_mounts() -> None:
    data = objects({})["ConfigMap", "gate"]["data"]
    for name in ("nginx.conf", "start.sh"):
        assert data[name].strip() == (ROOT / "deploy/gate" / name).read_text().strip()


@pytest.mark.parametrize("values", [NODES, {**NODES, **TLS}])
def test_every_container_is_confined_and_probed(values: dict[str, Any]) -> None:
    for name, pod in pods(objects(values)).items():
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        # A recursive change of groups at each mount would make noise keys readable by a group, which is refused.
        assert spec["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            limits = container["securityContext"]
            assert (limits["readOnlyRootFilesystem"], limits["allowPrivilegeEscalation"]) == (True, False)
            assert limits["capabilities"] == {"drop": ["ALL"]}
            assert "readinessProbe" in container or name.startswith(("migrate", "register"))
            assert re.fullmatch(r"\d+[MG]i", container["resources"]["limits"]["memory"]), name
            assert ":latest" not in container["image"]
            assert re.search(r":[\w.]+$", container["image"])
            assert all(m.get("readOnly") for m in container["volumeMounts"] if m["name"] in ("secrets", "tls"))


def test_a_nodes_own_limits_replace_the_common_ones() -> None:
    own = {"limits": {"memory": "16Gi"}}
    found = pods(objects({"nodes": [NODE, {**NODE, "name": "large", "resources": own}]}))
    limits = {
        name: {container["resources"]["limits"]["memory"] for container in found[name]["spec"]["containers"]}
        for name in ("node-clinic-a", "node-large")
    }
    assert limits == {"node-clinic-a": {"4Gi"}, "node-large": {"16Gi"}}


def test_secrets_are_named_and_never_values() -> None:
    found = objects(NODES)
    assert not [kind for kind, _ in found if kind == "Secret"]
    mounted = {
        name: {v["secret"]["secretName"] for v in pod["spec"]["volumes"] if "secret" in v}
        for name, pod in pods(found).items()
    }
    values = yaml.safe_load((CHART / "values.yaml").read_text())["secrets"]
    parties = {"supervisor": "coordinator", "migrate-1": "migrate"}
    for name, secrets in mounted.items():
        if name == "register-1":
            assert not secrets
        elif name.startswith("node-"):
            assert secrets == {name.removeprefix("node-")}
        else:
            assert secrets == {values[parties.get(name, name)]}, "one party's secrets, and no other's"


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    return all(labels.get(name) == value for name, value in selector.get("matchLabels", {}).items())


def reachable(found: Objects, source: str, target: str) -> set[int]:
    """Ports at which the policies let pod `source` reach pod `target`: egress and ingress must both allow it."""
    labels = {name: pod["metadata"]["labels"] for name, pod in pods(found).items()}
    policies = [o["spec"] for (kind, _), o in found.items() if kind == "NetworkPolicy"]

    def ports(kind: str, at: str, peer: str, key: str) -> set[int]:
        applying = [p for p in policies if kind in p["policyTypes"] and selects(p["podSelector"], labels[at])]
        assert applying, f"nothing closes {kind} of {at}"
        return {
            port["port"]
            for policy in applying
            for rule in policy.get(kind.lower(), [])
            if any("podSelector" in one and selects(one["podSelector"], labels[peer]) for one in rule[key])
            for port in rule["ports"]
        }

    return ports("Egress", source, target, "to") & ports("Ingress", target, source, "from")


def test_nodes_reach_the_gate_and_nothing_else_and_only_those_reach_who_must() -> None:
    found = objects(NODES)
    names = list(pods(found))
    allowed = {(a, b): p for a in names for b in names if a != b and (p := reachable(found, a, b))}
    link = {(name, "superlink"): {8000} for name in ("gate", "coordinator", "supervisor", "register-1")}
    books = {(name, "ledger"): {5432} for name in ("coordinator", "supervisor", "api", "admin", "migrate-1")}
    nodes = {(name, "gate"): {8000} for name in ("node-clinic-a", "node-clinic-b")}
    assert allowed == link | books | nodes


def test_the_outside_reaches_only_what_was_opened() -> None:
    def outside(values: dict[str, Any]) -> set[str]:
        return {name for kind, name in objects(values) if kind == "NetworkPolicy" and name.startswith("outside")}

    assert outside({}) == set()
    assert outside({**OPEN, **TLS}) == {"outside-to-gate", "outside-to-api"}
    services = {
        name: o["spec"].get("type", "ClusterIP") for (kind, name), o in objects(OPEN).items() if kind == "Service"
    }
    assert {name for name, kind in services.items() if kind != "ClusterIP"} == {"gate"}


def test_each_service_and_workload_selects_its_own_pods() -> None:
    found = objects(NODES)
    labels = {name: pod["metadata"]["labels"] for name, pod in pods(found).items()}
    for (kind, name), one in found.items():
        selector = (
            {"matchLabels": one["spec"]["selector"]} if kind == "Service" else one.get("spec", {}).get("selector")
        )
        if selector:
            assert [pod for pod in labels if selects(selector, labels[pod])] == [name]


def test_an_own_database_must_be_said_and_replaces_the_one_in_the_chart() -> None:
    with pytest.raises(ChartError, match="where the database is"):
        render({"ledger": {"enabled": False}})
    found = objects(CLOSED)
    assert ("StatefulSet", "ledger") not in found
    assert found["NetworkPolicy", "coordinator-to-database"]["spec"]["egress"][0]["ports"] == [{"port": 5432}]


def test_what_a_node_remembers_of_the_ledger_outlasts_its_pod() -> None:
    """It lay in a volume that goes with the pod: a new pod took an older ledger for the first that it saw."""
    found = objects(NODES)
    for name in ("node-clinic-a", "node-clinic-b"):
        pod = found["Deployment", name]["spec"]["template"]["spec"]
        (executor,) = (each for each in pod["containers"] if each["name"] == "executor")
        (witness,) = (each["value"] for each in executor["env"] if each["name"] == "FIELDFARE_WITNESS")
        (mount,) = (each for each in executor["volumeMounts"] if witness.startswith(f"{each['mountPath']}/"))
        (volume,) = (each for each in pod["volumes"] if each["name"] == mount["name"])
        assert not mount.get("readOnly")
        claim = found["PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]]
        assert claim["metadata"]["labels"]["fieldfare/node"] == name.removeprefix("node-")


def test_only_the_executor_has_a_nodes_data() -> None:
    claim = {"persistentVolumeClaim": {"claimName": "visits"}}
    node = {**NODE, "data": claim, "env": [{"name": "FIELDFARE_DEVICE", "value": "cuda"}]}
    found = objects({"nodes": [node]})
    for one in found.values():
        kubernetes_validate.validate(one, "1.34", strict=True)
    pod = pods(found)["node-clinic-a"]["spec"]
    supernode, executor = pod["containers"]
    assert {"name": "data", **claim} in pod["volumes"]
    assert {"name": "data", "mountPath": "/data", "readOnly": True} in executor["volumeMounts"]
    assert "data" not in {mount["name"] for mount in supernode["volumeMounts"]}
    assert {"name": "FIELDFARE_DEVICE", "value": "cuda"} in executor["env"]
    assert "env" not in supernode


@pytest.mark.parametrize("values", [{}, TLS])
def test_the_api_is_ready_when_it_says_so(values: dict[str, Any]) -> None:
    (container,) = pods(objects(values))["api"]["spec"]["containers"]
    for probe, path in (("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")):
        asked = container[probe]
        if values:
            assert asked["httpGet"]["path"] == path
            assert asked["httpGet"]["httpHeaders"] == [{"name": "Host", "value": "localhost"}]
        else:
            assert asked["exec"]["command"][-1].endswith(path)


def test_another_gate_file_is_another_gate() -> None:
    gate = pods(objects({}))["gate"]
    assert re.fullmatch("[0-9a-f]{64}", gate["metadata"]["annotations"]["checksum/config"])
    (tmp,) = [volume for volume in gate["spec"]["volumes"] if volume["name"] == "tmp"]
    assert tmp["emptyDir"] == {"sizeLimit": "256Mi"}


def test_a_node_without_its_secret_is_refused() -> None:
    with pytest.raises(ChartError, match="secret"):
        render({"nodes": [{"name": "x", "config": ""}]})
