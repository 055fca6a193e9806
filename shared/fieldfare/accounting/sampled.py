"""Gaussian mechanisms amplified by Poisson sampling, composed by privacy loss distributions.

One event: every user is included independently with probability q and N(0, sigma^2) noise is added to a sum of which
one user changes at most 1. For adding or removing a user, the dominating pairs are

    (1 - q) N(0, sigma^2) + q N(1, sigma^2)   against   N(0, sigma^2),   in both orders

(Zhu, Dong and Wang 2022, Theorem 11), and dominating pairs compose, also adaptively. Each order's privacy loss
distribution is discretised upwards by connecting the dots (Doroshenko et al. 2022) and composed by FFT (`composition`,
which says why dp_accounting is not used). The worse order counts. This module computes the points to connect, all at
once and to full relative precision.

The grid is chosen before anything is computed on it, so that no request (tiny epsilon, tiny sigma, huge counts) can
exhaust memory or time: beyond `MOST_POINTS` points there is no grid, and callers fall back on the bound without
amplification, or refuse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from scipy.special import erfcx, ndtr

from fieldfare.accounting.composition import Composition, DiscreteLoss, Vector
from fieldfare.errors import BadInput

MOST_POINTS = 1 << 22
"""Largest grid of a composed distribution: 32 MB, about a second."""
FINEST, COARSEST = 1e-5, 0.05
"""Grid steps, in units of the privacy loss."""
SMALLEST_DELTA = 1e-11
"""Below this the FFT's rounding could matter, so amplification is not claimed."""
_RELATIVE = 0.0125
"""Largest step, in standard deviations of the narrowest event's loss."""
_TAIL = 12.0
"""Standard deviations beyond which mass is negligible (1e-32) when a grid is sized."""


@dataclass(frozen=True)
class SampledGaussian:
    """`count` rounds of Gaussian noise, each of which includes every user independently with probability `rate`.

    No round shows who was included, nor how many. noise_multiplier: noise std over the most that one user changes.
    """

    rate: float
    noise_multiplier: float
    count: int

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise BadInput(f"rate = {self.rate}", "must be in (0, 1].", "1.0")
        if not 0 < self.noise_multiplier < math.inf:
            raise BadInput(f"noise_multiplier = {self.noise_multiplier}", "must be a finite number above 0.", "1.0")
        if self.count < 0:
            raise BadInput(f"count = {self.count}", "must be at least 0.", "0")


Events: TypeAlias = tuple[SampledGaussian, ...]


def grid_for(mu_squared: float, events: Events) -> float | None:
    """The grid step for composing these, a power of two times `FINEST`; None where no allowed step is coarse enough.

    The step is as fine as the narrowest event needs, and as coarse as `MOST_POINTS` forces. The discretisation error is
    of second order in step over standard deviation of the event's loss: 2e-5 of epsilon for most, and 1e-4 where steps
    would be below 1e-4. Counts enter as powers of two only, so that neighbouring rounds share cached distributions.
    """
    widest, total, narrowest = 0.0, mu_squared / 2 + _TAIL * math.sqrt(mu_squared), math.inf
    for event in events:
        reach = _reach(event.noise_multiplier)
        spread = _spread(event)
        widest = max(widest, reach)
        rounds = 1 << max(0, event.count - 1).bit_length()
        # Mean loss ~ variance / 2 per round; the composition's tails are cut at Chernoff bounds, 2 reach at most.
        total += min(rounds * min(spread * spread, reach), rounds * reach) + _TAIL * math.sqrt(rounds) * spread + reach
        narrowest = min(narrowest, spread)
    enough = min(COARSEST, max(_RELATIVE * narrowest, min(1e-4, 4 * _RELATIVE * narrowest)))
    step = FINEST
    while step * 2 <= enough or max(widest, total) * 4 > step * MOST_POINTS:
        step *= 2
        if step > COARSEST:
            return None
    return step


def _spread(event: SampledGaussian) -> float:
    """About the standard deviation of one event's loss: q sqrt(exp(1/sigma^2) - 1) where small, 1/sigma at most."""
    inverse = 1 / event.noise_multiplier
    return min(event.rate * math.sqrt(math.expm1(min(inverse * inverse, 700.0))), inverse)


def _reach(noise_multiplier: float) -> float:
    """The largest loss of one event at rate 1, negligible mass aside; inf where the noise all but vanishes."""
    inverse = 1 / noise_multiplier
    return _TAIL * inverse + 0.5 * inverse * inverse


def refusal(mu_squared: float, events: Events) -> str | None:
    """Why these cannot be composed numerically, or None."""
    if grid_for(mu_squared, events) is not None:
        return None
    worst = min(events, key=lambda event: event.noise_multiplier / math.sqrt(max(event.count, 1)))
    return (
        f"{worst.count} sampled rounds at noise multiplier {worst.noise_multiplier:.3g} would need a privacy loss "
        f"distribution of more than {MOST_POINTS} points; its epsilon would be far beyond any meaningful budget."
    )


@lru_cache(maxsize=8192)
def epsilon(mu_squared: float, events: Events, delta: float) -> float:
    """An upper bound on epsilon at `delta`; inf where there is no grid or `delta` is too small for one.

    Cached: ledger, page and progress ask for the same losses, and each costs some milliseconds.
    """
    if delta < SMALLEST_DELTA:
        return math.inf
    step = grid_for(mu_squared, events)
    if step is None:
        return math.inf
    return max(order.epsilon(delta) for order in _composed(mu_squared, events, step))


def delta(mu_squared: float, events: Events, at: float) -> float:
    """An upper bound on delta at epsilon `at`; 1 where there is no grid."""
    step = grid_for(mu_squared, events)
    if step is None:
        return 1.0
    return max(order.delta(at) for order in _composed(mu_squared, events, step))


@lru_cache(maxsize=4)
def _composed(mu_squared: float, events: Events, step: float) -> tuple[Composition, Composition]:
    """Everything together, in both orders of the two worlds."""
    parts = [(_orders(event.rate, event.noise_multiplier, step), event.count) for event in events]
    if mu_squared > 0:
        parts.append((_orders(1.0, 1 / math.sqrt(mu_squared), step), 1))
    first, second = ([(orders[i], count) for orders, count in parts] for i in (0, 1))
    return Composition(first), Composition(second)


@lru_cache(maxsize=32)
def _orders(rate: float, noise_multiplier: float, step: float) -> tuple[DiscreteLoss, DiscreteLoss]:
    """One event's loss with the user against without, and without against with, on multiples of `step`."""
    reach = _reach(noise_multiplier)
    # log(1 - q + q e^z) for |z| <= reach: the losses of the first order; the second order's are their negatives.
    high = math.ceil(float(np.logaddexp(_log_complement(rate), math.log(rate) + reach)) / step)
    low = math.floor(float(np.logaddexp(_log_complement(rate), math.log(rate) - reach)) / step)
    grid = np.arange(low, high + 1, dtype=np.float64) * step
    with_user = DiscreteLoss.through(step, low, _deltas_with_user(grid, rate, noise_multiplier))
    if rate == 1:
        return with_user, with_user
    grid = np.arange(-high, -low + 1, dtype=np.float64) * step
    return with_user, DiscreteLoss.through(step, -high, _deltas_without_user(grid, rate, noise_multiplier))


def _deltas_with_user(epsilons: Vector, rate: float, noise_multiplier: float) -> Vector:
    """H of (1 - q) P + q Q over P: q times that of Q over P at log((e^epsilon - 1 + q) / q)."""
    moderate = np.minimum(epsilons, 1.0)
    above = np.expm1(moderate) + rate
    inside = above > 0
    # For large epsilon, without e^epsilon, which would overflow.
    beyond = epsilons[inside] + np.log1p(-(1 - rate) * np.exp(-np.maximum(epsilons[inside], 1.0)))
    shifted = np.where(epsilons[inside] > 1, beyond, np.log(above[inside]))
    out = -np.expm1(moderate)  # at epsilon below log(1 - q) the difference is positive everywhere
    out[inside] = rate * _gaussian_deltas(shifted - math.log(rate), 1 / noise_multiplier)
    return np.clip(out, 0.0, 1.0)


def _deltas_without_user(epsilons: Vector, rate: float, noise_multiplier: float) -> Vector:
    """H of P over (1 - q) P + q Q: w times that of P over Q at log(q e^epsilon / w), w = 1 - (1 - q) e^epsilon > 0."""
    left = 1 - (1 - rate) * np.exp(np.minimum(epsilons, 700.0))
    inside = left > 0
    out = np.zeros_like(epsilons)
    shifted = math.log(rate) + epsilons[inside] - np.log(left[inside])
    out[inside] = left[inside] * _gaussian_deltas(shifted, 1 / noise_multiplier)
    return np.clip(out, 0.0, 1.0)


def _gaussian_deltas(epsilons: Vector, mu: float) -> Vector:
    """Equation (2) of `gaussian` for an array; negative epsilons by symmetry: delta(-e) = 1 - e^-e (1 - delta(e))."""
    size = np.abs(epsilons)
    x = np.clip(size / mu - mu / 2, -1e8, 1e8)
    density = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    out = ndtr(-x) - density * _mills(x + mu)
    far = x > 0
    out[far] = density[far] * (_mills(x[far]) - _mills(x[far] + mu))
    return np.asarray(np.where(epsilons >= 0, out, 1 - np.exp(-size) * (1 - out)), dtype=np.float64)


def _log_complement(rate: float) -> float:
    return math.log1p(-rate) if rate < 1 else -math.inf


def _mills(s: Vector) -> Vector:
    return np.asarray(math.sqrt(math.pi / 2) * erfcx(s / math.sqrt(2)), dtype=np.float64)
