"""`fieldfare suggest`: the same promise with less noise, priced before it is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fieldfare.atomic import write_out
from fieldfare.errors import AlreadyThere, NotGiven
from fieldfare.population_size import check_population_size
from fieldfare_server.cli.command import CommandResult, command
from fieldfare_server.cli.options import AcceptDeltaOption, PlanArgument
from fieldfare_server.cli.output import out, print_table, print_warnings, told_if_slow
from fieldfare_server.cli.plan import users_of
from fieldfare_server.files.plan_file import plan_path, plan_text, read_plan
from fieldfare_server.planning.suggest import WORK, Suggested
from fieldfare_server.planning.suggest import suggest as suggest_ways

MADE = "# Made by `fieldfare suggest`, which may write over this file."


@command
def suggest(
    path: PlanArgument = None,
    to: Annotated[Path, typer.Option("--out", help="the plan to write, where there is a better one")] = Path(
        "suggested.toml"
    ),
    users: Annotated[
        str | None, typer.Option(metavar="N|task", help="how many users there are [as many as the plan needs]")
    ] = None,
    update_norm: Annotated[
        float | None,
        typer.Option(min=1e-20, help="norm of a typical update, of public data or charged for [the clip norm]"),
    ] = None,
    work: Annotated[
        float, typer.Option(min=1e-3, max=1e3, help="times the plan's visits to users that you can afford")
    ] = WORK,
    fewest_rounds: Annotated[int | None, typer.Option(min=1, help="that training needs [the plan's]")] = None,
    certified: Annotated[
        bool, typer.Option("--certified", help="also samplers that a Monte Carlo certifies: takes a minute")
    ] = False,
    accept_delta: AcceptDeltaOption = False,
) -> CommandResult:
    """Price other rounds, cohorts, clip norms, mechanisms and samplers, and write the plan with the least
    noise.

    The promise stays: population, epsilon, delta and adjacency. Prices are those of `fieldfare plan`. Charges
    nothing, and touches no data unless --users task asks for a count.
    """
    plan = read_plan(plan_path(path))
    if users == "task" and plan.presence_is_secret:
        why = f"under {plan.privacy.adjacency!r} how many users there are is the secret."
        raise NotGiven("--users task", why, "--users N, a public number of users")
    there, count = users_of(plan, users), None
    if there is not None:
        total, count = (each if isinstance(each, int) else len(each) for each in (there, plan.asks(there)))
        print_warnings(check_population_size(plan, total, accepted=accept_delta))
    if to.exists() and not (to.is_file() and to.read_bytes().startswith(MADE.encode())):
        raise AlreadyThere(f"--out {to}", "is there, and `fieldfare suggest` did not write it.", "another name")
    with told_if_slow():
        found = suggest_ways(
            plan, users=count, update_norm=update_norm, work=work, fewest_rounds=fewest_rounds, certified=certified
        )
    better = found.fitted or found.best is not found.planned
    if better:
        write_out(to, f"{MADE}\n\n{plan_text(found.best.plan)}")
    shown = {
        "planned": found.planned.to_json(),
        "best": found.best.to_json(),
        "because": found.because,
        "assumed": found.assumed,
        "ways": [way.to_json() for way in found.ways],
        "plan": str(to) if better else None,
    }

    def tell() -> None:
        _print(found)
        if better:
            out.print(f"Written: {to}. Its price: fieldfare plan {to}", markup=False)

    return CommandResult(shown, tell)


def _print(found: Suggested) -> None:
    named = [("the plan", found.planned), *(("", way) for way in found.ways)]
    print_table(
        "At the same epsilon and delta, the least noise of each shape",
        ("", "rounds x cohort", "mechanism", "users are asked by", "noise in a prefix sum", "noise against signal"),
        [
            (
                name,
                f"{way.plan.run.rounds} x {way.plan.run.cohort}",
                way.mechanism,
                way.asked,
                way.prefix_noise,
                f"{way.share:.4g}" + (" (estimate)" if way.estimated else ""),
            )
            for name, way in named
        ],
        caption="noise against signal: of a coordinate, over what all updates add up to if users agree.",
    )
    print_reasons(found)


def print_reasons(found: Suggested) -> None:
    """Say what was changed and why, and what was assumed."""
    for line in (*found.because, "Assumed: " + "; ".join(found.assumed) + "."):
        out.print(line, markup=False)
