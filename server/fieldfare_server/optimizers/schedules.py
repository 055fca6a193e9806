"""Learning-rate schedules: a factor in (0, 1] for every round, known before the run starts."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Schedule(BaseModel, ABC):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    warmup: float = Field(default=0.0, ge=0, lt=1, description="share of the rounds that rise linearly from 0")

    def factor(self, round: int, rounds: int) -> float:
        """Return the factor on the learning rate in round `round` (from 0) of `rounds`: above 0, at most 1."""
        warmup = math.ceil(self.warmup * rounds)
        return self._shape(round / rounds) * (min(1.0, (round + 1) / warmup) if warmup else 1.0)

    @abstractmethod
    def _shape(self, time: float) -> float:
        """Return the factor without warm-up at time = round / rounds in [0, 1)."""


class Constant(_Schedule):
    """Always 1."""

    kind: Literal["constant"] = "constant"

    def _shape(self, time: float) -> float:
        return 1.0


class CoolDown(_Schedule):
    """1, then falling linearly to `final` over the last `share` of the rounds (a quarter in the published
    DP-FTRL runs, which end at 0.05)."""

    kind: Literal["cool-down"] = "cool-down"
    share: float = Field(default=0.25, gt=0, le=1, description="of the rounds, at the end, over which it falls")
    final: float = Field(default=0.0, ge=0, lt=1, description="factor that the fall ends at")

    def _shape(self, time: float) -> float:
        return min(1.0, self.final + (1.0 - self.final) * (1.0 - time) / self.share)


class Cosine(_Schedule):
    """final + (1 - final) (1 + cos(pi t / T)) / 2."""

    kind: Literal["cosine"] = "cosine"
    final: float = Field(default=0.0, ge=0, le=1, description="factor that the wave ends at")

    def _shape(self, time: float) -> float:
        return self.final + (1.0 - self.final) * 0.5 * (1.0 + math.cos(math.pi * time))


class Polynomial(_Schedule):
    """(1 - t / T)^power. The best power rises from 0 to 1/2 and 1 with more users (Bombari et al. 2025, figure 3)."""

    kind: Literal["polynomial"] = "polynomial"
    power: float = Field(default=1.0, ge=0, le=20, description="of (1 - t / T)")

    def _shape(self, time: float) -> float:
        return float((1.0 - time) ** self.power)


Schedule = Annotated[Constant | CoolDown | Cosine | Polynomial, Field(discriminator="kind")]
