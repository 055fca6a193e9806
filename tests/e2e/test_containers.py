"""The compose file, really started: what nodes reach, a run to its end, and a coordinator killed on the way.

`make containers-test` runs this, and the longer tests of the files beside it. CONTAINERS_ROUNDS: how long the long run
is.
"""

from __future__ import annotations

import json
import os
import urllib.error
from pathlib import Path
from typing import Any

import pytest

from support.container_runs import check_run, plan, run_alone
from support.containers import LET_IN, Federation, wait_for

pytestmark = [pytest.mark.containers, pytest.mark.timeout(3600)]

ROUNDS = int(os.environ.get("CONTAINERS_ROUNDS", "8"))

REQUESTS = """
import json, socket, ssl, sys
context = ssl.create_default_context(cafile="/exchange/ca.crt")
found = []
for request in json.load(open("/tmp/requests.json")):
    try:
        with context.wrap_socket(socket.create_connection(("gate", 8000), 10), server_hostname="gate") as link:
            link.sendall(request.encode("latin-1"))
            link.settimeout(10)
            found.append(link.recv(64).split(b" ")[1].decode())
    except (OSError, IndexError):
        found.append("cut")
print(json.dumps(found))
"""

DISGUISES = [
    "/v1/control/start-run",
    "/v1/control/list-runs",
    "/v1/runtime/acquire-task",
    "/v1/runtime/push-task-output",
    "/docs",
    "/openapi.json",
    "/",
    "//v1/control/list-runs",
    "/v1//control/list-runs",
    "/v1/fleet/../control/list-runs",
    "/v1/fleet/%2e%2e/control/list-runs",
    "/v1/fleet/..%2fcontrol/list-runs",
    "/v1%2fcontrol%2flist-runs",
    "/v1/fleet/./../control/list-runs",
    "/v1/fleet/pull-messages/../../control/list-runs",
    "/v1/fleet/pull-messages;/../../control/list-runs",
    "/v1/fleet/pull-messages?/v1/control/list-runs",
    "/v1/fleet/pull-messages#/../../control/list-runs",
    "/health/../v1/control/list-runs",
    "/health%00/v1/control/list-runs",
    "/health?x",
    "/V1/CONTROL/LIST-RUNS",
    "/V1/fleet/pull-messages",
    "/v1\\control\\list-runs",
    "http://superlink:8000/v1/control/list-runs",
    "https://gate:8000/v1/control/list-runs",
    "superlink:8000/v1/control/list-runs",
]


def ask(federation: Federation, requests: list[str]) -> list[str]:
    """Status codes of raw requests ("cut": none) that node-1 sends to the gate."""
    federation.exec("node-1", "sh", "-c", "cat >/tmp/requests.json", stdin=json.dumps(requests).encode())
    found: list[str] = json.loads(federation.python("node-1", REQUESTS))
    return found


def request(path: str, method: str = "POST", headers: str = "", body: str = "") -> str:
    kind = "Content-Type: application/protobuf\r\n"
    return f"{method} {path} HTTP/1.1\r\nHost: gate:8000\r\n{kind}{headers}Content-Length: {len(body)}\r\n\r\n{body}"


def test_nodes_reach_the_fleet_api_and_nothing_else_of_the_superlink(federation: Federation) -> None:
    wait_for(lambda: ask(federation, [request("/health", "GET")]) == ["200"], 120)
    # Flower itself answers what the gate lets through: an unsigned request to the Fleet API is 401.
    assert ask(federation, [request("/v1/fleet/pull-messages")]) == ["401"]
    assert ask(federation, [request("http://gate:8000/v1/fleet/pull-messages")]) == ["401"]
    refused = ask(federation, [request(path) for path in DISGUISES])
    assert dict(zip(DISGUISES, refused, strict=True)) == {
        path: status for path, status in zip(DISGUISES, refused, strict=True) if status in ("404", "400")
    }
    methods = [request("/v1/fleet/pull-messages", method) for method in ("GET", "PUT", "CONNECT", "TRACE", "post")]
    assert not {"200", "401"} & set(ask(federation, methods))
    # Two requests in one: what a lenient parser behind a strict one would take for the second.
    inner = request("/v1/control/list-runs")
    smuggled = [
        request("/v1/fleet/pull-messages", headers="Transfer-Encoding: chunked\r\n", body=f"0\r\n\r\n{inner}"),
        request("/v1/fleet/pull-messages", headers="Transfer-Encoding : chunked\r\n", body=f"0\r\n\r\n{inner}"),
        request("/v1/fleet/pull-messages", headers="Content-Length: 1\r\n"),
        request("/v1/fleet/pull-messages", headers="X-Original-URL: /v1/control/list-runs\r\n"),
        request("/v1/fleet/pull-messages", headers="Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n"),
    ]
    assert "200" not in ask(federation, smuggled)
    large = "POST /v1/fleet/push-object HTTP/1.1\r\nHost: gate\r\nContent-Length: 99999999999\r\n\r\n"
    assert ask(federation, [large]) == ["413"]
    seen = federation.logs("superlink")
    assert "/v1/fleet/pull-messages" in seen
    assert "/v1/control/list-runs" not in seen


CONNECT = """
import json, socket, sys
reached = []
for address, port in json.loads(sys.argv[1]):
    try:
        socket.create_connection((address, port), 3).close()
        reached.append((address, port))
    except OSError:
        pass
print(json.dumps(reached))
"""


def test_a_node_cannot_reach_the_superlink_or_anybody_else(federation: Federation) -> None:
    ports = {"superlink": 8000, "coordinator": 8000, "ledger": 5432, "api": 8080, "node-2": 9094, "gate": 8000}
    asked = [federation.container(service) for service in ports]
    networks = federation.engine("inspect", "--format", "{{json .NetworkSettings.Networks}}", *asked).splitlines()
    there: dict[str, list[list[Any]]] = {
        service: [[service, port], *([network["IPAddress"], port] for network in json.loads(said).values())]
        for (service, port), said in zip(ports.items(), networks, strict=True)
    }
    gate = there.pop("gate")
    assert len(gate) == 4
    places = [place for found in there.values() for place in found]
    reached = json.loads(federation.exec("node-1", "python", "-c", CONNECT, json.dumps(places + gate)))
    assert [place for place in reached if place in places] == []
    # The gate is reached by its name and at one of its addresses: those on other networks are out of reach too.
    assert len(reached) == 2


POSTGRES = sum(1 << bit for bit in (0, 1, 3, 6, 7))
"""CHOWN, DAC_OVERRIDE, FOWNER, SETGID and SETUID, as linux/capability.h numbers them."""


def test_every_service_is_confined_as_the_compose_file_says(federation: Federation) -> None:
    """The limits are read from the engine and from the kernel, not from the file."""
    services = ("ledger", "gate", "superlink", "coordinator", "supervisor", "api", "node-1", "executor-1")
    for service in services:
        wait_for(lambda service=service: federation.main_process(service))  # type: ignore[misc]
    asked = [federation.container(service) for service in services]
    limits = federation.engine("inspect", "--format", "{{json .HostConfig}}", *asked).splitlines()
    for service, limit in zip(services, limits, strict=True):
        host = json.loads(limit)
        assert 0 < host["Memory"] <= 4 << 30, service
        assert 0 < host["PidsLimit"] <= 512, service
        said = federation.say(service, "sh", "-c", "cat /proc/1/status; touch /probe /usr/probe /etc/probe")
        fields = dict(line.split(":\t", 1) for line in said.splitlines() if ":\t" in line)
        assert int(fields["CapBnd"], 16) == (POSTGRES if service == "ledger" else 0), service
        assert fields["NoNewPrivs"] == "1", service
        assert said.count("Read-only file system") == 3, (service, said)
    # PostgreSQL itself has stepped down: what clients talk to can do nothing.
    server = federation.exec(
        "ledger", "sh", "-c", "cat /proc/$(head -1 /var/lib/postgresql/data/postmaster.pid)/status"
    )
    assert int(dict(line.split(":\t", 1) for line in server.splitlines() if ":\t" in line)["CapEff"], 16) == 0


UNKNOWN_KEY = '"path":"/v1/fleet/activate-node","status":412'


def test_a_node_whose_key_is_not_registered_is_refused(federation: Federation) -> None:
    before = federation.logs("gate").count(UNKNOWN_KEY)
    federation.exec(
        "node-1", "fieldfare", "certificates", "node", "/tmp/stranger", "--exchange", "/tmp/x", "--name", "stranger"
    )
    command = ["timeout", "120", "flower-supernode", "--superlink=gate:8000", "--root-certificates=/exchange/ca.crt"]
    private = ["--auth-supernode-private-key=/tmp/stranger/node", "--host=127.0.0.1", "--port=9999"]
    runtime = [f"--ssl-{k}=/tmp/stranger/runtime{v}" for k, v in (("certfile", ".crt"), ("keyfile", ".key"))]
    authority = ["--ssl-ca-certfile=/tmp/stranger/runtime-ca.crt", "--isolation=process"]
    said = federation.say("node-1", *command, *private, *runtime, *authority)
    assert LET_IN not in said
    assert federation.logs("gate").count(UNKNOWN_KEY) > before


def test_a_run_whose_coordinator_is_killed_ends_with_the_numbers_of_one_process(
    federation: Federation, tmp_path: Path
) -> None:
    text = plan("people", ROUNDS)
    alone = run_alone(text, tmp_path)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        federation.get("/v1/populations", token=None)
    run = federation.submit(text)
    federation.wait_open(run, 2)
    federation.kill("coordinator")
    federation.wait_done(run)
    # Drawn again, or, if its checkpoint was complete, committed as it was going to be.
    resumes = f"SELECT count(*) FROM audit WHERE action = 'run.resume' AND run = '{run}'"
    assert federation.sql(resumes) == [[1]]
    check_run(federation, run, alone)
    population = federation.get("/v1/populations/people")
    assert population["spent"]["epsilon"] == pytest.approx(alone[-1][1], rel=1e-9)
    assert population["users"] == 400
    assert "<title>" in federation.get("/")
    assert federation.get("/readyz", None)["status"] == "ok"
