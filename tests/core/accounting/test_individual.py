"""Odometers: the specification's vectors, an exact oracle, and how they are rounded."""

from __future__ import annotations

import copy
import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fieldfare.accounting import gaussian_epsilon
from fieldfare.accounting.individual import UNIT, from_units, units_up
from fieldfare.cost import Cost
from fieldfare.costing import cost_of
from fieldfare.errors import BadInput
from fieldfare.plan import Plan
from support.refusals import coded

NU = {"kind": "nu", "nu": 0.1}

# spec/budgets.md section 2.5: T = 8, sigma 3, coefficients of nu .1, exact in 40 digits, in units of 2^-44.
COHORTS = ((0, 1), (2, 3), (4, 0), (1, 2), (3, 5), (0, 4), (1, 2), (3, 0))
NU_ODOMETERS = (16501936307155, 11236892469045, 11810307061347, 10196402300476, 6646122819601, 2632304328559)
BLT_ODOMETERS = (18200321616005, 12250640324546, 12656617351371, 11023932107240, 6923991471055, 2607990759214)
NU_INCREMENTS = [2784208032499, 4808191118241, 4807602240446, 4101934915969]
NU_SQUARED = {
    (0,): 1.42437513048247,
    (3,): 1.37884779859924,
    (0, 3): 3.59916101610114,
    (1, 4): 3.52098906913036,
    (0, 3, 5): 6.27483760308149,
    (0, 2, 4, 6): 9.66122287422028,
    (1, 3, 5, 7): 8.80870578381738,
}


def cost(mechanism: dict[str, Any], rounds: int, sigma: float, participation: dict[str, Any], **privacy: Any) -> Cost:
    table = {
        "privacy": {"population": "p", "noise_multiplier": sigma, "delta": 1e-5, **privacy},
        "run": {"task": "t", "rounds": rounds, "cohort": 1},
        "participation": participation,
        "mechanism": mechanism,
    }
    return cost_of(Plan.parse(table))


def apart(separation: int) -> dict[str, Any]:
    return {"scheme": "min-separation", "separation": separation}


def odometers(of: Cost, cohorts: Any, users: int) -> tuple[list[int], dict[int, list[int]]]:
    charge, total, steps = of.realised(), np.zeros(users, np.int64), {u: list[int]() for u in range(users)}
    for round, cohort in enumerate(cohorts):
        chosen = np.asarray(cohort, np.int64)
        for user, units in zip(cohort, of.increments(charge.growth(round, chosen)).tolist(), strict=True):
            steps[user].append(units)
            total[user] += units
        charge.add(round, chosen)
    return total.tolist(), steps


def with_coefs(coefs: Any) -> Cost:
    """A cost over 8 rounds whose C has exactly these coefficients: those of a plan are rounded to what streams use."""
    of = cost(NU, 8, 3.0, apart(2))
    mechanism = copy.copy(of.mechanism)
    object.__setattr__(mechanism, "strategy_coefs", np.asarray(coefs))
    return replace(of, mechanism=mechanism)


NU_COEFS = [1, 0.45, 0.30375, 0.2278125, 0.17940234375, 0.1453158984375, 0.119885616210937, 0.100190122119141]
BLT_COEFS = [1.0, *(0.3 * 0.9 ** (t - 1) + 0.1 * 0.5 ** (t - 1) for t in range(1, 8))]


def test_the_vectors_of_the_specification() -> None:
    total, steps = odometers(with_coefs(NU_COEFS), COHORTS, 6)
    # Each increment carries a bound on float64's round-off, of a few hundredths of a unit, and is rounded up. The last
    # coefficients are known to 15 digits, which is less than a unit.
    assert steps[0] == pytest.approx(NU_INCREMENTS, abs=1)
    assert total == pytest.approx(NU_ODOMETERS, abs=2)
    above = np.array(odometers(with_coefs(BLT_COEFS), COHORTS, 6)[0]) - BLT_ODOMETERS
    assert (above >= 0).all()
    assert (above <= 1).all()


def test_whole_horizon_norms_are_those_of_the_specification() -> None:
    of = with_coefs(NU_COEFS)
    for pattern, squared in NU_SQUARED.items():
        total, _ = odometers(of, [[0] if t in pattern else [] for t in range(8)], 1)
        assert total[0] * UNIT * 9 == pytest.approx(squared, rel=1e-11)


def test_ten_disjoint_runs_cost_a_user_one_run() -> None:
    # Finding "too dear": the worst case of all runs against each user's own.
    assert gaussian_epsilon(math.sqrt(10 * 0.09), 1e-5) == pytest.approx(4.11863534404, rel=1e-11)
    assert gaussian_epsilon(0.3, 1e-5) == pytest.approx(1.13177489664, rel=1e-11)


def exact(coefs: np.ndarray, pattern: tuple[int, ...], rounds: int) -> Fraction:
    """sum over pairs of |<C_i, C_j>|, all rows, of the float64 coefficients, without rounding."""
    c = [Fraction(float(value)) for value in coefs]
    total = Fraction(0)
    for i, j in itertools.product(pattern, repeat=2):
        start = max(i, j)
        total += abs(sum((c[v - i] * c[v - j] for v in range(start, rounds)), Fraction(0)))
    return total


@pytest.mark.parametrize(
    "mechanism", [NU, {"kind": "anti-pgd"}, {"kind": "independent"}, {"kind": "blt"}, {"kind": "banded", "bands": 3}]
)
def test_no_odometer_is_below_the_exact_loss(mechanism: dict[str, Any]) -> None:
    """Random families of runs; the oracle shares no code with the charge. At most a unit a participation above."""
    generator = np.random.default_rng(7)
    for _ in range(4):
        rounds = int(generator.integers(4, 10))
        sigma = float(generator.uniform(0.3, 20))
        of = cost(mechanism, rounds, sigma, apart(int(generator.integers(1, 3))))
        separation = of.participation.separation_and_count(rounds)[0]
        cohorts: list[list[int]] = []
        last = dict.fromkeys(range(4), -rounds)
        for round in range(rounds):
            chosen = [u for u in range(4) if round - last[u] >= separation and generator.random() < 0.6]
            last |= dict.fromkeys(chosen, round)
            cohorts.append(chosen)
        total, steps = odometers(of, cohorts, 4)
        matrix = of.mechanism.strategy_matrix(rounds)
        for user in range(4):
            pattern = tuple(t for t, cohort in enumerate(cohorts) if user in cohort)
            right = exact(matrix[:, 0], pattern, rounds) / Fraction(sigma) ** 2 / Fraction(UNIT)
            above = Fraction(total[user]) - right
            assert above >= 0
            assert above <= len(steps[user]) * (1 + float(right) * 1e-13)


@pytest.mark.parametrize("mechanism", [NU, {"kind": "tree"}, {"kind": "momentum-tree"}, {"kind": "dense"}])
@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
def test_no_pattern_costs_more_than_the_run_is_pledged(mechanism: dict[str, Any], adjacency: str) -> None:
    of = cost(mechanism, 7, 2.0, apart(2), adjacency=adjacency)
    dearest = 0
    for pattern in of.participation.patterns(7):
        total, _ = odometers(of, [[0] if t in pattern else [] for t in range(7)], 1)
        dearest = max(dearest, total[0])
    assert dearest <= of.most_units()
    assert dearest >= of.loss.mu_squared / UNIT * (1 - 1e-9)  # and the pledge is no larger than it must be
    assert of.tight_units()[-1] <= of.most_units()


def test_the_factor_of_replace_one_is_charged() -> None:
    once = [[0]] + [[]] * 7
    (zero,), _ = odometers(cost(NU, 8, 3.0, apart(2)), once, 1)
    (replaced,), _ = odometers(cost(NU, 8, 3.0, apart(2), adjacency="replace_one"), once, 1)
    assert replaced == pytest.approx(4 * zero, abs=4)


def test_a_run_calibrated_to_an_epsilon_leaves_room_for_the_units() -> None:
    for rounds, participation in ((8, apart(2)), (40, apart(1)), (5, {"scheme": "single"})):
        table: dict[str, Any] = {
            "privacy": {"population": "p", "epsilon": 2.0, "delta": 1e-5},
            "run": {"task": "t", "rounds": rounds, "cohort": 1},
            "participation": participation,
            "mechanism": NU,
        }
        of = cost_of(Plan.parse(table))
        mu = math.sqrt(from_units(of.most_units()))
        assert gaussian_epsilon(mu, 1e-5) <= 2.0
        assert gaussian_epsilon(mu, 1e-5) == pytest.approx(2.0, rel=1e-8)


def test_units_are_rounded_up_and_come_back_rounded_up() -> None:
    values = np.array([0.0, UNIT, UNIT * 1.0000001, 0.25, 1e-30])
    assert units_up(values).tolist() == [0, 1, 2, 2**42, 1]
    for units in (1, 2**44, 2**53 + 1, 2**61 + 3):
        assert Fraction(from_units(units)) >= Fraction(units) * Fraction(UNIT)
    for bad in (-1.0, math.nan, math.inf, 1e9):
        with pytest.raises(BadInput, check=coded("out-of-range", "for one user")):
            units_up(np.array([bad]))
