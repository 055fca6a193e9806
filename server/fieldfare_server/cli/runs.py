"""`fieldfare runs`: list the newest runs."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fieldfare_server.cli.options import HomeOption, JsonOption, LedgerOption
from fieldfare_server.cli.output import print_json, print_table, refusals
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
from fieldfare_server.ledger.views import RunView

if TYPE_CHECKING:
    from fieldfare_server.api.schemas import Run


def runs(
    population: Annotated[str | None, typer.Option(help="only this population's")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500)] = 20,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    ca_file: CaFileOption = None,
    witness: WitnessOption = None,
    home: HomeOption = None,
    ledger: LedgerOption = None,
    json_: JsonOption = False,
) -> None:
    """List the newest runs."""
    with refusals(json_):
        if url is None:
            refuse_without_url(token_file, ca_file, witness)
            with Ledger.open(StateDirectory.of(home, ledger).ledger) as opened:
                rows = [summary(run) for run in opened.runs(limit=limit, population=population).items]
        else:
            with remote(url, token_file, ca_file, local=bool(home or ledger), witness=witness) as client:
                rows = [_from_service(run) for run in islice(client.runs(population), limit)]
        if json_:
            print_json(rows)
            return
        print_table(
            "Runs",
            ("run", "population", "mechanism", "state", "rounds", "epsilon spent", "planned", "note"),
            [
                (
                    run["id"],
                    run["population"],
                    run["mechanism"],
                    run["state"],
                    f"{run['next_round']}/{run['rounds']}",
                    run["spent_epsilon"],
                    run["planned_epsilon"],
                    run["message"],
                )
                for run in rows
            ],
        )


def summary(run: RunView) -> dict[str, Any]:
    """A run's fields for `--json`."""
    fields = run.model_dump(mode="json", exclude={"planned", "spent", "plan"})
    return fields | {"mechanism": run.plan.get("mechanism", {}).get("kind", "unknown")}


def _from_service(run: Run) -> dict[str, Any]:
    """A service's answer under the names of `summary`."""
    fields = run.model_dump(mode="json", exclude={"planned", "spent", "committed_rounds"})
    return fields | {
        "next_round": run.committed_rounds,
        "spent_epsilon": run.spent.epsilon,
        "planned_epsilon": run.planned.epsilon,
        "delta": run.planned.delta,
        "message": run.message or "",
        "started_at": run.started_at.timestamp(),
        "updated_at": run.updated_at.timestamp(),
        "ended_at": run.ended_at.timestamp() if run.ended_at else None,
    }
