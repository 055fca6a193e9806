"""A plan from keywords: `Plan(task=MyTask(), epsilon=4, delta=1e-5, rounds=64, cohort=20, mechanism="blt")`.

A plan file has tables. A script has objects and flat names. `tables_of` turns the second into the first, so
that both are validated by the same code.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from fieldfare.errors import BadInput, NotFound, WrongForm
from fieldfare.refusals import bad_input
from fieldfare.shown import Shown
from fieldfare.trees import refuse_trees

if TYPE_CHECKING:
    from fieldfare.task import Task

# The population of a plan whose keywords name none.
POPULATION = "simulation"
DEFAULT_MECHANISM = "blt"

_NEEDED = ("task", "rounds", "cohort", "delta")
_DEFAULTS: dict[str, object] = {
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
    "metrics": None,
    "aggregation": "plain",
    "tuning": None,
}
# What a notebook shows of `Plan(`: the keywords, in the place of the tables that pydantic sees.
SIGNATURE = Signature(
    [
        *(Parameter(name, Parameter.KEYWORD_ONLY) for name in _NEEDED),
        *(Parameter(name, Parameter.KEYWORD_ONLY, default=value) for name, value in _DEFAULTS.items()),
        Parameter("keys_and_tables", Parameter.VAR_KEYWORD),
    ]
)


class PlanType(type(BaseModel)):  # type: ignore[misc]
    """What calling `Plan(...)` does: keywords become tables, and a fault is one `BadInput`.

    Plans from files and ledgers do not come this way (`Plan.parse`, `Plan.stored`): there a flat key stays
    unknown.
    """

    __dir__ = Shown.__dir__

    def __call__(cls, *positional: object, **keywords: object) -> object:
        if positional:
            why = "a plan is made by keywords."
            raise WrongForm(f"Plan({positional[0]!r})"[:200], why, "task=..., or Plan.from_toml(text) of a plan file")
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


# Keywords whose table has another name.
TABLE_OF = {"clip": "clipping", "clipping": "clipping", "parameters": "task"}
# Keywords that are a table, and the key of that table that a plain value stands for.
KEY_OF = {
    "mechanism": "kind",
    "clip": "norm",
    "clipping": "norm",
    "server_optimizer": "kind",
    "participation": "scheme",
    "aggregation": "kind",
    "tuning": "share",
}
_TARGETS = ("epsilon", "noise_multiplier")


def tables_of(keywords: Mapping[str, Any], tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of a plan file that say what `keywords` say.

    Args:
        keywords: `task` (an object, a class, or a name), `mechanism`, `clip`, `participation`,
            `server_optimizer` and `aggregation` (a kind or number, or a table), `tuning` (a share, or a
            table), `parameters` (of the task, its `[task]` table), `client`, `availability`, `metrics`
            (tables), and any key of `[privacy]` and `[run]`.
        tables: the plan's fields by name.

    Raises:
        BadInput: a keyword is unknown, or a task's name; names the nearest.
    """
    places = {key: name for name in ("privacy", "run") for key in tables[name].annotation.model_fields}
    known = list(dict.fromkeys(["task", "clip", "parameters", "mechanism", *places, *tables, *KEY_OF]))
    for name, value in keywords.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1) or [", ".join(known)]
            raise BadInput(f"{name} = {value!r}", "a plan has no such keyword.", near[0], code="key-unknown")
    # A keyword that is None was left out, as in a plan file.
    given = {name: value for name, value in keywords.items() if value is not None or name not in places}
    if "task" in given:
        given["task"] = task_name(given["task"])
    begun = {"privacy": {"population": POPULATION}, "run": {}, "mechanism": {"kind": DEFAULT_MECHANISM}}
    return merged(begun, given, places)


def merged(tables: Mapping[str, Any], keywords: Mapping[str, Any], places: Mapping[str, str]) -> dict[str, Any]:
    """Return a plan's `tables` with `keywords` in place: here, and nowhere else, keywords become tables.

    Args:
        tables: of a plan, by name.
        keywords: flat keys, and tables or the plain value that stands for one.
        places: for each flat key its table.
    """
    # What is no table stays as it is: the plan says so.
    plan: dict[str, Any] = {
        name: dict(section) if isinstance(section, Mapping) else section for name, section in tables.items()
    }
    for name, value in keywords.items():
        if name in places:
            section = plan.setdefault(places[name], {})
            section[name] = value
            for other in _TARGETS:
                if name in _TARGETS and other != name and other not in keywords:
                    section.pop(other, None)
            continue
        place, key = TABLE_OF.get(name, name), KEY_OF.get(name, "")
        old = plan.get(place) or {}
        if isinstance(value, BaseModel):
            new = value.model_dump(mode="json", exclude_none=True)
        elif isinstance(value, Mapping):
            new = dict(value)
        elif value is None or not key:
            plan[place] = value  # no table: the plan says so
            continue
        else:
            new = {key: value}
        if place == "clipping":
            new = {"kind": old.get("kind", "flat"), **new}
        main = "kind" if place == "clipping" else key
        # Another kind has other keys; the same kind keeps the keys that are not named.
        keeps = main not in new or new[main] == old.get(main)
        plan[place] = {**old, **new} if keeps else new
    return plan


def task_name(task: str | Task | type[Task]) -> str:
    """Return the name of a task in a plan: `task` itself, or "package.module:Class", or that of an object of
    this process.
    """
    from fieldfare.task import OBJECT, Task, announced, find_task, hold

    if isinstance(task, str):
        if ":" not in task and not task.startswith(OBJECT) and len(announced(task)) != 1:
            find_task(task)  # a slip is found here, and not when the run begins
        return task

    if isinstance(task, type) and issubclass(task, Task):
        path = task.__qualname__
        if getattr(sys.modules.get(task.__module__), path, None) is task:
            return f"{task.__module__}:{path}"
        raise NotFound(f"task = {path}", "is a class inside of a function, which no name reaches.", f"task={path}()")
    if not isinstance(task, Task):
        refuse_trees("task", task)
        why = f"is a {type(task).__name__}, not a fieldfare.Task."
        raise WrongForm(f"task = {task!r}"[:200], why, "an object or a subclass of ff.Task, or a name")
    return hold(task)
