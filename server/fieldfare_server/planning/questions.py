"""A question file: what is asked, of whose users, and from whose budget. It becomes the plan of a run of one round."""

from __future__ import annotations

import math
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, JsonValue, SerializeAsAny, field_validator, model_validator

from fieldfare.accounting.gaussian import gaussian_epsilon
from fieldfare.cost import Cost
from fieldfare.errors import BadInput, Conflict, OutOfRange, TooFew, Unreadable, Unsupported
from fieldfare.names import OWN_APP, QUESTION, is_question, task_reference
from fieldfare.participation import hides_presence
from fieldfare.plan import Plan
from fieldfare.plan_tables import ClientSpec, PrivacySpec, TuningSpec
from fieldfare.questions import Question, parse
from fieldfare.questions.base import FEWEST
from fieldfare.refusals import validated, with_lines
from fieldfare.registry import Table
from fieldfare_server.ledger.reads import Reader
from fieldfare_server.planning.feasibility import require_feasible
from fieldfare_server.run.pricing import demand_of, price_with_model

# The tables of a plan by which the released model is the noised mean contribution, and nothing else.
STEP: Mapping[str, Mapping[str, object]] = {
    "clipping": {"kind": "flat", "norm": 1.0},
    "server_optimizer": {"kind": "sgd", "learning_rate": 1.0},
}

OF_POPULATION = {"population", "delta", "adjacency"}  # keys of a plan's `[privacy]` that a question of it has too
CLIP_EPSILON = 0.1
# The median norm of users' updates. Its bounds are public, and wide: whatever is outside stands at their ends.
CLIP_QUESTION: Mapping[str, object] = {
    "kind": "quantile",
    "measure": "update-norm",
    "low": 1e-4,
    "high": 1e4,
    "bins": 64,
    "spacing": "log",
    "at": [0.5],
}


class AskedRun(Table):
    """`[run]` of a question file."""

    task: str = Field(min_length=1, description="whose users are asked: a task's name, or package.module:attribute")
    name: str | None = Field(default=None, min_length=1, max_length=100, description="what people call the question")
    cohort: int | None = Field(
        default=None, ge=1, description="users who are asked; needed for real nodes, else all who can pay if left out"
    )
    min_reports: int | None = Field(default=None, ge=1, description="with fewer answers nothing is shown or charged")
    round_timeout: float = Field(default=600.0, gt=0, description="seconds that answers are waited for")
    trust_node_ids: bool = Field(default=False, description="rely on user ids that unauthenticated nodes claim")


class Asked(Table):
    """A question file, validated.

    Where presence is secret nothing may be asked: how many users answer would be secret, and an answer is
    read with it.
    """

    question: SerializeAsAny[Question]
    run: AskedRun
    task: dict[str, JsonValue] = Field(default={}, description="parameters of the task")
    privacy: PrivacySpec
    client: ClientSpec | None = Field(default=None, description="the local training of measure update-norm")
    tuning: TuningSpec | None = Field(default=None, description="ask the users of the tuning share, or the others")

    @field_validator("question", mode="before")
    @classmethod
    def _by_kind(cls, table: Mapping[str, object] | Question) -> Question:
        return parse(table)

    @model_validator(mode="after")
    def _number_of_answers_is_public(self) -> Self:
        if hides_presence(self.privacy.adjacency):
            why = "who is there is secret, and a question has no public schedule of its end and number of users."
            near = "a population of adjacency 'zero_out' or 'replace_one'"
            raise Unsupported(f"privacy.adjacency = {self.privacy.adjacency!r}", why, near)
        return self

    @model_validator(mode="after")
    def _can_be_answered(self) -> Self:
        if self.question.kind == "sums" and self.run.task != OWN_APP:
            raise Unsupported("question.kind = 'sums'", "a Flower app has its lists.", "ff.ask({...}, grid=grid)")
        if self.client is not None and self.question.measure != self.question.update_norm:
            why = f"measure {self.question.measure!r} trains nothing."
            raise Conflict("[client]", why, f"measure = {self.question.update_norm!r}")
        return self

    @classmethod
    def of(cls, table: Mapping[str, object]) -> Asked:
        """Validate a mapping. Raises `BadInput` with all faults."""
        return validated(cls, table, "")

    @classmethod
    def clip_of(cls, plan: Plan, epsilon: float = CLIP_EPSILON) -> Asked:
        """Return the question for the median norm of the updates that `plan` would train, at its population's
        cost.

        Raises `BadInput` for a plan without a task, and as `of`.
        """
        if not plan.run.task:
            why = "names no task whose users could be asked: its Flower app has them."
            raise Conflict("run.task", why, "clipping.kind = 'adaptive-quantile'")
        return cls.of(
            {
                "question": dict(CLIP_QUESTION),
                "run": {"task": plan.run.task, "name": "clip norm"},
                "task": plan.task,
                "privacy": {**plan.privacy.model_dump(include=OF_POPULATION), "epsilon": epsilon},
                "client": plan.client.model_dump(mode="json", exclude_none=True),
                "tuning": plan.tuning,
            }
        )

    @classmethod
    def read(cls, path: Path) -> Asked:
        """Return the question in a TOML file, whose directory may hold the module of its task. Raises `BadInput`."""
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise Unreadable(f"question file {str(path)!r}", f"cannot be read: {error}.") from None
        sys.path.append(str(path.absolute().parent))
        return cls.from_toml(text)

    @classmethod
    def from_toml(cls, text: str) -> Asked:
        """Return the question in a TOML text. Raises `BadInput` with all faults and their lines."""
        try:
            table = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise Unreadable("question file", f"cannot be read: {error}.") from None
        try:
            return cls.of(table)
        except BadInput as refusal:
            raise with_lines(refusal, text) from None

    @property
    def of_users(self) -> str:
        """The task whose users are asked, as `load_task` takes it."""
        return task_reference(self.run.task, self.task)

    def plan_for_nodes(self) -> Plan:
        """Return the plan that asks users of real nodes. Raises `BadInput` where the question does not say how many."""
        if self.run.cohort is None:
            why = "is required: how many users real nodes have is not known before."
            raise OutOfRange("run.cohort", why, "cohort = 100")
        return self.plan(self.run.cohort)

    def plan(self, users: int) -> Plan:
        """Return the plan that asks `users` users: one round in which each takes part once.

        A step of rate 1 on one row, and a server that steps as far, make the released model the noised mean
        contribution (`fieldfare_client.questions`).

        Raises `BadInput` for another answer than a noised sum, by a plan that would not charge it.
        """
        privacy = self.privacy.model_dump(exclude_defaults=True)
        trains = {} if self.client is None else {"client": self.client.model_dump(mode="json", exclude_none=True)}
        tuning = {} if self.tuning is None else {"tuning": self.tuning.model_dump()}
        asked = self.run.cohort or max(1, users)  # of nobody, so that admission says who is missing
        question = self.question.of_users(asked).model_dump(mode="json")
        plan = Plan.parse(
            {
                "privacy": {**privacy, "adjacency": self.privacy.adjacency},
                "run": {**self.run.model_dump(exclude_defaults=True), "task": QUESTION, "rounds": 1, "cohort": asked},
                "task": {"of": self.of_users, "question": question, **trains},
                "participation": {"scheme": "single"},
                "mechanism": {"kind": "independent"},
                **STEP,
                "client": {"epochs": 1, "batch_size": 1, "learning_rate": 1.0},
                **tuning,
            }
        )
        if self.question.box is not None:  # before anything is priced or written: `Rounds` asks it too
            from fieldfare_server.run.round.answers import sum_of  # imports Flower

            sum_of(plan, 0.0)
        return plan


def task_of_nodes(plan: Mapping[str, Any]) -> str:
    """Return the task whose users a run's stored plan trains or asks, as `load_task` takes it; "" for an own app's."""
    if is_question(plan):
        return str(plan["task"]["of"]).removeprefix(OWN_APP)
    return task_reference(plan["run"]["task"], plan.get("task", {}))


def require_clear(asked: Asked, plan: Plan, cost: Cost) -> None:
    """Raise `BadInput`, before anything is charged, where the answer to `Asked.clip_of` would be noise alone."""
    users = plan.run.cohort
    ((_, share),) = asked.question.spread(cost.noise_multiplier, users)
    if FEWEST * share > 1.0:
        enough = gaussian_epsilon(FEWEST * share * cost.loss.mu, plan.privacy.delta)
        raise TooFew(
            f"privacy.epsilon = {asked.privacy.epsilon:g} of a clip norm",
            f"with {users} users the noise is too large to say anything.",
            f"{math.ceil(10.01 * enough) / 10:g}, or kind = 'adaptive-quantile'",
        )


def with_norm(text: str, norm: float) -> str:
    """Return the text of a plan file with another `clipping.norm`, and nothing else changed.

    Raises `BadInput` where the file says its clipping in another way than by a line in a table `[clipping]`.
    """
    line = f"norm = {norm:g}"
    head, table, rest = text.partition("\n[clipping]\n")
    own, bracket, after = rest.partition("\n[")
    if not table:
        made = f'{text.rstrip()}\n\n[clipping]\nkind = "flat"\n{line}\n'
    elif re.search(r"(?m)^norm\s*=", own):
        made = head + table + re.sub(r"(?m)^norm\s*=[^#\n]*[^#\n\s]", line, own, count=1) + bracket + after
    else:
        made = f"{head}{table}{line}\n{own}{bracket}{after}"
    before, now = (Plan.from_toml(each) for each in (text, made))
    wanted = {**before.model_dump(mode="json"), "clipping": before.clipping.at(norm).model_dump(mode="json")}
    if {**now.model_dump(mode="json"), "clipping": now.clipping.model_dump(mode="json")} != wanted:
        raise Unsupported("[clipping]", "is no table of lines; one line is all that changes.", f"{line} in its place")
    return made


def priced(asked: Asked, users: int) -> tuple[Plan, Cost]:
    """Return the plan of a question to `users` users, and its cost. Raises `BadInput` for a cohort above them."""
    plan = asked.plan(users)
    require_feasible(plan, users)  # first: no noise would do for a cohort far above
    return plan, price_with_model(plan)


def plan_for(asked: Asked, names: NDArray[np.uint64], ledger: Reader) -> tuple[Plan, Cost]:
    """Return the plan of a question to those of `names` (pseudonyms) who can pay for it, and its cost.

    Under individual accounting those who have spent too much are not asked. What a user has left follows from
    the public record of who took part, so it costs nothing that the number of the others is seen. Where
    nobody can pay, the plan asks all, and its admission refuses.

    Raises `BadInput` where there is no such population.
    """
    plan, cost = priced(asked, len(names))
    demand = demand_of(plan, cost)
    if asked.run.cohort is not None or demand is None:
        return plan, cost
    position, newcomers = ledger.position(asked.privacy.population, names)
    if position.room is None:
        return plan, cost
    able = int((position.room >= demand.most).sum()) + (newcomers if position.newcomer >= demand.most else 0)
    return priced(asked, able) if 0 < able < len(names) else (plan, cost)
