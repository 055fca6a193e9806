"""`fieldfare run`: start a plan on a real federation and follow it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fieldfare.errors import Conflict, NotGiven
from fieldfare.plan import Plan
from fieldfare_server.cli.administer import actor
from fieldfare_server.cli.command import CommandResult, on_home
from fieldfare_server.cli.options import AcceptDeltaOption, trusted
from fieldfare_server.cli.output import out, print_progress, print_warnings
from fieldfare_server.cli.progress import check_known_users
from fieldfare_server.deployment.submit import submit_and_follow
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.files.plan_file import read_plan, require_task
from fieldfare_server.ledger import Ledger, new_run_id
from fieldfare_server.planning.questions import task_of_nodes
from fieldfare_server.run.pricing import price
from fieldfare_server.run.signal import require_signal


@on_home
def run(
    directory: StateDirectory,
    path: Annotated[Path | None, typer.Argument(metavar="[PLAN.toml]", help="the plan file")] = None,
    superlink: Annotated[str, typer.Option(help="host:port of the SuperLink")] = "127.0.0.1:8000",
    root_certificates: Annotated[Path | None, typer.Option(help="the federation's ca.crt")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="no TLS: for a quick look only")] = False,
    resume: Annotated[str, typer.Option(metavar="RUN", help="continue this run")] = "",
    create_population: Annotated[
        bool,
        typer.Option(
            "--create-population", help="create the plan's population with the plan's budget if it is missing"
        ),
    ] = False,
    accept_delta: AcceptDeltaOption = False,
    detach: Annotated[bool, typer.Option("--detach", help="do not wait for the end")] = False,
) -> CommandResult:
    """Submit a plan to a SuperLink and follow the run to its end."""
    if (path is None) == (not resume):
        raise NotGiven("run", "needs a plan file, or --resume RUN, and not both.", "fieldfare run PLAN.toml")
    certificates = trusted("run", root_certificates, insecure)
    text, task = "", ""
    if path:
        plan = read_plan(path)
        if plan.availability is not None:
            raise Conflict("availability", "describes simulated users.", "fieldfare simulate, or a plan without it")
        if not plan.draws_its_price:
            print_warnings(require_signal(price(plan)))  # the coordinator asks too; here a person reads it
        text, task = path.read_text(), plan.task_reference
        if create_population and plan.privacy.epsilon is not None:
            _create_population(directory, plan, plan.privacy.epsilon)
        check_known_users(directory, plan, accept_delta)
    else:
        with Ledger.open(directory.ledger) as opened:
            require_task(resume, Plan.stored(stored := opened.run(resume).plan))
        task = task_of_nodes(stored)
    run_id = resume or new_run_id()
    print_progress(f"State: {directory.root}")
    terms = {"plan": text, "task": task, "resume": resume, "root_certificates": certificates}
    submit_and_follow(directory, superlink, print_progress, run_id=run_id, detach=detach, **terms)
    text = f"Run {run_id} {'submitted' if detach else 'ended'}. fieldfare report {run_id}"
    return CommandResult({"run": run_id, "followed": not detach}, lambda: out.print(text))


def _create_population(directory: StateDirectory, plan: Plan, epsilon: float) -> None:
    # A fixed noise seed is for tests, so its population must never hold people.
    name, simulated = plan.privacy.population, plan.run.noise_seed is not None
    directory.require_named(name, simulated)
    directory.prepare()
    with Ledger.open(directory.ledger, create=True, head_file=directory.head_file) as ledger:
        delta, adjacency = plan.privacy.delta, plan.privacy.adjacency
        ledger.population_or_new(name, epsilon, delta, adjacency=adjacency, simulated=simulated, actor=actor())
