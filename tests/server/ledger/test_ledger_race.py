"""Processes that race: for the last of a budget, for a run, for making the ledger."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import support.race
from fieldfare.errors import BadInput, LedgerError
from fieldfare_server.evidence.verify import verify
from fieldfare_server.ledger import Ledger, Outcome
from fieldfare_server.ledger.sql import database
from support.ledgers import commit, digest, start
from support.refusals import coded

RACE = Path(support.race.__file__)


def test_processes_cannot_share_the_last_of_a_budget(ledger_url: str, tmp_path: Path) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        mu = ledger.population("people").remaining_mu / np.sqrt(5.5)  # five fit, a sixth does not
        gate = tmp_path / "gate"
        racers = [
            subprocess.Popen(
                [sys.executable, str(RACE), ledger_url, str(gate), repr(float(mu))], stdout=subprocess.PIPE, text=True
            )
            for _ in range(2)
        ]
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        gate.touch()
        outcomes = [line.split()[0] for racer in racers for line in racer.communicate(timeout=120)[0].splitlines()]
        assert [racer.returncode for racer in racers] == [0, 0]
        assert sorted(outcomes) == ["refused"] * 11 + ["won"] * 5
        view = ledger.population("people")
        assert view.runs_active == 5
        assert view.committed_epsilon <= 4.0
        assert verify(ledger).ok


def test_threads_of_one_process_are_writers_one_after_another(ledger_url: str) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                with start(ledger, 0.1, rounds=3) as run:
                    users = run.register_users(np.arange(number, number + 5, dtype=np.uint64))
                    for t in range(3):
                        commit(run, users[: t + 1].tolist(), 0.05 + t * 0.01)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert ledger.population("people").users == 8
        assert verify(ledger).ok


def test_ledgers_are_made_once_by_whoever_comes_first(ledger_url: str) -> None:
    opened: list[Ledger] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            opened.append(Ledger.open(ledger_url, create=True))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len({ledger.head().ledger for ledger in opened}) == 1
    for ledger in opened:
        ledger.close()


def test_a_new_file_that_others_make_a_wal_too_is_waited_for(tmp_path: Path) -> None:
    """SQLite gives up that lock at once: of three first runs, one in fifteen ended with "database is locked"."""
    path = tmp_path / "ledger.sqlite3"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("CREATE TABLE t (a)")
    other.execute("BEGIN")
    other.execute("SELECT * FROM t").fetchall()
    done = threading.Timer(0.1, other.rollback)
    done.start()
    connection = sqlite3.connect(path, timeout=0)
    database._set_up_sqlite(connection, None)
    done.join()
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()
    other.close()


def test_two_coordinators_of_one_run_cannot_both_commit_a_round(ledger_url: str) -> None:
    """The lease is taken over (a stalled network, say) while the old coordinator is about to commit."""
    key = digest("key")
    with Ledger.open(ledger_url, create=True, lease_seconds=0.0) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        runs = [start(ledger, key_commitment=key)]
        runs[0].open_round([])
        runs.append(ledger.resume_run(runs[0].id, key_commitment=key, holder="second"))
        results: list[str] = []

        def work(number: int) -> None:
            opened = runs[number].open_round_pending()
            assert opened is not None
            try:
                runs[number].commit_round(opened, Outcome([], runs[number].planned), digest(f"from {number}"))
                results.append(digest(f"from {number}"))
            except LedgerError:
                results.append("refused")

        threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(results) == sorted(["refused", digest("from 1")])
        assert ledger.run(runs[0].id).checkpoint == digest("from 1")
        assert verify(ledger).ok


def test_a_key_serves_one_run_only(ledger_url: str) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        ledger.create_population("toys", 4.0, 1e-6, simulated=True, actor="officer")
        start(ledger, 0.1, key_commitment=digest("key"))
        with pytest.raises(BadInput, check=coded("already-there", "the noise key")):
            start(ledger, 0.1, key_commitment=digest("key"))
        for _ in range(2):
            start(ledger, 0.1, population="toys", noise_source="seeded", key_commitment=digest("seed 1"))
        with pytest.raises(BadInput, check=coded("not-allowed", "a fixed noise seed on population")):
            start(ledger, 0.1, noise_source="seeded")


def test_who_loses_the_race_for_a_population_gets_the_one_that_is_there(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process makes it between the look and the making: one population, with the budget of who was first."""
    terms = {"adjacency": "zero_out", "simulated": True}
    with Ledger.open(ledger_url, create=True) as ledger:
        first, made = ledger.population_or_new("people", 4.0, 1e-6, actor="first", **terms)
        assert made
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "find_population", lambda *_: None)
            assert ledger.population_or_new("people", 9.0, 1e-6, actor="second", **terms) == (first, False)
        assert ledger.population_or_new("people", 9.0, 1e-6, actor="third", **terms) == (first, False)
        with pytest.raises(BadInput, check=coded("wrong-form", "no name")):
            ledger.population_or_new("no name", 9.0, 1e-6, actor="third", **terms)
