"""A backup that is made while the ledger is written to is whole, and restores."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import threading
import time
from pathlib import Path
from typing import NoReturn

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import make_url
from sqlalchemy.exc import OperationalError
from typer.testing import CliRunner

from fieldfare.accounting.foreign import Foreign
from fieldfare.errors import BadInput, LedgerError
from fieldfare_server.api import Settings, create_app
from fieldfare_server.cli.application import assemble
from fieldfare_server.evidence.verify import verify
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.sql import backups, roles
from support.full_disk import no_file_above
from support.ledgers import commit, start
from support.postgres import Cluster
from support.refusals import coded


def write(url: str, done: threading.Event, keys: list[str]) -> None:
    """Reserve charges until `done`; each key is noted once its charge is acknowledged."""
    with Ledger.open(url) as ledger:
        while not done.is_set():
            key = f"k{len(keys)}"
            ledger.reserve_charge("people", key, Foreign(mu=0.001), what="x", why="y", actor="ranker")
            keys.append(key)


def backed_up(url: str, directory: Path) -> tuple[list[str], Path]:
    """(what was acknowledged before the backup began, the backup), made while another thread charges."""
    with Ledger.open(url, create=True) as ledger:
        ledger.create_population("people", 8.0, 1e-6, actor="officer")
        commit(start(ledger, 0.1), [], 0.1)
    keys: list[str] = []
    done = threading.Event()
    writer = threading.Thread(target=write, args=(url, done, keys))
    writer.start()
    try:
        end = time.monotonic() + 30
        while len(keys) < 5 and time.monotonic() < end:
            time.sleep(0.01)
        before = list(keys)
        return before, backups.make(url, directory)
    finally:
        done.set()
        writer.join(60)
        assert len(keys) >= len(before)


def require_restored(url: str, before: list[str]) -> None:
    with Ledger.open(url) as ledger:
        assert verify(ledger).ok
        known = {charge.key for charge in ledger.charges("people")}
        assert set(before) <= known, "what was acknowledged before the backup is in it"
        assert before
        assert len(ledger.runs().items) == 1
        ledger.reserve_charge("people", "after", Foreign(mu=0.001), what="x", why="y", actor="ranker")


def test_a_backup_of_sqlite_under_load_restores(tmp_path: Path) -> None:
    before, copy = backed_up(f"sqlite:///{tmp_path / 'ledger.sqlite3'}", tmp_path / "copies")
    assert copy.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in copy.parent.iterdir()] == [copy.name], "nothing is left beside it"
    restored = tmp_path / "restored.sqlite3"
    shutil.copy(copy, restored)
    require_restored(f"sqlite:///{restored}", before)


@pytest.mark.postgres
@pytest.mark.skipif(shutil.which("pg_dump") is None or shutil.which("pg_restore") is None, reason="needs pg_dump")
def test_a_backup_of_postgresql_under_load_restores(postgres: Cluster, tmp_path: Path) -> None:
    source = postgres.new_database()
    before, _ = backed_up(source, tmp_path / "copies")
    # The role of the API is enough, as in compose.
    roles.separate(source, {part: f"{part}-is-long-and-random" for part in roles.PARTS})
    reader = make_url(source).set(username="fieldfare_api").render_as_string()
    copy = backups.make(reader, tmp_path / "copies")
    url = postgres.new_database()
    command = ["pg_restore", f"--dbname={make_url(url).render_as_string()}", "--exit-on-error", str(copy)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    require_restored(url, before)


def test_old_backups_go_and_their_age_is_on_metrics(tmp_path: Path) -> None:
    url, copies = f"sqlite:///{tmp_path / 'ledger.sqlite3'}", tmp_path / "copies"
    Ledger.open(url, create=True).close()
    copies.mkdir()
    (copies / "notes.txt").write_text("kept")

    def age() -> float:
        app = create_app(url, Settings(), backups=copies)
        with TestClient(app, base_url="http://localhost", client=("127.0.0.1", 1)) as client:
            lines = client.get("/metrics").text.splitlines()
        return float(next(line for line in lines if line.startswith("fieldfare_backup_age_seconds ")).split()[1])

    assert age() == float("inf")
    run = CliRunner().invoke(assemble(), ["backup", str(copies), "--ledger", url])
    assert run.exit_code == 0, run.output
    assert age() < 60
    first = next(path for path in copies.iterdir() if path.suffix == ".sqlite3")
    os.utime(first, (time.time() - 10**5, time.time() - 10**5))
    assert 10**5 <= age() < 10**5 + 60
    newest = [backups.make(url, copies, keep=2) for _ in range(3)][1:]
    assert sorted(path for path in copies.iterdir() if path.suffix == ".sqlite3") == newest
    assert (copies / "notes.txt").exists()
    os.utime(newest[0], (time.time() - 10**5, time.time() - 10**5))
    assert age() < 60, "the newest counts"


def test_a_ledger_in_a_directory_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """It was to be "put right": SQLite opens no write-ahead log where it may make no file, even to read."""
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.sqlite3'}", create=True) as ledger:
        with pytest.raises(sqlite3.OperationalError) as missing:
            sqlite3.connect(f"file:{tmp_path}/none/ledger?mode=rw", uri=True)
        with contextlib.closing(sqlite3.connect(tmp_path / "ledger.sqlite3")) as reader:
            reader.execute("PRAGMA query_only = 1")
            with pytest.raises(sqlite3.OperationalError) as refused:
                reader.execute("DELETE FROM leases")
        for error in (missing, refused):
            with pytest.raises(LedgerError, check=coded("database-unwritable", "cannot be written")):
                raise ledger.database.error(OperationalError("", None, error.value))


def test_what_cannot_be_backed_up_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = tmp_path / "copies"
    with pytest.raises(LedgerError):
        backups.make(f"sqlite:///{tmp_path / 'none.sqlite3'}", copies)
    assert not list(copies.iterdir())
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    Ledger.open(url, create=True).close()

    def full(*_: object, **__: object) -> NoReturn:
        cause = sqlite3.OperationalError("database or disk is full")
        cause.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise cause

    with monkeypatch.context() as patched:
        patched.setattr(backups.sqlite3, "connect", full)
        with pytest.raises(BadInput, check=coded("unwritable", f"backup in {copies}")):  # it blamed the ledger
            backups.make(url, copies)
    assert not list(copies.iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, check=coded("unwritable", "backup in")):
        backups.make(url, tmp_path / "file")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, check=coded("not-installed", "backup of a PostgreSQL ledger", "pg_dump")):
        backups.make("postgresql://x@nowhere/x", copies)
    shutil.copy(shutil.which("true", path=os.defpath) or "/bin/true", tmp_path / "pg_dump")
    with pytest.raises(BadInput, check=coded("unsupported", "backup of a PostgreSQL ledger", "sslkey")) as refused:
        backups.make("postgresql://x@nowhere/x?sslkey=k&sslpassword=SECRET", copies)  # every account sees arguments
    assert "SECRET" not in str(refused.value)
    assert not list(copies.iterdir())


def test_a_ledger_whose_own_disk_is_full_is_named_and_not_the_copy(tmp_path: Path) -> None:
    file = tmp_path / "für alle" / "ledger.sqlite3"
    file.parent.mkdir()
    with Ledger.open(f"sqlite:///{file}", create=True) as ledger:
        ledger.create_population("people", 2.0, 1e-6, actor="officer")
        assert ledger.url == f"sqlite:///{file}", "a person finds it: no %C3%BC"
    with no_file_above(1000), pytest.raises(LedgerError, check=coded("disk-full", "für alle")):
        backups.make(f"sqlite:///{file}", tmp_path / "copies")
    assert not list((tmp_path / "copies").iterdir())
