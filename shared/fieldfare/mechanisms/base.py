"""What every noise mechanism offers.

Notation: A = all-ones lower triangle (prefix sums); C = strategy matrix (encodes, its columns under participation
give the sensitivity); B = noising matrix, B C = I on the released rounds; z has i.i.d. standard normal rows. Round t
releases x_t + (B z)_t, so the released sequence is post-processing of the one Gaussian mechanism C x + z
(Denisov et al. 2022; Choquette-Choo et al. 2023b). Everything here is for clip norm 1 and unit z. With noise multiplier
sigma the noise is sigma times the norms of rows, and the cost is zCDP with rho = (sensitivity / sigma)^2 / 2.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field

from fieldfare.errors import BadInput
from fieldfare.registry import Table
from fieldfare.streams.base import Stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fieldfare.noise import SecureNoise
    from fieldfare.participation import Participation

Bound = Literal["exact", "upper bound"]


class Sensitivity(float):
    """An L2 sensitivity; `bound` says whether it is exact or a proven upper bound, `how` names the argument."""

    bound: Bound
    how: str

    def __new__(cls, value: float, bound: Bound, how: str) -> Sensitivity:
        self = super().__new__(cls, value)
        self.bound, self.how = bound, how
        return self


@dataclass(frozen=True)
class About:
    """What a table of mechanisms says about a kind. Vectors are of model size; m, p, T as in the kind's own file."""

    source: str
    """The paper."""
    memory: str
    """Vectors that the stream keeps."""
    cost: str
    """Work a round: draws and passes over vectors."""
    anytime: bool
    """Whether some setting of it serves an unknown number of rounds at a finite sensitivity for one participation."""
    slow: bool
    """Whether optimising for 2 000 rounds takes more than about ten seconds."""
    example: Mapping[str, Any]
    """A spec of this kind: what tables and tests build."""


class MechanismSpec(Table):
    """The `[mechanism]` part of a plan. One subclass a kind, in the mechanism's own file."""

    about: ClassVar[About]

    kind: str
    restart_every: int | None = Field(
        default=None, ge=1, description="stamping: independent copies of this many rounds"
    )

    def build(self, rounds: int, participation: Participation | None) -> Mechanism:
        """The mechanism for `rounds` rounds; optimised kinds optimise for `participation` (None: single)."""
        raise TypeError(f"{type(self).__name__} names no mechanism")


def require_increasing(pattern: Sequence[int]) -> None:
    """Raise `BadInput` unless these are increasing rounds from 0."""
    if any(t < 0 for t in pattern[:1]) or any(a >= b for a, b in itertools.pairwise(pattern)):
        raise BadInput(f"pattern {tuple(int(t) for t in pattern)}", "must be increasing rounds from 0.")


class Mechanism(ABC):
    """Immutable. `rounds` is the horizon; smaller n are leading blocks of the same matrices."""

    kind: ClassVar[str]
    rounds: int

    @abstractmethod
    def strategy_matrix(self, n: int) -> NDArray[np.float64]:
        """C for the first n rounds, shape (m, n), float64; square for all kinds but trees. For tests and small n."""

    @abstractmethod
    def noising_matrix(self, n: int) -> NDArray[np.float64]:
        """B, shape (n, m), float64: what the stream really applies."""

    @abstractmethod
    def sensitivity(self, participation: Participation, rounds: int | None = None) -> Sensitivity:
        """max over allowed patterns of ||sum of C's columns||, using only what the first `rounds` rounds release.

        Monotone in `rounds`. Exact where structure allows, otherwise a proven upper bound; the value says which.
        """

    @abstractmethod
    def pattern_norms(self, patterns: Sequence[Sequence[int]], rounds: int | None = None) -> NDArray[np.float64]:
        """sqrt(sum_{i,j in P} |<C_i, C_j>|) for each given pattern P (realised participation), shape (len(patterns),).

        ||sum of C's columns|| when no inner product is negative, and never less than what one user can move: updates
        are vectors, so where columns oppose each other a user gains by opposing updates. Rounds at or after `rounds`
        are not released yet and contribute nothing. Raises `BadInput` for rounds that are not increasing from 0.
        """

    @abstractmethod
    def row_norms(self, n: int | None = None) -> NDArray[np.float64]:
        """||row t of B||, t < n: the realised per-round noise std for sigma = clip = 1, shape (n,)."""

    @abstractmethod
    def prefix_row_norms(self, n: int | None = None) -> NDArray[np.float64]:
        """||row t of A B||, t < n: the std of the noise in the t-th prefix sum, shape (n,)."""

    @abstractmethod
    def stream(
        self,
        numel: int,
        noise: SecureNoise,
        *,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> Stream:
        """A fresh stream at row 0."""

    @property
    def noise_rows(self) -> int:
        """Rows of z that the horizon may use (none at or after this): C's. Trees of all nodes have more than rounds."""
        return self.rounds

    @property
    def whole(self) -> bool:
        """Whether C and B are known to be matrices of whole numbers, which discrete noise needs."""
        return False

    @property
    @abstractmethod
    def buffers(self) -> int:
        """Vectors of model size that the stream keeps."""

    def max_error(self, n: int, participation: Participation) -> float:
        """sensitivity x max_t ||row t of A B||: the largest RMSE of a prefix sum at equal privacy.

        That is at sigma = sensitivity (mu = 1, rho = 1/2); at another sigma it is this times sigma / sensitivity.
        """
        return float(self.sensitivity(participation, n)) * float(self.prefix_row_norms(n).max())

    def mean_error(self, n: int, participation: Participation) -> float:
        """sensitivity x sqrt(||A B||_F^2 / n): the root-mean-square error of a prefix sum at sigma = sensitivity."""
        return float(self.sensitivity(participation, n)) * float(np.sqrt(np.mean(self.prefix_row_norms(n) ** 2)))
