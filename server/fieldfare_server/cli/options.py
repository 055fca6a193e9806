"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fieldfare.errors import NotGiven


def trusted(command: str, root_certificates: Path | None, insecure: bool) -> Path | None:
    """Return the certificates to trust a SuperLink by, None without TLS. Raises `BadInput` unless one was said."""
    if insecure == (root_certificates is not None):
        raise NotGiven(command, "say how the SuperLink is trusted.", "--root-certificates ca.crt, or --insecure")
    return root_certificates and root_certificates.absolute()


PlanArgument = Annotated[
    Path | None, typer.Argument(metavar="[PLAN.toml]", help="the plan file; without it, plan.toml of this directory")
]
JsonOption = Annotated[bool, typer.Option("--json", help="print one JSON document instead of a table")]
AcceptDeltaOption = Annotated[
    bool,
    typer.Option("--accept-delta", help="accept a delta of 1/users or more, or a sampling rate far from the cohort"),
]
HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="where runs and the SQLite ledger live [FIELDFARE_HOME, else the account's data]"),
]
LedgerOption = Annotated[
    str | None, typer.Option("--ledger", help="ledger URL [FIELDFARE_LEDGER, else SQLite in the home directory]")
]
