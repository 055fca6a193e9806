"""What every kind of question says of itself, and the numbers that users have."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import Field, StringConstraints, model_validator

from fieldfare.arrays import Floats, Indices
from fieldfare.errors import Conflict, OutOfRange
from fieldfare.registry import Registry, Table
from fieldfare.schema import Schema

# Standard deviations on either side of an estimate that hold 95 % of normal noise.
WIDE: Final = 1.959963984540054
# Standard deviations that a noised number must be above 0 before anything is divided by it.
FEWEST: Final = 4.0
# Numbers of one question: reading a quantile takes a square matrix of them.
MOST_CELLS: Final = 1024


@dataclass(frozen=True)
class Values:
    """Numbers of users' rows. NaN: this row has no value.

    Args:
        numbers: float64, shape (rows, m): m numbers a row.
        owner: the user of each row, int64 from 0, shape (rows,).
        users: how many users there are; some may have no row.
    """

    numbers: Floats
    owner: Indices
    users: int

    def means(self) -> Floats:
        """Each user's mean over the rows that have a value, shape (users, m); NaN without such a row."""
        means = np.full((self.users, self.numbers.shape[1]), np.nan)
        for place, column in enumerate(self.numbers.T):
            rows = ~np.isnan(column)
            owner = self.owner[rows]
            with np.errstate(all="ignore"):
                total = np.bincount(owner, weights=column[rows], minlength=self.users)
                means[:, place] = total / np.bincount(owner, minlength=self.users)
        return means

    def shares(self, cells: Indices, count: int) -> Floats:
        """The share of each user's rows that lie in each cell, shape (users, count): not negative, summing to 1 or 0.

        cells: of each row, shape (rows,); -1: the row has no value.
        """
        rows = cells >= 0
        places = self.owner[rows] * count + cells[rows]
        found: Floats = np.bincount(places, minlength=self.users * count).reshape(self.users, count).astype(np.float64)
        found /= np.maximum(found.sum(axis=1, keepdims=True), 1.0)
        return found


@dataclass(frozen=True)
class Estimate:
    """One number of an answer, and the interval that holds what it would be without noise, with probability 95 %."""

    name: str
    value: float | None  # None: the interval is all that can be said
    low: float
    high: float

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.name}: somewhere from {self.low:.6g} to {self.high:.6g}"
        within = "" if self.low == self.high else f" ({self.low:.6g} to {self.high:.6g})"
        return f"{self.name}: {self.value:.6g}{within}"

    @classmethod
    def normal(cls, name: str, value: float, sd: float, least: float = -np.inf, most: float = np.inf) -> Self:
        """An estimate with normal noise, cut to what is possible: from `least` to `most`."""
        low, middle, high = (min(max(each, least), most) for each in (value - WIDE * sd, value, value + WIDE * sd))
        return cls(name, middle, low, high)

    @classmethod
    def at_least(cls, name: str, sums: Floats, sd: float, users: int) -> Self:
        """How many of `users` have a value: one who has moves each of `sums` by 1 at most, one who has none by 0."""
        beyond = NormalDist().inv_cdf(1 - 0.025 / len(sums)) * sd
        return cls(name, None, min(max(0, math.ceil(np.abs(sums).max() - beyond)), users), users)


class Question(Table):
    """The `[question]` table. One final subclass a kind; bounds are public, and never taken from the data."""

    kind: str
    measure: str = Field(
        default="rows",
        min_length=1,
        max_length=100,
        description="the number that is asked about: rows (how many a user has), a column of the users' table, "
        "update-norm (how long a user's update is), or, of a model, loss or correct",
    )
    low: float = Field(description="the least value; what is below counts as this")
    high: float = Field(description="the largest value; what is above counts as this")

    of_models: ClassVar[tuple[str, ...]] = ("loss", "correct")  # measures that need a model
    # The measure that trains: from a released model, or from the task's own, which is public.
    update_norm: ClassVar[str] = "update-norm"

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low = {self.low:g} must be below high = {self.high:g}")
        if not ((self.high - self.low) / 2 > 0 and max(-self.low, self.high) <= 1e300):
            why = "half of the range must be above 0, and sums of its numbers finite."
            raise OutOfRange(f"question.low = {self.low:g}, high = {self.high:g}", why, "-1e300 to 1e300")
        return self

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs whose released models it needs."""
        return ()

    @property
    @abstractmethod
    def width(self) -> int:
        """How many numbers a user contributes."""

    @property
    def box(self) -> float | None:
        """What bounds each number of a user's contribution where the release rests on it; None: the norm alone does."""
        return None

    @property
    def released(self) -> str:
        """By which mechanism the answer is released, and what of it: a sentence of a privacy statement."""
        return f"Gaussian: the sum over users of {self.width} numbers each, with independent noise in each number"

    def bounded(self, factor: float) -> str:
        """What bounds how far one user moves what is released, in words. factor: of the adjacency."""
        return f"{factor:g}: a user's numbers have norm at most 1 together"

    @property
    def named(self) -> tuple[str, ...]:
        """What a node that measures by itself is asked for, one user at a time."""
        return (self.measure,)

    def of_one(self, told: Mapping[str, Sequence[float]]) -> Values:
        """The numbers of one user, who told these lists: of each row, its number."""
        rows = np.array(told.get(self.measure, ()), np.float64)[:, None]
        return Values(rows, np.zeros(len(rows), np.int64), 1)

    @property
    def is_of_task(self) -> bool:
        """Whether only a node with a Fieldfare task can answer: it is about a model or an update."""
        return bool(self.runs) or self.measure == self.update_norm

    def of_users(self, users: int) -> Question:
        """The question as it is put to so many users."""
        return self

    def answer(self, names: Sequence[float | str], total: Floats, sd: float, users: int) -> tuple[Estimate, ...]:
        """The answer, where the release named something as well. As `read`."""
        return self.read(total, sd, users)

    @property
    def answer_schema(self) -> Schema:
        """Of what answers: the contribution's numbers are those of one layer."""
        return Schema(("weight",), ((1, self.width),))

    @abstractmethod
    def contributions(self, values: Values) -> Floats:
        """What each user contributes, shape (users, width), of norm at most 1.

        A user's row depends on that user's values alone.
        """

    @abstractmethod
    def read(self, total: Floats, sd: float, users: int) -> tuple[Estimate, ...]:
        """The answer, from the noised sum of all contributions.

        Args:
            total: shape (width,).
            sd: standard deviation of the noise in each of its numbers.
            users: how many answered, which is public.
        """

    def having(self, total: Floats, sd: float, users: int) -> tuple[Estimate, ...]:
        """How many users have a value, by the same sum. Empty where `read` says it, or where none counts as zero."""
        return ()

    @abstractmethod
    def spread(self, sd: float, users: int) -> tuple[tuple[str, float], ...]:
        """Before it is asked: (what, its standard deviation by noise of `sd` with so many users)."""


# The id of a run, which names a directory beside others and never leads out of it.
RunId = Annotated[str, StringConstraints(max_length=40, pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$")]


class ModelQuestion(Question):
    """A question that may be about the output of a model."""

    model: RunId | Literal[""] = Field(
        default="",
        description="the run whose released model is evaluated, for loss and correct, or trained on, for update-norm",
    )

    @model_validator(mode="after")
    def _model_fits(self) -> Self:
        if self.measure != self.update_norm and (self.measure in self.of_models) != bool(self.model):
            near = f"measure = {self.of_models[0]!r}" if self.model else "model = RUN"
            raise Conflict(f"question.measure = {self.measure!r}", f"model = {self.model!r} does not fit it.", near)
        return self

    @property
    def runs(self) -> tuple[str, ...]:
        return (self.model,) if self.model else ()


_registry: Registry[Question] = Registry("question")
register = _registry.register
kinds = _registry.kinds
parse = _registry.parse
