"""`fieldfare backup`: copy the ledger while it is written to."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from fieldfare.errors import FieldfareError
from fieldfare_server.cli.command import on_home
from fieldfare_server.cli.output import print_outcome, print_warnings
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger.sql import backups


@on_home
def backup(
    home: StateDirectory,
    directory: Annotated[Path, typer.Argument(help="where the copies go: another disk than the ledger's")],
    keep: Annotated[int, typer.Option(min=1, help="remove all but the newest")] = 7,
    every: Annotated[float | None, typer.Option(min=0.01, help="hours: go on until stopped")] = None,
) -> None:
    """Copy the ledger while it is written to: SQLite by itself, PostgreSQL with pg_dump."""
    while True:
        try:
            print_outcome(f"Backup: {backups.make(home.ledger, directory, keep=keep)}")
        except FieldfareError as error:
            if every is None:
                raise
            print_warnings([str(error)])
        if every is None:
            return
        time.sleep(3600 * every)
