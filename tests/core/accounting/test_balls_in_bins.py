"""Balls in bins: the certified curve is never below the truth and hardly above it, in both orders, for any strategy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fieldfare import mechanisms
from fieldfare.accounting import PrivacyLoss, certification, gaussian_delta
from fieldfare.accounting.balls_in_bins import gram, law_of
from fieldfare.accounting.certification import certify, estimate_noise, least_noise, points_for
from fieldfare.accounting.certified import Certified
from fieldfare.accounting.filter import Price, price
from fieldfare.accounting.importance import Pair, upper_bound
from fieldfare.errors import BadInput, BudgetRefused
from fieldfare.mechanisms.triangular import TriangularMechanism
from fieldfare.participation import BallsInBins
from fieldfare.population_size import beyond_noise
from oracles.balls_in_bins import integrated, sampled
from support.refusals import coded

SEED = bytes(range(16))
FEW = (1 << 17, 1 << 17)


def toeplitz(coefs: Sequence[float]) -> TriangularMechanism:
    n = len(coefs)
    c = np.zeros((n, n))
    for t in range(n):
        c[t:, t] = coefs[: n - t]
    return TriangularMechanism("dense", c)


def nu(value: float, rounds: int = 4) -> list[float]:
    c = [1.0]
    for t in range(1, rounds):
        c.append(c[-1] * (1 - value) * (t - 0.5) / t)
    return c


# spec/amplification.md, 6.1: sigma 2, T = 4, b = 2; (removing, adding) at epsilon 1 and 2.
EXACT = {
    "independent": ([1, 0, 0, 0], (1.0546986535e-2, 8.4040391586e-3), (6.7543635885e-5, 1.5192286751e-5)),
    "two bands": ([1, 0.5, 0, 0], (3.8172241831e-2, 3.7818249818e-2), (1.1658478585e-3, 1.1073587538e-3)),
    "geometric": ([1, 0.5, 0.25, 0.125], (6.0461839334e-2, 5.9837792823e-2), (3.7333721681e-3, 3.5365273671e-3)),
    "nu = 0": (nu(0.0), (7.9625718408e-2, 7.8573946330e-2), (7.3068327649e-3, 6.8358093957e-3)),
    "nu = .1": (nu(0.1), (6.3822013139e-2, 6.3015184262e-2), (4.2845833539e-3, 4.0098047991e-3)),
}


def certified(coefs: Sequence[float], sigma: float, epsilons: tuple[float, ...], bins: int = 2) -> Certified:
    return certify(law_of(toeplitz(coefs), bins), sigma, (0.0, *epsilons), target=epsilons[0], seed=SEED, samples=FEW)


@pytest.mark.parametrize("name", EXACT)
def test_published_integrals_lie_below_the_certified_bound_and_close_to_it(name: str) -> None:
    coefs, at_one, at_two = EXACT[name]
    curve = certified(coefs, 2.0, (1.0, 2.0))
    for (epsilon, delta), exact in zip(curve.points[1:], (at_one, at_two), strict=True):
        assert max(exact) < delta < max(exact) * 1.1 + 3e-6, epsilon


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("add", [False, True])
def test_each_order_is_estimated_without_bias(name: str, add: bool) -> None:
    """Five standard errors: a false alarm in 20 such tests has probability 1e-5."""
    coefs, *at = EXACT[name]
    pair = Pair(law_of(toeplitz(coefs), 2).at(2.0), 1.0, 2.0)
    draws = pair.draw(SEED, 7, 1 << 17, add)
    for epsilon, exact in zip((1.0, 2.0), at, strict=True):
        x = draws.values(epsilon)
        assert x.max() <= pair.bound(epsilon, add)
        assert abs(x.mean() - exact[add]) <= 5 * x.std() / math.sqrt(x.size)


@pytest.mark.parametrize("rounds", [2, 3, 4])
@pytest.mark.parametrize("epsilon", [0.0, 0.7])
def test_integrals_of_any_small_strategy(rounds: int, epsilon: float) -> None:
    c = np.tril(np.random.default_rng(rounds).uniform(-1, 1, (rounds, rounds))) + 1.5 * np.eye(rounds)
    exact = integrated(c, 2, 1.5, epsilon)
    law = law_of(TriangularMechanism("dense", c), 2)
    points = (0.0, 0.7)
    curve = certify(law, 1.5, points, target=0.7, seed=SEED, samples=FEW)
    delta = dict(curve.points)[epsilon]
    assert max(exact) < delta < max(exact) * 1.04


def test_negative_entries_are_charged_by_their_size() -> None:
    """spec/amplification.md, 2.2: the updates (1, -1) reach this, and C in the place of |C| says .0587."""
    law = law_of(TriangularMechanism("dense", [[1.0, 0.0], [-0.5, 1.0]]), 2)
    curve = certify(law, 1.0, (0.0, 1.0), target=1.0, seed=SEED, samples=FEW)
    assert 0.101877 < curve.points[1][1] < 0.106


def test_one_bin_is_the_gaussian_mechanism() -> None:
    mechanism = toeplitz(nu(0.1, 6))
    mu = math.sqrt(gram(mechanism, 1)[0, 0]) / 3.0
    curve = certify(law_of(mechanism, 1), 3.0, (0.0, 0.5, 1.0), target=1.0, seed=SEED, samples=FEW)
    assert curve.mu == pytest.approx(mu)
    for epsilon, delta in curve.points:
        assert gaussian_delta(mu, epsilon) < delta < gaussian_delta(mu, epsilon) * 1.05


def test_a_last_block_that_is_short_leaves_its_users_out() -> None:
    products = gram(toeplitz([1.0, 0.0, 0.0, 0.0, 0.0]), 3)
    assert np.array_equal(products, np.diag([2.0, 2.0, 1.0]))


def test_the_kernel_is_that_of_the_whole_matrix_also_where_the_matrix_is_not_made() -> None:
    mechanism = mechanisms.build({"kind": "nu", "nu": 0.1, "engine": "memory"}, 2100, BallsInBins(7))
    c = np.abs(mechanism.strategy_matrix(2100))
    modes = np.stack([c[:, j::7].sum(axis=1) for j in range(7)])
    assert np.allclose(gram(mechanism, 7), modes @ modes.T, rtol=1e-12)


def test_a_larger_strategy_never_costs_less() -> None:
    small, large = (certified([1, a, a / 2, a / 4], 2.0, (1.0,)) for a in (0.3, 0.5))
    assert all(a < b for (_, a), (_, b) in zip(small.points, large.points, strict=True))


def test_a_tall_strategy_must_draw_its_rows_after_their_rounds() -> None:
    tree = mechanisms.build({"kind": "tree", "estimator": "plain"}, 8, BallsInBins(2))
    c = tree.strategy_matrix(8)
    modes = np.stack([np.abs(c)[:, j::2].sum(axis=1) for j in range(2)])
    assert np.allclose(gram(tree, 2), modes @ modes.T)
    early = toeplitz([1.0, 0.5])
    early.birth = lambda row: 0  # type: ignore[method-assign]
    with pytest.raises(BadInput, check=coded("unsupported", "scheme 'balls-in-bins' with kind")):
        gram(early, 2)


@pytest.mark.parametrize("bins", [0, 5, 300])
def test_bins_out_of_range_are_refused(bins: int) -> None:
    with pytest.raises(BadInput, check=coded("out-of-range", "participation.bins")):
        gram(toeplitz(nu(0.1)), bins)


@pytest.mark.parametrize(("kind", "bins"), [("nu", 16), ("banded", 16), ("blt", 5)])
def test_plain_samples_in_all_rows_never_lie_above(kind: str, bins: int) -> None:
    """Other code, another generator, other samples; five standard errors: false alarm 1e-6."""
    table = {"kind": kind, **({"nu": 0.25} if kind == "nu" else {"bands": 4} if kind == "banded" else {})}
    mechanism = mechanisms.build(table, 64, BallsInBins(bins))
    sigma = 0.8 * math.sqrt(gram(mechanism, bins).diagonal().max())
    found = sampled(mechanism.strategy_matrix(64), bins, sigma, 0.5, np.random.default_rng(3), 200_000)
    curve = certify(law_of(mechanism, bins), sigma, (0.0, 0.5), target=0.5, seed=SEED, samples=FEW)
    assert all(mean - 5 * error < curve.points[1][1] for mean, error in found)
    assert curve.points[1][1] < max(mean + 5 * error for mean, error in found) * 1.05


def test_the_price_of_one_of_sixteen_agrees_with_the_published_accountant() -> None:
    """PLD_accounting 2.0 (the authors of 2502.08202): 1 of 16 rounds once, noise 1.29005, delta 1e-5 is epsilon in
    [.9807, 1.0172]. Four blocks of independent noise at twice the noise are the same pair.
    """
    law = law_of(mechanisms.build({"kind": "independent"}, 64, BallsInBins(16)), 16)
    assert estimate_noise(law, 0.9807, 1e-5, 1 << 16) > 2 * 1.29005 * 0.985
    assert estimate_noise(law, 1.0172, 1e-5, 1 << 16) < 2 * 1.29005 * 1.015


# -- the bound --------------------------------------------------------------------------------------------------------


def test_the_bound_covers_the_mean() -> None:
    """At beta = .1: fewer than 165 misses of 1 000 but for probability 1e-9 (binomial)."""
    rng, misses, widths = np.random.default_rng(1), 0, []
    for _ in range(1000):
        values = np.where(rng.random(400) < 0.01, rng.random(400), 0.0)
        bound = upper_bound(values, 1.0, 1.0, math.log(10))
        misses += bound < 0.005
        widths.append(bound)
    assert misses < 165
    assert 0.005 < np.mean(widths) < 0.02


@pytest.mark.parametrize("wrong", [-1e-3, 2.5])
def test_a_sample_out_of_range_voids_the_bound(wrong: float) -> None:
    with pytest.raises(ArithmeticError, match="range"):
        upper_bound(np.array([0.5, wrong]), 2.0, 0.5, 10.0)


def test_no_samples_above_zero_still_cost_something() -> None:
    bound = upper_bound(np.zeros(1000), 1.0, 1.0, 20.0)
    assert bound == pytest.approx(math.expm1(20 / 1000), rel=1e-6)


def test_the_failure_probability_is_part_of_every_delta_and_halves_with_each_attempt() -> None:
    law = law_of(toeplitz(nu(0.1)), 2)
    first, second = (
        certify(law, 2.0, (0.0, 30.0), target=1.0, seed=SEED, attempt=i, samples=(2000, 2000)) for i in (1, 2)
    )
    assert (first.failure, second.failure) == (5e-10, 2.5e-10)
    assert first.points[1][1] >= first.failure
    # Less may fail, so at the same samples the bound is larger.
    assert second.points[0][1] > first.points[0][1]


def test_the_stake_is_from_samples_of_its_own_and_the_failure_is_shared_by_all_points(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bet that saw what it bets on proves nothing; and each of 2 orders x n points may fail by its share alone."""
    streams: list[int] = []
    odds: set[float] = set()

    class Watched(Pair):
        def draw(self, seed: bytes, stream: int, count: int, add: bool) -> Any:
            streams.append(stream)
            return super().draw(seed, stream, count, add)

    def watched(values: Any, most: float, stake: float, log_odds: float) -> float:
        odds.add(log_odds)
        return upper_bound(values, most, stake, log_odds)

    monkeypatch.setattr(certification, "Pair", Watched)
    monkeypatch.setattr(certification, "upper_bound", watched)
    made = certified(nu(0.1), 2.0, (1.0, 2.0))
    assert len(streams) == len(set(streams)) == 4, "two orders, each with samples and a pilot of its own"
    assert odds == {math.log(2 * 3 / made.failure)}


def test_samples_depend_on_the_seed_and_their_place_alone() -> None:
    pair = Pair(law_of(toeplitz(nu(0.1)), 2), 1.0)
    few, many = (pair.draw(SEED, 0, count, add=False) for count in (20_000, 50_000))
    assert np.array_equal(few.log_ratio, many.log_ratio[:20_000])
    assert not np.array_equal(few.log_ratio, pair.draw(SEED, 1, 20_000, add=False).log_ratio)
    assert not np.array_equal(few.log_ratio, pair.draw(bytes(16), 0, 20_000, add=False).log_ratio)


def test_the_search_finds_noise_whose_certificate_fits() -> None:
    law = law_of(toeplitz(nu(0.2, 8)), 4)
    sigma = least_noise(law, 1.0, 1e-4, samples=FEW)
    curve = certify(law, sigma, points_for(law, sigma, 1.0, 1e-4), target=1.0, seed=SEED, samples=FEW)
    assert 0.95 < curve.curve(1e-4) <= 1.0
    estimate = estimate_noise(law, 1.0, 1e-4)
    assert estimate < sigma < 1.05 * estimate
    with pytest.raises(BudgetRefused, check=coded("budget-refused", "delta")):
        least_noise(law, 1.0, 1e-10)


# -- the curve --------------------------------------------------------------------------------------------------------


def gaussian_curve(mu: float, last: float = 6.0) -> Certified:
    points = tuple((e, gaussian_delta(mu, e) + 1e-12) for e in np.linspace(0, last, 200).tolist())
    return Certified(mu, points, 1e-12, "0" * 32, 1, (1, 1))


@pytest.mark.parametrize(("mu", "beyond"), [(1.0, False), (8.0, False), (10.0, True)])
def test_a_certified_run_of_people_goes_beyond_the_noise_where_its_gaussians_do(mu: float, beyond: bool) -> None:
    """Who takes part is drawn, and so may be what takes part most: then the releases are the Gaussian ones."""
    for loss in (PrivacyLoss(mu**2), PrivacyLoss(certified=(gaussian_curve(mu),))):
        assert beyond_noise(loss, 1e-6, "aes-256-ctr", "grid") == beyond


def test_the_price_of_a_gaussian_curve_is_about_its_mu() -> None:
    curve = gaussian_curve(1.0)
    for leak in (1e-6, 1e-4):
        assert 0.95 < curve.least_mu(leak) < 1.01


@pytest.mark.parametrize("leak", [1e-6, 1e-5, 1e-3])
def test_the_price_dominates_the_curve_everywhere(leak: float) -> None:
    curve = certified(nu(0.1), 2.0, (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0))
    mu = curve.least_mu(leak)
    if curve.points[-1][1] > leak:
        assert mu == math.inf
        return
    for epsilon in np.linspace(0, 8, 400):
        below = np.interp(math.exp(epsilon), np.exp([e for e, _ in curve.points]), [d for _, d in curve.points])
        # The envelope may lie below the points; it is what is priced.
        assert curve.delta(epsilon) <= min(below * (1 + 1e-9), leak + (1 - leak) * gaussian_delta(mu, epsilon) + 1e-15)
    # At this much noise sampling earns next to nothing, and then the Gaussian without it is the price.
    expected = Price(pytest.approx(mu * mu), leak) if mu < curve.mu else Price(curve.mu**2, 0.0)
    assert price(PrivacyLoss(certified=(curve,)), leak) == expected


def test_a_certified_loss_composes_as_what_it_is_without_sampling() -> None:
    curve = certified(nu(0.1), 2.0, (1.0, 2.0, 4.0))
    loss = PrivacyLoss(certified=(curve,))
    assert loss.amplified
    assert not loss.gaussian
    assert loss.without_amplification() == PrivacyLoss(curve.mu**2)
    assert loss.epsilon(1e-2) < loss.without_amplification().epsilon(1e-2)
    assert loss.delta(1.0) == pytest.approx(curve.points[1][1])
    both = loss + PrivacyLoss(0.5)
    assert both.epsilon(1e-2) == PrivacyLoss(curve.mu**2 + 0.5).epsilon(1e-2)
    assert price(both, 1e-3) == Price(curve.mu**2 + 0.5, 0.0)
    assert PrivacyLoss.from_json(both.to_json()) == both


def test_the_resolution_of_floats_is_charged() -> None:
    curve = gaussian_curve(1.0)
    assert curve.with_resolution(0.0) is curve
    for r in (1e-6, 1e-3, 1e-2):
        wider = curve.with_resolution(r)
        # The Gaussian's own answer is mu + r: the general one must not be less.
        for epsilon in (0.0, 0.5, 1.0, 3.0):
            assert wider.delta(epsilon) >= gaussian_delta(1.0 + r, epsilon) * (1 - 1e-9)
        assert wider.by_points(1e-4) < curve.by_points(1e-4) + 11 * r


@pytest.mark.parametrize(
    "points",
    [
        ((0.1, 0.5), (1.0, 0.1)),
        ((0.0, 0.5),),
        ((0.0, 0.5), (0.0, 0.1)),
        ((0.0, 0.5), (1.0, 1e-11)),
        ((0.0, 1.5), (1.0, 0.1)),
        ((0.0, 0.5), (400.0, 0.1)),
    ],
)
def test_points_that_make_no_curve_are_refused(points: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(BadInput, check=coded("out-of-range", "points of a certified curve")):
        Certified(1.0, points, 1e-9, "0" * 32, 1, (1, 1))


@pytest.mark.parametrize(
    "change",
    [{"seed": "0" * 31}, {"attempt": 0}, {"failure": 0}, {"mu": True}, {"samples": [1]}, {"points": [[0, "1"]]}],
)
def test_a_torn_curve_is_refused(change: dict[str, object]) -> None:
    table = {**gaussian_curve(1.0).to_json(), **change}
    with pytest.raises((ValueError, TypeError)):
        Certified.from_json(table)
    with pytest.raises(BadInput):
        PrivacyLoss.from_json(
            PrivacyLoss(certified=(gaussian_curve(1.0),)).to_json().replace('"attempt":1', '"attempt":true')
        )
