"""The add-on with research tasks and forecast: found by its entry points, and named by whoever misses it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fieldfare.errors import BadInput
from fieldfare.task import ADD_ON, GROUP, RESEARCH, UnknownTask, load_task, task_names
from fieldfare_client import sources
from fieldfare_server import cli
from fieldfare_server.cli import application
from support.refusals import coded

ROOT = Path(__file__).parents[2]
POINTS = tomllib.loads((ROOT / "benchmarks/research/pyproject.toml").read_text())["project"]["entry-points"]


def test_what_is_installed_is_what_the_add_on_announces() -> None:
    for group, announced in POINTS.items():
        found = {point.name: point.value for point in entry_points(group=group)}
        assert announced.items() <= found.items(), "make tools"
    assert set(POINTS) == {GROUP, sources.GROUP, application.ADDED}
    assert sorted(POINTS[GROUP]) == list(RESEARCH)
    assert set(sources.sources()) >= set(POINTS[sources.GROUP])


@pytest.mark.parametrize("name", RESEARCH)
def test_every_task_of_the_add_on_is_found_by_its_name(name: str) -> None:
    task = load_task(name)
    assert (task.name, type(task)) == (name, type(load_task(POINTS[GROUP][name])))
    assert task.held_out
    assert task.score_name


def test_its_command_stands_among_the_programs_own() -> None:
    told = CliRunner().invoke(application.overview(), ["--help"]).output
    assert "From fieldfare_research." in told
    assert "effective-dimension" in CliRunner().invoke(application.assemble("forecast"), ["forecast", "--help"]).output


def test_no_add_on_replaces_a_command_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint(name, "other.pkg:run", application.ADDED) for name in ("budget", "task", "more")]
    monkeypatch.setattr(application, "entry_points", lambda group: points)
    assert set(application.added()) == {"more"}


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation from the wheel alone."""
    for module in ("fieldfare.task", "fieldfare_client.sources", "fieldfare_server.cli.application"):
        monkeypatch.setattr(f"{module}.entry_points", lambda group: ())


@pytest.mark.usefixtures("without")
def test_who_misses_the_add_on_is_told_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in RESEARCH:
        assert name not in task_names()
        with pytest.raises(UnknownTask, check=coded("unknown-task", "run.task")) as refused:
            load_task(name)
        assert refused.value.nearest == ADD_ON
    with pytest.raises(BadInput, check=coded("not-found", "data")) as missing:
        sources.find_source("chess")
    assert missing.value.nearest == ADD_ON
    listed = CliRunner().invoke(application.assemble("data"), ["data", "list"])
    assert ADD_ON in listed.output
    monkeypatch.setattr(sys, "argv", ["fieldfare", "forecast", "plan.toml"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2
    assert f"Nearest allowed: {ADD_ON}." in capsys.readouterr().err


def test_the_tools_install_it_and_the_first_hour_does_not() -> None:
    """A demo needs no research tasks; a checkout whose tests run has them without a further command."""
    asked = {
        target: subprocess.run(
            ["make", "--dry-run", "--always-make", target], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        for target in ("install", "tools")
    }
    assert "--editable benchmarks/research" in asked["tools"]
    assert "benchmarks/research" not in asked["install"]
