"""`fieldfare migrate`: make the ledger, or bring it to this version."""

from __future__ import annotations

from fieldfare_server.cli.options import HomeOption, JsonOption, LedgerOption
from fieldfare_server.cli.output import out, print_json, refusals
from fieldfare_server.home import Home
from fieldfare_server.ledger import Ledger


def migrate(home: HomeOption = None, ledger: LedgerOption = None, json_: JsonOption = False) -> None:
    """Make the ledger if there is none, else bring it to this program's version. Back it up first."""
    with refusals(json_):
        where = Home.of(home, ledger)
        where.prepare()
        with Ledger.open(where.ledger, create=True, migrate=True) as opened:
            version, url = opened.version, opened.url
        if json_:
            print_json({"ledger": url, "version": version})
        else:
            out.print(f"Ledger {url} is at version {version}.")
