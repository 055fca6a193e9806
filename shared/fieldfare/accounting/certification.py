"""Certified charges of secret samplers by Monte Carlo, and the noise for which one is expected to fit a plan.

A `Law` (`importance`) says what is sampled: `law_of` has one for every sampler and strategy for which it is
proven. All points of a curve and both orders share the failure probability (a union), and the whole of it is
added to delta: with probability 1 - beta over the seed, which is independent of data and run, the run is
(epsilon, delta)-DP.

Searches use a public seed and certify nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from fieldfare.accounting import balls_in_bins, chained
from fieldfare.accounting.certified import LARGEST_EPSILON, Certified
from fieldfare.accounting.gaussian import gaussian_epsilon, gaussian_mu
from fieldfare.accounting.importance import PUBLIC_SEED, Law, Pair, Vector, enough, stake_of, upper_bound
from fieldfare.accounting.sampling_free import SecondOpinion
from fieldfare.errors import BudgetRefused, OutOfRange
from fieldfare.lazily import scipy
from fieldfare.mechanisms.base import Mechanism
from fieldfare.participation import BallsInBins, Participation
from fieldfare.text import decimal

# All certifications of one plan together are wrong with at most this probability.
FAILURE: Final = 1e-9
# Samples of a certification: for removing a user, which has the larger spread, and for adding one.
SAMPLES: Final = (1 << 22, 1 << 19)
# Uniforms that the larger number of samples takes: samples of long plans are dear, and so they have fewer.
_MOST_COINS: Final = 1_100_000_000
# Points of a curve, besides that of the plan's own epsilon.
_LEVELS: Final = 48
# The last point's delta, as a share of the plan's: what the price of a run in a population leaks is of that size.
_DEEPEST: Final = 1e-3
# Samples that set the stakes of the bound.
_PILOT: Final = 1 << 16
# Samples of the searches for the noise: to find about where it is, and to find it.
_ROUGH, _FINE = 1 << 14, 1 << 17
# Added to the noise that a search finds, for the search's own error: some 3 % of delta.
_MARGIN: Final = 2e-3
_REMOVE, _ADD, _PILOT_REMOVE, _PILOT_ADD = range(4)


def law_of(mechanism: Mechanism, participation: Participation) -> Law:
    """Return what a certificate of this sampler with this strategy draws, at noise multiplier 1.

    Raises `BadInput` where its charge is not proven, or cannot be computed.
    """
    if isinstance(participation, BallsInBins):
        return balls_in_bins.law_of(mechanism, participation.bins)
    return chained.law_of(mechanism, participation)


def samples_of(law: Law, wanted: tuple[int, int] | None = None) -> tuple[int, int]:
    """Return how many samples a certificate has: for removing a user, and for adding one. None at all, whatever is
    `wanted`, where `sampling_free` loses nothing: its curve is the smaller one, and cannot fail.
    """
    if SecondOpinion(law).is_exact:
        return 0, 0
    remove, add = wanted or SAMPLES
    while wanted is None and remove > 1 << 16 and remove * law.coins > _MOST_COINS:
        remove, add = remove // 2, max(add // 2, 1 << 15)
    return remove, add


def certify(
    law: Law,
    noise_multiplier: float,
    epsilons: tuple[float, ...],
    *,
    target: float,
    seed: bytes,
    attempt: int = 1,
    samples: tuple[int, int] | None = None,
) -> Certified:
    """Return the certified curve of a run: bounds at `epsilons`, but for the probability `failure`.

    Args:
        law: of `law_of`.
        noise_multiplier: std of z over the clip norm.
        epsilons: increasing from 0, fixed without this seed.
        target: the epsilon for which the samples should be best.
        seed: 16 bytes, fixed (and written down) before this call: a second try has another `attempt`.
        attempt: from 1. The failure probability is `FAILURE` / 2^attempt, so that all attempts share it.
        samples: for removing a user, and for adding one; None: `samples_of`. Without any the points are those of
            `sampling_free`, and do not fail.

    Raises `BadInput` where there is so little noise that the law cannot be sampled.
    """
    if noise_multiplier < law.least_noise:
        raise OutOfRange(
            f"noise_multiplier = {noise_multiplier:.6g} with secret cohorts",
            "the charge of so little noise is not computed.",
            f"{law.least_noise:.6g}",
        )
    samples, law = samples or samples_of(law), law.at(noise_multiplier)
    mu = math.sqrt(law.largest)
    if samples == (0, 0):
        bounds = map(SecondOpinion(law).at_most, epsilons)
        points = tuple((e, min(1.0, _round_up(max(d, 1e-300)))) for e, d in zip(epsilons, bounds, strict=True))
        return Certified(mu, points, 0.0, seed.hex(), attempt, samples)
    pair, failure = Pair(law, target, epsilons[-1]), FAILURE / 2**attempt
    # All points in both orders may fail with `failure` together (a union bound).
    log_odds = math.log(2 * len(epsilons) / failure)
    worst = np.zeros(len(epsilons))
    for add, stream, pilot_stream, count in (
        (False, _REMOVE, _PILOT_REMOVE, samples[0]),
        (True, _ADD, _PILOT_ADD, samples[1]),
    ):
        # The pilot decides how many samples count and at what stake. It has a stream of its own: a bound
        # whose settings looked at its own samples would not hold.
        pilot = pair.draw(seed, pilot_stream, _PILOT, add)
        draws = pair.draw(seed, stream, count, add)
        for at, epsilon in enumerate(epsilons):
            most, tried = pair.bound(epsilon, add), pilot.values(epsilon)
            used = enough(tried, most, log_odds, count)
            stake = stake_of(tried, most, used, log_odds)
            worst[at] = max(worst[at], upper_bound(draws.values(epsilon, used), most, stake, log_odds))
    points = tuple((e, min(1.0, _round_up(d + failure))) for e, d in zip(epsilons, worst.tolist(), strict=True))
    return Certified(mu, points, failure, seed.hex(), attempt, samples)


def _round_up(value: float) -> float:
    """Round up to seven digits: another machine's last digits then rarely show."""
    scale = 10.0 ** (6 - math.floor(math.log10(value)))
    return math.ceil(value * scale) / scale


# -- the noise -----------------------------------------------------------------------------------------------


class _Forecast:
    """What a certification would say at other noise, by the same normals for each: smooth, and no certificate."""

    def __init__(self, law: Law, count: int, failure: float, samples: tuple[int, int] | None = None) -> None:
        self._law, self._count, self._samples = law, count, samples or samples_of(law)
        self._log_odds = math.log(2 * (_LEVELS + 1) / failure)

    def delta(self, noise_multiplier: float, epsilon: float, *, certified: bool = True) -> float:
        """Return the bound to expect (certified) or the estimate itself; 1 with too little noise for either."""
        if noise_multiplier < self._law.least_noise:
            return 1.0
        pair = Pair(self._law.at(noise_multiplier), epsilon)
        worst = 0.0
        for add, stream, count in ((False, _REMOVE, self._samples[0]), (True, _ADD, self._samples[1])):
            values = pair.draw(PUBLIC_SEED, stream, self._count, add).values(epsilon)
            value = float(values.mean())
            if certified:
                most = pair.bound(epsilon, add)
                stake = stake_of(values, most, count, self._log_odds)
                value = upper_bound(values, most, stake, self._log_odds, count)
            worst = max(worst, value)
        return worst

    def curve(self, noise_multiplier: float, epsilons: Vector, target: float) -> Vector:
        """Return estimates of delta at many epsilons, falling."""
        if noise_multiplier < self._law.least_noise:
            return np.ones(len(epsilons))
        pair = Pair(self._law.at(noise_multiplier), target)
        worst = np.zeros(len(epsilons))
        for add, stream in ((False, _REMOVE), (True, _ADD)):
            draws = pair.draw(PUBLIC_SEED, stream, self._count, add)
            worst = np.maximum(worst, [float(draws.values(float(e)).mean()) for e in epsilons])
        return np.minimum.accumulate(worst)


def estimate_delta(law: Law, noise_multiplier: float, epsilon: float, count: int = _ROUGH) -> float:
    """Return delta of the pair in its worse order, by `count` public samples: for optimisers, never a charge.

    Args:
        law: of the run's sampler with its strategy, from `law_of`.
        noise_multiplier: standard deviation of z in clip norms.
        epsilon: where delta is asked for, at least 0.
        count: how many samples are drawn.
    """
    return _Forecast(law, count, FAILURE).delta(noise_multiplier, epsilon, certified=False)


def estimate_noise(law: Law, epsilon: float, delta: float, count: int = _ROUGH) -> float:
    """Return the noise multiplier at which `estimate_delta` is `delta`: for optimisers. Never a charge.

    Args:
        law: of the run's sampler with its strategy, from `law_of`.
        epsilon, delta: what the estimate is to meet.
        count: how many samples are drawn.
    """
    forecast = _Forecast(law, count, FAILURE)
    return _search(lambda sigma: forecast.delta(sigma, epsilon, certified=False), law, epsilon, delta, 1e-4)


def least_noise(
    law: Law, epsilon: float, delta: float, *, samples: tuple[int, int] | None = None, attempt: int = 1
) -> float:
    """Return the noise multiplier with which a certification should come out at most at (epsilon, delta).

    A little more for each later `attempt`. Found with a public seed, so that it says nothing of a
    certification's own samples, and is the same on every machine up to last digits.

    Raises `BudgetRefused` where delta is too small for any certificate.
    """
    if (samples or samples_of(law)) == (0, 0):
        found = _search(lambda sigma: SecondOpinion(law.at(sigma)).at_most(epsilon), law, epsilon, delta, 1e-6)
        return found * (1 + 5e-6 * attempt)  # the search's tolerance, and what rounding delta up takes
    failure = FAILURE / 2**attempt
    if delta <= 2 * failure:
        raise BudgetRefused(
            f"delta = {decimal(delta)} with secret cohorts",
            f"the certificate's own failure probability, {decimal(failure, 2)}, is part of delta.",
            f"{100 * FAILURE:g}",
        )
    goal = delta - failure
    rough, fine = (_Forecast(law, count, failure, samples) for count in (_ROUGH, _FINE))
    near = _search(lambda sigma: rough.delta(sigma, epsilon), law, epsilon, goal, 1e-3)

    def off(log: float) -> float:
        return math.log(fine.delta(math.exp(log), epsilon) / goal)

    # The fine forecast costs seconds, so it is asked twice and no more.
    # One secant step from close by, at a slope that hardly changes.
    here, there = math.log(near), math.log(near) + 5e-3
    value, other = off(here), off(there)
    slope = (other - value) / (there - here)
    found = here - value / slope if slope < 0 else there
    found = min(max(found, here - 0.05), here + 0.05)
    unamplified = math.sqrt(law.largest) / gaussian_mu(epsilon, delta)
    return min(unamplified, math.exp(found) * (1 + _MARGIN * attempt))


def _search(cost: Callable[[float], float], law: Law, epsilon: float, goal: float, tolerance: float) -> float:
    """Return where the falling `cost` of a noise multiplier is `goal`."""

    def off(log: float) -> float:
        return math.log(max(cost(math.exp(log)), 1e-300) / goal)

    low = top = math.log(math.sqrt(law.largest) / gaussian_mu(epsilon, goal))
    if off(top) > 0:
        return math.exp(top)  # so few samples cannot show any amplification
    while off(low) <= 0 and low > top - 12:
        low -= 0.4
    return math.exp(scipy.optimize.brentq(off, low, low + 0.4, xtol=tolerance)) if off(low) > 0 else math.exp(low)


def points_for(law: Law, noise_multiplier: float, epsilon: float, delta: float) -> tuple[float, ...]:
    """Return where a run's curve is certified: at `epsilon`, and at equal steps down to a share of `delta`.

    A function of the plan alone: public samples find it, never those of a certification.

    Args:
        law: of the run's sampler with its strategy, from `law_of`.
        noise_multiplier: standard deviation of z in clip norms.
        epsilon, delta: the plan's goal; epsilon is always among the points.
    """
    # Beyond it even the run without amplification has less than `_DEEPEST` of delta left.
    mu = math.sqrt(law.largest) / noise_multiplier
    furthest = min(gaussian_epsilon(mu, _DEEPEST * delta), LARGEST_EPSILON)
    grid = np.unique(np.concatenate([np.linspace(0.0, furthest, 240), [epsilon]]))
    falling = np.log(np.maximum(_Forecast(law, _ROUGH, FAILURE).curve(noise_multiplier, grid, epsilon), 1e-300))
    levels = np.linspace(falling[0], max(falling[-1], math.log(_DEEPEST * delta)), _LEVELS)
    epsilons = np.interp(-levels, -falling, grid)
    chosen = {0.0, epsilon, *(round(float(e), 6) for e in epsilons[1:])}
    return tuple(sorted(e for e in chosen if e <= furthest or e == epsilon))


def estimated_epsilon(law: Law, noise_multiplier: float, delta: float) -> float:
    """Estimate the epsilon at which a curve is to be sharpest: that of `delta`, by public samples.

    Args:
        law: of the run's sampler with its strategy, from `law_of`.
        noise_multiplier: standard deviation of z in clip norms.
        delta: at which epsilon is asked for, above 0.
    """
    forecast = _Forecast(law, _ROUGH, FAILURE)
    high = gaussian_epsilon(math.sqrt(law.largest) / noise_multiplier, delta)

    def off(epsilon: float) -> float:  # of 0 where no sample lies so far out
        return math.log(max(forecast.delta(noise_multiplier, epsilon, certified=False), 1e-300) / delta)

    if off(0.0) <= 0 or high <= 1e-6:
        return 0.0
    return round(high if off(high) >= 0 else float(scipy.optimize.brentq(off, 0.0, high, xtol=1e-4)), 6)
