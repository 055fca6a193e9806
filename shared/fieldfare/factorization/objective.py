"""What optimised Toeplitz mechanisms minimise: squared sensitivity x squared prefix error, with exact
gradients.

    loss = ||sum_{j < k} C_{j b}||^2 x (mean or max over t) ||row t of A B||^2

The first factor is the squared sensitivity for k participations at least b apart, wherever C's coefficients
are non-negative and non-increasing (see `toeplitz`). The charge always comes from `toeplitz.sensitivity`. The
last row of A B is its largest, so the maximum is as smooth as the mean. Everything costs O(n).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fieldfare.arrays import Floats
from fieldfare.factorization.toeplitz import spaced_sum
from fieldfare.participation import Participation

Objective = Literal["mean", "max"]


@dataclass(frozen=True)
class PrefixLoss:
    """The loss for n rounds and at most `count` participations that are at least `separation` apart."""

    n: int
    separation: int
    count: int
    objective: Objective

    @classmethod
    def of(cls, n: int, participation: Participation | None, objective: Objective) -> PrefixLoss:
        """Build the loss for `participation` (None: single), reduced to its minimum separation and maximum count."""
        separation, count = (n, 1) if participation is None else participation.separation_and_count(n)
        separation = min(separation, n)
        return cls(n, separation, max(1, min(count, -(-n // separation))), objective)

    def log_sensitivity_squared(self, c: Floats) -> tuple[float, Floats]:
        """log ||sum_j C_{jb}||^2 and its gradient in the n coefficients of C."""
        summed = spaced_sum(c, self.separation, self.count)
        squared = float(summed @ summed)
        # The adjoint of "add shifts down" is "add shifts up": the same sum on the reversed vector.
        gradient = spaced_sum(2.0 / squared * summed[::-1], self.separation, self.count)[::-1]
        return float(np.log(squared)), gradient

    def log_error_squared(self, b: Floats) -> tuple[float, Floats]:
        """Return log of the mean (or largest) squared row norm of A B and its gradient in the n coefficients of B."""
        prefix = np.cumsum(b)
        weights = np.ones(self.n) if self.objective == "max" else np.arange(self.n, 0, -1) / self.n
        weighted = weights * prefix
        error = float(weighted @ prefix)
        gradient = np.cumsum((2.0 / error * weighted)[::-1])[::-1]
        return float(np.log(error)), gradient

    def value(self, c: Floats, b: Floats) -> float:
        """Return the loss itself, for given coefficients of C and B."""
        return float(np.exp(self.log_sensitivity_squared(c)[0] + self.log_error_squared(b)[0]))
