"""The grammar of the names that people give to populations and runs, and of references to tasks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

# Letters, digits, '.', '_' and '-'. A name is safe as a file name and as a segment of a URL.
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
LONGEST_NAME = 100
# Shown in the place of a task's name where a run trains the arrays of a Flower app (`run.task` is empty).
OWN_APP = "own Flower app"

# The task of a run that asks a question (`fieldfare.questions`).
QUESTION = "fieldfare_client.questions:QuestionTask"
# The key of a run's stored plan with what is charged for the resolution of floats (`Cost.resolution`).
RESOLUTION = "charged_resolution"


def is_question(plan: Mapping[str, object]) -> bool:
    """Return whether a stored plan, of whatever version, asks a question."""
    run, task = plan.get("run"), plan.get("task")
    return isinstance(run, Mapping) and run.get("task") == QUESTION and isinstance(task, Mapping)


def task_words(plan: Mapping[str, Any]) -> str:
    """Return what a run of a stored plan, of whatever version, trains or asks, on one line."""
    run = plan.get("run")
    task = str(run.get("task", "unknown")) if isinstance(run, Mapping) else "unknown"
    asked = plan["task"].get("question") if is_question(plan) else None
    if not isinstance(asked, Mapping):
        return task or OWN_APP
    models = asked.get("models") or [asked.get("model") or ""]
    of = f" of {', '.join(map(str, models))}" if any(models) else ""
    of += ", the best one's name alone," if asked.get("shows") == "best" else ""
    of += f", the smallest {asked['most']} of each user" if "most" in asked else ""
    low, high = asked.get("low"), asked.get("high")
    of += f" from {low} to {high}" if (low, high) != (-(2.0**53), 2.0**53) else ""  # all whole numbers
    task = str(plan["task"].get("of")).partition("?")[0]  # without its parameters, as for a run
    return f"question: {asked.get('kind')} of {asked.get('measure')}{of}, task {task}"


def mechanism_word(plan: Mapping[str, Any]) -> str:
    """Return a stored plan's kind of noise, or "threshold" or "exponential" where the answer is no noised sum."""
    asked, mechanism = plan["task"].get("question") if is_question(plan) else None, plan.get("mechanism")
    if isinstance(asked, Mapping) and asked.get("kind") == "items":
        return "threshold"
    if isinstance(asked, Mapping) and asked.get("shows") == "best":
        return "exponential"
    return str(mechanism.get("kind", "unknown")) if isinstance(mechanism, Mapping) else "unknown"


def is_name(text: str) -> bool:
    """Return whether `text` is a valid name of at most `LONGEST_NAME` characters."""
    return isinstance(text, str) and len(text) <= LONGEST_NAME and re.fullmatch(NAME, text) is not None


def is_line(text: str) -> bool:
    """Return whether `text` can stand in a line that people read: printable, neither empty nor padded."""
    return text.isprintable() and bool(text) and text.strip() == text


def task_reference(name: str, parameters: Mapping[str, object]) -> str:
    """Return a task's name with its parameters, on one line without quotes and spaces:
    `digits?hidden=16&users=50`.

    Configurations of nodes and messages carry it. Without parameters it is the name.
    """
    if not parameters:
        return name
    return f"{name}?" + urlencode({key: json.dumps(value) for key, value in sorted(parameters.items())})


def split_task_reference(reference: str) -> tuple[str, dict[str, object]]:
    """Return the name and the parameters in what `task_reference` wrote. Raises ValueError for anything else."""
    name, _, parameters = reference.partition("?")
    return name, {key: json.loads(value) for key, value in parse_qsl(parameters, strict_parsing=bool(parameters))}
