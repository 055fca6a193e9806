"""`fieldfare forecast`: what a plan is likely to achieve, and how to set it, from a few stated guesses."""

from __future__ import annotations

from typing import Annotated

import typer

from fieldfare_research.forecast.forecast import Forecast, predict
from fieldfare_research.forecast.search import Assumed
from fieldfare_research.forecast.suggestions import Suggestion
from fieldfare_server.cli.options import JsonOption, PlanArgument
from fieldfare_server.cli.output import out, print_json, print_table, refusals
from fieldfare_server.files.plan_file import plan_path, read_plan
from fieldfare_server.run.pricing import price

COHORTS = (0.5, 1.0, 2.0)
"""Factors of the planned cohort that a forecast compares, at equal visits and equal epsilon."""


def forecast(
    effective_dimension: Annotated[
        float,
        typer.Option(help="directions that matter (trace over largest eigenvalue of the updates' covariance)"),
    ],
    path: PlanArgument = None,
    signal_to_noise: Annotated[
        float, typer.Option(help="typical squared update at the start over that at the best model")
    ] = Assumed.signal_to_noise,
    condition: Annotated[float, typer.Option(help="largest over smallest curvature that matters")] = Assumed.condition,
    json_: JsonOption = False,
) -> None:
    """Forecast what a plan is likely to achieve, and suggest settings, from the stated guesses alone.

    Every suggestion names the assumption that it rests on. Touches no data and charges nothing.
    """
    with refusals(json_):
        assumed = Assumed(effective_dimension, signal_to_noise, condition)
        prediction = predict(price(read_plan(plan_path(path))), assumed, COHORTS)
        if json_:
            print_json(prediction.to_json())
            return
        _print_forecast(prediction)


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
