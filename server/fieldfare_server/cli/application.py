"""All commands, assembled."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from fieldfare import __version__
from fieldfare_server.cli.budget import budget
from fieldfare_server.cli.certificates import certificates
from fieldfare_server.cli.compare import compare
from fieldfare_server.cli.demo import demo
from fieldfare_server.cli.mechanisms import mechanisms
from fieldfare_server.cli.migrate import migrate
from fieldfare_server.cli.plan import plan
from fieldfare_server.cli.population import population
from fieldfare_server.cli.run import run
from fieldfare_server.cli.runs import audit, report, runs, verify
from fieldfare_server.cli.serve import serve
from fieldfare_server.cli.simulate import simulate
from fieldfare_server.cli.token import token

application = typer.Typer(
    name="fieldfare",
    help="Federated learning with user-level differential privacy, and a budget that everybody can see.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    demo,
    plan,
    simulate,
    compare,
    mechanisms,
    run,
    serve,
    budget,
    runs,
    report,
    audit,
    verify,
    migrate,
    certificates,
):
    application.command()(command)
application.add_typer(population, name="population")
application.add_typer(token, name="token")


def _version(value: bool) -> None:
    if value:
        typer.echo(f"fieldfare {__version__}")
        raise typer.Exit


@application.callback()
def _options(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="log what happens to standard error")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version and leave")
    ] = False,
) -> None:
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # Alembic and Flower say every step at INFO, which is noise next to a progress bar.
    for name in ("alembic", "flwr", "httpx"):
        logging.getLogger(name).setLevel(logging.WARNING)
