"""The benchmark's report: every cell exists, intervals are Student's, and what it is not is said first."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from scipy.stats import t as student

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_optimizers", BENCHMARKS / "optimizers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_intervals(bench: ModuleType) -> None:
    mean, half = bench.interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert mean == 3.0
    assert half == pytest.approx(student.ppf(0.975, 4) * math.sqrt(2.5 / 5))
    assert math.isinf(bench.interval([1.0])[1])


def test_every_cell_is_a_plan_the_server_accepts(bench: ModuleType) -> None:
    for label, (optimizer, grid) in bench.OPTIMIZERS.items():
        for mechanism in (bench.MECHANISMS | bench.EXTRA.get(label, {})).values():
            for rate in grid:
                plan = bench.plan_of(bench.with_rate(optimizer, rate), mechanism)
                assert plan.privacy.epsilon == 1.0
                spec = plan.server_optimizer
                assert getattr(spec, "base", spec).learning_rate == rate


def test_the_report_says_what_it_is_and_leaves_gaps_open(bench: ModuleType) -> None:
    def row(optimizer: str, mechanism: str, scores: list[float], rate: float) -> dict[str, Any]:
        mean, half = bench.interval(scores)
        return {
            "optimizer": optimizer,
            "mechanism": mechanism,
            "scores": scores,
            "mean": mean,
            "half_width": half,
            "learning_rate": rate,
            "noise_multiplier": 2.0,
            "cpu_seconds_a_run": 3.0,
        }

    rows = [
        row("fedadam", "independent", [0.60, 0.62], 0.03),
        row("fedadam", "nu auto", [0.63, 0.65], 0.1),
        row("ftrl", "independent", [0.70, 0.71], 1.0),
    ]
    told = bench.markdown(rows)
    assert told.index("Uncharged rehearsals on public data") < told.index("| optimizer")
    assert "| fedadam | 0.6100 ± 0.1271 | 0.6400 ± 0.1271 |" in told
    assert "+0.0300 ± 0.0000" in told
    assert "| ftrl | 0.7050 ± 0.0635 | — |" in told
    assert "2 of 3 cells took a value at the edge" in told
    assert bench.COMMAND in told
