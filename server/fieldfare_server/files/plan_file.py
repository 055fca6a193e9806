"""The one reader of plan files."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fieldfare.errors import BadInput, NotGiven, Unreadable, Unsupported
from fieldfare.names import OWN_APP
from fieldfare.plan import Plan
from fieldfare.refusals import with_lines

# The plan that commands read which are given none.
HERE = Path("plan.toml")


def plan_path(path: Path | None) -> Path:
    """Return the plan file that was named, else plan.toml of this directory. Raises `BadInput` without either."""
    if path is not None:
        return path
    if not HERE.is_file():
        raise NotGiven("plan file", "none was named, and there is no plan.toml here.", "fieldfare init")
    return HERE


def read_plan(path: str | Path) -> Plan:
    """Return the validated plan in a TOML file, whose directory may hold the module of its task.

    Raises `BadInput`, also for parameters that the task does not take, where the task is found here.
    """
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise Unreadable(f"plan file {str(path)!r}", f"cannot be read: {reason}.") from None
    # Last, so that no file there hides an installed module.
    sys.path.append(str(Path(path).absolute().parent))
    plan = Plan.from_toml(text)
    if plan.task:
        # Only then: this imports torch and the task.
        from fieldfare.task import UnknownTask, check_parameters

        try:
            check_parameters(plan.run.task, plan.task)
        except UnknownTask:
            pass
        except BadInput as refusal:
            raise with_lines(refusal, text) from None
    return plan


def plan_text(plan: Plan) -> str:
    """Return a plan as a file's text: every table with its values, and without what is not set. `read_plan`
    reads it.
    """
    tables = plan.model_dump(mode="json", exclude_none=True)
    return "\n".join(
        f"[{name}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in table.items())
        for name, table in tables.items()
        if table
    )


def _toml(value: object) -> str:
    """Return a value of JSON as TOML, whose texts and numbers are written alike, but for halves of a character."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml(key)} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def plan_of(value: str) -> Plan:
    """Return the plan of a run configuration: from its text, TOML or JSON, or from the file that `value`
    names.

    Raises `BadInput`.
    """
    if value.startswith("{"):
        try:
            return Plan.parse(json.loads(value))
        except (json.JSONDecodeError, TypeError) as error:
            raise BadInput("plan", f"is not JSON: {error}.", code="not-toml") from None
    return Plan.from_toml(value) if "\n" in value or "=" in value else read_plan(value)


def require_task(run_id: str, plan: Plan) -> None:
    """Refuse to resume a run whose model, or users, only a Flower app has. Raises `BadInput`."""
    if not plan.run.task:
        why, near = "trains the arrays of", f"PrivateStrategy(resume={run_id!r}) in its ServerApp"
    elif plan.task.get("of") == OWN_APP:
        why, near = "asks the users of", f"`fieldfare abandon {run_id}`, and ff.ask again"
    else:
        return
    raise Unsupported(f"run {run_id}", f"it {why} a Flower app, which alone can continue it.", near)
