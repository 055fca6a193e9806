"""Server optimizers x noise mechanisms on the demo's flights, at equal (epsilon, delta): `make bench-optimizers`.

Every cell trains the demo's plan (cli/demo.py: clip 0.3, 64 rounds of 202 aircraft, momentum 0.9, client learning rate
0.5) at epsilon 1 and delta 1e-5 through the real server; only the account is a rehearsal's. The flights are public, so
no budget is charged. On private data, each run of such a table would have to be charged.

Each cell takes the best learning rate of a grid, on a seed that serves no other purpose. It then runs 5 other seeds,
the same for every cell, so that cells differ only in optimizer and noise. A seed fixes the noise key and with it the
cohorts. Intervals are Student's t over those seeds, at 95 %: they hold for another draw of noise and cohorts on these
aircraft, and do not extend to other data. The table also has the paired difference to the first cell.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from scipy.stats import t as student

from fieldfare.cost import Cost
from fieldfare.costing import cost_of
from fieldfare.plan import Plan
from fieldfare_client.app import app
from fieldfare_client.simulation import LocalGrid
from fieldfare_server.cli.demo import PLAN
from fieldfare_server.run.rehearsal import Rehearsal
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session, seeded_key

Table = dict[str, Any]

COMMAND = "python benchmarks/optimizers.py"

TUNING_SEED, FIRST_SEED = 1, 1000

SGD: Table = {"kind": "sgd", "momentum": 0.9}

OPTIMIZERS: dict[str, tuple[Table, tuple[float, ...]]] = {
    "sgd, momentum 0.9": (SGD, (0.1, 0.3, 1.0)),
    "fedadam": ({"kind": "fedadam"}, (0.01, 0.03, 0.1)),
    "adamw": ({"kind": "adamw"}, (0.01, 0.03, 0.1)),
    "disk(sgd, momentum 0.9)": (
        {"kind": "disk", "kappa": "auto", "innovation": 0.49 / 0.3, "base": SGD},  # the published gain for white noise
        (0.1, 0.3, 1.0),
    ),
    "ftrl": ({"kind": "ftrl"}, (1.0, 3.0, 10.0)),
    "normalised-momentum 0.9": ({"kind": "normalised-momentum", "momentum": 0.9}, (0.03, 0.1, 0.3)),
    "three-query(sgd, momentum 0.9)": (
        {"kind": "three-query", "period": 16, "mixing": 0.3, "change": 0.2, "drift": 0.2, "base": SGD},
        (0.03, 0.1, 0.3),
    ),
}
"""Each with its grid of server learning rates."""

MECHANISMS: dict[str, Table] = {
    "independent": {"kind": "independent"},
    "nu auto": {"kind": "nu", "nu": "auto"},
    "blt": {"kind": "blt"},
    "tree online": {"kind": "tree", "estimator": "online"},
    "banded 16": {"kind": "banded", "bands": 16},
}

EXTRA = {"normalised-momentum 0.9": {"momentum-tree 0.9": {"kind": "momentum-tree", "momentum": 0.9}}}
"""The mechanism that is designed for one optimizer."""


def plan_of(optimizer: Table, mechanism: Table) -> Plan:
    """The demo's plan with another optimizer and mechanism; three queries need one fixed order of cohorts."""
    run = {**PLAN["run"], "evaluate_every": PLAN["run"]["rounds"]}
    changed = {"run": run, "mechanism": mechanism, "server_optimizer": optimizer}
    if "period" in optimizer:
        changed["participation"] = {"scheme": "fixed-order", "period": optimizer["period"]}
    return Plan.parse({**PLAN, **changed})


def with_rate(optimizer: Table, rate: float) -> Table:
    """The optimizer's table with a learning rate, in front of a filter or behind it."""
    if "base" in optimizer:
        return {**optimizer, "base": with_rate(optimizer["base"], rate)}
    return {**optimizer, "learning_rate": rate}


def score(cost: Cost, plan: Plan, seed: int) -> float:
    """Held-out AUC of the last model of one rehearsal."""
    with Session(plan, dataclasses.replace(cost, plan=plan), Rehearsal(), None, seeded_key(seed)) as session:
        FieldfareStrategy(session).start(LocalGrid(app, 4, {"task": plan.run.task}))
    return session.released.score[session.task.score_name]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """(mean, half width of its 95 % interval)."""
    if len(values) < 2:
        return float(np.mean(values)), math.inf
    half = float(student.ppf(0.975, len(values) - 1)) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return float(np.mean(values)), half


def measure(label: str, noise: str, mechanism: Table, cost: Cost, count: int) -> Table:
    """One cell: the best learning rate on one seed, then `count` others."""
    optimizer, grid = OPTIMIZERS[label]
    plans = {rate: plan_of(with_rate(optimizer, rate), mechanism) for rate in grid}
    began = time.process_time()
    tuned = {rate: score(cost, plan, TUNING_SEED) for rate, plan in plans.items()}
    best = max(tuned, key=lambda rate: tuned[rate])
    scores = [score(cost, plans[best], FIRST_SEED + index) for index in range(count)]
    mean, half = interval(scores)
    return {
        "optimizer": label,
        "mechanism": noise,
        "learning_rate": best,
        "tuning": [{"learning_rate": rate, "score": value} for rate, value in tuned.items()],
        "scores": scores,
        "mean": mean,
        "half_width": half,
        "noise_multiplier": cost.noise_multiplier,
        "epsilon": cost.epsilon,
        "cpu_seconds_a_run": (time.process_time() - began) / (len(grid) + count),
    }


def markdown(rows: list[Table]) -> str:
    """The report."""
    noises = list(dict.fromkeys(row["mechanism"] for row in rows))
    by_cell = {(row["optimizer"], row["mechanism"]): row for row in rows}
    epsilon, delta = PLAN["privacy"]["epsilon"], PLAN["privacy"]["delta"]

    def line(values: Sequence[str]) -> str:
        return "| " + " | ".join(values) + " |"

    def tabulate(show: Any) -> list[str]:
        made = [line(["optimizer", *noises]), line(["---"] * (len(noises) + 1))]
        for label in dict.fromkeys(row["optimizer"] for row in rows):
            row_cells = [by_cell.get((label, noise)) for noise in noises]
            made.append(line([label, *("—" if row is None else show(row) for row in row_cells)]))
        return made

    def against(row: Table) -> str:
        mean, half = interval([a - b for a, b in zip(row["scores"], rows[0]["scores"], strict=True)])
        return f"{mean:+.4f} ± {half:.4f}"

    grids = {label: grid for label, (_, grid) in OPTIMIZERS.items()}
    edge = sum(row["learning_rate"] in (grids[row["optimizer"]][0], grids[row["optimizer"]][-1]) for row in rows)
    multipliers = [f"{n} {next(r for r in rows if r['mechanism'] == n)['noise_multiplier']:.4g}" for n in noises]
    seconds = float(np.mean([row["cpu_seconds_a_run"] for row in rows]))
    return "\n".join(
        [
            "# Server optimizers x noise mechanisms, on the demo's flights",
            "",
            f"`{COMMAND}`, or `make bench-optimizers`",
            "",
            f"Held-out AUC after {PLAN['run']['rounds']} rounds at epsilon {epsilon:g}, delta {delta:g} (zero-out; a",
            f"user is an aircraft): mean of {len(rows[0]['scores'])} seeds, with its 95 % interval (Student's t).",
            "",
            "**Uncharged rehearsals on public data.** No budget was spent, and none of these models is private:",
            "settings were chosen by looking at scores. On private data every run, tuning included, would be charged.",
            "A dash is a cell that was not run. Three queries need a fixed order of cohorts, here of 16 rounds; the",
            "others take anybody who rested 16 rounds.",
            "",
            *tabulate(lambda row: f"{row['mean']:.4f} ± {row['half_width']:.4f}"),
            "",
            "Difference to the first cell, paired by seed (same cohorts, same seed of the noise):",
            "",
            *tabulate(against),
            "",
            "Server learning rate, the best of three on a seed used for nothing else:",
            "",
            *tabulate(lambda row: f"{row['learning_rate']:g}"),
            "",
            *(f"- {label}: grid {', '.join(f'{rate:g}' for rate in grid)}" for label, (_, grid) in OPTIMIZERS.items()),
            "",
            f"{edge} of {len(rows)} cells took a value at the edge of their grid: a wider one might do better there.",
            "Tuning on one seed carries that seed's noise; the intervals do not include it, nor other data or budgets.",
            "",
            f"Noise multipliers: {', '.join(multipliers)}.",
            f"CPU seconds a run: {seconds:.2g} on {platform.machine()}, one thread; Python "
            f"{platform.python_version()}, torch {torch.__version__}.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="server optimizers x mechanisms at equal budget")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--optimizer", action="append", choices=OPTIMIZERS, help="only these, keeping the others' rows")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    report, costs = arguments.out / "optimizers.json", {}
    for label in arguments.optimizer or OPTIMIZERS:
        for noise, mechanism in (MECHANISMS | EXTRA.get(label, {})).items():
            plan = plan_of(OPTIMIZERS[label][0], mechanism)
            known = noise, plan.participation
            if known not in costs:
                costs[known] = cost_of(plan)
            row = measure(label, noise, mechanism, costs[known], arguments.seeds)
            # Written after every cell: a table that takes an hour survives an interruption.
            kept = json.loads(report.read_text())["rows"] if report.exists() else []
            cells = {(r["optimizer"], r["mechanism"]): r for r in [*kept, row]}
            order = [(o, n) for o in OPTIMIZERS for n in (MECHANISMS | EXTRA.get(o, {}))]
            rows = [cells[cell] for cell in order if cell in cells]
            report.write_text(json.dumps({"command": COMMAND, "rows": rows}, indent=1) + "\n")
            (arguments.out / "optimizers.md").write_text(markdown(rows))
            print(f"{label:28} {noise:18} lr {row['learning_rate']:<5g} {row['mean']:.4f} +- {row['half_width']:.4f}")


if __name__ == "__main__":
    main()
