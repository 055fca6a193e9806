"""`fieldfare population`: create a budget, raise it (audited), close it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fieldfare.accounting.filter import PLAIN_SHARE
from fieldfare.participation import Adjacency
from fieldfare_server.cli.administer import Answer, actor, on_ledger
from fieldfare_server.cli.options import HomeOption, JsonOption, LedgerOption
from fieldfare_server.cli.output import out, print_json, refusals
from fieldfare_server.evidence.recompute import recomputed
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.views import PopulationView

population = typer.Typer(
    help="Create, raise or close the budget that a population of users shares.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(help="the population's name")]


@population.command()
@on_ledger(create=True)
def create(
    opened: Ledger,
    name: Name,
    epsilon: Annotated[float, typer.Option(help="the limit that all runs share")],
    delta: Annotated[float, typer.Option(help="of the limit; below 1 / number of users")],
    adjacency: Annotated[Adjacency, typer.Option(help="how two neighbouring data sets differ")] = "zero_out",
    unit: Annotated[str, typer.Option(help="what a user is, for the page and reports")] = "user",
    simulated: Annotated[bool, typer.Option(help="not people: a fixed noise seed or no schedule is accepted")] = False,
    leak: Annotated[
        float | None,
        typer.Option(help="D: the part of delta that sampled runs share, for good [delta/10 under add_remove, else 0]"),
    ] = None,
) -> Answer:
    """Give a population of users a budget. Creates the ledger if it does not exist."""
    made = opened.create_population(
        name, epsilon, delta, adjacency=adjacency, unit=unit, simulated=simulated, leak=leak, actor=actor()
    )
    return _answer(made, "created")


@population.command(name="raise")
@on_ledger()
def raise_(
    opened: Ledger,
    name: Name,
    reason: Annotated[str, typer.Option(help="why; the audit log keeps it for ever")],
    epsilon: Annotated[float | None, typer.Option(help="the new limit")] = None,
    delta: Annotated[float | None, typer.Option(help="the new delta")] = None,
) -> Answer:
    """Raise a budget: the only way to get more of it."""
    made = opened.raise_population(name, epsilon=epsilon, delta=delta, reason=reason, actor=actor())
    return _answer(made, "raised")


@population.command()
@on_ledger()
def close(opened: Ledger, name: Name) -> Answer:
    """Refuse new runs; runs under way continue."""
    return _answer(opened.close_population(name, actor=actor()), "closed")


@population.command()
def odometers(name: Name, home: HomeOption = None, ledger: LedgerOption = None, json_: JsonOption = False) -> None:
    """Charge each user what that user took part in, from now on and for all ended runs whose strategy is here."""
    with refusals(json_):
        state = StateDirectory.of(home, ledger)
        with Ledger.open(state.ledger, head_file=state.head_file) as opened:
            charges, left = recomputed(opened, state.root, name)
            view = opened.keep_odometers(name, charges, actor=actor())
        if json_:
            print_json(summary(view) | {"recomputed": sorted(charges), "worst_case": left})
            return
        out.print(f"Population {name} keeps odometers: {len(charges)} runs recomputed, {view.spent_epsilon:.4g} spent.")
        for run, why in left.items():
            out.print(f"Run {run} stays charged to all users alike: {why}")


OVERDRAWN = (
    "More is committed than the budget holds by the rule that is valid for every choice of runs: it takes no new run."
)


def summary(view: PopulationView) -> dict[str, Any]:
    """A population's fields for `--json`."""
    fields = view.model_dump(mode="json", exclude={"spent", "committed"})
    return fields | {"mu_spent": view.spent.mu if view.spent.leak <= PLAIN_SHARE * view.delta else None}


def _answer(view: PopulationView, what: str) -> Answer:
    text = (
        f"Population {view.name} {what}: epsilon {view.epsilon:g} at delta {view.delta:g}, {view.adjacency}, "
        f"{view.spent_epsilon:.4g} spent."
    )
    if view.overdrawn:
        text += " " + OVERDRAWN
    return Answer(summary(view), lambda: out.print(text))
