"""Stop, pause and resume through the API reach a real session at its next round boundary, in place."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from fieldfare_server.api import create_app
from fieldfare_server.api.http_client import Client
from fieldfare_server.api.server import config, serve_in_thread
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.round.strategy import FieldfareStrategy, RoundReport
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, home, plan
from support.waiting import until

PATIENCE = 60.0
"""A bound for a slow machine; nothing here waits that long on its own."""


def test_pause_resume_and_stop_reach_a_running_session(tmp_path: Path) -> None:
    where = home(tmp_path)
    told: list[RoundReport] = []
    asked, gate = threading.Event(), threading.Event()

    def on_round(report: RoundReport) -> None:
        """Rounds 0 and 2 end only when this test says so: what is asked meanwhile holds from the next one."""
        told.append(report)
        if report.round in (0, 2):
            asked.set()
            assert gate.wait(PATIENCE)
            gate.clear()

    failures: list[BaseException] = []

    def train() -> None:
        try:
            with Session.begin(where, plan(), True, run_id="live") as session:
                FieldfareStrategy(session, on_round).start(LyingGrid(3))
        except BaseException as error:
            failures.append(error)
            asked.set()

    with Ledger.open(where.ledger) as ledger:
        secret, _ = ledger.create_token("officer", ("read", "admin"), actor="test")
    runner = threading.Thread(target=train, daemon=True)
    with serve_in_thread(config(create_app(where.ledger), port=0)) as url, Client(url, secret) as client:
        runner.start()
        assert asked.wait(PATIENCE)
        assert not failures
        asked.clear()
        assert client.pause("live").request == "pause"
        gate.set()
        until(lambda: client.run("live").state == "paused")
        time.sleep(0.5)  # a look of the paused session at its request: long enough for many of these rounds
        paused = client.run("live")
        assert (paused.state, paused.committed_rounds, len(told)) == ("paused", 1, 1)
        assert runner.is_alive(), "it waits in place; its lease and reservation stay its own"
        assert client.population("people").rounds_left == 5
        client.resume("live")
        assert asked.wait(PATIENCE)
        assert [report.round for report in told] == [0, 1, 2]
        client.stop("live")
        gate.set()
        runner.join(PATIENCE)
        assert not runner.is_alive()
        assert not failures
        until(lambda: client.run("live").state == "stopped")
        end = client.run("live")
        assert (end.committed_rounds, end.message) == (3, "stopped on request")
        population = client.population("people")
        assert population.reserved_epsilon == 0, "what was reserved for the other rounds is free again"
        # A user's odometer counts what all rounds of the plan would tell of the user's updates; this run stopped early.
        assert end.spent.epsilon <= population.spent.epsilon <= end.planned.epsilon
        events = [row.event for row in client.audit("live")]
        assert events.count("run.request") == 3
