"""The best of sealed trials: of K trials, K a secret number, only the best is ever shown.

Every trial is a post-processing of N(b mu, 1), b being the world, with settings drawn apart from the data;
scores are ordered, ties by coins. K has a public law p_1, ..., p_n with generating function f(x) = sum p_k
x^k. Nothing but the best of the K is shown: no score, no loser, and not K, by a log or by the time that
trials take. So n trials are always made, and the first K of them count.

**Theorem.** With L(u) = mu^2 / 2 + mu Phi^-1(u), r(u) = max over v <= u of f'(v) / f'(Phi(Phi^-1(v) - mu)), R
= r(1) and g as equation (1) of `gaussian`, for all real e and both orders of the worlds, H_e(best || best')
is at most each of

    int_0^1 f'(u) (1 - exp(e - L(u)) / r(u))_+ du,                                                                  (1)
    E[K] g_mu(e - ln R),                                                                                            (2)
    sum_k p_k g_(mu sqrt k)(e).                                                                                     (3)

*Proof.* Let Q, Q' be a trial's law with its Gaussian observation X, and F, F' its chances of a score of at
most s. The best of K has density f'(F) with respect to Q: the sum over k of p_k k F^(k-1). So H_e is the
integral over Q of (f'(F) - exp(e - L) f'(F'))_+, where L = log dQ / dQ' is a function of X, normal with mean
mu^2 / 2 and variance mu^2 under Q. "Score at most s" is a test of the two worlds, so F' >= Phi(Phi^-1(F) -
mu), and f' increases: f'(F') >= f'(F) / r(F). What is left is the mean of c(F, L), c(u, l) = f'(u) (1 - exp(e
- l) / r(u))_+, with F uniform and L as above, however they depend on each other. dc/dl = exp(e - l) f'(u) /
r(u) where it is not 0, and r and f' / r increase with u: where r stands still f' does, and elsewhere f' / r =
f'(Phi(Phi^-1(u) - mu)). So c is supermodular, its mean is greatest where F and L rise together, and that is
(1). (2) follows from (1) by f' <= f'(1) = E[K] and r <= R. For (3): given K = k, the best is a
post-processing of k trials, and they of N(b mu sqrt k, 1). K has one law in both worlds, and H_e is jointly
convex. Swapped worlds have the same L, and the same g. QED

(1) is near the truth where e is large, (3) where it is small; the price is that of the lower hull of all
three. In (1) the integrand increases with u, so its values at the right ends of intervals give no less than
the integral. Liu and Talwar 2019 and Papernot and Steinke 2022 (arXiv 2110.03620) have the question, with
bounds by Renyi divergences.
"""

from __future__ import annotations

import itertools
import math
import secrets
from functools import lru_cache

import numpy as np

from fieldfare.accounting.gaussian import gaussian_delta
from fieldfare.arrays import Floats
from fieldfare.lazily import scipy

MOST_TRIALS = 64
_CELLS, _CURVE = 20_000, 400
LARGEST_EXPONENT = 700.0  # beyond, exp(epsilon) is no float, and the hull of a curve would lose its end


def law(trials: int) -> Floats:
    """Return p_1, ..., p_n, shape (trials,): p_k in proportion to 1 / k, the logarithmic law cut at n."""
    weights = 1.0 / np.arange(1, trials + 1, dtype=np.float64)
    chances: Floats = np.asarray(weights / weights.sum(), np.float64)
    return chances


def draw(trials: int) -> int:
    """Return K of `law`, exactly, from fresh secret bits. Nobody may be told it."""
    whole = math.lcm(*range(1, trials + 1))
    ends = list(itertools.accumulate(whole // k for k in range(1, trials + 1)))
    place = secrets.randbelow(ends[-1])
    return next(k for k, end in enumerate(ends, start=1) if place < end)


def density(chances: Floats, rank: Floats) -> Floats:
    """Return f'(rank), shape of `rank`."""
    value: Floats = np.asarray(
        np.polynomial.polynomial.polyval(rank, chances * np.arange(1, chances.size + 1)), np.float64
    )
    return value


def curve(mu: float, chances: Floats, epsilons: Floats) -> Floats:
    """Return the least of (1), (2) and (3), rounded up, for each epsilon >= 0, shape of `epsilons`.

    Args:
        mu: of each trial.
        chances: the probability of 1, 2, ... trials, shape (trials,), from `law`.
        epsilons: at least 0.
    """
    # Right ends of cells, closer together near 1, where the loss is large.
    ends = np.unique(np.concatenate([np.linspace(0, 1, _CELLS + 1)[1:], 1 - np.geomspace(1e-16, 0.5, _CELLS)]))
    left = np.concatenate([[0.0], ends[:-1]])
    whole, loss = density(chances, ends), mu * mu / 2 + mu * scipy.special.ndtri(ends)
    # No less than r at the right end: both parts of the quotient at the end of the cell that makes it larger.
    ratio = np.maximum.accumulate(whole / density(chances, scipy.special.ndtr(scipy.special.ndtri(left) - mu)))
    expected, shift = float(chances @ np.arange(1, chances.size + 1)), math.log(ratio[-1])
    found = []
    for epsilon in epsilons.tolist():
        kept = np.clip(1.0 - np.exp(np.minimum(epsilon - loss, 700.0)) / ratio, 0.0, 1.0)
        mixed = sum(p * gaussian_delta(mu * math.sqrt(k), epsilon) for k, p in enumerate(chances.tolist(), start=1))
        tail = expected * gaussian_delta(mu, epsilon - shift) if epsilon >= shift else 1.0
        found.append(min(1.0, float((ends - left) @ (whole * kept)), mixed, tail) * (1 + 1e-9))
    return np.array(found)


def mu_of_curve(epsilons: Floats, above: Floats) -> float:
    """Return the least mu, rounded up, whose Gaussian curve lies above every curve, in both orders, that
    these points bound.

    epsilons: from 0 on, shape (n,). above: bounds of delta at them. A true curve is convex in exp(epsilon),
    so the lower hull of bounds is a bound, and each segment of it is priced exactly.
    """
    # As a function of x = exp(e): (0, 1), the swapped order at 1/x (delta(-e) = 1 - x + x delta'(e)), then the grid.
    x = np.concatenate([[0.0], np.exp(-epsilons[:0:-1]), np.exp(epsilons)])
    below = 1.0 - np.exp(-epsilons[:0:-1]) + np.exp(-epsilons[:0:-1]) * above[:0:-1]
    points = list(zip(x.tolist(), np.concatenate([[1.0], below, above]).tolist(), strict=True))
    hull: list[tuple[float, float]] = []
    for point in points:
        while len(hull) > 1 and _turns_down(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    mu = 0.0
    for (x0, d0), (x1, d1) in itertools.pairwise(hull):
        a = (d0 - d1) / (x1 - x0)  # on this segment delta = m - x a
        m = d0 + x0 * a
        if 0 < a < 1 and 0 < m < 1:
            mu = max(mu, float(scipy.special.ndtri(m) - scipy.special.ndtri(a)))
    return math.nextafter(mu * (1 + 1e-9), math.inf)


def _turns_down(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    return (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0])


def largest_mu(budget: float, trials: int, leak: float) -> float:
    """Return the mu of each of so many sealed trials whose best costs no more than mu `budget`, to one part
    in a thousand.

    Args:
        budget: the mu that the best trial may cost.
        trials: how many there are at most.
        leak: as in `least_mu`.
    """
    low, high = 0.0, budget
    while high - low > 1e-3 * budget:
        middle = (low + high) / 2
        low, high = (middle, high) if least_mu(middle, trials, leak) <= budget else (low, middle)
    return low


@lru_cache(maxsize=256)
def least_mu(mu: float, trials: int, leak: float) -> float:
    """Return the least mu*, rounded up, for which the best of sealed trials of `mu` is a post-processing of
    E(mu*, leak); by (3) never above that of all trials charged.

    leak: above 0; however small: beyond the end of the grid, all that is left of the curve is below it.
    """
    chances, end, charged = law(trials), 1.0, mu * math.sqrt(trials) * (1 + 1e-15)
    while trials * gaussian_delta(mu * math.sqrt(trials), end) > leak:
        end *= 1.25
    if mu == 0 or end > LARGEST_EXPONENT:
        return charged
    epsilons = np.concatenate([[0.0], np.geomspace(1e-3, 1.0, _CURVE) * end])
    above = curve(mu, chances, epsilons)
    if not 0 < leak < 1 or above[-1] > leak:
        raise ValueError(f"no price of a leak of {leak}")
    return min(charged, mu_of_curve(epsilons, np.maximum(0.0, above - leak) / (1 - leak)))
