"""Sealed trials: every score order of small worlds stays below the bound, and the bound is that of plain quadrature."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm, poisson

from fieldfare.accounting.foreign import Foreign
from fieldfare.accounting.sealed import curve, law, least_mu, mu_of_curve
from fieldfare.errors import BadInput
from support.refusals import coded

MU = 0.2680511232  # epsilon 1 at delta 1e-5
SEALED = json.loads((Path(__file__).parents[2] / "reference" / "questions.json").read_text())["sealed"]
LEAK = 2e-24  # a quarter of what a population of delta 1e-5 has by default


def gaussian(mu: float, e: float) -> float:
    return float(norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu))


def worlds(mu: float, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """A trial of so many outcomes: which cell of equal chance, between the worlds, N(b mu, 1) falls into."""
    cuts = np.concatenate([[-np.inf], mu / 2 + norm.ppf(np.arange(1, cells) / cells), [np.inf]])
    return np.diff(norm.cdf(cuts)), np.diff(norm.cdf(cuts - mu))


def best_of(chances: np.ndarray, outcomes: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    """The law of the best of K trials, the last of `order` being the best outcome: differences of f(F)."""
    ranks = np.concatenate([[0.0], np.cumsum(outcomes[list(order)])])
    power = sum(chance * ranks**k for k, chance in enumerate(chances, start=1))
    found = np.empty(len(order))
    found[list(order)] = np.diff(power)
    return found


def least_mu_of(a: np.ndarray, b: np.ndarray) -> float:
    """The least mu of a finite pair, by the corners of its trade-off."""
    order = np.argsort(-a / b)
    p, q = np.cumsum(a[order])[:-1], np.cumsum(b[order])[:-1]
    return float(np.max(norm.ppf(p) - norm.ppf(q)))


@pytest.mark.parametrize(("trials", "mu"), [(2, 0.268), (3, 1.0), (8, 0.268), (8, 1.0)])
def test_every_order_of_six_outcomes_is_below_the_bound_and_its_price(trials: int, mu: float) -> None:
    chances, epsilons = law(trials), np.linspace(0, 3, 13) * mu
    bound, price, worst = curve(mu, chances, epsilons), least_mu(mu, trials, LEAK), 0.0
    zero, one = worlds(mu, 6)
    for order in itertools.permutations(range(6)):
        pair = best_of(chances, zero, order), best_of(chances, one, order)
        for a, b in (pair, pair[::-1]):
            spent = np.maximum(a - np.exp(epsilons)[:, None] * b, 0).sum(axis=1)
            assert (spent <= bound).all(), order
            worst = max(worst, least_mu_of(a, b))
    assert mu < worst < price < mu * math.sqrt(trials)
    # The bound is not idle: it allows at most twice the mu of the worst of these worlds.
    assert price < 2 * worst


def plain(mu: float, chances: np.ndarray, e: float) -> float:
    """Compute the bound again, by numerical integration, sharing no code with the product."""

    def f(x: float) -> float:
        return sum(k * p * x ** (k - 1) for k, p in enumerate(chances.tolist(), start=1))

    def quotient(u: float) -> float:
        return f(u) / f(float(norm.cdf(norm.ppf(u) - mu)))

    # It rises to one summit and falls: its largest value so far is itself, then the summit.
    places = np.linspace(0.01, 0.9999, 2000)
    values = [quotient(u) for u in places]
    summit, largest = places[int(np.argmax(values))], max(values)

    def inside(u: float) -> float:
        ratio = quotient(u) if u < summit else largest
        return f(u) * max(0.0, 1 - math.exp(e - mu * mu / 2 - mu * norm.ppf(u)) / ratio)

    first = quad(inside, 0, 0.99, limit=200)[0] + quad(inside, 0.99, 1, limit=200)[0]
    return min(first, sum(p * gaussian(mu * math.sqrt(k), e) for k, p in enumerate(chances.tolist(), start=1)))


@pytest.mark.parametrize("e", [0.0, 0.1, 0.4, 0.8])
def test_the_bound_is_that_of_quadrature_and_never_below_it(e: float) -> None:
    chances = law(3)
    exact = plain(MU, chances, e)
    (bound,) = curve(MU, chances, np.array([e]))
    assert exact <= bound * (1 + 1e-7)
    assert bound == pytest.approx(exact, rel=0.01)


def chances_of(row: dict[str, Any]) -> np.ndarray:
    """p_1, p_2, ... of a law of the reference, as far as they count."""
    k = np.arange(1, math.ceil(15 / row["gamma"]))
    weights = (1 - row["gamma"]) ** k / (k if row["law"] == "logarithmic" else 1)
    return np.asarray(weights / weights.sum())


@pytest.mark.parametrize("row", SEALED["rows"], ids=lambda row: f"{row['law']}, {row['expected']}")
def test_laws_of_the_reference(row: dict[str, Any]) -> None:
    """The bounds of `reference/questions.py` are of the scores alone; the product has the third one as well."""
    chances, mu = chances_of(row), SEALED["mu"]
    end = row["epsilon"]
    at_zero, at_seen, at_end = curve(mu, chances, np.array([0.0, row["seen"], end]))
    assert at_end <= SEALED["delta"] * 1.03  # the ends of cells round the ratio up
    assert at_seen >= SEALED["delta"]  # what the likelihood ratio as a score tells is never less than it is charged
    assert at_zero <= row["total variation"] * 1.01
    # The bound by Renyi divergences, which others have, is above ours at each of these means.
    assert row["papernot and steinke"] > end
    prices = {"price at leak 1e-6": mu, "price of epsilon .5 at leak 1e-6": SEALED["mu of epsilon .5"]}
    for name in prices.keys() & row.keys():
        epsilons = np.concatenate([[0.0], np.geomspace(0.02 * prices[name] / mu, 9 * prices[name], 16)])
        above = np.maximum(0.0, curve(prices[name], chances, epsilons) - 1e-6) / (1 - 1e-6)
        assert prices[name] < mu_of_curve(epsilons, above) <= row[name] * 1.002


@pytest.mark.parametrize("row", SEALED["poisson"], ids=lambda row: str(row["expected"]))
def test_a_law_that_may_make_no_trial_is_bounded_by_the_reference(row: dict[str, Any]) -> None:
    chances = poisson.pmf(np.arange(1, 40 + 3 * row["expected"]), row["expected"])
    # The second bound. With this law, which nobody is offered, that by Renyi divergences is below it.
    (at_end,) = curve(SEALED["mu"], chances, np.array([row["epsilon"]]))
    assert at_end <= SEALED["delta"] * 1.06  # the ends of cells round the ratio up, by its mean of trials


@pytest.mark.parametrize("case", SEALED["logarithmic, 10"], ids=lambda case: str(case["epsilon"]))
def test_a_bound_is_above_what_scores_tell_and_no_more_than_the_first(case: dict[str, Any]) -> None:
    (row,) = (each for each in SEALED["rows"] if (each["law"], each["expected"]) == ("logarithmic", 10))
    (bound,) = curve(SEALED["mu"], chances_of(row), np.array([case["epsilon"]]))
    assert max(case["score is the loss"], case["score sees a quarter"]) < bound <= case["first bound"] * 1.02
    if case["epsilon"] >= 1:  # there the first is the least of the three
        assert bound == pytest.approx(case["first bound"], rel=0.02)


@pytest.mark.parametrize(("mu", "trials", "price"), [(0.268, 2, 0.3168), (0.268, 8, 0.4719), (1.0, 16, 1.975)])
def test_prices_of_sealed_trials(mu: float, trials: int, price: float) -> None:
    assert least_mu(mu, trials, LEAK) == pytest.approx(price, rel=2e-3)
    # A true curve is convex in x = exp(e), so no larger than any chord of its bound: the least are below the price.
    x = np.exp(np.linspace(0, 4 * mu, 240))
    bound = curve(mu, law(trials), np.log(x))
    for at in range(1, 239, 7):
        i, j = np.meshgrid(np.arange(at + 1), np.arange(at, 240))
        chords = bound[i] + (bound[j] - bound[i]) * (x[at] - x[i]) / np.where(i == j, 1.0, x[j] - x[i])
        allowed = gaussian(least_mu(mu, trials, LEAK), math.log(x[at]))
        assert chords.min() <= allowed * (1 + 1e-3) + 1e-12


@pytest.mark.parametrize("mu", [0.0, 1e-9, 1e-4, 30.0, 37.0, 60.0, 150.0, 500.0])
@pytest.mark.parametrize("trials", [2, 8])
def test_a_price_is_between_that_of_one_trial_and_of_all(mu: float, trials: int) -> None:
    """Where exp(epsilon) is beyond floats, mu 500 cost nothing; and mu 1e-9 cost 2e-4."""
    with np.errstate(all="raise", under="ignore"):
        assert mu <= least_mu(mu, trials, LEAK) <= mu * math.sqrt(trials) * (1 + 1e-14)


def test_without_a_leak_sealed_trials_are_refused_and_what_pays_for_all_is_named() -> None:
    with pytest.raises(BadInput, check=coded("unsupported", "3 sealed trials")) as refused:
        Foreign(mu=0.2, trials=3).price("zero_out", 0.0)
    named = float(refused.value.nearest.split()[1])
    assert 0.2 * math.sqrt(3) <= named < 0.2 * math.sqrt(3) * (1 + 1e-5)


def test_a_charge_of_sealed_trials_has_that_price_and_a_leak_that_any_population_has() -> None:
    price = Foreign(mu=0.268, trials=8).price("zero_out", 4 * LEAK)
    assert (price.mu, price.leak) == (pytest.approx(least_mu(0.268, 8, LEAK)), LEAK)
    with pytest.raises(BadInput):
        Foreign.of({"trials": 8})
    with pytest.raises(BadInput):
        Foreign.of({"mu": 0.2, "trials": 65})
