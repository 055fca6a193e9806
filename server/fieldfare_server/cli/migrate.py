"""`fieldfare migrate`: create the ledger, or upgrade it to this version."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from fieldfare.errors import LedgerError
from fieldfare_server.cli.options import HomeOption, JsonOption, LedgerOption
from fieldfare_server.cli.output import print_json, print_outcome, refusals
from fieldfare_server.cli.waiting import retry
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger


def migrate(
    wait: Annotated[bool, typer.Option("--wait", help="retry until the database and its secret exist")] = False,
    home: HomeOption = None,
    ledger: LedgerOption = None,
    json_: JsonOption = False,
) -> None:
    """Create the ledger if it does not exist, otherwise upgrade it to this program's version. Back it up first."""

    def create_or_upgrade() -> str:
        directory = StateDirectory.of(home, ledger)
        directory.prepare()
        # Opening creates a new ledger at the newest version and refuses an old one. The refusal does not matter here:
        # `migrate` raises again if there is a real fault.
        with contextlib.suppress(LedgerError):
            Ledger.open(directory.ledger, create=True, patience=10.0).close()
        return Ledger.migrate(directory.ledger)

    with refusals(json_):
        version = retry(create_or_upgrade) if wait else create_or_upgrade()
        if json_:
            print_json({"version": version})
        else:
            print_outcome(f"The ledger is at version {version}.")
