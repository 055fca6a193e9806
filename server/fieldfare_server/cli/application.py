"""The program, assembled from its commands. Only the requested command is imported: some import all of torch."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Annotated, Any

import typer

from fieldfare import __version__
from fieldfare_flower import logs
from fieldfare_server.cli.output import refusals

COMMANDS = (
    "demo",
    "plan",
    "simulate",
    "compare",
    "mechanisms",
    "run",
    "supervise",
    "serve",
    "budget",
    "runs",
    "report",
    "certificate",
    "audit",
    "verify",
    "doctor",
    "abandon",
    "model",
    "migrate",
)
GROUPS = ("task", "population", "token", "certificates", "nodes")

_MODULES = dict.fromkeys(("runs", "report", "audit", "verify", "abandon"), "history")
"""The modules of commands that share one; every other command has a module of its name."""


def assemble(wanted: str | None = None) -> typer.Typer:
    """The program with command `wanted` alone if such a command exists, otherwise with all of them."""
    made = typer.Typer(
        name="fieldfare",
        help="Federated learning with user-level differential privacy, and a budget that everybody can see.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(_options)
    for name in COMMANDS + GROUPS:
        if wanted in COMMANDS + GROUPS and name != wanted:
            continue
        module = import_module(f"fieldfare_server.cli.{_MODULES.get(name, name)}")
        if name in GROUPS:
            made.add_typer(getattr(module, name), name=name)
        else:
            made.command()(getattr(module, name))
    return made


def __getattr__(name: str) -> Any:
    # `application`, the program with all commands, is built on request: it imports every command.
    if name == "application":
        return assemble()
    raise AttributeError(name)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"fieldfare {__version__}")
        raise typer.Exit


def _options(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="log what happens to standard error")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version and leave")
    ] = False,
) -> None:
    with refusals(as_json=False):
        logs.configure("info" if verbose else "warning")
    # Flower logs every step at INFO, which would drown the progress bar.
    logging.getLogger("flwr").setLevel(logging.WARNING)
