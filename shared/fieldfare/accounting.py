"""Stand-in for the contract of `fieldfare.accounting`."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from statistics import NormalDist

_N = NormalDist()


@dataclass(frozen=True)
class SampledGaussian:
    rate: float
    noise_multiplier: float
    count: int


@dataclass(frozen=True)
class PrivacyLoss:
    mu_squared: float = 0.0
    sampled: tuple[SampledGaussian, ...] = ()

    @property
    def mu(self) -> float:
        return math.sqrt(self.mu_squared)

    def __add__(self, other: PrivacyLoss) -> PrivacyLoss:
        merged: dict[tuple[float, float], int] = {}
        for s in self.sampled + other.sampled:
            merged[s.rate, s.noise_multiplier] = merged.get((s.rate, s.noise_multiplier), 0) + s.count
        return PrivacyLoss(
            self.mu_squared + other.mu_squared, tuple(SampledGaussian(*k, n) for k, n in sorted(merged.items()))
        )

    def epsilon(self, delta: float) -> float:
        mu = math.sqrt(self.mu_squared + sum(s.count / s.noise_multiplier**2 for s in self.sampled))
        if mu == 0:
            return 0.0
        low, high = 0.0, mu * mu / 2 + mu * 40
        for _ in range(80):
            mid = (low + high) / 2
            value = _N.cdf(mu / 2 - mid / mu) - math.exp(min(mid, 700)) * _N.cdf(-mu / 2 - mid / mu)
            low, high = (mid, high) if value > delta else (low, mid)
        return high

    def to_json(self) -> str:
        return json.dumps(
            {"mu_squared": self.mu_squared, "sampled": [[s.rate, s.noise_multiplier, s.count] for s in self.sampled]}
        )

    @classmethod
    def from_json(cls, text: str) -> PrivacyLoss:
        data = json.loads(text)
        return cls(data["mu_squared"], tuple(SampledGaussian(*row) for row in data["sampled"]))
