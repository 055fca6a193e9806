"""Likelihood ratios of secret patterns, against the sum over all of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fieldfare import mechanisms
from fieldfare.accounting.likelihood import public_log_ratios, secret_log_ratios, share
from fieldfare.mechanisms import Mechanism
from fieldfare.participation import (
    BallsInBins,
    BMinSep,
    CyclicPoisson,
    Participation,
    Poisson,
    RandomAllocation,
    Single,
    TruncatedPoisson,
)

ROUNDS = 7


def made(kind: str, **fields: object) -> Mechanism:
    return mechanisms.build({"kind": kind, **fields}, rounds=ROUNDS, participation=Single())


def coins(rate: float, rounds: list[int]) -> dict[tuple[int, ...], float]:
    """Independent coins in these rounds."""
    return {
        taken: rate ** len(taken) * (1 - rate) ** (len(rounds) - len(taken))
        for size in range(len(rounds) + 1)
        for taken in itertools.combinations(rounds, size)
    }


def law(participation: Participation) -> dict[tuple[int, ...], float]:
    """The chance of every pattern, from the words of the sampler's docstring."""
    total: dict[tuple[int, ...], float] = {}

    def add(pattern: tuple[int, ...], chance: float) -> None:
        total[pattern] = total.get(pattern, 0.0) + chance

    match participation:
        case Poisson(rate) | TruncatedPoisson(rate):
            return coins(rate, list(range(ROUNDS)))
        case CyclicPoisson(groups, rate):
            for group in range(groups):
                for pattern, chance in coins(rate, list(range(group, ROUNDS, groups))).items():
                    add(pattern, chance / groups)
        case BallsInBins(bins):
            for own in range(bins):
                add(tuple(range(own, ROUNDS, bins)), 1 / bins)
        case RandomAllocation(bins):
            blocks = -(-ROUNDS // bins)
            for own in itertools.product(range(bins), repeat=blocks):
                drawn = (block * bins + place for block, place in enumerate(own))
                add(tuple(t for t in drawn if t < ROUNDS), bins**-blocks)
        case BMinSep(separation, rate):
            first = 1 / (1 + (separation - 1) * rate)

            def walk(t: int, pattern: tuple[int, ...], chance: float) -> None:
                if t >= ROUNDS:
                    return add(pattern, chance)
                walk(t + separation, (*pattern, t), chance * rate)
                walk(t + 1, pattern, chance * (1 - rate))
                return None

            for start in range(separation):
                walk(start, (), first * (1 if start == 0 else rate))
    return total


CASES = {
    "poisson": (made("independent"), Poisson(0.3)),
    "truncated": (made("independent"), TruncatedPoisson(0.2, 50, 100)),
    "cyclic": (made("banded", bands=2), CyclicPoisson(2, 0.4)),
    "bins": (made("nu"), BallsInBins(3)),
    "bins of a tree": (made("tree", estimator="plain"), BallsInBins(3)),
    "allocation": (made("independent"), RandomAllocation(3)),
    "allocation, banded": (made("banded", bands=4), RandomAllocation(3)),
    "b-min-sep": (made("banded", bands=2), BMinSep(2, 0.4)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_mean_over_patterns_is_the_sum_over_all_of_them(name: str) -> None:
    mechanism, participation = CASES[name]
    patterns, rng = law(participation), np.random.default_rng(5)
    assert sum(patterns.values()) == pytest.approx(1.0)
    released, shifts = rng.normal(0.3, 1.0, (ROUNDS, 40)), np.linspace(0.5, 0.9, ROUNDS)
    b = mechanism.noising_matrix(ROUNDS)
    inverse = np.linalg.inv(b @ b.T)
    ratios = np.zeros(40)
    for pattern, chance in patterns.items():
        moved = np.zeros(ROUNDS)
        moved[list(pattern)] = shifts[list(pattern)]
        ratios += chance * np.exp(moved @ inverse @ released - moved @ inverse @ moved / 2)
    np.testing.assert_allclose(secret_log_ratios(mechanism, participation, shifts, released), np.log(ratios), atol=1e-9)
    marginal = [sum(chance for pattern, chance in patterns.items() if t in pattern) for t in range(ROUNDS)]
    np.testing.assert_allclose(marginal, share(participation), rtol=1e-12)


@pytest.mark.parametrize("kind", ["nu", "tree"])
def test_the_ratio_of_a_known_pattern_is_that_of_two_gaussians(kind: str) -> None:
    from scipy import stats

    rng, b = np.random.default_rng(2), made(kind).noising_matrix(ROUNDS)
    shifts, released = rng.random((ROUNDS, 3)), rng.normal(size=(ROUNDS, 3))
    for at, ratio in enumerate(public_log_ratios(b, shifts, released)):
        with_user, without = (stats.multivariate_normal(mean, b @ b.T) for mean in (shifts[:, at], np.zeros(ROUNDS)))
        expected = with_user.logpdf(released[:, at]) - without.logpdf(released[:, at])
        assert ratio == pytest.approx(expected, abs=1e-9)


def test_what_is_not_drawn_has_no_share() -> None:
    assert share(Single()) is None
