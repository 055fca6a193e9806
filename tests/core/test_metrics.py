"""Metrics that ride in the stream: what they cost, how they are bounded, and how wide their noise is."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fieldfare.clipping import parse as parse_clipping
from fieldfare.costing import cost_of
from fieldfare.errors import BadInput
from fieldfare.mechanisms import build
from fieldfare.metrics import MetricsSpec, Riders, window_norms
from fieldfare.participation import MinSeparation
from fieldfare.plan import Plan
from support.refusals import Coded, coded

REFERENCE = json.loads((Path(__file__).parents[1] / "reference" / "metrics.json").read_text())
NAN, INF = math.nan, math.inf


def spec(count: int = 1, **keys: Any) -> MetricsSpec:
    return MetricsSpec.model_validate({"show": {f"m{i}": [0, 1] for i in range(count)}, **keys})


def plan(metrics: dict[str, Any] | None = None, **tables: Any) -> Plan:
    table: dict[str, Any] = {
        "privacy": {"population": "people", "epsilon": 1.0, "delta": 1e-5},
        "run": {"task": "flights", "rounds": 64, "cohort": 202},
        "participation": {"scheme": "min-separation", "separation": 16, "max_participations": 4},
        "mechanism": {"kind": "independent"},
        **tables,
    }
    return Plan.parse(table if metrics is None else {**table, "metrics": metrics})


@pytest.mark.parametrize("vector", REFERENCE["joint bound"], ids=str)
@pytest.mark.parametrize("norm", [1.0, 0.3, 40.0])
def test_the_joint_bound_is_that_of_the_reference(vector: dict[str, Any], norm: float) -> None:
    weights = vector["weights"]
    clipping = parse_clipping({"kind": "flat", "norm": norm})
    riders = Riders.of(clipping, spec(len(weights), weight=weights[0]))
    assert riders.joint_bound == pytest.approx(norm * vector["s"], rel=1e-11)
    assert riders.weights == pytest.approx([norm * weight for weight in weights])


def test_beside_an_indicator_all_weights_count() -> None:
    clipping = parse_clipping({"kind": "adaptive-quantile", "norm": 0.3, "count_weight": 0.5})
    riders = Riders.of(clipping, spec(2, weight=0.2))
    assert (riders.weights, riders.indicators, riders.metrics) == ((0.5, 0.2, 0.2), 1, 2)
    assert riders.joint_bound == pytest.approx(math.sqrt(1 + 0.25 + 0.04 + 0.04))


@pytest.mark.parametrize("rows", REFERENCE["windows"]["noise of a count of weight 1, root mean square over windows"])
@pytest.mark.parametrize("window", [1, 4, 8, 16])
def test_the_noise_of_a_window_is_that_of_the_reference(rows: dict[str, Any], window: int) -> None:
    told = REFERENCE["windows"]
    patterns = MinSeparation(told["separation"], told["max_participations"])
    mechanism = build(rows["mechanism"], told["rounds"], patterns)
    whole = window_norms(mechanism, told["rounds"], window)[window - 1 :]
    assert rows["sigma"] * math.sqrt(np.square(whole).mean()) == pytest.approx(rows[str(window)], rel=2e-4)


def test_the_first_windows_are_prefixes_and_one_of_the_whole_run_is_the_last_prefix() -> None:
    mechanism = build({"kind": "nu", "nu": 0.1}, 12, MinSeparation(4))
    assert window_norms(mechanism, 12, 12) == pytest.approx(mechanism.prefix_row_norms(12))
    assert window_norms(mechanism, 12, 1) == pytest.approx(mechanism.row_norms(12))


@pytest.mark.parametrize("mechanism", [{"kind": "independent"}, {"kind": "nu", "nu": 0.1}, {"kind": "tree"}], ids=str)
@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
def test_in_every_small_world_a_user_moves_the_release_by_no_more_than_the_price(
    mechanism: dict[str, Any], adjacency: Any
) -> None:
    """All contributions of one user on a grid, in all allowed patterns of 4 rounds: mu by least squares, not by C."""
    rounds, weight, norm = 4, 0.5, 0.3
    tables = {
        "run": {"task": "flights", "rounds": rounds, "cohort": 6},
        "participation": {"scheme": "min-separation", "separation": 2},
        "mechanism": mechanism,
        "clipping": {"kind": "flat", "norm": norm},
        "privacy": {"population": "p", "epsilon": 1.0, "delta": 1e-5, "adjacency": adjacency},
    }
    a_plan = plan({"show": {"a": [0, 1], "b": [-2, 4]}, "weight": weight}, **tables)
    cost = cost_of(a_plan)
    covariance = cost.mechanism.noising_matrix(rounds)
    covariance = covariance @ covariance.T
    std = cost.noise_multiplier * a_plan.riders.joint_bound
    angles = np.linspace(0, 2 * np.pi, 8, endpoint=False)
    vectors = [
        norm * radius * np.array([np.cos(t), np.sin(t)]) for radius in (0.0, 1.0) for t in angles[: 8 if radius else 1]
    ]
    values = np.array([[NAN, NAN], [-9.0, 99.0], [0.25, 1.0], [1.0, 4.0], [INF, -INF], [0.0, -2.0]])
    assert a_plan.metrics is not None
    metrics = a_plan.metrics.centred(values) * norm * weight
    single = [np.concatenate([v, m]) for v in vectors for m in metrics]
    if adjacency == "replace_one":
        single = [a - b for a, b in itertools.product(single, repeat=2)]
    most = 0.0
    for pattern in ((0,), (0, 2), (0, 3), (1, 3)):
        moved = np.zeros((rounds, len(single), 4))
        # The worst is where the user sends the same, or the opposite, each time.
        for signs in itertools.product((1, -1), repeat=len(pattern)):
            moved[:] = 0.0
            for place, sign in zip(pattern, signs, strict=True):
                moved[place] = sign * np.stack(single)
            whitened = np.einsum("tsk,tu,usk->s", moved, np.linalg.inv(covariance), moved)
            most = max(most, math.sqrt(float(whitened.max())) / std)
    assert cost.loss.gdp is not None
    assert most <= cost.loss.gdp * (1 + 1e-9)
    assert most >= 0.9 * cost.loss.gdp, "the bound is reached, or nearly"


def test_the_price_of_a_run_is_the_same_and_its_noise_wider() -> None:
    plain, ridden = plan(), plan({"show": {"loss": [0, 4], "correct": [0, 1]}, "weight": 0.1})
    assert cost_of(ridden).noise_multiplier == cost_of(plain).noise_multiplier
    assert cost_of(ridden).loss == cost_of(plain).loss
    assert cost_of(ridden).metrics_noise == pytest.approx(0.009950493836, rel=1e-9)
    assert ("metrics (correct, loss)", "noise + 0.995 %") in cost_of(ridden).describe()
    assert "metrics_noise" not in cost_of(plain).to_json()


def test_values_are_cut_centred_and_zero_where_they_are_no_number() -> None:
    table = MetricsSpec.model_validate({"show": {"b": [0, 1], "a": [-1, 3]}})
    assert table.names == ("a", "b")
    found = table.centred(np.array([[-1.0, 1.0], [3.0, 0.0], [1.0, 0.5], [NAN, 7.0], [1e308, -1e308], [INF, -INF]]))
    assert found.tolist() == [[-1, 1], [1, -1], [0, 0], [0, 1], [1, -1], [0, 0]]


def test_a_plan_is_the_same_after_it_was_stored_and_without_metrics_it_has_its_old_digest() -> None:
    ridden = plan({"show": {"b": [0, 1], "a": [0.5, 3]}})
    assert Plan.stored(json.loads(ridden.to_json())).digest() == ridden.digest()
    assert "metrics" not in json.loads(plan().to_json())


@pytest.mark.parametrize(
    ("metrics", "word"),
    [
        ({"show": {}}, coded("value-wrong", "metrics.show")),
        ({"show": {"a": [1, 1]}}, coded("out-of-range", "metrics.show.a")),
        # Half of the range is no number: every reply would be dropped as not finite.
        ({"show": {"a": [-1e308, 1e308]}}, coded("out-of-range", "metrics.show.a")),
        ({"show": {"a": [0, 5e-324]}}, coded("out-of-range", "metrics.show.a")),
        ({"show": {"a": [0, NAN]}}, coded("value-wrong", "metrics.show.a")),
        ({"show": {"a": [0]}}, coded("value-wrong", "metrics.show.a = [0]", "2")),
        ({"show": {"a": [0, 1, 2]}}, coded("value-wrong", "metrics.show.a = [0, 1, 2]")),
        ({"show": {"a": 5}}, coded("value-wrong", "metrics.show.a = 5", "2")),
        ({"show": {"a.low": [0, 1]}}, coded("value-wrong", "metrics.show.a.low")),
        ({"show": {"a": [0, 1]}, "window": 65}, coded("out-of-range", "metrics.window")),
        ({"show": {"a": [0, 1]}, "weight": 0}, coded("value-wrong", "metrics.weight")),
    ],
    ids=str,
)
def test_what_cannot_ride_is_refused(metrics: dict[str, Any], word: Coded) -> None:
    with pytest.raises(BadInput, check=word):
        plan(metrics)


def test_three_queries_take_no_metric() -> None:
    tables = {
        "participation": {"scheme": "fixed-order", "period": 16},
        "server_optimizer": {"kind": "three-query", "period": 16},
    }
    with pytest.raises(BadInput, check=coded("unsupported", "metrics with server_optimizer.kind")):
        plan({"show": {"a": [0, 1]}}, **tables)
