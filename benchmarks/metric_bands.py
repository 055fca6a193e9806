"""How often a ridden metric's interval holds the mean without noise, and what the metric costs the model, on chess.

    FIELDFARE_DATA=DIR fieldfare data fetch chess
    FIELDFARE_DATA=DIR python benchmarks/metric_bands.py [--runs 25] [--pairs 5] [--out FILE]

A run is one of the demo's form on 5 000 players: 64 rounds of 200, epsilon 1, "blt", one metric at weight .1, windows
of 8 rounds that do not overlap. The metric is the share of a player's known months that the model (of width 16)
predicts right. The mean without noise is that of the same run's own reports, kept from where a node measures them: the
model that is measured depends on the run's noise. The server's rate is 0.2 of a cohort's noise, as
`claims/headline_plans.py` begins its grid.

What the metric costs the model is wider noise and nothing else, so a pair of runs has the same draws, once as wide as
without the metric and once sqrt(1.01) times as wide, as with it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.stats import binomtest

from fieldfare.plan import Plan
from fieldfare_client.app import app
from fieldfare_client.simulation import LocalGrid
from fieldfare_client.training.measures import Measures
from fieldfare_client.users import UserTable
from fieldfare_research.chess import ChessTask
from fieldfare_server.run.round.strategy import FieldfareStrategy, RoundReport
from fieldfare_server.run.session import Session

ROUNDS, WINDOW, WEIGHT, WIDTH = 64, 8, 0.1, 16
_PREPARED: list[UserTable] = []


class Months(ChessTask):
    """The task `chess`, with the share of known months that are predicted right as a measure."""

    measures: ClassVar[tuple[str, ...]] = ("correct",)

    def users(self) -> UserTable:
        """The players, prepared once and not again in each run."""
        if not _PREPARED:
            players = super().users()
            x, y = super().prepare(players.rows(np.arange(len(players))).columns)
            offsets = np.arange(len(players) + 1)
            _PREPARED.append(UserTable(players.pseudonyms, offsets, {"x": x.numpy(), "y": y.numpy()}))
        return _PREPARED[0]

    def prepare(self, columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return columns["x"], columns["y"]

    def measure(self, name: str, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        known = targets >= 0
        right = ((outputs > 0) == (targets > 0)) & known
        return right.sum(1) / known.sum(1)

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        return {"auc": 0.0}  # of the last model alone


def plan_of(seed: int, noise: float | None) -> Plan:
    """noise: the noise multiplier of a run without the metric; None: with it, at epsilon 1."""
    spend: dict[str, Any] = {"epsilon": 1.0} if noise is None else {"noise_multiplier": noise}
    shown = {"metrics": {"show": {"correct": [0, 1]}, "weight": WEIGHT, "window": WINDOW}} if noise is None else {}
    return Plan.parse(
        {
            "privacy": {"population": "players", "delta": 1e-5, **spend},
            "run": {"task": f"{__name__}:Months", "rounds": ROUNDS, "cohort": 200, "seed": seed, "noise_seed": seed},
            "task": {"users": 5_000, "width": WIDTH},
            "participation": {"scheme": "min-separation", "separation": 16, "max_participations": 4},
            "mechanism": {"kind": "blt"},
            "clipping": {"kind": "flat", "norm": 0.3},
            "client": {"steps": 1, "batch_size": 1, "learning_rate": 1.0},
            "server_optimizer": {"kind": "sgd", "learning_rate": 0.73, "momentum": 0.9},
            **shown,
        }
    )


def one_run(seed: int, noise: float | None = None) -> tuple[float, float, list[tuple[float, float, float, float]]]:
    """(AUC of the last model, noise multiplier, of each window: mean without noise, estimate, low, high)."""
    sums: dict[float, list[float]] = {}
    measure = Measures.__call__

    def keeping(self: Measures, *arguments: Any) -> tuple[float, ...]:
        found = measure(self, *arguments)
        sums.setdefault(float(arguments[0].double().sum()), []).append(found[0])  # chunks of a round share its model
        return found

    Measures.__call__ = keeping  # type: ignore[method-assign]
    reports: list[RoundReport] = []
    a_plan = plan_of(seed, noise)
    try:
        with Session.rehearse(a_plan, noise=True) as session:
            FieldfareStrategy(session, reports.append).start(LocalGrid(app, 1, {"task": a_plan.task_reference}))
            model = SCORER.build_model()
            sigma = session.noise_multiplier
            torch.nn.utils.vector_to_parameters(session.params.float(), model.parameters())
    finally:
        Measures.__call__ = measure  # type: ignore[method-assign]
    rounds = [math.fsum(found) for found in sums.values()]
    assert len(reports) == ROUNDS
    assert len(rounds) == (ROUNDS if noise is None else 0)
    found = []
    for last in range(WINDOW - 1, ROUNDS if noise is None else 0, WINDOW):
        users = sum(report.reports or 0 for report in reports[last - WINDOW + 1 : last + 1])
        truth = 0.5 + 0.5 * math.fsum(rounds[last - WINDOW + 1 : last + 1]) / users
        shown = reports[last].metrics["correct"]
        found.append((truth, *(float(each or 0.0) for each in (shown.value, shown.low, shown.high))))
    return SCORER.evaluate(model)["auc"], sigma, found


SCORER = ChessTask(width=WIDTH)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    began, wall, load = time.process_time(), time.time(), os.getloadavg()[0]
    runs = []
    for seed in range(arguments.runs):
        runs.append(one_run(seed))
        print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
    sigma, wider = runs[0][1], math.sqrt(1 + WEIGHT**2)
    lost = np.array([one_run(s, sigma)[0] - one_run(s, sigma * wider)[0] for s in range(arguments.pairs)])
    truth, value, low, high = np.array([window for _, _, found in runs for window in found]).T
    inside = (low <= truth) & (truth <= high)
    exact = binomtest(int(inside.sum()), len(inside)).proportion_ci(0.95, method="exact")
    text = f"""# Intervals of a ridden metric

`OMP_NUM_THREADS=1 FIELDFARE_DATA=DIR python benchmarks/metric_bands.py --runs {arguments.runs} \
--pairs {arguments.pairs}`; \
{platform.processor() or platform.machine()}, load {load:.1f}, {time.process_time() - began:.0f} s of processor in \
{time.time() - wall:.0f} s.

{len(truth)} windows of {WINDOW} rounds that do not overlap, of {arguments.runs} runs of the task `chess` on
5 000 players (64 rounds of 200, epsilon 1, delta 1e-5, "blt", one metric at weight .1), whose seeds are
0 to {arguments.runs - 1}. **{inside.sum()}** of the intervals hold the mean without noise, \
**{100 * inside.mean():.1f} %** (95 is the aim): {100 * exact.low:.1f} \
to {100 * exact.high:.1f} % by the exact binomial
interval at 95 %, as if windows were independent; those of one run are not quite. By run, of {ROUNDS // WINDOW}:
{", ".join(str(each) for each in inside.reshape(arguments.runs, -1).sum(1))}.
Accuracy without noise {truth.min():.3f} to {truth.max():.3f}; root mean square error \
{np.sqrt(np.mean((value - truth) ** 2)):.4f},
median half width of an interval {np.median(high - low) / 2:.4f}.

The metric makes the noise on the model {100 * (wider - 1):.2f} % wider. AUC on test players without it less that
with it, over {len(lost)} pairs of runs of the same draws: {lost.mean():+.5f}, from {lost.min():+.5f} to \
{lost.max():+.5f} (.001 is allowed).
With it the mean over all runs is {np.mean([auc for auc, _, _ in runs]):.4f}.
"""
    print(text)
    if arguments.out:
        arguments.out.write_text(text)


if __name__ == "__main__":
    import metric_bands  # nodes load the task by the module's name

    metric_bands.main()
