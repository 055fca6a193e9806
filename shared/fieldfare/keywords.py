"""A plan from keywords: `Plan(task=MyTask(), epsilon=4, delta=1e-5, rounds=64, cohort=20, mechanism="blt")`.

A plan file has tables. A script has objects and flat names. `tables_of` turns the second into the first, so that both
are validated by the same code.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from fieldfare.errors import BadInput
from fieldfare.refusals import bad_input

if TYPE_CHECKING:
    from fieldfare.task import Task

POPULATION = "simulation"
"""The population of a plan whose keywords name none."""
DEFAULT_MECHANISM = "blt"

_NEEDED = ("task", "rounds", "cohort", "delta")
_DEFAULTS: dict[str, Any] = {
    "epsilon": None,
    "noise_multiplier": None,
    "population": POPULATION,
    "mechanism": DEFAULT_MECHANISM,
    "clip": 1.0,
    "participation": "single",
    "server_optimizer": "sgd",
    "parameters": {},
    "client": {},
    "availability": None,
}
SIGNATURE = Signature(
    [
        *(Parameter(name, Parameter.KEYWORD_ONLY) for name in _NEEDED),
        *(Parameter(name, Parameter.KEYWORD_ONLY, default=value) for name, value in _DEFAULTS.items()),
        Parameter("keys_and_tables", Parameter.VAR_KEYWORD),
    ]
)
"""What a notebook shows of `Plan(`: the keywords, in the place of the tables that pydantic sees."""


class PlanType(type(BaseModel)):  # type: ignore[misc]
    """What calling `Plan(...)` does: keywords become tables, and a fault is one `BadInput`.

    Plans from files and ledgers do not come this way (`Plan.parse`, `Plan.stored`): there a flat key stays unknown.
    """

    def __call__(cls, *positional: object, **keywords: Any) -> Any:
        if positional:
            why = "a plan is made by keywords."
            raise BadInput(f"Plan({positional[0]!r})"[:200], why, "task=..., or Plan.from_toml(text) of a plan file")
        try:
            if "privacy" in keywords or "run" in keywords:
                return super().__call__(**keywords)
            task = keywords.get("task")
            plan = super().__call__(**tables_of(keywords, cls.model_fields))
        except ValidationError as error:
            raise bad_input(error, "", cls) from None
        # A name is all that a plan stores of its task. The plan keeps the object, so that the name finds it.
        plan._task = None if isinstance(task, str | type) else task
        return plan


def tables_of(keywords: Mapping[str, Any], tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a plan file that say what `keywords` say.

    Args:
        keywords: `task` (an object, a class, or a name), `mechanism`, `clip`, `participation` and `server_optimizer`
            (a kind or number, or a table), `parameters` (of the task, its `[task]`
            table), `client`, `availability` (tables), and any key of `[privacy]` and `[run]`.
        tables: the plan's fields by name.

    Raises:
        BadInput: a keyword is unknown, or a task's name; names the nearest.
    """
    places = {key: name for name in ("privacy", "run") for key in tables[name].annotation.model_fields}
    flat: dict[str, dict[str, Any]] = {"privacy": {"population": POPULATION}, "run": {}}
    rest: dict[str, Any] = {"mechanism": {"kind": DEFAULT_MECHANISM}}
    for name, value in keywords.items():
        if name == "task":
            flat["run"]["task"] = task_name(value)
        elif name in places:
            # A keyword that is None was left out, as in a plan file.
            flat[places[name]] |= {} if value is None else {name: value}
        elif name in ("clip", "clipping"):
            is_table = isinstance(value, Mapping | BaseModel)
            rest["clipping"] = value if is_table else {"kind": "flat", "norm": value}
        elif name in ("mechanism", "server_optimizer"):
            rest[name] = {"kind": value} if isinstance(value, str) else value
        elif name == "participation":
            rest[name] = {"scheme": value} if isinstance(value, str) else value
        elif name == "parameters":
            rest["task"] = value
        elif name in tables:
            rest[name] = value
        else:
            known = ["task", "clip", "parameters", *rest, *places, *tables]
            near = difflib.get_close_matches(name, known, n=1) or [", ".join(dict.fromkeys(known))]
            raise BadInput(f"{name} = {value!r}", "a plan has no such keyword.", near[0])
    return {**flat, **rest}


def task_name(task: str | Task | type[Task]) -> str:
    """The name of a task in a plan: `task` itself, or "package.module:Class", or that of an object of this process."""
    from fieldfare.task import OBJECT, Task, find_task, hold  # torch

    if isinstance(task, str):
        if ":" not in task and not task.startswith(OBJECT):
            find_task(task)  # a slip is found here, and not when the run begins
        return task

    if isinstance(task, type) and issubclass(task, Task):
        path = task.__qualname__
        if getattr(sys.modules.get(task.__module__), path, None) is task:
            return f"{task.__module__}:{path}"
        raise BadInput(f"task = {path}", "is a class inside of a function, which no name reaches.", f"task={path}()")
    if not isinstance(task, Task):
        raise BadInput(
            f"task = {task!r}"[:200],
            f"is a {type(task).__name__}, not a fieldfare.Task.",
            "an object or a subclass of ff.Task, or a name",
        )
    return hold(task)
