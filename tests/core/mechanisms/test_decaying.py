"""Noise that falls over the run: charged round by round, and never by amplification by iteration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from fieldfare.costing import cost_of
from fieldfare.mechanisms import build
from fieldfare.mechanisms.decaying import Decaying, levels
from fieldfare.noise import SecureNoise
from fieldfare.participation import FixedOrder, MinSeparation, Participation, Single
from fieldfare.plan import Plan


def test_levels_fall_from_one_to_the_last() -> None:
    assert levels(5, 0.5, "linear", 1).tolist() == [1.0, 0.875, 0.75, 0.625, 0.5]
    assert levels(5, 0.0625, "geometric", 1).tolist() == [1.0, 0.5, 0.25, 0.125, 0.0625]
    assert levels(5, 0.5, "linear", 2).tolist() == [1.0, 1.0, 0.75, 0.75, 0.5]
    assert levels(1, 0.5, "linear", 1).tolist() == [1.0]
    assert levels(4, 1.0, "geometric", 3).tolist() == [1.0] * 4


def test_the_published_number() -> None:
    """Multipliers s_t = 2 - t / 63 for 64 rounds, at most 4 times and 16 rounds apart: mu^2 = 2.3978671134."""
    mechanism = build({"kind": "decaying", "final": 0.5}, 64)
    repeated = float(mechanism.sensitivity(MinSeparation(16, 4))) ** 2 / 4
    assert repeated == pytest.approx(2.3978671134, rel=1e-6)
    assert float(mechanism.sensitivity(Single())) ** 2 / 4 == pytest.approx(1.0, rel=1e-6)


def allowed(participation: Participation, rounds: int, most: int) -> list[tuple[int, ...]]:
    subsets = itertools.chain.from_iterable(itertools.combinations(range(rounds), size) for size in range(1, most + 1))
    apart = participation.separation_and_count(rounds)[0]
    fixed = isinstance(participation, FixedOrder)
    return [
        pattern
        for pattern in subsets
        if all(b - a >= apart and not (fixed and (b - a) % apart) for a, b in itertools.pairwise(pattern))
    ]


@pytest.mark.parametrize("seed", range(60))
def test_the_sensitivity_is_that_of_the_worst_pattern(seed: int) -> None:
    random = np.random.default_rng(seed)
    rounds, apart, most = int(random.integers(1, 11)), int(random.integers(1, 5)), int(random.integers(1, 4))
    mechanism = Decaying(random.uniform(0.1, 1, rounds))
    for participation in (MinSeparation(apart, most), FixedOrder(apart, most)):
        for released in {rounds, max(1, rounds // 2)}:
            patterns = [pattern for pattern in allowed(participation, rounds, most) if pattern[-1] < released]
            worst = mechanism.pattern_norms(patterns, released).max()
            assert float(mechanism.sensitivity(participation, released)) == pytest.approx(worst, rel=1e-12)


def test_a_falling_schedule_is_dominated_where_users_take_part_once() -> None:
    """At equal epsilon no round has less noise than with constant noise: any gain would mean a fault in the charge."""
    table = {
        "privacy": {"population": "p", "epsilon": 2.0, "delta": 1e-6},
        "run": {"task": "digits", "rounds": 40, "cohort": 10},
        "participation": {"scheme": "single"},
    }
    constant, falling = (cost_of(Plan.parse({**table, "mechanism": {"kind": k}})) for k in ("independent", "decaying"))
    least = falling.noise_multiplier * falling.mechanism.row_norms().min()
    assert least == pytest.approx(constant.noise_multiplier, rel=1e-9)


@pytest.mark.parametrize("scheme", ["poisson", "fixed-order"])
def test_its_charge_is_its_epsilon(scheme: str) -> None:
    sampled = scheme == "poisson"
    plan = Plan.parse(
        {
            "privacy": {
                **{"population": "p", "epsilon": 2.0, "delta": 1e-6},
                "adjacency": "add_remove" if sampled else "zero_out",
            },
            "run": {"task": "digits", "rounds": 40, "cohort": 10},
            "participation": {"scheme": scheme, **({"rate": 0.1} if sampled else {"period": 10})},
            "mechanism": {"kind": "decaying", "hold": 10, "final": 0.25},
        }
    )
    cost = cost_of(plan)
    assert cost.epsilon == pytest.approx(2.0, rel=1e-4)
    if sampled:
        # Every round is charged as the round of least noise.
        (event,) = cost.loss.sampled
        assert event.noise_multiplier == pytest.approx(0.25 * cost.noise_multiplier, rel=1e-6)
    else:
        mu = sum((cost.noise_multiplier * g) ** -2 for g in (1, 0.75, 0.5, 0.25))
        assert cost.loss.mu_squared == pytest.approx(mu, rel=1e-6)


def test_the_stream_has_the_noise_that_is_charged() -> None:
    """Variance of 40 000 normals in each of three rounds; false alarm below 1e-6 in all."""
    mechanism = build({"kind": "decaying", "final": 0.25}, 3)
    stream, size = mechanism.stream(40_000, SecureNoise(b"k" * 32)), 40_000
    for level in (1.0, 0.625, 0.25):
        squares = float((stream.next() / level).double().square().sum())
        assert stats.chi2.ppf(1e-7, size) < squares < stats.chi2.isf(1e-7, size)
