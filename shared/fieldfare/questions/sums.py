"""Sums of many numbers at once: tables of counts, as a query of a Flower app replies them.

Without `norm` each number is centred in [low, high], and all of a user's numbers together are divided by the longest
they can be, half (high - low) times the square root of how many they are. With `norm` the numbers of one user, cut to
[low, high] and not centred, are scaled down to that length where they are longer: less noise where most users are far
from the corner, and a bias where users are longer than `norm`. Either way a user's vector has norm at most 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from fieldfare.arrays import Floats
from fieldfare.errors import OutOfRange
from fieldfare.questions.base import MOST_CELLS, Estimate, Question, Values, register


@register
class TableSums(Question):
    """The sum over users of each number of named lists: such as the counts of a histogram that each node makes."""

    kind: Literal["sums"] = "sums"
    measure: Literal["entries"] = Field(default="entries", description="what `entries` names")
    entries: dict[str, int] = Field(min_length=1, description="how many numbers each named list of a user has")
    low: float = Field(default=0.0, description="the least of a number; what is below counts as this")
    norm: float | None = Field(
        default=None, gt=0, description="the longest that all numbers of a user count, together; any if left out"
    )

    @model_validator(mode="after")
    def _are_few(self) -> Self:
        if min(self.entries.values()) < 1 or self.width > MOST_CELLS:
            why = f"a user has {self.width} numbers, or a list has none."
            raise OutOfRange("question.entries", why, f"1 to {MOST_CELLS} in all")
        return self

    def __hash__(self) -> int:
        return hash(self.model_dump_json())  # a mapping has no hash of its own

    @property
    def width(self) -> int:
        return sum(self.entries.values())

    @property
    def named(self) -> tuple[str, ...]:
        return tuple(sorted(self.entries))

    def of_one(self, told: Mapping[str, Sequence[float]]) -> Values:
        lists = [(told.get(name, ()), self.entries[name]) for name in self.named]
        row = [number for own, count in lists for number in (own if len(own) == count else [math.nan] * count)]
        return Values(np.array([row]), np.zeros(1, np.int64), 1)

    def contributions(self, values: Values) -> Floats:
        cut = Values(np.clip(values.numbers, self.low, self.high), values.owner, values.users)
        found: Floats = np.nan_to_num((cut.means() - self._middle) / self._scale)
        found /= np.maximum(1.0, np.linalg.norm(found, axis=1, keepdims=True))
        return found

    def read(self, total: Floats, sd: float, users: int) -> tuple[Estimate, ...]:
        counts = [(name, self.entries[name]) for name in self.named]
        names = [f"{name} {at + 1}" if count > 1 else name for name, count in counts for at in range(count)]
        ends = [self.low, self.high, 0.0] if self.norm else [self.low, self.high]
        least, most, middle = users * min(ends), users * max(ends), users * self._middle
        return tuple(
            Estimate.normal(name, middle + self._scale * value, self._scale * sd, least, most)
            for name, value in zip(names, total.tolist(), strict=True)
        )

    def having(self, total: Floats, sd: float, users: int) -> tuple[Estimate, ...]:
        ends, root = np.cumsum([self.entries[name] for name in self.named]), math.sqrt(self.width)
        lists = [] if self.norm else zip(self.named, np.split(root * total, ends[:-1]), strict=True)
        return tuple(Estimate.at_least(f"users with {name}", own, root * sd, users) for name, own in lists)

    def spread(self, sd: float, users: int) -> tuple[tuple[str, float], ...]:
        return (("a sum", self._scale * sd),)

    @property
    def _middle(self) -> float:
        return 0.0 if self.norm else (self.low + self.high) / 2

    @property
    def _scale(self) -> float:
        return self.norm or (self.high - self.low) / 2 * math.sqrt(self.width)
