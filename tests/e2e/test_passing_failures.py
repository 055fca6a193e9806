"""A SuperLink that fails now and then, and a ServerApp that dies: real processes with TLS and node keys.

Between the SuperLink and every other party stands a proxy that answers some requests with status 500, as a SuperLink
does whose SQLite database a large upload has locked. No process is started again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fieldfare_server.deployment.simulation import stop
from fieldfare_server.deployment.submit import environment, submit
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.views import RunView
from support.deployed import TASK, new_home, plan_text, require_sound, round_time
from support.lying_proxy import LyingProxy

pytestmark = [pytest.mark.flower, pytest.mark.slow, pytest.mark.timeout(900)]

ROUNDS = 6
PLAN = plan_text(ROUNDS, 60.0, 3)
MAIN = "from fieldfare_server.cli import main; main()"
UNPROTECTED = {"pull-task-input", "push-task-output", "register-node", "activate-node"}
"""At the start and end of a process Flower's own programs end; what supervises them starts them again."""
WITHOUT_HEARTBEATS = 60.0
"""Seconds after which Flower's SuperLink takes a task for dead (HEARTBEAT_PATIENCE x HEARTBEAT_DEFAULT_INTERVAL)."""


class FailingProxy(LyingProxy):
    """Answers every third request of a kind with status 500; the first two of each kind pass."""

    def __init__(self, superlink: str, certificates: Path) -> None:
        super().__init__(superlink, certificates, lies=0, share=0.0, seed=0)
        self._asked: dict[str, int] = {}

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any, bytes]:
        kind = path.rpartition("/")[2]
        with self._lock:
            self._asked[kind] = number = self._asked.get(kind, 0) + 1
            if fails := number % 3 == 0 and kind not in UNPROTECTED:
                self.told[kind] += 1
        return (500, {}, b"") if fails else super().answer(method, path, headers, body)


@dataclass
class Deployment:
    home: StateDirectory
    work: Path
    address: str
    ca: Path
    proxies: dict[str, FailingProxy]

    def view(self, name: str) -> RunView | None:
        with Ledger.open(self.home.ledger) as ledger:
            return next((run for run in ledger.runs().items if run.id == name), None)

    def wait(self, name: str, until: Callable[[RunView], bool], seconds: float = 400.0) -> RunView:
        deadline = time.monotonic() + seconds
        while (run := self.view(name)) is None or not until(run):
            assert time.monotonic() < deadline, (run, self.logs())
            time.sleep(0.2)
        return run

    def logs(self) -> str:
        return "\n".join(f"{p.name}\n{p.read_text(errors='replace')[-1500:]}" for p in sorted(self.work.glob("*.log")))


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    work = tmp_path_factory.mktemp("failing")
    home = new_home(work, 100.0)
    proxies: dict[str, FailingProxy] = {}

    def reach(party: str, address: str) -> str:
        if party not in proxies:
            proxies[party] = FailingProxy(address, work / "server" / "superlink")
        return proxies[party].address

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]))
        try:
            with round_time().federation(work, home, 3, TASK, ours=True, reach=reach) as (_, address, ca):
                yield Deployment(home, work, address, ca, proxies)
        finally:  # after the processes, which go on asking
            for proxy in proxies.values():
                proxy.close()


def serverapps(work: Path) -> list[int]:
    """The processes that Flower's SuperExec has started for its ServerApp."""
    mark, found = f"FLWR_HOME={work / 'flwr-coordinator'}".encode(), []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (place / "environ").read_bytes() and b"flwr-serverapp" in (place / "cmdline").read_bytes():
                found.append(int(place.name))
        except OSError:
            continue  # it has ended
    return found


def test_a_superlink_that_fails_at_every_third_request_ends_no_process_and_loses_no_reply(
    deployment: Deployment,
) -> None:
    """Longer than a task may be without heartbeats, one of three of which fails."""
    submit(deployment.work / "run", deployment.address, plan=PLAN, task=TASK, run_id="failing", stream=False,
           root_certificates=deployment.ca, timeout=300.0)  # fmt: skip
    deployment.wait("failing", lambda run: run.next_round >= 1)
    (first,) = serverapps(deployment.work)
    with Ledger.open(deployment.home.ledger) as ledger:
        ledger.request("failing", "pause", "test")
    heartbeats = deployment.proxies["coordinator"].told
    began, deadline = time.monotonic(), time.monotonic() + 300.0
    while heartbeats["send-task-heartbeat"] < 1 or time.monotonic() - began < 1.5 * WITHOUT_HEARTBEATS:
        assert time.monotonic() < deadline, heartbeats
        time.sleep(1.0)
    assert serverapps(deployment.work) == [first]
    with Ledger.open(deployment.home.ledger) as ledger:
        ledger.request("failing", None, "test")
    deployment.wait("failing", lambda run: run.ended_at is not None)
    require_sound(deployment.home, "failing", ROUNDS)
    with Ledger.open(deployment.home.ledger) as ledger:
        views = ledger.rounds("failing", limit=500).items
    # No round lost a reply, and none was tried twice.
    assert [(view.state, view.reports) for view in views] == [("committed", view.cohort_size) for view in views]
    assert len(views) == ROUNDS
    coordinator, nodes = (set(deployment.proxies[party].told) for party in ("coordinator", "nodes"))
    assert {"get-nodes", "pull-messages", "push-messages", "pull-object", "push-object"} <= coordinator
    assert {"pull-messages", "push-messages", "pull-object", "push-object", "send-node-heartbeat"} <= nodes


def test_a_run_whose_serverapp_dies_is_resumed_by_the_supervisor(deployment: Deployment) -> None:
    submit(deployment.work / "run", deployment.address, plan=PLAN, task=TASK, run_id="killed", stream=False,
           root_certificates=deployment.ca, timeout=300.0)  # fmt: skip
    before = deployment.wait("killed", lambda run: run.next_round >= 1)
    (process,) = serverapps(deployment.work)
    os.kill(process, signal.SIGKILL)
    command = [sys.executable, "-Pc", MAIN, "supervise", f"--superlink={deployment.address}"]
    command += [f"--root-certificates={deployment.ca}", f"--home={deployment.home.root}"]
    command += [f"--ledger={deployment.home.ledger}", "--every=1"]
    with (deployment.work / "supervisor.log").open("wb") as log:
        env = environment(deployment.work / "flwr-supervisor", {"PYTHONUNBUFFERED": "1"})
        supervisor = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            deployment.wait("killed", lambda run: run.ended_at is not None)
        finally:
            stop(supervisor)
    assert "run killed: no coordinator holds it" in (deployment.work / "supervisor.log").read_text()
    assert before.next_round < ROUNDS
    require_sound(deployment.home, "killed", ROUNDS)
