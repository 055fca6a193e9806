"""Log lines: both formats, run and round, and what an exception may not carry along."""

from __future__ import annotations

import gc
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fieldfare.errors import BadInput
from fieldfare_flower import logs
from support.refusals import coded

TOKEN = "ff_0123456789ab_" + "c" * 64


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Logging is one state a process: leave it as it was."""
    named = [logging.getLogger(name) for name in ("", "flwr", *logs.OWN)]
    before = [(one, one.handlers[:], one.level, one.propagate) for one in named]
    monkeypatch.setattr("sys.excepthook", lambda *_: None)
    yield
    logging.captureWarnings(False)
    for one, handlers, level, propagate in before:
        one.handlers[:], one.propagate = handlers, propagate
        one.setLevel(level)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[], list[Any]]:
    monkeypatch.setenv("FIELDFARE_LOG", "json")
    monkeypatch.setenv("FIELDFARE_LOG_LEVEL", "debug")
    logs.configure()
    return lambda: [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_line_is_one_object_with_the_run_and_round_it_belongs_to(lines: Callable[[], list[Any]]) -> None:
    log = logging.getLogger("fieldfare.test")
    with logs.about("r1", 3):
        log.debug("two\nlines, \N{GREEK SMALL LETTER EPSILON} %d", 7)
        # Another thread works on something else.
        other = threading.Thread(target=log.info, args=("elsewhere",))
        other.start()
        other.join()
    log.warning("outside")
    first, second, third = lines()
    assert (first["run"], first["round"], first["level"]) == ("r1", 3, "debug")
    assert first["message"] == "two\nlines, \N{GREEK SMALL LETTER EPSILON} 7"
    assert first["time"].endswith("+00:00")
    assert "run" not in second
    assert "run" not in third


def test_a_block_that_was_interrupted_as_it_began_marks_nothing_later(lines: Callable[[], list[Any]]) -> None:
    with logs.about("r1", 3):
        begun = logs.about("r1", 4)
        begun.__enter__()  # a Ctrl-C comes before its block, and the traceback keeps it for a while
    del begun
    gc.collect()
    logging.getLogger("fieldfare.test").warning("of nothing")
    assert "run" not in lines()[0]


def test_secrets_that_an_exception_quotes_are_taken_out(lines: Callable[[], list[Any]]) -> None:
    try:
        raise ValueError(f"postgresql://fieldfare:hunter2@ledger:5432/f Bearer abc.def {TOKEN}")
    except ValueError:
        logging.getLogger("fieldfare.test").exception("-----BEGIN PRIVATE KEY-----\nMIG\n-----END PRIVATE KEY-----")
    (line,) = lines()
    assert not any(secret in json.dumps(line) for secret in ("hunter2", "abc.def", "c" * 64, "MIG"))
    assert "postgresql://fieldfare:***@ledger:5432/f" in line["exception"]


def test_json_lines_are_read_back_as_text() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("fieldfare", logging.ERROR, "", 0, 'it "failed"', None, sys.exc_info())
    line = logs.JsonFormatter().format(record)
    first, *trace, last, end = logs.as_text(f"before\n{line}\n{line[:-9]}").removeprefix("before\n").splitlines()
    assert (first, trace[0]) == ('it "failed"', "Traceback (most recent call last):")
    assert (trace[-1], last, end) == ("ValueError: two", "lines", line[:-9])


def test_other_libraries_keep_their_debug_lines_to_themselves_and_flower_shares_the_format(
    lines: Callable[[], list[Any]],
) -> None:
    for name in ("sqlalchemy.engine", "httpx", "flwr"):
        logging.getLogger(name).debug("parameters: %s", TOKEN)
    logging.getLogger("flwr").info("a round")
    (line,) = lines()
    assert (line["logger"], line["message"]) == ("flwr", "a round")


def test_text_is_for_people_and_calling_twice_says_nothing_twice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FIELDFARE_LOG", raising=False)
    logs.configure("info")
    logs.configure("info")
    logging.getLogger("fieldfare.test").info("token %s", TOKEN)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("INFO fieldfare.test: token ff_***")
    assert not logs.as_json()


def test_flowers_lines_come_once_where_flower_prints_them_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FIELDFARE_LOG", raising=False)
    logs.configure("info")
    flower = logging.getLogger("flwr")
    flower.setLevel(logging.INFO)
    flower.handlers[:] = [logging.StreamHandler()]
    flower.info("a round")
    assert capsys.readouterr().err == "a round\n"


@pytest.mark.parametrize(("name", "value"), [("FIELDFARE_LOG", "xml"), ("FIELDFARE_LOG_LEVEL", "loud")])
def test_a_wrong_setting_is_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(BadInput, check=coded("unknown", name, value)):
        logs.configure()


def test_an_app_in_flowers_process_logs_as_json_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.delenv("FIELDFARE_LOG", raising=False)
    logs.configure_app()
    assert root.handlers == [], "text is left to Flower"
    monkeypatch.setenv("FIELDFARE_LOG", "json")
    for _ in range(2):
        logs.configure_app()
    with logs.about("r1", 2):
        logging.getLogger("fieldfare.client").info("trained")
    (line,) = map(json.loads, capsys.readouterr().err.splitlines())
    assert (line["message"], line["run"], line["round"]) == ("trained", "r1", 2)
