"""What another program prints becomes lines of ours, whatever way it prints."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fieldfare_flower import programs as logged
from fieldfare_flower.programs import PROGRAMS, Lines, link

PROGRAM = """
import logging, logging.config, sys, threading
library = logging.getLogger("library")
library.addHandler(logging.StreamHandler())

class Quiet(logging.Filter):
    def filter(self, record):
        return record.getMessage() != "routine"

def main():
    print("a", "word")
    sys.stdout.write("half ")
    sys.stdout.write("a line\\r\\nand \\u00e9\\n\\n")
    library.warning("of its own handler")
    logging.config.dictConfig({
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {"quiet": {"()": Quiet}},
        "handlers": {"late": {"class": "logging.StreamHandler", "stream": "ext://sys.stdout", "filters": ["quiet"]}},
        "loggers": {"late": {"handlers": ["late"], "level": "INFO", "propagate": False}},
    })
    logging.getLogger("late").info("routine")
    logging.getLogger("late").info("configured later")
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
    print('{"already": 1}')
    print(sys.argv[1:], end="")
    if "fail" in sys.argv:
        raise ValueError("Bearer secret-of-mine")
    return 3
"""


@pytest.fixture
def program(tmp_path: Path) -> dict[str, str]:
    """An installed program called `flower-superlink`; the environment in which it is found, behind its link."""
    (tmp_path / "pretended.py").write_text(PROGRAM)
    (tmp_path / "pretended-1.dist-info").mkdir()
    (tmp_path / "pretended-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: pretended\nVersion: 1\n")
    (tmp_path / "pretended-1.dist-info/entry_points.txt").write_text(
        "[console_scripts]\nflower-superlink = pretended:main\n"
    )
    link(tmp_path / "links")
    path = os.pathsep.join([str(tmp_path / "links"), str(Path(sys.executable).parent), os.environ["PATH"]])
    python = os.pathsep.join([str(tmp_path), *(str(Path(part).absolute()) for part in sys.path if part)])
    return {**os.environ, "PATH": path, "PYTHONPATH": python}


def run(program: dict[str, str], *arguments: str, form: str = "json") -> subprocess.CompletedProcess[str]:
    command = ["flower-superlink", *arguments]
    env = {**program, "FIELDFARE_LOG": form}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_every_line_is_an_object_and_the_program_notices_nothing(program: dict[str, str]) -> None:
    done = run(program, "--port=1")
    assert done.returncode == 3
    out = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line.get("message", line) for line in out] == [
        "a word",
        "half a line",
        "and \N{LATIN SMALL LETTER E WITH ACUTE}",
        {"already": 1},
        "['--port=1']",
    ]
    assert {line["logger"] for line in out if "logger" in line} == {"stdout"}
    err = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["logger"], line["message"]) for line in err] == [
        ("library", "of its own handler"),
        ("late", "configured later"),
        ("fieldfare", "uncaught"),
    ]
    assert "ZeroDivisionError" in err[-1]["exception"]


def test_what_ends_the_program_is_one_line_without_its_secrets(program: dict[str, str]) -> None:
    done = run(program, "fail")
    assert done.returncode == 1
    last = json.loads(done.stderr.splitlines()[-1])
    assert (last["level"], last["logger"]) == ("critical", "fieldfare")
    assert "ValueError" in last["exception"]
    assert "secret-of-mine" not in done.stderr


def test_text_is_left_as_it_is(program: dict[str, str]) -> None:
    done = run(program, form="text")
    assert done.returncode == 3
    assert done.stdout.startswith("a word\nhalf a line")
    assert done.stderr.startswith("of its own handler\n")


def test_what_is_not_installed_or_not_understood_is_said(program: dict[str, str]) -> None:
    done = run({**program, "PYTHONPATH": str(Path(logged.__file__).parents[1]), "PATH": program["PATH"]}, form="loud")
    assert done.returncode == 1
    assert "FIELDFARE_LOG = 'loud'" in done.stderr


def test_each_program_of_a_deployment_has_a_link_that_can_be_run(tmp_path: Path) -> None:
    link(tmp_path / "links")
    assert {path.name for path in (tmp_path / "links").iterdir()} == set(PROGRAMS)
    assert all(os.access(tmp_path / "links" / name, os.X_OK) for name in PROGRAMS)


def test_a_log_line_in_the_midst_of_a_progress_bar_stays_whole() -> None:
    sink: Any = io.StringIO()
    stream = Lines(sink, "stderr", logging.INFO)
    for text in ("\r 10 %", "\r 20 %", '{"message": "meanwhile"}\n', "\r 30 %", "\n"):
        assert stream.write(text) == len(text)
    assert [json.loads(line)["message"] for line in sink.getvalue().splitlines()] == [
        "10 %",
        "20 %",
        "meanwhile",
        "30 %",
    ]


@pytest.mark.parametrize("text", ["[1]", "{", '{"a": }', "null", "{}x", '{"a": NaN}', '{"a":' * 20_000])
def test_only_objects_pass_untouched(text: str) -> None:
    sink: Any = io.StringIO()
    stream = Lines(sink, "stdout", logging.INFO)
    assert stream.write(text) == len(text)
    assert sink.getvalue() == ""
    stream.finish()
    assert json.loads(sink.getvalue())["message"] == text
