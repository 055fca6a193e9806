"""Independent noise every round: C = B = I (DP-SGD, Abadi et al. 2016; DP-FedAvg, McMahan et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, Unpack

import numpy as np

from fieldfare.arrays import Floats
from fieldfare.factorization.sensitivity import Sensitivity, require_increasing
from fieldfare.factorization.toeplitz import ColumnProducts
from fieldfare.mechanisms.base import About, Mechanism, MechanismSpec
from fieldfare.mechanisms.registry import register
from fieldfare.noise import SecureNoise
from fieldfare.participation import SAMPLED, FixedOrder, MinSeparation, Participation, Single
from fieldfare.streams.base import OnDevice
from fieldfare.streams.independent import IndependentStream


class Independent(Mechanism):
    """C = B = I.

    Formal guarantee: round t releases x_t + sigma z_t. A user who takes part k times changes the encoded
    sequence by at most sqrt(k), which every participation of this project attains: exact. zCDP with rho = k /
    (2 sigma^2).
    """

    kind = "independent"

    def __init__(self, rounds: int, restart_every: int | None = None) -> None:
        """
        Args:
            rounds: the horizon.
            restart_every: restarts change no row of noise here, only the identity of the stream.
        """
        self.rounds = rounds
        self.restart_every = restart_every

    def strategy_matrix(self, n: int) -> Floats:
        return np.eye(self._released(n))

    def noising_matrix(self, n: int) -> Floats:
        return np.eye(self._released(n))

    def sensitivity(self, participation: Participation, rounds: int | None = None) -> Sensitivity:
        n = self._released(rounds)
        separation, count = participation.separation_and_count(self.rounds)
        most = min(count, -(-n // separation))
        # Each of these allows some pattern of `most` rounds, so the value is attained.
        known = isinstance(participation, (Single, MinSeparation, FixedOrder, *SAMPLED))
        how = "orthonormal columns: sqrt of the most participations"
        return Sensitivity(float(np.sqrt(most)), "exact" if known else "upper bound", how)

    def pattern_norms(self, patterns: Sequence[Sequence[int]], rounds: int | None = None) -> Floats:
        n = self._released(rounds)
        for pattern in patterns:
            require_increasing(pattern)
        counts = np.array([sum(t < n for t in pattern) for pattern in patterns], dtype=np.float64)
        return np.asarray(np.sqrt(counts))

    def row_norms(self, n: int | None = None) -> Floats:
        return np.ones(self._released(n))

    def prefix_row_norms(self, n: int | None = None) -> Floats:
        return np.asarray(np.sqrt(np.arange(1.0, self._released(n) + 1)))

    def stream(self, numel: int, noise: SecureNoise, **settings: Unpack[OnDevice]) -> IndependentStream:
        return IndependentStream(numel, noise, self.rounds, **settings, restart_every=self.restart_every)

    @property
    def whole(self) -> bool:
        return True

    @property
    def buffers(self) -> int:
        return 0

    def bandwidth(self) -> int:
        return 1

    def column_products(self) -> ColumnProducts:
        return lambda t: (1.0, np.empty(0))


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
