"""A system whose model is not finite has a speed that says nothing, and the benchmark of whole rounds says so."""

from __future__ import annotations

import io
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch


@pytest.mark.parametrize(
    ("weights", "believed"),
    [
        ([torch.ones(3), -torch.ones(2)], True),
        ([torch.ones(3), torch.tensor([0.0, math.nan])], False),
        ([torch.tensor([math.nan]), torch.ones(3)], False),
        ([torch.ones(3), torch.tensor([-math.inf])], False),
        ([torch.ones(3), torch.tensor([-1e4])], False),
    ],
    ids=["small", "nan last", "nan first", "infinite", "large"],
)
def test_only_a_model_that_stayed_small_is_believed(
    weights: list[torch.Tensor], believed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[2] / "benchmarks"), *sys.path])
    import simulation_models

    notes = ['{"engine": []}', simulation_models.largest(weights)]
    if believed:
        simulation_models.require_finite(notes, "lean")
    else:
        with pytest.raises(RuntimeError, match="lean trained a model whose largest weight"):
            simulation_models.require_finite(notes, "lean")
    with pytest.raises(RuntimeError, match="lean"):
        simulation_models.require_finite(notes[:1], "lean")


def test_a_turn_counts_what_children_took_that_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sampled users of a task with Python of its own train in a child each, and no figure had their time."""
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[2] / "benchmarks"), *sys.path])
    import simulation_turns

    monkeypatch.setattr("sys.stdin", io.StringIO("1\n"))
    monkeypatch.setattr("sys.stdout", told := io.StringIO())
    turnstile = simulation_turns.Turnstile()
    assert turnstile.enter()
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-I", "-S", "-c", busy], check=True)
    assert not turnstile.enter()
    *_, others = told.getvalue().split()
    assert float(others) >= 0.29
