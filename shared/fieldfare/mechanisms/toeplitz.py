"""Lower-triangular Toeplitz mechanisms, described by the first columns of C and B = C^-1 instead of by matrices.

Column t of C is the coefficient vector c shifted down t rows and cut at the last released row, so every norm the
accountant needs is a cumulative sum. For i <= j < n the inner product of columns i and j is

    <C_i, C_j> = g_l(j) = sum_{v < n - j} c_v c_{v + l},   l = j - i.                                           (1)

**Sensitivity.** A user who takes part in the rounds of a pattern P changes C x by sum_{t in P} C_t u_t^T with
||u_t|| <= 1, hence by at most sqrt(sum_{i,j in P} |<C_i, C_j>|). With no negative inner product this is the norm of
the summed columns, and it is attained by equal u_t; otherwise the norm of the summed columns is *not* an upper bound,
so everywhere below the absolute values are summed.

*Evenly spaced patterns.* Let t_0 < t_1 < ... have gaps of at least b. Then t_j >= j b and t_j - t_i >= (j - i) b, so

    sum_{i,j} |<C_ti, C_tj>| <= sum_{i,j} D(|i - j| b, max(i, j) b),   D(l, r) = max_{l' >= l, j' >= r} |g_l'(j')|. (2)

If c is non-negative and non-increasing, (1) decreases in l and in j, so D is attained at (l, r) itself and (2) is the
value of the pattern {0, b, ..., (k-1) b}: that pattern is the exact maximum (Kalinin and Lampert 2024, Theorem 2,
for any k). The condition is checked, never assumed; without it (2) is reported as the upper bound it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import torch
from scipy.linalg import toeplitz as _toeplitz
from scipy.signal import fftconvolve, lfilter

from fieldfare.errors import BadInput
from fieldfare.mechanisms.base import Mechanism, Sensitivity
from fieldfare.participation import CyclicPoisson, FixedOrder, Participation
from fieldfare.streams.banded import WindowStream
from fieldfare.streams.base import Stream
from fieldfare.streams.rows import MemoryStream, ReplayStream

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from fieldfare.noise import SecureNoise

    Vector = NDArray[np.float64]

_TABLE = 4_000_000
"""Largest k^2 for which bound (2) is tabulated; beyond it only the triangle inequality is used."""
_CLOSE = 1e-12
"""Relative slack below which an upper bound counts as attained by a pattern that was really evaluated."""


def coefficients(values: ArrayLike, n: int, *, name: str = "coefficients") -> Vector:
    """The first n entries of a coefficient vector as float64, zero-padded: shape (n,).

    Raises `BadInput` for an empty, non-finite or not one-dimensional vector, or a first entry that is not positive
    (the diagonal of C or B; a zero there has no inverse).
    """
    c = np.asarray(values, dtype=np.float64)
    if c.ndim != 1 or c.size == 0:
        raise BadInput(f"{name} of shape {c.shape}", "must be a vector with at least one entry.")
    if not np.isfinite(c).all():
        raise BadInput(f"{name}[{int(np.argmin(np.isfinite(c)))}]", "must be finite.")
    if c[0] <= 0:
        raise BadInput(f"{name}[0] = {c[0]}", "must be positive: it is the matrix's diagonal.")
    out = np.zeros(n)
    out[: min(n, c.size)] = c[:n]
    return out


def matrix(c: Vector, n: int) -> Vector:
    """The n x n lower-triangular Toeplitz matrix with first column c (zero-padded). For tests and small n."""
    first = coefficients(c, n)
    row = np.zeros(n)
    row[0] = first[0]
    return np.asarray(_toeplitz(first, row), dtype=np.float64)


def inverse(c: ArrayLike, n: int) -> Vector:
    """First n coefficients of the inverse: b_0 = 1/c_0, b_t = -(1/c_0) sum_{j=1..t} c_j b_{t-j}. O(n len(c)) time."""
    values = np.asarray(c, dtype=np.float64)
    first = coefficients(values, max(1, min(n, values.size)))
    impulse = np.zeros(n)
    impulse[0] = 1.0
    return np.asarray(lfilter([1.0], first, impulse), dtype=np.float64)


def single(b: Vector) -> Vector:
    """b rounded to float32 values, as float64: what a float32 stream multiplies by must be what is charged.

    Values below float32's normal range become 0 (a processor may take them for it).
    """
    near = b.astype(np.float32)
    return np.where(np.abs(near) < np.finfo(np.float32).tiny, 0.0, near).astype(np.float64)


def multiply(c: ArrayLike, d: ArrayLike, n: int) -> Vector:
    """First n coefficients of the product of two Toeplitz matrices (convolution of their coefficients)."""
    return np.asarray(lfilter(coefficients(c, n), [1.0], coefficients(d, n)), dtype=np.float64)


def row_norms(b: Vector) -> Vector:
    """||row t of B||, shape (n,): the root of the running sum of squares of the coefficients."""
    return np.asarray(np.sqrt(np.cumsum(np.square(b))), dtype=np.float64)


def prefix_row_norms(b: Vector) -> Vector:
    """||row t of A B||, shape (n,), A prefix sums; ||A B||_F^2 is the sum of their squares."""
    return row_norms(np.cumsum(b))


def prefix_error_squared(b: Vector) -> float:
    """||A B||_F^2 = sum_t (n - t) a_t^2 with a = cumsum(b), n = len(b)."""
    a = np.cumsum(b)
    return float(np.sum(np.arange(len(b), 0, -1) * a * a))


def is_monotone(c: Vector) -> bool:
    """Whether c is non-negative and non-increasing, the condition of the exact sensitivity formula. No tolerance."""
    return bool(np.all(c >= 0) and np.all(np.diff(c) <= 0))


def evenly_spaced_norm(c: Vector, separation: int, count: int) -> float:
    """||sum_{j < count} C_{j separation}|| for the len(c)-round matrix: column shifts added, O(n) whatever `count`."""
    n, b = len(c), min(separation, len(c))
    rows = -(-n // b)
    padded = np.zeros(rows * b)
    padded[:n] = c
    summed = np.cumsum(padded.reshape(rows, b), axis=0)
    if count < rows:
        if is_monotone(c):
            # Differences of long running sums lose digits only where the window has almost cancelled; sums of
            # non-negative terms of similar size do not.
            summed[count:] -= summed[:-count].copy()
        else:
            summed = np.zeros((rows, b))
            for j in range(count):
                summed[j:] += padded.reshape(rows, b)[: rows - j]
    return float(np.sqrt(np.sum(np.square(summed.reshape(-1)[:n]))))


def sensitivity(c: Vector, participation: Participation) -> Sensitivity:
    """Sensitivity of the len(c)-round Toeplitz strategy with coefficients c under `participation`.

    Exact for one participation, for non-negative non-increasing c, for bands no wider than the separation, and for
    uncapped fixed orders with non-negative inner products; otherwise the smallest of the proven bounds of this
    module. The value's `bound` and `how` say which.
    """
    n = len(c)
    b, k = participation.separation_and_count(n)
    k = min(k, -(-n // b))
    if k <= 1:
        return Sensitivity(float(np.linalg.norm(c)), "exact", "norm of the first column, the largest")
    spaced = evenly_spaced_norm(c, b, k)
    allowed = participation.allows(range(0, k * b, b), n)  # else it is only a bound: fewer patterns than assumed
    if is_monotone(c):
        how = "evenly spaced pattern; coefficients checked non-negative and non-increasing"
        return Sensitivity(spaced, "exact" if allowed else "upper bound", how)
    in_step = isinstance(participation, FixedOrder | CyclicPoisson)
    if in_step and k == -(-n // b):
        return _fixed_order(c, b, k)
    bounds = [(_triangle(c, b, k), "triangle inequality over column norms")]
    if k * k <= _TABLE:
        bounds.append((_spaced_bound(c, b, k, b if in_step else 1), "largest inner product at each lag and row"))
    value, how = min(bounds)
    if allowed and value <= spaced * (1 + _CLOSE):
        return Sensitivity(max(value, spaced), "exact", f"{how}, attained by the evenly spaced pattern")
    return Sensitivity(value, "upper bound", how)


def _triangle(c: Vector, b: int, k: int) -> float:
    """sum_j ||C_{j b}||: column norms do not increase with the column, and the j-th round is at least j b."""
    energy = np.cumsum(np.square(c))
    return float(np.sum(np.sqrt(energy[len(c) - 1 - b * np.arange(k)])))


def inner_products(c: Vector, lag: int) -> Vector:
    """g_lag(j) of equation (1) for j = lag, ..., n - 1: shape (n - lag,)."""
    n = len(c)
    return np.asarray(np.cumsum(c[: n - lag] * c[lag:])[::-1], dtype=np.float64)


def _spaced_bound(c: Vector, b: int, k: int, lag_step: int) -> float:
    """Square root of the right-hand side of (2); lags are multiples of `lag_step` (fixed orders), at least b apart."""
    n = len(c)
    nonzero = int(np.flatnonzero(c)[-1])  # inner products vanish beyond this lag
    total = float(np.sum(np.cumsum(np.square(c))[n - 1 - b * np.arange(k)]))
    largest = np.zeros(k)  # largest[q] = max |g_l(j)| over the lags seen so far and j >= q b
    rows = b * np.arange(k)
    level = k - 1
    start = min(nonzero, n - 1)
    for lag in range(start - start % lag_step, b - 1, -lag_step):
        while level > lag // b:  # no lag this large is left for index distance `level`: its share is what was seen
            total += 2.0 * float(np.sum(largest[level:]))
            level -= 1
        suffix = np.maximum.accumulate(np.abs(inner_products(c, lag))[::-1])[::-1]
        largest = np.maximum(largest, suffix[np.clip(rows - lag, 0, None)] * (rows < n))
    for distance in range(level, 0, -1):
        total += 2.0 * float(np.sum(largest[distance:]))
    return float(np.sqrt(total))


def _fixed_order(c: Vector, period: int, k: int) -> Sensitivity:
    """Every offset of an uncapped fixed order: more rounds never lower a sum of absolute values, so full classes."""
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


def pattern_norms(c: Vector, patterns: Sequence[Sequence[int]]) -> Vector:
    """sqrt(sum_{i,j in P} |<C_i, C_j>|) for every given pattern P, shape (len(patterns),), n = len(c) rounds.

    Equal to the norm of the summed columns when no inner product is negative. Rounds at or after n (not released
    yet) contribute nothing. Raises `BadInput` for rounds that are negative or not increasing.
    Cost: one pass over c per distinct lag and one lookup per pair of rounds.
    """
    n = len(c)
    squared = np.zeros(len(patterns))
    by_size: dict[int, list[int]] = {}
    for index, pattern in enumerate(patterns):
        by_size.setdefault(len(pattern), []).append(index)
    lags: list[NDArray[np.int64]] = []
    later: list[NDArray[np.int64]] = []
    owner: list[NDArray[np.int64]] = []
    energy = np.concatenate([np.cumsum(np.square(c))[::-1], [0.0]])
    for size, indices in by_size.items():
        if size == 0:
            continue
        who = np.asarray(indices, dtype=np.int64)
        rounds = np.array([patterns[i] for i in indices], dtype=np.int64).reshape(len(who), size)
        if (rounds < 0).any() or (np.diff(rounds, axis=1) <= 0).any():
            bad = int(np.flatnonzero((rounds < 0).any(axis=1) | (np.diff(rounds, axis=1) <= 0).any(axis=1))[0])
            raise BadInput(f"pattern {tuple(int(t) for t in rounds[bad])}", "must be increasing rounds from 0.")
        squared[who] += energy[np.minimum(rounds, n)].sum(axis=1)
        for first, second in itertools.combinations(range(size), 2):
            inside = rounds[:, second] < n
            lags.append((rounds[:, second] - rounds[:, first])[inside])
            later.append(rounds[inside, second])
            owner.append(who[inside])
    if lags:
        lag, row, who = np.concatenate(lags), np.concatenate(later), np.concatenate(owner)
        order = np.argsort(lag, kind="stable")
        lag, row, who = lag[order], row[order], who[order]
        cuts = [0, *(np.flatnonzero(np.diff(lag)) + 1).tolist(), len(lag)]
        for lo, hi in itertools.pairwise(cuts):
            if lo < hi:
                products = np.abs(inner_products(c, int(lag[lo])))
                squared += 2.0 * np.bincount(who[lo:hi], products[row[lo:hi] - lag[lo]], minlength=len(squared))
    return np.asarray(np.sqrt(squared), dtype=np.float64)


class MakeStream(Protocol):
    """How a Toeplitz mechanism makes its running noise."""

    def __call__(self, numel: int, noise: SecureNoise, *, dtype: torch.dtype, device: str | torch.device) -> Stream:
        """A fresh stream at row 0 of B z for vectors of `numel` elements."""
        ...  # a protocol: implemented by the functions that are passed in


def window_stream(noising_coefs: Vector, horizon: int) -> MakeStream:
    """Streams of a banded B: the last len(noising_coefs) - 1 rows of z are kept."""

    def make(numel: int, noise: SecureNoise, *, dtype: torch.dtype, device: str | torch.device) -> Stream:
        return WindowStream(numel, noise, horizon, noising_coefs[:horizon], dtype=dtype, device=device)

    return make


def row_stream(noising_coefs: Vector, horizon: int, engine: Literal["memory", "replay"]) -> MakeStream:
    """Streams of a full B, bit for bit equal: `memory` keeps all of z, `replay` draws it again from the key."""
    values = coefficients(noising_coefs, horizon)
    kind = MemoryStream if engine == "memory" else ReplayStream

    def row(t: int) -> Vector:
        return values[t::-1]

    def make(numel: int, noise: SecureNoise, *, dtype: torch.dtype, device: str | torch.device) -> Stream:
        return kind(numel, noise, horizon, row, identity=values.tobytes(), dtype=dtype, device=device)

    return make


class ToeplitzMechanism(Mechanism):
    """A mechanism with Toeplitz C and B, given by coefficients of both: everything but the stream follows from them.

    `strategy_coefs` must be the inverse of `noising_coefs` (checked: |(c * b)_t - [t = 0]| <= 1e-9 ||c||_1 scale), so
    that what is charged is what is applied.
    """

    def __init__(
        self,
        kind: str,
        rounds: int,
        strategy_coefs: ArrayLike,
        noising_coefs: ArrayLike,
        make_stream: MakeStream,
        *,
        buffers: int,
    ) -> None:
        """Coefficients are zero-padded or cut to `rounds`; `buffers` is the stream's number of vectors.

        Raises `BadInput` when the coefficients are not finite, not inverse to each other, or `rounds` < 1.
        """
        if rounds < 1:
            raise BadInput(f"rounds = {rounds}", "must be at least 1.", "1")
        self.__dict__["kind"] = kind  # one class serves several kinds, so the class attribute is shadowed here
        self.rounds = rounds
        self.strategy_coefs = coefficients(strategy_coefs, rounds, name="strategy_coefs")
        self.noising_coefs = coefficients(noising_coefs, rounds, name="noising_coefs")
        for vector in (self.strategy_coefs, self.noising_coefs):
            vector.setflags(write=False)
        product = fftconvolve(self.strategy_coefs, self.noising_coefs)[:rounds]
        product[0] -= 1.0
        scale = float(np.abs(self.strategy_coefs).max() * np.abs(self.noising_coefs).sum())
        worst = float(np.abs(product).max())
        if worst > 1e-9 * max(1.0, scale):
            raise BadInput(
                "noising_coefs", f"are not the inverse of strategy_coefs: B C differs from I by {worst:.3g}."
            )
        self._make_stream = make_stream
        self._buffers = buffers

    def __repr__(self) -> str:
        return f"{type(self).__name__}(kind={self.kind!r}, rounds={self.rounds}, buffers={self._buffers})"

    @property
    def monotone(self) -> bool:
        """Whether C's coefficients are non-negative and non-increasing: then sensitivities are exact."""
        return is_monotone(self.strategy_coefs)

    @property
    def whole(self) -> bool:
        return all((c == np.rint(c)).all() for c in (self.strategy_coefs, self.noising_coefs))

    @property
    def buffers(self) -> int:
        return self._buffers

    def strategy_matrix(self, n: int) -> Vector:
        return matrix(self.strategy_coefs, self._released(n))

    def noising_matrix(self, n: int) -> Vector:
        return matrix(self.noising_coefs, self._released(n))

    def sensitivity(self, participation: Participation, rounds: int | None = None) -> Sensitivity:
        return sensitivity(self.strategy_coefs[: self._released(rounds)], participation)

    def pattern_norms(self, patterns: Sequence[Sequence[int]], rounds: int | None = None) -> Vector:
        return pattern_norms(self.strategy_coefs[: self._released(rounds)], patterns)

    def row_norms(self, n: int | None = None) -> Vector:
        return row_norms(self.noising_coefs[: self._released(n)])

    def prefix_row_norms(self, n: int | None = None) -> Vector:
        return prefix_row_norms(self.noising_coefs[: self._released(n)])

    def stream(
        self,
        numel: int,
        noise: SecureNoise,
        *,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> Stream:
        return self._make_stream(numel, noise, dtype=dtype, device=device)

    def _released(self, n: int | None) -> int:
        if n is None:
            return self.rounds
        if not 1 <= n <= self.rounds:
            raise BadInput(
                f"rounds = {n}", f"must be in [1, {self.rounds}], the mechanism's horizon.", str(self.rounds)
            )
        return n
