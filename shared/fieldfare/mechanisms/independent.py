"""Independent noise every round: C = B = I (DP-SGD, Abadi et al. 2016; DP-FedAvg, McMahan et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import torch

from fieldfare.errors import BadInput
from fieldfare.mechanisms.base import About, Mechanism, MechanismSpec, Sensitivity, require_increasing
from fieldfare.mechanisms.registry import register
from fieldfare.participation import CyclicPoisson, FixedOrder, MinSeparation, Participation, Poisson, Single
from fieldfare.streams.independent import IndependentStream

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fieldfare.noise import SecureNoise


class Independent(Mechanism):
    """C = B = I. A user that takes part k times changes the encoded sequence by sqrt(k): exact."""

    kind: ClassVar[str] = "independent"

    def __init__(self, rounds: int, restart_every: int | None = None) -> None:
        self.rounds = rounds
        self.restart_every = restart_every

    def strategy_matrix(self, n: int) -> NDArray[np.float64]:
        return np.eye(self._within(n))

    def noising_matrix(self, n: int) -> NDArray[np.float64]:
        return np.eye(self._within(n))

    def sensitivity(self, participation: Participation, rounds: int | None = None) -> Sensitivity:
        n = self._within(rounds)
        separation, count = participation.separation_and_count(self.rounds)
        most = min(count, -(-n // separation))
        known = isinstance(participation, Single | MinSeparation | FixedOrder | Poisson | CyclicPoisson)  # all reach it
        how = "orthonormal columns: sqrt of the most participations"
        return Sensitivity(float(np.sqrt(most)), "exact" if known else "upper bound", how)

    def pattern_norms(self, patterns: Sequence[Sequence[int]], rounds: int | None = None) -> NDArray[np.float64]:
        n = self._within(rounds)
        for pattern in patterns:
            require_increasing(pattern)
        counts = np.array([sum(t < n for t in pattern) for pattern in patterns], dtype=np.float64)
        return np.asarray(np.sqrt(counts))

    def row_norms(self, n: int | None = None) -> NDArray[np.float64]:
        return np.ones(self._within(n))

    def prefix_row_norms(self, n: int | None = None) -> NDArray[np.float64]:
        return np.asarray(np.sqrt(np.arange(1.0, self._within(n) + 1)))

    def stream(
        self,
        numel: int,
        noise: SecureNoise,
        *,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> IndependentStream:
        return IndependentStream(
            numel, noise, self.rounds, dtype=dtype, device=device, restart_every=self.restart_every
        )

    @property
    def whole(self) -> bool:
        return True

    @property
    def buffers(self) -> int:
        return 0

    def _within(self, n: int | None) -> int:
        n = self.rounds if n is None else n
        if not 0 < n <= self.rounds:
            raise BadInput(f"n = {n}", f"must be in [1, {self.rounds}].", str(min(max(n, 1), self.rounds)))
        return n


@register
class IndependentSpec(MechanismSpec):
    about: ClassVar[About] = About(
        source="Abadi et al. 2016; McMahan et al. 2018",
        memory="0",
        cost="1 draw",
        anytime=True,
        slow=False,
        example={"kind": "independent"},
    )
    kind: Literal["independent"] = "independent"

    def build(self, rounds: int, participation: Participation | None) -> Independent:
        return Independent(rounds, self.restart_every)
