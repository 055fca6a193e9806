"""How well a released model tells two classes apart: the area under its ROC curve.

The model's score of a row is cut into public bins, apart for the two labels, and a user contributes the share of the
user's rows in each of these cells: a probability vector, of norm at most 1. From the noised sums p_i and q_i of the
positive and the negative rows, AUC = sum_i p_i (q_1 + ... + q_(i-1) + q_i / 2) / (P Q) (Cormode and Markov 2022, arXiv
2210.12526). Each user weighs as much as any other. The interval is that of the noise alone, by 2000 draws of
it; that scores of one bin are not told apart makes the area a little smaller, and is no part of the interval.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from pydantic import Field

from fieldfare.arrays import Floats
from fieldfare.questions.base import FEWEST, MOST_CELLS, Estimate, Question, RunId, Values, register

_DRAWS = 2000


@register
class Auc(Question):
    """The area under the ROC curve of a released model of two classes, by the probability that it gives the second."""

    kind: Literal["auc"] = "auc"
    measure: Literal["probability"] = Field(default="probability", description="that the model gives the second class")
    model: RunId = Field(description="the run whose released model is evaluated")
    low: float = Field(default=0.0, description="the least score; what is below counts as this")
    high: float = Field(default=1.0, description="the largest score; what is above counts as this")
    bins: int = Field(default=16, ge=2, le=MOST_CELLS // 2, description="how many bins the scores are cut into")

    @property
    def runs(self) -> tuple[str, ...]:
        return (self.model,)

    @property
    def width(self) -> int:
        return 2 * self.bins

    def contributions(self, values: Values) -> Floats:
        score, label = values.numbers.T
        edges = np.linspace(self.low, self.high, self.bins + 1)[1:-1]
        cells = np.searchsorted(edges, score, side="right") + self.bins * (label > 0)
        return values.shares(np.where(np.isnan(score) | np.isnan(label), -1, cells), self.width)

    def read(self, total: Floats, sd: float, users: int) -> tuple[Estimate, ...]:
        negative, positive = total.reshape(2, self.bins)
        if min(negative.sum(), positive.sum()) < FEWEST * sd * math.sqrt(self.bins):
            return (Estimate("auc", None, 0.0, 1.0),)
        value = float(_area(total[None])[0])
        # The seed is public: the draws stand for noise that is known in law, and hide nothing.
        again = _area(total + sd * np.random.default_rng(0).standard_normal((_DRAWS, self.width)))
        # The basic bootstrap: what noise adds to the released sums once more is turned about the value.
        low, high = 2 * value - np.quantile(again, (0.975, 0.025))
        return (Estimate("auc", *(float(np.clip(each, 0.0, 1.0)) for each in (value, low, high))),)

    def spread(self, sd: float, users: int) -> tuple[tuple[str, float], ...]:
        # As if both classes were as large and each spread evenly over the bins.
        even = np.full(self.width, users / self.width)
        again = _area(even + sd * np.random.default_rng(0).standard_normal((_DRAWS, self.width)))
        # Half of what holds 68 %: one deviation, were it normal.
        middle = (np.quantile(again, 0.84) - np.quantile(again, 0.16)) / 2
        return (("auc", float(middle)),)


def _area(cells: Floats) -> Floats:
    """The area of each row of noised cells, shape (n, 2 bins): first the negative ones."""
    negative, positive = np.split(cells, 2, axis=1)
    before = np.cumsum(negative, axis=1) - negative / 2
    area: Floats = (positive * before).sum(axis=1) / (positive.sum(axis=1) * negative.sum(axis=1))
    return area
