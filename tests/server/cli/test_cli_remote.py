"""`budget --url` and `runs --url`: what a service says, under the names that the ledger's own rows have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fieldfare_server.api import Settings, create_app
from fieldfare_server.api.server import config, serve_in_thread
from fieldfare_server.cli.application import application
from fieldfare_server.ledger import Ledger
from support.ledgers import commit, start


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.sqlite3'}", create=True) as opened:
        opened.create_population("people", 4.0, 1e-6, actor="test")
        run = start(opened, 0.8)
        run.register_users(np.arange(3, dtype=np.uint64))
        commit(run, [0, 1], 0.4)
        yield opened


@pytest.fixture
def url(ledger: Ledger) -> Iterator[str]:
    with serve_in_thread(config(create_app(ledger.url, Settings(anonymous_read=False)), port=0)) as address:
        yield address


@pytest.fixture
def token(ledger: Ledger, tmp_path: Path) -> Path:
    secret, _ = ledger.create_token("terminal", ("read",), actor="test")
    kept = tmp_path / "token"
    kept.write_text(secret + "\n")
    return kept


def ask(*arguments: str | Path) -> tuple[int, Any]:
    result = CliRunner().invoke(application, [str(part) for part in arguments] + ["--json"])
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.parametrize("command", ["budget", "runs"])
def test_a_service_says_what_its_ledger_holds(command: str, ledger: Ledger, url: str, token: Path) -> None:
    code, served = ask(command, "--url", url, "--token-file", token)
    assert code == 0, served
    _, here = ask(command, "--ledger", ledger.url)
    assert len(served) == len(here) == 1
    # Who started it and with which key is the ledger's own business; all the service says is what the ledger says.
    for name in served[0].keys() & here[0].keys():
        assert served[0][name] == (pytest.approx(here[0][name]) if isinstance(here[0][name], float) else here[0][name])
    assert {"delta", "spent_epsilon", "state"} <= served[0].keys() & here[0].keys()


def test_one_population_and_a_table_for_people(url: str, token: Path) -> None:
    result = CliRunner().invoke(application, ["budget", "people", "--url", url, "--token-file", str(token)])
    assert result.exit_code == 0
    assert "people" in result.stdout
    code, said = ask("budget", "nobody", "--url", url, "--token-file", token)
    assert (code, said["error"]) == (2, "ServiceError")
    assert "people" in said["message"], "it names those there are"


def test_what_is_refused(url: str, token: Path, ledger: Ledger, tmp_path: Path) -> None:
    assert ask("budget", "--url", url)[0] == 2, "this service answers only with a token"
    code, said = ask("budget", "--url", url, "--ledger", ledger.url)
    assert (code, said["nearest"]) == (2, "one of --url, --home, --ledger")
    assert ask("runs", "--token-file", token)[1]["nearest"] == "--url URL"
    assert ask("budget", "--url", url, "--token-file", tmp_path / "none")[1]["what"].startswith("--token-file")
    token.write_text("two words")
    assert "one token" in ask("budget", "--url", url, "--token-file", token)[1]["why"]
    assert ask("budget", "--url", url, "--ca-file", tmp_path / "none.pem")[0] == 2


def test_a_token_does_not_travel_in_the_clear_and_a_dead_service_is_said(token: Path) -> None:
    code, said = ask("budget", "--url", "http://budget.example.org", "--token-file", token)
    assert code == 2
    assert token.read_text().strip() not in json.dumps(said)
    code, said = ask("budget", "--url", "http://127.0.0.1:1")
    assert (code, said["error"]) == (2, "ServiceError")
