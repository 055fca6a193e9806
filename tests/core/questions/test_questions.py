"""Questions: what a user contributes, what the noised sum says, and that its intervals hold."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, norm

from fieldfare.accounting.gaussian import gaussian_epsilon, gaussian_mu
from fieldfare.errors import BadInput
from fieldfare.mechanisms import build
from fieldfare.participation import Single
from fieldfare.questions import Question, Values, kinds, parse
from fieldfare.questions.base import WIDE
from fieldfare.questions.choice import Choose
from fieldfare.questions.distribution import isotonic
from oracles import questions as oracle

REFERENCE = json.loads((Path(__file__).parents[2] / "reference" / "questions.json").read_text())
NAN, INF = math.nan, math.inf
TABLES: list[dict[str, Any]] = [
    {"kind": "count", "measure": "x", "low": 0, "high": 1},
    {"kind": "mean", "measure": "x", "low": -1, "high": 3},
    {"kind": "mean", "measure": "x", "low": -1, "high": 3, "some": True},
    {"kind": "histogram", "measure": "x", "low": -1, "high": 3, "bins": 5},
    {"kind": "quantile", "measure": "x", "low": -1, "high": 3, "bins": 8},
    {"kind": "quantile", "measure": "x", "low": 1e-3, "high": 3, "bins": 7, "spacing": "log", "some": True},
    {"kind": "auc", "model": "a", "bins": 4},
    {"kind": "choose", "models": ["a", "b", "c"], "measure": "loss", "high": 2},
    {"kind": "choose", "models": ["a", "b", "c"], "measure": "loss", "high": 2, "shows": "best"},
    {"kind": "sums", "entries": {"x": 2, "y": 1}, "low": -1, "high": 3},
    {"kind": "sums", "entries": {"x": 2}, "low": -1, "high": 3, "norm": 2.5},
]
ROWS: list[list[float]] = [
    [],
    [NAN],
    [INF, -INF],
    [-INF],
    [1e308, 1e308],
    [0.5, NAN],
    [0.5] * 1000,
    [3.0],
    [-1.0],
    [0.7, 0.2],
]


def numbers(question: Question) -> int:
    return question.width if question.kind == "sums" else {"auc": 2, "choose": 3}.get(question.kind, 1)


def values(users: list[list[float]], width: int) -> Values:
    """Every number of a row is the same."""
    owner = np.repeat(np.arange(len(users)), [len(rows) for rows in users])
    column = np.array([value for rows in users for value in rows], np.float64)
    return Values(np.tile(column[:, None], (1, width)), owner, len(users))


def test_every_kind_is_tried() -> None:
    """Values that nobody listed have no vector of their own: test_unlisted_values.py."""
    assert {table["kind"] for table in TABLES} == set(kinds()) - {"items"}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: str(table["kind"]))
def test_no_user_contributes_more_than_one_whatever_the_values(table: dict[str, Any]) -> None:
    question = parse(table)
    found = question.contributions(values(ROWS, numbers(question)))
    assert found.shape == (len(ROWS), question.width)
    assert np.isfinite(found).all()
    assert np.linalg.norm(found, axis=1).max() <= 1 + 1e-12
    # The bound is used: less noise would not do.
    assert np.linalg.norm(found, axis=1).max() > 0.5


@pytest.mark.parametrize("table", TABLES, ids=lambda table: str(table["kind"]))
def test_in_every_small_world_a_user_moves_the_sum_by_one_and_no_other_users_part(table: dict[str, Any]) -> None:
    question = parse(table)
    rows = ([], [NAN], [-1.0], [0.3, 2.0], [3.0])
    for world in itertools.product(rows, repeat=3):
        own = question.contributions(values(list(world), numbers(question)))
        for place, other in itertools.product(range(3), rows):
            changed = list(world)
            changed[place] = other
            again = question.contributions(values(changed, numbers(question)))
            rest = [user for user in range(3) if user != place]
            np.testing.assert_array_equal(again[rest], own[rest])
            assert np.linalg.norm(again.sum(axis=0) - own.sum(axis=0)) <= 2 + 1e-12  # replace_one
            assert np.linalg.norm(own[place]) <= 1 + 1e-12  # zero_out


@pytest.fixture(scope="module")
def people() -> list[list[float]]:
    draw = np.random.default_rng(5)
    return [
        [NAN if draw.random() < 0.1 else float(value) for value in draw.normal(1, 1, draw.integers(0, 6))]
        for _ in range(400)
    ]


def total(question: Question, users: list[list[float]]) -> NDArray[np.float64]:
    return question.contributions(values(users, numbers(question))).sum(axis=0)


def test_without_noise_the_answers_are_those_of_plain_loops(people: list[list[float]]) -> None:
    with_value = [rows for rows in people if any(not math.isnan(value) for value in rows)]
    n = len(people)
    (counted,) = parse(TABLES[0]).read(total(parse(TABLES[0]), people), 0.0, n)
    assert counted.value == pytest.approx(oracle.count(people, 0, 1))
    (everyone,) = parse(TABLES[1]).read(total(parse(TABLES[1]), with_value), 0.0, len(with_value))
    expected, have = oracle.mean(people, -1, 3)
    assert everyone.value == pytest.approx(expected)
    some, number = parse(TABLES[2]).read(total(parse(TABLES[2]), people), 1e-9, n)
    assert some.value == pytest.approx(expected)
    assert number.value == pytest.approx(have)
    bars = parse(TABLES[3]).read(total(parse(TABLES[3]), people), 0.0, n)
    assert [bar.value for bar in bars] == pytest.approx(oracle.histogram(people, -1, 3, 5))


@pytest.mark.parametrize("share", [0.03, 0.2, 0.5, 0.97])
def test_without_noise_a_quantile_is_in_its_bin(people: list[list[float]], share: float) -> None:
    users = [rows for rows in people if any(not math.isnan(value) for value in rows)]
    question = parse({"kind": "quantile", "measure": "x", "low": -1, "high": 3, "bins": 16, "at": [share]})
    (found,) = question.read(total(question, users), 1e-9, len(users))
    below = np.cumsum(oracle.histogram(users, -1, 3, 16))
    bin = int(np.searchsorted(below, share * len(users)))
    assert found.low == pytest.approx(-1 + bin / 4)
    assert found.high == pytest.approx(-1 + (bin + 1) / 4)
    assert found.low <= found.value <= found.high  # type: ignore[operator]


def test_without_noise_the_area_is_that_of_all_pairs() -> None:
    draw = np.random.default_rng(2)
    users = [
        [(float(draw.beta(2 + 2 * label, 3)), int(label)) for label in draw.integers(0, 2, draw.integers(1, 4))]
        for _ in range(60)
    ]
    owner = np.repeat(np.arange(60), [len(rows) for rows in users])
    question = parse({"kind": "auc", "model": "a", "bins": 8})
    found = question.contributions(Values(np.array([row for rows in users for row in rows]), owner, 60))
    (answer,) = question.read(found.sum(axis=0), 1e-9, 60)
    assert answer.value == pytest.approx(oracle.area(users, 8))


@pytest.mark.parametrize("norm", [None, 100.0])
def test_without_noise_sums_are_those_of_a_loop(norm: float | None) -> None:
    question = parse({"kind": "sums", "entries": {"b": 1, "a": 2}, "low": 0, "high": 9, "norm": norm})
    told = [{"a": [1.0, 2.0], "b": [3.0]}, {"b": [12.0], "a": [-4.0, 0.5]}]
    contributions = sum(question.contributions(question.of_one(each))[0] for each in told)
    assert [each.value for each in question.read(np.asarray(contributions), 0.0, 2)] == pytest.approx([1, 2.5, 12])


def test_sums_beyond_the_norm_keep_their_direction() -> None:
    question = parse({"kind": "sums", "entries": {"a": 2}, "high": 9, "norm": 2.5})
    assert question.contributions(question.of_one({"a": [3.0, 4.0]}))[0] == pytest.approx([0.6, 0.8])
    assert [each.value for each in question.read(np.array([0.6, 0.8]), 0.0, 1)] == pytest.approx([1.5, 2.0])


def test_the_best_model_comes_first() -> None:
    draw = np.random.default_rng(3)
    scores = draw.random((500, 3)) * [0.5, 1.0, 0.8]
    for measure, order in (("correct", ["b", "c", "a"]), ("loss", ["a", "c", "b"])):
        question = parse({"kind": "choose", "models": ["a", "b", "c"], "measure": measure})
        total = question.contributions(Values(scores, np.arange(500), 500)).sum(axis=0)
        found = question.read(total, 1.0, 500)
        assert [each.name for each in found] == order
        truth = dict(zip("abc", scores.mean(axis=0), strict=True))
        assert [each.value for each in found] == pytest.approx([truth[name] for name in order])


# -- intervals ----------------------------------------------------------------------------------------------------

DRAWS = 1500
FALSE_ALARM = 1e-6
"""Of one test below: that a right interval is held to be too narrow, or too wide."""


def between(
    question: Question, sums: NDArray[np.float64], sd: float, users: int, truth: list[float]
) -> NDArray[np.int64]:
    """How often each estimate's interval holds the truth."""
    draw = np.random.default_rng(11)
    held = np.zeros(len(truth), np.int64)
    for _ in range(DRAWS):
        answer = question.read(sums + sd * draw.standard_normal(len(sums)), sd, users)
        found = {each.name: each for each in answer}
        for place, each in enumerate(answer if question.kind != "choose" else [found[name] for name in sorted(found)]):
            assert each.low is not None
            assert each.high is not None
            held[place] += each.low <= truth[place] <= each.high
    return held


def exact(question: Question, sums: NDArray[np.float64], users: int) -> list[float]:
    answer = question.read(sums, 1e-9, users)
    if question.kind == "choose":
        answer = tuple(sorted(answer, key=lambda each: each.name))
    return [float(each.value) for each in answer if each.value is not None]


@pytest.mark.parametrize(
    ("table", "sd", "exactly"),
    [
        (TABLES[0], 12.0, True),
        (TABLES[1], 12.0, True),
        (TABLES[2], 25.0, True),
        (TABLES[3], 8.0, True),
        (TABLES[7], 12.0, True),
        ({**TABLES[4], "at": [0.1, 0.5, 0.9]}, 6.0, False),
        ({**TABLES[4], "at": [0.1, 0.5, 0.9], "some": True}, 6.0, False),
    ],
    ids=["count", "mean", "mean-of-some", "histogram", "choose", "quantile", "quantile-of-some"],
)
def test_intervals_hold_what_they_say(
    table: dict[str, Any], sd: float, exactly: bool, people: list[list[float]]
) -> None:
    question = parse(table)
    users = [rows for rows in people if any(not math.isnan(value) for value in rows)]
    sums = total(question, users)
    held = between(question, sums, sd, len(users), exact(question, sums, len(users)))
    # A quantile's interval ends at bins' edges, so it is wider than it must be.
    low, high = binom.ppf([FALSE_ALARM / 10, 1 - FALSE_ALARM / 10], DRAWS, 0.95)
    assert (held >= low).all()
    assert not exactly or (held <= high).all()


def test_the_interval_of_an_area_holds_it() -> None:
    draw = np.random.default_rng(4)
    label = (draw.random(1500) < 0.3).astype(float)
    score = np.clip(draw.normal(0.4 + 0.15 * label, 0.2), 0, 1)
    question = parse({"kind": "auc", "model": "a", "bins": 16})
    sums = question.contributions(Values(np.stack([score, label], axis=1), np.arange(1500), 1500)).sum(axis=0)
    held = between(question, sums, 5.0, 1500, exact(question, sums, 1500))
    # Noise on a ratio of products is only nearly normal: 92 to 98 %.
    assert 0.92 * DRAWS <= held[0] <= 0.98 * DRAWS


def test_what_the_noise_hides_is_not_shown() -> None:
    some = parse(TABLES[2])
    assert some.read(np.array([1.0, 39.0]), 10.0, 100)[0].value is None
    assert some.read(np.array([1.0, 41.0]), 10.0, 100)[0].value is not None
    assert parse(TABLES[6]).read(np.array([30.0] * 4 + [1.0] * 4), 4.0, 100)[0].value is None


# -- vectors ------------------------------------------------------------------------------------------------------


def test_losses_and_what_so_many_runs_cost_are_those_of_the_reference() -> None:
    for table, at in (("mu", 1e-5), ("mu at delta 1e-6", 1e-6)):
        for epsilon, mu in REFERENCE[table].items():
            assert gaussian_mu(float(epsilon), at) == pytest.approx(mu, rel=1e-8)
    for runs, epsilon in REFERENCE["epsilon of k runs of epsilon 1"].items():
        mu = gaussian_mu(1.0, 1e-5) * math.sqrt(float(runs))
        assert gaussian_epsilon(mu, 1e-5) == pytest.approx(epsilon, rel=1e-8)


def test_mean_has_the_noise_of_the_reference() -> None:
    question = parse({"kind": "mean", "measure": "x", "low": 0, "high": 1})
    for case in REFERENCE["mean of values in [0, 1], standard deviation"]:
        ((_, sd),) = question.spread(1 / gaussian_mu(case["epsilon"], 1e-5), case["users"])
        assert sd == pytest.approx(case["sd"], rel=1e-8)


def test_quantile_has_the_noise_of_the_reference_and_of_the_oracle() -> None:
    for case in REFERENCE["quantile"]:
        bins = case["bins"]
        sensitivity, rms, largest = oracle.quantile_errors(bins)
        assert (sensitivity, rms, largest) == pytest.approx([case[key] for key in ("sensitivity", "rms", "largest")])
        question = parse({"kind": "quantile", "measure": "x", "low": 0, "high": 1, "bins": bins})
        ((_, sd),) = question.spread(1.0, 1)
        assert sd == pytest.approx(largest, rel=1e-9)
        # Whoever lies in one bin contributes a column of C over its largest column.
        middles = np.linspace(0, 1, 2 * bins + 1)[1::2]
        own = question.contributions(Values(middles[:, None], np.arange(bins), bins))
        np.testing.assert_allclose(own, oracle.square_root(bins).T / sensitivity, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "spec", "close"),
    [
        ("independent", {"kind": "independent"}, 1e-9),
        ("tree, full", {"kind": "tree", "estimator": "full"}, 1e-9),
        # Its buffers approximate powers of a square root.
        ("nu, auto", {"kind": "nu", "nu": "auto"}, 1e-3),
    ],
)
def test_what_other_noise_over_the_bins_would_do_is_that_of_the_reference(
    name: str, spec: dict[str, Any], close: float
) -> None:
    for case in REFERENCE["quantile"]:
        mechanism = build(spec, case["bins"], Single())
        rows = mechanism.prefix_row_norms(case["bins"]) * mechanism.sensitivity(Single())
        found = [math.sqrt(np.square(rows).mean()), rows.max()]
        assert found == pytest.approx([case[name]["rms"], case[name]["largest"]], rel=close)
        if name != "nu, auto":
            assert rows.max() > case["largest"]


def test_an_area_has_the_bias_of_its_bins_and_the_noise_of_the_reference() -> None:
    """10 000 users with a row each; bins of equal width of a public score, which is uniform over all of them."""
    told = REFERENCE["area"]
    # As many users as their law says, placed as evenly.
    classes = [
        norm.ppf((np.arange(count) + 0.5) / count, loc)
        for count, loc in ((int(told["users"] * (1 - told["positive"])), 0.0), (3000, told["apart"]))
    ]
    ranks = [(1 - told["positive"]) * norm.cdf(x) + told["positive"] * norm.cdf(x, told["apart"]) for x in classes]
    rows = np.concatenate([np.stack([each, np.full(len(each), label)], 1) for label, each in enumerate(ranks)])
    for case in told["rows"]:
        question = parse({"kind": "auc", "model": "a", "bins": case["bins"]})
        sums = question.contributions(Values(rows, np.arange(len(rows)), len(rows))).sum(axis=0)
        sd = 1 / gaussian_mu(case["epsilon"], 1e-5)
        (answer,) = question.read(sums, sd, len(rows))
        assert answer.value == pytest.approx(case["binned"], abs=2e-4)
        assert told["area"] - case["binned"] < 1.2e-3  # what the bins take away
        assert answer.low is not None
        assert answer.high is not None
        # 2 000 draws of a quantile of normal noise: its deviation is 3 % of what is compared.
        assert (answer.high - answer.low) / (2 * WIDE) == pytest.approx(case["sd"], rel=0.1)
        # Noise makes the area a little larger, and more so the more bins there are; the interval is turned for it.
        assert (answer.low + answer.high) / 2 < case["binned"] + case["sd"] / 4


def test_choosing_among_twenty_models_is_that_of_the_reference() -> None:
    told = REFERENCE["choice of 20 models"]
    names = [f"m{place}" for place in range(20)]
    table = {"kind": "choose", "models": names, "measure": "correct"}
    (_, (_, sd)) = parse(table).spread(1 / told["mu"], 2000)
    assert 2000 * sd == pytest.approx(told["sd of a difference of noised scores"], rel=1e-8)
    question = parse({**table, "shows": "best"})
    assert isinstance(question, Choose)
    assert question.box is not None
    # 40 users for whom the first model is right and the second wrong.
    own = np.zeros((1, 20))
    own[0, 0] = 1
    sums = told["gap"] * question.contributions(Values(own, np.zeros(1, np.int64), 1))[0]
    eta = question.eta(1 / told["mu"], 2 * question.box)
    assert math.exp(-eta * (sums[0] - sums[1])) == pytest.approx(told["another wins, at most"], rel=1e-6)


def test_isotonic_is_the_nearest_sequence_that_does_not_fall() -> None:
    draw = np.random.default_rng(6)
    for _ in range(50):
        values = draw.normal(size=6) + np.arange(6) / 3
        found = isotonic(values)
        assert (np.diff(found) >= 0).all()
        for _ in range(200):
            other = np.sort(found + 0.3 * draw.normal(size=6))
            assert ((found - values) ** 2).sum() <= ((other - values) ** 2).sum() + 1e-12


# -- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ({"kind": "mean", "measure": "rows"}, "question.low"),
        ({"kind": "mean", "measure": "rows", "low": 1, "high": 1}, "must be below"),
        ({"kind": "mean", "measure": "rows", "low": 0, "high": INF}, "high"),
        ({"kind": "mean", "measure": "rows", "low": 0, "high": 5e-324}, "question.low = 0, high = 4.94066e-324"),
        ({"kind": "sums", "entries": {"x": 4}, "high": 8e307}, "question.low = 0, high = 8e\\+307"),
        ({"kind": "mean", "measure": "rows", "low": 1.6e308, "high": 1.7e308}, "question.low = 1.6e\\+308"),
        ({"kind": "mean", "measure": "loss", "low": 0, "high": 1}, "model"),
        ({"kind": "mean", "measure": "rows", "low": 0, "high": 1, "model": "a"}, "model"),
        ({"kind": "quantile", "measure": "x", "low": 0, "high": 1, "bins": 4, "spacing": "log"}, "above 0"),
        (
            {"kind": "quantile", "measure": "x", "low": 0, "high": 1, "bins": 4, "at": [1.0]},
            "each a number above 0 and below 1",
        ),
        ({"kind": "quantile", "measure": "x", "low": 0, "high": 1, "bins": 4, "at": []}, "a list of at least 1 and"),
        ({"kind": "histogram", "measure": "x", "low": 0, "high": 1}, "bins"),
        ({"kind": "choose", "models": ["a", "a"]}, "twice"),
        ({"kind": "choose", "models": ["a"]}, "models"),
        ({"kind": "auc"}, "model"),
        # A run's id names a directory: none leads out of the home.
        ({"kind": "auc", "model": "../secret"}, "question.model"),
        ({"kind": "choose", "models": ["a", "/etc"]}, "question.models"),
        ({"kind": "mean", "measure": "loss", "low": 0, "high": 1, "model": ".."}, "question.model"),
        ({"kind": "median"}, "there is no such kind"),
        ({"kind": "sums", "entries": {"a": 2}}, "question.high"),
        ({"kind": "sums", "entries": {}, "high": 1}, "entries"),
        ({"kind": "sums", "entries": {"a": 0}, "high": 1}, "question.entries"),
        ({"kind": "sums", "entries": {"a": 1025}, "high": 1}, "question.entries"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused_by_its_key(table: dict[str, Any], word: str) -> None:
    with pytest.raises(BadInput, match=word):
        parse(table)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: str(table["kind"]))
def test_an_answer_has_numbers_at_the_ends_of_what_may_be_asked(table: dict[str, Any]) -> None:
    """Whoever asked has paid by then."""
    ends = {"low": 1e-300 if table.get("spacing") else -1e300, "high": 1e300}
    question = parse({**table, **ends})
    sums = total(question, [[1e300], [-1e300], [0.0]]) * 1e5
    for told in (*question.read(sums, 1e3, 300_000), *question.having(sums, 1e3, 300_000)):
        assert math.isfinite(told.low)
        assert math.isfinite(told.high)
        assert told.value is None or math.isfinite(told.value)
