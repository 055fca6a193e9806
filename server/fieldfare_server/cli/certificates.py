"""`fieldfare certificates`: make everything that a federation needs to trust itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fieldfare_server.certificates import DAYS, make_certificates
from fieldfare_server.cli.options import JsonOption
from fieldfare_server.cli.output import out, print_json, refusals


def certificates(
    directory: Annotated[Path, typer.Argument(help="where to write; must not hold certificates yet")],
    host: Annotated[
        list[str] | None, typer.Option("--host", help="a name or address of the server or a node; repeatable")
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, max=10_000, help="how many node key pairs")] = 2,
    days: Annotated[int, typer.Option(min=1, max=3650, help="validity of the certificates")] = DAYS,
    json_: JsonOption = False,
) -> None:
    """Make a CA, the server's certificate, node key pairs and the executors' secret."""
    with refusals(json_):
        files = make_certificates(directory, host or ["localhost", "127.0.0.1"], nodes, days)
        if json_:
            print_json({"directory": str(directory), "files": [path.name for path in files]})
        else:
            out.print(f"Wrote {len(files)} files to {directory}; private ones are readable by you alone.")
