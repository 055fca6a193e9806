"""Machines apart: what each side's compose file opens, and that it runs what the one-machine file runs."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]


def load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / name).read_text())
    return loaded


BASE, OVER, NODE = load("docker-compose.yml"), load("deploy/apart/server.yml"), load("deploy/apart/node.yml")
BLINDER = load("deploy/apart/blinder.yml")
FILES = {"base": BASE, "node": NODE, "insecure": load("deploy/compose.insecure.yml"), "server": OVER}


def target(mount: str) -> str:
    return mount.removesuffix(":ro").rpartition(":")[2]


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """As Compose does: commands and scalars replace, volumes replace by target, ports and networks add up."""
    made: dict[str, Any] = {**base, "networks": {**base["networks"], **over.get("networks", {})}}
    made["services"] = {name: dict(one) for name, one in base["services"].items()}
    for name, changes in over["services"].items():
        one = made["services"].setdefault(name, {})
        for key, value in changes.items():
            if key == "volumes":
                value = [m for m in one.get(key, []) if target(m) not in {target(v) for v in value}] + value
            elif key in ("ports", "networks", "profiles"):
                value = [*one.get(key, []), *(v for v in value if v not in one.get(key, []))]
            one[key] = value
    return made


SERVER = merged(BASE, OVER)


def started(file: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in file["services"].items() if not one.get("profiles")}


@pytest.mark.parametrize("file", [BASE, SERVER, NODE, BLINDER], ids=["base", "server", "node", "blinder"])
def test_what_is_named_is_there_and_every_service_is_confined(file: dict[str, Any]) -> None:
    for name, one in file["services"].items():
        assert set(one.get("networks", [])) <= file["networks"].keys(), name
        for mount in one.get("volumes", []):
            source = mount.split(":")[0]
            if source[0] not in "./$":
                assert source in file["volumes"], name
            elif source.startswith("./deploy"):
                assert (ROOT / source).exists(), name
        assert one["read_only"] is True, name
        assert one["cap_drop"] == ["ALL"], name
        assert one["security_opt"] == ["no-new-privileges:true"], name
        # PostgreSQL's image starts as root and steps down by itself; secrets are written for other users.
        rights = {"ledger": {"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"}, "backup": {"DAC_OVERRIDE"}}
        secrets = {"CHOWN", "DAC_OVERRIDE", "FOWNER"} if "secrets" in name else set()
        assert set(one.get("cap_add", [])) == rights.get(name, secrets), name


UNITS = {"m": 1 << 20, "g": 1 << 30}


def size(text: str) -> int:
    """Bytes of a limit, or of its default where it is the operator's choice."""
    text = re.sub(r"\$\{\w+:-(\w+)\}", r"\1", text)
    return int(text[:-1]) * UNITS[text[-1]]


@pytest.mark.parametrize("file", [BASE, SERVER, NODE, BLINDER], ids=["base", "server", "node", "blinder"])
def test_every_service_has_limits(file: dict[str, Any]) -> None:
    for name, one in file["services"].items():
        assert 64 << 20 <= size(one["mem_limit"]) <= 4 << 30, name
        assert one["memswap_limit"] == one["mem_limit"], f"{name} could write a key to swap"
        assert 64 <= one["pids_limit"] <= 512, name
        # What a service may keep in memory as files counts against its limit.
        tmpfs = [one["tmpfs"]] if isinstance(one["tmpfs"], str) else one["tmpfs"]
        sized = [size(found[1]) for mount in tmpfs if (found := re.search(r"size=(\w+)", mount))]
        assert sum(sized) < size(one["mem_limit"]), name


@pytest.mark.parametrize("name", ["insecure", "server"])
def test_overlays_change_only_services_that_there_are(name: str) -> None:
    assert FILES[name]["services"].keys() <= BASE["services"].keys()


def test_the_server_publishes_the_gate_and_nothing_else_beyond_loopback() -> None:
    published = {name: one["ports"] for name, one in SERVER["services"].items() if "ports" in one}
    assert published.pop("gate") == ["${FIELDFARE_GATE_PORT:-8000}:8000"]
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)
    assert not any("node" in name or "executor" in name for name in started(SERVER))
    # Docker publishes no port of a service that is on internal networks only.
    assert not all((SERVER["networks"][n] or {}).get("internal") for n in SERVER["services"]["gate"]["networks"])
    for name in ("superlink", "coordinator", "supervisor", "ledger"):
        assert all(SERVER["networks"][n].get("internal") for n in SERVER["services"][name]["networks"]), name


def test_the_gates_certificate_is_for_the_name_that_nodes_use_and_its_public_part_is_carried() -> None:
    command = SERVER["services"]["server-secrets"]["command"]
    named = [command[i + 1] for i, word in enumerate(command) if word == "--gate-host"]
    assert any(name.startswith("${FIELDFARE_GATE:?") for name in named)
    for name in ("server-secrets", "register"):
        mounts = [m for m in SERVER["services"][name]["volumes"] if target(m) == "/exchange"]
        assert [m.split(":")[0] for m in mounts] == ["./exchange"], name
    assert {target(m) for m in SERVER["services"]["server-secrets"]["volumes"]} >= {"/secrets/gate", "/exchange"}


def test_a_node_goes_out_to_the_gate_and_its_data_go_nowhere() -> None:
    services = NODE["services"]
    assert not any("ports" in one for one in services.values())
    assert services["node"]["networks"] == ["outside", "inside"]
    assert services["executor"]["networks"] == ["inside"]
    assert NODE["networks"]["inside"] == {"internal": True}
    seen = {name for name, one in services.items() if any(target(m) == "/data" for m in one["volumes"])}
    assert seen == {"executor"}
    assert services["secrets"]["network_mode"] == "none"
    assert all(
        "superlink" not in word.replace("--superlink=${FIELDFARE_GATE}", "") for word in services["node"]["command"]
    )


@pytest.mark.parametrize(("apart", "together"), [("node", "node-1"), ("executor", "executor-1")])
def test_a_node_apart_runs_what_a_node_of_one_machine_runs(apart: str, together: str) -> None:
    def plain(command: list[str]) -> list[str]:
        words = [word for word in command if not word.startswith("--node-config")]
        return [w.replace("${FIELDFARE_GATE}", "gate:8000").replace("node-1:9094", "node:9094") for w in words]

    here, there = plain(NODE["services"][apart]["command"]), plain(BASE["services"][together]["command"])
    assert [w for w in here if not w.startswith("${FIELDFARE_GATE:?")] == [w for w in there if w != "gate:8000"]
    assert (
        NODE["services"][apart].get("environment", {}).keys() - {"FIELDFARE_BUDGET", "FIELDFARE_CODE"}
        == BASE["services"][together].get("environment", {}).keys()
    )


def test_the_blinder_shares_nothing_with_the_server_and_starts_no_app() -> None:
    """A project, user, volume and network of its own; no executor, and no published port."""
    services, node = BLINDER["services"], NODE["services"]["node"]
    assert BLINDER["name"] not in (NODE["name"], BASE.get("name"))
    assert set(services) == {"secrets", "init", "blinder"}
    assert not any("ports" in one for one in services.values())
    assert services["blinder"]["user"] == services["init"]["user"] == "49998:49998"
    assert not any("executor" in word or word == "superexec" for word in services["blinder"]["command"])
    assert services["blinder"]["environment"]["FIELDFARE_BLINDER"].startswith("/state/")
    mounts = {name: {target(mount) for mount in one["volumes"]} for name, one in services.items()}
    assert mounts["init"] == {"/state"}
    assert mounts["blinder"] == {"/state", "/secrets", "/exchange"}
    # What it gives to Flower's node is what a node gives, but for what names an executor's isolation and the task.
    words = [word for word in node["command"] if word.startswith("--") and word != "--"]
    left_out = ("--isolation", "--node-config", "--host")
    assert {word for word in words if not word.startswith(left_out)} <= set(services["blinder"]["command"])
    parser = import_module("flwr.supernode.cli.flower_supernode")._parse_args_run_supernode()
    assert not parser.parse_known_args([word for word in services["blinder"]["command"] if word.startswith("--s")])[1]
