"""`fieldfare runs`: list the newest runs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Annotated

import typer

from fieldfare.text import up
from fieldfare_server.api.schemas import Run
from fieldfare_server.api.service import Service
from fieldfare_server.cli.administer import on_service
from fieldfare_server.cli.command import CommandResult
from fieldfare_server.cli.output import print_things

_COLUMNS: dict[str, Callable[[Run], object]] = {
    "run": lambda run: run.id,
    "population": lambda run: run.population,
    "mechanism": lambda run: run.mechanism,
    "state": lambda run: run.state,
    "rounds": lambda run: f"{run.committed_rounds}/{run.rounds}",
    "epsilon spent": lambda run: up(run.spent.epsilon),
    "planned": lambda run: up(run.planned.epsilon),
    "note": lambda run: ". ".join(n.rstrip(".") for n in (run.message, run.blinder and run.blinder.message) if n),
}


@on_service
def runs(
    service: Service,
    population: Annotated[str | None, typer.Option(help="only this population's")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="how many")] = 20,
) -> CommandResult:
    """List the newest runs."""
    found = list(islice(service.runs(population), limit))
    return CommandResult(found, lambda: print_things("Runs", _COLUMNS, found))
