"""Strategies for balls in bins are chosen for the amplified charge, and only where a plan leaves a choice."""

from __future__ import annotations

import numpy as np
import pytest

from fieldfare.accounting import balls_in_bins, certification, sampled_optimum
from fieldfare.accounting.sampled_optimum import choose, family
from fieldfare.cost import Cost
from fieldfare.costing import cost_as_priced, cost_of
from fieldfare.errors import BudgetRefused
from fieldfare.mechanisms import build, parse
from fieldfare.mechanisms.nu import strategy_coefficients
from fieldfare.participation import BallsInBins
from fieldfare.plan import Plan
from support.refusals import coded

ROUNDS, BINS = 16, BallsInBins(4)


def noise(kind: dict[str, object], cache: dict[str, bytes]) -> float:
    """Estimated noise in a prefix sum at epsilon 1."""
    mechanism = build(kind, ROUNDS, BINS, cache)
    sigma = certification.estimate_noise(balls_in_bins.law_of(mechanism, BINS.bins), 1.0, 1e-4, 1 << 15)
    return sigma * float(np.sqrt(np.mean(mechanism.prefix_row_norms() ** 2)))


def test_the_family_holds_nu() -> None:
    assert np.allclose(family(0.8, 0.5, 9), strategy_coefficients(0.2, 9))


@pytest.mark.parametrize("kind", [{"kind": "nu"}, {"kind": "banded", "bands": 3}, {"kind": "blt"}])
def test_the_choice_needs_less_noise_than_the_one_without_sampling(kind: dict[str, object]) -> None:
    cache: dict[str, bytes] = {}
    choose(parse(kind), ROUNDS, BINS, 1.0, 1e-4, cache)
    assert len(cache) == 1
    assert noise(kind, cache) < noise(kind, {}) * 0.999


@pytest.mark.parametrize(
    "kind",
    [
        {"kind": "nu", "nu": 0.1},
        {"kind": "nu", "restart_every": 4},
        {"kind": "blt", "objective": "max"},
        {"kind": "independent"},
        {"kind": "banded", "bands": 3, "column_normalised": True},
    ],
)
def test_what_a_plan_states_is_left_alone(kind: dict[str, object]) -> None:
    cache: dict[str, bytes] = {}
    choose(parse(kind), ROUNDS, BINS, 1.0, 1e-4, cache)
    assert cache == {}


def test_what_was_decided_once_is_not_decided_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = {"nu": np.array([0.3]).tobytes()}
    monkeypatch.setattr(sampled_optimum._Objective, "best_rate", lambda self: pytest.fail("searched again"))
    choose(parse({"kind": "nu"}), ROUNDS, BINS, 1.0, 1e-4, cache)
    assert np.frombuffer(cache["nu"]) == 0.3


def plan(**privacy: object) -> Plan:
    return Plan.parse(
        {
            "privacy": {"population": "people", "delta": 1e-4, "adjacency": "add_remove", **privacy},
            "run": {"rounds": 8, "cohort": 5},
            "participation": {"scheme": "balls-in-bins", "bins": 4},
            "mechanism": {"kind": "nu"},
        }
    )


def test_a_run_keeps_what_was_chosen_and_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certification, "SAMPLES", (1 << 16, 1 << 15))
    cache: dict[str, bytes] = {}
    first = cost_of(plan(epsilon=1.0), cache)
    assert "nu" in cache
    monkeypatch.setattr(certification, "certify", lambda *args, **more: pytest.fail("certified again"))
    second: Cost = cost_as_priced(plan(epsilon=1.0), cache, first.stored_price)
    assert (second.loss, second.noise_multiplier) == (first.loss, first.noise_multiplier)
    assert np.allclose(second.mechanism.strategy_matrix(8), first.mechanism.strategy_matrix(8))


def test_certificates_that_never_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is another attempt, with another seed and half the failure probability."""
    monkeypatch.setattr(certification, "SAMPLES", (1 << 14, 1 << 14))
    drawn: list[int] = []

    def draw() -> tuple[bytes, int]:
        drawn.append(len(drawn) + 1)
        return bytes([len(drawn)] * 16), len(drawn)

    # Noise for a larger epsilon than the plan's.
    monkeypatch.setattr(certification, "least_noise", lambda *args, **more: 1.0)
    with pytest.raises(BudgetRefused, check=coded("budget-refused", "epsilon")):
        cost_of(plan(epsilon=1.0), draw=draw)
    assert drawn == [1, 2, 3, 4, 5, 6]
