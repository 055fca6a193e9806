"""The gate of every build: a real session, resumed midway, adds the noise that it charges, whatever the plan says.

A covering design over mechanism kinds, roundings, clippings, numbers of queries and adjacencies: not the full product,
but every kind, and every pair of the other settings that a plan may have. Then builds that are broken on purpose.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import torch

from fieldfare.clipping import AdaptiveQuantile
from fieldfare.costing import cost_of
from fieldfare.errors import LedgerError
from fieldfare.mechanisms.registry import kinds
from fieldfare.plan import Plan
from fieldfare.privatise import Grid, Privatiser
from fieldfare_server.evidence.known_sums import release_known_sums
from fieldfare_server.evidence.residual_test import Residual, whitened_residual
from fieldfare_server.run.round.noise_state import NoiseState
from fieldfare_server.run.round.rounds import Rounds
from fieldfare_server.run.round.running_noise import RunningNoise
from support.refusals import coded

Table = dict[str, Any]
ROUNDS, NUMBERS = 9, 2**17

FIELDS: dict[str, Table] = {
    "tree": {"estimator": "plain"},
    "nu": {"nu": 0.1},
    "spectral": {"eigenvalues": [0.5, 0.1], "learning_rate": 0.5},
    "momentum-tree": {"momentum": 0.9},
    "banded": {"bands": 3},
    "banded-inverse": {"bands": 3},
    "blt": {"buffers": 2},
    "anti-pgd": {"nu": 0.0},
}
CLIPPINGS: dict[str, Table] = {
    "flat": {"norm": 0.3},
    "automatic": {},
    "normalised": {"norm": 0.5},
    "per-layer": {"norm": 3.0, "weighting": "size"},
    "adaptive-quantile": {"norm": 0.3, "count_weight": 1.0, "rescale": True},
}
CASES = [
    # mechanism, rounding, clipping, queries, adjacency
    ("independent", "grid", "adaptive-quantile", 1, "zero_out"),
    ("independent", "discrete", "flat", 1, "replace_one"),
    ("independent", "none", "flat", 1, "add_remove"),
    ("independent", "grid", "per-layer", 1, "add_remove"),
    ("tree", "discrete", "adaptive-quantile", 1, "zero_out"),
    ("tree", "discrete", "automatic", 1, "replace_one"),
    ("tree", "grid", "normalised", 3, "replace_one"),
    ("nu", "grid", "flat", 1, "zero_out"),
    ("nu", "none", "adaptive-quantile", 1, "add_remove"),
    ("optimal-cc", "grid", "automatic", 1, "add_remove"),
    ("anti-pgd", "discrete", "normalised", 3, "zero_out"),
    ("anti-pgd", "discrete", "per-layer", 3, "replace_one"),
    ("banded", "none", "normalised", 1, "add_remove"),
    ("banded", "grid", "adaptive-quantile", 1, "replace_one"),
    ("banded-inverse", "none", "per-layer", 3, "zero_out"),
    ("blt", "none", "automatic", 1, "replace_one"),
    ("blt", "grid", "adaptive-quantile", 1, "add_remove"),
    ("decaying", "grid", "flat", 1, "zero_out"),
    ("decaying", "none", "normalised", 1, "replace_one"),
    ("dense", "grid", "flat", 3, "replace_one"),
    ("fft", "none", "adaptive-quantile", 1, "replace_one"),
    ("momentum-tree", "none", "flat", 3, "zero_out"),
    ("momentum-tree", "grid", "per-layer", 3, "zero_out"),
    ("spectral", "none", "automatic", 1, "zero_out"),
    ("spectral", "grid", "normalised", 1, "zero_out"),
]
# What no plan may have: queries need a fixed order, which add_remove forbids, and one norm, and lengths that add up;
# discrete noise is not for plans that sampling amplifies, and add_remove samples.
FORBIDDEN = {
    frozenset(pair)
    for pair in ((3, "add_remove"), (3, "automatic"), (3, "adaptive-quantile"), ("discrete", "add_remove"))
}


def plan(mechanism: str, rounding: str, clipping: str, queries: int, adjacency: str) -> Plan:
    participation: Table = {"scheme": "min-separation", "separation": 4}
    optimizer: Table = {"kind": "sgd"}
    if adjacency == "add_remove":
        participation = {"scheme": "poisson", "rate": 0.25}
    if queries == 3:
        participation = {"scheme": "fixed-order", "period": 3}
        optimizer = {"kind": "three-query", "period": 3}
    privacy = {"population": "people", "noise_multiplier": 2.0, "delta": 1e-5}
    return Plan.parse(
        {
            "privacy": {**privacy, "rounding": rounding, "adjacency": adjacency},
            "run": {"task": "flights", "rounds": ROUNDS, "cohort": 6},
            "participation": participation,
            "mechanism": {"kind": mechanism, **FIELDS.get(mechanism, {})},
            "clipping": {"kind": clipping, **CLIPPINGS[clipping]},
            "server_optimizer": optimizer,
        }
    )


def residual_of(*case: Any, metrics: Table | None = None) -> Residual:
    decided: dict[str, bytes] = {}
    wanted = plan(*case).model_dump(mode="json", exclude_none=True) | ({} if metrics is None else {"metrics": metrics})
    assert Plan.parse(wanted).privacy.rounding == case[1]
    cost = cost_of(Plan.parse(wanted), decided)
    releases = release_known_sums(cost, decided, cost.noise_multiplier, ROUNDS, NUMBERS)
    return whitened_residual(cost.mechanism, cost.participation, releases)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_the_noise_of_a_session_is_what_it_charges(case: tuple[Any, ...]) -> None:
    result = residual_of(*case)
    assert result.passed, result
    assert result.rounds == ROUNDS
    assert result.resolution < 0.02


def test_the_cases_cover_every_pair() -> None:
    assert {case[0] for case in CASES} == set(kinds())
    settings = [{case[i] for case in CASES} for i in range(1, 5)]
    for i, j in itertools.combinations(range(4), 2):
        seen = {frozenset((case[i + 1], case[j + 1])) for case in CASES}
        wanted = {frozenset(pair) for pair in itertools.product(settings[i], settings[j])} - FORBIDDEN
        assert wanted <= seen, wanted - seen


@pytest.mark.parametrize(
    "case",
    [("nu", "grid", "flat", 1, "zero_out"), ("blt", "none", "adaptive-quantile", 1, "add_remove")],
    ids=lambda case: "-".join(map(str, case)),
)
def test_the_noise_of_a_session_with_metrics_is_what_it_charges(case: tuple[Any, ...]) -> None:
    """Two metrics of weight 1: without them in the bound, .5774 of the noise beside flat clipping."""
    ridden = {"show": {"loss": [0, 4], "correct": [0, 1]}, "weight": 1.0}
    result = residual_of(*case, metrics=ridden)
    assert result.passed, result


# -- builds that are broken on purpose ---------------------------------------------------------------------------------

PLAIN = ("nu", "grid", "flat", 1, "zero_out")


@pytest.mark.parametrize("rounding", ["grid", "none", "discrete"])
def test_half_the_standard_deviation_is_seen(rounding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Privatiser.of

    def halved(*arguments: Any, **named: Any) -> Privatiser:
        made = whole(*arguments, **named)
        return dataclasses.replace(made, std=made.std / 2, cells=made.cells // 2)

    monkeypatch.setattr(Privatiser, "of", halved)
    result = residual_of("independent", rounding, "flat", 1, "zero_out")
    assert result.scale == pytest.approx(0.5, rel=0.02)
    assert "times what was claimed" in result.message


def test_the_bound_of_an_update_in_the_place_of_the_joint_bound_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A count weight of 1 leaves .7075 of the noise."""
    monkeypatch.setattr(AdaptiveQuantile, "joint_bound", property(lambda spec: spec.bound))
    result = residual_of("nu", "grid", "adaptive-quantile", 1, "zero_out")
    assert result.scale == pytest.approx(0.5**0.5, rel=0.02)
    assert not result.passed


def test_noise_rows_used_twice_after_a_resume_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session refuses a stream that stands at another row; without that check, whitening sees it."""
    monkeypatch.setattr(NoiseState, "restore", lambda *_: None)
    with pytest.raises(LedgerError, check=coded("out-of-turn", "round")):
        residual_of("independent", "grid", "flat", 1, "zero_out")
    monkeypatch.setattr(Rounds, "_require_noise_row", lambda *_: None)
    result = residual_of("independent", "grid", "flat", 1, "zero_out")
    assert "rounds are correlated" in result.message


def test_a_stream_of_another_matrix_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    other = cost_of(plan("independent", "grid", "flat", 1, "zero_out")).mechanism
    right = Privatiser.stream
    monkeypatch.setattr(Privatiser, "stream", lambda privatiser, _, *rest: right(privatiser, other, *rest))
    result = residual_of(*PLAIN)
    assert not result.passed
    assert result.rows_z > result.limit


def test_numbers_off_the_grid_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def float_noise(grid: Grid, total: torch.Tensor, noise: torch.Tensor, std: float) -> torch.Tensor:
        return total.add_(noise, alpha=std)

    monkeypatch.setattr(Grid, "add_noise_", float_noise)
    assert "not on the grid" in residual_of(*PLAIN).message


def test_a_sum_that_reaches_the_optimizer_without_noise_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = RunningNoise.privatise

    def both(noise: RunningNoise, total: torch.Tensor) -> torch.Tensor:
        raw = total.clone()
        right(noise, total)
        return raw

    monkeypatch.setattr(RunningNoise, "privatise", both)
    assert not residual_of(*PLAIN).passed
    monkeypatch.setattr(RunningNoise, "privatise", right)
    monkeypatch.setattr("fieldfare_server.run.round.rounds.unstack_queries", lambda noised, shares: noised * 0.9)
    assert "something else than the noised sum" in residual_of(*PLAIN).message


def test_cut_tails_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than 2e-4 of the values move, and the scale by less than the test resolves."""
    right = Grid.add_noise_

    def cut(grid: Grid, total: torch.Tensor, noise: torch.Tensor, std: float) -> torch.Tensor:
        return right(grid, total, noise.clamp(-3.8, 3.8), std)

    monkeypatch.setattr(Grid, "add_noise_", cut)
    result = residual_of("independent", "grid", "flat", 1, "zero_out")
    assert "not Gaussian" in result.message
    assert np.isclose(result.scale, 1.0, rtol=0.01)
