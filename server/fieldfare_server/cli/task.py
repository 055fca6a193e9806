"""`fieldfare task`: try a task before a run pays for its mistakes."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fieldfare.cost import Cost
from fieldfare.errors import BadInput, LedgerError
from fieldfare.plan import Plan
from fieldfare.plan_tables import ClientSpec
from fieldfare_server.cli import importing
from fieldfare_server.cli.command import CommandResult, on_home
from fieldfare_server.cli.options import JsonOption
from fieldfare_server.cli.output import out, print_progress, print_warnings
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.files.plan_file import HERE, plan_path, read_plan
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.pricing import price
from fieldfare_server.run.signal import require_signal

if TYPE_CHECKING:
    from fieldfare_client.check import TaskReport

task = typer.Typer(help="Try a task on this machine.", no_args_is_help=True)


@task.callback()
def _options() -> None:
    """Try a task on this machine."""


@task.command()
@on_home
def check(
    home: StateDirectory,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="a task's name, or package.module:Attribute [the plan's]")
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="take [task] and [client] from this plan [plan.toml, if it is there and of this task]"),
    ] = None,
    data_is_public: Annotated[
        bool, typer.Option("--data-is-public", help="state that: what the check sees may then decide about the plan")
    ] = False,
    json_: JsonOption = False,
) -> CommandResult:
    """Try data, model, loss, training, score and reply of a task. Charges nothing and sends nothing.

    A plan is judged too: by its own numbers, and against the updates that were tried where its population is
    marked as simulated, or with --data-is-public. Of people's updates the norms are shown, and decide
    nothing: no look at their data may, unless it is charged (fieldfare ask --clip-of).

    The same check comes before every run. Here it shows the whole text of an error, which may quote users'
    data: it is for the machine that holds them.
    """
    planned = read_plan(plan_path(plan)) if plan or name is None or _is_planned(name) else None
    if planned is not None and name in (None, planned.run.task):
        name = planned.task_reference
    report = check_here(name or "", planned.client if planned else None)
    if planned is not None and name == planned.task_reference:
        public = data_is_public or is_simulated(home, planned)
        report.warnings += judge(price(planned), report, public)
    shown = {"task": name, "right": report.lines, "warnings": report.warnings, "seconds": report.seconds}

    def tell() -> None:
        for line in report.lines:
            out.print(f"ok  {line}", markup=False)
        print_warnings(report.warnings)
        tried = (name or "").partition("?")[0]
        out.print(f"Task {tried} is right ({report.seconds:.1f} s). Nothing was charged.", markup=False)

    return CommandResult(shown, tell)


def is_simulated(home: StateDirectory, plan: Plan) -> bool:
    """Return whether the ledger says that the users of the plan's population are not people. No if it has none such."""
    try:
        with Ledger.open(home.ledger) as opened:
            return opened.population(plan.privacy.population).simulated
    except (BadInput, LedgerError):
        return False


def say_made_up(plan: Plan) -> None:
    """Say before a run that it is charged to nobody real: real rows may have taken the place of made-up ones."""
    name = plan.privacy.population
    print_progress(f"Population {name} is of made-up people; real ones need their own: fieldfare population create")


def judge(cost: Cost, report: TaskReport, public: bool) -> list[str]:
    """Return `require_signal` with what a check saw, as far as it may decide: no norm of people's updates."""
    norm = report.update_norm if public else None
    return require_signal(cost, report.numel, norm)


def _is_planned(name: str) -> bool:
    """Return whether plan.toml of this directory trains the task `name`, whatever else is wrong with that file."""
    try:
        return bool(tomllib.loads(HERE.read_text())["run"]["task"] == name)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def check_here(name: str, client: ClientSpec | None = None) -> TaskReport:
    """Check the task `name` that this process would train. Raises the first fault, `Faulty`, a `BadInput`."""
    with importing():
        from fieldfare_client.app import task_of  # imports PyTorch
        from fieldfare_client.check import check_task
    return check_task(name, client=client, load=task_of)
