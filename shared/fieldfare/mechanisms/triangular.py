"""Square lower-triangular mechanisms given by their whole matrix: O(T^2) numbers, for T up to 2 048.

One user's contributions are vectors of norm at most 1, so a pattern P costs at most sum_{i,j in P} |X_ij|
with X = C^T C, and exactly that when no product is negative. Only released rows of C count: after n rounds X
is X_n = C[:n]^T C[:n]. The bounds over patterns are in `factorization/triangular.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Literal, Unpack

import numpy as np
from numpy.typing import ArrayLike

from fieldfare.arrays import Floats
from fieldfare.errors import OutOfRange, WrongForm
from fieldfare.factorization.few_patterns import in_step_patterns
from fieldfare.factorization.released import ReleasedBounds
from fieldfare.factorization.sensitivity import Sensitivity
from fieldfare.factorization.triangular import (
    best_separated,
    fixed_order_curve,
    gram_bound,
    pattern_sums,
    triangle_bound,
)
from fieldfare.lazily import scipy
from fieldfare.mechanisms.base import Mechanism
from fieldfare.noise import SecureNoise
from fieldfare.participation import IN_STEP, MinSeparation, Participation, Poisson, Single
from fieldfare.streams.base import OnDevice, Stream
from fieldfare.streams.rows import MemoryStream, ReplayStream

Engine = Literal["memory", "replay"]
MOST_ROUNDS = 2048
# Relative slack below which an upper bound counts as attained.
_CLOSE = 1e-12
# Fixed orders with more participations than this use bound (1) of `factorization/triangular.py`.
_WIDE = 64


class MatrixMechanism(Mechanism):
    """What mechanisms with whole matrices share: C and B = C^-1 of shape (T, T), and streams that apply B's
    rows.

    The stream keeps every row of z (`engine = "memory"`, T vectors) or draws them again ("replay", no
    vectors, up to T draws a round). Both give the same numbers.
    """

    applies = ("lower",)

    def __init__(self, kind: str, strategy: Floats, noising: Floats, engine: Engine) -> None:
        self.kind, self.rounds, self.engine = kind, len(strategy), engine
        self._c, self._b = strategy, noising
        for matrix in (self._c, self._b):
            matrix.setflags(write=False)

    @property
    def buffers(self) -> int:
        return self.rounds if self.engine == "memory" else 0

    @property
    def lower(self) -> Floats:
        """The rows of B up to the diagonal, one after the other, shape (T (T + 1) / 2,)."""
        return self._b[np.tril_indices(self.rounds)]

    @lower.setter
    def lower(self, values: Floats) -> None:
        self._b = np.zeros((self.rounds, self.rounds))
        self._b[np.tril_indices(self.rounds)] = values
        self._b.setflags(write=False)

    def strategy_matrix(self, n: int) -> Floats:
        return np.array(self._c[: self._released(n), :n], order="C")

    def noising_matrix(self, n: int) -> Floats:
        return np.array(self._b[: self._released(n), :n], order="C")

    def row_norms(self, n: int | None = None) -> Floats:
        return np.asarray(np.linalg.norm(self._b[: self._released(n)], axis=1))

    def prefix_row_norms(self, n: int | None = None) -> Floats:
        return np.asarray(np.linalg.norm(np.cumsum(self._b[: self._released(n)], axis=0), axis=1))

    def stream(self, numel: int, noise: SecureNoise, **settings: Unpack[OnDevice]) -> Stream:
        make = MemoryStream if self.engine == "memory" else ReplayStream
        return make(numel, noise, self.rounds, self._row, identity=self._identity(), **settings)

    def _row(self, t: int) -> Floats:
        row: Floats = self._b[t, : t + 1]
        return row

    def _identity(self) -> bytes:
        """Name the coefficients in a stored stream state."""
        return hashlib.blake2b(self._b.tobytes(), digest_size=16).digest()


class TriangularMechanism(MatrixMechanism):
    """C is lower-triangular with a positive diagonal, B its inverse.

    Formal guarantee: B C = I by substitution; round t releases x_t + sigma (B z)_t. The sensitivity is exact
    for one participation (the largest column norm), for min-separation of at least C's bands (a user's
    columns do not overlap: the best separated choice of squared column norms), and for uncapped fixed orders
    whose products have no negative part (every offset is tried). Anything else gets an upper bound from the
    whole horizon. Values are monotone in the released rounds. zCDP with rho = (sensitivity / sigma)^2 / 2.
    """

    def __init__(
        self,
        kind: str,
        strategy: ArrayLike,
        *,
        engine: Engine = "replay",
        horizon_sensitivity: Callable[[Participation], Sensitivity] | None = None,
    ) -> None:
        """
        Args:
            kind: the plan's name of the mechanism.
            strategy: C, shape (T, T), lower-triangular with a positive diagonal, T <= 2 048.
            engine: what the stream does, see `MatrixMechanism`.
            horizon_sensitivity: a sharper sensitivity of the whole horizon, if one is known.

        Raises:
            BadInput: more than 2 048 rounds, or a matrix that is not finite, triangular and invertible.
        """
        c = np.array(strategy, dtype=np.float64)
        check_rounds(kind, len(c))
        if c.ndim != 2 or c.shape[0] != c.shape[1] or not np.isfinite(c).all():
            raise WrongForm(f"strategy matrix of shape {c.shape}", "must be square and finite.")
        if np.triu(c, 1).any() or not (np.diag(c) > 0).all():
            raise WrongForm("strategy matrix", "must be lower-triangular with a positive diagonal.")
        super().__init__(kind, c, np.tril(scipy.linalg.solve_triangular(c, np.eye(len(c)), lower=True)), engine)
        below, column = np.nonzero(c)
        self._bands = int((below - column).max()) + 1
        self._horizon_sensitivity = horizon_sensitivity
        self._bounds = ReleasedBounds()
        self._whole: Floats | None = None
        self._curves: dict[int, tuple[Floats, Floats]] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(kind={self.kind!r}, rounds={self.rounds}, engine={self.engine!r})"

    def sensitivity(self, participation: Participation, rounds: int | None = None) -> Sensitivity:
        n = self._released(rounds)
        b, k = participation.separation_and_count(n)
        c = self._c[:n, :n]
        # Nobody takes part twice, so each user moves one column.
        if min(k, -(-n // b)) <= 1:
            return Sensitivity(float(np.linalg.norm(c, axis=0).max()), "exact", "largest column norm")
        if self._horizon_sensitivity is not None and n == self.rounds:
            return self._horizon_sensitivity(participation)
        if isinstance(participation, IN_STEP) and -(-self.rounds // b) <= min(k, _WIDE):
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
        if self._horizon_sensitivity is None:
            return Sensitivity(value, "upper bound", how)
        bound = Sensitivity(min(value, float(self._horizon_sensitivity(participation))), "upper bound", how)
        return self._bounds.smaller(bound, self.strategy_matrix, participation, n)

    def pattern_norms(self, patterns: Sequence[Sequence[int]], rounds: int | None = None) -> Floats:
        """Return the norms of `Mechanism.pattern_norms`: the smaller sum of the products after n rounds and
        of those of the whole horizon.

        Both bound the cost, because releasing fewer rows reveals no more.
        """
        n = self._released(rounds)
        released = [[t for t in pattern if t < n] for pattern in patterns]
        return np.asarray(np.sqrt(pattern_sums([self._products(m) for m in {n, self.rounds}], released)))

    def _products(self, n: int) -> Floats:
        """Return |X_ij| from the first n rows of C, shape (n, n); that of the whole horizon is kept."""
        if n < self.rounds:
            # Without signs: two updates of a user may point the same way or opposite ways, and either may add up.
            return np.abs(self._c[:n, :n].T @ self._c[:n, :n])
        if self._whole is None:
            self._whole = np.abs(self._c.T @ self._c)
        return self._whole

    def _fixed_order(self, period: int, n: int) -> Sensitivity:
        if period not in self._curves:
            self._curves[period] = fixed_order_curve(self._c, period)
        bound, attained = self._curves[period]
        exact = bound[n - 1] <= attained[n - 1] * (1 + _CLOSE)
        how = "every offset of the fixed order" + ("" if exact else ", products without their signs")
        return Sensitivity(float(np.sqrt(bound[n - 1])), "exact" if exact else "upper bound", how)


def check_rounds(kind: str, rounds: int) -> None:
    """Raise `BadInput` unless 1 <= rounds <= 2 048."""
    if not 1 <= rounds <= MOST_ROUNDS:
        why = f"kind {kind!r} keeps whole matrices and must be in [1, {MOST_ROUNDS}]."
        raise OutOfRange(f"rounds = {rounds}", why, str(min(max(rounds, 1), MOST_ROUNDS)))
