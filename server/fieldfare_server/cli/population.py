"""`fieldfare population`: create a budget, raise it (audited), close it."""

from __future__ import annotations

import getpass
from typing import Annotated, Any

import typer

from fieldfare.participation import Adjacency
from fieldfare_server.cli.options import HomeOption, JsonOption, LedgerOption
from fieldfare_server.cli.output import out, print_json, refusals
from fieldfare_server.home import Home
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.views import PopulationView

population = typer.Typer(
    help="Create, raise or close the budget that a population of users shares.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(help="the population's name")]


def actor() -> str:
    """Who acts, for the audit log: the operating system's user."""
    return f"cli:{getpass.getuser()}"


@population.command()
def create(
    name: Name,
    epsilon: Annotated[float, typer.Option(help="the limit that all runs share")],
    delta: Annotated[float, typer.Option(help="of the limit; below 1 / number of users")],
    adjacency: Annotated[Adjacency, typer.Option(help="what two neighbouring worlds differ in")] = "zero_out",
    unit: Annotated[str, typer.Option(help="what a user is, for the page and reports")] = "user",
    simulated: Annotated[bool, typer.Option(help="not people: runs with a fixed noise seed are accepted")] = False,
    home: HomeOption = None,
    ledger: LedgerOption = None,
    json_: JsonOption = False,
) -> None:
    """Give a population of users a budget. Makes the ledger if there is none."""
    with refusals(json_):
        where = Home.of(home, ledger)
        where.prepare()
        with Ledger.open(where.ledger, create=True, head_file=where.head_file) as opened:
            made = opened.create_population(
                name, epsilon, delta, adjacency=adjacency, unit=unit, simulated=simulated, actor=actor()
            )
        _tell(made, "created", json_)


@population.command(name="raise")
def raise_(
    name: Name,
    reason: Annotated[str, typer.Option(help="why; it stands in the audit log for ever")],
    epsilon: Annotated[float | None, typer.Option(help="the new limit")] = None,
    delta: Annotated[float | None, typer.Option(help="the new delta")] = None,
    home: HomeOption = None,
    ledger: LedgerOption = None,
    json_: JsonOption = False,
) -> None:
    """Raise a budget: the only way to get more of it."""
    with refusals(json_):
        where = Home.of(home, ledger)
        with Ledger.open(where.ledger, head_file=where.head_file) as opened:
            made = opened.raise_population(name, epsilon=epsilon, delta=delta, reason=reason, actor=actor())
        _tell(made, "raised", json_)


@population.command()
def close(
    name: Name,
    home: HomeOption = None,
    ledger: LedgerOption = None,
    json_: JsonOption = False,
) -> None:
    """No new run may be charged to it; runs under way go on."""
    with refusals(json_):
        where = Home.of(home, ledger)
        with Ledger.open(where.ledger, head_file=where.head_file) as opened:
            made = opened.close_population(name, actor=actor())
        _tell(made, "closed", json_)


def summary(view: PopulationView) -> dict[str, Any]:
    """A population for `--json`."""
    said = view.model_dump(mode="json", exclude={"spent", "committed"})
    return said | {"mu_spent": view.spent.mu}


def _tell(view: PopulationView, what: str, as_json: bool) -> None:
    if as_json:
        print_json(summary(view))
    else:
        out.print(
            f"Population {view.name} {what}: epsilon {view.epsilon:g} at delta {view.delta:g}, {view.adjacency}, "
            f"{view.spent_epsilon:.4g} spent."
        )
