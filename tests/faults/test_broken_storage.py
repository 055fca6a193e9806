"""Disks that fill up, directories that cannot be written, databases that go away, old copies that come back."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fieldfare.errors import LedgerError
from fieldfare_server.evidence.verify import verify
from fieldfare_server.ledger import HeadFile, Ledger, Outcome
from support.driver import Place, fork_and_live, live, prepare
from support.ledgers import commit, digest, gaussian, start
from support.postgres import Cluster, find_programs, missing
from support.refusals import coded
from support.transcript import check


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(f"sqlite:///{tmp_path / 'ledger.sqlite3'}", tmp_path / "runs")
    prepare(made)
    return made


def live_with_files_of_at_most(place: Place, size: int) -> int:
    """One life in which no file may grow beyond `size` bytes: what a full disk looks like, without root."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
            live(place)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("size", [0, 100, 5_000, 40_000, 85_000, 130_000, 180_000, 220_000])
def test_a_disk_that_fills_up_anywhere_leaves_a_run_that_goes_on(place: Place, size: int) -> None:
    status = live_with_files_of_at_most(place, size)
    assert status == 1 or size > 100_000
    check(place, ended=status == 0)
    assert fork_and_live(place) == 0
    check(place, ended=True)


@pytest.fixture
def plain_user() -> Iterator[tuple[int | None, Path]]:
    """Somebody for whom permissions count, and a directory that they can reach."""
    path = Path(tempfile.mkdtemp(prefix="fieldfare-"))
    path.chmod(0o755)
    yield (65534 if os.geteuid() == 0 else None), path
    for directory in (path, *path.rglob("*")):
        if directory.is_dir():
            directory.chmod(0o755)
    shutil.rmtree(path)


@pytest.mark.parametrize("there", [False, True])
def test_a_read_only_directory_is_refused_in_words(plain_user: tuple[int | None, Path], there: bool) -> None:
    nobody, path = plain_user
    ledger = path / "ledger.sqlite3"
    if there:
        Ledger.open(str(ledger), create=True).close()
        ledger.chmod(0o444)
    path.chmod(0o555)
    message = path.parent / f"{path.name}.message"
    child = os.fork()
    if child == 0:
        code = 1
        try:
            answer = os.open(message, os.O_WRONLY | os.O_CREAT, 0o600)
            if nobody is not None:
                os.setgid(nobody)
                os.setuid(nobody)
            try:
                with Ledger.open(str(ledger), create=True) as opened:
                    opened.create_population("people", 1.0, 1e-6, actor="x")
            except LedgerError as error:
                os.write(answer, str(error).encode())
                code = 0
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    said = message.read_text()
    message.unlink()
    assert status == 0
    assert "Nearest allowed" in said


def test_a_ledger_file_that_is_taken_away_is_noticed_and_nothing_new_is_made(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite3"
    with Ledger.open(str(path), create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        run = start(ledger)
        path.rename(tmp_path / "elsewhere")
        with pytest.raises(LedgerError, check=coded("database-gone")):
            run.open_round([])
        with pytest.raises(LedgerError, check=coded("database-gone")):
            ledger.populations()
        assert not path.exists()
        shutil.copy(tmp_path / "elsewhere", path)
        with pytest.raises(LedgerError, check=coded("database-replaced")):
            run.open_round([])


def test_an_old_copy_put_back_is_refused(tmp_path: Path) -> None:
    path, held = tmp_path / "ledger.sqlite3", tmp_path / "head.json"
    with Ledger.open(str(path), create=True, head_file=held) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        run = start(ledger)
    shutil.copy(path, tmp_path / "backup")
    with Ledger.open(str(path), head_file=held) as ledger:
        run = start(ledger, 0.1)
        commit(run, [], 0.1)
        assert HeadFile(held).read() == ledger.head()
    shutil.copy(tmp_path / "backup", path)
    with pytest.raises(LedgerError, check=coded("old-copy", "ledger")):
        Ledger.open(str(path), head_file=held)
    Ledger.open(str(path)).close()  # who holds nothing cannot know
    path.unlink()
    with pytest.raises(LedgerError, check=coded("ledger-error", "ledger")):
        Ledger.open(str(path), head_file=held, create=True)
    Ledger.open(str(tmp_path / "other"), create=True).close()
    with pytest.raises(LedgerError, check=coded("old-copy", "ledger")):
        Ledger.open(str(tmp_path / "other"), head_file=held)
    held.write_text("{}")
    with pytest.raises(LedgerError, check=coded("head-unreadable", "ledger head")):
        Ledger.open(str(tmp_path / "other"), head_file=held)


def test_an_old_copy_put_back_under_a_running_coordinator_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite3"
    with Ledger.open(str(path), create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        run = start(ledger)
        copy = sqlite3.connect(tmp_path / "backup")
        with sqlite3.connect(path) as source:
            source.backup(copy)
        commit(run, [], 0.1)
        target = sqlite3.connect(path)
        copy.backup(target)  # into the same file, as a restore of a database server would
        target.close()
        copy.close()
        with pytest.raises(LedgerError, check=coded("old-copy", "ledger")):
            run.open_round([])


@pytest.mark.parametrize("content", [b"", b"not a database at all, but some text that somebody put there" * 20])
def test_what_is_no_ledger_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ledger.sqlite3"
    path.write_bytes(content)
    with pytest.raises(LedgerError):
        Ledger.open(str(path))
    if content:
        with pytest.raises(LedgerError):
            Ledger.open(str(path), create=True)
        assert path.read_bytes() == content


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    """A server that the test may stop."""
    programs = find_programs()
    if programs is None:
        missing()
        return
    cluster = Cluster(programs)
    yield cluster
    cluster.remove()


@pytest.mark.postgres
def test_a_database_that_goes_away_and_comes_back_is_waited_for(own_cluster: Cluster) -> None:
    with Ledger.open(own_cluster.new_database(), create=True, patience=60.0) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        run = start(ledger, rounds=12)
        run.register_users(np.arange(5, dtype=np.uint64))
        failures: list[BaseException] = []

        def work() -> None:
            try:
                for _ in range(12):
                    commit(run, [0, 1], 0.3)
                    time.sleep(0.02)
            except BaseException as error:
                failures.append(error)

        worker = threading.Thread(target=work)
        worker.start()
        for _ in range(2):
            time.sleep(0.15)
            own_cluster.stop("immediate")
            time.sleep(0.2)
            own_cluster.start()
        worker.join()
        assert not failures
        assert ledger.run(run.id).next_round == 12
        assert verify(ledger).ok


@pytest.mark.postgres
def test_a_database_that_stays_away_ends_in_words_and_the_run_can_go_on(own_cluster: Cluster) -> None:
    url, key = own_cluster.new_database(), digest("key")
    with Ledger.open(url, create=True, patience=0.3) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        run = start(ledger, key_commitment=key)
        opened = run.open_round([])
        own_cluster.stop("immediate")
        with pytest.raises(LedgerError, check=coded("database-away")):
            run.commit_round(opened, Outcome([], gaussian(0.1)), digest("x"))
        with pytest.raises(LedgerError, check=coded("database-away")):
            run.request()
        own_cluster.start()
        run.commit_round(opened, Outcome([], gaussian(0.1)), digest("x"))
        run.commit_round(opened, Outcome([], gaussian(0.1)), digest("x"))  # said twice, done once
        assert ledger.run(run.id).next_round == 1
        assert verify(ledger).ok
