"""`fieldfare budget`: the budget table in the terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from fieldfare.text import decimal, down, up
from fieldfare_server.api.population_schemas import Population
from fieldfare_server.api.service import Service
from fieldfare_server.cli.administer import on_service
from fieldfare_server.cli.command import CommandResult
from fieldfare_server.cli.output import out, print_things
from fieldfare_server.cli.population import OVERDRAWN

_COLUMNS: dict[str, Callable[[Population], object]] = {
    "population": lambda each: each.name,
    "epsilon limit": lambda each: each.epsilon,
    "spent": lambda each: up(each.spent.epsilon),
    "reserved": lambda each: up(each.reserved_epsilon),
    "largest next run": lambda each: down(each.remaining_epsilon),
    "for users with most left": lambda each: "all" if each.remaining_users is None else each.remaining_users,
    "largest for all": lambda each: each.remaining_epsilon_of_all and down(each.remaining_epsilon_of_all),
    "more runs like the last": lambda each: each.more_runs,
    "in full for users": lambda each: each.runs_left_users,
    "delta": lambda each: decimal(each.delta),
    "adjacency": lambda each: each.adjacency,
    "state": lambda each: each.state,
    "runs": lambda each: each.runs,
}

_CAPTION = (
    "Epsilons at each population's delta; they do not add up. The limit holds for all runs together, however each is "
    "chosen; what is spent is a gauge of it. The guarantee is the largest limit so far."
)
_INDIVIDUAL = (
    " With individual accounting, spent is of the user who has spent most; the largest next run is one of those users "
    "alone who have most left, and beside it is how many they are, and the largest run of all users."
)


@on_service
def budget(
    service: Service, population: Annotated[str | None, typer.Argument(help="one population; default: all")] = None
) -> CommandResult:
    """What each population has spent, reserved and left."""
    found = [service.population(population)] if population else list(service.populations())

    def tell() -> None:
        if not found:
            out.print("No population yet. Create one: fieldfare population create NAME --epsilon 2 --delta 1e-5")
            return
        individual = any(each.accounting == "individual" for each in found)
        print_things("Privacy budgets", _COLUMNS, found, _CAPTION + (_INDIVIDUAL if individual else ""))
        for each in found:
            if each.overdrawn:
                out.print(f"[bold yellow]{each.name}[/]: {OVERDRAWN}")

    return CommandResult(found, tell)
