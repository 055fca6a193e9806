"""`fieldfare plan`: what a plan will cost and how much noise it adds, without running it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fieldfare.cost import Cost, cost_of
from fieldfare_server.cli.options import JsonOption
from fieldfare_server.cli.output import out, print_json, print_table, refusals
from fieldfare_server.plans import load_plan


def plan(
    path: Annotated[Path, typer.Argument(metavar="PLAN.toml", help="the plan file")],
    json_: JsonOption = False,
) -> None:
    """What a plan will cost and how much noise it adds. Needs no ledger, touches no data, writes nothing."""
    with refusals(json_):
        cost = cost_of(load_plan(path))
        if json_:
            print_json(cost.to_json())
        else:
            _show(cost)


def _show(cost: Cost) -> None:
    said, plan = cost.to_json(), cost.plan
    amplified = " (amplified by sampling)" if said["amplified_by_sampling"] else ""
    rows = [
        ("mechanism", said["mechanism"]),
        ("rounds x cohort", f"{plan.run.rounds} x {plan.run.cohort}"),
        ("participation", " ".join(f"{k}={v}" for k, v in said["participation"].items())),
        ("noise multiplier", f"{cost.noise_multiplier:.6g}"),
        ("sensitivity", f"{cost.sensitivity:.6g} ({said['sensitivity_bound']}: {said['sensitivity_argument']})"),
        ("epsilon", f"{cost.epsilon:.6g} at delta {said['delta']:g}, {said['adjacency']}{amplified}"),
    ]
    if not said["amplified_by_sampling"]:
        rows += [
            ("zCDP rho, GDP mu", f"{said['rho_zcdp']:.6g}, {said['mu_gdp']:.6g}"),
            ("epsilon by zCDP (looser)", f"{said['epsilon_zcdp']:.6g}"),
        ]
    rows += [
        (
            "noise in a prefix sum",
            f"max {said['prefix_noise_max']:.6g}, root mean {said['prefix_noise_rms']:.6g} (clip 1)",
        ),
        ("buffers of model size", str(said["buffers"])),
    ]
    print_table(f"Plan for population {plan.privacy.population}", ("", ""), rows)
    if plan.run.noise_seed is not None:
        out.print("[bold yellow]NOT PRIVATE[/]: run.noise_seed fixes the noise; this plan can never be charged.")
