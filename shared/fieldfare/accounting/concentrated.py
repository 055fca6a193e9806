"""Mechanisms of which only rho-zCDP is known: discrete noise, as the ledger's first version charged it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fieldfare.accounting.event import CostEvent, Price, Words
from fieldfare.accounting.gaussian import zcdp_delta, zcdp_epsilon
from fieldfare.errors import Unsupported


@dataclass(frozen=True)
class Concentrated(CostEvent):
    """They compose by rho, the sum of which is at least 0."""

    rank: ClassVar = 1
    rho: float

    @property
    def words(self) -> Words:
        return Words(
            "zcdp",
            "zero-concentrated DP of one correlated release, converted to (epsilon, delta)",
            "Zero-concentrated DP, stated also as approximate DP",
        )

    def curve(self, delta: float) -> float:
        return zcdp_epsilon(self.rho, delta)

    def delta(self, epsilon: float) -> float:
        return zcdp_delta(self.rho, epsilon)

    def price(self, leak: float) -> Price:
        raise Unsupported("a charge of which only rho-zCDP is known", "has no exact price in this filter.")

    def compose(self, other: CostEvent) -> Concentrated | None:
        return Concentrated(self.rho + other.rho) if isinstance(other, Concentrated) else None

    def without_amplification(self) -> Concentrated:
        return self

    def to_json(self) -> float:
        return self.rho
