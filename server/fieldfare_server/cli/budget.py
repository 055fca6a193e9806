"""`fieldfare budget`: the budget table in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fieldfare_server.cli.options import HomeOption, JsonOption, LedgerOption
from fieldfare_server.cli.output import out, print_json, print_table, refusals
from fieldfare_server.cli.population import OVERDRAWN, summary
from fieldfare_server.cli.remote import (
    CaFileOption,
    TokenFileOption,
    UrlOption,
    WitnessOption,
    refuse_without_url,
    remote,
)
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger

if TYPE_CHECKING:
    from fieldfare_server.api.population_schemas import Population

_COLUMNS = {
    "population": "name",
    "epsilon limit": "epsilon",
    "spent": "spent_epsilon",
    "reserved": "reserved_epsilon",
    "largest next run": "remaining_epsilon",
    "for users": "remaining_users",
    "for all": "remaining_epsilon_of_all",
    "delta": "delta",
    "adjacency": "adjacency",
    "state": "state",
    "runs": "runs_total",
}

_CAPTION = (
    "Epsilons at each population's delta; they do not add up. The limit holds for all runs together, however each is "
    "chosen; what is spent is a gauge of it. The guarantee is the largest limit so far."
)
_INDIVIDUAL = (
    " With individual accounting, spent is of the user who has spent most; the largest next run is one of those users "
    "alone who have most left, and beside it is how many they are, and the largest run of all users."
)


def budget(
    population: Annotated[str | None, typer.Argument(help="one population; default: all")] = None,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    ca_file: CaFileOption = None,
    witness: WitnessOption = None,
    home: HomeOption = None,
    ledger: LedgerOption = None,
    json_: JsonOption = False,
) -> None:
    """What each population has spent, reserved and left."""
    with refusals(json_):
        if url is None:
            refuse_without_url(token_file, ca_file, witness)
            populations = _from_ledger(StateDirectory.of(home, ledger), population)
        else:
            populations = _from_service(
                url, token_file, ca_file, population, local=bool(home or ledger), witness=witness
            )
        if json_:
            print_json(populations)
            return
        if not populations:
            out.print("No population yet. Create one: fieldfare population create NAME --epsilon 2 --delta 1e-5")
            return
        print_table(
            "Privacy budgets",
            tuple(_COLUMNS),
            [[_cell(name, row[name]) for name in _COLUMNS.values()] for row in populations],
            caption=_CAPTION + (_INDIVIDUAL if any(row["accounting"] == "individual" for row in populations) else ""),
        )
        for row in populations:
            if row["overdrawn"]:
                out.print(f"[bold yellow]{row['name']}[/]: {OVERDRAWN}")


def _cell(name: str, value: Any) -> Any:
    if value is None:
        return "all"
    return f"{value:g}" if name == "delta" else value


def _from_ledger(home: StateDirectory, name: str | None) -> list[dict[str, Any]]:
    with Ledger.open(home.ledger) as opened:
        return [summary(view) for view in ((opened.population(name),) if name else opened.populations())]


def _from_service(
    url: str,
    token_file: Path | None,
    ca_file: Path | None,
    name: str | None,
    *,
    local: bool,
    witness: Path | None,
) -> list[dict[str, Any]]:
    with remote(url, token_file, ca_file, local=local, witness=witness) as client:
        return [_as_summary(row) for row in ((client.population(name),) if name else client.populations())]


def _as_summary(row: Population) -> dict[str, Any]:
    """A service's answer under the names of `summary`: `--json` prints the same fields from either source."""
    fields = row.model_dump(mode="json", exclude={"spent", "committed", "runs", "created_at"})
    return fields | {
        "spent_epsilon": row.spent.epsilon,
        "committed_epsilon": row.committed.epsilon,
        "mu_spent": row.spent.mu,
        "runs_total": row.runs,
        "created_at": row.created_at.timestamp(),
    }
