"""Square lower-triangular strategies given by their whole matrix: factor, and bounds over patterns.

With X = C^T C, a pattern P costs at most sum_{i,j in P} |X_ij|, and exactly that when no product is negative.
For patterns of separated rounds the maximum has an upper bound:

    sum_{i,j in P} |X_ij| <= sum_{i in P} r_i,   r_i = largest sum_{j in P'} |X_ij| over allowed P' containing i,   (1)

both maxima by dynamic programming over rounds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fieldfare.arrays import Floats
from fieldfare.factorization.sensitivity import require_increasing
from fieldfare.lazily import scipy

# Patterns whose products are gathered together: bounds the memory.
_AT_A_TIME = 4096


def factor(gram: Floats) -> Floats:
    """Lower-triangular R with positive diagonal and R^T R = gram (a Cholesky factorisation from the last row
    up).

    Raises `numpy.linalg.LinAlgError` when `gram` is not positive definite.
    """
    flipped = scipy.linalg.cholesky(gram[::-1, ::-1], lower=True, check_finite=False)
    return np.ascontiguousarray(flipped.T[::-1, ::-1], dtype=np.float64)


def pattern_sums(grams: Sequence[Floats], patterns: Sequence[Sequence[int]]) -> Floats:
    """Return sum_{i,j in P} gram[i, j] for every pattern P, the smallest over `grams`, shape
    (len(patterns),).

    Args:
        grams: non-negative symmetric matrices that contain every round of `patterns`.
        patterns: increasing rounds from 0.

    Raises:
        BadInput: a pattern is not increasing from 0.
    """
    by_size: dict[int, list[int]] = {}
    for index, pattern in enumerate(patterns):
        by_size.setdefault(len(pattern), []).append(index)
    sums = np.zeros(len(patterns))
    for size, members in by_size.items():
        rounds = np.array([patterns[i] for i in members], dtype=np.int64).reshape(len(members), size)
        if (rounds < 0).any() or (np.diff(rounds, axis=1) <= 0).any():
            for i in members:
                require_increasing(patterns[i])  # raises for the first bad one
        for i in range(0, len(members), _AT_A_TIME):
            part = rounds[i : i + _AT_A_TIME]
            each = [gram[part[:, :, None], part[:, None, :]].sum(axis=(1, 2)) for gram in grams]
            sums[members[i : i + _AT_A_TIME]] = np.minimum.reduce(each)
    return sums


def fixed_order_curve(strategy: Floats, period: int) -> tuple[Floats, Floats]:
    """Return the squared cost of an uncapped fixed order after 1, ..., T rounds: (upper bound, attained
    value), shape (T,) each.

    The bound is made monotone: what holds after n rounds holds before, and a bound for fewer rounds that
    exceeds the one of the horizon is cut to it.
    """
    rounds = len(strategy)
    bound, attained = np.zeros(rounds), np.zeros(rounds)
    for offset in range(min(period, rounds)):
        columns = strategy[:, offset::period]
        products = np.cumsum(columns[:, :, None] * columns[:, None, :], axis=0)
        bound = np.maximum(bound, np.abs(products).sum(axis=(1, 2)))
        attained = np.maximum(attained, products.sum(axis=(1, 2)))
    envelope: Floats = np.minimum(np.maximum.accumulate(bound), bound[-1])
    return envelope, attained


def best_separated(values: Floats, separation: int, count: int) -> float:
    """Return the largest sum of at most `count` of the non-negative `values`, at least `separation` apart.
    O(n count).

    Args:
        values: at least 0, shape (n,).
        separation: from one index to the next, at least 1.
        count: how many indices at most.
    """
    best = np.zeros(len(values) + 1)
    separation = min(separation, len(values))
    for _ in range(count):
        earlier = np.zeros(len(values))
        earlier[separation - 1 :] = best[: len(values) - separation + 1]
        best = np.concatenate([[0.0], np.maximum.accumulate(earlier + values)])
    return float(best[-1])


def triangle_bound(gram: Floats, separation: int, count: int) -> float:
    """Return the square of the largest sum of `count` separated column norms: the triangle inequality.

    Args:
        gram: products of C's columns, shape (n, n); only its diagonal is read.
        separation: rounds from one participation of a user to the next, at least 1.
        count: participations of one user at most.
    """
    return best_separated(np.sqrt(np.diag(gram)), separation, count) ** 2


def gram_bound(gram: Floats, separation: int, count: int) -> float:
    """Bound (1) for a non-negative symmetric `gram`, shape (n, n): an upper bound of max over P of sum
    gram[P, P].

    O(n^2 count) time, O(n separation count) memory.
    """
    separation = min(separation, len(gram))
    before = _before(gram, separation, count)
    after = _before(np.ascontiguousarray(gram[::-1, ::-1]), separation, count)[:, ::-1]
    sums = np.full(len(gram), -np.inf)
    for left in range(count):
        np.maximum(sums, before[left] + after[count - 1 - left], out=sums)
    return best_separated(sums + np.diag(gram), separation, count)


def _before(gram: Floats, separation: int, count: int) -> Floats:
    """Return [c, i]: the largest sum over j in P of gram[i, j], P at most c separated rounds in [0, i - separation]."""
    n = len(gram)
    best = np.zeros((count, n))
    ring = np.zeros((separation, count, n))  # ring[j % separation][c, i]: the best for row i from rounds <= j
    latest = np.zeros((count, n))
    for j in range(n - separation):
        fresh = latest.copy()
        np.maximum(fresh[1:], ring[j % separation, :-1] + gram[j], out=fresh[1:])
        ring[j % separation] = fresh
        latest = fresh
        best[:, j + separation] = fresh[:, j + separation]
    return best
