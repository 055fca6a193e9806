"""`fieldfare budget`: the budget table in the terminal."""

from __future__ import annotations

from typing import Annotated

import typer

from fieldfare_server.cli.options import HomeOption, JsonOption, LedgerOption
from fieldfare_server.cli.output import out, print_json, print_table, refusals
from fieldfare_server.cli.population import summary
from fieldfare_server.home import Home
from fieldfare_server.ledger import Ledger


def budget(
    population: Annotated[str | None, typer.Argument(help="one population; default: all")] = None,
    home: HomeOption = None,
    ledger: LedgerOption = None,
    json_: JsonOption = False,
) -> None:
    """What each population has spent, has promised, and has left."""
    with refusals(json_):
        with Ledger.open(Home.of(home, ledger).ledger) as opened:
            views = (opened.population(population),) if population else opened.populations()
        if json_:
            print_json([summary(view) for view in views])
            return
        if not views:
            out.print("No population yet. Create one: fieldfare population create NAME --epsilon 2 --delta 1e-5")
            return
        print_table(
            "Privacy budgets",
            (
                "population",
                "epsilon limit",
                "spent",
                "reserved",
                "largest next run",
                "delta",
                "adjacency",
                "state",
                "runs",
            ),
            [
                (
                    v.name,
                    v.epsilon,
                    v.spent_epsilon,
                    v.reserved_epsilon,
                    v.remaining_epsilon,
                    f"{v.delta:g}",
                    v.adjacency,
                    v.state,
                    v.runs_total,
                )
                for v in views
            ],
            caption="Epsilons at each population's delta. Runs compose by their exact loss, so epsilons do not add up.",
        )
