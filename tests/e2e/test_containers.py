"""The compose file, really started: a run finishes on it, and a coordinator killed in the middle of a round is resumed.

`make containers-test` runs this; COMPOSE says how compose is called (default `docker compose`). It takes minutes.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fieldfare.plan import Plan
from fieldfare_server.cli.running import local_grid, run_here
from fieldfare_server.home import Home
from fieldfare_server.ledger import Ledger
from fieldfare_server.session import Session

ROOT = Path(__file__).parents[2]
COMPOSE = shlex.split(os.environ.get("COMPOSE", "docker compose"))
PLAN = ROOT / "deploy/plans/containers-seeded.toml"
POPULATION = "containers-seeded"
PORT = os.environ.get("FIELDFARE_PORT", "8080")
PATIENCE = 1500.0

pytestmark = [
    pytest.mark.containers,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(shutil.which(COMPOSE[0]) is None, reason=f"{COMPOSE[0]} is not here: set COMPOSE"),
    pytest.mark.skipif("CONTAINERS" not in os.environ, reason="starts containers: run it by `make containers-test`"),
]


def compose(*arguments: str) -> str:
    done = subprocess.run([*COMPOSE, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def get(path: str, token: str | None) -> Any:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", headers=headers)) as reply:
        return json.load(reply)


def wait_for(what: Any, patience: float = PATIENCE) -> Any:
    deadline = time.monotonic() + patience
    while True:
        try:
            if found := what():
                return found
        except (OSError, AssertionError) as error:
            last: object = error
        else:
            last = "nothing yet"
        assert time.monotonic() < deadline, f"not within {patience} s: {last}"
        time.sleep(1.0)


@pytest.fixture(scope="module")
def token() -> Iterator[str]:
    compose("--profile", "submit", "down", "--volumes")
    compose("up", "--detach")
    try:
        yield wait_for(lambda: compose("exec", "-T", "api", "cat", "/secrets/page.token").strip())
    finally:
        compose("--profile", "submit", "down", "--volumes")


@pytest.fixture(scope="module")
def in_process(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[float, float]]:
    """(score, epsilon) of each round of the same plan, same seed, same two nodes, in this process."""
    root = tmp_path_factory.mktemp("local")
    home = Home(root, f"sqlite:///{root / 'ledger.sqlite3'}")
    home.prepare()
    with Ledger.open(home.ledger, create=True) as ledger:
        ledger.create_population(POPULATION, 8.0, 1e-5, simulated=True, actor="test")
    session = Session.begin(home, Plan.from_toml(PLAN.read_text()), identity_is_stable=True)
    trace = run_here(session, local_grid(session.plan, 2), "", quiet=True)
    return [(float(report.score or 0.0), report.epsilon) for report in trace.reports]


def kill_coordinator() -> None:
    """SIGKILL to the container's first process, from outside of it: an engine's own `kill` would also stop restarts."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                said = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"flower-superexec" in b" ".join(said) and b"--runtime-api-address=superlink:8000" in said:
                os.kill(int(process.name), signal.SIGKILL)


def test_a_killed_coordinator_is_resumed_and_the_numbers_are_those_of_one_process(
    token: str, in_process: list[tuple[float, float]]
) -> None:
    with pytest.raises(urllib.error.HTTPError, match="401"):
        get("/v1/populations", None)
    command = [*COMPOSE, "--profile", "submit", "run", "--rm", "submit"]
    submit = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "FIELDFARE_PLAN": PLAN.name}, stdout=subprocess.DEVNULL
    )
    try:
        run = wait_for(lambda: [r for r in get("/v1/runs", token)["items"] if r["population"] == POPULATION])[0]["id"]
        rounds = f"/v1/runs/{run}/rounds"
        wait_for(lambda: [r for r in get(rounds, token)["items"] if r["index"] == 2 and r["state"] == "open"])
        kill_coordinator()
        wait_for(lambda: get(f"/v1/runs/{run}", token)["state"] == "done")
    finally:
        submit.terminate()
        submit.wait()
    items = [r for r in get(rounds, token)["items"] if r["state"] == "committed"]
    assert sorted(r["index"] for r in items) == list(range(8))
    found = {r["index"]: (r["statistics"]["score"], r["epsilon"]) for r in items}
    for t, (score, epsilon) in enumerate(in_process):
        assert found[t][0] == pytest.approx(score, abs=1e-3)
        assert found[t][1] == pytest.approx(epsilon, rel=1e-9)
    assert get("/readyz", None)["status"] == "ok"
