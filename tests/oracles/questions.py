"""Answers and prices of questions in another way: plain loops, own matrices, no code of `fieldfare.questions`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = Sequence[Sequence[float]]
"""Of each user, the values of the user's rows."""


def square_root(bins: int) -> NDArray[np.float64]:
    """C with C C = A, the prefix sums: c_t = binom(2t, t) 4^-t below the diagonal, with whole numbers."""
    c = [math.comb(2 * t, t) / 4**t for t in range(bins)]
    return np.array([[c[i - j] if i >= j else 0.0 for j in range(bins)] for i in range(bins)])


def quantile_errors(bins: int) -> tuple[float, float, float]:
    """(sensitivity, rms and largest error of a cumulative count at mu 1) with C of `square_root`."""
    c = square_root(bins)
    sensitivity = max(math.dist(c[:, j], np.zeros(bins)) for j in range(bins))
    # A B = A C^-1 = C, because C C = A.
    norms = np.sqrt((c**2).sum(axis=1)) * sensitivity
    return sensitivity, math.sqrt(float((norms**2).mean())), float(norms.max())


def bin_of(value: float, low: float, high: float, bins: int) -> int:
    """The bin of equal width that a value lies in; what is outside is in the first or the last."""
    if value < low:
        return 0
    if value >= high:
        return bins - 1
    return min(bins - 1, int((value - low) / (high - low) * bins))


def histogram(users: Rows, low: float, high: float, bins: int) -> list[float]:
    """How many users are in each bin, each user spread over the user's rows."""
    counts = [0.0] * bins
    for rows in users:
        known = [value for value in rows if not math.isnan(value)]
        for value in known:
            counts[bin_of(value, low, high, bins)] += 1 / len(known)
    return counts


def mean(users: Rows, low: float, high: float) -> tuple[float, int]:
    """(the mean of the means of users who have a value, how many they are)."""
    own = []
    for rows in users:
        known = [min(max(value, low), high) for value in rows if not math.isnan(value)]
        if known:
            own.append(math.fsum(known) / len(known))
    return math.fsum(own) / len(own), len(own)


def count(users: Rows, low: float, high: float) -> int:
    """How many users have a mean from low to high."""
    found = 0
    for rows in users:
        known = [value for value in rows if not math.isnan(value)]
        found += bool(known) and low <= math.fsum(known) / len(known) <= high
    return found


def area(users: Sequence[Sequence[tuple[float, int]]], bins: int) -> float:
    """The area under the ROC curve of scores in [0, 1], each user weighing one; scores of one bin are ties."""
    pairs = [(bin_of(score, 0, 1, bins), label, 1 / len(rows)) for rows in users for score, label in rows]
    won = total = 0.0
    for a, first, weight in pairs:
        for b, second, other in pairs:
            if first and not second:
                won += weight * other * (1.0 if a > b else 0.5 if a == b else 0.0)
                total += weight * other
    return won / total


def joint_mu(distances: Sequence[float], deviations: Sequence[float]) -> float:
    """mu of all answers together, for a user who moves answer i by `distances[i]` under noise of `deviations[i]`."""
    return math.sqrt(math.fsum((d / s) ** 2 for d, s in zip(distances, deviations, strict=True)))


def delta(mu: float, epsilon: float) -> float:
    """delta of N(mu, 1) against N(0, 1) at epsilon, by quadrature of (p - e^epsilon q)_+."""
    from scipy.integrate import quad

    def density(x: float, at: float) -> float:
        return math.exp(-((x - at) ** 2) / 2) / math.sqrt(2 * math.pi)

    start = epsilon / mu + mu / 2  # where p = e^epsilon q
    value: Any = quad(lambda x: density(x, mu) - math.exp(epsilon) * density(x, 0), start, start + 40, epsabs=1e-14)
    return float(value[0])


def sealed_delta(mu: float, trials: int, rest: float, epsilon: float) -> float:
    """delta at epsilon of the best of K sealed trials N(b mu, 1), with what else is told: N(b rest, 1).

    K is j of 1 to `trials` with chance in proportion to 1 / j. A trial's score is its evidence for one of the
    worlds. Both scores and both orders of the worlds are tried.
    """
    from scipy.integrate import quad
    from scipy.special import log_ndtr, ndtr

    def slope(log_below: float) -> float:  # of sum over j of x^j / j, but for a factor that all have
        return math.fsum(math.exp(j * log_below) for j in range(trials))

    whole = math.fsum(1 / j for j in range(1, trials + 1))

    def law(y: float, at: float, sign: int) -> float:
        bell = math.exp(-((y - at) ** 2) / 2) / math.sqrt(2 * math.pi)
        return bell * slope(float(log_ndtr(sign * (y - at)))) / whole

    def told(left: float) -> float:
        if rest == 0:
            return max(0.0, -math.expm1(left))
        return float(ndtr(rest / 2 - left / rest) - math.exp(left) * ndtr(-rest / 2 - left / rest))

    def one(sign: int, first: float, second: float) -> float:
        def density(y: float) -> float:
            p, q = law(y, first, sign), law(y, second, sign)
            return p * told(min(epsilon - math.log(p / q), 700.0))

        return float(quad(density, first - 12, first + 12, epsabs=1e-12, limit=400)[0])

    return max(one(sign, *worlds) for sign in (1, -1) for worlds in ((0.0, mu), (mu, 0.0)))
