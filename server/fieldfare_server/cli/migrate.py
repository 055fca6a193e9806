"""`fieldfare migrate`: create the ledger, or upgrade it to this version."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from fieldfare.errors import LedgerError
from fieldfare_server.cli.command import CommandResult, command
from fieldfare_server.cli.options import HomeOption, LedgerOption
from fieldfare_server.cli.output import print_outcome
from fieldfare_server.cli.waiting import retry
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.sql.roles import Part, read_passwords, separate


@command
def migrate(
    role_passwords: Annotated[
        Path | None,
        typer.Option(
            "--roles",
            exists=True,
            file_okay=False,
            help="make or renew the database's roles: a directory with coordinator.password, api.password and "
            "admin.password",
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="retry until the database and its secret exist")] = False,
    home: HomeOption = None,
    ledger: LedgerOption = None,
) -> CommandResult:
    """Create the ledger, or upgrade it to this version; give PostgreSQL's roles their rights. Back it up first."""

    def create_or_upgrade() -> tuple[str, Mapping[Part, str]]:
        directory = StateDirectory.of(home, ledger)
        directory.prepare()
        # Opening creates a new ledger at the newest version and refuses an old one. The refusal does not
        # matter here: `migrate` raises again if there is a real fault.
        with contextlib.suppress(LedgerError):
            Ledger.open(directory.ledger, create=True, patience=10.0).close()
        return Ledger.migrate(directory.ledger, directory.head_file), separate(directory.ledger, passwords)

    passwords = read_passwords(role_passwords) if role_passwords else {}
    version, roles = retry(create_or_upgrade) if wait else create_or_upgrade()

    def tell() -> None:
        print_outcome(f"The ledger is at version {version}.")
        if roles:
            print_outcome(f"Each with rights of its own: {', '.join(roles.values())}.")

    return CommandResult({"version": version, "roles": roles}, tell)
