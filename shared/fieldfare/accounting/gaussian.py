"""The exact privacy of one Gaussian mechanism, and the looser conversion from zCDP.

A mechanism is mu-GDP when telling its two output distributions apart is at least as hard as telling N(0, 1)
from N(mu, 1) (Dong, Roth and Su 2022). Showing C x + z with sensitivity s and noise multiplier sigma is
(s/sigma)-GDP, also when x is chosen adaptively. Then, with Phi the standard normal distribution function
(Balle and Wang 2018, Theorem 8; Dong et al. 2022, Corollary 2.13),

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu).                               (1)

Both terms share one density: with x = epsilon/mu - mu/2, phi(x) = e^epsilon phi(x + mu), hence

    delta(epsilon) = phi(x) [R(x) - R(x + mu)],     R(s) = Phi(-s) / phi(s)   (the Mills ratio).               (2)

This form needs no e^epsilon and does not underflow. Where the difference would cancel, it is integrated
instead:

    R(x) - R(x + mu) = int_x^{x + mu} H(s) ds,      H(s) = -R'(s) = 1 - s R(s) > 0.                            (3)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from fieldfare.accounting.event import CostEvent, Price, Words
from fieldfare.errors import OutOfRange
from fieldfare.lazily import scipy

_LOG_ROOT_2PI = 0.5 * math.log(2.0 * math.pi)
_NODES, _WEIGHTS = (each.tolist() for each in np.polynomial.legendre.leggauss(8))


def _mills(s: float) -> float:
    """Return the Mills ratio R(s) for s > -35; smaller arguments overflow."""
    return math.sqrt(math.pi / 2) * float(scipy.special.erfcx(s / math.sqrt(2)))


def _mills_slope(s: float) -> float:
    """Return H(s) = 1 - s R(s) to full relative precision."""
    if s < 2:
        return 1 - s * _mills(s)
    # The continued fraction R / (s + 2/(s + 3/...)): what is cut off is below 1e-16 of it.
    ratio = 0.0
    for n in range(12 + int(480 / (s * s)), 0, -1):
        ratio = n / (s + ratio)
    return _mills(s) * ratio


def _log_bracket(x: float, mu: float) -> float:
    """log(R(x) - R(x + mu)), x > -30."""
    if mu > 0.1 * max(1.0, x):
        return math.log(_mills(x) - _mills(x + mu))
    total = math.fsum(w * _mills_slope(x + 0.5 * mu * (t + 1)) for t, w in zip(_NODES, _WEIGHTS, strict=True))
    return math.log(0.5 * mu) + math.log(total)


def gaussian_log_delta(mu: float, epsilon: float) -> float:
    """log delta(epsilon) of a mu-GDP mechanism, equation (1), for mu >= 0 and epsilon >= 0; -inf for mu = 0.

    delta is accurate to 1e-12 relative for mu in [1e-6, 50] while delta > 1e-300. Raises `BadInput` for
    arguments that are negative or not a number.
    """
    _require_mu(mu)
    if not epsilon >= 0:
        raise OutOfRange(f"epsilon = {epsilon}", "must be at least 0.", "0")
    if mu == 0 or epsilon == math.inf:
        return -math.inf
    if mu == math.inf:
        return 0.0
    x = epsilon / mu - mu / 2
    if x < -1:
        # Phi(-x) > 0.8 and the second term is below phi(x) R(x + mu): no cancellation, no overflow of R(x).
        second = math.exp(_log_density(x)) * _mills(x + mu)
        return math.log1p(-(float(scipy.special.ndtr(x)) + second))
    if mu > 1e150 or x > 1e150:
        return -math.inf
    return _log_density(x) + _log_bracket(x, mu)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return delta(epsilon) of a mu-GDP mechanism: the smallest delta for which it is (epsilon, delta)-DP.
    See the module.
    """
    return math.exp(gaussian_log_delta(mu, epsilon))


@lru_cache(maxsize=4096)
def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon >= 0 for which a mu-GDP mechanism is (epsilon, delta)-DP; 0 < delta < 1.

    The inverse of (1) to about 1e-13 relative where that problem is well conditioned. inf for mu = inf or
    beyond 1e150. Raises `BadInput`.
    """
    _require_mu(mu)
    _require_delta(delta)
    if mu == 0:
        return 0.0
    if mu > 1e150:
        return math.inf
    target = math.log(delta)
    if gaussian_log_delta(mu, 0.0) <= target:
        return 0.0
    # delta(epsilon) <= Phi(-x) <= exp(-x^2/2) for x >= 0: the root lies at or below x = sqrt(2 log(1/delta)).
    high = mu * (mu / 2 + math.sqrt(-2 * target))
    return _newton_root(mu, target, high) or _decreasing_root(
        lambda epsilon: gaussian_log_delta(mu, epsilon) - target, 0.0, high
    )


def _newton_root(mu: float, target: float, high: float) -> float:
    """Return the root of log delta(epsilon) = `target` below `high`, from above as `_decreasing_root`; 0
    where it is not sure.

    By Newton's method, since equation (2) gives the slope as well: d log delta / d epsilon = -phi(x) R(x +
    mu) / delta.
    """
    # A first guess from delta(epsilon) ~ phi(x) mu H(x), H(x) ~ 1 / (1 + x^2), for small mu; else from the bound.
    x = high / mu - mu / 2
    for _ in range(3):
        x = math.sqrt(max(0.0, 2 * (math.log(mu) - math.log1p(x * x) - _LOG_ROOT_2PI - target)))
    epsilon = mu * (x + mu / 2) if mu < 1 else high
    for _ in range(50):
        value = gaussian_log_delta(mu, epsilon)
        slope = -math.exp(_log_density(epsilon / mu - mu / 2) + math.log(_mills(epsilon / mu + mu / 2)) - value)
        step = (value - target) / slope
        if not (math.isfinite(step) and 0 < epsilon - step <= high):
            return 0.0
        epsilon -= step
        if abs(step) <= 1e-11 * epsilon:
            break
    # Convergence is quadratic, so what is left is round-off. Go up until the delta is not above the target.
    for ulps in (0, 1, 2, 4, 8, 16):
        above = epsilon * (1 + ulps * 2.0**-52)
        if gaussian_log_delta(mu, above) <= target:
            return above
    return 0.0


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu for which every mu-GDP mechanism is (epsilon, delta)-DP; epsilon >= 0, 0 < delta
    < 1.

    Its reciprocal is the analytic Gaussian mechanism's noise multiplier at sensitivity 1. Raises `BadInput`.
    """
    _require_delta(delta)
    if not 0 <= epsilon < math.inf:
        raise OutOfRange(f"epsilon = {epsilon}", "must be a finite number of at least 0.", "0")
    # delta rises with mu: double until it is above the target, then halve until it is below.
    target = math.log(delta)
    high = 1.0
    while gaussian_log_delta(high, epsilon) <= target:
        high *= 2
    low = high
    while gaussian_log_delta(low, epsilon) > target:
        low /= 2
    root = _decreasing_root(lambda s: target - gaussian_log_delta(math.exp(s), epsilon), math.log(low), math.log(high))
    return math.exp(root)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return epsilon at `delta` of any rho-zCDP mechanism: looser than the exact curve of the Gaussian with
    that rho.

    inf over alpha > 1 of rho alpha + log(1/(alpha delta))/(alpha - 1) + log(1 - 1/alpha), cut at 0 (Canonne,
    Kamath and Steinke 2020, Proposition 12; Bun and Steinke 2016 for rho-zCDP). Raises `BadInput`.
    """
    if not rho >= 0:
        raise OutOfRange(f"rho = {rho}", "must be at least 0.", "0")
    _require_delta(delta)
    if rho == 0:
        return 0.0
    if rho == math.inf:
        return math.inf
    # The derivative times (alpha - 1)^2 is rho (alpha - 1)^2 - log(1/(alpha delta)), increasing in alpha.
    log_inverse = -math.log(delta)

    def slope(s: float) -> float:
        above = math.exp(s)
        return log_inverse - math.log1p(above) - rho * above * above

    high = 0.5 * math.log(max(log_inverse, 1e-300) / rho)  # alpha >= 1 only lowers the left part
    low = high
    while slope(low) <= 0:
        low -= 1
    above = math.exp(_decreasing_root(slope, low, high)) if slope(high) < 0 else math.exp(high)
    alpha = 1 + above
    return max(0.0, rho * alpha + (log_inverse - math.log(alpha)) / above + math.log(above) - math.log1p(above))


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Return delta at `epsilon` >= 0 of any rho-zCDP mechanism: the inverse of `zcdp_epsilon` in delta.
    Raises `BadInput`.

    inf over alpha > 1 of exp((alpha - 1)(rho alpha - epsilon + log(1 - 1/alpha))) / alpha.
    """
    if not (rho >= 0 and epsilon >= 0):
        raise OutOfRange(f"rho = {rho}, epsilon = {epsilon}", "must be at least 0.", "0")
    if rho == 0 or epsilon == math.inf:
        return 0.0
    if rho == math.inf:
        return 1.0

    # Minus the derivative of the exponent, which increases with alpha.
    def fall(s: float) -> float:
        above = math.exp(s)
        return epsilon + math.log1p(1 / above) - rho * (1 + 2 * above)

    low = high = 0.0
    while fall(low) < 0:
        low -= 1
    while fall(high) > 0:
        high += 1
    above = math.exp(_decreasing_root(fall, low, high))
    log_delta = above * (rho * (1 + above) - epsilon - math.log1p(1 / above)) - math.log1p(above)
    return min(1.0, math.exp(min(0.0, log_delta)))


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho for which `zcdp_epsilon(rho, delta)` is at most `epsilon` > 0. Raises `BadInput`."""
    if not 0 < epsilon < math.inf:
        raise OutOfRange(f"epsilon = {epsilon}", "must be a finite number above 0.", "1")
    _require_delta(delta)
    high = 1.0
    while zcdp_epsilon(high, delta) <= epsilon:
        high *= 2
    low = high
    while zcdp_epsilon(low, delta) > epsilon:
        low /= 2
    root = _decreasing_root(lambda s: epsilon - zcdp_epsilon(math.exp(s), delta), math.log(low), math.log(high))
    return math.exp(root)


def _log_density(x: float) -> float:
    return -0.5 * x * x - _LOG_ROOT_2PI


def _decreasing_root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return a zero of a decreasing function, function(low) >= 0 >= function(high), from above: function <= 0 there."""
    at_low, at_high = function(low), function(high)
    if at_high > 0:  # rounding at the analytic end of the bracket
        return high
    side = 0
    for step in range(300):
        width = high - low
        if width <= 2e-16 * max(abs(low), abs(high)) or at_low == 0 or at_high == 0:
            break
        # Illinois false position; every third step bisects, as a safeguard.
        middle = low + width / 2
        if step % 3 != 2 and math.isfinite(at_low) and math.isfinite(at_high):
            guess = high - at_high * width / (at_high - at_low)
            middle = guess if low < guess < high else middle
        if not low < middle < high:  # the bracket is two neighbouring floats wide
            break
        value = function(middle)
        if value > 0:
            low, at_low = middle, value
            at_high = at_high / 2 if side > 0 else at_high
            side = 1
        else:
            high, at_high = middle, value
            at_low = at_low / 2 if side < 0 else at_low
            side = -1
    return low if at_low == 0 else high


def _require_mu(mu: float) -> None:
    if not mu >= 0:
        raise OutOfRange(f"mu = {mu}", "must be at least 0.", "0")


def _require_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise OutOfRange(f"delta = {delta}", "must be strictly between 0 and 1.", "1e-6")


@dataclass(frozen=True)
class Gaussian(CostEvent):
    """Plain Gaussian mechanisms: they compose exactly by mu^2, also adaptively (Dong et al. 2022, Corollary
    3.3).

    mu_squared: sum of (sensitivity / noise standard deviation)^2, at least 0.
    """

    rank: ClassVar = 0
    mu_squared: float

    @property
    def words(self) -> Words:
        return Words(
            "gaussian",
            "exact Gaussian trade-off of one correlated release",
            "Gaussian DP, stated also as zero-concentrated and approximate DP",
        )

    def curve(self, delta: float) -> float:
        return gaussian_epsilon(math.sqrt(self.mu_squared), delta)

    def delta(self, epsilon: float) -> float:
        return gaussian_delta(math.sqrt(self.mu_squared), epsilon)

    def price(self, leak: float) -> Price:
        return Price(self.mu_squared, 0.0)

    def compose(self, other: CostEvent) -> Gaussian | None:
        return Gaussian(self.mu_squared + other.mu_squared) if isinstance(other, Gaussian) else None

    def without_amplification(self) -> Gaussian:
        return self

    def to_json(self) -> float:
        return self.mu_squared
