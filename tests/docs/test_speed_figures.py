"""Figures of speed that pages state are those of the stored results, and no page states others."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest

from support.pages import ROOT

RESULTS = ROOT / "benchmarks/results"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
SPEED = (ROOT / "benchmarks/results/speed.md").read_text()
PEERS = r"pfl|jax-privacy|\bRay\b|lean loop|FedAvg's wrapper"
FACTOR = re.compile(r"\b\d+(?:\.\d+)? ?(?:x|times)\b(?! with| in a| at| a user| per)")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def table(text: str, first: str) -> list[list[str]]:
    """The rows of the table whose header's first cell is `first`."""
    lines = text.splitlines()
    (start,) = (place for place, line in enumerate(lines) if line.startswith(f"| {first} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(cells(line))
    return rows


def test_whole_rounds_are_those_measured() -> None:
    report = json.loads((RESULTS / "simulation.json").read_text())
    shown = table(SPEED, "model, cohort")
    assert shown
    assert [row[0] for row in shown] == list(report["results"])
    for name, *figures in shown:
        measured = report["results"][name]
        speeds = [measured["tasks_per_cpu_second"][system] for system in ("fieldfare", "lean", "pfl")]
        ratios = [measured["ratio"][system] for system in ("lean", "pfl")]
        load = f"{measured['load'][0]:.0f} to {measured['load'][1]:.0f}"
        assert figures == [*(f"{speed:,.0f}" for speed in speeds), *(f"{ratio:.1f}" for ratio in ratios), load]
    text = " ".join((ROOT / "docs/python.md").read_text().split())
    few, lenet, small = (cells_of[1] for cells_of in (shown[0], shown[3], shown[7]))
    assert (
        f"{few} for 50 users of a model of 2 000 parameters, {lenet} for LeNet, {small} for a small transformer" in text
    )
    assert all(float(row[5]) > 1 for row in shown), "faster than pfl-research in each"
    sampled = {name: one["sampled"]["share"] for name, one in report["results"].items() if "sampled" in one}
    prose = SPEED.partition("| model, cohort |")[0]
    assert all(f"{share:.2f}" in prose for share in sampled.values()), "what each says of its sampled rounds"
    assert f"at {min(sampled.values()):.2f} to {max(sampled.values()):.2f} of that speed" in text


def test_the_benchmark_fills_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    simulation = importlib.import_module("simulation")
    results = json.loads((RESULTS / "simulation.json").read_text())["results"]
    filled = simulation.fill(SPEED, results)
    assert filled == SPEED
    name, result = next(iter(results.items()))
    other = {**result, "load": [0.2, 1.7], "ratio": {**result["ratio"], "pfl": 10.04}}
    more = simulation.fill(SPEED, {name: other, "mlp-2k, 500": result})
    assert [row[0] for row in table(more, "model, cohort")] == [name, "mlp-2k, 500"]
    assert table(more, "model, cohort")[0][-2:] == ["10.0", "0 to 2"]
    assert simulation.fill(more, results) == SPEED, "rows go as they came"
    with pytest.raises(ValueError, match="has 0 tables"):
        simulation.fill("# A page\n", results)
    alone = {**result, "tasks_per_cpu_second": {"fieldfare": 1.0, "lean": 1.0}}
    with pytest.raises(ValueError, match="pfl was not measured"):
        simulation.fill(SPEED, {name: alone})


def test_ratios_follow_from_what_was_measured() -> None:
    """A ratio is a median of neighbouring turns, so it may differ from the ratio of medians, but not by much."""
    report = json.loads((RESULTS / "simulation.json").read_text())
    for measured in report["results"].values():
        for peer in ("lean", "pfl"):
            speeds = measured["tasks_per_cpu_second"]
            assert measured["ratio"][peer] == pytest.approx(speeds["fieldfare"] / speeds[peer], rel=0.35)


def test_seconds_of_the_local_grid_are_those_measured() -> None:
    measured = {row[0]: [float(cell) for cell in row[1:]] for row in table(_page("local_grid"), "images a node")}
    few, many = measured["400"], measured["4,000"]
    assert f"A whole run of 400 images a node takes {few[0]} s, under Ray {few[1]} s" in SPEED
    assert f"of 4 000 images {many[0]:.0f} s, under Ray {many[1]:.0f} s" in SPEED
    assert f"A later round of 400 images takes {few[3]:.1f} s, under\nRay {few[4]:.1f} s" in SPEED


def test_noise_in_checkpoints_is_as_measured() -> None:
    rows = json.loads((RESULTS / "checkpoints.json").read_text())["results"]
    text = (ROOT / "docs/walks.md").read_text()
    band = rows["banded, 16"]
    assert (
        f"that is {band['now_mb_a_round']:.1f} MB a round, where the whole state has {band['before_mb_a_round']:.0f} MB"
        in " ".join(text.split())
    )


def test_claims_are_recognised() -> None:
    for claim in ("43 times pfl-research", "it is 1.8x jax-privacy", "2 x faster than the lean loop", "172 times Ray"):
        assert FACTOR.search(claim)
        assert re.search(PEERS, claim)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_other_factor_over_a_peer_is_stated(page: Path) -> None:
    """A factor beside a peer's name is a claim, and claims stand in the checked table or are withdrawn."""
    text = page.read_text().split("### Withdrawn")
    kept = text[0] + (text[1].split("\n### ", 1)[1] if len(text) > 1 and "\n### " in text[1] else "")
    sentences = re.split(r"(?<=[.:])\s", " ".join(line for line in kept.splitlines() if not line.startswith("|")))
    claims = [s for s in sentences if FACTOR.search(s) and re.search(PEERS, s)]
    assert claims == []


def _page(name: str) -> str:
    return (RESULTS / f"{name}.md").read_text()
