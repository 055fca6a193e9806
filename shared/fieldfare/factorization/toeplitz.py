"""Lower-triangular Toeplitz strategies, described by the first columns c of C and b of B = C^-1.

Column t of C is c shifted down t rows and cut at the last released row, so every norm that the accountant
needs is a cumulative sum. For i <= j < n the inner product of columns i and j is

    <C_i, C_j> = g_l(j) = sum_{v < n - j} c_v c_{v + l},   l = j - i.                                           (1)

**Sensitivity.** A user who takes part in the rounds of a pattern P changes C x by sum_{t in P} C_t u_t^T with
||u_t|| <= 1, hence by at most sqrt(sum_{i,j in P} |<C_i, C_j>|). Where no inner product is negative, this is the norm
of the summed columns, and equal u_t attain it. Where one is negative, opposed u_t exceed the norm of the summed
columns. So every bound below sums absolute values.

*Evenly spaced patterns.* Let t_0 < t_1 < ... have gaps of at least b. Then t_j >= j b and t_j - t_i >= (j -
i) b, so

    sum_{i,j} |<C_ti, C_tj>| <= sum_{i,j} D(|i - j| b, max(i, j) b),   D(l, r) = max_{l' >= l, j' >= r} |g_l'(j')|. (2)

If c is non-negative and non-increasing, (1) decreases in l and in j. Then D is attained at (l, r) itself, (2)
is the value of the pattern {0, b, ..., (k-1) b}, and that pattern is the exact maximum (Kalinin and Lampert
2024, Theorem 2, for any k). The condition is checked, never assumed. Without it, (2) is an upper bound and is
reported as one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from fieldfare.arrays import Floats, Indices, fftconvolve, lfilter
from fieldfare.errors import OutOfRange, WrongForm
from fieldfare.factorization.sensitivity import Sensitivity, require_increasing
from fieldfare.lazily import scipy
from fieldfare.participation import IN_STEP, Participation

# t -> (||C_t||^2, (|<C_0, C_t>|, ..., |<C_{t-1}, C_t>|)), all rows of C; an empty array where all are zero.
ColumnProducts: TypeAlias = Callable[[int], tuple[float, Floats]]

# Largest k^2 for which bound (2) is tabulated; beyond it only the triangle inequality is used.
_TABLE = 4_000_000
# Relative slack below which an upper bound counts as attained by a pattern that was evaluated.
_CLOSE = 1e-12
# Products for one round up to which they are summed directly; beyond, by FFT with its rounding added on top.
_DIRECT = 4_000_000


def coefficients(values: ArrayLike, n: int, *, name: str = "coefficients") -> Floats:
    """Return the first n entries of a coefficient vector as float64, zero-padded.

    Args:
        values: the first column of C or B, shape (m,) with m >= 1.
        n: the length of the result.
        name: what error messages call `values`.

    Returns:
        Shape (n,).

    Raises:
        BadInput: `values` is empty, not finite or not a vector, or its first entry, the diagonal, is not
            positive.
    """
    c = np.asarray(values, dtype=np.float64)
    if c.ndim != 1 or c.size == 0:
        raise WrongForm(f"{name} of shape {c.shape}", "must be a vector with at least one entry.")
    if not np.isfinite(c).all():
        raise OutOfRange(f"{name}[{int(np.argmin(np.isfinite(c)))}]", "must be finite.")
    if c[0] <= 0:
        raise OutOfRange(f"{name}[0] = {c[0]}", "must be positive: it is the matrix's diagonal.")
    out = np.zeros(n)
    out[: min(n, c.size)] = c[:n]
    return out


def matrix(c: Floats, n: int) -> Floats:
    """Return the n x n lower-triangular Toeplitz matrix with first column c (zero-padded). For tests and small n."""
    first = coefficients(c, n)
    row = np.zeros(n)
    row[0] = first[0]
    return np.asarray(scipy.linalg.toeplitz(first, row), dtype=np.float64)


def inverse(c: ArrayLike, n: int) -> Floats:
    """Return the first n coefficients of the inverse: b_0 = 1/c_0, b_t = -(1/c_0) sum_{j=1..t} c_j b_{t-j}.
    O(n len(c)) time.
    """
    values = np.asarray(c, dtype=np.float64)
    first = coefficients(values, max(1, min(n, values.size)))
    impulse = np.zeros(n)
    impulse[0] = 1.0
    return np.asarray(lfilter([1.0], first, impulse), dtype=np.float64)


def round_to_float32(b: Floats) -> Floats:
    """Return b rounded to float32 values, as float64: what is charged is what a float32 stream multiplies by.

    Values below float32's normal range become 0 here, because some processors make them 0 and others do not.
    """
    near = b.astype(np.float32)
    return np.where(np.abs(near) < np.finfo(np.float32).tiny, 0.0, near).astype(np.float64)


def row_norms(b: Floats) -> Floats:
    """Return ||row t of B||, shape (n,): the root of the running sum of squares of the coefficients."""
    return np.asarray(np.sqrt(np.cumsum(np.square(b))), dtype=np.float64)


def prefix_row_norms(b: Floats) -> Floats:
    """Return ||row t of A B||, shape (n,), with A the prefix sums."""
    return row_norms(np.cumsum(b))


def is_monotone(c: Floats) -> bool:
    """Return whether c is non-negative and non-increasing, the condition of the exact sensitivity formula. No
    tolerance.
    """
    return bool(np.all(c >= 0) and np.all(np.diff(c) <= 0))


def spaced_sum(c: Floats, separation: int, count: int) -> Floats:
    """Return sum_{j < count} of c shifted down by j `separation`, cut at len(c): shape (len(c),), O(n)
    whatever `count`.
    """
    n, b = len(c), min(separation, len(c))
    rows = -(-n // b)
    padded = np.zeros(rows * b)
    padded[:n] = c
    summed = np.cumsum(padded.reshape(rows, b), axis=0)
    if count < rows:
        summed[count:] -= summed[:-count].copy()
    return summed.reshape(-1)[:n]


def evenly_spaced_norm(c: Floats, separation: int, count: int) -> float:
    """Return ||sum_{j < count} C_{j separation}|| for the len(c)-round matrix."""
    if is_monotone(c) or count * separation >= len(c):
        return float(np.sqrt(np.sum(np.square(spaced_sum(c, separation, count)))))
    # `spaced_sum` subtracts long running sums, which loses digits where terms of either sign cancel.
    summed = np.zeros(len(c))
    for first in range(0, count * separation, separation):
        summed[first:] += c[: len(c) - first]
    return float(np.sqrt(np.sum(np.square(summed))))


def sensitivity(c: Floats, participation: Participation) -> Sensitivity:
    """Return the sensitivity of the len(c)-round Toeplitz strategy with coefficients c under `participation`.

    Formal guarantee: the result is at least max over allowed patterns P of sqrt(sum_{i,j in P} |<C_i, C_j>|).
    It is equal ("exact") for one participation, for non-negative non-increasing c (Kalinin and Lampert 2024,
    Theorem 2), for bands no wider than the separation, and for uncapped fixed orders with non-negative inner
    products. Otherwise it is the smallest of this module's upper bounds; `bound` and `how` say which.

    Args:
        c: coefficients of C, shape (n,), one for each released round.
        participation: the patterns that the selector enforces.
    """
    n = len(c)
    b, k = participation.separation_and_count(n)
    k = min(k, -(-n // b))
    if k <= 1:
        return Sensitivity(float(np.linalg.norm(c)), "exact", "norm of the first column, the largest")
    spaced = evenly_spaced_norm(c, b, k)
    allowed = participation.allows(range(0, k * b, b), n)  # a pattern that cannot occur attains nothing
    if is_monotone(c):
        how = "evenly spaced pattern; coefficients checked non-negative and non-increasing"
        return Sensitivity(spaced, "exact" if allowed else "upper bound", how)
    in_step = isinstance(participation, IN_STEP)
    if in_step and k == -(-n // b):
        return _fixed_order(c, b, k)
    bounds = [(_triangle(c, b, k), "triangle inequality over column norms")]
    if k * k <= _TABLE:
        bounds.append((_spaced_bound(c, b, k, b if in_step else 1), "largest inner product at each lag and row"))
    value, how = min(bounds)
    if allowed and value <= spaced * (1 + _CLOSE):
        return Sensitivity(max(value, spaced), "exact", f"{how}, attained by the evenly spaced pattern")
    return Sensitivity(value, "upper bound", how)


def _triangle(c: Floats, b: int, k: int) -> float:
    """Return sum_j ||C_{j b}||: a later column is no longer than an earlier one, and the j-th round is at least j b."""
    energy = np.cumsum(np.square(c))
    return float(np.sum(np.sqrt(energy[len(c) - 1 - b * np.arange(k)])))


def inner_products(c: Floats, lag: int) -> Floats:
    """Return g_lag(j) of equation (1) for j = lag, ..., n - 1: shape (n - lag,)."""
    n = len(c)
    return np.asarray(np.cumsum(c[: n - lag] * c[lag:])[::-1], dtype=np.float64)


def _spaced_bound(c: Floats, b: int, k: int, lag_step: int) -> float:
    """Return the square root of the right-hand side of (2); lags are multiples of `lag_step` (fixed orders),
    at least b apart.
    """
    n = len(c)
    nonzero = int(np.flatnonzero(c)[-1])  # inner products vanish beyond this lag
    total = float(np.sum(np.cumsum(np.square(c))[n - 1 - b * np.arange(k)]))
    largest = np.zeros(k)  # largest[q] = max |g_l(j)| over the lags seen so far and j >= q b
    rows = b * np.arange(k)
    level = k - 1
    start = min(nonzero, n - 1)
    for lag in range(start - start % lag_step, b - 1, -lag_step):
        # Smaller lags do not reach index distance `level`, so its largest products are known: add them.
        while level > lag // b:
            total += 2.0 * float(np.sum(largest[level:]))
            level -= 1
        suffix = np.maximum.accumulate(np.abs(inner_products(c, lag))[::-1])[::-1]
        largest = np.maximum(largest, suffix[np.clip(rows - lag, 0, None)] * (rows < n))
    for distance in range(level, 0, -1):
        total += 2.0 * float(np.sum(largest[distance:]))
    return float(np.sqrt(total))


def _fixed_order(c: Floats, period: int, k: int) -> Sensitivity:
    """Try every offset of an uncapped fixed order and return the worst. More rounds only add absolute values,
    so whole classes suffice.
    """
    signed, absolute = np.zeros(period), np.zeros(period)
    for distance in range(k):
        # Entry x of the lag's inner products is the pair (x, x + lag): each belongs to the offset x mod period.
        products = inner_products(c, distance * period)
        offset = np.arange(len(products)) % period
        weight = 2.0 if distance else 1.0
        signed += weight * np.bincount(offset, products, minlength=period)
        absolute += weight * np.bincount(offset, np.abs(products), minlength=period)
    value = float(np.sqrt(absolute.max()))
    if value <= float(np.sqrt(max(signed.max(), 0.0))) * (1 + _CLOSE):
        return Sensitivity(value, "exact", "every offset of the fixed order")
    return Sensitivity(value, "upper bound", "every offset of the fixed order, inner products without their signs")


def pattern_norms(c: Floats, patterns: Sequence[Sequence[int]]) -> Floats:
    """Return sqrt(sum_{i,j in P} |<C_i, C_j>|) for every given pattern P, shape (len(patterns),), n = len(c)
    rounds.

    This is the norm of the summed columns when no inner product is negative. Rounds at or after n are not
    released yet and contribute nothing. Cost: one pass over c for each distinct lag and one lookup for each
    pair of rounds.

    Raises:
        BadInput: a pattern is not increasing from 0.
    """
    n = len(c)
    squared = np.zeros(len(patterns))
    by_size: dict[int, list[int]] = {}
    for index, pattern in enumerate(patterns):
        by_size.setdefault(len(pattern), []).append(index)
    lags: list[Indices] = []
    later: list[Indices] = []
    owner: list[Indices] = []
    energy = np.concatenate([np.cumsum(np.square(c))[::-1], [0.0]])
    for size, indices in by_size.items():
        if size == 0:
            continue
        users = np.asarray(indices, dtype=np.int64)
        rounds = np.array([patterns[i] for i in indices], dtype=np.int64).reshape(len(users), size)
        if (rounds < 0).any() or (np.diff(rounds, axis=1) <= 0).any():
            for i in indices:
                require_increasing(patterns[i])  # raises for the first bad one
        squared[users] += energy[np.minimum(rounds, n)].sum(axis=1)
        for first, second in itertools.combinations(range(size), 2):
            inside = rounds[:, second] < n
            lags.append((rounds[:, second] - rounds[:, first])[inside])
            later.append(rounds[inside, second])
            owner.append(users[inside])
    if lags:
        lag, row, users = np.concatenate(lags), np.concatenate(later), np.concatenate(owner)
        order = np.argsort(lag, kind="stable")
        lag, row, users = lag[order], row[order], users[order]
        cuts = [0, *(np.flatnonzero(np.diff(lag)) + 1).tolist(), len(lag)]
        for lo, hi in itertools.pairwise(cuts):
            if lo < hi:
                products = np.abs(inner_products(c, int(lag[lo])))
                squared += 2.0 * np.bincount(users[lo:hi], products[row[lo:hi] - lag[lo]], minlength=len(squared))
    return np.asarray(np.sqrt(squared), dtype=np.float64)


def column_products(c: Floats) -> ColumnProducts:
    """Return the inner products of column t with all earlier columns, for a strategy of len(c) rounds.

    Args:
        c: coefficients of C, shape (T,).

    Returns:
        A function of t that gives ||C_t||^2 and |<C_0, C_t>|, ..., |<C_{t-1}, C_t>|, shape (t,). Where
            products are
        found by FFT they are raised by more than its round-off, so that their sum stays an upper bound.
    """
    horizon = len(c)
    reach = int(np.flatnonzero(c)[-1])
    energy = np.cumsum(np.square(c))

    def products(t: int) -> tuple[float, Floats]:
        own, most = c[: horizon - t], min(t, reach)
        out = np.zeros(t)
        if most:
            # <C_{t-l}, C_t> = sum_{v < T-t} c_v c_{v+l} for the lags l = 1, ..., most.
            whole = c[: min(horizon, own.size + most)]
            if own.size * most <= _DIRECT:
                lagged = np.correlate(whole, own, mode="valid")
            else:
                lagged = np.abs(fftconvolve(whole, own[::-1])) + 1e-13 * energy[-1]
            out[t - most :] = np.abs(lagged[1 : most + 1])[::-1]
        return float(energy[horizon - t - 1]), out

    return products


def autocovariance(rows: Floats, lags: int) -> tuple[float, ...]:
    """Return r(0) = 1, r(1), ...: the autocorrelation of each row, summed over rows and divided by that of
    lag 0.

    Args:
        rows: what each coordinate of z adds over time, shape (coordinates, rounds). The coefficients of B as
            the only row give the stationary autocovariance of Toeplitz noise.
        lags: the most values to return. Trailing zeros are cut.
    """
    size = 1 << (2 * rows.shape[1] - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(rows, size, axis=1)) ** 2
    overlap = np.fft.irfft(spectrum.sum(axis=0), size)[: min(lags, rows.shape[1])]
    values = overlap / overlap[0]
    kept = np.flatnonzero(np.abs(values) > 1e-12)  # smaller values are the round-off of the transform
    return tuple(float(value) for value in values[: kept[-1] + 1])
