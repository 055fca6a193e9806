"""What every noise mechanism offers. README.md in this folder has the notation and says what is charged.

A = all-ones lower triangle (prefix sums); C = strategy matrix; B = noising matrix, B C = I on the released
rounds; z has independent standard normal rows. Round t releases x_t + (B z)_t. The released sequence is
post-processing of the one Gaussian mechanism C x + z (Denisov et al. 2022; Choquette-Choo et al. 2023b).
Everything in this package is for clip norm 1 and unit z. With noise multiplier sigma the noise is sigma times
the norms of rows, and the cost is zCDP with rho = (sensitivity / sigma)^2 / 2.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, MutableMapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import ClassVar, Unpack

import numpy as np
from pydantic import Field

from fieldfare.arrays import Floats
from fieldfare.errors import OutOfRange
from fieldfare.factorization.sensitivity import Sensitivity
from fieldfare.factorization.toeplitz import ColumnProducts, autocovariance
from fieldfare.noise import SecureNoise
from fieldfare.participation import Participation
from fieldfare.registry import ROUNDS, Table
from fieldfare.streams.base import OnDevice, Stream

# Rounds up to which `bandwidth` looks at the whole matrix of a kind that does not know its bands.
_LARGEST_MATRIX = 2048
# Leading rounds that `autocovariance` averages over. This decides a gain of an optimizer, never privacy.
_MOST_AVERAGED = 1024


@dataclass(frozen=True)
class About:
    """What a table of mechanisms says about a kind. Vectors are of model size; m, p, T as in the kind's own file."""

    source: str
    """The paper."""
    memory: str
    """Vectors that the stream keeps."""
    cost: str
    """Work in one round: draws and passes over vectors."""
    anytime: bool
    """Whether some setting serves an unknown number of rounds at a finite sensitivity for one participation."""
    slow: bool
    """Whether optimising for 2 000 rounds takes more than about ten seconds."""
    example: Mapping[str, object]
    """A spec of this kind: what tables and tests build."""


class MechanismSpec(Table):
    """The `[mechanism]` part of a plan. One subclass for each kind, in the mechanism's own file; it has `build`
    or `build_cached`.
    """

    about: ClassVar[About]

    kind: str
    restart_every: int | None = Field(
        default=None, ge=1, description="stamping: independent copies of this many rounds", json_schema_extra=ROUNDS
    )

    def build(self, rounds: int, participation: Participation | None) -> Mechanism:
        """Return the mechanism for `rounds` rounds; optimised kinds optimise for `participation` (None: single)."""
        return self.build_cached(rounds, participation, {})

    def build_cached(
        self, rounds: int, participation: Participation | None, cache: MutableMapping[str, bytes]
    ) -> Mechanism:
        """Do as `build`. Kinds that search for an optimum read it from `cache`, or put it there; the others
        ignore it.
        """
        return self.build(rounds, participation)


class Mechanism(ABC):
    """Immutable. `rounds` is the horizon; smaller n are leading blocks of the same matrices."""

    kind: str
    rounds: int
    applies: ClassVar[tuple[str, ...]] = ()
    """Attributes that the stream multiplies by and that another processor may round otherwise; see `applied`."""

    @abstractmethod
    def strategy_matrix(self, n: int) -> Floats:
        """Return C for the first n rounds, shape (m, n); square for all kinds but trees of all nodes. For small n."""

    @abstractmethod
    def noising_matrix(self, n: int) -> Floats:
        """Return B, shape (n, m): what the stream applies."""

    @abstractmethod
    def sensitivity(self, participation: Participation, rounds: int | None = None) -> Sensitivity:
        """Return the max over allowed patterns of ||sum of C's columns||, using only what the first `rounds`
        rounds release.

        Monotone in `rounds`. Exact where structure allows, otherwise a proven upper bound; the value says
        which.
        """

    @abstractmethod
    def pattern_norms(self, patterns: Sequence[Sequence[int]], rounds: int | None = None) -> Floats:
        """Return sqrt(sum_{i,j in P} |<C_i, C_j>|) for each realised pattern P, shape (len(patterns),).

        This is ||sum of C's columns|| when no inner product is negative, and never less than what one user
        can move: updates are vectors, so where columns oppose each other a user gains by opposing updates.

        Args:
            patterns: increasing rounds from 0. Rounds at or after `rounds` are not released and contribute
                nothing.
            rounds: how many rounds are released (None: all).

        Raises:
            BadInput: a pattern is not increasing from 0.
        """

    @abstractmethod
    def row_norms(self, n: int | None = None) -> Floats:
        """Return ||row t of B||, t < n: the standard deviation of round t's noise for sigma = clip = 1, shape (n,)."""

    @abstractmethod
    def prefix_row_norms(self, n: int | None = None) -> Floats:
        """Return ||row t of A B||, t < n: the standard deviation of the noise in the t-th prefix sum, shape (n,)."""

    @abstractmethod
    def stream(self, numel: int, noise: SecureNoise, **settings: Unpack[OnDevice]) -> Stream:
        """Return a fresh stream of B z at row 0, for vectors of `numel` elements."""

    def applied(self) -> dict[str, Floats]:
        """Return the numbers that the stream multiplies by, by name: all that tells its rows from those of
        the same mechanism built on another processor. {} for a kind whose numbers are the same everywhere.
        """
        return {name: getattr(self, name) for name in self.applies}

    def applying(self, numbers: Mapping[str, Floats]) -> Mechanism:
        """Return this mechanism with the noise of another one's `applied`, which differs by round-off alone."""
        other = copy(self)
        for name, values in numbers.items():
            setattr(other, name, values)
        return other

    @property
    @abstractmethod
    def buffers(self) -> int:
        """Vectors of model size that the stream keeps."""

    @property
    def noise_rows(self) -> int:
        """Rows of z that the horizon may use: C's. Trees of all nodes have more of them than rounds."""
        return self.rounds

    def birth(self, row: int) -> int:
        """Return the round in which row `row` of z is first used: with a square, lower-triangular B the round
        itself.

        A row is drawn under the nonce of that round (`SecureNoise.with_nonces`). The noise must be *fresh*:
        with B B^T = L L^T, row t of L^-1 B uses rows only that are born in round t. Only then does a second
        branch of a run cost at most one more charge. A test checks every registered kind.
        """
        return row

    @property
    def whole(self) -> bool:
        """Whether C and B are known to be matrices of whole numbers, which discrete noise needs."""
        return False

    def bandwidth(self) -> int | None:
        """Return the most rows, from the diagonal down, that a column of C reaches; None if C is not known to
        be banded.

        Read off the coefficients of C, never from the name of the mechanism.
        """
        if self.rounds > _LARGEST_MATRIX:
            return None
        matrix = self.strategy_matrix(self.rounds)
        if matrix.shape[0] != matrix.shape[1]:
            return None
        rows, columns = np.nonzero(matrix)
        if (rows < columns).any():
            return None
        return int((rows - columns).max()) + 1

    def column_products(self) -> ColumnProducts | None:
        """Return inner products of C's columns as a function of the later column, or None where only patterns
        are known.
        """
        return None

    def autocovariance(self, lags: int = 128) -> tuple[float, ...]:
        """Return r(0) = 1, r(1), ..., at most `lags` values: of round t's noise with round t - j's.

        Exact at the end of the horizon for Toeplitz kinds. The noise of others is not stationary: the average
        over the first 1 024 rounds. Public, because it is a function of the plan alone.
        """
        return autocovariance(self.noising_matrix(min(self.rounds, _MOST_AVERAGED)).T, lags)

    def max_error(self, n: int, participation: Participation) -> float:
        """Return sensitivity x max_t ||row t of A B||: the largest RMSE of a prefix sum at equal privacy.

        That is at sigma = sensitivity (mu = 1, rho = 1/2); at another sigma it is this times sigma /
        sensitivity.
        """
        return float(self.sensitivity(participation, n)) * float(self.prefix_row_norms(n).max())

    def mean_error(self, n: int, participation: Participation) -> float:
        """Return sensitivity x sqrt(||A B||_F^2 / n): the root-mean-square error of a prefix sum at sigma =
        sensitivity.
        """
        return float(self.sensitivity(participation, n)) * float(np.sqrt(np.mean(self.prefix_row_norms(n) ** 2)))

    def _released(self, n: int | None) -> int:
        """Return how many rounds are released: n, or the horizon for None. Raises `BadInput` outside [1, rounds]."""
        if n is None:
            return self.rounds
        if not 1 <= n <= self.rounds:
            nearest = str(min(max(n, 1), self.rounds))
            raise OutOfRange(f"rounds = {n}", f"must be in [1, {self.rounds}], the mechanism's horizon.", nearest)
        return n
