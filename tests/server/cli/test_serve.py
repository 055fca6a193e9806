"""`fieldfare serve` and unreachable places: one refusal before anything is promised, never a traceback."""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from click.testing import Result
from typer.testing import CliRunner

from fieldfare.errors import AlreadyThere, LedgerError
from fieldfare_server.api import Settings, create_app
from fieldfare_server.api.server import config, listen
from fieldfare_server.cli.application import assemble
from fieldfare_server.ledger import Ledger
from support.refusals import coded


@pytest.fixture
def home(tmp_path: Path) -> Path:
    Ledger.open(str(tmp_path / "ledger.sqlite3"), create=True).close()
    return tmp_path


def serve(home: Path, *arguments: object) -> Result:
    return CliRunner().invoke(assemble("serve"), ["serve", "--home", str(home), *map(str, arguments)])


def test_a_port_that_is_taken_is_refused_before_the_address_is_told(home: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        refused = serve(home, "--port", port)
    assert refused.exit_code == 2
    assert f"port {port}" in refused.stderr
    assert "Budget page" not in refused.output


@pytest.mark.parametrize(("host", "beyond"), [("localhost", False), ("0.0.0.0", True)])
def test_only_an_address_beyond_this_machine_is_called_reachable(home: Path, host: str, beyond: bool) -> None:
    (home / "hook.txt").write_bytes(b"\xff")  # it ends before it serves
    told = serve(home, "--host", host, "--port", 0, "--alert-hook", home / "hook.txt").stderr
    assert ("reachable from other machines" in told) is beyond


def test_a_hook_that_is_no_text_is_refused_in_words(home: Path) -> None:
    (home / "hook.txt").write_bytes(b"\xff\xfe")
    refused = serve(home, "--port", 0, "--alert-hook", home / "hook.txt")
    assert refused.exit_code == 2
    assert "the web hook: it is not an https URL" in refused.stderr


def test_an_address_is_taken_by_one_alone_before_it_serves(home: Path) -> None:
    app = create_app(f"sqlite:///{home / 'ledger.sqlite3'}", Settings())
    with listen(config(app, port=0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(AlreadyThere, check=coded("already-there", f"port {port}")):
            listen(config(app, port=port))
        socket.create_connection(("127.0.0.1", port), timeout=60).close()


SERVED = """
import signal
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the suite may run below nohup
from fieldfare_server.cli import main
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_service_that_is_told_to_end_has_done_its_work(home: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", SERVED, "serve", "--port", "0", "--home", str(home)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        address = [process.stderr.readline() for _ in range(2)][1].split(": ")[1].strip()
        assert httpx.get(address, timeout=60, trust_env=False).status_code == 200
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, told) == (0, "")


def test_a_log_file_of_the_process_stays_open(home: Path) -> None:
    logger, file = logging.getLogger("of the process"), logging.FileHandler(home / "own.log", "w")
    logger.addHandler(file)
    try:
        config(create_app(f"sqlite:///{home / 'ledger.sqlite3'}", Settings()))
        logger.warning("still told")
    finally:
        logger.removeHandler(file)
        file.close()
    assert (home / "own.log").read_text() == "still told\n"


@pytest.mark.parametrize("content", [b"no certificate", None])
def test_a_bad_certificate_is_refused_by_name(content: bytes | None, home: Path) -> None:
    certificate, key = home / "server.crt", home / "server.key"
    if content is not None:
        certificate.write_bytes(content)
        key.write_bytes(content)
    refused = serve(home, "--certificate", certificate, "--key", key)
    assert refused.exit_code == 2
    assert "server.crt" in refused.stderr
    assert refused.exception is None or isinstance(refused.exception, SystemExit)


def test_a_home_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = CliRunner().invoke(
        assemble("population"),
        ["population", "create", "people", "--epsilon", "2", "--delta", "1e-5", "--home", str(tmp_path / "file" / "x")],
    )
    assert refused.exit_code == 2
    assert "cannot be made" in refused.stderr


def test_a_database_that_cannot_be_reached_is_told_soon() -> None:
    with socket.socket() as nothing_listens:
        nothing_listens.bind(("127.0.0.1", 0))
        port = nothing_listens.getsockname()[1]
        began = time.monotonic()
        with pytest.raises(LedgerError, check=coded("database-away")):
            Ledger.open(f"postgresql://fieldfare@127.0.0.1:{port}/fieldfare")
    assert time.monotonic() - began < 30, "libpq alone waits for minutes"


def test_a_database_that_does_not_answer_is_told_soon() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        began = time.monotonic()
        with pytest.raises(LedgerError, check=coded("database-away")):
            Ledger.open(f"postgresql://fieldfare@127.0.0.1:{silent.getsockname()[1]}/fieldfare")
    assert time.monotonic() - began < 30, "libpq alone waits for minutes"


def test_an_open_ledger_waits_for_its_database_as_long_as_it_was_told(home: Path) -> None:
    with Ledger.open(str(home / "ledger.sqlite3"), patience=42.0) as ledger:
        assert ledger.database.patience == 42.0
