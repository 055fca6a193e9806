"""`fieldfare nodes`: who may take part in the federation."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fieldfare.errors import BadInput
from fieldfare_server.cli.options import JsonOption
from fieldfare_server.cli.output import done, print_json, refusals
from fieldfare_server.cli.waiting import until
from fieldfare_server.deployment.nodes import register_node, revoke_node

nodes = typer.Typer(help="Admit nodes to the federation, or remove them.", no_args_is_help=True)

SuperLinkOption = Annotated[str, typer.Option(help="host:port of the SuperLink")]
RootOption = Annotated[Path, typer.Option(help="the federation's ca.crt")]


@nodes.command()
def register(
    keys: Annotated[Path, typer.Argument(help="a directory of NAME.pub files, or one such file")],
    superlink: SuperLinkOption = "127.0.0.1:8000",
    root_certificates: RootOption = Path("ca.crt"),
    expect: Annotated[int, typer.Option(min=0, help="wait until there are so many keys")] = 0,
    json_: JsonOption = False,
) -> None:
    """Admit every node whose public key lies in KEYS. Waits for the SuperLink; a key already known is fine."""

    def found() -> list[Path]:
        paths = sorted(keys.glob("*.pub")) if keys.is_dir() else [keys]
        if len(paths) < max(1, expect) or not root_certificates.exists() or not all(p.exists() for p in paths):
            raise BadInput(f"directory {str(keys)!r}", f"holds {len(paths)} public keys.", f"{max(1, expect)}")
        return paths

    with refusals(json_):
        paths = until(found)
        ca = root_certificates.absolute()
        said = {path.stem: until(partial(register_node, superlink, ca, path)) for path in paths}
        if json_:
            print_json(said)
        else:
            for name, what in said.items():
                done(f"Node {name}: {what}.")


@nodes.command()
def revoke(
    key: Annotated[Path, typer.Argument(help="the node's NAME.pub")],
    superlink: SuperLinkOption = "127.0.0.1:8000",
    root_certificates: RootOption = Path("ca.crt"),
    json_: JsonOption = False,
) -> None:
    """Remove the node with this public key: the SuperLink answers it no more."""
    with refusals(json_):
        if not revoke_node(superlink, root_certificates.absolute(), key):
            raise BadInput(f"node {key.stem}", "no node of the federation has this key.")
        if json_:
            print_json({key.stem: "revoked"})
        else:
            done(f"Node {key.stem}: revoked.")
