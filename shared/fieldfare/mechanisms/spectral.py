"""The best Toeplitz noise for gradient descent on a quadratic whose spectrum is known.

For the stationary error of noisy gradient descent with Hessian eigenvalues lambda_j and learning rate eta
under one participation: |B(omega)|^2 = 1/sqrt(h(omega)), h = sum_j lambda_j / |1 - e^{i omega} - eta
lambda_j|^2 (Choquette-Choo et al. 2023, arXiv 2310.06771, C.18 with its square root restored; one eigenvalue
gives `nu` with nu = eta lambda). beta is its minimum-phase factor, C = B^-1 by the exact recursion.

Formal guarantee: that of `ToeplitzMechanism`; sensitivities under min-separation are exact where C is found
non-increasing. The mechanism is valid under every participation, and optimal for the stationary error under
one.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from fieldfare.errors import OutOfRange, Unsupported
from fieldfare.factorization import rational
from fieldfare.factorization.spectra import optimal_coefficients
from fieldfare.factorization.stamping import block_rounds
from fieldfare.factorization.toeplitz import inverse, round_to_float32
from fieldfare.mechanisms.base import About, Mechanism, MechanismSpec
from fieldfare.mechanisms.optimum import recall_exponentials
from fieldfare.mechanisms.registry import register
from fieldfare.mechanisms.stamped import stamped
from fieldfare.mechanisms.toeplitz import ToeplitzMechanism, exponential_mechanism, row_mechanism, window_stream
from fieldfare.participation import Participation, Single


@register
class SpectralSpec(MechanismSpec):
    """`eigenvalues` of the Hessian (> 0), `learning_rate` of the server (< 1 / largest eigenvalue)."""

    about: ClassVar[About] = About(
        source="Choquette-Choo et al. 2023, C.18",
        memory="3 to 16 (fast)",
        cost="1 draw, 2 passes a buffer",
        anytime=True,
        slow=False,
        example={"kind": "spectral", "eigenvalues": [1.0, 0.1, 0.01], "learning_rate": 0.1},
    )
    kind: Literal["spectral"] = "spectral"
    eigenvalues: tuple[Annotated[float, Field(gt=0)], ...] = Field(min_length=1, description="of the loss's Hessian")
    learning_rate: float = Field(gt=0, description="of the server; below 1 / largest eigenvalue")
    engine: Literal["fast", "exact", "memory", "replay"] = Field(default="fast", description="as for nu")
    window: int | None = Field(default=None, ge=1, description="cut beta to this many entries")
    tolerance: float = Field(default=1e-3, ge=1e-8, le=0.1, description="fast: relative change of mean and max error")

    def build_cached(
        self, rounds: int, participation: Participation | None, cache: MutableMapping[str, bytes]
    ) -> Mechanism:
        n = block_rounds(self.restart_every, rounds)
        if self.window is not None and self.window > n:
            raise OutOfRange(f"mechanism.window = {self.window}", f"must be in [1, {n}], a block's rounds.", str(n))
        fastest = 1 / max(self.eigenvalues)
        if self.learning_rate >= fastest:
            why = f"must be in (0, 1 / largest eigenvalue) = (0, {fastest:.6g})."
            raise OutOfRange(f"mechanism.learning_rate = {self.learning_rate}", why, f"{fastest / 2:.3g}")
        return stamped(self._block(n, participation or Single(), cache), self.restart_every, rounds)

    def _block(self, n: int, participation: Participation, cache: MutableMapping[str, bytes]) -> ToeplitzMechanism:
        width = self.window or n
        beta = optimal_coefficients(self.eigenvalues, self.learning_rate, width)
        windowed = self.window is not None or n == 1
        if windowed:
            beta = round_to_float32(beta)
        c = inverse(beta, n)
        if windowed:
            return ToeplitzMechanism(self.kind, n, c, beta, window_stream(len(beta)), buffers=width - 1)
        if self.engine == "fast":
            # Below 1e-12 of beta_0 all is round-off. The fit only needs signs: its C is what is charged.
            if (beta[1:] > 1e-12).any():
                raise Unsupported("mechanism.engine = 'fast'", "needs beta_t <= 0 for t >= 1.", "'replay'")
            falling = np.concatenate([beta[:1], np.minimum(beta[1:], 0.0)])
            fit = recall_exponentials(cache, lambda: rational.nearest(c, falling, participation, self.tolerance))
            return exponential_mechanism(self.kind, fit, n)
        return row_mechanism(self.kind, c, beta, self.engine)
