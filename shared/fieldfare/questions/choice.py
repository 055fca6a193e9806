"""Which of several released models is best on users' own data, by a score of each of them.

A user contributes one centred mean a model, divided by the square root of their number: the norm is at most 1, so one
question compares all of them. All scores are shown, with the noise of each: about sqrt(k) times that of one mean.
"""

from __future__ import annotations

import math
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from fieldfare.arrays import Floats
from fieldfare.errors import BadInput
from fieldfare.questions.base import Estimate, Question, RunId, Values, register


@register
class Choose(Question):
    """The mean of `measure` for each of several released models; the best comes first."""

    kind: Literal["choose"] = "choose"
    measure: Literal["loss", "correct"] = Field(default="correct", description="the smaller loss, or the more correct")
    models: tuple[RunId, ...] = Field(
        min_length=2, max_length=64, description="the runs whose released models are compared"
    )
    low: float = Field(default=0.0, description="the least value; what is below counts as this")
    high: float = Field(default=1.0, description="the largest value; what is above counts as this")

    @model_validator(mode="after")
    def _are_several(self) -> Self:
        if len(set(self.models)) != len(self.models):
            raise BadInput("question.models", "names a run twice.", ", ".join(sorted(set(self.models))))
        return self

    @property
    def runs(self) -> tuple[str, ...]:
        return self.models

    @property
    def width(self) -> int:
        return len(self.models)

    def contributions(self, values: Values) -> Floats:
        means = Values(np.clip(values.numbers, self.low, self.high), values.owner, values.users).means()
        half = (self.high - self.low) / 2
        centred = np.clip((means - (self.low + self.high) / 2) / half, -1.0, 1.0)
        return np.nan_to_num(centred) / math.sqrt(self.width)

    def read(self, total: Floats, sd: float, users: int) -> tuple[Estimate, ...]:
        scale = (self.high - self.low) / 2 * math.sqrt(self.width) / users
        scores = (self.low + self.high) / 2 + scale * total
        order = np.argsort(scores if self.measure == "loss" else -scores, kind="stable")
        return tuple(
            Estimate.normal(self.models[place], float(scores[place]), scale * sd, self.low, self.high)
            for place in order.tolist()
        )

    def spread(self, sd: float, users: int) -> tuple[tuple[str, float], ...]:
        scale = (self.high - self.low) / 2 * math.sqrt(self.width) / users
        return (("score of a model", scale * sd), ("difference of two", math.sqrt(2) * scale * sd))
