"""A system whose model is not finite has a speed that says nothing, and the benchmark of whole rounds says so."""

from __future__ import annotations

import math
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
