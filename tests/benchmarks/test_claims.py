"""The claims' harness: nothing is tuned on scored users, no verdict from one seed, and every command runs."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fieldfare.cost import cost_of
from fieldfare.plan import Plan
from fieldfare_client.storage import write
from fieldfare_client.users import UserTable
from oracles.linear_regression import Regression

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks/claims"))


@pytest.fixture
def fashion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tables of made-up images, of which the test table is not there yet."""
    random = np.random.default_rng(0)
    for part, rows in (("train", 40), ("tune", 20)):
        columns = {"x": random.integers(0, 256, (rows, 28, 28)).astype(np.uint8), "y": np.arange(rows) % 10}
        columns["y"] = columns["y"].astype(np.uint8)
        table = UserTable([f"{part}-{row}" for row in range(rows)], np.arange(rows + 1), columns)  # type: ignore[arg-type]
        write(tmp_path / f"fashion-{part}.arrow", [table])
    (tmp_path / "fashion.json").write_text(json.dumps({"tables": {"fashion-train.arrow": {"sha256": "x"}}}))
    monkeypatch.setenv("FIELDFARE_DATA", str(tmp_path))
    return tmp_path


def load(name: str) -> Any:
    return importlib.import_module(name)


def small(training: Any) -> Any:
    return training.Size(rounds=2, cohort=4, users=40, rates=2)


def test_tuning_never_touches_the_test_table(fashion: Path) -> None:
    """It is not even there while settings are chosen; scoring then fails without it, and works with it."""
    training, harness = load("training"), load("harness")
    study = harness.Study("x", training.scored, "accuracy", data="fashion")
    optimizer = {"kind": "sgd"}
    cells = [training.cell("one", small(training), {"kind": "blt"}, 8.0, optimizer, 0.1)]
    chosen, cache = fashion / "choices.json", fashion / "cache"
    with pytest.raises(FileNotFoundError):
        harness.score(study, cells, chosen, 2, cache, quiet=True)
    frozen = harness.tune(study, cells, chosen, cache, quiet=True)
    assert len(frozen["one"]["tune_scores"]) == 2
    with pytest.raises(Exception, match=r"fashion-test\.arrow"):
        harness.score(study, cells, chosen, 2, cache, quiet=True)
    (fashion / "fashion-test.arrow").write_bytes((fashion / "fashion-tune.arrow").read_bytes())
    found = harness.score(study, cells, chosen, 2, cache, quiet=True)
    assert [run["seed"] for run in found["one"]["runs"]] == [1000, 1001]
    assert all(
        run["scores"]["accuracy"] == score
        for run, score in zip(found["one"]["runs"], found["one"]["scores"], strict=True)
    )


def test_runs_are_cached_by_plan_seed_and_data(fashion: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training, harness = load("training"), load("harness")
    study = harness.Study("x", training.scored, "accuracy", data="fashion")
    cell = training.cell("one", small(training), {"kind": "independent"}, 8.0, {"kind": "sgd"}, 0.1)
    cache, made = fashion / "cache", []
    whole = harness.Runs._run
    monkeypatch.setattr(harness.Runs, "_run", lambda *given: made.append(given) or whole(*given))
    runs = harness.Runs(study, cache, 4, quiet=True)
    first = runs.get(cell, cell.choices[0], "tune", 1)
    assert harness.Runs(study, cache, 4, quiet=True).get(cell, cell.choices[0], "tune", 1) == first
    assert len(made) == 1
    runs.get(cell, cell.choices[0], "tune", 2)
    runs.get(cell, cell.choices[1], "tune", 1)
    (fashion / "fashion.json").write_text(json.dumps({"tables": {"fashion-train.arrow": {"sha256": "y"}}}))
    runs.get(cell, cell.choices[0], "tune", 1)
    assert len(made) == 4


@pytest.mark.parametrize("word", ["disk", "momentum", "cool-down", "cohort", "nu", "small-clip"])
def test_every_cell_of_every_claim_is_a_plan_that_costs_its_epsilon(word: str) -> None:
    training, harness = load("training"), load("harness")
    size = training.Size(rounds=20, cohort=10, users=100, rates=3)
    cells, pairs = training.CLAIMS[word].made(size)
    labels = [cell.label for cell in cells]
    assert len(set(labels)) == len(labels)
    assert {label for _, *both in pairs for label in both} <= set(labels)
    for cell in cells:
        assert len(cell.choices) == 3, "equal effort"
        plans = [Plan.parse(training.scored(choice, "tune", 1)) for choice in cell.choices]
        harness.require_charged(cost_of(plans[0]))
        assert len({plan.digest() for plan in plans}) == 3


def test_a_claim_runs_from_tuning_to_its_page(fashion: Path) -> None:
    training = load("training")
    (fashion / "fashion-test.arrow").write_bytes((fashion / "fashion-tune.arrow").read_bytes())
    found, pairs = training.run("nu", small(training), 2, fashion / "cache", quiet=True)
    text = training.page("nu", small(training), found, pairs, "the command")
    assert "| nu x 1 |" in text
    assert text.count("nu auto is no worse") == 4
    assert "the command" in text
    assert "seeds 1000, 1001" in text


def test_verdicts_are_paired_and_none_comes_from_one_seed() -> None:
    verdict = load("harness").verdict
    assert verdict([0.9], [0.1]) == "undecided"
    assert verdict([0.52, 0.62, 0.42], [0.50, 0.60, 0.40]) == "holds"
    assert verdict([0.51, 0.70, 0.41], [0.50, 0.60, 0.40]) == "holds weakly"
    assert verdict([0.51, 0.59, 0.41], [0.50, 0.60, 0.40]) == "undecided"
    assert verdict([0.48, 0.58, 0.38], [0.50, 0.60, 0.40]) == "does not hold here"
    assert verdict([0.48, 0.58, 0.38], [0.50, 0.60, 0.40], higher=False) == "holds"


def test_intervals_are_students() -> None:
    mean, half = load("harness").interval([1.0, 2.0, 3.0])
    assert (mean, half) == pytest.approx((2.0, 4.303 / math.sqrt(3)), rel=1e-4)
    assert load("harness").interval([1.0])[1] == math.inf


def test_a_cell_that_is_charged_something_else_is_an_error() -> None:
    harness = load("harness")
    table = load("training").plan_table(load("training").Size(20, 10, 100), {"kind": "blt"}, 4.0, {"kind": "sgd"})
    cost = cost_of(Plan.parse(table))
    harness.require_charged(cost)
    cheaper = cost_of(Plan.parse({**table, "privacy": {**table["privacy"], "epsilon": 3.0}}))
    with pytest.raises(ValueError, match="is charged"):
        harness.require_charged(dataclasses.replace(cheaper, plan=cost.plan))


def test_the_headlines_noise_is_the_published_one() -> None:
    """Prefix noise per coordinate, written down independently (spec/evidence.md, 1e-3 relative)."""
    headline = load("headline")
    reduced = headline.SETTINGS["fashion", False]
    for row, expected in (("nu", 8.00), ("blt", 7.74), ("independent", 38.3), ("DP-SGD, Poisson (add_remove)", 10.70)):
        assert headline.prefix_noise(headline.table_of("fashion", reduced, row, 4.0)) == pytest.approx(
            expected, rel=2e-3
        )
    assert (reduced.times, headline.SETTINGS["chess", True].times, headline.SETTINGS["poems", False].times) == (5, 6, 2)


def test_every_row_of_the_headline_is_a_plan_with_as_many_choices() -> None:
    headline = load("headline")
    s = dataclasses.replace(headline.SETTINGS["fashion", False], rounds=20, cohort=10, users=100, separation=10)
    cells = headline.cells_of("fashion", s, list(headline.ROWS), [2.0, 8.0], 3)
    assert len(cells) == 2 * len(headline.ROWS) + 1
    for cell in cells:
        assert len({Plan.parse(headline.scored(choice, "test", 1)).digest() for choice in cell.choices}) == 3
    sampled = Plan.parse(cells[0].choices[0])
    assert sampled.server_optimizer.model_dump()["momentum"] == 0
    assert sampled.privacy.adjacency == "add_remove"


def test_the_crossing_is_found_by_bisection() -> None:
    crossing = load("headline").crossing
    assert crossing(lambda e: 10 / e**0.5, lambda e: 20 / e) == pytest.approx(4.0, rel=0.02)
    assert crossing(lambda e: 1.0, lambda e: 2.0) is None


def test_theory_is_the_papers() -> None:
    theory = load("theory")
    problem, oracle = (
        theory.Regression((1.0, 0.5, 0.2, 0.1), 0.05, sgd_noise=0.5),
        Regression((1.0, 0.5, 0.2, 0.1), 0.05, sgd_noise=0.5),
    )
    for beta, gamma_squared, expected in (
        (np.ones(1), 1.0, 0.0659207860),
        (np.array([1.0, -0.95]), 10.2564102564, 0.0374884936),
    ):
        assert theory.exact(problem, beta, gamma_squared) == pytest.approx(expected, rel=1e-7)
        assert oracle.exact(beta, gamma_squared) == pytest.approx(expected, rel=1e-7)
    assert theory.errors(1.0 / np.arange(1, 129), 0.02) == pytest.approx((0.6775860656, 0.0095845815), rel=1e-3)


def test_the_ode_of_the_clipping_claim_prefers_small_norms() -> None:
    clipping = load("clipping")
    risks = {clip: clipping.best_step("independent", 50, clip, 100)[1] for clip in (0.3, 10.0)}
    assert risks[0.3] < risks[10.0]
