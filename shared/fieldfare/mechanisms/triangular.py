"""Square lower-triangular mechanisms given by their whole matrix: O(T^2) numbers, for T up to 2 048.

One user's contributions are vectors of norm at most 1, so a pattern P costs at most sum_{i,j in P} |X_ij| with
X = C^T C, and exactly that when no product is negative. Only the rows of C that have been released count: after n
rounds X is X_n = C[:n]^T C[:n].

**Sensitivity.** One participation: the largest column norm, exact. Fixed orders: every offset, exact when products
have no negative part. C with at most b bands under separation b: columns of one pattern do not overlap, so the
best b-separated choice of squared column norms, exact. Anything else, an upper bound from the whole horizon:

    sum_{i,j in P} |X_ij| <= sum_{i in P} r_i,   r_i = largest sum_{j in P'} |X_ij| over allowed P' containing i,   (1)

both maxima by dynamic programming over rounds. Bounds are made monotone in n.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from scipy.linalg import cholesky, solve_triangular

from fieldfare.errors import BadInput
from fieldfare.factorization.few_patterns import in_step_patterns
from fieldfare.mechanisms.base import Mechanism, Sensitivity
from fieldfare.participation import CyclicPoisson, FixedOrder, MinSeparation, Participation, Poisson, Single
from fieldfare.streams.base import Stream
from fieldfare.streams.rows import MemoryStream, ReplayStream

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from fieldfare.noise import SecureNoise

    Array = NDArray[np.float64]

Engine = Literal["memory", "replay"]
MOST_ROUNDS = 2048
_CLOSE = 1e-12
_PATTERNS = 4096
"""Patterns whose products are gathered at a time."""
_WIDE = 64
"""Fixed orders with more participations than this use bound (1)."""


def factor(gram: Array) -> Array:
    """Lower-triangular R with positive diagonal and R^T R = gram (a Cholesky factorisation from the last row up).

    Raises `numpy.linalg.LinAlgError` when `gram` is not positive definite.
    """
    flipped = cholesky(gram[::-1, ::-1], lower=True, check_finite=False)
    return np.ascontiguousarray(flipped.T[::-1, ::-1], dtype=np.float64)


class TriangularMechanism(Mechanism):
    """C is `strategy`, shape (T, T), lower-triangular with positive diagonal; B its inverse.

    The stream keeps every row of z (`engine = "memory"`, T vectors) or draws them again (`"replay"`, no vectors, up to
    T draws a round); both give the same numbers. `horizon_sensitivity`, if given, is a sharper sensitivity of the
    whole horizon.
    """

    def __init__(
        self,
        kind: str,
        strategy: ArrayLike,
        *,
        engine: Engine = "replay",
        horizon_sensitivity: Callable[[Participation], Sensitivity] | None = None,
    ) -> None:
        """Raises `BadInput` for more than 2 048 rounds or a matrix that is not finite, triangular and invertible."""
        c = np.array(strategy, dtype=np.float64)
        check_rounds(kind, len(c))
        if c.ndim != 2 or c.shape[0] != c.shape[1] or not np.isfinite(c).all():
            raise BadInput(f"strategy matrix of shape {c.shape}", "must be square and finite.")
        if np.triu(c, 1).any() or not (np.diag(c) > 0).all():
            raise BadInput("strategy matrix", "must be lower-triangular with a positive diagonal.")
        self.__dict__["kind"] = kind
        self.rounds = len(c)
        self.engine = engine
        self._c = c
        self._b = np.tril(solve_triangular(c, np.eye(len(c)), lower=True))
        for matrix in (self._c, self._b):
            matrix.setflags(write=False)
        below, column = np.nonzero(c)
        self._bands = int((below - column).max()) + 1
        self._horizon_sensitivity = horizon_sensitivity
        self._whole: Array | None = None
        self._curves: dict[int, tuple[Array, Array]] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(kind={self.kind!r}, rounds={self.rounds}, engine={self.engine!r})"

    @property
    def buffers(self) -> int:
        return self.rounds if self.engine == "memory" else 0

    def strategy_matrix(self, n: int) -> Array:
        return np.array(self._c[: self._released(n), :n])

    def noising_matrix(self, n: int) -> Array:
        return np.array(self._b[: self._released(n), :n])

    def row_norms(self, n: int | None = None) -> Array:
        return np.asarray(np.linalg.norm(self._b[: self._released(n)], axis=1))

    def prefix_row_norms(self, n: int | None = None) -> Array:
        return np.asarray(np.linalg.norm(np.cumsum(self._b[: self._released(n)], axis=0), axis=1))

    def sensitivity(self, participation: Participation, rounds: int | None = None) -> Sensitivity:
        n = self._released(rounds)
        b, k = participation.separation_and_count(n)
        c = self._c[:n, :n]
        if min(k, -(-n // b)) <= 1:
            return Sensitivity(float(np.linalg.norm(c, axis=0).max()), "exact", "largest column norm")
        if self._horizon_sensitivity is not None and n == self.rounds:
            return self._horizon_sensitivity(participation)
        if isinstance(participation, FixedOrder | CyclicPoisson) and -(-self.rounds // b) <= min(k, _WIDE):
            return self._fixed_order(b, n)
        if self._bands <= b:
            values = np.sum(np.square(c), axis=0)
            exact = isinstance(participation, MinSeparation | Single | Poisson)
            value = float(np.sqrt(best_separated(values, b, k)))
            return Sensitivity(value, "exact" if exact else "upper bound", "columns of one pattern do not overlap")
        patterns = in_step_patterns(participation, n)
        gram = np.ascontiguousarray(self._products(self.rounds)[:n, :n])
        if patterns is not None:
            value = max(float(np.sqrt(gram[np.ix_(p, p)].sum())) for p in patterns)
            how = "every pattern of the fixed order, with all rows of C"
        else:
            value = float(np.sqrt(min(gram_bound(gram, b, k), triangle_bound(gram, b, k))))
            how = "largest row sums of C^T C over patterns"
        if self._horizon_sensitivity is not None:
            value = min(value, float(self._horizon_sensitivity(participation)))
        return Sensitivity(value, "upper bound", how)

    def pattern_norms(self, patterns: Sequence[Sequence[int]], rounds: int | None = None) -> Array:
        """sqrt(sum_{i,j in P} |X_ij|): the norm of the summed columns when no product is negative, never less.

        Of the products after n rounds and of those of the whole horizon the ones with the smaller sum: releasing
        fewer rows reveals no more.
        """
        n = self._released(rounds)
        kept = [[t for t in pattern if t < n] for pattern in patterns]
        by_size: dict[int, list[int]] = {}
        for index, pattern in enumerate(kept):
            by_size.setdefault(len(pattern), []).append(index)
        squared = np.zeros(len(patterns))
        products = [self._products(m) for m in {n, self.rounds}]
        for size, members in by_size.items():
            rounds_of = np.array([kept[i] for i in members], dtype=np.int64).reshape(len(members), size)
            wrong = (rounds_of < 0).any(axis=1) | (np.diff(rounds_of, axis=1) <= 0).any(axis=1)
            if wrong.any():
                bad = tuple(int(t) for t in rounds_of[int(np.argmax(wrong))])
                raise BadInput(f"pattern {bad}", "must be increasing rounds from 0.")
            for i in range(0, len(members), _PATTERNS):
                part = rounds_of[i : i + _PATTERNS]
                sums = [gram[part[:, :, None], part[:, None, :]].sum(axis=(1, 2)) for gram in products]
                squared[members[i : i + _PATTERNS]] = np.minimum.reduce(sums)
        return np.asarray(np.sqrt(squared))

    def stream(
        self,
        numel: int,
        noise: SecureNoise,
        *,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> Stream:
        kind = MemoryStream if self.engine == "memory" else ReplayStream
        identity = hashlib.blake2b(self._b.tobytes(), digest_size=16).digest()
        return kind(numel, noise, self.rounds, self._row, identity=identity, dtype=dtype, device=device)

    def _row(self, t: int) -> Array:
        row: Array = self._b[t, : t + 1]
        return row

    def _products(self, n: int) -> Array:
        """|X_ij| from the first n rows of C, shape (n, n); that of the whole horizon is kept."""
        if n < self.rounds:
            return np.abs(self._c[:n, :n].T @ self._c[:n, :n])
        if self._whole is None:
            self._whole = np.abs(self._c.T @ self._c)
        return self._whole

    def _fixed_order(self, period: int, n: int) -> Sensitivity:
        if period not in self._curves:
            self._curves[period] = self._curve(period)
        bound, attained = self._curves[period]
        exact = bound[n - 1] <= attained[n - 1] * (1 + _CLOSE)
        how = "every offset of the fixed order" + ("" if exact else ", products without their signs")
        return Sensitivity(float(np.sqrt(bound[n - 1])), "exact" if exact else "upper bound", how)

    def _curve(self, period: int) -> tuple[Array, Array]:
        """Squared bound and attained value of the fixed order after 1, ..., T rounds; the bound is monotone.

        What holds after n rounds holds before, and a bound for fewer rounds that exceeds this one's only loses.
        """
        bound, attained = np.zeros(self.rounds), np.zeros(self.rounds)
        for start in range(min(period, self.rounds)):
            columns = self._c[:, start::period]
            products = np.cumsum(columns[:, :, None] * columns[:, None, :], axis=0)
            bound = np.maximum(bound, np.abs(products).sum(axis=(1, 2)))
            attained = np.maximum(attained, products.sum(axis=(1, 2)))
        envelope: Array = np.minimum(np.maximum.accumulate(bound), bound[-1])
        return envelope, attained

    def _released(self, n: int | None) -> int:
        if n is None:
            return self.rounds
        if not 1 <= n <= self.rounds:
            raise BadInput(
                f"rounds = {n}", f"must be in [1, {self.rounds}], the mechanism's horizon.", str(self.rounds)
            )
        return n


def check_rounds(kind: str, rounds: int) -> None:
    """Raises `BadInput` unless 1 <= rounds <= 2 048."""
    if not 1 <= rounds <= MOST_ROUNDS:
        why = f"kind {kind!r} keeps whole matrices and must be in [1, {MOST_ROUNDS}]."
        raise BadInput(f"rounds = {rounds}", why, str(min(max(rounds, 1), MOST_ROUNDS)))


def best_separated(values: Array, separation: int, count: int) -> float:
    """Largest sum of at most `count` of the non-negative `values`, at least `separation` apart. O(n count)."""
    best = np.zeros(len(values) + 1)
    separation = min(separation, len(values))
    for _ in range(count):
        earlier = np.zeros(len(values))
        earlier[separation - 1 :] = best[: len(values) - separation + 1]
        best = np.concatenate([[0.0], np.maximum.accumulate(earlier + values)])
    return float(best[-1])


def triangle_bound(gram: Array, separation: int, count: int) -> float:
    """Square of the largest sum of `count` separated column norms: the triangle inequality."""
    return best_separated(np.sqrt(np.diag(gram)), separation, count) ** 2


def gram_bound(gram: Array, separation: int, count: int) -> float:
    """Bound (1) for a non-negative symmetric `gram`, shape (n, n): an upper bound of max over P of sum gram[P, P].

    O(n^2 count) time, O(n separation count) memory.
    """
    separation = min(separation, len(gram))
    before = _before(gram, separation, count)
    after = _before(np.ascontiguousarray(gram[::-1, ::-1]), separation, count)[:, ::-1]
    sums = np.full(len(gram), -np.inf)
    for left in range(count):
        np.maximum(sums, before[left] + after[count - 1 - left], out=sums)
    return best_separated(sums + np.diag(gram), separation, count)


def _before(gram: Array, separation: int, count: int) -> Array:
    """[c, i]: the largest sum over j in P of gram[i, j], P at most c separated rounds in [0, i - separation]."""
    n = len(gram)
    found = np.zeros((count, n))
    ring = np.zeros((separation, count, n))  # ring[j % separation][c, i]: the best for row i from rounds <= j
    latest = np.zeros((count, n))
    for j in range(n - separation):
        fresh = latest.copy()
        np.maximum(fresh[1:], ring[j % separation, :-1] + gram[j], out=fresh[1:])
        ring[j % separation] = fresh
        latest = fresh
        found[:, j + separation] = fresh[:, j + separation]
    return found
