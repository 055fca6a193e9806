"""The Flower ServerApp: the same one in process, under `flwr run`, and in a SuperLink's ServerApp container.

Run configuration (flat, as Flower's is; see server/fieldfare_server/deployment/flower_app/pyproject.toml):

* `plan`: the plan file's text, or the path of one on the server;
* `resume`: the id of a run to continue, or empty;
* `run-id`: the id that a new run gets, or empty.

Where state lives comes from the environment of the server, never from a run: see `fieldfare_server.files.home`.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fieldfare.errors import BadInput, FieldfareError
from fieldfare.plan import Plan
from fieldfare_flower import logs
from fieldfare_flower.waits import shorten_part_waits
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.run.availability import require_simulated
from fieldfare_server.run.session import Session
from fieldfare_server.run.strategy import FieldfareStrategy, RoundReport

log = logging.getLogger("fieldfare.app")

app = ServerApp()


def identity_is_stable(grid: Grid) -> bool:
    """Whether a user id on this grid cannot be claimed by somebody else.

    True in process, and where the operator states that the SuperLink authenticates its SuperNodes
    (FIELDFARE_NODE_AUTH=required, which deploy/ sets together with --enable-supernode-auth; =simulated where all nodes
    are ours). A public key alone proves nothing: SuperNodes without authentication make up a new one at every start.
    """
    return bool(getattr(grid, "simulated", False)) or os.environ.get("FIELDFARE_NODE_AUTH") in ("required", "simulated")


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
    """Flower's entry point: begin or resume, then run to the end."""
    logs.configure("info")
    shorten_part_waits()
    said = {key: str(context.run_config.get(key, "")) for key in ("plan", "resume", "run-id")}
    with logs.about(said["resume"] or said["run-id"]):
        try:
            _run(said, grid, context.run_id)
        except FieldfareError as error:
            # The message is for the operator; it names no user and holds no data.
            log.error("%s", error)
            raise


def _run(said: dict[str, str], grid: Grid, flower_run: int) -> None:
    home, stable = StateDirectory.of(), identity_is_stable(grid)
    if said["resume"]:
        session = Session.resume(home, said["resume"], stable)
    elif said["plan"]:
        plan = read_plan(said["plan"])
        require_simulated(plan, grid)
        session = Session.begin(home, plan, stable, run_id=said["run-id"] or None)
    else:
        raise BadInput("run-config plan", "neither a plan nor a run to resume was given.", "plan = '<text or path>'")
    with logs.about(session.account.id), session:
        log.info("run %s is Flower's run %d", session.account.id, flower_run)
        FieldfareStrategy(session, _tell).start(grid)


def _tell(report: RoundReport) -> None:
    log.info("round %d/%d committed, epsilon %.4g", report.round + 1, report.rounds, report.epsilon)
