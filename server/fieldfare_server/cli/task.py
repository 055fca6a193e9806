"""`fieldfare task`: try a task before a run pays for its mistakes."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fieldfare.plan_tables import ClientSpec
from fieldfare_client.task_faults import Faulty
from fieldfare_server.cli.options import JsonOption
from fieldfare_server.cli.output import err, out, print_json, print_progress, refusals
from fieldfare_server.files.plan_file import HERE, plan_path, read_plan

if TYPE_CHECKING:
    from fieldfare_client.check import TaskReport

task = typer.Typer(help="Try a task on this machine.", no_args_is_help=True)


@task.callback()
def _options() -> None:
    """Try a task on this machine."""


@task.command()
def check(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="a task's name, or package.module:Attribute [the plan's]")
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="take [task] and [client] from this plan [plan.toml, if it is there and of this task]"),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Try data, model, loss, training, score and reply of a task. Charges nothing and sends nothing.

    The same check comes before every run. Here it shows the whole text of an error, which may quote users' data: it is
    for the machine that holds them.
    """
    with refusals(json_):
        planned = read_plan(plan_path(plan)) if plan or name is None or _is_planned(name) else None
        if planned is not None and name in (None, planned.run.task):
            name = planned.task_reference
        report = check_here(name or "", planned.client if planned else None, quiet=json_)
    if json_:
        print_json({"task": name, "right": report.lines, "warnings": report.warnings, "seconds": report.seconds})
        return
    for line in report.lines:
        out.print(f"ok  {line}", markup=False)
    print_check_warnings(report)
    out.print(
        f"Task {(name or '').partition('?')[0]} is right ({report.seconds:.1f} s). Nothing was charged.", markup=False
    )


def _is_planned(name: str) -> bool:
    """Whether plan.toml of this directory trains the task `name`, whatever else is wrong with that file."""
    try:
        return bool(tomllib.loads(HERE.read_text())["run"]["task"] == name)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def check_here(name: str, client: ClientSpec | None = None, *, quiet: bool = False) -> TaskReport:
    """Check the task `name` on this machine. On a fault, print the traceback to standard error, and raise it.

    Raises:
        Faulty: the first fault (a `BadInput`).
    """
    from fieldfare_client.check import check_task  # imports PyTorch

    try:
        return check_task(name, client=client)
    except Faulty as fault:
        if not quiet and (trace := fault.trace()):
            err.print(trace, markup=False)
        raise


def print_check_warnings(report: TaskReport) -> None:
    """On standard error, so that `--json` stays JSON."""
    for warning in report.warnings:
        print_progress(f"warning: {warning}")
