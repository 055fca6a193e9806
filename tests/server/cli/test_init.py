"""`fieldfare init`: what it writes runs at once from its directory, as an installed program; it overwrites nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from fieldfare_server.cli.application import application
from fieldfare_server.cli.init import CHOSEN

# An installed program has its own folder in front of the path, not the directory that it is started in.
PROGRAM = "import sys; sys.path[0] = '/nowhere'; from fieldfare_server.cli import main; main()"


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FIELDFARE_")}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], cwd=directory, env=inherited, capture_output=True, text=True
    )


def test_what_init_writes_runs_at_once(tmp_path: Path) -> None:
    made = run(tmp_path, "init", "mine")
    assert made.returncode == 0, made.stderr
    mine = tmp_path / "mine"
    text = (mine / "plan.toml").read_text()
    assert text.startswith("#:schema plan.schema.json\n")
    assert (mine / "plan.schema.json").is_file()
    assert tomllib.loads(text)["task"] == {"file": "people.csv"}
    (mine / "plan.toml").write_text(text.replace(f"rounds = {CHOSEN['run.rounds']}", "rounds = 29"))
    ended = run(mine, "simulate")
    assert ended.returncode == 0, ended.stderr
    assert "29 of 29 rounds" in ended.stdout
    # The run's delta and the population's, which may differ.
    assert ended.stdout.count("at delta 1e-05") == 2
    auc = float(ended.stdout.partition("Held-out auc: ")[2].split()[0])
    assert auc > 0.75  # 0.5 is chance


@pytest.fixture
def fieldfare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delenv("FIELDFARE_HOME", raising=False)
    monkeypatch.delenv("FIELDFARE_LEDGER", raising=False)
    return lambda *arguments: CliRunner().invoke(application, arguments)


def test_init_overwrites_nothing(tmp_path: Path, fieldfare: Callable[..., Result]) -> None:
    (tmp_path / "people.csv").write_text("mine\n")
    assert fieldfare("init").exit_code == 0
    assert (tmp_path / "people.csv").read_text() == "mine\n"
    before = (tmp_path / "plan.toml").stat().st_mtime_ns
    assert fieldfare("init").stdout.count("left as it is") == 5
    assert (tmp_path / "plan.toml").stat().st_mtime_ns == before


def test_a_directory_that_is_a_file_is_refused(tmp_path: Path, fieldfare: Callable[..., Result]) -> None:
    (tmp_path / "file").write_text("")
    refused = fieldfare("init", "file")
    assert refused.exit_code == 2
    assert "cannot be written" in refused.stderr


@pytest.mark.parametrize("command", ["simulate", "plan"])
def test_without_a_plan_init_is_named(command: str, fieldfare: Callable[..., Result]) -> None:
    refused = fieldfare(command)
    assert refused.exit_code == 2
    assert "fieldfare init" in refused.stderr


def test_a_module_that_is_nowhere_is_named_with_the_way_out(tmp_path: Path, fieldfare: Callable[..., Result]) -> None:
    assert fieldfare("init").exit_code == 0
    plan = (tmp_path / "plan.toml").read_text()
    (tmp_path / "plan.toml").write_text(plan.replace("csv_task:", "csv_tusk:"))
    refused = fieldfare("simulate")
    assert refused.exit_code == 2
    assert "holds csv_tusk.py" in refused.stderr
