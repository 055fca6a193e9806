"""`fieldfare runs`: list the newest runs."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer

from fieldfare_server.api.service import Service
from fieldfare_server.cli.administer import on_service
from fieldfare_server.cli.command import CommandResult
from fieldfare_server.cli.output import print_table

_COLUMNS = ("run", "population", "mechanism", "state", "rounds", "epsilon spent", "planned", "note")


@on_service
def runs(
    service: Service,
    population: Annotated[str | None, typer.Option(help="only this population's")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500)] = 20,
) -> CommandResult:
    """List the newest runs."""
    found = list(islice(service.runs(population), limit))
    rows = [
        (
            run.id,
            run.population,
            run.mechanism,
            run.state,
            f"{run.committed_rounds}/{run.rounds}",
            run.spent.epsilon,
            run.planned.epsilon,
            " ".join(note for note in (run.message, run.blinder and run.blinder.message) if note),
        )
        for run in found
    ]
    return CommandResult(found, lambda: print_table("Runs", _COLUMNS, rows))
