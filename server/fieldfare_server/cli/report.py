"""`fieldfare report`: the privacy statement of a run."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fieldfare_server.api.service import Service, Written
from fieldfare_server.cli.administer import on_service
from fieldfare_server.cli.command import CommandResult
from fieldfare_server.cli.output import print_as_it_is, print_json, visible


@on_service
def report(
    service: Service,
    run: Annotated[str, typer.Argument(metavar="RUN")],
    format_: Annotated[Written, typer.Option("--format", help="of the statement")] = "markdown",
) -> CommandResult:
    """The privacy statement of one run; every number in it comes from the ledger."""
    value = json.loads(service.report(run, "json"))
    text = "" if format_ == "json" else service.report(run, format_)

    def tell() -> None:
        if format_ == "json":
            print_json(value)
        else:
            print_as_it_is((text if format_ == "html" else visible(text)) + "\n")

    return CommandResult(value, tell)
