"""`fieldfare task`: try a task before a run pays for its mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fieldfare.plan import ClientSpec
from fieldfare_client.check import Report, check_task
from fieldfare_client.task_faults import Faulty
from fieldfare_server.cli.options import JsonOption
from fieldfare_server.cli.output import err, out, print_json, print_progress, refusals
from fieldfare_server.files.plan_file import read_plan

task = typer.Typer(help="Try a task on this machine.", no_args_is_help=True)


@task.callback()
def _options() -> None:
    """Try a task on this machine."""


@task.command()
def check(
    name: Annotated[str, typer.Argument(metavar="NAME", help="a task's name, or package.module:Attribute")],
    plan: Annotated[Path | None, typer.Option(help="train as this plan's [client] says")] = None,
    json_: JsonOption = False,
) -> None:
    """Try data, model, loss, training, score and reply of a task. Charges nothing and sends nothing.

    The same check comes before every run. Here it shows the whole text of an error, which may quote users' data: it is
    for the machine that holds them.
    """
    with refusals(json_):
        report = check_here(name, read_plan(plan).client if plan else None, quiet=json_)
    if json_:
        print_json({"task": name, "right": report.lines, "warnings": report.warnings, "seconds": report.seconds})
        return
    for line in report.lines:
        out.print(f"ok  {line}", markup=False)
    print_check_warnings(report)
    out.print(f"Task {name} is right ({report.seconds:.1f} s). Nothing was charged.", markup=False)


def check_here(name: str, client: ClientSpec | None = None, *, quiet: bool = False) -> Report:
    """Check the task `name` on this machine. On a fault, print the traceback to standard error, and raise it.

    Raises:
        Faulty: the first fault (a `BadInput`).
    """
    try:
        return check_task(name, client=client)
    except Faulty as fault:
        if not quiet and (trace := fault.trace()):
            err.print(trace, markup=False)
        raise


def print_check_warnings(report: Report) -> None:
    """On standard error, so that `--json` stays JSON."""
    for warning in report.warnings:
        print_progress(f"warning: {warning}")
