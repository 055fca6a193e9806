"""A question file: what is asked, of whose users, and from whose budget. It becomes the plan of a run of one round."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, JsonValue, SerializeAsAny, ValidationError, field_validator, model_validator

from fieldfare.cost import Cost
from fieldfare.errors import BadInput
from fieldfare.names import QUESTION, task_reference
from fieldfare.participation import hides_presence
from fieldfare.plan import Plan
from fieldfare.plan_tables import ClientSpec, PrivacySpec
from fieldfare.questions import Question, parse
from fieldfare.refusals import bad_input, with_lines
from fieldfare.registry import Table
from fieldfare_server.ledger.reads import Reader
from fieldfare_server.run.pricing import demand_of, price_with_model

STEP: Mapping[str, Mapping[str, Any]] = {
    "clipping": {"kind": "flat", "norm": 1.0},
    "server_optimizer": {"kind": "sgd", "learning_rate": 1.0},
}
"""The tables of a plan by which the released model is the noised mean contribution, and nothing else."""


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

    Where presence is secret nothing may be asked: how many users answer would be secret, and an answer is read with it.
    """

    question: SerializeAsAny[Question]
    run: AskedRun
    task: dict[str, JsonValue] = Field(default={}, description="parameters of the task")
    privacy: PrivacySpec
    client: ClientSpec | None = Field(default=None, description="the local training of measure update-norm")

    @field_validator("question", mode="before")
    @classmethod
    def _by_kind(cls, table: object) -> Question:
        if not isinstance(table, Mapping | Question):
            raise BadInput(f"question = {table!r}", "must be a table with a kind.")
        return parse(table)

    @model_validator(mode="after")
    def _number_of_answers_is_public(self) -> Self:
        if hides_presence(self.privacy.adjacency):
            raise BadInput(
                f"privacy.adjacency = {self.privacy.adjacency!r}",
                "who is there is secret, so a question would need a public schedule of its end and a public number of "
                "users, and there is none.",
                "a population of adjacency 'zero_out' or 'replace_one'",
            )
        return self

    @model_validator(mode="after")
    def _trains_to_measure(self) -> Self:
        if self.client is not None and self.question.measure != self.question.update_norm:
            why = f"measure {self.question.measure!r} trains nothing."
            raise BadInput("[client]", why, f"measure = {self.question.update_norm!r}")
        return self

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Asked:
        """Validate a mapping. Raises `BadInput` with all faults."""
        try:
            return cls.model_validate(dict(table))
        except ValidationError as error:
            raise bad_input(error, "", cls) from None

    @classmethod
    def read(cls, path: Path) -> Asked:
        """The question in a TOML file, whose directory may hold the module of its task. Raises `BadInput`."""
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"question file {str(path)!r}", f"cannot be read: {error}.") from None
        sys.path.append(str(path.absolute().parent))
        return cls.from_toml(text)

    @classmethod
    def from_toml(cls, text: str) -> Asked:
        """The question in a TOML text. Raises `BadInput` with all faults and their lines."""
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise BadInput("question file", f"cannot be read: {error}.") from None
        try:
            return cls.of(table)
        except BadInput as refusal:
            raise with_lines(refusal, text) from None

    @property
    def of_users(self) -> str:
        """The task whose users are asked, as `load_task` takes it."""
        return task_reference(self.run.task, self.task)

    def plan_for_nodes(self) -> Plan:
        """The plan that asks users of real nodes. Raises `BadInput` where the question does not say how many."""
        if self.run.cohort is None:
            why = "is required: how many users real nodes have is not known before."
            raise BadInput("run.cohort", why, "cohort = 100")
        return self.plan(self.run.cohort)

    def plan(self, users: int) -> Plan:
        """The plan that asks `users` users: one round in which each takes part once.

        A step of rate 1 on one row, and a server that steps as far, make the released model the noised mean
        contribution (`fieldfare_client.questions`).
        """
        privacy = self.privacy.model_dump(exclude_defaults=True)
        trains = {} if self.client is None else {"client": self.client.model_dump(mode="json", exclude_none=True)}
        return Plan.parse(
            {
                "privacy": {**privacy, "adjacency": self.privacy.adjacency},
                "run": {
                    **self.run.model_dump(exclude_defaults=True),
                    "task": QUESTION,
                    "rounds": 1,
                    "cohort": self.run.cohort or users,
                },
                "task": {"of": self.of_users, "question": self.question.model_dump(mode="json"), **trains},
                "participation": {"scheme": "single"},
                "mechanism": {"kind": "independent"},
                **STEP,
                "client": {"epochs": 1, "batch_size": 1, "learning_rate": 1.0},
            }
        )


def plan_for(asked: Asked, names: NDArray[np.uint64], ledger: Reader) -> tuple[Plan, Cost]:
    """The plan of a question to those of `names` (pseudonyms) who can pay for it, and its cost.

    Under individual accounting those who have spent too much are not asked. What a user has left follows from the
    public record of who took part, so it costs nothing that the number of the others is seen. Where nobody can pay, the
    plan asks all, and its admission refuses.

    Raises `BadInput` where there is no such population.
    """
    plan = asked.plan(len(names))
    cost = price_with_model(plan)
    if asked.run.cohort is not None:
        return plan, cost
    demand = demand_of(plan, cost)
    if demand is None:
        return plan, cost
    position, newcomers = ledger.position(asked.privacy.population, names)
    if position.room is None:
        return plan, cost
    able = int((position.room >= demand.most).sum()) + (newcomers if position.newcomer >= demand.most else 0)
    if not 0 < able < len(names):
        return plan, cost
    plan = asked.plan(able)
    return plan, price_with_model(plan)
