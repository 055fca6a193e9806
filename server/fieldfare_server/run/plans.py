"""Read a plan file and check all of it, the server's own part included."""

from __future__ import annotations

from pathlib import Path

from fieldfare import clipping
from fieldfare.errors import BadInput
from fieldfare.plan import Plan
from fieldfare_server import optimizers


def check_plan(plan: Plan) -> Plan:
    """The plan itself, if its clipping and server optimizer exist and fit. Raises `BadInput`."""
    clipping.parse(plan.clipping)
    optimizers.parse(plan.server_optimizer).check(plan)
    return plan


def load_plan(path: str | Path) -> Plan:
    """A checked plan from a TOML file. Raises `BadInput`."""
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise BadInput(f"plan file {str(path)!r}", f"cannot be read: {reason}.") from None
    return check_plan(Plan.from_toml(text))
