"""`fieldfare plan --suggest-mechanism`: the same plan run in every way, the least noise first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fieldfare.accounting import certification, sampled_optimum
from fieldfare.costing import cost_of
from fieldfare.errors import BadInput
from fieldfare.plan import Plan
from fieldfare_server.cli.application import application
from fieldfare_server.planning.mechanism_choice import MechanismChoice, compare_mechanisms

PLAN = """
[privacy]
population = "people"
epsilon = 1.0
delta = 1e-4

[run]
task = "digits"
rounds = 8
cohort = 5

[participation]
scheme = "min-separation"
separation = 4

[mechanism]
kind = "nu"
"""


@pytest.fixture(scope="module")
def few_samples() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certification, "SAMPLES", (1 << 16, 1 << 15))
        patch.setattr(certification, "_FINE", 1 << 15)
        patch.setattr(sampled_optimum, "_COUNT", 1 << 11)
        yield


@pytest.fixture(scope="module")
def choices(few_samples: None) -> list[MechanismChoice]:
    return compare_mechanisms(Plan.from_toml(PLAN))


def test_every_way_is_compared_and_the_least_noise_comes_first(choices: list[MechanismChoice]) -> None:
    noises = [choice.prefix_noise for choice in choices]
    assert noises == sorted(noises)
    ways = {(choice.mechanism, choice.scheme.split(",")[0].split()[0]) for choice in choices}
    assert {(m, s) for m in ("independent", "nu", "blt") for s in ("balls-in-bins", "min-separation")} <= ways
    sampled = {("independent", "poisson"), ("independent", "random-allocation"), ("banded, 4 bands", "cyclic-poisson")}
    assert sampled <= ways
    chained = {("banded, 2 bands", "b-min-sep"), ("banded, 2 bands", "random-allocation")}
    assert chained | {("banded, 4 bands", "random-allocation")} <= ways
    for choice in choices:
        fresh = choice.scheme.startswith("random") and choice.mechanism != "independent"
        assert choice.certified == (fresh or choice.scheme.startswith(("balls", "b-min-sep")))


def test_rows_without_a_certificate_are_what_the_plan_costs(choices: list[MechanismChoice]) -> None:
    (row,) = (c for c in choices if (c.mechanism, c.scheme) == ("nu", "min-separation 4"))
    cost = cost_of(Plan.from_toml(PLAN)).to_json()
    assert row.noise_multiplier == pytest.approx(cost["noise_multiplier"])
    assert row.prefix_noise == pytest.approx(cost["prefix_noise_rms"])


def test_rows_with_balls_in_bins_are_about_what_a_run_is_charged(choices: list[MechanismChoice]) -> None:
    text = PLAN.replace('scheme = "min-separation"\nseparation = 4', 'scheme = "balls-in-bins"\nbins = 4')
    cost = cost_of(Plan.from_toml(text.replace("delta = 1e-4", 'delta = 1e-4\nadjacency = "add_remove"')))
    (row,) = (c for c in choices if c.mechanism == "nu" and c.certified)
    assert row.prefix_noise == pytest.approx(cost.to_json()["prefix_noise_rms"], rel=0.02)
    assert row.adjacency == "add_remove"


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("epsilon = 1.0", "noise_multiplier = 1.0", "noise_multiplier"),
        ("delta = 1e-4", 'delta = 1e-4\nadjacency = "replace_one"', "replace_one"),
        ("rounds = 8", "rounds = 3000", "rounds = 3000"),
    ],
)
def test_what_cannot_be_compared_is_refused(old: str, new: str, what: str) -> None:
    with pytest.raises(BadInput, match=what):
        compare_mechanisms(Plan.from_toml(PLAN.replace(old, new)))


def test_the_command_prints_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choices: list[MechanismChoice]
) -> None:
    monkeypatch.setattr("fieldfare_server.cli.plan.compare_mechanisms", lambda plan: choices)
    file = tmp_path / "plan.toml"
    file.write_text(PLAN)
    command: list[Any] = ["plan", str(file), "--suggest-mechanism"]
    printed = CliRunner().invoke(application, command)
    assert printed.exit_code == 0, printed.output
    assert "certificate" in printed.output
    listed = CliRunner().invoke(application, [*command, "--json"])
    assert len(json.loads(listed.stdout)["choices"]) == len(choices)
    assert CliRunner().invoke(application, [*command, "--schema"]).exit_code == 2
