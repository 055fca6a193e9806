"""Looks at users' data: questions that were asked, and their answers, as the ledger alone has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fieldfare.cost import Cost
from fieldfare.errors import BadInput, NotFound
from fieldfare.names import is_question, task_words
from fieldfare.plan import Plan
from fieldfare.questions import Estimate, Question, parse
from fieldfare.questions.base import WIDE
from fieldfare.text import counted, promised, up
from fieldfare_server.ledger import Ledger, watch
from fieldfare_server.ledger.holders import command_to_resume
from fieldfare_server.ledger.views import RunView
from fieldfare_server.planning.questions import STEP


def question_of(plan: Mapping[str, Any]) -> Question | None:
    """Return the question that a stored plan asks; None for a plan that trains, or one of another version.

    Also None for a run of that task that steps otherwise than `planning.questions` plans: its model is no sum
    of contributions.
    """
    try:
        as_asked = plan["run"]["rounds"] == 1 == plan["client"]["learning_rate"]
        if not (is_question(plan) and as_asked and all(plan[name] == table for name, table in STEP.items())):
            return None
        return parse(plan["task"]["question"])
    except (BadInput, KeyError, AttributeError):
        return None


@dataclass(frozen=True)
class Look:
    """A question that was asked, and its answer. Each interval holds the number without noise with probability 95 %."""

    run: str
    """The run that asked it: its journal, its certificate, its statement."""
    population: str
    words: str
    users: int
    """How many answered."""
    epsilon: float
    """Of this look taken alone, at `delta`."""
    delta: float
    answer: tuple[Estimate, ...]

    def __str__(self) -> str:
        lines = "\n".join(f"  {estimate}" for estimate in self.answer)
        return (
            f"{self.words}\n{lines}\n{counted(self.users, 'user')} answered; epsilon {up(self.epsilon):g} at delta "
            f"{promised(self.delta)}, charged to population {self.population} by run {self.run}. "
            "Each interval holds the number without noise with probability 95 %."
        )


def look_of(view: RunView, latest: watch.Latest | None) -> Look | None:
    """Return the look of a run: None for one that trains, and without an answer, or a public number of them.

    latest: its newest committed round.
    """
    question = question_of(view.plan)
    if question is None or latest is None or not latest.participants:
        return None
    cohort, users = int(view.plan["run"]["cohort"]), latest.participants
    total = np.asarray(latest.statistics["released"], np.float64) * cohort
    names = tuple(latest.statistics.get("names", ()))
    answer = _read(question, names, tuple(total.tolist()), float(latest.statistics["noise_std"]) * cohort, users)
    return Look(view.id, view.population, task_words(view.plan), users, view.spent_epsilon, view.delta, answer)


@lru_cache(maxsize=1024)
def _read(
    question: Question, names: tuple[float | str, ...], total: tuple[float, ...], sd: float, users: int
) -> tuple[Estimate, ...]:
    """`Question.answer`, once for all lists that show it, and how many users it is about."""
    return (*question.answer(names, np.array(total), sd, users), *question.having(np.array(total), sd, users))


def look(ledger: Ledger, run_id: str) -> Look:
    """Return the look of run `run_id`. Raises `BadInput` where it has no answer."""
    with ledger.snapshot() as snapshot:
        view = snapshot.run(run_id)
        found = look_of(view, watch.latest_rounds(snapshot, [run_id]).get(run_id))
    if found is None:
        near = "fieldfare ask QUESTION.toml"
        if question_of(view.plan) is None:
            raise NotFound(f"run {run_id}", "it asks no question.", near)
        if view.ended_at is None:
            near = command_to_resume(run_id, view.started_by, "ask")
        raise NotFound(f"run {run_id}", f"it has no answer. {view.message}".rstrip(), near)
    return found


@dataclass(frozen=True)
class Offer:
    """What a question would cost and how wide its answer would be."""

    words: str
    users: int
    """How many would be asked."""
    epsilon: float
    delta: float
    mu: float
    """Its Gaussian price; mu squared is what the population is charged."""
    noise_multiplier: float
    widths: tuple[tuple[str, float, float], ...]
    """(what, its standard deviation, half the width of its interval)."""

    @classmethod
    def of(cls, plan: Plan, cost: Cost) -> Offer:
        """Return the offer of a question's plan, by its cost."""
        question = parse(plan.task["question"])  # type: ignore[arg-type]
        users = plan.run.cohort
        spread = question.spread(cost.noise_multiplier, users)
        return cls(
            task_words(plan.model_dump(mode="json")),
            users,
            cost.loss.epsilon(plan.privacy.delta),
            plan.privacy.delta,
            cost.loss.mu_squared**0.5,
            cost.noise_multiplier,
            tuple((what, sd, WIDE * sd) for what, sd in spread),
        )

    def __str__(self) -> str:
        lines = "\n".join(
            f"  {what}: standard deviation {sd:.4g}, interval +- {half:.4g}" for what, sd, half in self.widths
        )
        return (
            f"{self.words}\n{lines}\nof {counted(self.users, 'user')}, for epsilon {up(self.epsilon):g} at delta "
            f"{promised(self.delta)} (mu {self.mu:.6g}). Nothing was asked or charged."
        )
