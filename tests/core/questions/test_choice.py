"""The exponential mechanism: what it costs, over every small world, and that its draws have its law exactly."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2, norm

from fieldfare.accounting.gaussian import gaussian_delta
from fieldfare.accounting.ranged import range_of
from fieldfare.noise import SecureNoise
from fieldfare.noise.choice import _Bits, _exp, exponential_choice
from fieldfare.nonces import NONCE_BYTES
from fieldfare.questions import Values, parse
from fieldfare.questions.choice import Choose

REFERENCE = json.loads((Path(__file__).parents[2] / "reference" / "questions.json").read_text())
NAMES = ["a", "b", "c"]


def law(scores: Sequence[float], eta: float) -> np.ndarray:
    weights = np.exp(eta * (np.asarray(scores) - max(scores)))
    return np.asarray(weights / weights.sum())


def hockey_stick(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())


def test_the_range_is_that_of_the_reference() -> None:
    for each in REFERENCE["choice"]:
        assert range_of(each["mu"]) == pytest.approx(each["range"], rel=1e-8)
        # Half of what pure differential privacy of the same epsilon costs, for small ones.
        assert each["mu of pure DP"] == pytest.approx(-2 * norm.ppf(1 / (1 + math.exp(each["range"]))), abs=1e-9)


def test_the_range_is_never_above_the_formula() -> None:
    for mu in [1e-6, 1e-3, 0.1, 1.0, 5.0, 10.9, 20.0, 1e9]:
        exact = 2 * (norm.logcdf(min(mu, 30) / 2) - norm.logcdf(-min(mu, 30) / 2))
        assert 0 < range_of(mu) <= exact
        assert range_of(mu) >= 0.99999 * exact or mu > 11


def test_no_coin_of_that_range_is_more_than_the_gaussian() -> None:
    """The search of the proof, done by numbers: all t, and all epsilon of each coin."""
    for mu in (0.05, 0.6, 2.5):
        r = range_of(mu)
        for t in np.linspace(0, r, 401)[1:-1]:
            q = (1 - math.exp(t - r)) / (math.exp(t) - math.exp(t - r))
            p = q * math.exp(t)
            assert norm.ppf(p) - norm.ppf(q) <= mu * (1 + 1e-12)
            for epsilon in np.linspace(-r, r, 21):
                found = hockey_stick(np.array([p, 1 - p]), np.array([q, 1 - q]), epsilon)
                below = 1 - math.exp(epsilon) + math.exp(epsilon) * gaussian_delta(mu, -epsilon) if epsilon < 0 else 0.0
                assert found <= (below or gaussian_delta(mu, epsilon)) + 1e-12


@pytest.mark.parametrize("measure", ["correct", "loss"])
@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
def test_in_every_small_world_a_choice_costs_no_more_than_its_noise(adjacency: str, measure: str) -> None:
    """Three users, three models, all corners and the middle; the exact law against the Gaussian that is charged."""
    question = parse({"kind": "choose", "models": NAMES, "measure": measure, "shows": "best"})
    assert isinstance(question, Choose)
    assert question.box is not None
    own = [[float(v) for v in row] for row in itertools.product((0, 1), repeat=3)] + [[math.nan] * 3, [0.5, 0.2, 0.9]]
    each = question.contributions(Values(np.array(own), np.arange(len(own)), len(own)))
    assert np.abs(each).max() <= question.box * (1 + 1e-15)
    factor, sigma = (2 if adjacency == "replace_one" else 1), 1.4
    eta, mu = question.eta(sigma, 2 * question.box), factor / sigma
    others = [np.zeros(3)] if adjacency == "zero_out" else list(each)
    worst = 0.0
    for rest in itertools.combinations_with_replacement(each, 2):
        for mine, instead in itertools.product(each, others):
            base = rest[0] + rest[1]
            one, other = law((base + mine).tolist(), eta), law((base + instead).tolist(), eta)
            for epsilon in (0.0, 0.1, 0.3, 0.7, 1.2):
                for a, b in ((one, other), (other, one)):
                    found = hockey_stick(a, b, epsilon)
                    assert found <= gaussian_delta(mu, epsilon) + 1e-12
                    worst = max(worst, found / gaussian_delta(mu, epsilon))
    assert worst > 0.5  # the charge is not idle


def source(nonce: int = 0) -> SecureNoise:
    return SecureNoise(b"k" * 32).with_nonces([bytes([nonce]) * NONCE_BYTES], lambda row: 0)


def test_draws_have_the_law_exactly() -> None:
    scores, rate = [1000003, 1000001, 999990, 1000003, 990000], Fraction(0.31)
    n = 6000
    counts = np.zeros(5)
    for nonce in range(n):
        noise = SecureNoise(nonce.to_bytes(32, "big")).with_nonces([b"n" * NONCE_BYTES], lambda row: 0)
        counts[exponential_choice(scores, rate, noise, row=0)] += 1
    expected = n * law(scores, float(rate))
    assert counts[4] == 0
    statistic = float(((counts - expected)[:4] ** 2 / expected[:4]).sum())
    assert statistic < chi2.ppf(1 - 1e-6, 3)


def test_a_coin_of_e_to_the_minus_x_is_that_coin() -> None:
    bits = _Bits(SecureNoise(b"c" * 32), 0)
    for x in (Fraction(0), Fraction(1, 3), Fraction(1), Fraction(7, 3)):
        n = 4000
        kept = sum(_exp(x, bits) for _ in range(n))
        p = math.exp(-x)
        assert abs(kept - n * p) <= 5 * math.sqrt(n * p * (1 - p)) + 1e-9


def test_a_number_below_a_bound_is_uniform() -> None:
    bits = _Bits(SecureNoise(b"u" * 32), 0)
    assert {bits.below(3) for _ in range(100)} == {0, 1, 2}
    assert bits.below(1) == 0
    big = 3 * 2**200 + 1
    drawn = [bits.below(big) for _ in range(200)]
    assert max(drawn) < big
    assert max(drawn) > big * 0.9


def test_the_nonce_decides_the_choice() -> None:
    scores, rate = [0] * 16, Fraction(1)
    drawn = [exponential_choice(scores, rate, source(nonce), row=0) for nonce in range(20)]
    assert drawn == [exponential_choice(scores, rate, source(nonce), row=0) for nonce in range(20)]
    assert len(set(drawn)) > 5
