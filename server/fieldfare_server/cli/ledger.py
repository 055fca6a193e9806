"""`fieldfare ledger`: put the ledger's tables right from its journal."""

from __future__ import annotations

import typer

from fieldfare_server.cli.administer import Answer, actor, on_ledger
from fieldfare_server.cli.output import print_outcome
from fieldfare_server.ledger import Ledger

ledger = typer.Typer(help="Put the ledger's tables right from its journal.", no_args_is_help=True)


@ledger.callback()
def _group() -> None:
    """Commands on the ledger as a whole."""


@ledger.command()
@on_ledger()
def rebuild(opened: Ledger) -> Answer:
    """Make every table again from the journal and what it names by hash. Stop all services first, and back it up."""
    voided = opened.rebuild(actor=actor())

    def tell() -> None:
        print_outcome(f"The tables say what the journal proves, up to row {opened.head().count}.")
        for run in voided:
            print_outcome(f"The open round of run {run} is void: who was selected for it is lost.")

    return Answer({"rows": opened.head().count, "voided": voided}, tell)
