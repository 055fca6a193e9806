"""b-min-sep, and random allocation of banded noise: every mean is that of all patterns, every bound above the truth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri

from fieldfare import mechanisms
from fieldfare.accounting import PoissonGaussian, PrivacyLoss, balls_in_bins, certification, charge_for, sampled_optimum
from fieldfare.accounting.certification import certify, law_of
from fieldfare.accounting.chained import Chain, of_matrix
from fieldfare.accounting.importance import Pair, Tilt
from fieldfare.cost import Cost
from fieldfare.costing import cost_as_priced, cost_of
from fieldfare.errors import BadInput
from fieldfare.factorization.toeplitz import matrix
from fieldfare.mechanisms.base import Mechanism
from fieldfare.mechanisms.triangular import TriangularMechanism
from fieldfare.participation import BallsInBins, BMinSep, Participation, Poisson, RandomAllocation
from fieldfare.plan import Plan
from oracles import patterns
from oracles.patterns import Laws, Matrix, centres, integrated, sampled
from support.refusals import Coded, coded

SEED = bytes(range(16))
FEW = (1 << 16, 1 << 16)


def banded(bands: int, rounds: int, seed: int = 0) -> Matrix:
    """Any lower-triangular strategy of so many bands, some of its entries negative."""
    c = np.random.default_rng(seed).uniform(-0.5, 1, (rounds, rounds)) + np.eye(rounds)
    return np.asarray(np.tril(c) - np.tril(c, -bands))


def every_pattern(participation: Participation, rounds: int) -> Laws:
    if isinstance(participation, BMinSep):
        return patterns.min_sep(rounds, participation.separation, participation.rate)
    assert isinstance(participation, RandomAllocation)
    return patterns.allocation(rounds, participation.bins)


CASES = [
    (BMinSep(3, 0.4), 8, 3),
    (BMinSep(3, 0.4), 7, 2),
    (BMinSep(2, 1.0), 6, 2),
    (BMinSep(1, 0.3), 6, 1),
    (BMinSep(4, 0.7), 3, 3),
    (RandomAllocation(2), 6, 3),
    (RandomAllocation(3), 8, 4),
    (RandomAllocation(3), 9, 2),
    (RandomAllocation(5), 4, 4),
    (RandomAllocation(1), 4, 2),
]
EVERY = pytest.mark.parametrize(("participation", "rounds", "bands"), CASES, ids=str)


def of(participation: Participation, rounds: int, bands: int) -> tuple[Chain, Matrix, Matrix, Matrix]:
    """The law at noise 1.3, with the probabilities and means of all its patterns, and their inner products."""
    c = np.abs(banded(bands, rounds))
    weight, means = centres(c, every_pattern(participation, rounds), 1.3)
    assert weight.sum() == pytest.approx(1)
    return of_matrix(c, participation).at(1.3), weight, means, means @ means.T


@EVERY
def test_the_programs_are_sums_over_all_patterns(participation: Participation, rounds: int, bands: int) -> None:
    law, weight, means, products = of(participation, rounds, bands)
    g, mean = np.diag(products), weight @ means
    assert law.mean == pytest.approx(weight @ g)
    assert law.along_mean == pytest.approx(mean @ mean)
    assert law.largest == pytest.approx(g.max())
    for a, s in ((1.7, 0.0), (1.0, 0.8), (3.0, -0.2)):
        tilted = weight @ np.exp(a * (a - 1) / 2 * g + s * (means @ mean))
        assert law.log_z(a, s) == pytest.approx(math.log(tilted), rel=1e-11)
    # y itself, in the order in which the law takes its normals.
    uniforms = np.random.default_rng(1).random((50, law.coins))
    normals = ndtri(uniforms[:, law.turns :])
    u = law.draw(uniforms[:, : law.turns], normals, [Tilt(0.0, 0.3, np.arange(50))])
    y = normals + 0.3 * mean
    assert law.along(u) == pytest.approx(y @ mean)
    for a in (1.0, 2.2):
        expected = np.log(np.exp(a * (y @ means.T - g / 2)) @ weight)
        assert law.log_power(u, a) == pytest.approx(expected, rel=1e-10)


@EVERY
@pytest.mark.parametrize(("a", "s"), [(1.0, 0.0), (1.9, 0.0), (1.0, 1.1)])
def test_patterns_are_drawn_by_their_tilted_weights(
    participation: Participation, rounds: int, bands: int, a: float, s: float
) -> None:
    """chi^2 is below its mean + 6.5 sqrt(2 x mean) + 30 but for probability 1e-7; the generator is fixed."""
    law, weight, means, products = of(participation, rounds, bands)
    tilted = weight * np.exp(a * (a - 1) / 2 * np.diag(products) + s * (means @ (weight @ means)))
    expected = 20_000 * tilted / tilted.sum()
    turns = np.random.default_rng(2).random((20_000, law.coins - rounds))
    drawn = np.sort(np.stack(law._patterns(a, s, turns), axis=1), axis=1)
    found, counts = np.unique(np.where(drawn < rounds, drawn, rounds), axis=0, return_counts=True)
    names = [tuple(t for t in row if t < rounds) for row in found.tolist()]
    table = dict.fromkeys(every_pattern(participation, rounds), 0)
    for name, count in zip(names, counts.tolist(), strict=True):
        table[name] += count
    chi = float(((np.array(list(table.values())) - expected) ** 2 / expected).sum())
    assert chi < len(table) + 6.5 * math.sqrt(2 * len(table)) + 30


# spec/amplification.md, 6.1, random allocation: sigma 2, T = 4, b = 2; (removing, adding) at epsilon 1 and 2.
FRESH = {
    (1.0, 0.0, 0.0, 0.0): ((8.4851071904e-3, 7.8093317806e-3), (2.2836737527e-5, 1.3143360856e-5)),
    (1.0, 0.5, 0.0, 0.0): ((3.9267594468e-2, 3.7142590221e-2), (1.3840913342e-3, 1.0180619749e-3)),
}
FIXED = {(1.0, 0.5, 0.0, 0.0): ((3.8172241831e-2, 3.7818249818e-2), (1.1658478585e-3, 1.1073587538e-3))}
PUBLISHED = [
    *((RandomAllocation(2), coefs, at) for coefs, at in FRESH.items()),
    *((BMinSep(2, 1.0), coefs, at) for coefs, at in FIXED.items()),
]


@pytest.mark.parametrize(("participation", "coefs", "at"), PUBLISHED, ids=str)
def test_the_oracle_and_each_order_agree_with_the_published_integrals(
    participation: Participation, coefs: Sequence[float], at: Any
) -> None:
    """Five standard errors: a false alarm in 12 comparisons has probability 1e-5."""
    c = matrix(np.array(coefs), 4)
    law = every_pattern(participation, 4)
    assert integrated(c, law, 2.0, 1.0, 0.4) == pytest.approx(at[0], rel=3e-7)
    pair = Pair(of_matrix(c, participation).at(2.0), 1.0, 2.0)
    for add in (False, True):
        draws = pair.draw(SEED, 7, 1 << 16, add)
        for epsilon, exact in zip((1.0, 2.0), at, strict=True):
            x = draws.values(epsilon)
            assert x.max() <= pair.bound(epsilon, add)
            assert abs(x.mean() - exact[add]) <= 5 * x.std() / math.sqrt(x.size)
    curve = certify(of_matrix(c, participation), 2.0, (0.0, 1.0, 2.0), target=1.0, seed=SEED, samples=FEW)
    for (_, delta), exact in zip(curve.points[1:], at, strict=True):
        assert max(exact) < delta < max(exact) * 1.15 + 5e-6


@pytest.mark.parametrize(
    ("participation", "rounds", "bands"),
    [
        (BMinSep(2, 0.5), 2, 2),
        (BMinSep(2, 0.5), 3, 2),
        (BMinSep(3, 0.3), 3, 3),
        (BMinSep(1, 0.4), 3, 1),
        (RandomAllocation(2), 3, 3),
        (RandomAllocation(3), 3, 3),
        (RandomAllocation(1), 3, 2),
    ],
    ids=str,
)
def test_integrals_of_any_small_strategy_lie_below_the_bound_and_close_to_it(
    participation: Participation, rounds: int, bands: int
) -> None:
    c = banded(bands, rounds, rounds)
    curve = certify(
        of_matrix(np.abs(c), participation), 1.5, (0.0, 0.7, 1.5), target=0.7, seed=SEED, samples=(1 << 17, 1 << 16)
    )
    for epsilon, delta in curve.points:
        exact = max(integrated(c, every_pattern(participation, rounds), 1.5, epsilon, 0.25))
        assert exact < delta < exact * 1.06 + 1e-6


@pytest.mark.parametrize(("participation", "bands"), [(BMinSep(4, 0.4), 4), (RandomAllocation(4), 5)], ids=str)
def test_plain_samples_never_lie_above(participation: Participation, bands: int) -> None:
    """All patterns of 16 rounds, another generator, other samples; five standard errors: false alarm 1e-6."""
    mechanism = mechanisms.build({"kind": "banded", "bands": bands}, 16, participation)
    law = law_of(mechanism, participation)
    sigma = math.sqrt(law.largest)
    c = mechanism.strategy_matrix(16)
    found = sampled(c, every_pattern(participation, 16), sigma, 0.5, np.random.default_rng(3), 20_000)
    curve = certify(law, sigma, (0.0, 0.5), target=0.5, seed=SEED, samples=(1 << 17, 1 << 16))
    assert all(mean - 5 * error < curve.points[1][1] for mean, error in found)
    assert curve.points[1][1] < max(mean + 5 * error for mean, error in found) * 1.03


def test_a_rate_of_one_is_balls_in_bins() -> None:
    """The same normals give the same samples' likelihoods; kernels of both laws agree."""
    c = np.abs(banded(3, 11))
    modes = np.stack([c[:, j::3].sum(axis=1) for j in range(3)], axis=1)
    bins, chain = balls_in_bins.Bins(modes.T @ modes), of_matrix(c, BMinSep(3, 1.0))
    assert (chain.largest, chain.mean, chain.along_mean) == pytest.approx((bins.largest, bins.mean, bins.along_mean))
    for a, s in ((2.0, 0.0), (1.0, 0.7)):
        assert chain.log_z(a, s) == pytest.approx(bins.log_z(a, s))
    uniforms = np.random.default_rng(4).random((20, chain.coins))
    u = chain.draw(uniforms[:, : chain.turns], ndtri(uniforms[:, chain.turns :]), [])
    y = ndtri(uniforms[:, -11:])
    assert chain.log_power(u, 1.5) == pytest.approx(bins.log_power((y @ modes).T, 1.5))
    assert chain.along(u) == pytest.approx(bins.along((y @ modes).T))


def test_no_pause_is_poisson_sampling() -> None:
    exact = PrivacyLoss(sampled=(PoissonGaussian(0.2, 1.2, 8),))
    curve = certify(of_matrix(np.eye(8), BMinSep(1, 0.2)), 1.2, (0.0, 0.5, 1.5), target=0.5, seed=SEED, samples=FEW)
    for epsilon, delta in curve.points:
        assert exact.delta(epsilon) * (1 - 1e-3) < delta < exact.delta(epsilon) * 1.08


def test_independent_noise_is_what_random_allocation_is_charged_exactly() -> None:
    """The deterministic bound by loss distributions and the certificate are of the same pair."""
    independent = mechanisms.build({"kind": "independent"}, 9, RandomAllocation(3))
    exact = charge_for(independent, RandomAllocation(3), 1.5, 9, "add_remove")
    law = law_of(independent, RandomAllocation(3))
    curve = certify(law, 1.5, (0.0, 0.5, 1.5), target=0.5, seed=SEED, samples=FEW)
    for epsilon, delta in curve.points:
        assert exact.delta(epsilon) * (1 - 1e-3) < delta < exact.delta(epsilon) * 1.06


def test_samples_do_not_depend_on_how_many_there_are() -> None:
    pair = Pair(of_matrix(np.abs(banded(3, 600)), BMinSep(3, 0.4)).at(30.0), 1.0)
    few, many = (pair.draw(SEED, 0, count, add=True) for count in (1500, 2500))
    assert np.array_equal(few.log_ratio, many.log_ratio[:1500])


def test_long_plans_draw_fewer_samples() -> None:
    short, long = (certification.samples_of(of_matrix(np.eye(n), BMinSep(1, 0.1))) for n in (64, 1500))
    assert short == certification.SAMPLES
    assert long[0] * 1500 < 2**31 < 2 * short[0] * 1500


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("participation", "bands"), [(BMinSep(4, 0.5), 4), (RandomAllocation(3), 4)], ids=["b-min-sep", "random-allocation"]
)
def test_one_band_more_is_refused(participation: Participation, bands: int) -> None:
    of_matrix(np.abs(banded(bands, 12)), participation)
    with pytest.raises(BadInput, check=coded("unsupported", f"{bands + 1} bands", f"may have {bands}")):
        of_matrix(np.abs(banded(bands + 1, 12)), participation)


def test_what_is_no_chain_is_refused() -> None:
    nu = mechanisms.build({"kind": "nu", "nu": 0.1}, 8, BMinSep(4, 0.5))
    with pytest.raises(BadInput, check=coded("unsupported", "participation.scheme", "'nu'", "bands = 4")):
        law_of(nu, BMinSep(4, 0.5))
    with pytest.raises(BadInput, check=coded("unsupported", "participation")):
        of_matrix(np.eye(4), Poisson(0.5))
    with pytest.raises(BadInput, check=coded("out-of-range", "participation.bins", "bins = 257")):
        of_matrix(np.eye(300), RandomAllocation(257))
    with pytest.raises(BadInput, check=coded("too-large", "run.rounds", "rounds = 3000")):
        law_of(mechanisms.build({"kind": "independent"}, 3000, BMinSep(4, 0.5)), BMinSep(4, 0.5))
    with pytest.raises(BadInput, check=coded("out-of-range", "noise_multiplier = 0.05")):
        certify(of_matrix(np.eye(4), BMinSep(2, 0.5)), 0.05, (0.0, 1.0), target=1.0, seed=SEED)


# -- plans ------------------------------------------------------------------------------------------------------------


def plan(participation: dict[str, Any], kind: dict[str, Any], **privacy: Any) -> Plan:
    return Plan.parse(
        {
            "privacy": {"population": "people", "delta": 1e-4, "adjacency": "add_remove", **privacy},
            "run": {"rounds": 12, "cohort": 5},
            "participation": participation,
            "mechanism": kind,
        }
    )


SPACED = {"scheme": "b-min-sep", "separation": 3, "rate": 0.5}
ALLOCATED = {"scheme": "random-allocation", "bins": 4}
TWO = {"kind": "banded", "bands": 2}


def estimated(mechanism: Mechanism) -> float:
    """Noise in a prefix sum of twelve rounds at epsilon 1, by the same normals for each strategy."""
    sigma = certification.estimate_noise(law_of(mechanism, RandomAllocation(4)), 1.0, 1e-4)
    return sigma * math.sqrt(np.mean(np.square(mechanism.prefix_row_norms())))


@pytest.mark.parametrize(
    ("participation", "privacy"),
    [(SPACED, {"noise_multiplier": 3.0}), (ALLOCATED, {"epsilon": 1.0})],
    ids=["b-min-sep", "random-allocation"],
)
def test_a_plan_is_certified_and_recalled(
    participation: dict[str, Any], privacy: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certification, "SAMPLES", (1 << 15, 1 << 15))
    monkeypatch.setattr(certification, "_FINE", 1 << 14)
    monkeypatch.setattr(certification, "_PILOT", 1 << 13)
    monkeypatch.setattr(sampled_optimum, "_COUNT", 1 << 10)
    cache: dict[str, bytes] = {}
    first = cost_of(plan(participation, TWO, **privacy), cache)
    assert set(cache) == {"c"}
    if "epsilon" in privacy:
        assert 0.95 < first.epsilon <= 1.0
        # Chosen for this charge: the strategy that is best without sampling needs more noise.
        assert estimated(first.mechanism) < estimated(mechanisms.build(TWO, 12, first.participation))
    assert first.to_json()["epsilon_without_amplification"] > 1.1 * first.epsilon
    assert "is part of delta" in dict(first.describe())["bound used"]
    assert first.priced().keys() == {0.01, 0.1, 0.3}
    assert first.certified_again().loss == first.loss
    monkeypatch.setattr(certification, "certify", lambda *args, **more: pytest.fail("certified again"))
    second: Cost = cost_as_priced(plan(participation, TWO, **privacy), cache, first.stored_price)
    assert (second.loss, second.noise_multiplier) == (first.loss, first.noise_multiplier)


def test_a_fresh_sampler_is_not_charged_by_the_fixed_law_nor_the_other_way_round() -> None:
    """spec/amplification.md, 6.1: with 1, .5 fresh rounds cost more to remove, because neighbours can meet."""
    mechanism = TriangularMechanism("banded", matrix(np.array([1.0, 0.5, 0.0, 0.0]), 4))
    fixed, fresh = (
        certify(law_of(mechanism, way), 2.0, (0.0, 2.0), target=2.0, seed=SEED, samples=FEW).points[1][1]
        for way in (BallsInBins(2), RandomAllocation(2))
    )
    assert 1.1658e-3 < fixed < 1.28e-3 < 1.384e-3 < fresh < 1.52e-3


@pytest.mark.parametrize(
    ("participation", "kind", "what"),
    [
        (SPACED, {"kind": "nu"}, coded("unsupported", "participation.scheme", "'b-min-sep'", "mechanism.kind", "'nu'")),
        (SPACED, {"kind": "blt"}, coded("unsupported", "participation.scheme", "'blt'")),
        (SPACED, {"kind": "nu", "nu": 0.1, "restart_every": 4}, coded("unsupported", "participation.scheme")),
        (ALLOCATED, {"kind": "banded", "bands": 6}, coded("unsupported", "participation.scheme")),
        (ALLOCATED, {"kind": "nu", "nu": 0.1}, coded("unsupported", "participation.scheme")),
    ],
    ids=str,
)
def test_other_strategies_are_refused(participation: dict[str, Any], kind: dict[str, Any], what: Coded) -> None:
    with pytest.raises(BadInput, check=what):
        cost_of(plan(participation, kind, noise_multiplier=3.0))


def test_independent_noise_needs_no_certificate_with_random_allocation() -> None:
    for kind in ({"kind": "independent"}, {"kind": "banded", "bands": 1}):
        assert not plan(ALLOCATED, kind, noise_multiplier=3.0).draws_its_price
        assert cost_of(plan(ALLOCATED, kind, noise_multiplier=3.0)).loss.sampled
    assert plan(ALLOCATED, TWO, noise_multiplier=3.0).draws_its_price


def test_a_shorter_period_keeps_the_pause_where_it_fits() -> None:
    assert BMinSep(4, 0.2).shortened(2.0) == BMinSep(4, 1.0)
    assert BMinSep(4, 0.2).shortened(1.6).separation == 4
    for factor in (0.5, 1.6, 2.0, 3.3, 20.0):
        shorter = BMinSep(4, 0.2).shortened(factor)
        assert shorter.period == pytest.approx(max(1.0, 8 / factor))
