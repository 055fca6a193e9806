"""Optimised banded Toeplitz strategies: C has `bands` diagonals, so columns that far apart do not overlap.

Toeplitz form: McKenna 2024, "Scaling up the Banded Matrix Factorization Mechanism". The stream solves C y = z
by substitution and keeps bands - 1 vectors.

Formal guarantee: that of `ToeplitzMechanism`. With a separation of at least `bands` a user's columns are
orthogonal, and the sensitivity under k participations is exactly sqrt(k) x one column's norm (Choquette-Choo,
Ganesh, McKenna, McMahan, Rush, Thakurta, Xu 2023, "(Amplified) Banded Matrix Factorization", Theorem 2).

`column_normalised` divides every *column* of C by its norm. The horizon cuts columns near the end, which
leaves sensitivity unused; normalised they all have norm 1. (Normalising rows instead, as pfl-research 0.6.0
does by factorising X = C C^T, under-reports the sensitivity by 7 to 35 %.)
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from functools import partial
from typing import ClassVar, Literal, Unpack

import numpy as np
from pydantic import Field

from fieldfare.arrays import Floats, lfilter
from fieldfare.errors import OutOfRange
from fieldfare.factorization import toeplitz
from fieldfare.factorization.objective import Objective, PrefixLoss
from fieldfare.factorization.sensitivity import Sensitivity, require_increasing
from fieldfare.factorization.stamping import block_rounds
from fieldfare.factorization.triangular import best_separated
from fieldfare.lazily import scipy
from fieldfare.mechanisms.base import About, Mechanism, MechanismSpec
from fieldfare.mechanisms.optimum import recall
from fieldfare.mechanisms.registry import register
from fieldfare.mechanisms.stamped import stamped
from fieldfare.mechanisms.toeplitz import ToeplitzMechanism
from fieldfare.noise import SecureNoise
from fieldfare.participation import Participation
from fieldfare.streams.banded import InverseBandStream
from fieldfare.streams.base import OnDevice, Stream

# The log-loss of coefficients whose inverse overflows: the line search turns back from it.
_REFUSED_STEP = 1e10
# Bands up to which one product for each gradient entry is cheaper than one Fourier transform.
_FEW = 64


def optimise(loss: PrefixLoss, bands: int) -> Floats:
    """Return the first column of the optimal banded Toeplitz C, shape (bands,), scaled to c_0 = 1.

    L-BFGS on the coefficients with the analytic gradient, from the square-root factorisation. When columns
    overlap (separation < bands), the sensitivity formula needs non-negative non-increasing coefficients. A
    result without that is optimised again over the decrements, which are held non-negative.
    """
    if bands == 1:
        return np.ones(1)
    t = np.arange(1, bands)
    start = np.asarray(np.cumprod((t - 0.5) / t), dtype=np.float64)
    best = np.concatenate([[1.0], _minimise(lambda x: _free(x, loss), start, None)])
    if loss.count > 1 and loss.separation < bands and not toeplitz.is_monotone(best):
        decrements = _minimise(lambda d: _monotone(d, loss), -np.diff(start, append=0.0), (0.0, None))
        tail = _from_decrements(decrements)
        best = np.concatenate([[max(1.0, tail[0])], tail])
        best /= best[0]
    return best


def _minimise(fun: object, start: Floats, bound: tuple[float, None] | None) -> Floats:
    bounds = None if bound is None else [bound] * len(start)
    options = {"maxiter": 500, "maxcor": 30, "ftol": 1e-13, "gtol": 1e-8}
    result = scipy.optimize.minimize(fun, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return np.asarray(result.x, dtype=np.float64)


def _free(tail: Floats, loss: PrefixLoss) -> tuple[float, Floats]:
    """log-loss and gradient in c_1 .. c_{bands - 1} with c_0 = 1."""
    n, bands = loss.n, len(tail) + 1
    c = np.zeros(n)
    c[0], c[1:bands] = 1.0, tail
    impulse = np.zeros(n)
    impulse[0] = 1.0
    b = lfilter([1.0], c[:bands], impulse)
    if not np.isfinite(b).all() or np.abs(b).max() > 1e60:
        return _REFUSED_STEP, np.zeros(bands - 1)
    log_sensitivity, of_c = loss.log_sensitivity_squared(c)
    log_error, of_b = loss.log_error_squared(b)
    # dB = -B dC B, so the gradient in c_j is -<B^T of_b, b shifted by j>; B^T is substitution from the last row up.
    back = lfilter([1.0], c[:bands], of_b[::-1])[::-1]
    if bands <= _FEW:
        through_b = np.array([back[j:] @ b[: n - j] for j in range(1, bands)])
    else:
        size = scipy.fft.next_fast_len(2 * n, True)
        through_b = scipy.fft.irfft(scipy.fft.rfft(back, size) * np.conj(scipy.fft.rfft(b, size)), size)[1:bands]
    return log_sensitivity + log_error, of_c[1:bands] - through_b


def _monotone(decrements: Floats, loss: PrefixLoss) -> tuple[float, Floats]:
    """Return `_free` in the variables d_j = c_j - c_{j+1} >= 0. c_1 may not exceed c_0 = 1: a steep barrier
    turns the search back.
    """
    tail = _from_decrements(decrements)
    over = max(0.0, float(tail[0]) - 1.0)
    value, gradient = _free(tail, loss)
    return value + 1e3 * over * over, np.cumsum(gradient) + 2e3 * over


def _from_decrements(decrements: Floats) -> Floats:
    """Return c_j = sum of the decrements from j on: non-increasing to the last bit, because every term is
    added once.
    """
    return np.asarray(decrements[::-1].cumsum()[::-1], dtype=np.float64)


class ColumnNormalisedBanded(Mechanism):
    """C = T D^-1 with T banded Toeplitz and D the column norms of its `rounds` x `rounds` matrix; B = D T^-1.

    C is not Toeplitz near the horizon, where the last bands - 1 columns of T are shorter.

    Formal guarantee: B C = I; round t releases x_t + sigma (B z)_t. The sensitivity is exact for one
    participation and for a separation of at least the bands, where a user's columns are orthogonal and it is
    sqrt(k) once all rounds are released (Choquette-Choo et al. 2023, "(Amplified) Banded Matrix
    Factorization", Theorem 2). Otherwise it is the upper bound sqrt(k + 2 sum_d (k - d) G_d), with G_d the
    largest |<C_i, C_j>| over j - i >= d separation. zCDP with rho = (sensitivity / sigma)^2 / 2.
    """

    kind = "banded"

    def __init__(self, rounds: int, c: Floats) -> None:
        """
        Args:
            rounds: the horizon T.
            c: coefficients of T, zero-padded or cut to shape (T,); float32 values, which the stream
                multiplies by.
        """
        self.rounds = rounds
        self._c = toeplitz.coefficients(c, rounds)
        self.bands = int(np.flatnonzero(self._c)[-1]) + 1
        self._energy = np.concatenate([[0.0], np.cumsum(np.square(self._c))])
        self.column_norms: Floats = np.sqrt(self._energy[rounds:0:-1])
        self._b = toeplitz.inverse(self._c[: self.bands], rounds)

    def __repr__(self) -> str:
        return f"ColumnNormalisedBanded(rounds={self.rounds}, bands={self.bands})"

    @property
    def buffers(self) -> int:
        return self.bands - 1

    def strategy_matrix(self, n: int) -> Floats:
        n = self._released(n)
        return np.asarray(toeplitz.matrix(self._c, n) / self.column_norms[:n])

    def noising_matrix(self, n: int) -> Floats:
        n = self._released(n)
        return np.asarray(self.column_norms[:n, None] * toeplitz.matrix(self._b, n))

    def sensitivity(self, participation: Participation, rounds: int | None = None) -> Sensitivity:
        n = self._released(rounds)
        separation, count = participation.separation_and_count(self.rounds)
        count = min(count, -(-n // separation))
        weights = self._energy[np.arange(n, 0, -1)] / np.square(self.column_norms[:n])
        diagonal = best_separated(weights, separation, count)
        if count == 1 or separation >= self.bands:
            return Sensitivity(float(np.sqrt(diagonal)), "exact", "orthogonal columns" if count > 1 else "one column")
        # Rounds that are d participations apart are at least d separation apart: largest[lag] covers all such pairs.
        largest = np.zeros(self.bands)
        for lag in range(min(self.bands, n) - 1, separation - 1, -1):
            largest[lag] = np.abs(self._products(lag, n)).max()
        largest = np.maximum.accumulate(largest[::-1])[::-1]
        distances = np.arange(1, min(count - 1, (self.bands - 1) // separation) + 1)
        cross = float(np.sum((count - distances) * largest[distances * separation]))
        return Sensitivity(
            float(np.sqrt(diagonal + 2.0 * cross)), "upper bound", "largest inner product at each distance"
        )

    def pattern_norms(self, patterns: Sequence[Sequence[int]], rounds: int | None = None) -> Floats:
        n = self._released(rounds)
        weights = np.concatenate([self._energy[np.arange(n, 0, -1)] / np.square(self.column_norms[:n]), [0.0]])
        products = {lag: np.abs(self._products(lag, n)) for lag in range(1, min(self.bands, n))}
        squared = np.zeros(len(patterns))
        for index, pattern in enumerate(patterns):
            require_increasing(pattern)
            taken = np.asarray(pattern, dtype=np.int64)
            squared[index] = weights[np.minimum(taken, n)].sum()
            taken = taken[taken < n]
            for distance in range(1, len(taken)):
                lags = taken[distance:] - taken[:-distance]
                near = lags < self.bands
                if not near.any():
                    break
                pairs = zip(lags[near].tolist(), taken[:-distance][near].tolist(), strict=True)
                squared[index] += 2.0 * sum(float(products[lag][first]) for lag, first in pairs)
        return np.asarray(np.sqrt(squared))

    def row_norms(self, n: int | None = None) -> Floats:
        n = self._released(n)
        return np.asarray(self.column_norms[:n] * toeplitz.row_norms(self._b[:n]))

    def prefix_row_norms(self, n: int | None = None) -> Floats:
        n = self._released(n)
        out = np.empty(n)
        # While whole columns fit, D is constant and A B is Toeplitz. Only the last bands - 1 rows need single sums.
        flat = max(0, min(n, self.rounds - self.bands + 1))
        out[:flat] = self.column_norms[0] * toeplitz.prefix_row_norms(self._b[:flat]) if flat else 0.0
        row = np.zeros(n)
        row[:flat] = self.column_norms[0] * np.cumsum(self._b[:flat])[::-1]
        for t in range(flat, n):
            row[: t + 1] += self.column_norms[t] * self._b[t::-1]
            out[t] = np.sqrt(row[: t + 1] @ row[: t + 1])
        return out

    def stream(self, numel: int, noise: SecureNoise, **settings: Unpack[OnDevice]) -> Stream:
        return InverseBandStream(
            numel, noise, self.rounds, self._c[: self.bands], column_norms=self.column_norms, **settings
        )

    def _products(self, lag: int, n: int) -> Floats:
        """Return <C_i, C_{i + lag}> over the first n rows, i = 0 .. n - lag - 1."""
        later = toeplitz.inner_products(self._c[:n], lag)
        return np.asarray(later / (self.column_norms[: n - lag] * self.column_norms[lag:n]))


@register
class BandedSpec(MechanismSpec):
    """`bands` diagonals, optimised for the plan's rounds and participation."""

    about: ClassVar[About] = About(
        source="Choquette-Choo et al. 2023a; McKenna 2024",
        memory="bands - 1",
        cost="1 draw, 1 pass a band",
        anytime=False,
        slow=False,
        example={"kind": "banded", "bands": 64},
    )
    kind: Literal["banded"] = "banded"
    bands: int = Field(ge=1, description="diagonals of C; at most the rounds, best at most the separation")
    objective: Objective = Field(default="mean", description="which prefix error to minimise")
    column_normalised: bool = Field(default=False, description="give every column of C the same norm")

    def build_cached(
        self, rounds: int, participation: Participation | None, cache: MutableMapping[str, bytes]
    ) -> Mechanism:
        block = block_rounds(self.restart_every, rounds)
        if self.bands > block:
            raise OutOfRange(f"mechanism.bands = {self.bands}", f"must be in [1, {block}], the rounds.", str(block))
        loss = PrefixLoss.of(block, participation, self.objective)
        c = recall(cache, "c", lambda: toeplitz.round_to_float32(optimise(loss, self.bands)))
        return stamped(self._block(block, c), self.restart_every, rounds)

    def _block(self, rounds: int, c: Floats) -> Mechanism:
        if self.column_normalised:
            return ColumnNormalisedBanded(rounds, c)

        make = partial(_make_inverse, c)
        return ToeplitzMechanism(self.kind, rounds, c, toeplitz.inverse(c, rounds), make, buffers=len(c) - 1)


def _make_inverse(c: Floats, coefs: Floats, numel: int, noise: SecureNoise, **settings: Unpack[OnDevice]) -> Stream:
    return InverseBandStream(numel, noise, len(coefs), c, **settings)
