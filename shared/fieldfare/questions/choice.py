"""Which of several released models is best on users' own data, by a score of each of them.

A user contributes one centred mean a model, divided by the square root of their number: the norm is at most
1, so one question compares all of them. All scores are shown, with the noise of each: about sqrt(k) times
that of one mean.

With `shows = "best"` nothing but the winner is released: model j with probability proportional to exp(eta s_j), s_j the
sum of its scores in grid cells, drawn exactly (`noise.choice`). Each of a user's k numbers lies in [-box, box], so
the scores move by numbers at most 2 box apart, and eta = r(1 / sigma) / (2 box) is charged what Gaussian noise of the
multiplier sigma is, under `zero_out` and `replace_one` (`accounting.ranged` has the proof): however many models there
are. Its score is not shown with it: that would be a second look.
"""

from __future__ import annotations

import math
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from fieldfare.accounting.ranged import range_of
from fieldfare.arrays import Floats
from fieldfare.errors import WrongForm
from fieldfare.questions.base import WIDE, Estimate, Question, RunId, Values, register


@register
class Choose(Question):
    """The mean of `measure` for each of several released models, the best first; or which of them is best, alone."""

    kind: Literal["choose"] = "choose"
    measure: Literal["loss", "correct"] = Field(default="correct", description="the smaller loss, or the more correct")
    models: tuple[RunId, ...] = Field(
        min_length=2, max_length=64, description="the runs whose released models are compared"
    )
    low: float = Field(default=0.0, description="the least value; what is below counts as this")
    high: float = Field(default=1.0, description="the largest value; what is above counts as this")
    shows: Literal["scores", "best"] = Field(
        default="scores", description="all scores with their noise, or the best model's name and no score"
    )

    @model_validator(mode="after")
    def _are_several(self) -> Self:
        if len(set(self.models)) != len(self.models):
            raise WrongForm("question.models", "names a run twice.", ", ".join(sorted(set(self.models))))
        return self

    @property
    def runs(self) -> tuple[str, ...]:
        return self.models

    @property
    def width(self) -> int:
        return len(self.models)

    @property
    def box(self) -> float | None:
        return 1 / math.sqrt(self.width) if self.shows == "best" else None

    @property
    def released(self) -> str:
        if self.shows == "scores":
            return super().released
        return (
            f"exponential: of {self.width} models one is drawn, with a probability in proportion to exp(rate x the sum "
            "of its scores), exactly, and its name is released. Nothing is noised, and no score is shown"
        )

    def bounded(self, factor: float) -> str:
        if self.shows == "scores":
            return super().bounded(factor)
        return f"a user moves the sums of two models' scores apart by {factor * (self.high - self.low):g} at most"

    @property
    def _scale(self) -> float:
        """What a contribution of 1 is worth, in scores."""
        return (self.high - self.low) / 2 * math.sqrt(self.width)

    def contributions(self, values: Values) -> Floats:
        means = Values(np.clip(values.numbers, self.low, self.high), values.owner, values.users).means()
        half = (self.high - self.low) / 2
        centred = np.clip((means - (self.low + self.high) / 2) / half, -1.0, 1.0)
        if self.shows == "best" and self.measure == "loss":
            centred = -centred  # the largest sum wins
        return np.nan_to_num(centred) / math.sqrt(self.width)

    def eta(self, sigma: float, width: float) -> float:
        """By what a sum's number is multiplied in the exponent of its weight.

        sigma: the noise multiplier that is charged. width: by how much one user moves the numbers apart, at most.
        """
        return range_of(1 / sigma) / width

    def read(self, total: Floats, sd: float, users: int) -> tuple[Estimate, ...]:
        if self.shows == "best":
            best = self.models[int(np.argmax(total))]
            return (Estimate(f"{best}, below the best mean by", 0.0, 0.0, self._behind(sd, users)),)
        scale = self._scale / users
        scores = (self.low + self.high) / 2 + scale * total
        order = np.argsort(scores if self.measure == "loss" else -scores, kind="stable")
        return tuple(
            Estimate.normal(self.models[place], float(scores[place]), scale * sd, self.low, self.high)
            for place in order.tolist()
        )

    def having(self, total: Floats, sd: float, users: int) -> tuple[Estimate, ...]:
        sums, error = math.sqrt(self.width) * total, math.sqrt(self.width) * sd
        return () if self.shows == "best" else (Estimate.at_least("users with a value", sums, error, users),)

    def spread(self, sd: float, users: int) -> tuple[tuple[str, float], ...]:
        if self.shows == "best":
            return (("how far below the best mean, half of the bound", self._behind(sd, users) / WIDE),)
        scale = self._scale / users
        return (("score of a model", scale * sd), ("difference of two", math.sqrt(2) * scale * sd))

    def _behind(self, sd: float, users: int) -> float:
        """How far the chosen model's mean is below the best one's, but with probability 5 %.

        Those that are further behind by a sum of x have together at most (k - 1) exp(-eta x) of the weight of the best.
        """
        assert self.box is not None
        eta = self.eta(max(sd, 1e-300), 2 * self.box)
        return min(self.high - self.low, self._scale / users * math.log((self.width - 1) / 0.05) / eta)
