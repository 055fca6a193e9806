"""A coordinator that is busy keeps its run; one that is dead, or hangs, loses it."""

from __future__ import annotations

import functools
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from fieldfare.errors import LedgerError
from fieldfare.plan import Plan
from fieldfare_server.cli.progress import local_grid
from fieldfare_server.evidence.verify import verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.lease_keeper import LeaseKeeper
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session

LEASE = 0.6

PLAN = """
[privacy]
population = "people"
epsilon = 8.0
delta = 1e-5

[run]
task = "digits"
rounds = 2
cohort = 10
min_reports = 5
noise_seed = 7

[participation]
scheme = "min-separation"
separation = 1
max_participations = 2

[mechanism]
kind = "independent"
"""

ENDLESS = """
import sys, time, functools
from pathlib import Path
from fieldfare.plan import Plan
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.session import Session
Ledger.open = functools.partial(Ledger.open, lease_seconds=float(sys.argv[3]))
session = Session.begin(StateDirectory(Path(sys.argv[1]), sys.argv[2]), Plan.from_toml(sys.stdin.read()), True)
print(session.account.id, flush=True)
time.sleep(600)
"""


@pytest.fixture
def home(tmp_path: Path, ledger_url: str) -> StateDirectory:
    home = StateDirectory(tmp_path / "home", ledger_url)
    home.prepare()
    with Ledger.open(home.ledger, create=True) as ledger:
        ledger.create_population("people", 8.0, 1e-5, simulated=True, actor="test")
    return home


def wait_until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def beats(ledger: Ledger) -> int:
    with ledger.database.read() as connection:
        return int(connection.execute(text("SELECT beat FROM leases")).scalar_one())


def test_the_lease_is_renewed_while_a_round_takes_its_time(
    home: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ledger, "open", functools.partial(Ledger.open, lease_seconds=LEASE))
    session = Session.begin(home, Plan.from_toml(PLAN), identity_is_stable=True)

    def slow(_model: object) -> dict[str, float]:
        with Ledger.open(home.ledger) as other:
            before = beats(other)
            wait_until(lambda: beats(other) >= before + 3)
        return {"accuracy": 0.5}

    monkeypatch.setattr(session.model, "evaluate", slow)
    with session:
        FieldfareStrategy(session).start(local_grid(session.plan, 2))
    with Ledger.open(home.ledger) as ledger:
        assert ledger.run(session.account.id).state == "done"
        assert verify(ledger).ok


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_dead_or_stopped_process_loses_its_run(home: StateDirectory, how: signal.Signals) -> None:
    command = [sys.executable, "-c", ENDLESS, str(home.root), home.ledger, str(LEASE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(PLAN)
            process.stdin.close()
            run = process.stdout.readline().strip()
            with Ledger.open(home.ledger) as ledger:
                before = beats(ledger)
                wait_until(lambda: beats(ledger) >= before + 3)
                process.send_signal(how)
                wait_until(lambda: ledger.run(run).state == "interrupted")
        finally:
            process.kill()


def test_a_session_that_hangs_is_given_up() -> None:
    count: list[int] = []
    keeper = LeaseKeeper(lambda: count.append(1), every=0.01, longest=0.2)
    keeper.start()
    wait_until(lambda: not keeper._thread.is_alive())
    assert count
    keeper.stop()


def test_a_database_that_is_away_does_not_stop_the_keeper() -> None:
    count: list[int] = []

    def renew() -> None:
        count.append(1)
        raise LedgerError("ledger", "is away.")

    keeper = LeaseKeeper(renew, every=0.01)
    keeper.start()
    wait_until(lambda: len(count) >= 3)
    keeper.stop()
    assert not keeper._thread.is_alive()
