"""`fieldfare doctor`: a sound deployment has no fault; what is broken on purpose is found, and how to mend it said."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from flwr.proto.control_pb2 import ListNodesRequest
from flwr.supercore.control import ControlHttpClient
from flwr.superlink.grid.http_grid import HttpGrid
from sqlalchemy import select, update
from typer.testing import CliRunner

from fieldfare_server.api import Settings, create_app
from fieldfare_server.api.server import config, serve_in_thread
from fieldfare_server.cli.application import application
from fieldfare_server.deployment.certificates import make_node, make_server
from fieldfare_server.deployment.simulation import stop
from fieldfare_server.deployment.submit import environment, program
from fieldfare_server.doctor import ledger as ledger_checks
from fieldfare_server.doctor import machine
from fieldfare_server.doctor.budget_api import check_api
from fieldfare_server.doctor.certificates import check_certificates
from fieldfare_server.doctor.ledger import check_ledger
from fieldfare_server.doctor.secrets import _is_open, check_ledger_password
from fieldfare_server.doctor.superlink import check_superlink
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import HeadFile, Ledger, RunHandle
from fieldfare_server.ledger.holders import SIMULATION
from fieldfare_server.ledger.rules.populations import Rules
from fieldfare_server.ledger.sql import models
from fieldfare_server.run.presence.identity import identity_is_stable, keys_are_proven
from support.ledgers import commit, digest, start

V2 = ("0::/app", {"app/memory.max": "1073741824", "app/pids.max": "512", "memory.max": "max"})
"""A control group of version 2 with limits: its line in /proc, and files below /sys/fs/cgroup."""


def group(root: Path, layout: tuple[str, dict[str, str]]) -> Path:
    """A file system whose /proc and /sys show these control groups."""
    line, files = layout
    for name, text in {"proc/self/cgroup": line, "proc/sys/kernel/pid_max": "4194304"}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


class Side(NamedTuple):
    home: StateDirectory
    secrets: Path
    exchange: Path
    run: RunHandle


@pytest.fixture
def side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Side]:
    """A sound server side: certificates, a ledger with a run that is held, and what the operator states."""
    monkeypatch.setenv("FIELDFARE_NODE_AUTH", "required")
    monkeypatch.setenv("FIELDFARE_FAULT", "")
    monkeypatch.delenv("FLWR_HOME", raising=False)
    monkeypatch.setattr(machine, "check_limits", partial(machine.check_limits, group(tmp_path / "machine", V2)))
    made = StateDirectory(tmp_path / "home", f"sqlite:///{tmp_path / 'database/ledger.sqlite3'}")
    monkeypatch.setenv("FIELDFARE_LEDGER", made.ledger)
    made.prepare()
    (tmp_path / "database").mkdir()
    make_server(tmp_path / "secrets", tmp_path / "exchange", ["localhost"])
    with Ledger.open(made.ledger, create=True, head_file=made.head_file) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="test")
        run = start(ledger, 0.8)
        run.register_users(np.arange(3, dtype=np.uint64))
        commit(run, [0, 1], 0.4)
        key = made.root / run.id / "noise.key"
        key.parent.mkdir()
        key.touch(mode=0o600)
        yield Side(made, tmp_path / "secrets", tmp_path / "exchange", run)


def ask(*arguments: str | Path) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(application, ["doctor", *(str(part) for part in arguments), "--json"])
    return result.exit_code, json.loads(result.stdout)


def bad(said: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """check -> (state, what was said), of all that is not well."""
    for finding in said["findings"]:
        assert bool(finding["mend"]) == (finding["state"] in ("fault", "warning")), finding
    return {f["check"]: (f["state"], f["said"]) for f in said["findings"] if f["state"] in ("fault", "warning")}


def server(side: Side, *more: str | Path) -> tuple[int, dict[str, tuple[str, str]]]:
    code, said = ask("--home", side.home.root, "--secrets", side.secrets / "superlink", *more)
    assert said["ok"] == (code == 0)
    return code, bad(said)


@contextmanager
def stand_in(secrets: Path | None, ahead: float = 0.0, version: str = "") -> Iterator[str]:
    """A server that answers as a SuperLink's health check does, its clock `ahead` of ours; yields host:port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def date_time_string(self, timestamp: float | None = None) -> str:
            return super().date_time_string(time.time() + ahead)

        def do_GET(self) -> None:
            known = self.path == "/health" or (version and self.path == "/openapi.json")
            body = json.dumps({"info": {"version": version}}).encode()
            self.send_response(200 if known else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if secrets is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(secrets / "superlink/server.crt", secrets / "superlink/server.key")
        made.socket = context.wrap_socket(made.socket, server_side=True)
    thread = threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"localhost:{made.server_address[1]}"
    finally:
        made.shutdown()
        made.server_close()
        thread.join(10)


def test_a_sound_deployment_has_no_fault(side: Side) -> None:
    service = serve_in_thread(config(create_app(side.home.ledger, Settings()), port=0))
    version = str(machine.versions()["flwr"])
    with service as url, stand_in(side.secrets, version=version) as superlink:
        more = ("--superlink", superlink, "--root-certificates", side.exchange / "ca.crt", "--url", url)
        assert server(side, *more) == (0, {})
        before = side.home.head_file.read_bytes()
        table = CliRunner().invoke(application, ["doctor", "--home", str(side.home.root)])
    assert table.exit_code == 0
    assert "Faults: 0. Warnings: 0." in table.stdout
    assert side.home.head_file.read_bytes() == before


def test_a_sound_node_has_no_fault(side: Side, tmp_path: Path) -> None:
    make_node(tmp_path / "node", side.exchange, "clinic-a", ["localhost"])
    (tmp_path / "server.json").write_text(json.dumps({"side": "server", "versions": machine.versions()}))
    with stand_in(side.secrets) as superlink:
        more = ("--superlink", superlink, "--root-certificates", side.exchange / "ca.crt", "--task", "digits")
        code, said = ask("--node", "--secrets", tmp_path / "node", "--against", tmp_path / "server.json", *more)
    assert (code, bad(said)) == (0, {})
    assert not [f for f in said["findings"] if f["state"] == "skipped"]


def break_mode(side: Side) -> None:
    (side.secrets / "superlink/server.key").chmod(0o644)


def break_noise_key(side: Side) -> None:
    (side.home.root / side.run.id / "noise.key").chmod(0o640)


def open_file(name: str, side: Side) -> None:
    """A file of a run's directory that was put back from a backup with its mode forgotten."""
    path = side.home.root / side.run.id / name
    path.parent.mkdir(exist_ok=True)
    path.touch(mode=0o644)
    path.chmod(0o644)


def open_head_key(side: Side) -> None:
    side.home.head_file.with_suffix(".key").chmod(0o604)


def age_certificates(side: Side) -> None:
    shutil.rmtree(side.secrets)
    make_server(side.secrets, side.exchange, ["localhost"], days=20)


def turn_back_the_clock(side: Side) -> None:
    with Ledger.open(side.home.ledger, head_file=side.home.head_file, clock=lambda: time.time() - 3600) as ledger:
        ledger.create_population("earlier", 4.0, 1e-6, actor="test")


def stay_in_the_future(side: Side) -> None:
    with Ledger.open(side.home.ledger, head_file=side.home.head_file, clock=lambda: time.time() + 3600) as ledger:
        ledger.create_population("later", 4.0, 1e-6, actor="test")


def let_a_reservation_expire(side: Side) -> None:
    with Ledger.open(side.home.ledger, head_file=side.home.head_file) as ledger:
        ledger.create_population("expiring", 4.0, 1e-6, rules=Rules(reservation_seconds=7200.0), actor="test")
        start(ledger, 0.1, population="expiring", id="forgotten")
    lose_lease(side)


def break_secret(side: Side) -> None:
    (side.secrets / "superlink/superexec.secret").write_bytes(b"secret")


def break_authority(side: Side) -> None:
    make_server(side.secrets.parent / "other", side.secrets.parent / "other-x", ["localhost"])
    shutil.copy(side.secrets.parent / "other-x/ca.crt", side.secrets / "superlink/ca.crt")


def break_key(side: Side) -> None:
    make_server(side.secrets.parent / "other", side.secrets.parent / "other-x", ["localhost"])
    shutil.copy(side.secrets.parent / "other/superlink/server.key", side.secrets / "superlink/server.key")


def break_certificate(side: Side) -> None:
    (side.secrets / "superlink/server.crt").write_text("no certificate")


def break_password(side: Side) -> None:
    (side.secrets / "superlink/grafana.password").write_text("admin\n")
    (side.secrets / "superlink/grafana.password").chmod(0o600)


def break_all_secrets(side: Side) -> None:
    for path in (side.secrets / "superlink").iterdir():
        path.unlink()


def arm_a_fault(side: Side) -> None:
    os.environ["FIELDFARE_FAULT"] = "strategy.sent:kill"  # put back by the fixture


def break_chain(side: Side) -> None:
    with Ledger.open(side.home.ledger) as ledger, ledger.database.engine.begin() as connection:
        for (trigger,) in connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'trigger'").all():
            connection.exec_driver_sql(f"DROP TRIGGER {trigger}")
        connection.exec_driver_sql("UPDATE audit SET actor = 'somebody else' WHERE id = 2")


def break_head(side: Side) -> None:
    side.home.head_file.unlink()


def break_head_content(side: Side) -> None:
    side.home.head_file.write_text("{}")


def break_ledger(side: Side) -> None:
    Path(side.home.ledger.removeprefix("sqlite:///")).rename(side.home.root.parent / "away")


def break_migration(side: Side) -> None:
    with Ledger.open(side.home.ledger) as ledger, ledger.database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = 'unheard-of'")


def roll_back(side: Side) -> None:
    file = HeadFile(side.home.head_file)
    head = file.read()
    assert head is not None
    file.write(replace(head, count=head.count + 1))


def lose_lease(side: Side) -> None:
    with Ledger.open(side.home.ledger) as ledger, ledger.database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE leases SET renewed_at = renewed_at - 1000, holder = 'elsewhere'")


def put_a_node_in_quarantine(side: Side) -> None:
    side.run.void_round(side.run.open_round([]), "too few reports", rejects={"node put in quarantine": 2})


def trust_nodes(side: Side) -> None:
    with Ledger.open(side.home.ledger, head_file=side.home.head_file) as ledger:
        ledger.create_population("believed", 4.0, 1e-6, actor="test")
        start(ledger, 0.1, population="believed", trust_node_ids=True, id="believing")


@pytest.mark.parametrize(
    ("break_it", "state", "check", "words"),
    [
        (break_mode, "fault", "server.key", "others can read it (mode 644)"),
        (break_noise_key, "fault", "noise.key", "mode 640"),
        (break_secret, "fault", "superexec.secret", "can be guessed"),
        (break_password, "fault", "grafana.password", "can be guessed"),
        (break_all_secrets, "fault", "certificates in", "there is none"),
        (arm_a_fault, "fault", "environment", "FIELDFARE_FAULT"),
        (break_authority, "fault", "server.crt", "not signed by the ca.crt"),
        (break_key, "fault", "server.crt", "key of another certificate"),
        (break_certificate, "fault", "server.crt", "cannot be read"),
        (break_chain, "fault", "chain", "audit 2"),
        (break_head, "fault", "held head", "would go unnoticed"),
        (break_head_content, "fault", "held head", "cannot be read"),
        (break_ledger, "fault", "ledger", "there is none"),
        (break_migration, "fault", "ledger", "unheard-of"),
        (roll_back, "fault", "chain", "was seen once"),
        (partial(open_file, "checkpoints/0.safetensors"), "fault", "checkpoints/0.safetensors", "mode 644"),
        (partial(open_file, "noise/0.safetensors"), "fault", "noise/0.safetensors", "others can read it (mode 644)"),
        (partial(open_file, "closing/0.safetensors"), "fault", "closing/0.safetensors", "mode 644"),
        (partial(open_file, "users.digest"), "fault", "users.digest", "mode 644"),
        (partial(open_file, "blinder.sqlite3"), "fault", "blinder.sqlite3", "mode 644"),
        (open_head_key, "fault", "ledger.key", "others can read it (mode 604)"),
        (age_certificates, "warning", "server.crt", "in 19 days"),
        (turn_back_the_clock, "warning", "clock of the journal", "s before a row that stands before it"),
        (stay_in_the_future, "warning", "clock of the ledger", "s from now: this clock went back"),
        (let_a_reservation_expire, "warning", "reservation of run forgotten", "it ends in 1.7 hours"),
        (lose_lease, "warning", "lease of run", "no coordinator holds it at round 1 of 4"),
        (put_a_node_in_quarantine, "warning", "nodes of run", "2 times a node was put in quarantine"),
        (trust_nodes, "warning", "identities of run believing", "trust_node_ids"),
    ],
)
def test_what_is_broken_is_found(
    break_it: Callable[[Side], None], state: str, check: str, words: str, side: Side
) -> None:
    break_it(side)
    code, found = server(side)
    hits = [(s, said) for name, (s, said) in found.items() if check in name]
    assert any(s == state and words in said for s, said in hits), found
    assert code == (2 if state == "fault" else 0)


def test_a_run_that_is_held_or_has_time_keeps_its_reservation(side: Side) -> None:
    with Ledger.open(side.home.ledger, head_file=side.home.head_file) as ledger:
        ledger.create_population("short", 4.0, 1e-6, rules=Rules(reservation_seconds=60.0), actor="test")
        ledger.create_population("long", 4.0, 1e-6, rules=Rules(reservation_seconds=10 * 86400.0), actor="test")
        held = start(ledger, 0.1, population="short")
        start(ledger, 0.1, population="long").hand_back("stopped")
        assert "reservation" not in " ".join(server(side)[1])
        held.hand_back("stopped")
        later = list(ledger_checks._check_reservations(ledger, time.time() + 61.0))
        assert [(f.state, "it ends now" in f.said) for f in later] == [("warning", True)]
        days = list(ledger_checks._check_reservations(ledger, time.time() + 8 * 86400.0))
        assert len(days) == 2


def test_a_clock_that_went_back_long_ago_is_no_news(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    turn_back_the_clock(side)
    assert "clock of the journal" in server(side)[1]
    later = time.time() + 8 * 86400
    monkeypatch.setattr(ledger_checks, "time", SimpleNamespace(time=lambda: later))
    found = {finding.check: finding.state for finding in check_ledger(side.home)}
    assert found["clock of the journal"] == "ok"


def test_scheduled_times_are_no_clock_that_goes_back(side: Side) -> None:
    """Under `add_remove` a row carries its scheduled time, which lies before that of rows written earlier."""
    text = '{"privacy": {"adjacency": "add_remove"}, "run": {"rounds": 4, "round_seconds": 3600.0}}'
    with Ledger.open(side.home.ledger, head_file=side.home.head_file) as ledger:
        ledger.create_population("hidden", 4.0, 1e-6, adjacency="add_remove", actor="test")
        run = start(ledger, 0.1, population="hidden", plan_json=text, plan_digest=digest(text), rounds=4)
        run.register_users(np.arange(3, dtype=np.uint64))
        with ledger.database.engine.connect() as connection:
            (started,) = connection.execute(select(models.journal.c.at).order_by(models.journal.c.id.desc()).limit(1))
    ahead = time.time() + 1800.0
    with Ledger.open(side.home.ledger, head_file=side.home.head_file, clock=lambda: ahead) as ledger:
        ledger.create_population("between", 4.0, 1e-6, actor="test")
        ledger.request(run.id, "stop", "test")  # at the run's start, by its schedule
        with ledger.database.engine.connect() as connection:
            (last,) = connection.execute(select(models.journal.c.at).order_by(models.journal.c.id.desc()).limit(1))
    assert last[0] < started[0] + 60.0
    found = {finding.check: finding.state for finding in check_ledger(side.home)}
    assert found["clock of the journal"] == "ok"


@pytest.mark.parametrize(
    ("layout", "states"),
    [
        (V2, ["ok", "ok"]),
        (("0::/app", {"app/memory.max": "max", "memory.max": "max", "app/pids.max": "max"}), ["warning", "warning"]),
        # The limit of a group above holds too, and one above the machine's memory is none.
        (("0::/a/b", {"a/memory.max": "1073741824", "a/b/memory.max": "max"}), ["ok", "warning"]),
        (("0::/app", {"app/memory.max": str(1 << 60), "app/pids.max": "64"}), ["warning", "ok"]),
        # Version 1: one hierarchy for each controller; a container sees its own group at the root.
        (("4:memory:/app\n8:pids:/app", {"memory/app/memory.limit_in_bytes": "1073741824"}), ["ok", "warning"]),
        (("4:memory:/x/y\n8:pids:/x/y", {"memory/memory.limit_in_bytes": "4096", "pids/pids.max": "9"}), ["ok", "ok"]),
        (("4:memory:/\n0::/", {"memory/memory.limit_in_bytes": str(2**63 - 4096)}), ["warning", "warning"]),
        # The group of another controller limits nothing here.
        (("4:cpu:/app", {"cpu/app/memory.max": "4096", "cpu/app/pids.max": "4"}), ["warning", "warning"]),
    ],
)
def test_limits_of_memory_and_processes(layout: tuple[str, dict[str, str]], states: list[str], tmp_path: Path) -> None:
    assert [finding.state for finding in machine.check_limits(group(tmp_path, layout))] == states


@pytest.mark.parametrize(
    ("ledger", "state"),
    [
        ("sqlite:///{0}/home/ledger.sqlite3", "warning"),
        ("sqlite:///{0}/home/deep/ledger.sqlite3", "warning"),
        ("sqlite:///{0}/ledger.sqlite3", "warning"),
        ("sqlite:///{0}/link/ledger.sqlite3", "warning"),
        ("sqlite:///{0}/elsewhere/ledger.sqlite3", "ok"),
        ("postgresql://fieldfare:x@ledger/fieldfare", None),
    ],
)
def test_a_head_in_the_ledgers_directory(ledger: str, state: str | None, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "home")
    found = ledger_checks._check_head_place(StateDirectory(tmp_path / "home", ledger.format(tmp_path)))
    assert [finding.state for finding in found] == ([state] if state else [])


def a_file(home: Path) -> None:
    home.write_text("no directory")


def a_loop(home: Path) -> None:
    home.symlink_to(home)


def a_directory_for_each_file(home: Path) -> None:
    for name in ("ledger.sqlite3", "ledger.head", "ledger.key", "a/noise.key", "strategies"):
        (home / name).mkdir(parents=True)


def noise_in_each_file(home: Path) -> None:
    for name in ("ledger.sqlite3", "ledger.head", "ledger.key", "a/noise.key", "a/checkpoints/0.safetensors", "b.crt"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(bytes(range(256)) * 64)


def another_programs_database(home: Path) -> None:
    home.mkdir()
    with sqlite3.connect(home / "ledger.sqlite3") as connection:
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
        connection.execute("INSERT INTO alembic_version VALUES ('0001')")
        connection.execute("CREATE TABLE audit (x)")
    (home / "ledger.head").write_text("fieldfare-head-v1 x")


def names_that_are_no_text(home: Path) -> None:
    for name in (b"\xff\xfe.key", b"\x1b[31m.secret", b"a\nb.crt", b"-rf"):
        path = os.fsencode(home) + b"/" + name
        os.makedirs(os.fsencode(home), exist_ok=True)
        with open(path, "wb"):
            pass


def links_to_nowhere(home: Path) -> None:
    home.mkdir()
    for name in ("ledger.sqlite3", "ledger.head", "ledger.key", "noise.key", "server.crt"):
        (home / name).symlink_to("/nowhere/at/all")


STRANGERS = [
    a_file,
    a_loop,
    a_directory_for_each_file,
    noise_in_each_file,
    another_programs_database,
    names_that_are_no_text,
    links_to_nowhere,
]


@pytest.mark.parametrize("make", STRANGERS)
def test_a_home_of_a_stranger_gives_findings_and_never_a_traceback(
    make: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FIELDFARE_LEDGER", raising=False)
    monkeypatch.delenv("FIELDFARE_LEDGER_FILE", raising=False)
    home = tmp_path / "home"
    make(home)
    secrets = ("--secrets", str(home)) if home.is_dir() else ()
    for side in (("--home", str(home)), ("--node", "--task", "no.such:Task")):
        code, said = ask(*side, *secrets, "--against", str(home))
        assert (code, said["ok"]) == (2, False)
        assert bad(said)
        table = CliRunner().invoke(application, ["doctor", *side, *secrets, "--against", str(home)])
        assert table.exit_code == 2
        assert isinstance(table.exception, SystemExit)
        assert "\x1b" not in table.stdout


SOMEBODY_ELSE = """
import os, sys
from typer.testing import CliRunner
from fieldfare_server.cli.application import application

def ask(home, *more):
    return CliRunner().invoke(application, ["doctor", "--json", "--home", home, *more])

# Loads what a look needs: the interpreter's own files may be out of that user's reach too.
ask(sys.argv[1] + "/none", "--superlink", "localhost:1", "--insecure")
os.seteuid(65534)
for more in ((), ("--superlink", "localhost:1", "--insecure")):
    result = ask(sys.argv[1] + "/home/deeper", *more)
    print(result.exit_code, '"findings"' in result.stdout, "PermissionError" in result.stdout)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_home_that_another_user_owns(tmp_path: Path) -> None:
    """As user 65534, on root's home: nothing can be read, and that is what it says.

    In a process of its own: a fork of this one would inherit whatever threads and handlers other tests left in it.
    """
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "ledger.sqlite3").write_bytes(b"")
    command = [sys.executable, "-c", SOMEBODY_ELSE, str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert said.splitlines() == ["2 True True"] * 2


def test_a_check_that_fails_is_a_fault_and_tells_no_secret(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> list[Any]:
        raise RuntimeError("postgresql://fieldfare:mV3xW9pQ7rT2kL8s@ledger/f")

    for name in ("check_ledger", "check_permissions", "check_certificates"):
        monkeypatch.setattr(f"fieldfare_server.cli.doctor.{name}", fail)
    monkeypatch.setattr(machine, "check_disk", fail)
    code, found = server(side)
    assert code == 2
    assert {"ledger", "volumes"} <= found.keys()
    assert "mV3x" not in str(found)
    assert found["ledger"] == ("fault", "cannot be checked: RuntimeError.")


def test_an_interrupted_simulation_is_resumed_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    run = SimpleNamespace(id="r", state="interrupted", next_round=1, rounds=4, trust_node_ids=False, message="")
    mends = []
    for run.started_by in ("simulation@here/1/2/3/4", "coordinator@here/1/2/3/4"):
        monkeypatch.setattr(ledger_checks, "under_way", lambda opened: [run])
        (finding,) = ledger_checks._check_runs(None)  # type: ignore[arg-type]
        mends.append(finding.mend)
    assert mends[0] == "fieldfare simulate --resume r"
    assert "fieldfare supervise" in mends[1]


@pytest.mark.parametrize(("value", "state"), [("", "warning"), ("simulated", "warning"), ("required", None)])
def test_unstable_identities(value: str, state: str | None, side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIELDFARE_NODE_AUTH", value)
    assert server(side)[1].get("node authentication", (None,))[0] == state


@pytest.mark.parametrize(
    ("people", "holders", "more", "state"),
    [
        (False, (), (), None),
        (False, (), ("--superlink", "127.0.0.1:9"), "warning"),
        (True, (), (), "warning"),
        (True, (f"{SIMULATION}@machine",), (), None),
        (True, (f"{SIMULATION}@machine",), ("--superlink", "127.0.0.1:9"), "warning"),
        (True, (f"{SIMULATION}@machine", "coordinator@machine"), (), "warning"),
    ],
)
def test_a_home_of_simulations_has_no_nodes_to_authenticate(
    people: bool,
    holders: tuple[str, ...],
    more: tuple[str, ...],
    state: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("FIELDFARE_NODE_AUTH", raising=False)
    made = StateDirectory(tmp_path / "home", f"sqlite:///{tmp_path / 'home/ledger.sqlite3'}")
    made.prepare()
    with Ledger.open(made.ledger, create=True, head_file=made.head_file) as ledger:
        ledger.create_population("made-up", 4.0, 1e-6, actor="test", simulated=True)
        if people:
            ledger.create_population("people", 4.0, 1e-6, actor="test")
        for holder in holders:
            start(ledger, 0.1, holder=holder)
    code, said = ask("--home", made.root, *more, *(("--insecure",) if more else ()))
    assert bad(said).get("node authentication", (None,))[0] == state
    if state is None and not holders:  # a run that nothing holds is a finding of its own
        assert code == 0, said


@pytest.mark.parametrize(
    ("days", "state", "words"),
    [
        (-2, "fault", "not valid before"),
        (0, "ok", "valid until"),
        (380, "warning", "runs out"),
        (400, "fault", "ran out"),
    ],
)
def test_dates_of_certificates(days: int, state: str, words: str, side: Side) -> None:
    now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    for finding in check_certificates(side.secrets / "superlink", now):
        assert finding.state == state
        assert words in finding.said


@pytest.mark.parametrize(
    ("url", "state"),
    [
        ("postgresql://fieldfare:fieldfare@ledger/f", "fault"),
        ("postgresql://fieldfare@ledger/f", "fault"),
        ("postgresql://fieldfare:postgres@ledger/f", "fault"),
        ("postgresql://fieldfare:b7Kq9@ledger/f", "warning"),
        ("postgresql://fieldfare:mV3xW9pQ7rT2kL8s@ledger/f", "ok"),
        ("sqlite:///x", "ok"),
        ("postgresql://fieldfare@ledger/f?password=mV3xW9pQ7rT2kL8s", "ok"),
        ("ledger.sqlite3", "ok"),  # a path is a ledger, here as everywhere
        ("postgresql://fieldfare:mV3xW9pQ7rT2kL8s@[::/f", "fault"),
    ],
)
def test_default_passwords(url: str, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FIELDFARE_LEDGER", raising=False)
    finding = check_ledger_password(url)
    assert finding.state == state
    assert "mV3x" not in finding.said
    monkeypatch.setenv("FIELDFARE_LEDGER", url)
    assert check_ledger_password(url).state == ("warning" if state == "ok" and "@" in url else state)


@pytest.mark.parametrize(("mib", "state"), [(10, "fault"), (500, "warning"), (5000, "ok")])
def test_a_volume_that_fills_up(mib: int, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type(shutil.disk_usage(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12, mib << 20))
    assert {finding.state for finding in machine.check_disk(tmp_path / "not/there/yet")} == {state}


def test_a_volume_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root, as tests may run, can write everywhere.
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert next(machine.check_disk(tmp_path)).state == "fault"


@pytest.mark.parametrize("behind", [0.0, 100.0])
def test_a_database_whose_clock_differs(
    behind: float, ledger_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="test")
    monkeypatch.setattr("fieldfare_server.doctor.ledger.time", SimpleNamespace(time=lambda: time.time() - behind))
    found = {finding.check: finding.state for finding in check_ledger(StateDirectory(tmp_path, ledger_url))}
    assert found["clock of the ledger"] == ("warning" if behind else "ok")
    assert found["chain"] == "ok"


def break_identity(node: Path) -> None:
    (node / "node").unlink()


def swap_identity(node: Path) -> None:
    make_node(node.parent / "other", node.parent / "x", "other", ["localhost"])
    shutil.copy(node.parent / "other/node.pub", node / "node.pub")


def spoil_identity(node: Path) -> None:
    (node / "node").write_text("no key")


@pytest.mark.parametrize(
    ("break_it", "words"),
    [(break_identity, "stranger at every start"), (swap_identity, "another key"), (spoil_identity, "cannot be read")],
)
def test_a_node_that_would_be_a_stranger(break_it: Callable[[Path], None], words: str, tmp_path: Path) -> None:
    make_node(tmp_path / "node", tmp_path / "exchange", "clinic-a", ["localhost"])
    break_it(tmp_path / "node")
    code, said = ask("--node", "--secrets", tmp_path / "node")
    assert code == 2
    assert words in bad(said)["node identity"][1]


def reach(address: str, ca: Path | None, node: bool = False) -> dict[str, tuple[str, str]]:
    return {f.check.split()[0]: (f.state, f.said + f.mend) for f in check_superlink(address, ca, node=node)}


@pytest.mark.parametrize(
    ("mode", "owner", "open_"),
    [
        (0o600, 0, False),
        (0o440, 0, True),
        (0o440, 1, False),
        (0o460, 1, True),
        (0o444, 1, True),
        (0o604, 1, True),
    ],
)
def test_who_can_read_a_secret(mode: int, owner: int, open_: bool) -> None:
    """Kubernetes' Secrets are another user's files, which our group reads."""
    status = os.stat_result((0o100000 | mode, 0, 0, 1, os.getuid() + owner, 0, 0, 0, 0, 0))
    assert _is_open(status) is open_


def test_an_authority_that_is_none(side: Side, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("no certificate")
    with stand_in(side.secrets) as address:
        state, said = reach(address, tmp_path / "ca.crt")["SuperLink"]
    assert (state, "holds no certificate" in said) == ("fault", True)


def test_without_the_ledgers_secret_all_else_is_still_looked_at(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIELDFARE_LEDGER_FILE", str(side.secrets / "away"))
    monkeypatch.delenv("FIELDFARE_LEDGER", raising=False)
    break_mode(side)
    code, said = ask("--home", side.home.root, "--secrets", side.secrets / "superlink")
    found = bad(said)
    assert code == 2
    assert "cannot be read" in found["ledger"][1]
    assert any("server.key" in check for check in found)
    assert "node identity" not in found


def test_the_superlinks_certificate_over_the_wire(side: Side, tmp_path: Path) -> None:
    ca = side.exchange / "ca.crt"
    make_server(tmp_path / "other", tmp_path / "other-x", ["elsewhere"])
    with stand_in(side.secrets) as address:
        assert reach(address, ca)["SuperLink"][0] == "ok"
        # By a name that the certificate was not made for; with another authority; without TLS.
        state, said = reach(address.replace("localhost", "127.0.0.1"), ca)["SuperLink"]
        assert (state, "--host 127.0.0.1" in said) == ("fault", True)
        state, said = reach(address, tmp_path / "other-x/ca.crt")["SuperLink"]
        assert (state, "published last" in said) == ("fault", True)
        assert reach(address, None)["SuperLink"][0] == "fault"
    with stand_in(None) as address:
        assert reach(address, ca)["SuperLink"][0] == "fault"
        states = [finding.state for finding in check_superlink(address, None, node=False)]
        assert states[0] == "warning"
        assert "fault" not in states
    assert "cannot be reached" in reach(address, ca)["SuperLink"][1]
    assert reach("nowhere", ca)["SuperLink"][0] == "fault"


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="needs IPv6")
def test_a_superlink_at_an_address_of_ipv6_is_asked() -> None:
    """It "could not be reached", since its brackets were taken for a part of its name."""
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        answering = threading.Thread(target=lambda: server.accept()[0].close())
        answering.start()
        *_, found = check_superlink(f"[::1]:{server.getsockname()[1]}", None, node=False)
        answering.join()
    assert "does not answer like a SuperLink" in found.said


def test_a_certificate_that_has_run_out_over_the_wire(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(side.secrets)
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=10)
    clock = SimpleNamespace(now=lambda _: past)
    there = SimpleNamespace(datetime=clock, timedelta=datetime.timedelta, UTC=datetime.UTC)
    monkeypatch.setattr("fieldfare_server.deployment.certificates.datetime", there)
    make_server(side.secrets, side.exchange, ["localhost"], days=3)
    monkeypatch.undo()
    with stand_in(side.secrets) as address:
        state, said = reach(address, side.exchange / "ca.crt")["SuperLink"]
    assert (state, "expired" in said, "make new ones" in said) == ("fault", True, True)


@pytest.mark.parametrize(
    ("theirs_ahead", "node", "state"),
    [
        (0.0, True, "ok"),
        (-60.0, True, "fault"),  # ours is ahead: the SuperLink refuses a signature from its future
        (60.0, True, "warning"),
        (400.0, True, "fault"),
        (-60.0, False, "warning"),
    ],
)
def test_clocks_that_differ(theirs_ahead: float, node: bool, state: str, side: Side) -> None:
    with stand_in(side.secrets, ahead=theirs_ahead) as address:
        assert reach(address, side.exchange / "ca.crt", node)["clock"][0] == state


@contextmanager
def real_superlink(side: Side, work: Path, *arguments: str) -> Iterator[str]:
    """Flower's own, with TLS; yields host:port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    link = side.secrets / "superlink"
    command = [program("flower-superlink"), "--host=127.0.0.1", f"--port={port}", "--isolation=process", *arguments]
    command += [f"--ssl-ca-certfile={link / 'ca.crt'}", f"--ssl-certfile={link / 'server.crt'}"]
    command += [f"--ssl-keyfile={link / 'server.key'}", f"--database={work / 'superlink.db'}"]
    with (work / "superlink.log").open("wb") as log:
        env = environment(work / "flwr")
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            deadline = time.monotonic() + 90
            while "fault" in {
                found.state for found in check_superlink(f"localhost:{port}", link / "ca.crt", node=False)
            }:
                assert process.poll() is None, (work / "superlink.log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.2)
            yield f"localhost:{port}"
        finally:
            stop(process)


@pytest.mark.flower
@pytest.mark.parametrize(("arguments", "state"), [(["--enable-supernode-auth"], "ok"), ([], "fault")])
def test_what_is_stated_of_nodes_is_put_to_the_test(
    arguments: list[str], state: str, side: Side, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with real_superlink(side, tmp_path, *arguments) as address:
        how = ("--home", side.home.root, "--superlink", address, "--root-certificates", side.exchange / "ca.crt")
        for stated, expected in (("required", [state]), ("simulated", [])):
            monkeypatch.setenv("FIELDFARE_NODE_AUTH", stated)
            code, said = ask(*how)
            assert [f["state"] for f in said["findings"] if f["check"] == "strangers"] == expected
            assert code == (2 if "fault" in expected else 0)
        # A ServerApp's strategy puts it to the same test, with what its grid knows.
        monkeypatch.delenv("FIELDFARE_NODE_AUTH")
        grid = HttpGrid(address, False, (side.exchange / "ca.crt").read_bytes(), token="a run's")
        assert keys_are_proven(grid) == identity_is_stable(grid) == (state == "ok")
        client = ControlHttpClient.from_server_address(address, False, str(side.exchange / "ca.crt"), ())
        try:
            nodes = client.ListNodes(ListNodesRequest()).nodes_info
        finally:
            client.close()
    assert {node.status for node in nodes} <= {"unregistered"}, "nothing that could take part is left behind"


def test_another_flower_on_the_other_side(side: Side) -> None:
    with stand_in(side.secrets, version="1.0.0") as address:
        assert "1.0.0" in reach(address, side.exchange / "ca.crt")["Flower"][1]
        # A node that can see this stands before no gate.
        found = reach(address, side.exchange / "ca.crt", node=True)
        assert ("Flower" in found, found["gate"][0]) == (False, "fault")
    with stand_in(side.secrets) as address:
        assert reach(address, side.exchange / "ca.crt", node=True)["gate"][0] == "ok"


@pytest.mark.parametrize(("name", "state"), [("wire", "fault"), ("flwr", "fault"), ("fieldfare", "warning")])
def test_versions_on_both_sides(name: str, state: str, tmp_path: Path) -> None:
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps({"side": "node", "versions": {**machine.versions(), name: "0.0"}}))
    (finding,) = machine.compare_versions(path, node=False)
    assert (finding.state, name in finding.said) == (state, True)
    (same,) = machine.compare_versions(path, node=True)
    assert (same.state, "written by a node" in same.said) == ("warning", True)
    path.write_text("[]")
    assert next(machine.compare_versions(path, node=False)).state == "fault"


def test_an_api_that_is_away_or_not_ready(side: Side) -> None:
    with serve_in_thread(config(create_app(side.home.ledger, Settings()), port=0)) as url:
        assert {f.state for f in check_api(url, None)} == {"ok"}
    assert [f.state for f in check_api(url, None)] == ["fault"]
    break_chain(side)
    with serve_in_thread(config(create_app(side.home.ledger, Settings()), port=0)) as url:
        (finding,) = check_api(url, None)
    assert (finding.state, "audit 2" in finding.said) == ("fault", True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--node", "--url", "http://127.0.0.1:1"),
        ("--superlink", "localhost:1"),
        ("--secrets", "/no/such/directory"),
        ("--superlink", "localhost:1", "--root-certificates", "/no/such/file"),
    ],
)
def test_questions_that_make_no_sense_are_refused(arguments: tuple[str, ...], side: Side) -> None:
    code, said = ask(*arguments)
    assert code == 2
    assert said["code"] in ("conflict", "not-found", "not-given")


def test_a_task_that_is_not_there(tmp_path: Path) -> None:
    assert machine.check_task("no.such.package:Task").state == "fault"


def test_a_population_over_its_budget_is_found(side: Side) -> None:
    def found() -> list[Any]:
        return [each for each in check_ledger(side.home) if each.check.startswith("budget of population")]

    assert found() == []
    with Ledger.open(side.home.ledger) as ledger, ledger.database.engine.begin() as connection:
        connection.execute(update(models.populations).values(epsilon=0.01))  # as an older version's rule left it
    (finding,) = found()
    assert finding.state == "warning"
    assert "above the budget of 0.01" in finding.said
    assert "it takes no new run" in finding.mend
