"""The best Toeplitz noise for gradient descent on a quadratic whose spectrum is known.

For the stationary error of noisy gradient descent with Hessian eigenvalues lambda_j and learning rate eta under one
participation: |B(omega)|^2 = 1/sqrt(h(omega)), h = sum_j lambda_j / |1 - e^{i omega} - eta lambda_j|^2 (Choquette-Choo
et al. 2023, arXiv 2310.06771, C.18 with its square root restored; one eigenvalue gives `nu` with nu = eta lambda).
beta is its minimum-phase factor, C = B^-1 by the exact recursion; sensitivities are exact where C is found
non-increasing.

Optimal for that error and one participation only; under other participations it is still a valid mechanism.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from fieldfare.errors import BadInput
from fieldfare.mechanisms.base import Mechanism, MechanismSpec
from fieldfare.mechanisms.registry import register
from fieldfare.mechanisms.stamped import block_rounds, stamped
from fieldfare.mechanisms.toeplitz import ToeplitzMechanism, inverse, row_stream, window_stream
from fieldfare.theory.spectra import optimal_coefficients

if TYPE_CHECKING:
    from fieldfare.participation import Participation


@register
class SpectralSpec(MechanismSpec):
    """`eigenvalues` of the Hessian (> 0), `learning_rate` of the server (< 1 / largest eigenvalue)."""

    kind: Literal["spectral"] = "spectral"
    eigenvalues: tuple[float, ...] = Field(min_length=1)
    learning_rate: float = Field(gt=0)
    engine: Literal["replay", "memory"] = "replay"
    window: int | None = Field(default=None, ge=1, description="cut beta to this many entries")

    def build(self, rounds: int, participation: Participation | None) -> Mechanism:
        n = block_rounds(self.restart_every, rounds)
        if self.window is not None and self.window > n:
            raise BadInput(f"mechanism.window = {self.window}", f"must be in [1, {n}], a block's rounds.", str(n))
        width = self.window or n
        beta = optimal_coefficients(self.eigenvalues, self.learning_rate, width)
        if self.window is not None:
            make, buffers = window_stream(beta, n), width - 1
        else:
            make, buffers = row_stream(beta, n, self.engine), n if self.engine == "memory" else 0
        block = ToeplitzMechanism(self.kind, n, inverse(beta, n), beta, make, buffers=buffers)
        return stamped(block, self.restart_every, rounds)
