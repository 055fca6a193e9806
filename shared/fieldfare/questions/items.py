"""Which values are frequent, of a column whose values nobody can list before: codes, identifiers, tokens.

Each user has a set of whole numbers or of words, of which the first k in their order count, with weight 1 / sqrt(k)
each, so that the norm is at most 1. The sum has a place for each value that occurred; places are as many as users times
k, which is public, and hold noise whether used or not. Shown are the values whose noised count is above a threshold,
the largest counts first.

*Privacy* (`accounting.thresholded`): besides mu = 1 / sigma (sigma the noise multiplier; of a count sigma
sqrt(k)) the question takes `leak` from its population's D, which is the probability that a value of one user
alone is shown. A population has next to none unless it was made with `--leak`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fieldfare.accounting.thresholded import threshold
from fieldfare.arrays import Floats, Indices
from fieldfare.errors import BadInput, Conflict, OutOfRange
from fieldfare.questions.base import Estimate, Question, Values, register
from fieldfare.text import decimal

# Numbers of larger size are no values: float64 would take two for one.
LARGEST: Final = 1 << 53
# Of one sum: each holds noise, and the released vector has all of them.
MOST_PLACES: Final = 1 << 17
# Bytes of UTF-8.
LONGEST_WORD: Final = 64
# A value: a whole number, or a word.
Item: TypeAlias = int | str


def is_word(text: str) -> bool:
    """Return whether `text` is one to 64 bytes of UTF-8 that a terminal and a page show as they are."""
    return bool(text) and text.isprintable() and "\ufffd" not in text and len(text.encode()) <= LONGEST_WORD


def by_value(item: Item) -> tuple[int, str]:
    """Return what values of one kind are put in order by."""
    return (0, item) if isinstance(item, str) else (item, "")


def letters_of(words: Iterable[str]) -> NDArray[np.uint8]:
    """Return a task's column of words, shape (words, 64); what is no word (`is_word`) becomes none.

    Such a column is asked about with `words = true`.
    """
    coded = np.array([word.encode() if is_word(word) else b"" for word in words], f"S{LONGEST_WORD}")
    return coded.view(np.uint8).reshape(len(coded), LONGEST_WORD)


def words_of(letters: NDArray[np.uint8]) -> list[str]:
    """Return what `letters_of` made letters of. What is no UTF-8 is no word."""
    coded = np.ascontiguousarray(letters).view(f"S{letters.shape[1]}").reshape(len(letters))
    return [each.decode(errors="replace") for each in coded.tolist()]


@register
class Items(Question):
    """The frequent values of a column of whole numbers, and how many users have each. No list of them is needed."""

    kind: Literal["items"] = "items"
    most: int = Field(default=1, ge=1, le=64, description="distinct values of one user that count: the smallest ones")
    leak: float = Field(
        gt=0, le=0.25, description="probability that a value of one user alone is shown; taken from the population's D"
    )
    words: bool = Field(default=False, description="values are words of up to 64 bytes, as `letters_of` makes a column")
    users: int = Field(default=0, ge=0, description="users who are asked: filled in from the run's cohort")
    low: float = Field(default=-float(LARGEST), description="the least value; what is below is none")
    high: float = Field(default=float(LARGEST), description="the largest value; what is above is none")

    @model_validator(mode="after")
    def _is_of_a_column(self) -> Self:
        if self.measure in (*self.of_models, self.update_norm):
            raise Conflict(
                f"question.measure = {self.measure!r}", "has no values that occur twice.", "a column, or rows"
            )
        if self.words and (self.low, self.high) != (-LARGEST, LARGEST):
            raise Conflict("question.low, question.high", "bound numbers, not words.", "words = false")
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

    def of_user(self, values: Iterable[float | str]) -> list[Item]:
        """The values of one user that count: distinct words, or whole numbers within the bounds, the first by order."""
        if self.words:
            found: set[Item] = {each for each in values if isinstance(each, str)}
        else:
            found = {int(each) for each in values if math.isfinite(float(each)) and each == int(each)}
        return self.within(found)[: self.most]

    def within(self, values: Iterable[Item]) -> list[Item]:
        """Those of `values` that are words where those are asked for, else numbers within the bounds; in order."""
        return sorted(filter(self._counts, values), key=by_value)

    def _counts(self, value: Item) -> bool:
        if isinstance(value, str):
            return self.words and is_word(value)
        return not self.words and max(self.low, -LARGEST) <= value <= min(self.high, LARGEST)

    def counts(self, sets: Iterable[Iterable[float | str]]) -> tuple[list[Item], Indices]:
        """(values in their order, how many of the users have each) from each user's."""
        found = Counter(value for own in sets for value in self.of_user(own))
        names = sorted(found, key=by_value)
        return names, np.array([found[name] for name in names], np.int64)

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

    def answer(self, names: Sequence[float | str], total: Floats, sd: float, users: int) -> tuple[Estimate, ...]:
        """How many users have each value that is shown. What is not shown may have as many as the last line says."""
        deviation = sd / self.box
        shown = [
            Estimate.normal(str(name if isinstance(name, str) else int(name)), count / self.box, deviation, 0, users)
            for name, count in zip(names, total.tolist(), strict=False)
            if count > 0
        ]
        tau = threshold(self.most, deviation, self.leak)
        return (*shown, Estimate("shown from, in users", tau, tau, tau))

    def spread(self, sd: float, users: int) -> tuple[tuple[str, float], ...]:
        deviation = sd / self.box
        tau = threshold(self.most, deviation, self.leak)
        return ((f"users of a value, which is shown from {tau:.4g} on", deviation),)
