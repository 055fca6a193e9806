"""Mechanisms with Toeplitz C and B, given by the first columns of both; algebra in `factorization/toeplitz.py`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol, Unpack

import numpy as np
from numpy.typing import ArrayLike

from fieldfare.arrays import Floats
from fieldfare.errors import Differs, OutOfRange
from fieldfare.factorization import toeplitz
from fieldfare.factorization.rational import Exponentials
from fieldfare.factorization.sensitivity import Sensitivity
from fieldfare.mechanisms.base import Mechanism
from fieldfare.noise import SecureNoise
from fieldfare.participation import Participation
from fieldfare.streams.banded import WindowStream
from fieldfare.streams.base import OnDevice, Stream
from fieldfare.streams.buffers import BufferStream
from fieldfare.streams.rows import MemoryStream, ReplayStream


class MakeStream(Protocol):
    """How a Toeplitz mechanism makes its running noise. It can be pickled, and so can a plan's price."""

    def __call__(
        self, noising_coefs: Floats, numel: int, noise: SecureNoise, /, **settings: Unpack[OnDevice]
    ) -> Stream:
        """Return a fresh stream of B z at row 0, for vectors of `numel` elements. Whoever has B's coefficients
        in another form, as a sum of exponentials say, applies that one.
        """
        ...


def window_stream(width: int) -> MakeStream:
    """Return the maker of streams of a banded B of `width` coefficients: the last width - 1 rows of z are kept."""
    return partial(_make_window, width)


def _make_window(width: int, coefs: Floats, numel: int, noise: SecureNoise, **settings: Unpack[OnDevice]) -> Stream:
    return WindowStream(numel, noise, len(coefs), coefs[:width], **settings)


def row_mechanism(kind: str, strategy_coefs: Floats, noising_coefs: Floats, engine: str) -> ToeplitzMechanism:
    """Return the mechanism of a full B. Its stream keeps all of z ("memory"), or draws it again from the key:
    bit for bit equal.
    """
    rounds, keeps = len(strategy_coefs), engine == "memory"
    make, buffers = partial(_make_rows, keeps), rounds if keeps else 0
    return ToeplitzMechanism(kind, rounds, strategy_coefs, noising_coefs, make, buffers=buffers)


def _make_rows(keeps: bool, coefs: Floats, numel: int, noise: SecureNoise, **settings: Unpack[OnDevice]) -> Stream:
    kind, rows = MemoryStream if keeps else ReplayStream, lambda t: coefs[t::-1]
    return kind(numel, noise, len(coefs), rows, identity=coefs.tobytes(), **settings)


def exponential_mechanism(kind: str, exponentials: Exponentials, rounds: int) -> ToeplitzMechanism:
    """Return the mechanism whose B is a sum of a few exponentials: one buffer each, charged by its own exact C."""
    make = partial(_make_buffers, exponentials)
    coefficients = exponentials.strategy(rounds), exponentials.coefficients(rounds)
    return ToeplitzMechanism(kind, rounds, *coefficients, make, buffers=len(exponentials.theta))


def _make_buffers(
    exponentials: Exponentials, coefs: Floats, numel: int, noise: SecureNoise, **settings: Unpack[OnDevice]
) -> Stream:
    return BufferStream(numel, noise, len(coefs), exponentials.omega, exponentials.theta, **settings)


class ToeplitzMechanism(Mechanism):
    """A mechanism with Toeplitz C and B. Everything but the stream follows from their coefficients.

    Formal guarantee: B C = I for the coefficients given, up to |(c * b)_t - [t = 0]| <= 1e-9 max(1, max |c|
    ||b||_1), which is checked; so what is charged is what is applied. Round t releases x_t + sigma (B z)_t.
    The sensitivity is that of `factorization.toeplitz.sensitivity`: exact for one participation, and under
    min-separation for non-negative non-increasing c (Kalinin and Lampert 2024, Theorem 2); otherwise exact or
    an upper bound, and the value says which. zCDP with rho = (sensitivity / sigma)^2 / 2.
    """

    applies = ("noising_coefs",)

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
        """
        Args:
            kind: the plan's name of the mechanism.
            rounds: the horizon T >= 1.
            strategy_coefs: first column of C, zero-padded or cut to shape (T,).
            noising_coefs: first column of B, zero-padded or cut to shape (T,).
            make_stream: makes the running noise that applies `noising_coefs`.
            buffers: vectors of model size that such a stream keeps.

        Raises:
            BadInput: `rounds` is below 1, or the coefficients are not finite or not inverse to each other.
        """
        if rounds < 1:
            raise OutOfRange(f"rounds = {rounds}", "must be at least 1.", "1")
        self.kind = kind
        self.rounds = rounds
        self.strategy_coefs = toeplitz.coefficients(strategy_coefs, rounds, name="strategy_coefs")
        self.noising_coefs = toeplitz.coefficients(noising_coefs, rounds, name="noising_coefs")
        for vector in (self.strategy_coefs, self.noising_coefs):
            vector.setflags(write=False)
        # By NumPy's transforms: for a check they do, and SciPy's cost whoever only reads 5 MB.
        spectra = [np.fft.rfft(vector, 2 * rounds) for vector in (self.strategy_coefs, self.noising_coefs)]
        product = np.fft.irfft(spectra[0] * spectra[1], 2 * rounds)[:rounds]
        product[0] -= 1.0
        # Round-off grows with the terms that cancel, so the tolerance does too.
        scale = float(np.abs(self.strategy_coefs).max() * np.abs(self.noising_coefs).sum())
        worst = float(np.abs(product).max())
        if worst > 1e-9 * max(1.0, scale):
            raise Differs("noising_coefs", f"are not the inverse of strategy_coefs: B C differs from I by {worst:.3g}.")
        self._make_stream = make_stream
        self._buffers = buffers

    def __repr__(self) -> str:
        return f"{type(self).__name__}(kind={self.kind!r}, rounds={self.rounds}, buffers={self._buffers})"

    @property
    def monotone(self) -> bool:
        """Whether C's coefficients are non-negative and non-increasing: then sensitivities are exact."""
        return toeplitz.is_monotone(self.strategy_coefs)

    @property
    def whole(self) -> bool:
        return all((c == np.rint(c)).all() for c in (self.strategy_coefs, self.noising_coefs))

    @property
    def buffers(self) -> int:
        return self._buffers

    def bandwidth(self) -> int:
        return int(np.flatnonzero(self.strategy_coefs)[-1]) + 1

    def column_products(self) -> toeplitz.ColumnProducts:
        return toeplitz.column_products(self.strategy_coefs)

    def autocovariance(self, lags: int = 128) -> tuple[float, ...]:
        return toeplitz.autocovariance(self.noising_coefs[None, :], lags)

    def strategy_matrix(self, n: int) -> Floats:
        return toeplitz.matrix(self.strategy_coefs, self._released(n))

    def noising_matrix(self, n: int) -> Floats:
        return toeplitz.matrix(self.noising_coefs, self._released(n))

    def sensitivity(self, participation: Participation, rounds: int | None = None) -> Sensitivity:
        return toeplitz.sensitivity(self.strategy_coefs[: self._released(rounds)], participation)

    def pattern_norms(self, patterns: Sequence[Sequence[int]], rounds: int | None = None) -> Floats:
        return toeplitz.pattern_norms(self.strategy_coefs[: self._released(rounds)], patterns)

    def row_norms(self, n: int | None = None) -> Floats:
        return toeplitz.row_norms(self.noising_coefs[: self._released(n)])

    def prefix_row_norms(self, n: int | None = None) -> Floats:
        return toeplitz.prefix_row_norms(self.noising_coefs[: self._released(n)])

    def stream(self, numel: int, noise: SecureNoise, **settings: Unpack[OnDevice]) -> Stream:
        return self._make_stream(self.noising_coefs, numel, noise, **settings)
