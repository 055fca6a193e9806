"""Machines apart: the server side, and two organisations with an image, a task and data of their own.

Each side is a compose project in a directory of its own; they share the gate's published port, and what is carried.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.container_runs import TASK, check_run, plan, run_alone
from support.containers import ROOT, Federation, free_port, require_engine, wait_for
from support.visits import CLINIC, write_visits

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(3600)]

IMAGE = "fieldfare-e2e-clinic:local"
PATIENTS = {"clinic-a": range(120), "clinic-b": range(120, 240)}


def own_address() -> str:
    """This machine's address, as other machines see it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return str(probe.getsockname()[0])


class Sides:
    """The server side, and the nodes by name."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        address, port = own_address(), str(free_port())
        self.server_directory = directory / "server"
        shutil.copytree(ROOT / "deploy", self.server_directory / "deploy")
        shutil.copy(ROOT / "docker-compose.yml", self.server_directory)
        (self.server_directory / "exchange").mkdir()
        self.server = Federation(
            "fieldfare-e2e-apart",
            ["docker-compose.yml", "deploy/apart/server.yml"],
            "clinic",
            self.server_directory,
            FIELDFARE_IMAGE=IMAGE,
            FIELDFARE_GATE=address,
            FIELDFARE_GATE_PORT=port,
        )
        stack.callback(self.server.down)
        self.nodes: dict[str, Federation] = {}
        self.gate = f"{address}:{port}"
        for name, patients in PATIENTS.items():
            there = directory / name
            for made in (there / "exchange", there / "data"):
                made.mkdir(parents=True)
            write_visits(there / "data/visits.csv", patients)
            shutil.copy(ROOT / "deploy/apart/node.yml", there)
            self.nodes[name] = Federation(
                f"fieldfare-e2e-{name}",
                ["node.yml"],
                "clinic",
                there,
                FIELDFARE_NODE_IMAGE=IMAGE,
                FIELDFARE_GATE=self.gate,
                FIELDFARE_NODE=name,
                FIELDFARE_DATA=str(there / "data"),
            )
            stack.callback(self.nodes[name].down)


@pytest.fixture
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sides]:
    require_engine()
    monkeypatch.syspath_prepend(str(CLINIC))
    Federation("fieldfare-e2e-clinic", ["tests/e2e/compose.clinic.yml"], "clinic").compose("build")
    with ExitStack() as stack:
        yield Sides(stack, tmp_path)


def test_two_organisations_with_a_task_of_their_own_join_a_server_elsewhere(
    sides: Sides, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = plan("patients", 4, min_available=240).replace(TASK, "clinic")
    everybody = write_visits(tmp_path / "visits.csv", range(0))
    for name in PATIENTS:
        lines = (tmp_path / name / "data/visits.csv").read_text().splitlines(keepends=True)
        with everybody.open("a", newline="") as file:
            file.writelines(lines[1:])
    monkeypatch.setenv("CLINIC_DATA", str(everybody))
    alone = run_alone(text.replace('"clinic"', '"clinic_task:ClinicTask"'), tmp_path / "alone")

    # The first lines of deploy/apart/*.yml, in their order.
    server, exchange = sides.server, sides.server_directory / "exchange"
    server.up()
    authority = exchange / "ca.crt"
    wait_for(authority.exists, 300)
    for name, node in sides.nodes.items():
        shutil.copy(authority, tmp_path / name / "exchange")
        node.down()
        node.compose("up", "--detach")
        public = tmp_path / name / f"exchange/{name}.pub"
        wait_for(public.exists, 300)
        shutil.copy(public, exchange)
    server.compose("--profile", "register", "run", "--rm", "register")

    run = server.submit(text)
    server.wait_done(run)
    check_run(server, run, alone)
    assert server.get("/v1/populations/patients")["users"] == 240
    for node in sides.nodes.values():
        trust = ["--superlink", sides.gate, "--root-certificates", "/exchange/ca.crt", "--secrets", "/secrets"]
        node.exec("node", "fieldfare", "doctor", "--node", *trust)
        # What sees the data reaches its node, and nobody else.
        assert node.exec("executor", "head", "-1", "/data/visits.csv").startswith("patient,")
        reach = "import socket; socket.create_connection(('{}', {}), 5).close()"
        node.exec("executor", "python", "-c", reach.format("node", 9094))
        with pytest.raises((AssertionError, subprocess.SubprocessError)):
            node.exec("executor", "python", "-c", reach.format(*sides.gate.split(":")))
        with pytest.raises((AssertionError, subprocess.SubprocessError)):
            node.exec("node", "head", "-1", "/data/visits.csv")
