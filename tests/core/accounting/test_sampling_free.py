"""Limits of certified charges without samples: on either side of the truth for every sampler and small strategy."""

from __future__ import annotations

import importlib.util
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fieldfare.accounting import balls_in_bins, certification, chained
from fieldfare.accounting.allocation import Allocation
from fieldfare.accounting.certified import Certified
from fieldfare.accounting.importance import Law
from fieldfare.accounting.sampling_free import SecondOpinion
from fieldfare.cost import Cost
from fieldfare.costing import cost_of
from fieldfare.errors import BadInput
from fieldfare.factorization.toeplitz import matrix
from fieldfare.mechanisms.independent import Independent
from fieldfare.participation import BallsInBins, BMinSep, Participation, RandomAllocation
from fieldfare.plan import Plan
from oracles import patterns
from oracles.patterns import Laws, Matrix, centres, integrated
from support.refusals import coded

SEED = bytes(range(16))
DECAYING = (1.0, 0.5, 0.25, 0.125, 0.06, 0.03, 0.015, 0.008)
CASES: list[tuple[Participation, int, int]] = [
    (BallsInBins(2), 3, 3),
    (BallsInBins(3), 3, 3),
    (BallsInBins(3), 3, 1),
    (RandomAllocation(2), 4, 3),
    (RandomAllocation(2), 3, 1),
    (RandomAllocation(2), 3, 3),
    (RandomAllocation(3), 3, 3),
    (BMinSep(2, 0.5), 3, 2),
    (BMinSep(2, 0.3), 3, 2),
    (BMinSep(1, 0.4), 3, 1),
]
EVERY = pytest.mark.parametrize(("participation", "rounds", "bands"), CASES, ids=str)


def strategy(rounds: int, bands: int) -> Matrix:
    return matrix(np.array(DECAYING[:bands] + (0.0,) * (rounds - bands)), rounds)


def every_pattern(participation: Participation, rounds: int) -> Laws:
    if isinstance(participation, BMinSep):
        return patterns.min_sep(rounds, participation.separation, participation.rate)
    assert isinstance(participation, BallsInBins | RandomAllocation)
    if isinstance(participation, RandomAllocation):
        return patterns.allocation(rounds, participation.bins)
    return {tuple(range(j, rounds, participation.bins)): 1 / participation.bins for j in range(participation.bins)}


def law_of(c: Matrix, participation: Participation) -> Law:
    if isinstance(participation, BallsInBins):
        modes = np.stack([c[:, j :: participation.bins].sum(axis=1) for j in range(participation.bins)], axis=1)
        return balls_in_bins.Bins(modes.T @ modes)
    return chained.of_matrix(c, participation)


@EVERY
@pytest.mark.parametrize("sigma", [1.0, 2.5])
def test_the_truth_lies_between(participation: Participation, rounds: int, bands: int, sigma: float) -> None:
    c, secret = strategy(rounds, bands), every_pattern(participation, rounds)
    opinion = SecondOpinion(law_of(c, participation).at(sigma))
    step, error = 0.1 if rounds == 3 else 0.4, 1e-3  # of the trapezoid rule, which a kink slows down
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        exact = max(integrated(c, secret, sigma, epsilon, step))
        assert opinion.at_least(epsilon) * (1 - error) <= exact <= opinion.at_most(epsilon) * (1 + error)
        # A limit from below that says nothing would pass, too.
        assert opinion.at_least(epsilon) > 0.3 * exact or exact < 5e-3


@EVERY
def test_what_the_test_sees_of_a_user_is_rounded_down_and_hardly(
    participation: Participation, rounds: int, bands: int
) -> None:
    weight, means = centres(strategy(rounds, bands), every_pattern(participation, rounds), 1.3)
    along = means @ (weight @ means) / np.linalg.norm(weight @ means)
    values, weights = law_of(strategy(rounds, bands), participation).at(1.3).projected()
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    for x in [*np.linspace(0, along.max(), 60), *(along + 1e-9)]:
        # Never more likely to reach x than the truth, and as likely to reach a little less.
        assert weights[values >= x].sum() <= weight[along >= x - 1e-12].sum() + 1e-12
        assert weights[values >= x - 2e-3 * along.max()].sum() >= weight[along >= x].sum() - 1e-12


@EVERY
def test_the_split_is_above_every_two_patterns(participation: Participation, rounds: int, bands: int) -> None:
    """Kahane's inequality asks for it, the patterns themselves included."""
    secret = every_pattern(participation, rounds)
    _, means = centres(strategy(rounds, bands), secret, 1.3)
    apart = law_of(strategy(rounds, bands), participation).at(1.3).apart()
    if apart is None:
        assert isinstance(participation, BMinSep)
        return
    b = apart.bins
    blocks = 1 if isinstance(participation, BallsInBins) else -(-rounds // b)
    assert apart.blocks == blocks

    def bins_of(pattern: tuple[int, ...]) -> list[int | None]:
        if blocks == 1 and pattern:
            return [pattern[0] % b]
        return [next((t % b for t in pattern if t // b == block), None) for block in range(blocks)]

    for first, one in zip(secret, means, strict=True):
        for second, other in zip(secret, means, strict=True):
            same = sum(x == y is not None for x, y in zip(bins_of(first), bins_of(second), strict=True))
            assert one @ other <= apart.shared + same * apart.own + 1e-12


def test_independent_noise_loses_nothing_without_samples() -> None:
    """One block of four rounds at half the noise is four blocks of which a user keeps the bin."""
    for law, event in (
        (law_of(np.eye(16), BallsInBins(4)), Allocation(4, 2.0 / math.sqrt(4), 1)),
        (law_of(np.eye(16), RandomAllocation(4)), Allocation(4, 2.0, 4)),
    ):
        assert SecondOpinion(law.at(2.0)).at_most(1.0) == pytest.approx(event.delta(1.0), rel=1e-9)


DP_SGD = {
    "run": {"rounds": 64, "cohort": 30},
    "participation": {"scheme": "balls-in-bins", "bins": 16},
    "mechanism": {"kind": "independent"},
}


def priced(**privacy: float) -> Cost:
    stated = {"population": "people", "delta": 1e-6, "adjacency": "add_remove", **privacy}
    return cost_of(Plan.parse({**DP_SGD, "privacy": stated}))


def test_independent_noise_is_charged_without_samples_and_less() -> None:
    """Every point is that of one block of sixteen rounds at half the noise, and cannot fail."""
    cost = priced(noise_multiplier=2.0)
    assert cost.certificate is not None
    curve, block = cost.certificate.curve, Allocation(16, 2.0 / math.sqrt(4), 1)
    assert (curve.samples, curve.failure, len(curve.points) > 40) == ((0, 0), 0.0, True)
    for epsilon, delta in curve.points:
        exact = block.delta(epsilon)
        assert exact <= delta <= exact * (1 + 2e-6)
    assert Certified.from_json(json.loads(json.dumps(curve.to_json()))) == curve
    assert cost.certified_again().loss == cost.loss
    assert "without samples" in dict(cost.describe())["bound used"]
    law = certification.law_of(cost.mechanism, cost.participation)
    drawn = certification.certify(law, 2.0, (0.0, 1.0, 2.0), target=2.0, seed=SEED, samples=(1 << 16, 1 << 14))
    assert drawn.failure > 0, "a curve of samples that a ledger holds is computed again as it was"
    assert all(at > block.delta(epsilon) for epsilon, at in drawn.points)


@pytest.mark.parametrize("epsilon", [0.3, 2.0, 8.0])
def test_its_noise_for_an_epsilon_is_the_least(epsilon: float) -> None:
    cost = priced(epsilon=epsilon)
    assert epsilon * (1 - 1e-4) < cost.epsilon <= epsilon
    assert Allocation(16, cost.noise_multiplier / 2, 1).delta(epsilon) <= 1e-6


def test_patterns_of_two_lengths_or_correlated_noise_are_sampled() -> None:
    even, odd = (balls_in_bins.law_of(Independent(rounds), 4) for rounds in (16, 18))
    assert certification.samples_of(even) == certification.samples_of(even, (9, 9)) == (0, 0)
    assert certification.samples_of(odd) == certification.SAMPLES
    assert certification.samples_of(odd, (9, 9)) == (9, 9)
    assert not SecondOpinion(law_of(strategy(8, 2), BallsInBins(4))).is_exact
    assert not SecondOpinion(law_of(np.eye(8), BMinSep(2, 0.5))).is_exact


def test_a_plan_of_so_much_noise_that_no_public_sample_lies_far_out_has_a_price() -> None:
    law = balls_in_bins.law_of(Independent(66), 16)
    assert 0 < certification.estimated_epsilon(law, 4.0, 1e-6) < 1


@pytest.mark.parametrize(("samples", "failure"), [((0, 0), 1e-9), ((0, 1), 1e-9), ((1, 1), 0.0)])
def test_a_curve_fails_if_and_only_if_it_was_drawn(samples: tuple[int, int], failure: float) -> None:
    with pytest.raises(BadInput):
        Certified(1.0, ((0.0, 0.1), (1.0, 0.01)), failure, "ab" * 16, 1, samples)


@EVERY
def test_a_certified_curve_passes_and_one_that_is_too_low_does_not(
    participation: Participation, rounds: int, bands: int
) -> None:
    law = law_of(strategy(rounds, bands), participation)
    opinion = SecondOpinion(law.at(2.0))
    curve = certification.certify(law, 2.0, (0.0, 0.5, 1.0), target=0.5, seed=SEED, samples=(1 << 15, 1 << 15))
    opinion.require(curve)
    low, high = opinion.epsilons(1e-3)
    assert 0 <= low <= certified_epsilon(curve.points, 1e-3)
    assert low < high
    for place in range(3):
        points = list(curve.points)
        points[place] = (points[place][0], 0.2 * points[place][1])
        with pytest.raises(BadInput, check=coded("differs", "delta")):
            opinion.require(replace(curve, points=tuple(points)))


def certified_epsilon(points: tuple[tuple[float, float], ...], delta: float) -> float:
    """The first point's epsilon at which the curve is at most `delta`; inf where none is."""
    return next((epsilon for epsilon, at in points if at <= delta), math.inf)


def test_a_certificate_that_is_computed_again_must_stand_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certification, "SAMPLES", (1 << 15, 1 << 15))
    privacy = {"population": "people", "delta": 1e-4, "adjacency": "add_remove", "noise_multiplier": 3.0}
    run, mechanism = {"rounds": 12, "cohort": 5}, {"kind": "nu", "nu": 0.1}
    drawn = {"scheme": "balls-in-bins", "bins": 4}
    cost = cost_of(Plan.parse({"privacy": privacy, "run": run, "participation": drawn, "mechanism": mechanism}))
    low, high = cost.to_json()["epsilon_without_samples"]
    assert 0.9 * cost.epsilon < low < cost.epsilon < high
    assert f"at least {low:.6g}" in dict(cost.describe())["second opinion"]
    real = certification.certify

    def broken(*args: object, **more: object) -> object:
        curve = real(*args, **more)  # type: ignore[arg-type]
        return replace(curve, points=tuple((epsilon, max(curve.failure, 0.3 * at)) for epsilon, at in curve.points))

    monkeypatch.setattr(certification, "certify", broken)
    with pytest.raises(BadInput, check=coded("differs", "delta")):
        cost.certified_again()


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    folder = Path(os.environ.get("FIELDFARE_CHECKER", Path(__file__).parents[3] / "docs"))
    spec = importlib.util.spec_from_file_location("check_sampled", folder / "check_sampled.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@EVERY
def test_the_strangers_checker_finds_the_same_limit_and_holds_curves_to_it(
    participation: Participation, rounds: int, bands: int, checker: ModuleType
) -> None:
    c = strategy(rounds, bands) / 2.0
    claim = checker.law(participation_spec(participation))
    epsilons = np.array([0.0, 0.5, 1.0])
    opinion = SecondOpinion(law_of(c, participation))
    own = np.array([opinion.at_least(epsilon) for epsilon in epsilons])
    assert checker.one_test(claim, c, epsilons) == pytest.approx(own, rel=2e-2)
    points = [[0.0, 1.0], [0.5, 1.0], [1.0, 0.99 * own[-1]]]
    with pytest.raises(checker.Refused, match="one test"):
        checker.certified_mu({**claim, "points": points, "failure": 1e-9}, c, 0.5)


def participation_spec(participation: Participation) -> dict[str, object]:
    if isinstance(participation, BMinSep):
        return {"scheme": "b-min-sep", "separation": participation.separation, "rate": participation.rate}
    assert isinstance(participation, BallsInBins | RandomAllocation)
    fresh = isinstance(participation, RandomAllocation)
    return {"scheme": "random-allocation" if fresh else "balls-in-bins", "bins": participation.bins}
