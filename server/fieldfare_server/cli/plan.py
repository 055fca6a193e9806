"""`fieldfare plan`: what a plan will cost and how much noise it adds, without running it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from fieldfare.cost import Cost
from fieldfare.errors import Conflict, WrongForm
from fieldfare.plan import Plan
from fieldfare.population_size import check_population_size
from fieldfare.task import parameters_of
from fieldfare.text import up
from fieldfare_server.cli.command import CommandResult, command
from fieldfare_server.cli.options import AcceptDeltaOption, PlanArgument
from fieldfare_server.cli.output import out, print_as_it_is, print_json, print_table, print_warnings, told_if_slow
from fieldfare_server.evidence.information import TITLE, information
from fieldfare_server.files.plan_file import HERE, plan_path, read_plan
from fieldfare_server.planning import reference
from fieldfare_server.run.pricing import price

# A sampled run whose price is this many times its own epsilon is pointed out.
DEAR = 1.25


@command
def plan(
    path: PlanArgument = None,
    explain: Annotated[
        str, typer.Option(metavar="KEY", help="say what a key or a table of plans means, and leave")
    ] = "",
    schema: Annotated[
        bool, typer.Option("--schema", help="print the JSON Schema of plans, for editors, and leave")
    ] = False,
    template: Annotated[
        bool, typer.Option("--template", help="print a plan with every key, commented, and leave")
    ] = False,
    users: Annotated[
        str | None,
        typer.Option(
            metavar="N|task",
            help="judge delta, rate and whether all rounds can be filled for N users, or for the task's",
        ),
    ] = None,
    accept_delta: AcceptDeltaOption = False,
) -> CommandResult | None:
    """What a plan will cost and how much noise it adds. Needs no ledger, writes nothing, and touches no data
    unless --users task asks for a count.
    """
    if sum((bool(explain), schema, template)) > 1:
        raise Conflict("plan", "one thing at a time.", "--explain KEY, --schema or --template")
    if schema:
        whole = reference.json_schema()
        return CommandResult(whole, lambda: print_json(whole))
    if template:
        print_as_it_is(reference.template())
        return None
    if explain:
        print_as_it_is(reference.explain(explain, _sections_with_task(path)) + "\n")
        return None
    planned = read_plan(plan_path(path))
    there = users_of(planned, users)
    count = there if there is None or isinstance(there, int) else len(there)
    warnings = []
    if there is not None and count is not None:
        from fieldfare_server.planning.admission import admit  # imports the ledger

        warnings = [*admit(planned, None, None, there).warnings]
        warnings += check_population_size(planned, count, accepted=accept_delta)
    with told_if_slow():
        cost = price(planned)
    if count is not None:
        from fieldfare_server.run.signal import require_signal  # imports the optimizers

        warnings += require_signal(cost)
    priced = {str(share): value for share, value in cost.priced().items()}
    shown = cost.to_json() | ({"epsilon_priced": priced} if priced else {})
    _, most = cost.participation.separation_and_count(planned.run.rounds)
    free = information(planned, cost.noise_multiplier, most, cost.loss)
    shown |= {"information_not_charged": dict(free)}
    if count is not None:
        shown |= {"users": count, "warnings": warnings}

    def tell() -> None:
        _print_cost(cost, count, free)
        print_warnings(warnings)

    return CommandResult(shown, tell)


def _sections_with_task(path: Path | None) -> tuple[reference.PlanSection, ...]:
    """Return all sections; where there is a plan, that of the task has the parameters of its task."""
    sections = tuple(reference.sections())
    if path is None and not HERE.is_file():
        return sections
    name = read_plan(plan_path(path)).run.task
    if not name:
        return sections  # of a Flower app
    task = reference.section_of_task(parameters_of(name))
    return tuple(task if section.table == "task" else section for section in sections)


def users_of(plan: Plan, users: str | None) -> NDArray[np.uint64] | int | None:
    """Return the users that `--users` says: the task's, by pseudonym, or a number of them.

    Raises `BadInput` for what is neither a number nor "task".
    """
    if users is None:
        return None
    if users == "task":
        from fieldfare_client.app import user_names

        return user_names(plan.task_reference)
    if not (users.isascii() and users.isdigit() and 0 < len(users) <= 15 and int(users)):
        raise WrongForm(f"--users {users}", "is not a number of users.", "--users 3000, or --users task")
    return int(users)


def _print_cost(cost: Cost, users: int | None, free: list[tuple[str, str]]) -> None:
    plan, priced = cost.plan, cost.priced()
    here = f"; here {users}" if users else ""
    rows = [(name, f"{value}{here}" if name == "delta fits" else value) for name, value in cost.describe()]
    print_table(f"Plan for population {plan.privacy.population}", ("", ""), rows)
    print_table(TITLE, ("", ""), free)
    if priced and min(priced.values()) > DEAR * cost.epsilon:
        out.print(
            f"[bold yellow]Dear across runs[/]: a population is charged at least {up(min(priced.values())):g} for this "
            f"run of epsilon {up(cost.epsilon):g}. Few sampled rounds have no cheaper price that holds whatever is run "
            "next; more rounds with more noise each do."
        )
    if plan.run.noise_seed is not None:
        out.print("[bold yellow]NOT PRIVATE[/]: run.noise_seed fixes the noise; this plan can never be charged.")
