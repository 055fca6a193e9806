"""`fieldfare plan`: what a plan will cost and how much noise it adds, without running it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fieldfare.cost import Cost, cost_of
from fieldfare.errors import BadInput
from fieldfare.plan import Plan
from fieldfare.task import UnknownTask, find_task, parameters_of
from fieldfare_server.cli.options import JsonOption
from fieldfare_server.cli.output import out, print_json, print_table, refusals
from fieldfare_server.evidence.information import TITLE, information
from fieldfare_server.files.plan_file import read_plan
from fieldfare_server.planning import reference
from fieldfare_server.planning.forecast import Forecast, forecast
from fieldfare_server.planning.search import Assumed
from fieldfare_server.planning.suggestions import Suggestion
from fieldfare_server.run.pricing import price_with_model

HERE = Path("plan.toml")

COHORTS = (0.5, 1.0, 2.0)
"""Factors of the planned cohort that a forecast compares, at equal visits and equal epsilon."""

DEAR = 1.25
"""A sampled run whose price is this many times its own epsilon is pointed out."""


def plan(
    path: Annotated[
        Path | None, typer.Argument(metavar="[PLAN.toml]", help="the plan file [plan.toml, if there is one]")
    ] = None,
    explain: Annotated[
        str, typer.Option(metavar="KEY", help="say what a key or a table of plans means, and leave")
    ] = "",
    schema: Annotated[
        bool, typer.Option("--schema", help="print the JSON Schema of plans, for editors, and leave")
    ] = False,
    template: Annotated[
        bool, typer.Option("--template", help="print a plan with every key, commented, and leave")
    ] = False,
    effective_dimension: Annotated[
        float | None,
        typer.Option(
            help="forecast: directions that matter (trace over largest eigenvalue of the updates' covariance)"
        ),
    ] = None,
    signal_to_noise: Annotated[
        float | None,
        typer.Option(help="forecast: typical squared update at the start over that at the best model [11]"),
    ] = None,
    condition: Annotated[
        float | None, typer.Option(help="forecast: largest over smallest curvature that matters [1]")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """What a plan will cost and how much noise it adds. Needs no ledger, touches no data, writes nothing.

    With --effective-dimension it also forecasts what the plan is likely to achieve, and suggests settings, from the
    stated guesses alone. Every suggestion names the assumption that it rests on.
    """
    with refusals(json_):
        if sum((bool(explain), schema, template)) > 1:
            raise BadInput("plan", "one thing at a time.", "--explain KEY, --schema or --template")
        if schema:
            print_json(reference.json_schema())
            return
        if template:
            typer.echo(reference.template(), nl=False)
            return
        if explain:
            typer.echo(reference.explain(explain, _sections_with_task(path)))
            return
        assumed = _assumptions(effective_dimension, signal_to_noise, condition)
        cost = _cost(read_plan(plan_path(path)))
        prediction = forecast(cost, assumed, COHORTS) if assumed is not None else None
        if json_:
            priced = {"epsilon_priced": {str(share): value for share, value in cost.priced().items()}}
            shown = cost.to_json() | (priced if cost.loss.sampled else {})
            shown |= {"information_not_charged": dict(_information(cost))}
            print_json(shown | ({"forecast": prediction.to_json()} if prediction is not None else {}))
            return
        _print_cost(cost)
        if prediction is not None:
            _print_forecast(prediction)


def plan_path(path: Path | None) -> Path:
    """The plan file that was named, else plan.toml of this directory. Raises `BadInput` without either."""
    if path is not None:
        return path
    if not HERE.is_file():
        raise BadInput("plan file", "none was named, and there is no plan.toml here.", "fieldfare init")
    return HERE


def _sections_with_task(path: Path | None) -> tuple[reference.Section, ...]:
    """All sections; that of the task with the parameters that the plan's task declares, where there is a plan."""
    sections = tuple(reference.sections())
    if path is None and not HERE.is_file():
        return sections
    task = reference.section_of_task(parameters_of(read_plan(plan_path(path)).run.task))
    return tuple(task if section.table == "task" else section for section in sections)


def _cost(plan: Plan) -> Cost:
    """With the size of the task's model, where the task is installed here."""
    try:
        find_task(plan.run.task)
    except UnknownTask:
        return cost_of(plan)
    return price_with_model(plan)


def _assumptions(dimension: float | None, signal_to_noise: float | None, condition: float | None) -> Assumed | None:
    """The assumptions about the task that the options state, or None. Raises `BadInput` if they are incomplete."""
    others = {"signal_to_noise": signal_to_noise, "condition": condition}
    given = {name: value for name, value in others.items() if value is not None}
    if dimension is not None:
        return Assumed(dimension, **given)
    if given:
        option = f"--{next(iter(given)).replace('_', '-')}"
        raise BadInput(option, "a forecast also needs how many directions matter.", f"--effective-dimension D {option}")
    return None


def _information(cost: Cost) -> list[tuple[str, str]]:
    _, most = cost.participation.separation_and_count(cost.plan.run.rounds)
    return information(cost.plan, cost.noise_multiplier, most, cost.loss)


def _print_cost(cost: Cost) -> None:
    fields, plan = cost.to_json(), cost.plan
    mu = f"{cost.loss.mu:.6g}" if cost.loss.gaussian else "-"
    amplified = " (amplified by sampling)" if fields["amplified_by_sampling"] else ""
    rows = [
        ("mechanism", fields["mechanism"]),
        ("rounds x cohort", f"{plan.run.rounds} x {plan.run.cohort}"),
        ("participation", " ".join(f"{k}={v}" for k, v in fields["participation"].items())),
        ("noise multiplier", f"{cost.noise_multiplier:.6g}"),
        ("delta fits", f"fewer than {0.1 / fields['delta']:.3g} users"),
        ("rounding", fields["rounding"]),
        ("of mu^2, for float64's resolution", f"{cost.resolution:.3g}" if cost.resolution else "-"),
        ("sensitivity", f"{cost.sensitivity:.6g} ({fields['sensitivity_bound']}: {fields['sensitivity_argument']})"),
        ("epsilon", f"{cost.epsilon:.6g} at delta {fields['delta']:g}, {fields['adjacency']}{amplified}"),
    ]
    priced = cost.priced()
    if priced:
        shown = ", ".join(f"{epsilon:.6g} at {share:g}" for share, epsilon in priced.items())
        rows.append(("epsilon as priced across runs", f"{shown} of delta given to its leak"))
    if not fields["amplified_by_sampling"]:
        rows += [
            ("zCDP rho, GDP mu", f"{fields['rho_zcdp']:.6g}, {mu}"),
            ("epsilon by zCDP (looser)", f"{fields['epsilon_zcdp']:.6g}"),
        ]
    rows += [
        (
            "noise in a prefix sum",
            f"max {fields['prefix_noise_max']:.6g}, root mean {fields['prefix_noise_rms']:.6g} (clip 1)",
        ),
        ("buffers of model size", str(fields["buffers"])),
    ]
    print_table(f"Plan for population {plan.privacy.population}", ("", ""), rows)
    print_table(TITLE, ("", ""), _information(cost))
    if priced and min(priced.values()) > DEAR * cost.epsilon:
        out.print(
            f"[bold yellow]Dear across runs[/]: a population is charged at least {min(priced.values()):.4g} for this "
            f"run of epsilon {cost.epsilon:.4g}. Few sampled rounds have no cheaper price that holds whatever is run "
            "next; more rounds with more noise each do."
        )
    if plan.run.noise_seed is not None:
        out.print("[bold yellow]NOT PRIVATE[/]: run.noise_seed fixes the noise; this plan can never be charged.")


def _suggested(suggestion: Suggestion) -> str:
    value = suggestion.value
    text = f"{value:.4g}" if isinstance(value, float) else value
    return f"{text} (the forecast's own limit)" if suggestion.at_limit else text


def _print_forecast(prediction: Forecast) -> None:
    assumed = prediction.assumed
    out.print(
        f"\nForecast, if {assumed.effective_dimension:g} directions matter, the squared update falls by at most "
        f"{assumed.signal_to_noise:g} and curvatures differ by {assumed.condition:g}:"
    )
    out.print(
        f"of an initial excess risk of 0.5, {prediction.best.risk:.4g} is left at the best settings "
        f"({prediction.noiseless:.4g} without noise); {prediction.visits:,} visits, "
        f"{prediction.gamma:.3g} directions a visit."
    )
    print_table(
        "By decay of the server's learning rate",
        ("schedule", "risk left", "clip norm / typical norm", "progress a round"),
        [(f"(1 - t/T)^{s.power:g}", s.risk, s.clip_ratio, s.progress) for s in prediction.by_power],
    )
    if prediction.cohorts:
        print_table(
            "By cohort, at equal visits and epsilon",
            ("cohort", "rounds", "noise multiplier", "risk left"),
            [(option.cohort, option.rounds, option.noise_multiplier, option.risk) for option in prediction.cohorts],
        )
    print_table(
        "Suggestions",
        ("setting", "value", "because", "rests on"),
        [(s.setting, _suggested(s), s.because, s.assumes) for s in prediction.suggestions],
        caption="Made from the plan and your guesses alone: a way to choose, not a promise. No data was touched.",
    )
