"""The filter across runs: prices against published figures, and adversaries that choose every run by what they saw."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr

from fieldfare.accounting import PoissonGaussian, PrivacyLoss, sampled
from fieldfare.accounting.composition import Composition, DiscreteLoss
from fieldfare.accounting.filter import Price, Rectangle, gauge, price
from fieldfare.accounting.gaussian import gaussian_delta
from fieldfare.accounting.ranged import range_of
from fieldfare.errors import BadInput
from support.refusals import coded

DELTA = 1e-5
# Rate, multiplier, rounds; then (mu at d = .1 delta, gauge at d = .001, .01, .1, .2, .3, .5 delta). Computed
# independently # by quadrature and by convolution with a grid step of 1e-4; the acceptance table of the filter.
PRICES = [
    (202 / 3243, 2.18, 64, 0.26475, (1.0243, 1.0070, 0.9934, 0.9945, 0.9990, 1.0149)),
    (0.01, 1.0, 1000, 0.46084, (1.9295, 1.8739, 1.8315, 1.8285, 1.8336, 1.8575)),
    (0.001, 0.8, 10000, 0.21437, (0.9950, 0.8568, 0.7884, 0.7827, 0.7836, 0.7939)),
    (1 / 120, 1.2, 2000, 0.38982, (1.5421, 1.5282, 1.5211, 1.5269, 1.5360, 1.5626)),
    (0.05, 0.7, 100, 1.66500, (8.8830, 8.4599, 8.0343, 7.9303, 7.8903, 7.8961)),
    (0.001, 0.6, 1, 0.07259, (0.9030, 0.5298, 0.2423, 0.1812, 0.1514, 0.1203)),
    (2.2861e-5, 0.2, 1, 1.62028, (13.356, 11.107, 7.7748, 6.3849, 5.4329, 4.0270)),
]


def run(rate: float, sigma: float, count: int) -> PrivacyLoss:
    return PrivacyLoss(sampled=(PoissonGaussian(rate, sigma, count),))


@pytest.mark.parametrize(("rate", "sigma", "count", "mu", "gauges"), PRICES)
def test_a_sampled_run_costs_what_was_computed_independently(
    rate: float, sigma: float, count: int, mu: float, gauges: tuple[float, ...]
) -> None:
    loss = run(rate, sigma, count)
    assert math.sqrt(price(loss, 0.1 * DELTA).mu_squared) == pytest.approx(mu, rel=1e-4)
    for share, expected in zip((0.001, 0.01, 0.1, 0.2, 0.3, 0.5), gauges, strict=True):
        leak = share * DELTA
        assert gauge(price(loss, leak).mu_squared, DELTA, leak) == pytest.approx(expected, rel=3e-4)


@pytest.mark.parametrize(
    ("rate", "sigma", "mu"),
    [(2.2861e-5, 0.2, 1.6202835528101), (0.001, 0.6, 0.072585721754612), (0.01, 1.0, 0.081835991990891)],
)
def test_the_price_of_one_round_is_never_below_the_continuous_optimum_and_close_to_it(
    rate: float, sigma: float, mu: float
) -> None:
    """The optimum over the continuous trade-off curve, from 40 digits: a discretised loss dominates, so costs more."""
    got = math.sqrt(price(run(rate, sigma, 1), 1e-6).mu_squared)
    assert mu <= got <= mu * (1 + 2e-5)


@pytest.mark.parametrize(
    ("epsilon", "share", "expected"),
    [
        (1, 0.1, 0.0709501),
        (1, 0, 0.0718514),
        (2, 0.1, 0.248730645841),
        (2, 0, 0.251554096909),
        (4, 0.1, 0.847104),
        (4, 0, 0.855497),
        (8, 0.1, 2.752677),
        (8, 0, 2.775658),
    ],
)
def test_a_rectangle_is_the_largest_that_its_budget_allows(epsilon: float, share: float, expected: float) -> None:
    rectangle = Rectangle.of(epsilon, DELTA, share * DELTA)
    assert rectangle.mu_squared == pytest.approx(expected, rel=1e-6)
    assert rectangle.delta(epsilon) == pytest.approx(DELTA, rel=1e-9)
    assert gauge(rectangle.mu_squared, DELTA, share * DELTA) == pytest.approx(epsilon, rel=1e-9)


def test_gaussian_runs_cost_nothing_extra() -> None:
    assert price(PrivacyLoss(0.25), 1e-6) == Price(0.25, 0.0)
    assert gauge(0.25, DELTA, 0.0) == PrivacyLoss(0.25).epsilon(DELTA)


def test_the_mixture_of_a_gaussian_and_a_sampled_run() -> None:
    total = Price(0.09) + price(run(0.01, 1.0, 1000), 1e-6)
    assert total.mu_squared == pytest.approx(0.3023693, rel=2e-5)
    assert gauge(total.mu_squared, DELTA, 1e-6) == pytest.approx(2.23061, rel=1e-5)
    assert (PrivacyLoss(0.09) + run(0.01, 1.0, 1000)).epsilon(DELTA) == pytest.approx(2.18914, rel=1e-4)  # no filter


def test_without_leak_there_is_no_amplification() -> None:
    assert price(run(0.01, 2.0, 100), 0.0) == Price(25.0, 0.0)
    assert price(run(0.01, 2.0, 100), 1e-13) == Price(25.0, 0.0)  # below the numerical composition's own error


def test_a_price_counts_what_the_numerical_composition_may_be_wrong_by(monkeypatch: pytest.MonkeyPatch) -> None:
    loss, leak = run(0.0617, 2.1, 60), 1e-6
    exact = price(loss, leak)
    orders = sampled.compositions(0.0, loss.sampled)
    assert orders is not None

    def with_slack(slack: float) -> Price:
        for order in orders:  # the very ones that `price` asks for, as they are cached
            monkeypatch.setattr(order, "slack", slack)
        return price(loss, leak)

    # Every vertex may have that much more mass of the first world.
    assert with_slack(leak / 10).mu_squared > exact.mu_squared * (1 + 1e-4)
    assert with_slack(leak) == Price(loss.without_amplification().mu_squared, 0.0)


def test_a_price_falls_as_the_leak_grows() -> None:
    mus = [price(run(0.01, 1.0, 200), leak).mu_squared for leak in (1e-8, 1e-7, 1e-6, 1e-5, 1e-4)]
    assert mus == sorted(mus, reverse=True)


def test_a_zcdp_charge_and_an_impossible_leak_are_refused() -> None:
    with pytest.raises(BadInput, check=coded("unsupported", "a charge of which only rho-zCDP is known")):
        price(PrivacyLoss(concentrated=0.1), 1e-6)
    with pytest.raises(BadInput, check=coded("out-of-range", "leak")):
        Rectangle.of(1.0, 1e-5, 1e-5)


# -- adversaries ------------------------------------------------------------------------------------------------------


Divergence = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def chosen_by_outcome(mu: float, choices: list[Divergence], at: float) -> float:
    """delta(at) of a Gaussian run and then, by its privacy loss, the worst of `choices` (their divergences at all
    e)."""
    grid = np.linspace(-14, 14, 2_000_001)
    density = np.exp(-0.5 * grid**2) / math.sqrt(2 * math.pi)
    losses = mu * mu / 2 + mu * grid  # under the world with the user
    worst = np.max([choice(at - losses) for choice in choices], axis=0)
    return float(np.trapezoid(density * worst, grid))


def gaussian_choice(mu: float) -> Divergence:
    return lambda e: ndtr(mu / 2 - e / mu) - np.exp(np.minimum(e, 700)) * ndtr(-mu / 2 - e / mu)


def leak_choice(d: float) -> Divergence:
    return lambda e: d + (1 - d) * np.maximum(0.0, -np.expm1(np.minimum(e, 700)))


def sampled_choice(rate: float, sigma: float) -> Divergence:
    return lambda e: sampled._deltas_with_user(e, rate, sigma)


def test_choosing_by_outcome_between_gaussian_and_leak_would_double_delta_and_the_rectangle_forbids_it() -> None:
    """The rule "Gaussian of the sum, at delta minus what leaked" admits both second runs."""
    leak = 9.830312e-6
    assert gaussian_delta(math.hypot(0.41662, 0.27925), 2.0) <= DELTA
    assert leak + (1 - leak) * gaussian_delta(0.41662, 2.0) <= DELTA * (1 + 1e-6)
    overspent = chosen_by_outcome(0.41662, [gaussian_choice(0.27925), leak_choice(leak)], 2.0)
    assert overspent == pytest.approx(1.95462e-5, rel=1e-4)
    rectangle = Rectangle.of(2.0, DELTA, 1e-6)
    assert not rectangle.holds(Price(0.41662**2, leak))
    rest = math.sqrt(rectangle.mu_squared - 0.41662**2)
    allowed = chosen_by_outcome(0.41662, [gaussian_choice(rest), leak_choice(1e-6)], 2.0)
    assert allowed <= DELTA


def test_composing_distributions_across_runs_would_overspend_and_the_filter_refuses_the_second_run() -> None:
    second = run(2.2861e-5, 0.2, 1)
    assert (PrivacyLoss(0.41662**2) + second).epsilon(DELTA) <= 2.0  # what composition of distributions would admit
    overspent = chosen_by_outcome(0.41662, [gaussian_choice(0.27925), sampled_choice(2.2861e-5, 0.2)], 2.0)
    assert overspent == pytest.approx(1.9491667e-5, rel=1e-4)
    rectangle = Rectangle.of(2.0, DELTA, DELTA / 10)
    assert gauge(price(second, DELTA / 10).mu_squared, DELTA, DELTA / 10) == pytest.approx(7.7748, rel=1e-4)
    assert not rectangle.holds(Price(0.41662**2) + price(second, DELTA / 10))


STEP = 0.125
REACH = 96
"""Losses and epsilons of the exact adversary are multiples of STEP up to REACH steps."""


def random_pair(generator: np.random.Generator) -> tuple[DiscreteLoss, DiscreteLoss]:
    """A mechanism of which all is known: a mixture of randomised responses that says nothing most of the time.

    In the world with the user it also says outright, with a small probability, that the user is there.
    """
    hidden = 10.0 ** generator.uniform(-6, -3)
    weights = generator.dirichlet(np.ones(3)) * generator.uniform(0.05, 0.4)
    probs = np.zeros(25)
    probs[12] = 1 - weights.sum()
    for weight, loss in zip(weights, generator.integers(1, 13, 3), strict=True):
        towards = 1 / (1 + math.exp(-STEP * loss))
        probs[12 + loss] += weight * towards
        probs[12 - loss] += weight * (1 - towards)
    return DiscreteLoss(STEP, -12, probs * (1 - hidden), hidden), DiscreteLoss(STEP, -12, probs, 0.0)


def best_adversary(
    order: int, family: list[tuple[DiscreteLoss, DiscreteLoss]], admits: Callable[[tuple[int, ...]], bool]
) -> float:
    """delta(1) of the best adaptive choice among `family`, run while `admits(counts of each)`, in one order of
    worlds."""
    epsilons = STEP * np.arange(-REACH, REACH + 1)

    @cache
    def value(counts: tuple[int, ...]) -> bytes:
        best = np.maximum(0.0, -np.expm1(epsilons))  # the divergence of stopping here
        for index, pair in enumerate(family):
            more = tuple(n + (i == index) for i, n in enumerate(counts))
            if not admits(more):
                continue
            after, loss = np.frombuffer(value(more)), pair[order]
            total = np.full(epsilons.size, loss.infinite)
            for k, mass in enumerate(loss.probs):
                if mass > 0:
                    total += mass * after[np.clip(np.arange(epsilons.size) - (loss.lowest + k), 0, epsilons.size - 1)]
            best = np.maximum(best, total)
        return best.tobytes()

    return float(np.frombuffer(value((0,) * len(family)))[REACH + round(1.0 / STEP)])


@pytest.mark.parametrize("seed", range(12))
def test_no_adaptive_choice_among_random_runs_exceeds_delta(seed: int) -> None:
    """The best adversary is computed exactly, by dynamic programming over what it saw: no sampling, no false alarm."""
    generator = np.random.default_rng(seed)
    rate, sigma = float(generator.uniform(0.01, 0.1)), float(generator.uniform(0.8, 2.0))
    family = [random_pair(generator), random_pair(generator), PoissonGaussian(rate, sigma, 1).losses(STEP)]
    delta, leak = 0.05, 0.02
    rectangle = Rectangle.of(1.0, delta, leak)
    prices = []
    for pair in family:
        share = leak / int(generator.integers(1, 4))
        mu = max(sampled._least_mu(Composition([(loss, 1)]), share) for loss in pair)
        prices.append(Price(mu * mu, share))
    assert sum(rectangle.holds(each) for each in prices) >= 1  # else there is nothing to run

    def admits(counts: tuple[int, ...]) -> bool:
        total = Price()
        for count, each in zip(counts, prices, strict=True):
            if count:
                total = total + Price(count * each.mu_squared, count * each.leak)
        return sum(counts) <= 6 and rectangle.holds(total)

    for order in (0, 1):
        assert best_adversary(order, family, admits) <= delta * (1 + 1e-9)


def gaussian_in_parts(mu: float, outer: int, inner: int, leak: float = 0.0) -> tuple[DiscreteLoss, DiscreteLoss]:
    """A Gaussian answer of which five ranges are told apart, cut where their losses are whole steps.

    leak: the probability that the world with the user shows outright that the user is there.
    """

    def mass(side: float, low: float, high: float) -> float:
        return float(ndtr(high + side * mu / 2) - ndtr(low + side * mu / 2))

    def ratio(low: float, high: float, steps: int) -> float:
        return math.log(mass(-1, low, high) / mass(1, low, high)) - STEP * steps

    far = brentq(lambda cut: ratio(cut, 30.0, outer), 0.0, 8.0)
    near = brentq(lambda cut: ratio(cut, far, inner), 0.0, far - 1e-6)
    towards = {outer: mass(-1, far, 30.0), inner: mass(-1, near, far), -inner: mass(1, near, far)}
    towards[-outer] = mass(1, far, 30.0)
    probs = np.zeros(2 * outer + 1)
    for steps, weight in towards.items():
        probs[outer + steps] = weight
    probs[outer] = 1 - probs.sum()
    return DiscreteLoss(STEP, -outer, probs * (1 - leak), leak), DiscreteLoss(STEP, -outer, probs, 0.0)


def coin(steps: int) -> tuple[DiscreteLoss, DiscreteLoss]:
    """What a choice of one of several models tells at most: two outcomes, whose losses are half of its range apart."""
    probs = np.zeros(2 * steps + 1)
    probs[-1] = 1 / (1 + math.exp(-STEP * steps))
    probs[0] = 1 - probs[-1]
    loss = DiscreteLoss(STEP, -steps, probs, 0.0)
    return loss, loss


def test_no_adaptive_choice_among_looks_exceeds_delta() -> None:
    """Means, values above a threshold, the best of some models and sampled runs, in any order that answers suggest."""
    delta, leak, most = 0.05, 0.02, 0.008
    mean, items, sampled_run = 0.35, 0.25, PoissonGaussian(0.1, 1.0, 1).losses(STEP)
    family = [gaussian_in_parts(mean, 5, 2), gaussian_in_parts(items, 4, 2, most), coin(4), sampled_run]
    # The choice is made at the range of the noise that it is charged as.
    chosen = brentq(lambda mu: range_of(mu) - 2 * 4 * STEP, 0.01, 4.0)
    run_mu = max(sampled._least_mu(Composition([(loss, 1)]), 0.002) for loss in sampled_run)
    prices = [Price(mean**2, 0.0), Price(items**2, most), Price(chosen**2, 0.0), Price(run_mu**2, 0.002)]
    rectangle = Rectangle.of(1.0, delta, leak)

    def admits(counts: tuple[int, ...]) -> bool:
        total = Price(
            sum(n * each.mu_squared for n, each in zip(counts, prices, strict=True)),
            sum(n * each.leak for n, each in zip(counts, prices, strict=True)),
        )
        return not any(counts) or (sum(counts) <= 6 and rectangle.holds(total))

    assert all(admits(tuple(int(place == one) for place in range(4))) for one in range(4))
    assert not admits((0, 3, 0, 0)), "the leak ends it"
    found = [best_adversary(order, family, admits) for order in (0, 1)]
    assert max(found) <= delta
    assert max(found) > 0.4 * delta, "the claim is not idle"
