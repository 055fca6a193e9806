"""The Flower ServerApp: the same one in process, under `flwr run`, and in a SuperLink's ServerApp container.

Run configuration (flat, as Flower's is; see deploy/flower-app/pyproject.toml):

* `plan`: the plan file's text, or the path of one on the server;
* `resume`: the id of a run to continue, or empty.

Where state lives comes from the environment of the server, never from a run: see `fieldfare_server.home`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Result

from fieldfare.errors import BadInput, Interrupted, Refused
from fieldfare.plan import Plan
from fieldfare_server.home import Home
from fieldfare_server.session import Session
from fieldfare_server.strategy import FieldfareStrategy, RoundReport

log = logging.getLogger("fieldfare.app")

app = ServerApp()


def identity_is_stable(grid: Grid) -> bool:
    """Whether a user id on this grid cannot be claimed by somebody else.

    True in process, and where the operator states that the SuperLink authenticates its SuperNodes
    (FIELDFARE_NODE_AUTH=required, which deploy/ sets together with --enable-supernode-auth). A public key alone proves
    nothing: SuperNodes without authentication make up a new one at every start.
    """
    return bool(getattr(grid, "simulated", False)) or os.environ.get("FIELDFARE_NODE_AUTH") == "required"


def execute(
    grid: Grid,
    home: Home,
    *,
    plan: Plan | None = None,
    resume: str = "",
    on_start: Callable[[Session], None] = lambda session: None,
    on_round: Callable[[RoundReport], None] = lambda report: None,
) -> tuple[Session, Result]:
    """Start `plan`, or continue the run called `resume`, and run it to its end on `grid`."""
    stable = identity_is_stable(grid)
    if resume:
        session = Session.resume(home, resume, stable)
    elif plan is not None:
        session = Session.begin(home, plan, stable)
    else:
        raise BadInput("plan", "neither a plan nor a run to resume was given.")
    on_start(session)
    with session:
        return session, FieldfareStrategy(session, on_round).start(grid)


def read_plan(value: str) -> Plan:
    """A plan from its text, or from the file that `value` names."""
    if "\n" in value or "=" in value:
        return Plan.from_toml(value)
    try:
        return Plan.from_toml(Path(value).read_text())
    except OSError as error:
        raise BadInput(f"plan = {value!r}", f"cannot be read: {error.strerror}.") from None


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Flower's entry point."""
    resume, text = str(context.run_config.get("resume", "")), str(context.run_config.get("plan", ""))
    try:
        execute(
            grid,
            Home.of(),
            plan=read_plan(text) if text and not resume else None,
            resume=resume,
            on_round=lambda report: log.info("round %d/%d committed", report.round + 1, report.rounds),
        )
    except (Refused, Interrupted) as error:
        # The message is for the operator; it names no user and holds no data.
        log.error("%s", error)
        raise
