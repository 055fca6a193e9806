"""Every answer is one state of the ledger, whatever is committed while it is built.

Before each statement of an answer another connection commits a round, and an independent reader answers the same
question. The answer under test must be one of those answers: a state that the ledger really had. An answer of two
transactions would mix two states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ledger_data
import pytest
from fastapi.testclient import TestClient
from live_ledger import client_at
from sqlalchemy import Engine, event
from typer.testing import CliRunner

from fieldfare_server.api import Settings, outlook
from fieldfare_server.api.answers import Answers
from fieldfare_server.cli.application import application
from fieldfare_server.ledger import Ledger, RunHandle
from fieldfare_server.ledger.reads import Reader

# Neither the event poll nor the chain check runs while an answer is built: they are transactions of their own.
SETTINGS = Settings(verify_seconds=1e6, metrics_seconds=0).model_copy(update={"event_poll_seconds": 1e6})
ROUNDS = 64

# /v1/audit is one statement, which no commit divides.
PATHS = (
    "/v1/runs/run-2",
    "/v1/runs",
    "/v1/runs?population=aircraft",
    "/v1/runs/run-2/rounds?limit=500",
    "/v1/runs/run-2/series",
    "/v1/runs/run-2/participation",
    "/v1/runs/run-2/report",
    "/v1/runs/run-2/registry-entry",
    "/v1/populations",
    "/v1/populations/aircraft",
    "/v1/populations/aircraft/participation",
    "/metrics",
)
COMMANDS = (["budget"], ["budget", "aircraft"], ["runs"], ["report", "run-2"])


@pytest.fixture
def run(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunHandle]:
    """A run under way that has committed a round, after a run that has ended."""
    # A reader on a busy machine must not find that the run stands still: that is told by the clock, not by the ledger.
    monkeypatch.setattr(outlook, "STANDS_STILL", 1e6)
    with ledger_data.new_ledger(ledger_url) as ledger:
        ended = ledger_data.start(ledger, "run-1")
        ledger_data.commit(ended)
        ended.finish("stopped", "enough")
        live = ledger_data.start(ledger, "run-2", rounds=ROUNDS)
        ledger_data.commit(live)
        yield live


@contextmanager
def before_each_statement(engine: Engine | type[Engine], act: Callable[[], None]) -> Iterator[None]:
    """Inside the block, call `act` before each statement of `engine`; not for statements that `act` executes."""
    acting = False

    def listen(*_: Any) -> None:
        nonlocal acting
        if not acting:
            acting = True
            act()
            acting = False

    event.listen(engine, "before_cursor_execute", listen)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", listen)


def answer_between_commits(
    engine: Engine | type[Engine], run: RunHandle, ask: Callable[[], str], reference: Callable[[], str]
) -> tuple[str, list[str]]:
    """(the answer of `ask`, the answers of `reference` before it and after each commit during it)."""
    states = [reference()]

    def commit() -> None:
        ledger_data.commit(run)
        states.append(reference())

    with before_each_statement(engine, commit):
        return ask(), states


def text(client: TestClient, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    # What a service counts of its own requests is not the ledger's.
    return "\n".join(line for line in answer.text.splitlines() if "fieldfare_http" not in line)


@pytest.mark.parametrize("path", PATHS)
def test_an_answer_of_the_service_is_never_torn(run: RunHandle, ledger_url: str, path: str) -> None:
    with client_at("127.0.0.1", ledger_url, SETTINGS) as client, client_at("127.0.0.1", ledger_url, SETTINGS) as other:
        assert client.get("/readyz").status_code == other.get("/readyz").status_code == 200
        answers: Answers = client.app.state.answers  # type: ignore[attr-defined]
        answer, states = answer_between_commits(
            answers._ledger.database.engine, run, lambda: text(client, path), lambda: text(other, path)
        )
    assert len(set(states)) > 2, "rounds were committed during the answer, and it shows them"
    assert answer in states


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_what_a_command_prints_is_never_torn(run: RunHandle, ledger_url: str, command: list[str]) -> None:
    def invoke() -> str:
        result = CliRunner().invoke(application, [*command, "--ledger", ledger_url, "--json"])
        assert result.exit_code == 0, result.output
        return result.stdout

    answer, states = answer_between_commits(Engine, run, invoke, invoke)
    assert len(set(states)) > 2
    assert answer in states


def test_two_transactions_are_torn_which_the_tests_above_would_see(run: RunHandle, ledger_url: str) -> None:
    def read(ledger: Reader) -> str:
        return f"{ledger.run('run-2').next_round} {ledger.round_series('run-2')[-1].index}"

    def read_snapshot(ledger: Reader) -> str:
        with ledger.snapshot() as snapshot:
            return read(snapshot)

    with Ledger.open(ledger_url) as ledger, Ledger.open(ledger_url) as other:
        engine = ledger.database.engine
        torn, states = answer_between_commits(engine, run, lambda: read(ledger), lambda: read(other))
        assert torn not in states
        whole, states = answer_between_commits(engine, run, lambda: read_snapshot(ledger), lambda: read(other))
        assert whole in states
