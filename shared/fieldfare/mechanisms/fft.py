"""The circulant (FFT) mechanism with its optimal decoder (Choquette-Choo, McMahan, Rush and Thakurta 2023b,
ICML).

Prefix sums are a corner of a circulant matrix: with v = (1, ..., 1, 0, ..., 0) (L ones, L zeros, L >= T), the
first T rows and columns of circ(v) are A. The unitary F of size 2L diagonalises it, circ(v) = F* diag(d) F,
and the paper factors it as (F* d^(1/2)) (d^(1/2) F). The encoder is therefore K = [d^(1/2) F] restricted to T
columns, a complex 2L x T matrix, and only its inner products matter for privacy:

    X = K* K,   X_ij = x_|i-j|,   x = inverse DFT of |d|     (T x T, symmetric, Toeplitz, positive definite).

The paper's optimal decoder for K, A K^+, adds noise of covariance A X^-1 A^T. The lower-triangular C with C^T
C = X and B = C^-1 has the same sensitivity, and A B the same covariance. So it is the same mechanism up to a
rotation of the encoded space, which leaves Gaussian noise unchanged. C is lower-triangular, so the guarantee
holds for adaptively chosen updates. It is the transposed, twice reversed Cholesky factor of X: a symmetric
Toeplitz matrix is its double reversal.

**Sensitivity** comes from x alone. One participation: sqrt(x_0), exact. More: x_l = 1/2 + (1/pi) log cot(pi
l/(2 L)) to about 0.01. It falls from x_0, and for L = T it turns negative beyond lag 0.87 T, where absolute
values are charged (see `factorization/toeplitz.py`). From L = 1.15 T on ((L - T)/L = (2/pi) arctan e^(-pi/2))
every lag in use is non-negative, for a little more error. Of L = T, that L and halfway, the plan gets the one
with the smallest prefix error. Where |x| does not increase up to the longest lag in use, the evenly spaced
pattern is exact; otherwise the largest |x| beyond each lag gives an upper bound. Fewer released rounds only
remove rows of C: the same value bounds them, and so does the chain bound of the rows that are left, which is
less.

B is full: O(T) vectors of memory or O(t) draws a round, O(T^3) once to build, T <= 4096. It needs a horizon.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fieldfare.arrays import Floats
from fieldfare.errors import OutOfRange
from fieldfare.factorization.released import ReleasedBounds
from fieldfare.factorization.sensitivity import Sensitivity, require_increasing
from fieldfare.factorization.stamping import block_rounds
from fieldfare.lazily import scipy
from fieldfare.mechanisms.base import About, Mechanism, MechanismSpec
from fieldfare.mechanisms.optimum import recall
from fieldfare.mechanisms.registry import register
from fieldfare.mechanisms.stamped import stamped
from fieldfare.mechanisms.triangular import Engine, MatrixMechanism
from fieldfare.participation import IN_STEP, Participation, Single

MOST_ROUNDS = 4096
_CLOSE = 1e-12


def gram_coefficients(rounds: int, ones: int) -> Floats:
    """Return x_0, ..., x_{rounds-1}: inner products of C's columns by lag, for the circulant of size 2 `ones`
    >= 2 rounds.
    """
    v = np.zeros(2 * ones)
    v[:ones] = 1.0
    return np.asarray(np.fft.ifft(np.abs(np.fft.fft(v))).real[:rounds], dtype=np.float64)


def non_negative_ones(rounds: int) -> int:
    """Return the least L whose inner products are non-negative at every lag below `rounds`."""
    lo, hi = rounds, 2 * rounds
    while lo < hi:
        middle = (lo + hi) // 2
        lo, hi = (lo, middle) if gram_coefficients(rounds, middle)[-1] >= 0 else (middle + 1, hi)
    return lo


def sensitivity(x: Floats, participation: Participation, rounds: int) -> Sensitivity:
    """Return sqrt(max over patterns within `rounds` of sum |x_|i-j||), with all T rows released.

    Args:
        x: inner products of C's columns by lag, shape (T,).
        participation: the patterns that the selector enforces.
        rounds: a user's rounds are below this.
    """
    b, k = participation.separation_and_count(rounds)
    k = min(k, -(-rounds // b))
    lags = x[:rounds:b] if isinstance(participation, IN_STEP) else x[:rounds]
    step = 1 if len(lags) < rounds else b  # `lags` of a fixed order has only multiples of the period
    m = np.arange(1, k)
    evenly = k * x[0] + 2.0 * float((k - m) @ lags[m * step])
    if len(lags) < rounds and k == len(lags):  # an uncapped fixed order: the first class is a largest one
        bound = k * x[0] + 2.0 * float((k - m) @ np.abs(lags[m]))
        how = "the whole fixed order"
    else:
        beyond = np.maximum.accumulate(np.abs(lags)[::-1])[::-1]
        bound = k * x[0] + 2.0 * float((k - m) @ beyond[m * step])
        how = "evenly spaced pattern" if bound <= evenly * (1 + _CLOSE) else "largest inner product beyond each lag"
    exact = bound <= evenly * (1 + _CLOSE) and participation.allows(range(0, k * b, b), rounds)
    return Sensitivity(float(np.sqrt(bound)), "exact" if exact else "upper bound", how)


class FftMechanism(MatrixMechanism):
    """C lower-triangular with C^T C = X, dense; see the module.

    Formal guarantee: B C = I by substitution; round t releases x_t + sigma (B z)_t. The sensitivity is exact
    for one participation, over the whole horizon where the evenly spaced pattern is allowed and attains the
    module's bound, and over fewer rounds where the bound of `factorization/released.py` is attained;
    otherwise it is an upper bound. zCDP with rho = (sensitivity / sigma)^2 / 2.
    """

    def __init__(self, rounds: int, ones: int, engine: Engine = "replay") -> None:
        """
        Args:
            rounds: the horizon T <= 4096.
            ones: L >= T, half the size of the circulant matrix.
            engine: what the stream does, see `MatrixMechanism`.

        Raises:
            BadInput: more than 4096 rounds, or ones < rounds.
        """
        if not 1 <= rounds <= MOST_ROUNDS:
            raise OutOfRange(
                f"rounds = {rounds}", f"must be in [1, {MOST_ROUNDS}] for kind fft, per block.", str(MOST_ROUNDS)
            )
        if ones < rounds:
            raise OutOfRange(f"ones = {ones}", f"must be at least {rounds}.", str(rounds))
        self.ones, self._bounds = ones, ReleasedBounds()
        self._x = gram_coefficients(rounds, ones)
        cholesky = np.linalg.cholesky(np.asarray(scipy.linalg.toeplitz(self._x)))
        c = np.ascontiguousarray(cholesky[::-1, ::-1].T)
        super().__init__("fft", c, np.asarray(scipy.linalg.solve_triangular(c, np.eye(rounds), lower=True)), engine)

    def __repr__(self) -> str:
        return f"FftMechanism(rounds={self.rounds}, ones={self.ones})"

    def sensitivity(self, participation: Participation, rounds: int | None = None) -> Sensitivity:
        n = self._released(rounds)
        if participation.separation_and_count(n)[1] <= 1:
            columns = np.sqrt(np.square(self._c[:n, :n]).sum(axis=0))
            return Sensitivity(float(columns.max()), "exact", "largest column norm")
        value = sensitivity(self._x, participation, n)
        if n == self.rounds:
            return value
        value = Sensitivity(float(value), "upper bound", f"{value.how}, all rows released")
        return self._bounds.smaller(value, self.strategy_matrix, participation, n)

    def pattern_norms(self, patterns: Sequence[Sequence[int]], rounds: int | None = None) -> Floats:
        n = self._released(rounds)
        for pattern in patterns:
            require_increasing(pattern)
        inside = [[t for t in pattern if t < n] for pattern in patterns]
        used = np.unique(np.array([t for pattern in inside for t in pattern], dtype=np.int64))
        place = {int(t): i for i, t in enumerate(used)}
        gram = np.abs(self._c[:n, used].T @ self._c[:n, used])
        squared = [gram[np.ix_(at, at)].sum() for at in ([place[t] for t in pattern] for pattern in inside)]
        return np.asarray(np.sqrt(np.array(squared, dtype=np.float64)))

    def _identity(self) -> bytes:
        return f"fft:{self.ones}".encode()


@register
class FftSpec(MechanismSpec):
    """`engine`: replay (draw past noise again) or memory (keep it)."""

    about: ClassVar[About] = About(
        source="Choquette-Choo et al. 2023b",
        memory="0, or T",
        cost="t draws, or t passes",
        anytime=False,
        slow=False,
        example={"kind": "fft"},
    )
    kind: Literal["fft"] = "fft"
    engine: Engine = Field(default="replay", description="draw past noise again, or keep all of it")

    def build_cached(
        self, rounds: int, participation: Participation | None, cache: MutableMapping[str, bytes]
    ) -> Mechanism:
        n = block_rounds(self.restart_every, rounds)
        schedule = participation or Single()

        def best() -> Floats:
            choices = [FftMechanism(n, ones, self.engine) for ones in sorted(sizes)]
            return np.array([min(choices, key=lambda m: m.mean_error(n, schedule)).ones])

        sizes = {n}
        if schedule.separation_and_count(n)[1] > 1:
            positive = non_negative_ones(n)
            sizes |= {(n + positive) // 2, positive}
        ones = int(recall(cache, "ones", best)[0])
        return stamped(FftMechanism(n, ones, self.engine), self.restart_every, rounds)
