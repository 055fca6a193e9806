"""Sums of questions whose answer is no noised sum: what is released of them, under the charge of the noise it replaces.

A question's plan has a noise multiplier sigma, and is charged mu = 1 / sigma (2 / sigma under `replace_one`), whatever
its kind. Here the release is another one of that price. The stream of noise goes on by its row all the same.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from flwr.app import RecordDict

from fieldfare.clipping import Flat
from fieldfare.errors import BadInput
from fieldfare.lazily import torch
from fieldfare.names import QUESTION
from fieldfare.noise.choice import exponential_choice
from fieldfare.participation import users_asked
from fieldfare.plan import Plan
from fieldfare.questions import parse
from fieldfare.questions.choice import Choose
from fieldfare.questions.items import Item, Items, by_value
from fieldfare_flower.messages import read_names
from fieldfare_flower.npy import BadReply
from fieldfare_server.run.round.aggregation import Aggregate, Contribution, split_chunks
from fieldfare_server.run.round.running_noise import RunningNoise

# Above what float32 adds to one user's number.
_ROUNDED = 1 + 2.0**-20
# sqrt(4) cells: the numbers of a user move apart by two half cells in each of two worlds.
_CORNERS = 4


def sum_of(plan: Plan, noise_multiplier: float) -> tuple[type[Aggregate], tuple[object, ...]]:
    """The class of a round's sum, and what it takes beyond the arguments of `Aggregate`.

    Raises `BadInput` for a plan by which the charge of such an answer would not be that of its noise.
    """
    question = parse(plan.task["question"]) if plan.run.task == QUESTION else None  # type: ignore[arg-type]
    if question is None or question.box is None:
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
    if not isinstance(question, Items):
        return ChosenSum, (question, noise_multiplier)
    if private.adjacency != "zero_out":
        why = "in two worlds a user has values that nobody else has in either, and its leak is known for one."
        raise BadInput(f"privacy.adjacency = {private.adjacency!r}", why, "zero_out", code="items-adjacency")
    if users_asked(plan.run.cohort, plan.run.over_selection) != question.users or plan.leak != question.leak:
        why = "has not a place for each value of each user who is asked."
        raise BadInput(f"question.users = {question.users}", why, str(plan.run.cohort), code="question-as-planned")
    return NamedSum, (question,)


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


@dataclass
class NamedSum(Aggregate):
    """The sum of how many users have each value, of which those above a threshold are released with their values.

    A value gets the next free place of `total` when a reply first names it; there are as many places as
    values that all users together can have. Which place that is depends on data, and is released with
    nothing: noise is alike in all.

    *Privacy*: `accounting.thresholded`. Each number of a reply of n users is cut to [0, n box].

    Args:
        question: what is asked.
    """

    question: Items = field(default=None)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._places: dict[Item, int] = {}

    def read(self, content: RecordDict, sent: int) -> Contribution:
        reply = super().read(content, sent)
        names = read_names(content, reply.users * self.question.most)
        numbers = np.concatenate(list(reply.chunks(0)))
        if not np.isfinite(numbers).all():
            return reply  # is dropped by its norm
        if names != self.question.within(names):
            raise BadReply("schema", "values beyond the bounds, or in another order")
        most = reply.users * self.question.box
        if over := numbers.min() < 0 or numbers.max() > most * _ROUNDED or bool(numbers[len(names) :].any()):
            self.reject("over-norm, clipped again")
        placed = np.zeros(len(self.total))
        for name, number in zip(names, np.clip(numbers, 0.0, most).tolist(), strict=False):
            placed[self._places.setdefault(name, len(self._places))] = number
        return replace(reply, chunks=lambda position: split_chunks(placed.copy()), clipped_by_node=not over)

    def feed(self, digest: hashlib._Hash) -> None:
        super().feed(digest)
        digest.update(repr(list(self._places)).encode())

    def privatise(self, noise: RunningNoise) -> torch.Tensor:
        occurred = len(self._places)
        noised = noise.privatise(self.sum()).numpy()
        noised[occurred:] = 0.0
        if noise.stream is not None:
            assert self.grid is not None  # `sum_of`
            noised = self.question.shown(noised, noise.std(0), self.grid.spacing)
        names = list(self._places)
        order = sorted(np.flatnonzero(noised).tolist(), key=lambda place: (-noised[place], by_value(names[place])))
        self.names = [names[place] for place in order]
        released = torch.zeros(len(noised), dtype=torch.float64)
        released[: len(order)] = torch.from_numpy(noised[order])
        return released
