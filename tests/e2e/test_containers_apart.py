"""Machines apart: the server side, and two organisations with an image, a task and data of their own.

Each side is a compose project in a directory of its own; they share the gate's published port, and what is carried.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.apart import Sides
from support.container_runs import TASK, check_run, plan, run_alone
from support.containers import Federation, require_engine
from support.visits import CLINIC, write_visits

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(3600)]

IMAGE = "fieldfare-e2e-clinic:local"
PATIENTS = {"clinic-a": range(120), "clinic-b": range(120, 240)}


@pytest.fixture
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sides]:
    require_engine()
    monkeypatch.syspath_prepend(str(CLINIC))
    Federation("fieldfare-e2e-clinic", ["tests/e2e/compose.clinic.yml"], "clinic").compose("build")
    with ExitStack() as stack:
        made = Sides(stack, tmp_path, "fieldfare-e2e-apart", "clinic", IMAGE)
        for name, patients in PATIENTS.items():
            made.add(name, "node.yml")
            write_visits(tmp_path / name / "data/visits.csv", patients)
        yield made


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
    server = sides.server
    sides.up()
    sides.register(PATIENTS)

    run = server.submit(text)
    server.wait_done(run)
    check_run(server, run, alone)
    assert server.get("/v1/populations/patients")["users"] == 240
    for node in sides.others.values():
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
