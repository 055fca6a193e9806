"""A small federation and its API with JSON logs at DEBUG: Fieldfare's lines parse, and no line holds a secret."""

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
from fieldfare_server.deployment.simulation import stop
from fieldfare_server.deployment.submit import require_ended, submit
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from support.deployed import round_time

PLAN = (Path(__file__).parents[2] / "deploy/plans/digits.toml").read_text()
SHORT = PLAN.replace("rounds = 6", "rounds = 2").replace("max_participations = 2", "max_participations = 1")
JSON = {"FIELDFARE_LOG": "json", "FIELDFARE_LOG_LEVEL": "debug", "OMP_NUM_THREADS": "1"}
PROGRAM = [sys.executable, "-c", "from fieldfare_server.cli import main; main()"]


@pytest.fixture
def home(tmp_path: Path) -> StateDirectory:
    made = StateDirectory(tmp_path / "home", f"sqlite:///{tmp_path / 'home/ledger.sqlite3'}")
    made.prepare()
    with Ledger.open(made.ledger, create=True, head_file=made.head_file) as ledger:
        ledger.create_population("writers", 8.0, 1e-5, actor="test")
    return made


@contextmanager
def service(home: StateDirectory, log: Path, token_file: Path) -> Iterator[str]:
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


def use(url: str, home: StateDirectory, token: str, run: str) -> list[str]:
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


def secrets_of(home: StateDirectory, run: str) -> list[str]:
    """Whatever identifies a user or opens a run, as a log might spell it."""
    key = (home.root.parent / "copy.key").read_bytes()
    assert len(key) == 32
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


@pytest.fixture(autouse=True)
def copy_of_the_key(home: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run destroys its key when it ends; `tee` keeps a copy for these tests."""
    monkeypatch.setenv("FIELDFARE_KEY_WRAP", json.dumps(["tee", str(home.root.parent / "copy.key")]))
    monkeypatch.setenv("FIELDFARE_KEY_UNWRAP", json.dumps(["cat"]))


def test_in_one_process_every_line_parses(home: StateDirectory, tmp_path: Path) -> None:
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
    asked = {line["message"].split(" in ")[0] for line in parsed(api) if line["logger"].endswith("metrics")}
    assert "GET /v1/populations/{name}: 404" in asked


@pytest.mark.slow
@pytest.mark.flower
@pytest.mark.timeout(240)
def test_as_deployed_our_lines_parse_and_flowers_programs_print_what_they_print(
    home: StateDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in JSON.items():
        monkeypatch.setenv(name, value)
    work = tmp_path / "work"
    with round_time().federation(work, home, 2, "digits", ours=True) as (_, address, ca):
        options = {"plan": SHORT, "task": "digits", "run_id": "logged", "root_certificates": ca, "timeout": 200}
        output = submit(work / "run", address, **options)
    require_ended(home, "logged", output)
    logs = {path.stem: path.read_text() for path in work.glob("*.log")}
    assert set(logs) == {"superlink", "coordinator", "node-0", "node-1", "executor-0", "executor-1"}
    shared = {path.read_bytes() for path in work.rglob("superexec.secret")}
    assert len(shared) == 3
    spelt = [text for one in shared for text in (one.hex(), base64.b64encode(one).decode(), repr(one))]
    assert_clean(output + "".join(logs.values()), secrets_of(home, "logged") + spelt)
    lines = {name: parsed("\n".join(re.findall(r"^\{.*$", log, re.M))) for name, log in logs.items()}
    # Flower's own program; the others are started by a module of ours, or fork from one.
    assert lines["superlink"] == []
    assert "ready" in {line["message"] for line in lines["executor-0"] if line["logger"] == "fieldfare.warm"}
    # Although nobody follows the run.
    ours = [line for line in lines["coordinator"] if line["logger"].startswith("fieldfare.")]
    assert {(line.get("run"), line["round"]) for line in ours if "round" in line} == {("logged", 0), ("logged", 1)}
    committed = [line for line in ours if "committed" in line["message"]]
    assert [(line["run"], line["round"]) for line in committed] == [("logged", 0), ("logged", 1)]


def test_what_jobs_have_done_is_in_their_logs(tmp_path: Path) -> None:
    node = ["node", str(tmp_path / "node"), "--exchange", str(tmp_path / "x"), "--name", "a"]
    env = {**os.environ, **JSON, "FIELDFARE_LEDGER": f"sqlite:///{tmp_path / 'ledger'}"}
    for job, words in ((["certificates", *node], "Wrote"), (["migrate", "--home", str(tmp_path)], "is at version")):
        done = subprocess.run([*PROGRAM, *job], env=env, capture_output=True, text=True, timeout=60, check=True)
        (line,) = parsed(done.stdout + done.stderr)
        assert words in line["message"]
        text = subprocess.run(
            [*PROGRAM, *job, *(["--if-missing"] if "node" in job else [])],
            env={**env, "FIELDFARE_LOG": "text"},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert text.stdout.count("\n") == 1
        assert text.stderr == ""


def test_a_refused_service_says_so_in_json(tmp_path: Path) -> None:
    command = [*PROGRAM, "serve", "--ledger", str(tmp_path / "none.sqlite3")]
    done = subprocess.run(command, env={**os.environ, **JSON}, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (line,) = parsed(done.stderr)
    assert (line["level"], line["logger"]) == ("error", "fieldfare.cli")
