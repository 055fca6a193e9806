"""Anti-correlated perturbed gradient descent: noise row z_t - (1 - nu) z_{t-1}.

Orvieto et al. 2022 (nu = 0) and the damped variant of Choquette-Choo et al. 2023 (arXiv 2310.06771, Table 2 and C.5).
beta = (1, -(1 - nu)), c_t = (1 - nu)^t: non-negative and non-increasing, so sensitivities are exact. One participation:
gamma_T^2 = (1 - (1 - nu)^(2T)) / (nu (2 - nu)), and T for nu = 0, which is why the undamped form is no mechanism for
long runs. One vector of state: the previous z.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from fieldfare.mechanisms.base import About, Mechanism, MechanismSpec
from fieldfare.mechanisms.registry import register
from fieldfare.mechanisms.stamped import block_rounds, stamped
from fieldfare.mechanisms.toeplitz import ToeplitzMechanism, single, window_stream

if TYPE_CHECKING:
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
    nu: float = Field(default=0.0, ge=0, le=1)

    def build(self, rounds: int, participation: Participation | None) -> Mechanism:
        n = block_rounds(self.restart_every, rounds)
        decay = float(single(np.array(1.0 - self.nu)))
        beta = np.array([1.0, -decay])[: 1 if decay == 0 else n]
        c = decay ** np.arange(n)
        block = ToeplitzMechanism(self.kind, n, c, beta, window_stream(beta, n), buffers=len(beta) - 1)
        return stamped(block, self.restart_every, rounds)
