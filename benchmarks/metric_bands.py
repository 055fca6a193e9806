"""How often a ridden metric's interval holds the mean without noise: windows of runs on 5 000 made-up players.

    python benchmarks/metric_bands.py [--runs 50] [--out benchmarks/results/metric_bands.md]

Each player has ten games of twelve numbers; who wins follows the numbers and the player's strength. A run is one of the
demo's form: 64 rounds of 200 users, epsilon 1, "blt", one metric at weight .1, windows of 16 rounds that do not
overlap. The mean without noise is that of the same run's own reports, kept from where a node measures them: the model
that is measured depends on the run's noise.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from fieldfare.plan import Plan
from fieldfare.task import Task, seeded
from fieldfare_client.app import app
from fieldfare_client.simulation import LocalGrid
from fieldfare_client.training.measures import Measures
from fieldfare_client.users import UserTable
from fieldfare_server.run.round.strategy import FieldfareStrategy, RoundReport
from fieldfare_server.run.session import Session

PLAYERS, GAMES, FEATURES = 5_000, 10, 12
ROUNDS, WINDOW = 64, 16


class Games(Task):
    """Who wins: logistic regression on made-up games."""

    name: ClassVar[str] = "made-up games"
    score_name: ClassVar[str] = "none"
    held_out: ClassVar[str] = "None."

    def build_model(self) -> torch.nn.Module:
        with seeded(self.seed):
            return torch.nn.Sequential(torch.nn.Linear(FEATURES, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(outputs, targets.long(), reduction="none")

    def users(self) -> UserTable:
        generator = np.random.default_rng(1)
        rows = PLAYERS * GAMES
        x = generator.normal(size=(rows, FEATURES)).astype(np.float32)
        strength = np.repeat(generator.normal(size=PLAYERS), GAMES)
        chance = 1 / (1 + np.exp(-(x[:, 0] - x[:, 1] + 0.5 * x[:, 2] * x[:, 3] + strength)))
        y = (generator.random(rows) < chance).astype(np.float32)
        return UserTable.grouped(np.repeat([f"player-{i}" for i in range(PLAYERS)], GAMES), {"x": x, "y": y})

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        return {"none": 0.0}


def plan_of(seed: int) -> Plan:
    return Plan.parse(
        {
            "privacy": {"population": "players", "epsilon": 1.0, "delta": 1e-5},
            "run": {"task": f"{__name__}:Games", "rounds": ROUNDS, "cohort": 200, "noise_seed": seed},
            "participation": {"scheme": "min-separation", "separation": 16, "max_participations": 4},
            "mechanism": {"kind": "blt"},
            "clipping": {"kind": "flat", "norm": 0.5},
            "client": {"epochs": 1, "batch_size": 10, "learning_rate": 0.5},
            "metrics": {"show": {"correct": [0, 1]}, "weight": 0.1, "window": WINDOW},
        }
    )


def one_run(seed: int) -> list[tuple[float, float, float, float]]:
    """(mean without noise, estimate, low, high) of each window."""
    sums: list[float] = []
    measure = Measures.__call__

    def keeping(self: Measures, *arguments: Any) -> tuple[float, ...]:
        found = measure(self, *arguments)
        sums.append(found[0])
        return found

    Measures.__call__ = keeping  # type: ignore[method-assign]
    reports: list[RoundReport] = []
    a_plan = plan_of(seed)
    try:
        with Session.rehearse(a_plan, noise=True) as session:
            FieldfareStrategy(session, reports.append).start(LocalGrid(app, 1, {"task": a_plan.run.task}))
    finally:
        Measures.__call__ = measure  # type: ignore[method-assign]
    assert len(sums) == len(reports) == ROUNDS
    found = []
    for last in range(WINDOW - 1, ROUNDS, WINDOW):
        users = sum(report.reports or 0 for report in reports[last - WINDOW + 1 : last + 1])
        truth = 0.5 + 0.5 * math.fsum(sums[last - WINDOW + 1 : last + 1]) / users
        shown = reports[last].metrics["correct"]
        found.append((truth, *(float(each or 0.0) for each in (shown.value, shown.low, shown.high))))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    began, load = time.process_time(), os.getloadavg()[0]
    windows = np.array([window for seed in range(arguments.runs) for window in one_run(seed)])
    truth, value, low, high = windows.T
    inside = (low <= truth) & (truth <= high)
    text = f"""# Intervals of a ridden metric

`python benchmarks/metric_bands.py --runs {arguments.runs}`; {platform.processor() or platform.machine()}, \
load {load:.1f}, {time.process_time() - began:.0f} s of processor.

{len(windows)} windows of {WINDOW} rounds that do not overlap, of {arguments.runs} runs on 5 000 made-up players \
(64 rounds of 200, epsilon 1, delta 1e-5, "blt", one metric at weight .1). **{100 * inside.mean():.1f} %** of the
intervals hold the mean without noise (95 is the aim). Accuracy without noise {truth.min():.3f} to {truth.max():.3f}; \
root mean square error {np.sqrt(np.mean((value - truth) ** 2)):.4f}, \
median half width of an interval {np.median(high - low) / 2:.4f}.
"""
    print(text)
    if arguments.out:
        arguments.out.write_text(text)


if __name__ == "__main__":
    import metric_bands  # nodes load the task by the module's name

    metric_bands.main()
