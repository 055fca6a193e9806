"""The LoRA claim: one pass trains poets as the product does, bytes are those of real messages, the goal needs both."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
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
from fieldfare_client.training.clip import clip_with
from fieldfare_client.training.trainer import Trainer
from fieldfare_research.poems import PoemsTask, base_name
from support.verse import write_verse

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks/claims"))


def load(name: str) -> Any:
    return importlib.import_module(name)


@pytest.fixture
def poems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_verse(tmp_path)
    monkeypatch.setenv("FIELDFARE_DATA", str(tmp_path))
    return tmp_path


ROWS: list[dict[str, Any]] = [{}, {"trained": "adapters", "rank": 3}, {"trained": "last"}]


@pytest.mark.parametrize("norm", [0.05, 50.0])
@pytest.mark.parametrize("row", ROWS)
def test_one_pass_over_verse_sums_what_the_product_sums(
    poems: Path, row: dict[str, Any], norm: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clipped and not, poets of different sizes in more than one chunk: the product's trainer is the reference."""
    one_pass = load("one_pass_verse")
    monkeypatch.setattr(one_pass, "TOGETHER", 16)
    task = PoemsTask(width=8, most=3, **row)
    client = ClientSpec(epochs=1, batch_size=3, learning_rate=0.7)
    settings = TrainingSettings(client, clipping.parse({"kind": "flat", "norm": norm}), seed=3, isolated=True)
    assert one_pass.OnePassVerse.fits(task, settings)
    model = task.build_model()
    start = torch.cat([value.detach().flatten() for value in model.parameters() if value.requires_grad])
    start += 0.1 * torch.randn(len(start), generator=torch.Generator().manual_seed(1))
    trainer = Trainer(task, client, clip_with(settings.clipping, Schema.of(model)), isolated=True)
    users, table = np.arange(0, 40, 2), task.users()
    assert len(users) > one_pass.TOGETHER
    expected = trainer.train([start], [1.0], table, users, at_round=2)
    found = one_pass.OnePassVerse(task, settings).train([start], [1.0], table, users, at_round=2)
    assert found.users == expected.users
    assert float((found.update - expected.update).norm()) <= 1e-5 * float(expected.update.norm())


def test_one_pass_over_verse_leaves_everything_else_to_the_product(poems: Path) -> None:
    fits, flat = load("one_pass_verse").OnePassVerse.fits, clipping.parse({"kind": "flat", "norm": 1.0})
    task = PoemsTask(width=8, most=4)
    assert fits(task, TrainingSettings(ClientSpec(epochs=1, batch_size=4), flat, 0, False))
    for client in (
        ClientSpec(epochs=1, batch_size=3),
        ClientSpec(epochs=2, batch_size=4),
        ClientSpec(steps=1, batch_size=4),
        ClientSpec(epochs=1, batch_size=4, momentum=0.5),
    ):
        assert not fits(task, TrainingSettings(client, flat, 0, False))
    automatic = clipping.parse({"kind": "automatic", "norm": 1.0})
    assert not fits(task, TrainingSettings(ClientSpec(epochs=1, batch_size=4), automatic, 0, False))
    assert not fits(load("fieldfare_research.fashion").FashionTask(), TrainingSettings(ClientSpec(), flat, 0, False))


def size(folder: Path, width: int = 64) -> Any:
    """A small run from a base model of random weights."""
    from safetensors.torch import save

    lora = load("lora")
    content = save(
        {name: value.contiguous() for name, value in PoemsTask(width=width).build_model().state_dict().items()}
    )
    digest = hashlib.sha256(content).hexdigest()
    (folder / base_name(digest)).write_bytes(content)
    return lora.Size(digest, rounds=2, cohort=4, users=40, width=width)


def test_the_headlines_base_is_scored_on_test_poets(poems: Path) -> None:
    base = size(poems, width=8).base
    found = load("reductions").base_scores({"width": 8, "base": base, "most": 1, "users": 20})
    task = PoemsTask(width=8, base=base, scored="test")
    assert found == task.evaluate(task.build_model())
    assert found != PoemsTask(scored="tune").evaluate(task.build_model())


def test_every_row_of_lora_is_a_plan_with_as_many_choices(poems: Path) -> None:
    lora = load("lora")
    s = size(poems)
    cells = lora.cells(s)
    assert len(cells) == 5 * len(lora.ROWS)
    assert sum(cell.noiseless for cell in cells) == len(lora.ROWS)
    for cell in cells:
        plans = [Plan.parse(lora.scored(choice, "test", 1)) for choice in cell.choices]
        assert len({plan.digest() for plan in plans}) == 9
        rates = [choice["server_optimizer"]["learning_rate"] for choice in cell.choices]
        assert rates == sorted(rates)
        assert cell.spare == ((3, 2), (2, 1), (1, 0), (5, 6), (6, 7), (7, 8)), "every spare waits for its neighbour"
    sizes = {name: lora.trained_parameters(row, s) for name, row in lora.ROWS.items()}
    assert sizes["rank 4, and bias"] / sizes["full"] == pytest.approx(0.0306, abs=1e-4)
    assert sizes["full"] == 165_908


@pytest.mark.parametrize("name", ["rank 8, and bias", "full"])
def test_the_bytes_are_those_of_a_round_and_more_than_the_numbers_alone(poems: Path, name: str) -> None:
    """Each message holds the trained numbers as float32, and frames that a share of the numbers would leave out."""
    lora = load("lora")
    s = size(poems)
    numbers = 4 * lora.trained_parameters(lora.ROWS[name], s)
    for found in lora.on_the_wire(name, s):
        assert numbers + 1000 < found < numbers + 10_000


def test_a_run_goes_from_tuning_to_its_page(poems: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command as it is called, two rows, two seeds; its page follows from what it stores."""
    lora, harness = load("lora"), load("harness")
    s = size(poems, 8)
    monkeypatch.setattr(harness, "RESULTS", poems / "results")
    monkeypatch.setattr(harness, "ROOT", poems)
    monkeypatch.setattr(load("lora_plans"), "SPARE", 0)
    words = ["lora.py", "--base", s.base, "--rounds", "2", "--cohort", "4", "--users", "40", "--width", "8"]
    words += ["--match", "rank 1, and bias, blt, epsilon 8", "--seeds", "2", "--cache", str(poems / "cache")]
    monkeypatch.setattr("sys.argv", words)
    lora.main()
    whole = json.loads((poems / "results/lora.json").read_text())
    (stored,) = whole["runs"]
    text = (poems / "results/lora.md").read_text()
    assert list(stored["cells"]) == [lora.WHOLE, "rank 1, and bias, blt, epsilon 8"]
    assert text == lora.page(whole).rstrip() + "\n"
    assert "--rounds 2 --cohort 4 --users 40 --width 8 --match 'rank 1, and bias, blt, epsilon 8'" in text
    assert all(
        run["epsilon"] == pytest.approx(8) for run in stored["cells"]["rank 1, and bias, blt, epsilon 8"]["runs"]
    )


def stored(nats: dict[str, tuple[float, float, float]], share: float = 0.04) -> dict[str, Any]:
    """Stored cells with these scores by seed, and adapters whose messages are `share` of the full ones."""

    def one(values: tuple[float, float, float]) -> dict[str, Any]:
        run = {"seed": 1000, "cpu_seconds": 1.0, "load": 1.0, "commit": "c", "versions": "v"}
        scores = [{"nats": value, "accuracy": 0.2, "accuracy_characters": 0.1} for value in values]
        runs = [{**run, "scores": each} for each in scores]
        return {"scores": list(values), "runs": runs, "tune_scores": [0.0], "choice": 4}

    rows = {"full": [1000, 1000], "rank 4, and bias": [int(1000 * share)] * 2}
    base = {"nats": 6.0, "accuracy": 0.1, "accuracy_characters": 0.1}
    return {
        **{"base": base, "bytes": rows, "sizes": {"full": 10, "rank 4, and bias": 1}, "command": "the command"},
        **{"size": {"base": "0" * 64, "cohort": 195, "rounds": 20}, "unknown": [0.06, 0.08]},
        "cells": {label: one(values) for label, values in nats.items()},
    }


WHOLE = {"full, no privacy": (5.90, 5.91, 5.89)}


def page_of(*runs: dict[str, Any]) -> str:
    return str(load("lora").page({"runs": list(runs)}))


def test_sizes_are_sections_of_one_page_and_another_size_is_left_as_it_is(
    poems: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lora, harness = load("lora"), load("harness")
    monkeypatch.setattr(harness, "RESULTS", poems / "results")
    row = "rank 4, and bias, blt, epsilon 8"
    small = stored(WHOLE | {row: (5.99, 5.99, 5.99)})
    large, again = (
        {**stored(WHOLE | {row: (nats, nats, nats)}), "size": {**small["size"], "cohort": 780}} for nats in (5.98, 5.94)
    )
    for one in (large, small, again):
        whole = lora.joined(one)
        harness.store("lora", whole)
    assert [one["size"]["cohort"] for one in whole["runs"]] == [195, 780]
    text = lora.page(whole)
    assert text.count("The goal is **not reached**") == 1
    assert text.index("## 20 rounds of 195") < text.index("## 20 rounds of 780") < text.index("## Messages")
    assert f"| {row} | 0.0100 ± 0.0000 | 0.0600 ± 0.0000 |" in text
    assert "10 rounds apart and so at most 2 times each" in " ".join(text.split())


def test_the_goal_needs_half_of_the_gain_and_a_twentieth_of_the_bytes() -> None:
    enough = {"rank 4, and bias, blt, epsilon 8": (5.945, 5.95, 5.94)}
    assert "The goal is reached by rank 4, and bias, blt, epsilon 8 (**holds**)" in page_of(stored(WHOLE | enough))
    assert "The goal is **not reached**" in page_of(stored(WHOLE | enough, share=0.06))
    short = {"rank 4, and bias, blt, epsilon 8": (5.96, 5.96, 5.94)}
    assert "The goal is **not reached**" in page_of(stored(WHOLE | short))
    large = {"full, blt, epsilon 8": (5.91, 5.91, 5.91)}
    assert "The goal is **not reached**" in page_of(stored(WHOLE | large))


def test_adapters_are_compared_with_full_fine_tuning_at_the_same_noise() -> None:
    found = {"rank 4, and bias, blt, epsilon 8": (5.94, 5.95, 5.94), "full, blt, epsilon 8": (5.97, 5.98, 5.975)}
    text = " ".join(page_of(stored(WHOLE | found)).split())
    assert "rank 4, and bias, blt, epsilon 8 beats full, blt, epsilon 8: **holds**" in text
    assert re.search(r"rank 4, and bias, blt, epsilon 8: 57 % of the gain with 4\.0 % of the bytes", text)
    assert "With privacy the best keeps 57 % (rank 4, and bias, blt, epsilon 8)" in text
    assert "costs 0.022 nats" in text  # log(0.94 / 0.92)


def test_a_row_that_more_privacy_makes_better_is_named() -> None:
    row = "rank 4, and bias, blt, epsilon"
    worse = WHOLE | {f"{row} 4": (5.95, 5.95, 5.95), f"{row} 8": (5.96, 5.96, 5.96)}
    assert "At epsilon 8 'rank 4, and bias' is behind epsilon 4" in " ".join(page_of(stored(worse)).split())
    better = WHOLE | {f"{row} 4": (5.96, 5.96, 5.96), f"{row} 8": (5.95, 5.95, 5.95)}
    assert "is behind epsilon 4" not in page_of(stored(better))
