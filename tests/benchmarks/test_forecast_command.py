"""`fieldfare forecast`: from the plan and the guesses alone."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fieldfare_server.cli.application import application

PLAN = """
[privacy]
population = "people"
epsilon = 2.0
delta = 1e-5

[run]
task = "no.such.module:nowhere"
rounds = 64
cohort = 100

[participation]
scheme = "min-separation"
separation = 16
max_participations = 4

[mechanism]
kind = "nu"
nu = 0.05
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    written = tmp_path / "plan.toml"
    written.write_text(PLAN)
    return written


def ask(path: Path, *options: str) -> tuple[int, str]:
    result = CliRunner().invoke(application, ["forecast", str(path), *options])
    return result.exit_code, result.output


def told(path: Path, *options: str) -> Any:
    code, said = ask(path, "--json", *options)
    assert code == 0, said
    return json.loads(said)


def test_a_forecast_needs_the_plan_and_the_guesses_alone(path: Path) -> None:
    """The plan's task does not exist: no data can have been touched."""
    forecast = told(path, "--effective-dimension", "50", "--signal-to-noise", "10", "--condition", "4")
    assert forecast["assumed"] == {"effective_dimension": 50.0, "signal_to_noise": 10.0, "condition": 4.0}
    assert forecast["visits"] == 6400
    assert forecast["gamma"] == pytest.approx(50 / 6400)
    assert 0 < forecast["noiseless"] < forecast["best"]["risk"] < 0.5
    assert [option["cohort"] for option in forecast["cohorts"]] == [50, 100, 200]


def test_every_suggestion_says_why_and_what_it_rests_on(path: Path) -> None:
    suggestions = told(path, "--effective-dimension", "50")["suggestions"]
    assert {s["setting"] for s in suggestions} >= {
        "clipping.norm",
        "clipping.quantile",
        "server_optimizer.learning_rate",
        "server_optimizer.schedule",
        "server_optimizer.kappa",
        "run.cohort",
    }
    for suggestion in suggestions:
        assert suggestion["because"]
        assert suggestion["assumes"]
        assert isinstance(suggestion["value"], str) or math.isfinite(suggestion["value"])


def test_people_read_a_table(path: Path) -> None:
    code, said = ask(path, "--effective-dimension", "50")
    assert code == 0
    flat = re.sub(r"\s+", " ", said)
    for words in ("Forecast, if 50 directions matter", "Suggestions", "rests on"):
        assert words in flat
    code, said = ask(path)
    assert code == 2
    assert "--effective-dimension" in said


@pytest.mark.parametrize(
    ("options", "named", "nearest"),
    [
        (["--effective-dimension", "0.5"], "effective_dimension = 0.5", "1.0"),
        (["--effective-dimension", "nan"], "effective_dimension = nan", "1.0"),
        (["--effective-dimension", "50", "--signal-to-noise", "0"], "signal_to_noise = 0.0", "0.001"),
        (["--effective-dimension", "50", "--condition", "0.5"], "condition = 0.5", "1.0"),
    ],
)
def test_guesses_that_mean_nothing_are_refused(path: Path, options: list[str], named: str, nearest: str) -> None:
    code, said = ask(path, "--json", *options)
    assert code == 2
    refusal = json.loads(said)
    assert refusal["what"] == named
    assert refusal["nearest"] == nearest
