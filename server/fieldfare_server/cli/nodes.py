"""`fieldfare nodes`: admit nodes to the federation, or remove them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fieldfare.errors import NotFound, OutOfRange
from fieldfare_server.cli.administer import actor, on_ledger
from fieldfare_server.cli.command import CommandResult, command
from fieldfare_server.cli.options import HomeOption, LedgerOption
from fieldfare_server.cli.output import print_outcome
from fieldfare_server.cli.waiting import retry
from fieldfare_server.deployment.nodes import digest_of, register_node, revoke_node
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.sql.nodes import MOST_USERS

nodes = typer.Typer(help="Admit nodes to the federation, or remove them.", no_args_is_help=True)

SuperLinkOption = Annotated[str, typer.Option(help="host:port of the SuperLink")]
RootOption = Annotated[Path, typer.Option(help="the federation's ca.crt")]


@nodes.command()
@command
def register(
    keys: Annotated[Path, typer.Argument(help="a directory of NAME.pub files, or one such file")],
    superlink: SuperLinkOption = "127.0.0.1:8000",
    root_certificates: RootOption = Path("ca.crt"),
    expect: Annotated[int, typer.Option(min=0, help="wait until there are this many keys")] = 0,
    most_users: Annotated[
        int | None, typer.Option(min=1, max=MOST_USERS, help="each node may hold at most this many users")
    ] = None,
    home: HomeOption = None,
    ledger: LedgerOption = None,
) -> CommandResult:
    """Admit every node whose public key lies in KEYS. Waits for the SuperLink; a key may be registered
    already.

    With --most-users the ledger states how many users each of them may hold; the newest statement holds.
    """

    def public_keys() -> list[Path]:
        paths = sorted(keys.glob("*.pub")) if keys.is_dir() else [keys]
        if len(paths) < max(1, expect) or not root_certificates.exists() or not all(p.exists() for p in paths):
            raise OutOfRange(f"directory {str(keys)!r}", f"holds {len(paths)} public keys.", f"{max(1, expect)}")
        return paths

    paths = retry(public_keys)
    ca = root_certificates.absolute()
    if most_users is not None:
        directory = StateDirectory.of(home, ledger)
        with Ledger.open(directory.ledger, head_file=directory.head_file) as opened:
            for path in paths:
                opened.admit_node(digest_of(path), path.stem, most_users, actor=actor())
    outcomes = {path.stem: retry(partial(register_node, superlink, ca, path)) for path in paths}

    def tell() -> None:
        at_most = "" if most_users is None else f", for at most {most_users} users"
        for name, outcome in outcomes.items():
            print_outcome(f"Node {name}: {outcome}{at_most}.")

    return CommandResult(outcomes, tell)


@nodes.command()
@command
def revoke(
    key: Annotated[Path, typer.Argument(help="the node's NAME.pub")],
    superlink: SuperLinkOption = "127.0.0.1:8000",
    root_certificates: RootOption = Path("ca.crt"),
) -> CommandResult:
    """Remove the node with this public key: the SuperLink stops answering it."""
    if not revoke_node(superlink, root_certificates.absolute(), key):
        raise NotFound(f"node {key.stem}", "no node of the federation has this key.")
    return CommandResult({key.stem: "revoked"}, lambda: print_outcome(f"Node {key.stem}: revoked."))


@nodes.command()
@on_ledger
def release(opened: Ledger, key: Annotated[Path, typer.Argument(help="the node's NAME.pub")]) -> CommandResult:
    """Set the users of the node with this public key free: the next node that claims one of them has that
    user.

    For users who moved, for a node whose key was replaced, and for one that claimed users who were never its
    own.
    """
    opened.release_node(digest_of(key), key.stem, actor=actor())
    return CommandResult({key.stem: "released"}, lambda: print_outcome(f"Node {key.stem}: its users are free."))
