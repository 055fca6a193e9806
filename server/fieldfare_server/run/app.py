"""The Flower ServerApp: the same one in process, under `flwr run`, and in a SuperLink's ServerApp container.

Run configuration (flat, as Flower's is; see server/fieldfare_server/deployment/flower_app/pyproject.toml):

* `plan`: the plan file's text, or the path of one on the server;
* `resume`: the id of a run to continue, or empty;
* `run-id`: the id that a new run gets, or empty.

The server's environment says where state lives; a run never does. See `fieldfare_server.files.home`.
"""

from __future__ import annotations

import logging
import os

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fieldfare.errors import FieldfareError, NotGiven
from fieldfare.names import QUESTION
from fieldfare_flower import logs
from fieldfare_flower.server_errors import outlast_server_errors
from fieldfare_flower.waits import shorten_part_waits
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.files.plan_file import plan_of
from fieldfare_server.ledger.holders import SIMULATION
from fieldfare_server.run.presence.availability import require_simulated
from fieldfare_server.run.presence.identity import identity_is_stable
from fieldfare_server.run.round.strategy import FieldfareStrategy, RoundReport
from fieldfare_server.run.session import Session
from fieldfare_server.run.signal import log_signal

log = logging.getLogger("fieldfare.app")

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Flower's entry point: begin or resume a run, then take it to its end."""
    logs.configure("info")
    shorten_part_waits()
    outlast_server_errors(grid)
    plan, resume, run_id = (str(context.run_config.get(key, "")) for key in ("plan", "resume", "run-id"))
    with logs.about(resume or run_id):
        try:
            session = _open_session(grid, plan, resume, run_id)
            with logs.about(session.account.id, stamp=session.stamp), session:
                log.info("run %s is Flower's run %d", session.account.id, context.run_id)

                def report(done: RoundReport) -> None:
                    log.info("round %d/%d committed, epsilon %.4g", done.round + 1, done.rounds, done.epsilon)

                FieldfareStrategy(session, report, run_config=context.run_config).start(grid)
        except FieldfareError as error:
            # The message is for the operator; it names no user and holds no data.
            log.error("%s", error)
            raise


def _open_session(grid: Grid, plan_source: str, resume: str, run_id: str) -> Session:
    home, stable = StateDirectory.of(), identity_is_stable(grid)
    actor = SIMULATION if os.environ.get("FIELDFARE_NODE_AUTH") == "simulated" else "coordinator"
    if resume:
        return Session.resume(home, resume, stable, actor)
    if not plan_source:
        raise NotGiven("run-config plan", "neither a plan nor a run to resume was given.", "plan = '<text or path>'")
    plan = plan_of(plan_source)
    require_simulated(plan, grid)
    session = Session.begin(home, plan, stable, actor, run_id or None)
    if plan.run.task != QUESTION:  # a question is judged by `questions.require_clear`
        log_signal(session.cost, session.schema.numel, log)  # who submits with `fieldfare run` was refused
    return session
