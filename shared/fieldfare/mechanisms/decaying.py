"""Independent noise that falls over the run, a noise schedule: B = diag(g), C = diag(1 / g), 1 = g_0 >= g_1
>= ...

Every model is released here, so round t costs what its own noise costs: a user of rounds P is charged mu^2 =
sum_{t in P} (1 / (sigma g_t))^2. Amplification by iteration, under which a decaying schedule pays in Bombari,
Seroussi and Mondelli 2025, holds for the last model alone and is never charged.

With one participation the cost is that of the round of least noise. Constant noise of that size then costs
the same, and less noise is nowhere: a schedule can only pay where users take part several times, in a fixed
order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, Unpack

import numpy as np
from pydantic import Field

from fieldfare.arrays import Floats
from fieldfare.factorization.sensitivity import Sensitivity, require_increasing
from fieldfare.factorization.stamping import block_rounds
from fieldfare.factorization.toeplitz import ColumnProducts
from fieldfare.factorization.triangular import best_separated
from fieldfare.mechanisms.base import About, Mechanism, MechanismSpec
from fieldfare.mechanisms.registry import register
from fieldfare.mechanisms.stamped import stamped
from fieldfare.noise import SecureNoise
from fieldfare.participation import IN_STEP, MinSeparation, Participation, Poisson, Single
from fieldfare.registry import ROUNDS
from fieldfare.streams.banded import InverseBandStream
from fieldfare.streams.base import OnDevice


def levels(rounds: int, final: float, shape: Literal["linear", "geometric"], hold: int) -> Floats:
    """Return g_t: 1 in the first `hold` rounds, `final` in the last, falling from step to step; float32
    values, shape (T,).

    Args:
        rounds: T.
        final: g of the last rounds.
        shape: whether g falls by equal differences or by equal factors.
        hold: rounds of one step.
    """
    steps = -(-rounds // hold)
    progress = (np.arange(rounds) // hold) / max(1, steps - 1)
    falling = 1.0 - (1.0 - final) * progress if shape == "linear" else final**progress
    # The stream multiplies float32 vectors by these numbers: what is charged is what it multiplies by.
    return np.asarray(falling.astype(np.float32), np.float64)


class Decaying(Mechanism):
    """C = diag(1 / g), B = diag(g).

    Formal guarantee: round t releases x_t + sigma g_t z_t. C's columns are orthogonal, so a user's encoded
    sequence changes by at most sqrt(sum over its rounds of 1 / g_t^2): exact, by a program over separated
    rounds, or over the offsets of a fixed order. zCDP with rho = (sensitivity / sigma)^2 / 2.
    """

    kind = "decaying"
    applies = ("levels",)

    def __init__(self, levels: Floats) -> None:
        """
        Args:
            levels: g, positive, shape (T,).
        """
        self.rounds = len(levels)
        self.levels = np.array(levels, np.float64)
        self.levels.setflags(write=False)

    def strategy_matrix(self, n: int) -> Floats:
        return np.diag(1.0 / self.levels[: self._released(n)])

    def noising_matrix(self, n: int) -> Floats:
        return np.diag(self.levels[: self._released(n)])

    def sensitivity(self, participation: Participation, rounds: int | None = None) -> Sensitivity:
        n = self._released(rounds)
        separation, count = participation.separation_and_count(self.rounds)
        costs = 1.0 / np.square(self.levels[:n])
        how = "orthogonal columns: the costliest rounds of one user"
        if isinstance(participation, IN_STEP):
            offsets = (np.sort(costs[first::separation])[::-1][:count].sum() for first in range(min(separation, n)))
            return Sensitivity(float(np.sqrt(max(offsets))), "exact", how)
        count = min(count, -(-n // separation))
        # Each of these allows every separated pattern, so the value is attained.
        known = isinstance(participation, Single | MinSeparation | Poisson)
        value = float(np.sqrt(best_separated(costs, separation, count)))
        return Sensitivity(value, "exact" if known else "upper bound", how)

    def pattern_norms(self, patterns: Sequence[Sequence[int]], rounds: int | None = None) -> Floats:
        n = self._released(rounds)
        costs = 1.0 / np.square(self.levels[:n])
        for pattern in patterns:
            require_increasing(pattern)
        return np.array([np.sqrt(sum(costs[t] for t in pattern if t < n)) for pattern in patterns], np.float64)

    def row_norms(self, n: int | None = None) -> Floats:
        return np.array(self.levels[: self._released(n)])

    def prefix_row_norms(self, n: int | None = None) -> Floats:
        return np.asarray(np.sqrt(np.cumsum(np.square(self.levels[: self._released(n)]))))

    def stream(self, numel: int, noise: SecureNoise, **settings: Unpack[OnDevice]) -> InverseBandStream:
        one = np.ones(1)
        return InverseBandStream(numel, noise, self.rounds, one, column_norms=self.levels, **settings)

    @property
    def buffers(self) -> int:
        return 0

    def bandwidth(self) -> int:
        return 1

    def column_products(self) -> ColumnProducts:
        return lambda t: (float(self.levels[t] ** -2), np.empty(0))


@register
class DecayingSpec(MechanismSpec):
    about: ClassVar[About] = About(
        source="Bombari, Seroussi, Mondelli 2025 (for released rounds)",
        memory="0",
        cost="1 draw",
        anytime=False,
        slow=False,
        example={"kind": "decaying"},
    )
    kind: Literal["decaying"] = "decaying"
    final: float = Field(default=0.5, ge=1e-3, le=1, description="noise of the last round, in that of the first")
    shape: Literal["linear", "geometric"] = Field(default="linear", description="how it falls")
    hold: int = Field(
        default=1, ge=1, description="rounds of each level: those of an epoch, say", json_schema_extra=ROUNDS
    )

    def build(self, rounds: int, participation: Participation | None) -> Mechanism:
        block = block_rounds(self.restart_every, rounds)
        return stamped(Decaying(levels(block, self.final, self.shape, self.hold)), self.restart_every, rounds)
