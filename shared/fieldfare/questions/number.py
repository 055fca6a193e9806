"""How many users, and what mean: questions of one number a user.

A value x in [low, high] enters as (x - c) / h, with c the middle of the range and h its half: under zero_out and
replace_one the number of users who answer is public, and the centred value has half the norm, so half the noise.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from pydantic import Field

from fieldfare.arrays import Floats
from fieldfare.questions.base import FEWEST, WIDE, Estimate, ModelQuestion, Values, register

_HALF = math.sqrt(0.5)


@register
class Count(ModelQuestion):
    """How many users have a mean value from `low` to `high`, both included. A user without a value is not counted."""

    kind: Literal["count"] = "count"

    @property
    def width(self) -> int:
        return 1

    def contributions(self, values: Values) -> Floats:
        means = values.means()
        return np.where((means >= self.low) & (means <= self.high), 1.0, -1.0)

    def read(self, total: Floats, sd: float, users: int) -> tuple[Estimate, ...]:
        return (Estimate.normal("users", (users + float(total[0])) / 2, sd / 2, 0, users),)

    def spread(self, sd: float, users: int) -> tuple[tuple[str, float], ...]:
        return (("users", sd / 2),)


@register
class Mean(ModelQuestion):
    """The mean over users of each user's own mean: a user with many rows counts as one user.

    With `some`, over the users who have a value, whose number is noised as well (Fieller's interval of the
    ratio). Without it each user counts, and one without a value as the middle of the range.
    """

    kind: Literal["mean"] = "mean"
    some: bool = Field(default=False, description="only some users have a value: ask how many, too")

    @property
    def width(self) -> int:
        return 1 + self.some

    def contributions(self, values: Values) -> Floats:
        means = Values(np.clip(values.numbers, self.low, self.high), values.owner, values.users).means()
        centred = np.clip((means - (self.low + self.high) / 2) / self._half, -1.0, 1.0)
        if self.some:
            centred = np.concatenate([centred, np.where(np.isnan(centred), np.nan, 1.0)], axis=1) * _HALF
        return np.nan_to_num(centred)

    def read(self, total: Floats, sd: float, users: int) -> tuple[Estimate, ...]:
        middle, half = (self.low + self.high) / 2, self._half
        if not self.some:
            one = half / users
            return (Estimate.normal("mean", middle + one * float(total[0]), one * sd, self.low, self.high),)
        top, bottom = float(total[0]), float(total[1])
        counted = Estimate.normal("users with a value", bottom / _HALF, sd / _HALF, 0, users)
        if bottom < FEWEST * sd:
            return Estimate("mean", None, self.low, self.high), counted
        # Fieller: the ratios r for which top - r bottom is within its noise, sd sqrt(1 + r^2).
        noise = (WIDE * sd) ** 2
        a, b, c = bottom**2 - noise, top * bottom, top**2 - noise
        root = math.sqrt(max(0.0, b * b - a * c))
        value, low, high = (
            float(np.clip(middle + half * ratio, self.low, self.high))
            for ratio in (top / bottom, (b - root) / a, (b + root) / a)
        )
        return Estimate("mean", value, low, high), counted

    def having(self, total: Floats, sd: float, users: int) -> tuple[Estimate, ...]:
        return () if self.some else (Estimate.at_least("users with a value", total, sd, users),)

    def spread(self, sd: float, users: int) -> tuple[tuple[str, float], ...]:
        one = self._half * sd / users
        # At the end of the range the ratio's two errors add up.
        return (("mean", 2 * one if self.some else one),)

    @property
    def _half(self) -> float:
        return (self.high - self.low) / 2
