"""Sums of questions whose answer is no noised sum: what is released of them, under the charge of the noise it replaces.

A question's plan has a noise multiplier sigma, and is charged mu = 1 / sigma (2 / sigma under `replace_one`), whatever
its kind. Here the release is another one of that price. The stream of noise goes on by its row all the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from flwr.app import RecordDict

from fieldfare.clipping import Flat
from fieldfare.errors import BadInput
from fieldfare.lazily import torch
from fieldfare.names import QUESTION
from fieldfare.noise.choice import exponential_choice
from fieldfare.plan import Plan
from fieldfare.questions import parse
from fieldfare.questions.choice import Choose
from fieldfare_server.run.round.aggregation import Aggregate, Contribution, split_chunks
from fieldfare_server.run.round.running_noise import RunningNoise

_ROUNDED = 1 + 2.0**-20
"""Above what float32 adds to one user's number."""
_CORNERS = 4
"""sqrt(4) cells: the numbers of a user move apart by two half cells in each of two worlds."""


def sum_of(plan: Plan, noise_multiplier: float) -> tuple[type[Aggregate], tuple[Any, ...]]:
    """The class of a round's sum, and what it takes beyond the arguments of `Aggregate`.

    Raises `BadInput` for a plan by which the charge of such an answer would not be that of its noise.
    """
    question = parse(plan.task["question"]) if plan.run.task == QUESTION else None  # type: ignore[arg-type]
    if not isinstance(question, Choose) or question.box is None:
        return Aggregate, ()
    private, one = plan.privacy, plan.run.rounds == 1 and plan.mechanism.kind == "independent"
    if (
        not one
        or plan.clipping != Flat(norm=1.0)
        or plan.presence_is_secret
        or plan.metrics
        or private.rounding != "grid"
    ):
        raise BadInput(
            f"a plan that asks for {question.kind!r}",
            "takes one round of independent noise on the grid, clip norm 1, no metrics, and a public cohort.",
            "fieldfare ask QUESTION.toml",
            code="question-as-planned",
        )
    return ChosenSum, (question, noise_multiplier)


@dataclass
class ChosenSum(Aggregate):
    """The sum of the scores of several models, of which the name of one is released: the exponential mechanism.

    *Privacy.* A user's number lies in [-box, box], also after the server cut a reply of n users to n box: cutting moves
    no two numbers further apart, nor past each other. So one user moves the numbers apart by at most
    `Grid.charged_clip` of 2 box and two cells, which covers rounding on the wire and on the grid. By that width
    `Choose.eta` is what `accounting.ranged` charges. The numbers are whole cells, and the draw is exact.

    Args:
        question: what is asked.
        noise_multiplier: sigma, which is charged; 0: without noise, the largest sum wins (a rehearsal).
    """

    question: Choose = field(default=None)  # type: ignore[assignment]
    noise_multiplier: float = 0.0

    def read(self, content: RecordDict, sent: int) -> Contribution:
        reply = super().read(content, sent)
        assert self.question.box is not None
        most = reply.users * self.question.box
        (numbers,) = (np.concatenate(list(reply.chunks(position))) for position in range(len(self.schema.names)))
        if np.isfinite(numbers).all():
            if reply.clipped_by_node and np.abs(numbers).max() > most * _ROUNDED:
                self.reject("over-norm, clipped again")
            numbers = np.clip(numbers, -most, most)
        return replace(reply, chunks=lambda position: split_chunks(numbers.copy()))

    def privatise(self, noise: RunningNoise) -> torch.Tensor:
        released = torch.zeros(len(self.total), dtype=torch.float64)
        if noise.stream is None:
            released[int(np.argmax(self.total))] = 1.0
            return released
        noise.privatise(released.clone())
        assert self.question.box is not None
        assert self.grid is not None  # `sum_of`
        assert noise.source is not None
        users = self.users if self.most_users is None else self.most_users
        width = self.grid.charged_clip(2 * self.question.box * _ROUNDED, _CORNERS, users)
        rate = Fraction(self.question.eta(self.noise_multiplier, width)) * Fraction(self.grid.spacing)
        cells = [int(cell) for cell in np.rint(self.total / self.grid.spacing).tolist()]
        released[exponential_choice(cells, rate, noise.source, row=0)] = 1.0
        return released
