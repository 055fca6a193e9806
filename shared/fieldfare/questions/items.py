"""Which values are frequent, of a column whose values nobody can list before: codes, identifiers, tokens.

Each user has a set of whole numbers, of which the smallest k count, with weight 1 / sqrt(k) each, so that the norm is
at most 1. The sum has a place for each number that occurred; places are as many as users times k, which is public, and
hold noise whether used or not. Shown are the numbers whose noised count is above a threshold, the largest counts first.

*Privacy* (`accounting.thresholded`): besides mu = 1 / sigma (sigma the noise multiplier; of a count sigma
sqrt(k)) the question takes `leak` from its population's D, which is the probability that a number of one user
alone is shown. A population has next to none unless it was made with `--leak`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from fieldfare.accounting.thresholded import threshold
from fieldfare.arrays import Floats, Indices
from fieldfare.errors import BadInput, Conflict, OutOfRange
from fieldfare.questions.base import Estimate, Question, Values, register
from fieldfare.text import decimal

LARGEST: Final = 1 << 53
"""Numbers of larger size are no values: float64 would take two for one."""
MOST_PLACES: Final = 1 << 17
"""Of one sum: each holds noise, and the released vector has all of them."""


LONGEST_WORD: Final = 6
"""Bytes of UTF-8."""


def number_of(word: str) -> int:
    """Return the number that stands for a word of one to six bytes; 0, which stands for none, for any other.

    A task's column of such numbers is asked about with `words = true`.
    """
    coded = word.encode(errors="replace")
    return int.from_bytes(coded, "big") if len(coded) <= LONGEST_WORD and coded[:1] != b"\0" else 0


@register
class Items(Question):
    """The frequent values of a column of whole numbers, and how many users have each. No list of them is needed."""

    kind: Literal["items"] = "items"
    most: int = Field(default=1, ge=1, le=64, description="distinct values of one user that count: the smallest ones")
    leak: float = Field(
        gt=0, le=0.25, description="probability that a value of one user alone is shown; taken from the population's D"
    )
    words: bool = Field(default=False, description="values are words of up to six bytes, as `number_of` makes numbers")
    users: int = Field(default=0, ge=0, description="users who are asked: filled in from the run's cohort")
    low: float = Field(default=-float(LARGEST), description="the least value; what is below is none")
    high: float = Field(default=float(LARGEST), description="the largest value; what is above is none")

    @model_validator(mode="after")
    def _is_of_a_column(self) -> Self:
        if self.measure in (*self.of_models, self.update_norm):
            raise Conflict(
                f"question.measure = {self.measure!r}", "has no values that occur twice.", "a column, or rows"
            )
        return self

    @property
    def is_of_task(self) -> bool:
        return True

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.width > MOST_PLACES:
            why = f"{self.users} users of {self.most} values each need more than {MOST_PLACES} places."
            raise OutOfRange("question.most", why, f"run.cohort = {MOST_PLACES // self.most}")
        return self

    def of_users(self, users: int) -> Items:
        return self.model_copy(update={"users": users}).model_validate(self.model_dump() | {"users": users})

    @property
    def width(self) -> int:
        return max(1, self.users * self.most)

    @property
    def box(self) -> float:
        return 1 / math.sqrt(self.most)

    @property
    def released(self) -> str:
        return (
            "threshold: how many users have each value that occurred, with independent Gaussian noise; shown are those "
            f"counts that are above a threshold, with their values. With probability {decimal(self.leak)} at most a "
            "value of one user alone is shown, and the charge has that as its leak"
        )

    def of_user(self, numbers: Iterable[float]) -> list[int]:
        """The values of one user that count: distinct whole numbers within the bounds."""
        whole = {int(each) for each in numbers if math.isfinite(each) and each == int(each)}
        return sorted(self.within(whole))[: self.most]

    def within(self, values: Iterable[int]) -> list[int]:
        """Those of `values` that are within the bounds, and words where those are asked for."""
        least, most = (1, (1 << 8 * LONGEST_WORD) - 1) if self.words else (-LARGEST, LARGEST)
        return [each for each in values if max(self.low, least) <= each <= min(self.high, most)]

    def counts(self, sets: Iterable[Iterable[float]]) -> tuple[Indices, Indices]:
        """(values, how many of the users have each), both int64, from each user's numbers."""
        kept = [value for numbers in sets for value in self.of_user(numbers)]
        return np.unique(np.array(kept, np.int64), return_counts=True)

    def contributions(self, values: Values) -> Floats:
        """Refused: there is no vector without the values of all. `counts` is what a node tells."""
        raise BadInput("question.kind = 'items'", "has no place for a value before it occurs.", code="items-no-vector")

    def shown(self, total: Floats, sd: float, spacing: float) -> Floats:
        """`total` without what is not above the threshold, and without what no user has: shape (width,).

        total: noised, in contributions; unused places are 0. sd: of its noise. spacing: of its grid.
        """
        tau = threshold(self.most, sd / self.box, self.leak * (1 - 2.0**-17)) * self.box * (1 + 2.0**-20)
        return np.where(total > tau + 2 * spacing, total, 0.0)

    def read(self, total: Floats, sd: float, users: int) -> tuple[Estimate, ...]:
        return self.answer(range(1, self.width + 1), total, sd, users)

    def answer(self, names: Sequence[float], total: Floats, sd: float, users: int) -> tuple[Estimate, ...]:
        """How many users have each value that is shown. What is not shown may have as many as the last line says."""
        deviation = sd / self.box
        shown = [
            Estimate.normal(self._shown_name(int(name)), float(count) / self.box, deviation, 0, users)
            for name, count in zip(names, total.tolist(), strict=False)
            if count > 0
        ]
        tau = threshold(self.most, deviation, self.leak)
        return (*shown, Estimate("shown from, in users", tau, tau, tau))

    def _shown_name(self, value: int) -> str:
        """Return the word that a value stands for; the number where a node told what no word gives."""
        word = value.to_bytes(8, "big", signed=True).lstrip(b"\0").decode(errors="replace") if self.words else ""
        return word if word.isprintable() and word and number_of(word) == value else str(value)

    def spread(self, sd: float, users: int) -> tuple[tuple[str, float], ...]:
        deviation = sd / self.box
        tau = threshold(self.most, deviation, self.leak)
        return ((f"users of a value, which is shown from {tau:.4g} on", deviation),)
