"""Adaptive clipping: the norm follows a quantile of the users' update norms."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from fieldfare.clipping.base import ClippingSpec, clippings
from fieldfare.errors import OutOfRange
from fieldfare.registry import NORM


@clippings.register
class AdaptiveQuantile(ClippingSpec):
    """A clip norm that follows the `quantile` of the users' update norms (Andrew et al. 2021), with any
    mechanism.

    Each user contributes the vector (clip(v / C_t), w e) of d + 1 coordinates, C_t the norm of this round, e
    = 1 if ||v|| > C_t else 0, w = `count_weight`. Privatising that one stream with one mechanism prices both:

    * sensitivity does not depend on C_t: the update part has norm at most 1, the indicator part at most w, so
      one contribution has norm at most `joint_bound` = sqrt(1 + w^2), reached exactly (e = 1 implies norm 1).
      A zero update gives the zero contribution, so this is the sensitivity of `zero_out` and of secret
      presence; `replace_one` is exactly sqrt(4 + w^2), below the 2 sqrt(1 + w^2) that the adjacency factor
      charges.
    * C_t is a function of earlier noised sums, which the mechanism's proof for adaptively chosen inputs
      covers; correlated noise keeps its cancellation because the stream, and not C_t times it, is what is
      noised.
    * the indicator's noise enters log C as a prefix sum, which is what correlated mechanisms make small.

    `rescale`: multiply the noised mean by C_t, as published; without it the step is learning_rate x (v /
    C_t), which keeps learning_rate x norm, and so the scale of the noise in the model, constant (Bombari et
    al. 2025, section 5).
    """

    kind: Literal["adaptive-quantile"] = "adaptive-quantile"
    quantile: float = Field(default=0.5, gt=0, lt=1, description="target share of users that are not clipped")
    rate: float = Field(default=0.2, gt=0, le=2, description="eta_C of the geometric update")
    count_weight: float = Field(default=0.1, gt=0, le=1, description="w: weight of the indicator in the noised vector")
    least: float = Field(default=1e-6, gt=0, description="the norm never falls below this", json_schema_extra=NORM)
    most: float = Field(default=1e6, gt=0, description="the norm never rises above this", json_schema_extra=NORM)
    rescale: bool = Field(default=False, description="multiply the noised mean by the round's norm, as published")

    counts: ClassVar[int] = 1

    @model_validator(mode="after")
    def _in_range(self) -> Self:
        if not self.least <= self.norm <= self.most:
            nearest = min(max(self.norm, self.least), self.most)
            raise OutOfRange(
                f"clipping.norm = {self.norm}", f"must lie between {self.least} and {self.most}.", str(nearest)
            )
        return self

    @property
    def bound(self) -> float:
        return 1.0

    @property
    def joint_bound(self) -> float:
        return math.sqrt(1.0 + self.count_weight**2)

    @property
    def indicator_weight(self) -> float:
        return self.count_weight

    def mean_scale(self, norm: float) -> float:
        return norm if self.rescale else 1.0

    def step(self, norm: float, noised_over: float, users: int) -> float:
        """Return the next round's norm: norm x exp(-rate x (share not clipped - quantile)), within [least,
        most].

        More users below the norm than wanted lower it.

        Args:
            norm: of this round.
            noised_over: the noised sum of the indicators, already divided by `count_weight`.
            users: how many users the sum is over: the number of reports where that is public (`zero_out`),
                the planned cohort otherwise.

        Raises:
            ValueError: no users, or a sum that is not finite.
        """
        if users < 1:
            raise ValueError("a norm cannot follow a quantile of no users")
        if not math.isfinite(noised_over):
            raise ValueError(f"the released count is {noised_over}")
        # Noise takes the share outside of [0, 1]; cutting it there limits how far one round moves the norm.
        below = 1.0 - min(max(noised_over / users, 0.0), 1.0)
        moved = norm * math.exp(-self.rate * (below - self.quantile))
        return min(max(moved, self.least), self.most)
