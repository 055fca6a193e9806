"""`fieldfare simulate`: run a plan on this machine, on the users of its task."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fieldfare.errors import Conflict, NotGiven
from fieldfare.plan import Plan
from fieldfare.text import promised, up
from fieldfare_server.cli import sessions
from fieldfare_server.cli.command import CommandResult, on_home
from fieldfare_server.cli.export import check_export, live_export
from fieldfare_server.cli.options import AcceptDeltaOption, JsonOption, PlanArgument
from fieldfare_server.cli.output import out, print_progress, print_text, print_warnings, told_if_slow
from fieldfare_server.cli.progress import check_first, grid_of, priced_here, run_here, simulated_nodes
from fieldfare_server.cli.task import is_simulated, judge, say_made_up
from fieldfare_server.deployment.simulation import Ray, run_flower_simulation
from fieldfare_server.files.home import SHAREABLE, StateDirectory
from fieldfare_server.files.plan_file import plan_path, read_plan
from fieldfare_server.ledger import Ledger, new_run_id
from fieldfare_server.ledger.holders import SIMULATION
from fieldfare_server.run.signal import noise_in_model

if TYPE_CHECKING:
    from fieldfare_server.run.session import Session


@on_home
def simulate(
    directory: StateDirectory,
    path: PlanArgument = None,
    engine: Annotated[
        Literal["local", "flower"], typer.Option(help="local: in this process; flower: `flwr run` with Ray")
    ] = "local",
    resume: Annotated[str, typer.Option(metavar="RUN", help="continue this run instead of starting one")] = "",
    export: Annotated[
        Path | None,
        typer.Option(help="write the rounds to this file as they come: .csv, .parquet, or a TensorBoard directory"),
    ] = None,
    accept_delta: AcceptDeltaOption = False,
    nodes: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, help="simulated nodes the users are spread over [1; more for masked sums]"),
    ] = None,
    ray_address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="engine flower: the Ray cluster to run on [one started here]")
    ] = "",
    actor_cpus: Annotated[
        int, typer.Option(min=1, help="engine flower: cores of an actor; there are as many as have room")
    ] = 1,
    actor_gpus: Annotated[
        float, typer.Option(min=0.0, help="engine flower: GPUs of an actor; of 0.25, four share one")
    ] = 0.0,
    json_: JsonOption = False,
) -> CommandResult:
    """Run a plan on this machine and charge its population. Ctrl-C leaves a run for `--resume` (exit code 4)."""
    if path is None and not resume:
        path = plan_path(path)
    if path is not None and resume:
        raise NotGiven("simulate", "needs a plan file, or --resume RUN, and not both.", "fieldfare simulate PLAN.toml")
    if export is not None:
        check_export(export)
    ray = Ray(ray_address, actor_cpus, actor_gpus)
    if engine != "flower" and ray != Ray():
        raise Conflict("--ray-address, --actor-cpus, --actor-gpus", "are for Ray.", "--engine flower")
    planned, noise = read_plan(path) if path else plan_of_run(directory, resume), None
    if path and is_simulated(directory, planned):
        say_made_up(planned)
    if engine == "flower":
        if path:
            check_first(planned, accept_delta=accept_delta)
        run_id = resume or new_run_id()
        print_progress(f"State: {directory.root}")
        with live_export(directory.ledger, run_id, export):
            run_flower_simulation(directory, path, resume, nodes or 1, run_id=run_id, ray=ray)
    else:
        from fieldfare_client.app import user_names  # imports PyTorch

        spread = simulated_nodes(planned, nodes)
        session = (
            _begin(directory, planned, accept_delta)
            if path
            else sessions().resume(directory, resume, True, SIMULATION, users=user_names)
        )
        run_id = session.account.id
        print_progress(f"State: {directory.root}")
        with live_export(directory.ledger, run_id, export), session.interrupts:
            run_here(session, grid_of(session, spread), f"run {run_id}", quiet=json_)
        noise = noise_of(session)
    return _ended(directory, run_id, noise)


def plan_of_run(home: StateDirectory, run: str) -> Plan:
    """Return the plan of a run in the ledger."""
    with Ledger.open(home.ledger) as ledger:
        return Plan.stored(ledger.run(run).plan)


def _begin(directory: StateDirectory, plan: Plan, accept_delta: bool) -> Session:
    from fieldfare_client.app import user_names  # imports PyTorch

    report = check_first(plan, accept_delta=accept_delta)
    directory.prepare()
    with told_if_slow():
        priced = priced_here(directory, plan)
        if priced is not None:  # a certified plan's price is drawn when it starts
            print_warnings(judge(priced[0], report, is_simulated(directory, plan)))
        return sessions().begin(
            directory, plan, identity_is_stable=True, actor=SIMULATION, priced=priced, users=user_names
        )


def noise_of(session: Session) -> tuple[float, float] | None:
    """Return (norm of what noise is expected to have put into the released model, how far that model moved).

    From the plan's sigma and the release alone, so it costs nothing. None where a run did not reach its end,
    or noise is not known in advance (`signal.noise_in_model`).
    """
    if session.cost is None or session.next_round < session.plan.run.rounds:
        return None
    noise = noise_in_model(session.cost, session.schema.numel)
    moved = float((session.params - session.model.initial).norm())
    return None if noise is None or not moved else (noise, moved)


def _ended(directory: StateDirectory, run_id: str, noise: tuple[float, float] | None) -> CommandResult:
    with Ledger.open(directory.ledger) as ledger, ledger.snapshot() as snapshot:
        run = snapshot.run(run_id)
        population = snapshot.population(run.population)
        series = snapshot.round_series(run_id, points=2)
    score = series[-1].statistics if series else {}
    metrics = {key: value for key, value in score.items() if key.startswith("metric.")}
    model = directory.root / run_id / "model.safetensors"
    shown = {
        "run": run_id,
        "state": run.state,
        "rounds": run.next_round,
        "epsilon": run.held[1],
        "delta": population.delta,
        "population_epsilon_spent": population.spent_epsilon,
        "population_epsilon_limit": population.epsilon,
        "score_name": score.get("score_name"),
        "score": score.get("score"),
        **metrics,
        "noise_norm": noise[0] if noise else None,
        "moved_norm": noise[1] if noise else None,
        "model": str(model) if model.exists() else None,
    }

    def tell() -> None:
        out.print(
            f"Run {run_id}: {run.state}, {run.next_round} of {run.rounds} rounds, epsilon {up(run.held[1]):g} at "
            f"delta {promised(run.delta)} (population {run.population}: {up(population.spent_epsilon):g} of "
            f"{up(population.epsilon, 6):g} spent, at delta {promised(population.delta)})."
        )
        if score.get("score") is not None:
            print_text(f"Held-out {score['score_name']}: {score['score']:.4f}")
        for key in (key for key in metrics if f"{key}.low" in metrics):
            low, high = metrics[f"{key}.low"], metrics[f"{key}.high"]
            print_text(f"{key} of users' own data, in the last rounds: {metrics[key]:.4f} ({low:.4f} to {high:.4f})")
        if noise is not None:
            share = min(1.0, (noise[0] / noise[1]) ** 2)
            print_text(
                f"What privacy cost: the model moved by {noise[1]:.3g}, and noise of norm {noise[0]:.3g} is expected "
                f"in it ({share:.0%} of the square). This follows from the plan's sigma and the release, not from "
                "users' data."
            )
        if model.exists():
            print_text(f"Model: {model}. {SHAREABLE}")

    return CommandResult(shown, tell)
