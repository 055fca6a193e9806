"""Many runs on many cores, and the attack: who is trained on, what is tried next, and what known leaks give."""

from __future__ import annotations

import importlib
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    # Behind what stands there already: a mutant's own copy.
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "benchmarks/claims")])


def load(name: str) -> Any:
    return importlib.import_module(name)


def test_a_coin_takes_about_half_of_the_candidates_and_the_same_ones_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fashion, users = load("fieldfare_research.fashion"), load("fieldfare_client.users")
    rows = 2_000
    everybody = users.UserTable(
        [f"r{row}" for row in range(rows)],
        np.arange(rows + 1),
        {"x": np.zeros((rows, 28, 28), np.uint8), "y": (np.arange(rows) % 251).astype(np.uint8)},
    )
    monkeypatch.setattr(fashion, "table", lambda *_: everybody)
    assert len(fashion.FashionTask(users=1_000).users()) == 1_000
    one, other = (fashion.FashionTask(users=1_000, coin=coin) for coin in (3, 4))
    assert len(one.candidates()) == 1_000
    assert abs(int(one.taken().sum()) - 500) < 5 * math.sqrt(250)
    assert (one.taken() == fashion.FashionTask(users=1_000, coin=3).taken()).all()
    assert abs(np.mean(one.taken() == other.taken()) - 0.5) < 5 * math.sqrt(0.25 / 1_000)
    users_of_one = one.users()
    labels = users_of_one.rows(np.arange(len(users_of_one))).columns["y"]
    assert labels.tolist() == (np.flatnonzero(one.taken()) % 251).tolist()


def test_what_is_tried_next_follows_the_scores_so_far() -> None:
    harness = load("harness")
    cell = harness.Cell("one", ({},) * 5, spare=((1, 0), (3, 4)))
    assert harness.untried(cell, [None] * 5) == [1, 2, 3]
    assert harness.untried(cell, [None, 0.5, None, 0.1, None]) == [2]
    assert harness.untried(cell, [None, 0.1, 0.5, 0.1, None]) == []
    assert harness.untried(cell, [None, 0.5, 0.4, 0.1, None]) == [0]
    assert harness.untried(cell, [None, 0.5, 0.4, 0.1, None], higher=False) == [4]
    assert harness.untried(cell, [math.nan, 0.5, 0.4, 0.1, None]) == []
    assert harness.choice_of(cell, [0.2, 0.5, 0.5, 0.1, None])["choice"] == 1, "ties go to the earlier one"
    diverged = harness.choice_of(cell, [math.nan, math.nan, 0.2, 0.3, 0.1])
    assert (diverged["choice"], diverged["edge"]) == (3, False)
    assert diverged["tune_scores"] == [None, None, 0.2, 0.3, 0.1]
    assert harness.choice_of(cell, [None, 0.5, 0.4, 0.1, None])["edge"], "nobody has looked beyond"


def grid(seeds: int = 2) -> Any:
    many = load("many")
    (one,) = (part for part in many.parts_of(tiny=False) if part.name == "splits-fashion-small-100x500")
    one.seeds = seeds
    return one


def test_a_grid_tunes_then_scores_seed_by_seed_and_a_cut_leaves_whole_seeds() -> None:
    many, one = load("many"), grid()
    labels = [cell.label for cell in one.shapes]
    assert len(labels) == 4, "no row without privacy, which could not fill its rounds"
    jobs = list(one.waiting())
    assert {job.part for job in jobs} == {"tune"}
    assert len(jobs) == 4 * 4, "three rates, and the middle one with momentum"
    for job in jobs:
        one.found[job] = {"scores": {"accuracy": 0.9 if job.place == 2 else 0.1}}
    scored = list(one.waiting())
    assert [job.seed for job in scored] == [1000] * 4 + [1001] * 4
    assert {(job.part, job.place) for job in scored} == {("test", 2)}
    for job in scored[:7]:
        one.found[job] = {"scores": {"accuracy": job.seed / 1e4}}
    assert list(one.waiting()) == scored[7:]
    assert {label: cell["scores"] for label, cell in one.result().items()} == {label: [0.1] for label in labels}
    one.found[scored[7]] = {"scores": {"accuracy": 0.5}}
    assert [len(cell["runs"]) for cell in one.result().values()] == [2] * 4
    assert many.owner(scored[0], 16) is None
    cell = "nu, balls in bins (add_remove), epsilon 4"
    owners = {many.owner(many.Job("x", cell, part, 1, place), 16) for part in ("tune", "test") for place in range(5)}
    assert len(owners) == 1
    assert owners < set(range(16)), "one process prices it"


def test_what_was_stored_is_read_and_not_made_again(tmp_path: Path) -> None:
    many, one = load("many"), grid()
    first = next(iter(one.waiting()))
    line = {"job": many.dataclasses.asdict(first), "record": {"scores": {"accuracy": 0.5}}}
    (tmp_path / "runs.jsonl").write_text(json.dumps(line) + "\n")
    again = grid()
    many.read([again], tmp_path)
    assert list(again.waiting()) == list(one.waiting())[1:]


def test_runs_made_twice_are_equal_in_all_but_times() -> None:
    twice = load("many_results").twice

    def line(seed: int, **record: Any) -> str:
        return json.dumps({"job": {"seed": seed}, "record": {"model": "m", **record}})

    lines = [line(1, wall_seconds=1.0, load=2.0), line(2)]
    assert twice(lines, [line(2), line(1, wall_seconds=9.0)]) == {"runs": 2, "equal": 2}
    assert twice(lines, [line(1), line(2, model="other")]) == {"runs": 2, "equal": 1}
    assert twice(lines, [line(1)]) == {"runs": 2, "equal": 1}


def planted(shift: float, images: int = 400, models: int = 32) -> tuple[Any, Any]:
    random = np.random.default_rng(1)
    taken = random.random((models, images)) < 0.5
    return random.normal(size=(models, images)) + 5 * random.normal(size=images) + shift * taken, taken


@pytest.mark.parametrize("shift", [0.0, 1.0, 3.0])
def test_a_planted_leak_has_the_area_of_two_normals(shift: float) -> None:
    """Confidence one standard deviation apart, whatever the image's own mean: the area is Phi(shift / sqrt 2)."""
    lira = load("lira")
    seen, taken = planted(shift)
    found = lira.judged(lira.ratios(seen, taken), taken, (0.01,), draws=20)
    auc, low, high = found["auc"]
    expected = 0.5 * (1 + math.erf(shift / 2))
    assert auc == pytest.approx(expected, abs=0.02), "means of 15 models cost a little"
    assert low < auc < high
    assert found["0.01"][0] == pytest.approx(0.01, abs=0.006) if not shift else found["0.01"][0] > 0.05


def test_no_model_helps_to_attack_itself() -> None:
    """One confidence of one model is changed: only what is said of that model may follow that value alone."""
    lira = load("lira")
    seen, taken = planted(1.0, images=5, models=12)
    others = [model for model in range(12) if model != 3]
    which = taken[others]
    mean_in = np.array([seen[others][which[:, image], image].mean() for image in range(5)])
    mean_out = np.array([seen[others][~which[:, image], image].mean() for image in range(5)])
    spread_in = np.mean([seen[others][which[:, image], image].var(ddof=1) for image in range(5)])
    spread_out = np.mean([seen[others][~which[:, image], image].var(ddof=1) for image in range(5)])
    fits_in = (seen[3] - mean_in) ** 2 / spread_in + math.log(spread_in)
    fits_out = (seen[3] - mean_out) ** 2 / spread_out + math.log(spread_out)
    assert lira.ratios(seen, taken)[3] == pytest.approx((fits_out - fits_in) / 2)


def test_rates_and_areas_are_those_of_a_case_by_hand() -> None:
    lira = load("lira")
    scores, taken = np.array([[4.0, 3.0, 2.0, 1.0]]), np.array([[True, False, True, False]])
    false, true = lira.Ordered.of(scores, taken).rates(np.ones(1), np.ones(4))
    assert lira.area(false, true) == pytest.approx(3 / 4)
    assert [lira.at(false, true, rate) for rate in (0.0, 0.49, 0.5, 1.0)] == [0.5, 0.5, 1.0, 1.0]
    twice = lira.Ordered.of(scores, taken).rates(np.ones(1), np.array([1.0, 3.0, 1.0, 1.0]))
    assert lira.area(*twice) == pytest.approx((0.5 * 0.75) + 0.25)


def test_what_epsilon_allows_is_its_trade_off() -> None:
    lira = load("lira")
    assert lira.allowed(0.01, 1.0, 0.0) == pytest.approx(math.e * 0.01)
    assert lira.allowed(0.0, 1.0, 1e-5) == pytest.approx(1e-5)
    assert lira.allowed(0.9, 1.0, 0.0) == pytest.approx(1 - 0.1 / math.e)
    assert lira.allowed_area(1.0, 0.0) == pytest.approx(math.e / (1 + math.e), abs=1e-5)
    assert lira.allowed_area(0.0, 0.0) == pytest.approx(0.5, abs=1e-5)
