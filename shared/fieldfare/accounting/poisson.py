"""Rounds that include each user by a secret coin, as Poisson and cyclic Poisson sampling draw them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from fieldfare.accounting.composition import DiscreteLoss
from fieldfare.accounting.sampled import SampledEvent, number, poisson_losses, register
from fieldfare.errors import OutOfRange
from fieldfare.participation import CyclicPoisson, Participation, Poisson


@register
@dataclass(frozen=True)
class PoissonGaussian(SampledEvent):
    """`count` rounds of Gaussian noise, each of which includes every user independently with probability
    `rate`.

    No round shows who was included, nor how many. noise_multiplier: noise std over the most that one user
    changes.
    """

    own: ClassVar = frozenset({"rate"})
    participations: ClassVar[tuple[type[Participation], ...]] = (Poisson, CyclicPoisson)

    rate: float
    noise_multiplier: float
    count: int

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise OutOfRange(f"rate = {self.rate}", "must be in (0, 1].", "1.0")
        super().__post_init__()

    @classmethod
    def of(cls, participation: Poisson | CyclicPoisson) -> Self:
        return cls(participation.rate, 1.0, 1)

    @classmethod
    def groups(cls, participation: Poisson | CyclicPoisson) -> int:
        return participation.groups if isinstance(participation, CyclicPoisson) else 1

    @property
    def sampler(self) -> str:
        return f"each user independently with probability {self.rate:.4g}"

    @property
    def bound(self) -> str:
        return f"privacy loss distributions of {self.count} rounds, discretised upwards"

    @property
    def spread(self) -> float:
        """Estimate the standard deviation of one round's loss: q sqrt(exp(1/sigma^2) - 1), at most 1/sigma."""
        inverse = 1 / self.noise_multiplier
        return min(self.rate * math.sqrt(math.expm1(min(inverse * inverse, 700.0))), inverse)

    def losses(self, step: float) -> tuple[DiscreteLoss, DiscreteLoss]:
        return poisson_losses(self.rate, self.noise_multiplier, step)

    def to_json(self) -> object:
        return [self.rate, self.noise_multiplier, self.count]

    @classmethod
    def from_table(cls, noise_multiplier: float, count: int, own: Mapping[str, object]) -> SampledEvent:
        return cls(number(own["rate"]), noise_multiplier, count)
