"""Secrets of each party, orphans that are resumed, and starting after what is needed."""

from __future__ import annotations

import importlib.util
import socket
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from fieldfare.errors import BadInput, FieldfareError
from fieldfare_server.certificates import PARTS, make_node, make_server
from fieldfare_server.supervisor import FIRST_PAUSE, MOST_ATTEMPTS, Supervisor

ROOT = Path(__file__).parents[2]


def files(directory: Path) -> dict[str, int]:
    return {str(p.relative_to(directory)): stat.S_IMODE(p.stat().st_mode) for p in directory.rglob("*") if p.is_file()}


def test_each_service_gets_its_own_secrets_and_no_other(tmp_path: Path) -> None:
    make_server(tmp_path / "s", tmp_path / "x", ["superlink", "127.0.0.1"])
    found = files(tmp_path / "s")
    assert {name.split("/")[0] for name in found} == set(PARTS)
    assert {name for name in found if name.startswith("api/")} == {"api/ledger.url"}
    private = {name: mode for name, mode in found.items() if not name.endswith(".crt")}
    assert all(mode == 0o600 for name, mode in private.items() if not name.startswith("ledger/"))
    assert (tmp_path / "s/ledger/password").read_text() in (tmp_path / "s/coordinator/ledger.url").read_text()
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


def test_a_second_call_overwrites_nothing(tmp_path: Path) -> None:
    make_node(tmp_path / "n", tmp_path / "x", "node-1", ["node-1"])
    before = (tmp_path / "n/node").read_bytes()
    with pytest.raises(BadInput, match="already holds"):
        make_node(tmp_path / "n", tmp_path / "x", "node-1", ["node-1"])
    assert (tmp_path / "n/node").read_bytes() == before


@pytest.mark.parametrize("name", ["", "../node", ".hidden", "a/b"])
def test_a_node_name_stays_in_its_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput):
        make_node(tmp_path / "n", tmp_path / "x", name, ["node-1"])
    assert not (tmp_path / "n").exists()


def run(state: str, next_round: int = 0) -> SimpleNamespace:
    return SimpleNamespace(id="r", state=state, next_round=next_round, rounds=8)


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


def test_a_run_that_never_gets_on_is_left_to_people_and_one_that_does_is_not() -> None:
    clock = Clock()

    def refuse(_: object) -> None:
        raise FieldfareError("the SuperLink is away")

    supervisor = Supervisor(refuse, clock)
    for _ in range(50):
        clock.now += 1000.0
        supervisor.look([run("interrupted")])
    assert supervisor.look([run("interrupted")]) == []
    assert supervisor.look([run("interrupted", next_round=1)]) == ["r"]
    assert MOST_ATTEMPTS > 1


def test_every_module_that_a_compose_file_runs_is_there() -> None:
    modules = set()
    for path in (ROOT / "docker-compose.yml", ROOT / "deploy/compose.insecure.yml"):
        for service in yaml.safe_load(path.read_text())["services"].values():
            command = service.get("command", [])
            modules |= {command[at + 1] for at, word in enumerate(command) if word == "-Pm"}
    assert modules == {"fieldfare_client.supernode", "fieldfare_client.warm"}
    assert all(importlib.util.find_spec(module) for module in modules)


def test_a_program_starts_after_its_file_and_its_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = [sys.executable, str(ROOT / "deploy/after.py"), str(tmp_path / "f"), f"127.0.0.1:{port}", "--"]
        program = subprocess.Popen([*command, "echo", "started"], stdout=subprocess.PIPE, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(1.5)
        (tmp_path / "f").touch()
        assert program.communicate(timeout=30)[0] == "started\n"
