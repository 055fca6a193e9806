"""The claim about optimizers that adapt: scaled updates are clipped after they are scaled, rows are tuned alike."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fieldfare import clipping
from fieldfare.plan import Plan
from fieldfare.plan_tables import ClientSpec
from fieldfare.schema import Schema
from fieldfare_client.settings import TrainingSettings
from support.verse import write_verse

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks/claims"))
    monkeypatch.setenv("FIELDFARE_DATA", str(tmp_path))
    write_verse(tmp_path)


def load(name: str) -> Any:
    return importlib.import_module(name)


@pytest.mark.parametrize("norm", [0.05, 50.0])
def test_scaled_updates_are_clipped_after_they_are_scaled(norm: float) -> None:
    """Against gradients of one user at a time by autograd: scaled, clipped, summed."""
    made = load("scaled_verse")
    task = made.ScaledPoems(damping=0.5, width=8, most=3)
    client = ClientSpec(epochs=1, batch_size=3, learning_rate=0.7)
    settings = TrainingSettings(client, clipping.parse({"kind": "flat", "norm": norm}), seed=3, isolated=True)
    model, table, users = task.build_model(), task.users(), np.arange(0, 40, 3)
    start = Schema.of(model).flatten(dict(model.named_parameters()))
    found = made.ScaledPass(task, settings).train([start], [1.0], table, users, at_round=0).update
    scale = torch.cat([made.scales(8, "", 0.5)[name] for name in Schema.of(model).names])
    expected = torch.zeros(len(start), dtype=torch.float64)
    for user in users:
        inputs, targets = task.prepare(table.rows(np.array([user])).columns)
        gradient = torch.autograd.grad(task.loss(model(inputs), targets).mean(), list(model.parameters()))
        update = -0.7 * scale * torch.cat([each.flatten() for each in gradient])
        expected += update * min(1.0, norm / float(update.norm()))
    assert float((found - expected).norm()) <= 1e-5 * float(expected.norm())


def test_scales_are_of_public_verse_alone(tmp_path: Path) -> None:
    """They would have a price otherwise: no other table is there."""
    made = load("scaled_verse")
    for part in ("train", "tune", "test"):
        (tmp_path / f"poems-{part}.arrow").unlink()
    made.scales.cache_clear()
    scale = made.scales(8, "", 1.0)
    assert min(float(each.min()) for each in scale.values()) > 0


def test_poems_without_scales_are_trained_as_before() -> None:
    made, usual = load("scaled_verse"), load("one_pass_verse")
    client = ClientSpec(epochs=1, batch_size=4, learning_rate=1.0)
    settings = TrainingSettings(client, clipping.parse({"kind": "flat", "norm": 0.3}), seed=3, isolated=True)
    task = made.PoemsTask(width=8, most=2)
    start = Schema.of(model := task.build_model()).flatten(dict(model.named_parameters()))
    ours, theirs = (
        one(task, settings).train([start], [1.0], task.users(), np.arange(9), at_round=0).update
        for one in (made.ScaledPass, usual.OnePassVerse)
    )
    assert torch.equal(ours, theirs)


def test_rows_have_the_same_privacy_and_sgd_the_most_tuning() -> None:
    """So that what adapts is not ahead because it was tuned more."""
    claim = load("adaptive")
    cells = claim.cells("0" * 64)
    assert len(cells) == 20
    assert len({cell.label for cell in cells}) == 20
    tried = Counter({cell.label: len(cell.choices) for cell in cells})
    for cell in cells:
        row, _, column = cell.label.rpartition(", epsilon ")
        assert tried[cell.label] == (20 if cell.label.startswith("SGD, ") else 10)
        assert cell.noiseless == cell.label.endswith(claim.FREE)
        plans = [Plan.parse(claim.STUDY.plan(choice, "test", 1)) for choice in cell.choices]
        assert len({plan.digest() for plan in plans}) == len(plans)
        assert {plan.privacy.epsilon for plan in plans} == {float(column) if row else 8.0}
        assert {plan.privacy.adjacency for plan in plans} == {"add_remove" if "Poisson" in row else "zero_out"}
        assert Counter(plan.clipping.norm for plan in plans) == {0.3: len(plans) // 2, 1.0: len(plans) // 2}


def test_a_page_says_ahead_only_of_what_survives_the_correction() -> None:
    """One row is ahead with every seed, 2 / 1024 x 16 = .031; one with nine of ten, 2 x 11 / 1024 x 14 = .30."""
    claim = load("adaptive")
    run = {"seed": 1000, "cpu_seconds": 1.0, "load": 1.0, "commit": "c", "versions": "v"}

    def cell(values: list[float]) -> dict[str, Any]:
        return {"scores": values, "runs": [run] * 10, "tune_scores": [0.0], "choice": 0}

    found = {cell_.label: cell([7.0 + seed / 100 for seed in range(10)]) for cell_ in claim.cells("0" * 64)}
    for seed in range(10):
        found["Adam, blt, epsilon 4"]["scores"][seed] -= 0.01 + seed / 1e4
        found["scaled, SGD, blt, epsilon 8"]["scores"][seed] -= 0.01 if seed else -0.01
    page = claim.page({"cells": found, "base": {"nats": 7.2}, "command": "c"})
    verdicts = {
        line.split(" | ")[0][2:]: line.split("**")[1]
        for line in page.splitlines()
        if line.count("**") == 2 and line[0] == "|"
    }
    assert len(verdicts) == 16
    assert {name for name, verdict in verdicts.items() if verdict != "undecided"} == {
        "Adam against SGD, blt, epsilon 4",
        "Adam, noise taken out against Adam, blt, epsilon 4",
    }
    assert verdicts["Adam against SGD, blt, epsilon 4"] == "ahead"
    assert verdicts["Adam, noise taken out against Adam, blt, epsilon 4"] == "behind"
