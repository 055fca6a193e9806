"""`fieldfare certificates`: create the keys and certificates of the parties of a federation."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from fieldfare_server.cli.command import CommandResult, command
from fieldfare_server.cli.output import print_outcome
from fieldfare_server.deployment.certificates import DAYS, PARTS, make_node, make_server, renew_server, separate_roles

certificates = typer.Typer(help="Make keys, certificates and secrets of a federation.", no_args_is_help=True)

LOCAL = ("localhost", "127.0.0.1")  # names of a machine for itself, where no other is given
Directory = Annotated[Path, typer.Argument(help="where to write; must not hold secrets yet")]
Exchange = Annotated[Path, typer.Option(help="where public parts go: ca.crt, and one NAME.pub a node")]
Hosts = Annotated[
    list[str] | None,
    typer.Option("--host", help="a name or address it is reached at; repeatable [default: this machine]"),
]
GateHosts = Annotated[
    list[str] | None, typer.Option("--gate-host", help="a name or address at which nodes reach the gate; repeatable")
]
Days = Annotated[int, typer.Option(min=1, max=3650, help="validity of the certificates")]
Owner = Annotated[int | None, typer.Option(help="user id that the files are given to; needs root")]
IfMissing = Annotated[
    bool,
    typer.Option("--if-missing", help="where there are secrets, only add those that an older version did not make"),
]


@certificates.command()
@command
def server(
    directory: Directory,
    exchange: Exchange,
    host: Hosts = None,
    gate_host: GateHosts = None,
    ledger_host: Annotated[str, typer.Option(help="where the database is")] = "ledger",
    days: Days = DAYS,
    owner: Owner = None,
    if_missing: IfMissing = False,
) -> CommandResult:
    """The server side: a CA, certificates of SuperLink and gate, the executor's secret, the ledger's passwords."""
    keep = if_missing and (directory / "superlink" / "ca.crt").exists()
    hosts, gate_hosts = host or LOCAL, gate_host or ("gate", *LOCAL)
    if keep:
        files = separate_roles(directory)
    else:
        files = make_server(directory, exchange, hosts, gate_hosts, ledger_host=ledger_host, days=days)
    _change_owner(owner, *(directory / part for part in PARTS), exchange)
    return _written(directory, files)


@certificates.command()
@command
def renew(
    directory: Annotated[Path, typer.Argument(help="where `server` wrote")],
    exchange: Exchange,
    host: Hosts = None,
    gate_host: GateHosts = None,
    days: Days = DAYS,
    owner: Owner = None,
) -> CommandResult:
    """New certificates for the server side; its secrets, the ledger's password and the nodes' keys stay."""
    files = renew_server(directory, exchange, host or LOCAL, gate_host or ("gate", *LOCAL), days=days)
    _change_owner(owner, *(directory / part for part in PARTS), exchange)
    return _written(directory, files)


@certificates.command()
@command
def node(
    directory: Directory,
    exchange: Exchange,
    name: Annotated[str, typer.Option(help="the node's name in the federation")],
    host: Hosts = None,
    days: Days = DAYS,
    owner: Owner = None,
    if_missing: IfMissing = False,
) -> CommandResult:
    """One node: its key pair and the secret it shares with its executor. Run it on the node: the key stays there."""
    keep = if_missing and (directory / "node").exists()
    files = [] if keep else make_node(directory, exchange, name, host or LOCAL, days=days)
    _change_owner(owner, directory, exchange)
    return _written(directory, files)


def _change_owner(owner: int | None, *directories: Path) -> None:
    """Change the owner of all files, also when none was written: an earlier attempt may have died before this step."""
    if owner is not None:
        for directory in directories:
            for path in (directory, *directory.rglob("*")):
                os.chown(path, owner, owner)


def _written(directory: Path, files: list[Path]) -> CommandResult:
    text = f"{directory} holds secrets already: nothing written."
    if files:
        text = f"Wrote {len(files)} files for {directory}; private ones are readable by their owner alone."
    shown = {"directory": str(directory), "files": [path.name for path in files]}
    return CommandResult(shown, lambda: print_outcome(text))
