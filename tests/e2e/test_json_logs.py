"""A whole small federation and its API with JSON logs at DEBUG: every line parses, and no secret is in any of them."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from fieldfare_client.tasks.digits import DigitsTask
from fieldfare_server.flower import require_ended, stop, submit, superlink
from fieldfare_server.home import Home
from fieldfare_server.ledger import Ledger
from support.flower import supernode

PLAN = (Path(__file__).parents[2] / "deploy/plans/digits.toml").read_text()
SHORT = PLAN.replace("rounds = 6", "rounds = 2").replace("max_participations = 2", "max_participations = 1")
JSON = {"FIELDFARE_LOG": "json", "FIELDFARE_LOG_LEVEL": "debug", "OMP_NUM_THREADS": "1"}
PROGRAM = [sys.executable, "-c", "from fieldfare_server.cli import main; main()"]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home", f"sqlite:///{tmp_path / 'home/ledger.sqlite3'}")
    made.prepare()
    with Ledger.open(made.ledger, create=True, head_file=made.head_file) as ledger:
        ledger.create_population("writers", 8.0, 1e-5, actor="test")
    return made


@contextmanager
def service(home: Home, log: Path, token_file: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [*PROGRAM, "serve", "--port", str(port), "--home", str(home.root), "--page-token", str(token_file)]
    with log.open("wb") as sink:
        process = subprocess.Popen(command, env={**os.environ, **JSON}, stdout=sink, stderr=sink)
        try:
            url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 60
            while get(f"{url}/healthz") != 200:
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            yield url
        finally:
            stop(process)


def get(url: str, token: str | None = None, method: str = "GET") -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers, method=method), timeout=10) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def use(url: str, home: Home, token: str, run: str) -> list[str]:
    """Ask for everything, rightly and wrongly; returns the secrets that were sent."""
    with Ledger.open(home.ledger) as ledger:
        admin, _ = ledger.create_token("officer", ("admin",), actor="test")
    wrong = "ff_" + "ab" * 6 + "_" + "cd" * 32
    for path in ("populations", f"runs/{run}", f"runs/{run}/rounds", "audit", f"runs/{run}/report", "metrics"):
        get(f"{url}/v1/{path}", token)
    assert get(f"{url}/metrics", token) == 200
    assert get(f"{url}/v1/populations", wrong) == 401
    assert get(f"{url}/v1/populations/{token}?token={admin}", token) == 404
    assert get(f"{url}/v1/runs/{run}/stop", admin, "POST") == 409
    return [token, admin, wrong]


def secrets_of(home: Home, run: str) -> list[str]:
    """Whatever identifies a user or opens a run, as a log might spell it."""
    key = (home.root / run / "noise.key").read_bytes()
    found = [key.hex(), base64.b64encode(key).decode(), repr(key)]
    found += [spelt for name in DigitsTask().users().pseudonyms for spelt in (str(name), f"{name:016x}")]
    with create_engine(home.ledger).connect() as connection:
        for (hashes,) in connection.execute(text("SELECT hashes FROM users")):
            found += [hashes[i : i + 8].hex() for i in range(0, len(hashes), 8)]
        found += [salt.hex() for (salt,) in connection.execute(text("SELECT salt FROM populations"))]
    return found


def parsed(log: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log.splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    return lines


def assert_clean(log: str, secrets: list[str]) -> None:
    assert not [secret for secret in secrets if secret in log]
    # An update or a model is a list of numbers; nothing that is logged is one.
    assert not re.search(r"(-?\d+\.\d+(e-?\d+)?[,\s]+){8}|tensor\(|array\(", log)


def test_in_one_process_every_line_parses(home: Home, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    command = [*PROGRAM, "simulate", str(plan), "--home", str(home.root), "--json", "--nodes", "2"]
    done = subprocess.run(command, env={**os.environ, **JSON}, capture_output=True, text=True, timeout=120, check=True)
    run = json.loads(done.stdout)["run"]
    with service(home, tmp_path / "api.log", tmp_path / "page.token") as url:
        secrets = use(url, home, (tmp_path / "page.token").read_text().strip(), run)
    api = (tmp_path / "api.log").read_text()
    assert_clean(done.stderr + api, secrets + secrets_of(home, run))
    rounds = {line["round"] for line in parsed(done.stderr) if line.get("run") == run and "round" in line}
    assert rounds == set(range(6))
    asked = {line["message"].split(" in ")[0] for line in parsed(api) if line["logger"].endswith("measure")}
    assert "GET /v1/populations/{name}: 404" in asked


@pytest.mark.flower
@pytest.mark.timeout(240)
def test_on_flowers_own_processes_our_lines_and_flowers_share_the_format(home: Home, tmp_path: Path) -> None:
    work = tmp_path / "work"
    env = {
        **JSON,
        "FIELDFARE_HOME": str(home.root),
        "FIELDFARE_LEDGER": home.ledger,
        "FIELDFARE_NODE_AUTH": "simulated",
    }
    with (
        superlink(work, "--disable-runtime-dependency-installation", env=env) as address,
        supernode(work, address, 0, **JSON),
        supernode(work, address, 1, **JSON),
    ):
        said = submit(
            work,
            address,
            plan=SHORT,
            task="digits",
            run_id="logged",
            env=env,
            timeout=200,
        )
    require_ended(home, "logged", said)
    logs = {name: (work / f"{name}.log").read_text() for name in ("superlink", "node-0", "node-1")}
    assert_clean(said + "".join(logs.values()), secrets_of(home, "logged"))
    # Flower's own programs write lines of their own. What the server's app writes goes to whoever follows the run.
    ours = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert {line["round"] for line in ours if line.get("run") == "logged" and "round" in line} == {0, 1}
    theirs = [json.loads(line) for name in ("node-0", "node-1") for line in logs[name].splitlines() if line[:1] == "{"]
    assert "flwr" in {line["logger"] for line in theirs}
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in ours + theirs)


def test_a_refused_service_says_so_in_json(tmp_path: Path) -> None:
    command = [*PROGRAM, "serve", "--ledger", str(tmp_path / "none.sqlite3")]
    done = subprocess.run(command, env={**os.environ, **JSON}, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (line,) = parsed(done.stderr)
    assert (line["level"], line["logger"]) == ("error", "fieldfare.cli")
