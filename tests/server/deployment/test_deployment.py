"""The secrets of each party, orphaned runs, and the start of services in any order."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES
from sqlalchemy import make_url
from typer.testing import CliRunner

from fieldfare.errors import BadInput, FieldfareError
from fieldfare.names import OWN_APP
from fieldfare_server.cli.application import application
from fieldfare_server.deployment import simulation
from fieldfare_server.deployment import submit as submitting
from fieldfare_server.deployment.certificates import PARTS, make_node, make_server, renew_server, separate_roles
from fieldfare_server.deployment.submit import submit_and_follow
from fieldfare_server.deployment.supervisor import FIRST_PAUSE, LONGEST_PAUSE, MOST_ATTEMPTS, QUICK_ATTEMPTS, Supervisor
from fieldfare_server.files.plan_file import plan_text
from fieldfare_server.ledger import this_process
from fieldfare_server.ledger.sql.roles import read_passwords
from fieldfare_server.planning.questions import Asked
from fieldfare_server.run.session import Session
from support.federation import home as home_of_people
from support.federation import plan
from support.refusals import coded

ROOT = Path(__file__).parents[3]


def files(directory: Path) -> dict[str, int]:
    return {str(p.relative_to(directory)): stat.S_IMODE(p.stat().st_mode) for p in directory.rglob("*") if p.is_file()}


def test_each_service_gets_its_own_secrets_and_no_other(tmp_path: Path) -> None:
    make_server(tmp_path / "s", tmp_path / "x", ["superlink", "127.0.0.1"])
    found = files(tmp_path / "s")
    assert {name.split("/")[0] for name in found} == set(PARTS)
    assert {name for name in found if name.startswith("api/")} == {"api/ledger.url"}
    private = {name: mode for name, mode in found.items() if not name.endswith(".crt")}
    assert all(mode == 0o600 for name, mode in private.items() if not name.startswith("ledger/"))
    owner = (tmp_path / "s/ledger/password").read_text()
    holders = {path.parent.name for path in (tmp_path / "s").rglob("ledger.url") if owner in path.read_text()}
    assert holders == {"migrate"}, "the owner's password is for migrations only"
    passwords = read_passwords(tmp_path / "s/migrate")
    for part in ("coordinator", "api", "admin"):
        url = make_url((tmp_path / "s" / part / "ledger.url").read_text().strip())
        assert (url.username, url.password) == (f"fieldfare_{part}", passwords[part])
    assert len({owner, *passwords.values()}) == 4
    assert not any(b"PRIVATE" in p.read_bytes() for p in (tmp_path / "x").iterdir())


def test_the_server_certificate_is_signed_for_its_hosts(tmp_path: Path) -> None:
    make_server(tmp_path / "s", tmp_path / "x", ["superlink"])
    ca = x509.load_pem_x509_certificate((tmp_path / "x/ca.crt").read_bytes())
    server = x509.load_pem_x509_certificate((tmp_path / "s/superlink/server.crt").read_bytes())
    server.verify_directly_issued_by(ca)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["superlink"]
    key = ca.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)


def test_without_a_name_certificates_are_for_this_machine(tmp_path: Path) -> None:
    """Pages and examples name 127.0.0.1."""
    secrets, exchange = str(tmp_path / "s"), str(tmp_path / "x")
    for words in (["server", secrets], ["renew", secrets], ["node", str(tmp_path / "n"), "--name", "a"]):
        assert CliRunner().invoke(application, ["certificates", *words, "--exchange", exchange]).exit_code == 0
    for file, more in (("s/superlink/server.crt", []), ("s/gate/server.crt", ["gate"]), ("n/runtime.crt", [])):
        read = x509.load_pem_x509_certificate((tmp_path / file).read_bytes())
        names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == [*more, "localhost"]
        assert list(map(str, names.get_values_for_type(x509.IPAddress))) == ["127.0.0.1"]


def test_the_gate_has_its_own_key_and_names(tmp_path: Path) -> None:
    make_server(tmp_path / "s", tmp_path / "x", ["superlink"], ["fl.example.org"])
    gate = x509.load_pem_x509_certificate((tmp_path / "s/gate/server.crt").read_bytes())
    gate.verify_directly_issued_by(x509.load_pem_x509_certificate((tmp_path / "x/ca.crt").read_bytes()))
    names = gate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org"]
    keys = {(tmp_path / "s" / part / "server.key").read_bytes() for part in ("gate", "superlink")}
    assert len(keys) == 2


def allowed_by_the_gate(request: str) -> bool:
    """What deploy/gate/nginx.conf's first map says about "METHOD path". The real gate is asked in tests/e2e."""
    settings = (ROOT / "deploy/gate/nginx.conf").read_text()
    block = settings[settings.index("$allowed {") : settings.index("}\n\n", settings.index("$allowed {"))]
    patterns = re.findall(r'"~(\^.*)" 1;', block)
    assert len(patterns) == block.count(" 1;") == 2
    return any(re.search(pattern.replace(r"\z", r"\Z"), request) for pattern in patterns)


def test_the_gate_lets_through_all_of_the_fleet_api_and_nothing_else_of_flowers() -> None:
    apis = {method_path: method_path[1].split("/")[2] for method_path in PROTOBUF_REQUEST_TYPES}
    assert set(apis.values()) == {"fleet", "control", "runtime"}
    for (method, path), api in apis.items():
        assert allowed_by_the_gate(f"{method} {path}") == (api == "fleet")
    assert allowed_by_the_gate("GET /health")
    assert not allowed_by_the_gate("GET /docs")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/fleet/../control/start-run",
        "/v1/fleet/%2e%2e/control/start-run",
        "/v1/fleet%2f..%2fcontrol/start-run",
        "//v1/control/start-run",
        "/v1//fleet/pull-messages",
        "/v1/fleet/",
        "/v1/fleet/pull-messages/",
        "/v1/fleet/pull-messages?x=/v1/control/start-run",
        "/v1/fleet/pull-messages\n",
        "/V1/FLEET/pull-messages",
        "/v1/fleet/;/../../control/start-run",
        "http://superlink/v1/fleet/pull-messages",
    ],
)
def test_the_gate_lets_no_disguise_through(path: str) -> None:
    assert not allowed_by_the_gate(f"POST {path}")


def test_a_second_call_overwrites_nothing(tmp_path: Path) -> None:
    make_node(tmp_path / "n", tmp_path / "x", "node-1", ["node-1"])
    before = (tmp_path / "n/node").read_bytes()
    with pytest.raises(BadInput, check=coded("already-there", "directory")):
        make_node(tmp_path / "n", tmp_path / "x", "node-1", ["node-1"])
    assert (tmp_path / "n/node").read_bytes() == before


def test_renewal_replaces_certificates_and_nothing_else(tmp_path: Path) -> None:
    with pytest.raises(BadInput, check=coded("not-found", "directory")):
        renew_server(tmp_path / "s", tmp_path / "x", ["superlink"])
    make_server(tmp_path / "s", tmp_path / "x", ["superlink"])
    before = {p: p.read_bytes() for p in (tmp_path / "s").rglob("*") if p.is_file()}
    modes = files(tmp_path / "s")
    renew_server(tmp_path / "s", tmp_path / "x", ["superlink"])
    changed = {p.name for p, content in before.items() if p.read_bytes() != content}
    assert changed == {"ca.crt", "server.crt", "server.key"}
    assert files(tmp_path / "s") == modes
    # A deployment that was made before there was monitoring gets what that needs.
    (tmp_path / "s/monitoring/grafana.password").unlink()
    renew_server(tmp_path / "s", tmp_path / "x", ["superlink"])
    assert files(tmp_path / "s") == modes
    authorities = {p.read_bytes() for p in tmp_path.rglob("ca.crt")}
    assert len(authorities) == 1
    ca = x509.load_pem_x509_certificate(authorities.pop())
    for part in ("superlink", "gate"):
        server = x509.load_pem_x509_certificate((tmp_path / "s" / part / "server.crt").read_bytes())
        server.verify_directly_issued_by(ca)


def without_roles(directory: Path, url: str) -> None:
    """What an older version left."""
    for part in ("admin", "migrate"):
        shutil.rmtree(directory / part)
    for part in ("coordinator", "api"):
        (directory / part / "ledger.url").write_text(url)


def test_an_older_deployment_gets_roles(tmp_path: Path) -> None:
    make_server(tmp_path / "s", tmp_path / "x", ["superlink"], ledger_host="db")
    modes = files(tmp_path / "s")
    assert separate_roles(tmp_path / "s") == []
    old = (tmp_path / "s/migrate/ledger.url").read_text()
    for killed in (False, True):
        without_roles(tmp_path / "s", old)
        if killed:  # an attempt that ended before the owner's URL was written
            separate_roles(tmp_path / "s")
            (tmp_path / "s/migrate/ledger.url").unlink()
        assert separate_roles(tmp_path / "s")
        assert files(tmp_path / "s") == modes
        assert (tmp_path / "s/migrate/ledger.url").read_text() == old
        url = make_url((tmp_path / "s/coordinator/ledger.url").read_text().strip())
        assert (url.username, url.host) == ("fieldfare_coordinator", "db")
        assert url.password == read_passwords(tmp_path / "s/migrate")["coordinator"]


def test_a_database_of_ones_own_keeps_the_role_that_it_has(tmp_path: Path) -> None:
    make_server(tmp_path / "s", tmp_path / "x", ["superlink"])
    own = "postgresql://hospital:a-long-random-one@db.example.org/books\n"
    without_roles(tmp_path / "s", own)
    renew_server(tmp_path / "s", tmp_path / "x", ["superlink"])
    assert {path.read_text() for path in (tmp_path / "s").rglob("ledger.url")} == {own}
    assert read_passwords(tmp_path / "s/migrate") == {}


@pytest.mark.parametrize("name", ["", "../node", ".hidden", "a/b"])
def test_a_node_name_stays_in_its_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput):
        make_node(tmp_path / "n", tmp_path / "x", name, ["node-1"])
    assert not (tmp_path / "n").exists()


def run(state: str, next_round: int = 0, started_by: str = "coordinator@m/b/n/1/2") -> SimpleNamespace:
    return SimpleNamespace(id="r", state=state, next_round=next_round, rounds=8, started_by=started_by)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_only_orphans_are_resumed_and_not_twice_at_once() -> None:
    clock, resumed = Clock(), []
    supervisor = Supervisor(resumed.append, clock)
    assert supervisor.look([run("running")]) == []
    assert supervisor.look([run("interrupted")]) == ["r"]
    assert supervisor.look([run("interrupted")]) == []
    clock.now += FIRST_PAUSE
    assert supervisor.look([run("interrupted")]) == ["r"]
    assert len(resumed) == 2


def test_a_simulation_is_never_submitted_to_a_federation() -> None:
    resumed: list[object] = []
    supervisor = Supervisor(resumed.append, Clock())
    assert supervisor.look([run("interrupted", started_by=f"simulation@{this_process()}")]) == []
    assert supervisor.look([run("interrupted", started_by=f"coordinator@{this_process()}")]) == ["r"]
    assert len(resumed) == 1


def test_a_run_without_progress_is_left_to_the_operator_and_one_with_progress_is_not() -> None:
    clock, resumed = Clock(), []
    supervisor = Supervisor(resumed.append, clock)
    began = []
    for _ in range(1000):
        clock.now += 100.0
        began += [clock.now for _ in supervisor.look([run("interrupted")])]
    assert len(resumed) == len(began) == MOST_ATTEMPTS
    # Half an hour of quick attempts; then one an hour, for a day: a full disk is no matter of minutes.
    pauses = np.diff(began)
    assert pauses[: QUICK_ATTEMPTS - 1].max() <= LONGEST_PAUSE
    assert (pauses[QUICK_ATTEMPTS - 1 :] == 3600.0).all()
    assert 24 * 3600.0 <= began[-1] - began[0] <= 26 * 3600.0
    assert supervisor.look([run("interrupted", next_round=1)]) == ["r"]


@pytest.mark.parametrize("cause", [FieldfareError("the SuperLink is away"), OSError(errno.ENOSPC, "no space left")])
def test_a_federation_that_is_away_is_asked_ever_less_often_and_for_ever(cause: Exception) -> None:
    clock, asked, away = Clock(), [], True

    def hand_over(_: object) -> None:
        asked.append(clock.now)
        if away:
            raise cause

    supervisor = Supervisor(hand_over, clock)
    for _ in range(10_000):
        clock.now += 10.0
        supervisor.look([run("interrupted")])
    pauses = np.diff(asked)
    assert (np.diff(pauses) >= 0).all()
    assert FIRST_PAUSE <= pauses[0] < pauses[-1] <= LONGEST_PAUSE + 10.0
    # None of that counts: from the first time that it is taken, the run has all its attempts.
    away, before = False, len(asked)
    for _ in range(200):
        clock.now += 1000.0
        supervisor.look([run("interrupted")])
    assert len(asked) - before == MOST_ATTEMPTS


def test_a_ledger_that_opens_and_refuses_is_not_asked_without_a_pause(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from fieldfare_server.cli import supervise as command

    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    def refuse() -> None:
        assert len(slept) < 3
        raise FieldfareError("a row that does not fit")

    opened = contextlib.nullcontext(SimpleNamespace(expire_reservations=refuse))
    monkeypatch.setattr(command, "time", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(command, "Ledger", SimpleNamespace(open=lambda place, head_file: opened))
    with pytest.raises(SystemExit, check=lambda end: end.code == 130):
        command.supervise(insecure=True, every=7.0)
    assert slept == [7.0] * 3
    assert [record.getMessage() for record in caplog.records] == [
        "the ledger cannot be read: a row that does not fit"
    ] * 3


@pytest.mark.parametrize(
    ("of", "task"),
    [("digits?users=7", "digits?users=7"), (OWN_APP, ""), ("", "support.federation:TinyTask")],
    ids=["question", "question of an own app", "training"],
)
def test_who_goes_on_with_a_run_hands_nodes_the_task_with_which_it_began(
    of: str, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes whose own configuration names no task know it from there alone. A Flower app's users only it can ask."""
    from fieldfare_server.cli import run as command
    from fieldfare_server.cli import supervise as supervision

    where, begun, handed = home_of_people(tmp_path), plan(run__noise_seed=None), list[object]()
    if of:
        asked = {"question": {"kind": "mean", "measure": "y", "low": 0, "high": 1}, "run": {"task": of, "cohort": 7}}
        begun = Asked.of({**asked, "privacy": {"population": "people", "epsilon": 1, "delta": 1e-5}}).plan_for_nodes()
    with pytest.raises(KeyboardInterrupt), Session.begin(where, begun, True) as session:
        raise KeyboardInterrupt
    for module in (command, supervision):
        monkeypatch.setattr(module, "submit_and_follow", lambda *_, **terms: handed.append(terms["task"]))
    monkeypatch.setattr(supervision, "time", SimpleNamespace(sleep=lambda _: sys.exit(0)))
    resume = ["run", "--resume", session.account.id, "--insecure", "--detach", "--home", str(where.root)]
    said = CliRunner().invoke(application, resume)
    assert said.exit_code == (0 if task else 2), said.output
    with pytest.raises(SystemExit):
        supervision.supervise(insecure=True, home=where.root)
    assert handed == ([task] * 2 if task else [])


def test_flowers_processes_find_a_task_that_lies_beside_its_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check found it, and the run ended in a wall of Flower's text, unless it was started in that directory."""
    path, told = tmp_path / "beside" / "plan.toml", list[str]()
    path.parent.mkdir()
    path.write_text(plan_text(plan()))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(simulation, "superlink", lambda *_, **__: contextlib.nullcontext("127.0.0.1:1"))
    monkeypatch.setattr(simulation, "submit", lambda *_, env, **__: told.extend(env["PYTHONPATH"].split(os.pathsep)))
    monkeypatch.setattr(simulation, "require_ended", lambda *_: None)
    simulation.run_flower_simulation(home_of_people(tmp_path), Path("beside/plan.toml"), "", 2)
    assert told[-2:] == [str(tmp_path), str(path.parent)]


def test_a_run_is_named_before_it_is_handed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that is killed while it waits has said what to resume, or whose answer to show."""
    told, by_then = list[str](), list[str]()
    monkeypatch.setattr(submitting, "submit", lambda *_, **__: by_then.extend(told) or "")
    submit_and_follow(home_of_people(tmp_path), "superlink:8000", told.append, run_id="4c0de", detach=True)
    assert "4c0de" in by_then[0]


def test_every_module_that_a_compose_file_runs_is_there() -> None:
    modules = set()
    for path in (ROOT / "docker-compose.yml", ROOT / "deploy/compose.insecure.yml"):
        for service in yaml.safe_load(path.read_text())["services"].values():
            command = service.get("command", [])
            modules |= {command[at + 1] for at, word in enumerate(command) if word == "-Pm"}
    assert modules == {"fieldfare_flower.coordinator", "fieldfare_flower.supernode", "fieldfare_flower.warm"}
    assert all(importlib.util.find_spec(module) for module in modules)


IPV6 = pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="needs IPv6")


@pytest.mark.parametrize(
    ("host", "family"), [("127.0.0.1", socket.AF_INET), pytest.param("[::1]", socket.AF_INET6, marks=IPV6)]
)
def test_a_program_starts_after_its_file_and_its_port(host: str, family: socket.AddressFamily, tmp_path: Path) -> None:
    with socket.create_server((host.strip("[]"), 0), family=family) as server:
        port = server.getsockname()[1]
        command = [sys.executable, str(ROOT / "deploy/after.py"), str(tmp_path / "f"), f"{host}:{port}", "--"]
        program = subprocess.Popen([*command, "echo", "started"], stdout=subprocess.PIPE, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(1.5)
        (tmp_path / "f").touch()
        assert program.communicate(timeout=30)[0] == "started\n"


def test_only_the_migration_has_the_password_of_the_ledgers_owner() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    volumes = {name: {str(each).split(":")[0] for each in one.get("volumes", [])} for name, one in services.items()}
    holders = {secret: {name for name in volumes if secret in volumes[name]} - {"server-secrets"} for secret in SECRETS}
    assert holders == SECRETS
    assert "--roles" in services["migrate"]["command"]


SECRETS = {
    "migrate-secrets": {"migrate"},
    "ledger-secrets": {"ledger"},
    "api-secrets": {"api", "backup"},
    "coordinator-secrets": {"coordinator", "supervisor"},
    "admin-secrets": {"submit"},
}
"""Volume of secrets -> the services that read it."""
