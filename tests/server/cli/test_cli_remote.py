"""Commands that read print the same, to the byte, from a service and from its ledger."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from fieldfare.accounting.foreign import Foreign
from fieldfare_server.api import Settings, create_app, outlook
from fieldfare_server.api.server import config, serve_in_thread
from fieldfare_server.cli import main
from fieldfare_server.cli.application import NOT_SERVED, application
from fieldfare_server.cli.output import BAD_INPUT
from fieldfare_server.ledger import Ledger
from support.ledgers import commit, start


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.sqlite3'}", create=True) as opened:
        opened.create_population("people", 4.0, 1e-6, actor="test")
        run = start(opened, 0.8, id="r1")
        run.register_users(np.arange(3, dtype=np.uint64))
        commit(run, [0, 1], 0.4)
        opened.reserve_charge("people", "ranker", Foreign(mu=0.1), what="ranker", why="weekly", actor="test")
        opened.raise_population("people", epsilon=5.0, reason="a second study", actor="test")
        opened.note_population("people", text="the board meets in May", actor="test")
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


READING = (
    ("budget",),
    ("budget", "people"),
    ("runs",),
    ("runs", "--population", "people", "--limit", "1"),
    ("population", "list"),
    ("population", "show", "people"),
    ("population", "history", "people"),
    ("report", "r1"),
)


def printed(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(application, [str(part) for part in arguments])
    return result.exit_code, result.stdout


@pytest.mark.parametrize("options", [("--json",), ()], ids=["json", "table"])
@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_a_command_prints_the_same_from_a_service_and_from_its_ledger(
    command: tuple[str, ...],
    options: tuple[str, ...],
    ledger: Ledger,
    url: str,
    token: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The end that a run will have is shown for some seconds: the clock stands still between the two answers.
    monkeypatch.setattr(outlook, "time", SimpleNamespace(time=partial(float, time.time())))
    served = printed(*command, "--url", url, "--token-file", token, *options)
    assert served == printed(*command, "--ledger", ledger.url, *options)
    assert served[0] == 0
    assert "people" in served[1]


WRITING = {
    *(
        "ask",
        "tune",
        "task check",
        "init",
        "simulate",
        "run",
        "supervise",
        "serve",
        "abandon",
        "backup",
        "migrate",
        "charge",
    ),
    *(
        f"population {verb}"
        for verb in ("create", "raise", "approve", "withdraw", "tighten", "window", "note", "close", "reopen")
    ),
    *("population odometers", "token create", "token revoke", "head show", "head enrol", "head rotate"),
    *("nodes register", "nodes release", "ledger rebuild", "ledger export", "ledger import", "ledger mend"),
}


def options_by_command(group: Any, before: str = "") -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, command in group.commands.items():
        words = f"{before} {name}".strip()
        if hasattr(command, "commands"):
            found |= options_by_command(command, words)
        else:
            found[words] = {each for option in command.params for each in option.opts}
    return found


def test_every_command_that_reads_a_ledger_asks_a_service_or_says_why_not() -> None:
    """`doctor` examines a service beside the ledger."""
    tree = options_by_command(get_command(application))
    reading = {name for name, options in tree.items() if "--ledger" in options} - WRITING
    served = {name for name in reading if "--url" in tree[name]}
    assert reading - served == set(NOT_SERVED)
    asked = {" ".join(word for word in c[:2] if word not in ("people", "r1", "--population")) for c in READING}
    assert served == asked | {"doctor"}


@pytest.mark.parametrize("command", NOT_SERVED)
def test_a_command_that_no_service_answers_refuses_a_url(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["fieldfare", *command.split(), "r1", "--url=http://127.0.0.1:1"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == BAD_INPUT


@pytest.mark.parametrize("command", [("budget", "nobody"), ("population", "show", "nobody"), ("report", "nothing")])
def test_a_refusal_reads_the_same_from_both(command: tuple[str, ...], ledger: Ledger, url: str, token: Path) -> None:
    served = ask(*command, "--url", url, "--token-file", token)
    assert served == ask(*command, "--ledger", ledger.url)
    assert served[0] == 2


def test_a_refusal_of_a_service_is_told_as_one_of_the_ledger(ledger: Ledger, url: str, token: Path) -> None:
    """It began with the problem's title, had no parts, and left with the code of bad input."""
    said = [ask(name, "nothing", "--ledger", ledger.url, *rest)[1] for name, *rest in (("report",), ("model",))]
    assert said[0] == said[1] | {"error": "ServiceError"}
    secret, _ = ledger.create_token("trainer", ("charge",), actor="test")
    token.write_text(secret)
    loss = ("--key", "k", "--mu", "100", "--what", "w", "--why", "y")
    answers = [
        ask("charge", "people", *loss, *where)
        for where in (("--ledger", ledger.url), ("--url", url, "--token-file", token))
    ]
    assert [code for code, _ in answers] == [3, 3]
    assert answers[0][1]["message"] == answers[1][1]["message"]


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


@pytest.mark.parametrize("url", ["http://[::1", "http://[::1]:x", "https://\u0301\udcff", "ftp://h", "h"])
def test_an_address_that_is_none_is_named(url: str) -> None:
    """The first three were tracebacks."""
    assert ask("budget", "--url", url)[1]["code"] == "wrong-form"


@pytest.mark.parametrize("words", [("budget", "../x"), ("report", "a/b")])
def test_a_name_with_a_slash_names_nothing(words: tuple[str, str], tmp_path: Path) -> None:
    """The refusal sent people to a running service, which has nothing of that name either."""
    made = ("population", "create", "p", "--epsilon", "1", "--delta", "1e-6", "--simulated", "--home", tmp_path)
    assert ask(*made)[0] == 0
    code, said = ask(*words, "--home", tmp_path)
    assert (code, "names nothing here" in said["why"]) == (2, True)


def test_files_that_hold_something_else_are_named(url: str, token: Path, tmp_path: Path) -> None:
    """Both were tracebacks."""
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    where = ("budget", "--url", url, "--token-file", token)
    assert ask(*where, "--ca-file", tmp_path / "bytes")[1]["code"] == "unreadable"
    assert ask(*where, "--witness", tmp_path / "bytes")[1]["code"] == "head-refused"
