"""`fieldfare certificate`: what a stranger needs to check a run's privacy without this software."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fieldfare.atomic import write_out
from fieldfare_server.cli.command import on_home
from fieldfare_server.cli.output import print_as_it_is
from fieldfare_server.evidence.certificate import certificate as certify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger


@on_home
def certificate(
    directory: StateDirectory,
    run: Annotated[str, typer.Argument(metavar="RUN")],
    file: Annotated[Path | None, typer.Option("--out", help="write it to this file, not to standard output")] = None,
) -> None:
    """The certificate of one run, for docs/check_certificate.py: canonical JSON that names no user."""
    # One snapshot: a round committed meanwhile must not show in half of the certificate.
    with Ledger.open(directory.ledger) as opened, opened.snapshot() as snapshot:
        text = certify(snapshot, run, directory).decode()
    if file is None:
        print_as_it_is(text + "\n")
    else:
        write_out(file, text + "\n")
