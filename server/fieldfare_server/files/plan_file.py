"""The one reader of plan files."""

from __future__ import annotations

from pathlib import Path

from fieldfare.errors import BadInput
from fieldfare.plan import Plan


def read_plan(path: str | Path) -> Plan:
    """The validated plan in a TOML file. Raises `BadInput`."""
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise BadInput(f"plan file {str(path)!r}", f"cannot be read: {reason}.") from None
    return Plan.from_toml(text)


def plan_of(value: str) -> Plan:
    """The plan of a run configuration: from its text, or from the file that `value` names. Raises `BadInput`."""
    return Plan.from_toml(value) if "\n" in value or "=" in value else read_plan(value)


def require_task(run_id: str, plan: Plan) -> None:
    """Refuse to resume a run whose model only its own Flower app has. Raises `BadInput`."""
    if not plan.run.task:
        raise BadInput(
            f"run {run_id}",
            "it trains the arrays of a Flower app, which alone can continue it.",
            f"PrivateStrategy(resume={run_id!r}) in its ServerApp",
        )
