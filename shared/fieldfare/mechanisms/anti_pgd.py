"""Anti-correlated perturbed gradient descent: noise row z_t - (1 - nu) z_{t-1}.

Orvieto et al. 2022 (nu = 0) and the damped variant of Choquette-Choo et al. 2023 (arXiv 2310.06771, Table 2
and C.5). beta = (1, -(1 - nu)), so c_t = (1 - nu)^t. The state is one vector: the previous z.

Formal guarantee: that of `ToeplitzMechanism`. c is non-negative and non-increasing, so sensitivities under
min-separation are exact. For one participation sensitivity^2 = (1 - (1 - nu)^(2T)) / (nu (2 - nu)), and T for
nu = 0, which is why the undamped form does not suit long runs.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fieldfare.factorization.stamping import block_rounds
from fieldfare.factorization.toeplitz import round_to_float32
from fieldfare.mechanisms.base import About, Mechanism, MechanismSpec
from fieldfare.mechanisms.registry import register
from fieldfare.mechanisms.stamped import stamped
from fieldfare.mechanisms.toeplitz import ToeplitzMechanism, window_stream
from fieldfare.participation import Participation


@register
class AntiPGDSpec(MechanismSpec):
    """`nu`: damping in [0, 1]; 0 is plain anti-PGD, 1 independent noise."""

    about: ClassVar[About] = About(
        source="Orvieto et al. 2022",
        memory="1",
        cost="1 draw, 1 pass",
        anytime=True,
        slow=False,
        example={"kind": "anti-pgd", "nu": 0.05},
    )
    kind: Literal["anti-pgd"] = "anti-pgd"
    nu: float = Field(default=0.0, ge=0, le=1, description="damping: 0 is plain anti-PGD, 1 independent noise")

    def build(self, rounds: int, participation: Participation | None) -> Mechanism:
        n = block_rounds(self.restart_every, rounds)
        decay = float(round_to_float32(np.array(1.0 - self.nu)))
        beta = np.array([1.0, -decay])[: 1 if decay == 0 else n]
        c = decay ** np.arange(n)
        block = ToeplitzMechanism(self.kind, n, c, beta, window_stream(len(beta)), buffers=len(beta) - 1)
        return stamped(block, self.restart_every, rounds)
