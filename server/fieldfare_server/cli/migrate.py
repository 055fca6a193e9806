"""`fieldfare migrate`: make the ledger, or bring it to this version."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from fieldfare.errors import LedgerError
from fieldfare_server.cli.options import HomeOption, JsonOption, LedgerOption
from fieldfare_server.cli.output import done, print_json, refusals
from fieldfare_server.cli.waiting import until
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger


def migrate(
    wait: Annotated[bool, typer.Option("--wait", help="retry while the database, or its secret, is not there")] = False,
    home: HomeOption = None,
    ledger: LedgerOption = None,
    json_: JsonOption = False,
) -> None:
    """Make the ledger if there is none, else bring it to this program's version. Back it up first."""

    def once() -> str:
        where = StateDirectory.of(home, ledger)
        where.prepare()
        # A new ledger is made at the newest version; an old one refuses to open until it is migrated, so what
        # opening says does not matter here: `migrate` says it again where it is a real fault.
        with contextlib.suppress(LedgerError):
            Ledger.open(where.ledger, create=True, patience=10.0).close()
        return Ledger.migrate(where.ledger)

    with refusals(json_):
        version = until(once) if wait else once()
        if json_:
            print_json({"version": version})
        else:
            done(f"The ledger is at version {version}.")
