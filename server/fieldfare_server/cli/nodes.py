"""`fieldfare nodes`: admit nodes to the federation, or remove them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fieldfare.errors import BadInput
from fieldfare_server.cli.options import JsonOption
from fieldfare_server.cli.output import print_json, print_outcome, refusals
from fieldfare_server.cli.waiting import retry
from fieldfare_server.deployment.nodes import register_node, revoke_node

nodes = typer.Typer(help="Admit nodes to the federation, or remove them.", no_args_is_help=True)

SuperLinkOption = Annotated[str, typer.Option(help="host:port of the SuperLink")]
RootOption = Annotated[Path, typer.Option(help="the federation's ca.crt")]


@nodes.command()
def register(
    keys: Annotated[Path, typer.Argument(help="a directory of NAME.pub files, or one such file")],
    superlink: SuperLinkOption = "127.0.0.1:8000",
    root_certificates: RootOption = Path("ca.crt"),
    expect: Annotated[int, typer.Option(min=0, help="wait until there are this many keys")] = 0,
    json_: JsonOption = False,
) -> None:
    """Admit every node whose public key lies in KEYS. Waits for the SuperLink; a key may be registered already."""

    def public_keys() -> list[Path]:
        paths = sorted(keys.glob("*.pub")) if keys.is_dir() else [keys]
        if len(paths) < max(1, expect) or not root_certificates.exists() or not all(p.exists() for p in paths):
            raise BadInput(f"directory {str(keys)!r}", f"holds {len(paths)} public keys.", f"{max(1, expect)}")
        return paths

    with refusals(json_):
        paths = retry(public_keys)
        ca = root_certificates.absolute()
        outcomes = {path.stem: retry(partial(register_node, superlink, ca, path)) for path in paths}
        if json_:
            print_json(outcomes)
        else:
            for name, outcome in outcomes.items():
                print_outcome(f"Node {name}: {outcome}.")


@nodes.command()
def revoke(
    key: Annotated[Path, typer.Argument(help="the node's NAME.pub")],
    superlink: SuperLinkOption = "127.0.0.1:8000",
    root_certificates: RootOption = Path("ca.crt"),
    json_: JsonOption = False,
) -> None:
    """Remove the node with this public key: the SuperLink stops answering it."""
    with refusals(json_):
        if not revoke_node(superlink, root_certificates.absolute(), key):
            raise BadInput(f"node {key.stem}", "no node of the federation has this key.")
        if json_:
            print_json({key.stem: "revoked"})
        else:
            print_outcome(f"Node {key.stem}: revoked.")
