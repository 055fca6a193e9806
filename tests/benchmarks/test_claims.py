"""The claims' harness: nothing is tuned on scored users, no verdict from one seed, and every command runs."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import json
import math
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from fieldfare import clipping
from fieldfare.costing import cost_of
from fieldfare.errors import BadInput
from fieldfare.plan import Plan
from fieldfare.plan_tables import ClientSpec
from fieldfare.schema import Schema
from fieldfare_client.settings import TrainingSettings
from fieldfare_client.storage import write
from fieldfare_client.training.clip import clip_with
from fieldfare_client.training.trainer import Trainer
from fieldfare_client.users import UserTable
from oracles.linear_regression import Regression
from support.refusals import coded

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    # Behind what stands there already: a mutant's own copy.
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "benchmarks/claims")])


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
    cells = [load("training_plans").cell("one", small(training), {"kind": "blt"}, 8.0, optimizer)]
    chosen, cache = fashion / "choices.json", fashion / "cache"
    with pytest.raises(FileNotFoundError):
        harness.score(study, cells, chosen, 2, cache, quiet=True)
    frozen = harness.tune(study, cells, chosen, cache, quiet=True)
    assert len(frozen["one"]["tune_scores"]) == 2 + 4
    with pytest.raises(BadInput, check=coded("not-found", "run.task", "fashion-test.arrow")):
        harness.score(study, cells, chosen, 2, cache, quiet=True)
    (fashion / "fashion-test.arrow").write_bytes((fashion / "fashion-tune.arrow").read_bytes())
    found = harness.score(study, cells, chosen, 2, cache, quiet=True)
    assert [run["seed"] for run in found["one"]["runs"]] == [1000, 1001]
    assert all(
        run["scores"]["accuracy"] == score
        for run, score in zip(found["one"]["runs"], found["one"]["scores"], strict=True)
    )


@pytest.mark.parametrize(
    ("scores", "tried", "best"), [((9, 1, 3, 2, 9), 3, 2), ((2, 4, 3, 2, 9), 4, 1), ((0, 1, 2, 3, 9), 4, 4)]
)
def test_a_spare_choice_is_tried_where_its_neighbour_is_the_best(
    fashion: Path, monkeypatch: pytest.MonkeyPatch, scores: tuple[float, ...], tried: int, best: int
) -> None:
    harness, made = load("harness"), []

    def get(self: Any, cell: Any, choice: dict[str, int], part: str, seed: int) -> dict[str, Any]:
        made.append(choice["place"])
        return {"scores": {"accuracy": scores[choice["place"]]}}

    monkeypatch.setattr(harness.Runs, "get", get)
    cells = [harness.Cell("one", tuple({"place": place} for place in range(5)), spare=((1, 0), (3, 4)))]
    study = harness.Study("x", None, "accuracy")
    frozen = harness.tune(study, cells, fashion / "choices.json", fashion / "cache", quiet=True)
    assert len(made) == tried
    assert frozen["one"]["choice"] == best
    assert frozen["one"]["edge"] == (best == 4)
    assert [value is None for value in frozen["one"]["tune_scores"]] == [place not in made for place in range(5)]


@pytest.mark.parametrize(("best", "edge"), [(0, True), (1, False), (2, True), (3, True), (4, False), (5, True)])
def test_each_grid_of_a_cell_has_its_edges(
    fashion: Path, monkeypatch: pytest.MonkeyPatch, best: int, edge: bool
) -> None:
    harness = load("harness")
    monkeypatch.setattr(harness.Runs, "get", lambda *given: {"scores": {"accuracy": float(given[2]["place"] == best)}})
    cells = [harness.Cell("one", tuple({"place": place} for place in range(6)), grid=3)]
    study = harness.Study("x", None, "accuracy")
    frozen = harness.tune(study, cells, fashion / "choices.json", fashion / "cache", quiet=True)
    assert (frozen["one"]["choice"], frozen["one"]["edge"]) == (best, edge)


def test_choices_of_other_parts_of_a_grid_stay(fashion: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = load("harness")
    monkeypatch.setattr(harness.Runs, "get", lambda *given: {"scores": {"accuracy": 0.5}})
    study, chosen = harness.Study("x", None, "accuracy"), fashion / "choices.json"
    for label in ("one", "two"):
        harness.tune(study, [harness.Cell(label, ({}, {}))], chosen, fashion / "cache", quiet=True)
    assert set(json.loads(chosen.read_text())) == {"one", "two"}


def cnn_point(task: Any, seed: int) -> torch.Tensor:
    flat = torch.cat([value.detach().flatten() for value in task.build_model().parameters()])
    return flat + 0.1 * torch.randn(len(flat), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("norm", [0.5, 50.0])
def test_one_pass_sums_what_the_product_sums(fashion: Path, norm: float) -> None:
    """Two points and two queries, clipped and not: the product's trainer, user by user, is the reference."""
    one_pass = load("one_pass")
    task = importlib.import_module("fieldfare_research.fashion").FashionTask(model="cnn-small")
    client = ClientSpec(steps=1, batch_size=1, learning_rate=0.7)
    settings = TrainingSettings(client, clipping.parse({"kind": "flat", "norm": norm}), seed=3, isolated=True)
    trainer = Trainer(task, client, clip_with(settings.clipping, Schema.of(task.build_model())), isolated=True)
    users, table = np.array([3, 7, 8, 20, 39]), task.users()
    for points, weights, queries in ((1, [1.0], 1), (2, [0.3, -1.7, 1.0, 0.0], 2)):
        starts = [cnn_point(task, seed) for seed in range(points)]
        expected = trainer.train(starts, weights, table, users, at_round=2, queries=queries)
        found = one_pass.OnePass(task, settings).train(starts, weights, table, users, at_round=2, queries=queries)
        assert found.users == expected.users
        assert float((found.update - expected.update).norm()) <= 2e-6 * float(expected.update.norm())


def players(folder: Path, part: str = "train", count: int = 30) -> Path:
    """A table of made-up players, with missing months; the last has no known transition."""
    random = np.random.default_rng(1)
    rating = (1500 + 10 * random.integers(0, 3, (count, 37)).cumsum(1)) * (random.random((count, 37)) < 0.9)
    rating[-1, 1::2] = 0
    columns = {"rating": rating.astype(np.int16), "birth": np.where(np.arange(count) % 3, 1980, 0).astype(np.int16)}
    table = UserTable([f"p{row}" for row in range(count)], np.arange(count + 1), columns)  # type: ignore[arg-type]
    write(folder / f"chess-{part}.arrow", [table])
    return folder


def test_gradient_lengths_are_those_of_one_image_at_a_time(fashion: Path) -> None:
    one_pass, training = load("one_pass"), load("training")
    task = importlib.import_module("fieldfare_research.fashion").FashionTask(model="cnn-small")
    settings = TrainingSettings(
        ClientSpec(steps=1, batch_size=1), clipping.parse({"kind": "flat", "norm": 1.0}), 0, False
    )
    model, table = task.build_model(), task.users()
    start = Schema.of(model).flatten(dict(model.named_parameters()))
    inputs, targets = task.prepare(table.rows(np.arange(5)).columns)
    found = one_pass.OnePass(task, settings).norms(start, inputs, targets)
    for row, length in enumerate(found):
        loss = task.loss(model(inputs[row : row + 1]), targets[row : row + 1]).sum()
        parts = torch.autograd.grad(loss, list(model.parameters()))
        assert float(length) == pytest.approx(float(torch.cat([part.flatten() for part in parts]).norm()), rel=1e-4)
    table_of = training.plan_table(small(training), training.BLT, 2.0, {"kind": "sgd", "learning_rate": 3.0})
    norms = load("remarks").median_norms(Plan.parse(training.scored(table_of, "tune", 1)), users=20)
    assert set(norms) == {"start", "end"}
    assert 0 < norms["start"] != norms["end"] > 0
    assert f"{norms['end']:.2f} after 2 rounds" in load("remarks").norms_of({"norms": norms, "size": {"rounds": 2}})[0]


def test_gains_are_compared_where_several_were_run() -> None:
    cells = {"a, base": 0.9, "a, two-point": 0.5, "a, two-point, kappa 0.3": 0.7, "b, two-point": 0.1}
    (line,) = load("remarks").gains_of({"cells": {label: {"scores": [value]} for label, value in cells.items()}})
    assert line == "two points by gain (a): 0.3 0.7000, 0.7 0.5000; the means span 0.2000"


@pytest.mark.parametrize("norm", [0.2, 50.0])
def test_one_pass_sums_what_the_product_sums_over_months(tmp_path: Path, norm: float) -> None:
    one_pass = load("one_pass")
    task = importlib.import_module("fieldfare_research.chess").ChessTask(folder=players(tmp_path))
    client = ClientSpec(steps=1, batch_size=1, learning_rate=0.7)
    settings = TrainingSettings(client, clipping.parse({"kind": "flat", "norm": norm}), seed=3, isolated=True)
    assert one_pass.OnePass.fits(task, settings)
    trainer = Trainer(task, client, clip_with(settings.clipping, Schema.of(task.build_model())), isolated=True)
    users, starts = np.array([2, 3, 11, 20, 29]), [cnn_point(task, seed) for seed in range(2)]
    expected = trainer.train(starts, [0.4, 0.6], task.users(), users, at_round=2)
    found = one_pass.OnePass(task, settings).train(starts, [0.4, 0.6], task.users(), users, at_round=2)
    assert float((found.update - expected.update).norm()) <= 2e-6 * float(expected.update.norm()) > 0


def test_scores_without_a_model_are_counts_of_past_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a loop over players and months."""
    monkeypatch.setenv("FIELDFARE_DATA", str(players(tmp_path, "test")))
    reductions = load("reductions")
    auc = importlib.import_module("fieldfare_client.tasks.scores").auc
    table = importlib.import_module("fieldfare_research.tables").table("chess", "test", ("rating",), tmp_path)
    last, year, target = [], [], []
    for row in table.rows(np.arange(30)).columns["rating"].tolist():
        changed = [bool(a and b and a != b) for a, b in itertools.pairwise(row)]
        for month in range(1, 36):
            if row[month] and row[month + 1]:
                last.append(changed[month - 1])
                year.append(sum(changed[max(0, month - 12) : month]))
                target.append(changed[month])
    as_tensors = [torch.tensor(values, dtype=torch.float64) for values in (last, year, target)]
    assert reductions.baselines("chess") == pytest.approx(
        {
            "it changed last month": auc(as_tensors[0], as_tensors[2]),
            "changes in the last 12 months": auc(as_tensors[1], as_tensors[2]),
        },
        rel=1e-9,
    )
    assert reductions.baselines("fashion") == {}


def test_one_pass_leaves_everything_else_to_the_product(fashion: Path) -> None:
    one_pass, app = load("one_pass"), importlib.import_module("fieldfare_client.app")
    tasks = importlib.import_module("fieldfare_research.fashion")
    flat = clipping.parse({"kind": "flat", "norm": 1.0})
    plain = TrainingSettings(ClientSpec(steps=1, batch_size=1), flat, 0, False)
    assert one_pass.OnePass.fits(tasks.FashionTask(model="cnn-small"), plain)
    assert not one_pass.OnePass.fits(tasks.FashionTask(model="cnn"), plain)
    for client in (ClientSpec(steps=2, batch_size=1), ClientSpec(steps=1, batch_size=1, weight_decay=0.1)):
        assert not one_pass.OnePass.fits(tasks.FashionTask(model="cnn-small"), TrainingSettings(client, flat, 0, False))
    automatic = clipping.parse({"kind": "automatic", "norm": 1.0})
    assert not one_pass.OnePass.fits(
        tasks.FashionTask(model="cnn-small"), TrainingSettings(plain.client, automatic, 0, False)
    )
    usual = app._trainer
    with one_pass.one_pass():
        assert app._trainer is not usual
    assert app._trainer is usual


def headline_cells(**scores: tuple[float, ...]) -> dict[str, Any]:
    """Stored cells of nu and amplified DP-SGD at epsilon 1 and 4: keys `nu1`, `poisson4`."""
    names = {"nu": "nu", "poisson": load("headline_plans").POISSON}
    run = {"seed": 1000, "cpu_seconds": 1.0, "load": 1.0, "commit": "c", "versions": "v", "prefix_noise_rms": 1.0}
    cells = {f"{names[k[:-1]]}, epsilon {k[-1]}": {"scores": list(v), "runs": [run]} for k, v in scores.items()}
    cells[load("headline_plans").NO_PRIVACY] = {"scores": [0.9, 0.9], "runs": [run]}
    return {label: {"edge": label.startswith("nu, epsilon 4"), **cell} for label, cell in cells.items()}


def test_the_crossing_of_scores_is_interpolated_in_log_epsilon() -> None:
    headline = load("headline_page")
    stored = {"setting": {"higher": True, "score": "accuracy"}, "crossing of noise": 2.0, "data": "fashion"}
    cells = headline_cells(nu1=(0.4, 0.6), poisson1=(0.5, 0.5), nu4=(0.8, 0.8), poisson4=(0.7, 0.7))
    assert headline.score_crossing({**stored, "cells": cells})[1] == [pytest.approx(2.0), None]
    cells = headline_cells(nu1=(0.4, 0.4), poisson1=(0.5, 0.5), nu4=(0.8, 0.6), poisson4=(0.7, 0.7))
    mean, each = headline.score_crossing({**stored, "cells": cells})
    assert mean == pytest.approx(4.0)
    assert each == [pytest.approx(2.0), None]
    assert "not run" not in headline.verdicts_of_scores({**stored, "cells": cells})


def test_the_noise_of_stored_runs_is_that_of_their_plans() -> None:
    """A row whose noise is priced at once; those with certificates are read in the same way."""
    headline, plans = load("headline"), load("headline_plans")
    found = headline.noise_of_runs("headline-fashion-small")
    assert set(found) == set(plans.ROWS)
    table = plans.table_of("fashion", plans.SETTINGS["fashion", "small"], "optimal-cc", 8.0)
    assert found["optimal-cc"]["8"] == pytest.approx(plans.prefix_noise(table), rel=1e-6)
    assert headline.noise_of_runs("headline-none") == {}


def test_a_lower_score_is_ahead_in_nats_and_the_base_model_is_compared() -> None:
    """Of `poems`: cells of two scores, seeds that agree, and a base model that amplified DP-SGD does not reach."""
    headline, plans = load("headline_page"), load("headline_plans")
    cells = headline_cells(nu1=(6.9, 6.8), poisson1=(7.2, 7.1), nu4=(6.5, 6.5), poisson4=(6.8, 6.9))
    for cell in cells.values():
        shares = {"accuracy": 0.25, "accuracy_characters": 0.125}
        cell["runs"] = [cell["runs"][0] | {"scores": shares}] * 2
    stored = {
        "setting": dataclasses.asdict(plans.SETTINGS["poems", "small"]) | {"task": {"base": "ab" * 32}},
        **{"data": "poems", "size": "small", "crossing of noise": 2.0, "cells": cells},
        "base": {"nats": 7.0, "accuracy": 0.2, "accuracy_characters": 0.1},
    }
    text = headline.score_section("headline-poems-small", stored)
    assert f"--data poems --size small --base {'ab' * 32} --seeds 2 --epsilons 1 4" in text
    assert "nats (lower is better), mean" in text
    flowing = " ".join(text.split())
    assert "base model, before any training: 7.0000." in flowing
    assert "At an edge of their grid, and so not tuned to the end: nu, epsilon 4. Rows that" in flowing
    assert "(higher is better; without privacy 0.2500 ± 0.0000, the base model 0.2000; without comma and" in flowing
    assert "full stop at most 0.1250 in any run, and 0.1000 for the base model)" in flowing
    assert "- nu ahead of the base model: epsilon 1 **holds weakly**, epsilon 4 **holds**" in text
    first = f"- {plans.POISSON} ahead of the base model: epsilon 1 **undecided**, epsilon 4 **holds weakly**"
    assert first in text
    assert "amplified DP-SGD ahead of `nu` below epsilon 4: epsilon 1 **does not hold here**" in text
    assert "nats (lower is better) on poems" in load("headline_figure").picture(stored)
    with_accuracy = stored | {"setting": stored["setting"] | {"higher": True}}
    assert "nu ahead of the base model: epsilon 1 **undecided**" in headline.verdicts_of_scores(with_accuracy)


def test_the_figure_is_the_same_bytes_for_the_same_numbers() -> None:
    figure = load("figure")
    lines = [
        figure.Line("a & b", [(1, 0.5, 0.4, 0.6), (4, 0.7, 0.7, 0.7)], figure.STYLES[0]),
        figure.Line("c", [(4, 0.6, 0.55, 0.65)], figure.STYLES[1]),
    ]
    axes = figure.Axis("epsilon", (1, 4), log=True), figure.Axis("accuracy", figure.ticks(0.4, 0.7))
    drawn = figure.panels("what", [figure.Panel("one", lines)], *axes, ("none", 0.8))
    assert drawn == figure.panels("what", [figure.Panel("one", lines)], *axes, ("none", 0.8))
    root = ElementTree.fromstring(drawn)
    assert len(root.findall(".//{*}path[@class='marker']")) == 3
    assert "nan" not in drawn


def test_the_last_bits_of_a_logarithm_do_not_show() -> None:
    """Halfway between two tenths, where the last bit would decide: processors differ in it."""
    figure = load("figure")

    def drawn(factor: float) -> str:
        points = [(factor * 10 ** (place / 8), *[factor * 10 ** (place / 80)] * 3) for place in range(1, 32)]
        lines = [figure.Line("c", points, figure.STYLES[0], frozenset())]
        axes = figure.Axis("x", (1, 1e4), log=True), figure.Axis("y", (1, 10), log=True)
        return str(figure.panels("what", [figure.Panel("one", lines)], *axes))

    assert drawn(1 - 1e-14) == drawn(1.0) == drawn(1 + 1e-14)


FIGURES = (*(f"headline-{of}" for of in ("fashion-small", "fashion-full", "chess-small", "chess-people")), "attack")


@pytest.mark.parametrize("name", [*FIGURES, "headline-poems-small"])
def test_lines_of_a_stored_figure_differ_in_colour_and_in_dash_and_in_marker(name: str) -> None:
    """At most five lines with markers a panel; any one of the three tells them apart, also without the other two."""
    root = ElementTree.fromstring((ROOT / f"docs/evidence/{name}.svg").read_text())
    panels = root.findall("{*}g")
    assert len(panels) == 2
    for panel in panels:
        lines = panel.findall("{*}path[@class='line']")
        colours, dashes = ([line.get(key) for line in lines] for key in ("stroke", "stroke-dasharray"))
        markers = {mark.get("fill"): mark.get("d") for mark in panel.findall("{*}path[@class='marker']")}
        assert len(set(colours)) == len(set(dashes)) == len(lines)
        assert len(set(markers.values())) == len(markers) <= 5
        assert set(markers) == set(colours) if name != "attack" else set(markers) < set(colours)
        places = sorted(float(text.get("y", "0")) for text in panel.findall("{*}text") if text.get("fill") in markers)
        assert all(b - a > 14 for a, b in itertools.pairwise(places)), "names lie on each other"


def test_signs_holm_and_crossings_are_those_of_small_cases() -> None:
    paired = load("paired")
    assert paired.sign_flip([1.0, 2.0, 3.0]) == pytest.approx(2 / 8)
    assert paired.sign_flip([1.0, -2.0, 3.0]) == pytest.approx(6 / 8)
    assert paired.sign_flip([0.1] * 12) == pytest.approx(2 / 4096)
    assert paired.holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06})
    assert paired.holm({"a": 0.5, "b": 0.9}) == pytest.approx({"a": 1.0, "b": 1.0})
    assert paired.bootstrap([0.5] * 4) == (0.5, 0.5)
    low, high = paired.bootstrap([0.0, 1.0] * 50)
    assert (low, high) == pytest.approx((0.5 - 1.96 * 0.05, 0.5 + 1.96 * 0.05), abs=0.011)
    same = np.array([[-1.0] * 6, [1.0] * 6])
    assert paired.crossing(same, [1.0, 4.0]) == pytest.approx((2.0, 2.0, 2.0))
    at, low, high = paired.crossing(np.array([[-1.0, -1.0], [1.0, -2.0]]), [1.0, 4.0])
    assert (at, high) == (math.inf, math.inf)
    assert low == pytest.approx(2.0)
    assert paired.crossing(-same, [1.0, 4.0])[0] == 0
    assert [paired.told(value, [1.0, 4.0]) for value in (0.0, 2.0, math.inf)] == ["below 1", "2.00", "above 4"]


def test_the_best_split_is_chosen_on_tune_users_and_scored_on_its_seeds() -> None:
    seeds, stored = load("headline_seeds"), {"setting": {"higher": True, "rounds": 200, "cohort": 250}}
    cells = {f"{row}, epsilon 4": {"scores": [0.5] * 6} for row, _ in seeds.PAIRS}
    label = f"{seeds.POISSON}, epsilon 4"
    cells |= {f"{other}, epsilon 4": {"scores": [0.4] * 6} for _, other in seeds.PAIRS if other != seeds.BEST}
    cells[label] = {"scores": [0.6] * 6, "choice": 1, "tune_scores": [0.1, 0.5]}
    whole = {**stored, "cells": cells}
    assert seeds.scores_of(whole, seeds.BEST, 4.0) == [0.6] * 6
    assert ("nu", seeds.BEST, 4.0) not in seeds.tested(whole), "the same comparison is not counted twice"
    assert seeds.against(whole, seeds.tested(whole), "nu", seeds.BEST, 4.0) == "undecided", "2 / 64 after Holm"
    better = {"scores": [0.3] * 6, "choice": 0, "tune_scores": [0.7, None]}
    whole["splits"] = {"100x500": {label: better}, "400x125": {label: {**better, "tune_scores": [0.2, None]}}}
    assert seeds.best_split(whole, 4.0) == "100x500"
    assert seeds.scores_of(whole, seeds.BEST, 4.0) == [0.3] * 6
    assert ("nu", seeds.BEST, 4.0) in seeds.tested(whole)


def test_six_rows_are_compared_among_themselves_and_too_few_seeds_are_said() -> None:
    seeds, figure = load("headline_seeds"), load("headline_figure")
    rows = (seeds.POISSON, seeds.ALLOCATED, seeds.NU_BINS, "tree, online", "nu", "banded")
    cells = {
        f"{row}, epsilon {epsilon}": {"scores": [0.5 + 0.01 * place - 0.001 * epsilon] * 6, "choice": 0}
        for place, row in enumerate(rows)
        for epsilon in (1, 8)
    }
    for label, cell in cells.items():
        cell["tune_scores"] = [0.5]
        if label.startswith(seeds.POISSON):
            cell["scores"] = [0.9] * 6
    setting = {"higher": True, "score": "accuracy", "rounds": 2000, "cohort": 500}
    stored = {"data": "fashion", "setting": setting, "cells": cells}
    found = seeds.tested(stored)
    assert {row for pair in found for row in pair[:2]} == set(rows)
    assert seeds.too_few(stored, found)
    text = seeds.section(stored)
    assert "so few seeds cannot leave any" in text
    assert seeds.BANDED_BINS not in text
    assert seeds.BEST not in text
    drawn = figure.picture(stored)
    assert "Too few seeds" in drawn
    assert "nu does not pass DP-SGD up to epsilon 8" in drawn
    assert "nan" not in drawn
    assert "inf" not in drawn
    for cell in cells.values():
        cell["scores"] = cell["scores"] * 2
    assert not seeds.too_few(stored, found)


def test_runs_are_cached_by_plan_seed_and_data(fashion: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training, harness = load("training"), load("harness")
    study = harness.Study("x", training.scored, "accuracy", data="fashion")
    cell = load("training_plans").cell("one", small(training), {"kind": "independent"}, 8.0, {"kind": "sgd"})
    cache, made = fashion / "cache", []
    whole = harness.run
    monkeypatch.setattr(harness, "run", lambda *given: made.append(given) or whole(*given))
    runs = harness.Runs(study, cache, 4, quiet=True)
    first = runs.get(cell, cell.choices[0], "tune", 1)
    assert harness.Runs(study, cache, 4, quiet=True).get(cell, cell.choices[0], "tune", 1) == first
    assert len(made) == 1
    runs.get(cell, cell.choices[0], "tune", 2)
    runs.get(cell, cell.choices[1], "tune", 1)
    (fashion / "fashion.json").write_text(json.dumps({"tables": {"fashion-train.arrow": {"sha256": "y"}}}))
    runs.get(cell, cell.choices[0], "tune", 1)
    assert len(made) == 4


@pytest.mark.parametrize("word", ["disk", "momentum", "cool-down", "decaying", "cohort", "nu", "small-clip"])
def test_every_cell_of_every_claim_is_a_plan_that_costs_its_epsilon(word: str) -> None:
    training, harness = load("training"), load("harness")
    size = training.Size(rounds=20, cohort=10, users=100, rates=3)
    cells, pairs = training.CLAIMS[word].made(size)
    labels = [cell.label for cell in cells]
    assert len(set(labels)) == len(labels)
    assert {label for _, *both in pairs for label in both} <= set(labels)
    priced = {}
    for cell in cells:
        assert (len(cell.choices), cell.spare) == (3 + 4, ((2, 1), (1, 0), (4, 5), (5, 6))), "equal effort"
        plans = [Plan.parse(training.scored(choice, "tune", 1)) for choice in cell.choices]
        assert len({plan.digest() for plan in plans}) == 3 + 4
        priced[json.dumps([cell.choices[0][k] for k in ("privacy", "mechanism", "participation", "run")])] = plans[0]
    for plan in priced.values():
        harness.require_charged(cost_of(plan))


def test_a_claim_runs_from_tuning_to_its_page(fashion: Path) -> None:
    training = load("training")
    (fashion / "fashion-test.arrow").write_bytes((fashion / "fashion-tune.arrow").read_bytes())
    found, pairs = training.run("nu", small(training), 2, fashion / "cache", quiet=True)
    size = dataclasses.asdict(small(training))
    text = training.page({"claim": "nu", "size": size, "cells": found, "pairs": pairs, "command": "the command"})
    assert "| nu x 1 |" in text
    assert text.count("nu auto is no worse") == 4
    assert "the command" in text
    assert "seeds 1000, 1001" in text
    part, pairs = training.run("nu", small(training), 2, fashion / "cache", "x (1|10)$", quiet=True)
    assert (list(part), len(pairs)) == (["nu x 1", "nu x 10"], 1)
    assert part["nu x 1"] == found["nu x 1"]


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
    headline = load("headline_plans")
    reduced = headline.SETTINGS["fashion", "reduced"]
    for row, expected in (("nu", 8.00), ("blt", 7.74), ("independent", 38.3), ("DP-SGD, Poisson (add_remove)", 10.70)):
        assert headline.prefix_noise(headline.table_of("fashion", reduced, row, 4.0)) == pytest.approx(
            expected, rel=2e-3
        )
    assert (reduced.times, headline.SETTINGS["chess", "full"].times, headline.SETTINGS["poems", "reduced"].times) == (
        5,
        6,
        2,
    )


def test_every_row_of_the_headline_is_a_plan_and_only_dp_sgd_has_one_more_choice() -> None:
    headline = load("headline_plans")
    s = dataclasses.replace(headline.SETTINGS["fashion", "reduced"], rounds=20, cohort=10, users=100, separation=10)
    certified = [headline.NU_BINS, headline.BANDED_BINS]  # half a minute each: not priced here
    for row in certified:
        plan = Plan.parse(headline.table_of("fashion", s, row, 2.0))
        assert (plan.privacy.adjacency, plan.participation.bins) == ("add_remove", 10)
    rows = [row for row in headline.ROWS if row not in certified]
    cells = headline.cells_of("fashion", s, rows, [2.0, 8.0], 3)
    assert len(cells) == 2 * len(rows) + 1
    for cell in cells:
        independent = cell.choices[0]["mechanism"]["kind"] == "independent" and not cell.noiseless
        digests = {Plan.parse(headline.scored(choice, "test", 1)).digest() for choice in cell.choices}
        assert len(digests) == 3 + 2 + independent
        assert cell.spare == ((1, 0), (3, 4))
    both = headline.cells_of("fashion", dataclasses.replace(s, both=True), rows, [2.0], 3)
    for cell in both:
        independent = cell.choices[0]["mechanism"]["kind"] == "independent" and not cell.noiseless
        assert len(cell.choices) == 5 * (1 + independent)
        assert cell.spare == ((1, 0), (3, 4), (6, 5), (8, 9))[: 2 * (1 + independent)]
        momenta = [choice["server_optimizer"]["momentum"] for choice in cell.choices]
        assert momenta == ([0.0] * 5 + [s.momentum] * 5 if independent else [s.momentum] * 5)
    sampled = Plan.parse(cells[0].choices[2])
    assert sampled.server_optimizer.model_dump()["momentum"] == 0
    assert sampled.privacy.adjacency == "add_remove"


def test_the_headline_of_poems_starts_from_a_base_model(monkeypatch: pytest.MonkeyPatch) -> None:
    headline = load("headline")
    monkeypatch.setattr("sys.argv", ["headline.py", "--data", "poems"])
    with pytest.raises(SystemExit, match=r"needs --base .*base\.py"):
        headline.main()
    assert "Fine-tuning" in load("headline_page").reduction({"data": "poems", "size": "reduced"})


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


def test_the_base_model_learns_from_public_rows_alone(tmp_path: Path) -> None:
    base, poems = load("base"), importlib.import_module("fieldfare_research.poems")
    tokens = np.tile(np.arange(1, 34, dtype=np.int16), (20, 1))
    table = UserTable(["poems-tang"], np.array([0, 20]), {"tokens": tokens, "rank": np.zeros(20, np.uint8)})
    write(tmp_path / "poems-public.arrow", [table])  # there is no other file
    task = poems.PoemsTask(width=8, folder=tmp_path)
    weights = [base.train(task, 12, 0.05) for _ in range(2)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    model = task.build_model()
    inputs, targets = task.public()
    before = float(task.loss(model(inputs), targets).mean())
    model.load_state_dict(weights[0])
    assert float(task.loss(model(inputs), targets).mean()) < before - 0.3
