"""Learning figures of README and evidence pages are those of the stored results."""

from __future__ import annotations

import importlib
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import t as student

from support.pages import ROOT

README = (ROOT / "README.md").read_text()
TUTORIAL = (ROOT / "docs/tutorial-scientist.md").read_text()
RESULTS = ROOT / "benchmarks/results"
EVIDENCE = ROOT / "docs/evidence"
MADE = sorted(path.stem for path in (RESULTS / "claims").glob("*.md"))
FIGURE = re.compile(r"(?<![\w.])\d*\.\d+\b(?! %)|\b\d+(?:\.\d+)? %")
"""A figure that was measured: a decimal, or a percentage."""


def cell(start: str, column: int) -> float:
    (line,) = (line for line in TUTORIAL.splitlines() if line.startswith(f"| {start} |"))
    return float(line.strip("|").split("|")[column])


@pytest.mark.parametrize(("start", "mechanism"), [("correlated (`nu`)", "nu auto"), ("independent", "independent")])
def test_the_demos_scores_are_what_five_stored_seeds_predict(start: str, mechanism: str) -> None:
    """One run with fresh noise: inside the 99 % prediction interval of the stored runs of the same plan."""
    rows = json.loads((RESULTS / "optimizers.json").read_text())["rows"]
    (row,) = (r for r in rows if (r["optimizer"], r["mechanism"]) == ("sgd, momentum 0.9", mechanism))
    scores = row["scores"]
    half = float(student.ppf(0.995, len(scores) - 1)) * float(np.std(scores, ddof=1)) * math.sqrt(1 + 1 / len(scores))
    assert abs(cell(start, 3) - float(np.mean(scores))) <= half + 0.0005


@pytest.fixture
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks/claims"))


def made(name: str) -> str:
    """The page as its command writes it from the stored results."""
    stored: Any = json.loads(
        (RESULTS / "claims" / f"{'headline-noise' if name == 'headline' else name}.json").read_text()
    )
    if name in ("headline", "theory"):
        return str(importlib.import_module(name).page())
    if name == "attack":
        return str(importlib.import_module("attack_page").page(stored))
    if name in ("lora", "adaptive"):
        return str(importlib.import_module(name).page(stored))
    if name.startswith("training-"):
        return str(importlib.import_module("training").page(stored))
    module = importlib.import_module(name)
    if name == "clipping":
        return str(module.page(stored["theory"], stored["cells"], stored["command"], stored["size"]))
    return str(module.page(stored["cells"]))


@pytest.mark.parametrize("name", MADE)
def test_every_table_of_a_claim_is_made_of_its_stored_results(name: str, on_path: None) -> None:
    assert (RESULTS / f"claims/{name}.md").read_text() == made(name).rstrip() + "\n"


def test_every_figure_is_drawn_from_its_stored_results(on_path: None) -> None:
    drawn = sorted(path.stem for path in EVIDENCE.glob("*.svg"))
    scored = sorted(path.stem for path in (RESULTS / "claims").glob("headline-*.json") if path.stem != "headline-noise")
    assert drawn == ["attack", *scored]
    for name in drawn:
        stored = json.loads((RESULTS / "claims" / f"{name}.json").read_text())
        picture = importlib.import_module("attack_page" if name == "attack" else "headline_figure").picture
        assert (EVIDENCE / f"{name}.svg").read_text() == picture(stored)
        assert "at epsilon above" not in picture(stored)  # a crossing that nobody saw is none
    assert (ROOT / "docs/score.svg").read_text() == (EVIDENCE / "headline-fashion-small.svg").read_text()


def test_the_page_of_the_attack_has_its_stored_figures(on_path: None) -> None:
    stored, page = json.loads((RESULTS / "claims/attack.json").read_text()), (EVIDENCE / "attack.md").read_text()

    def rows(text: str) -> dict[str, list[str]]:
        """Accuracy, area, and both rates with what is allowed, by the first cell."""
        lines = (re.sub(r" \[.*?\]", "", line) for line in text.splitlines() if line.startswith("| "))
        cells = ([cell.strip() for cell in line.split("|")] for line in lines)
        return {name: rest for _, name, *rest, _ in cells}

    few, many = (
        rows(importlib.import_module("attack_page").table(one))
        for one in sorted(stored["settings"].values(), key=lambda one: one["visits"])
    )
    shown = rows(page)
    for name in ("no noise", "epsilon 1", "epsilon 4", "epsilon 8"):
        found, _, allowed = many[name][3].partition("; ")
        area = many[name][1].partition(";")[0]
        assert shown[name] == [many[name][0], area, found, allowed, few[name][0], few[name][3].partition(";")[0]]


def test_every_stored_claim_has_its_tables_and_is_named_by_a_page_of_evidence() -> None:
    stored = {
        "headline" if path.stem.startswith("headline-") else path.stem for path in (RESULTS / "claims").glob("*.json")
    }
    assert stored == set(MADE)
    pages = "".join((EVIDENCE / f"{name}.md").read_text() for name in ("attack", "headline", "training"))
    assert {name for name in MADE if f"{name}.md" not in pages} == set()


def test_what_the_readme_says_of_images_and_players_is_the_headlines(on_path: None) -> None:
    page, readme = (RESULTS / "claims/headline.md").read_text(), " ".join(README.split())

    def score(data: str, row: str, epsilon: int) -> str:
        section = page.split(f"## Scores: {data}, small")[1].split("\n## ")[0]
        (line,) = re.findall(rf"^\| {re.escape(row)} \|(.*)\|$", section.split("Difference to")[0], re.MULTILINE)
        return f"{float(line.split('|')[(1, 2, 4, 8).index(epsilon)].split('±')[0]):.3f}"

    poisson = "DP-SGD, Poisson (add_remove)"
    players = tuple(score("chess", row, 1) for row in ("nu", poisson))
    stored = json.loads((RESULTS / "claims/headline-fashion-small.json").read_text())
    seeds = importlib.import_module("headline_seeds")
    images = tuple(f"{np.mean(seeds.scores_of(stored, row, 8.0)):.3f}" for row in ("nu", seeds.BEST))
    assert "**Accuracy {} where DP-SGD has {}**, at epsilon 8".format(*images) in readme
    assert "**AUC {} where DP-SGD has {}**: on chess players at epsilon 1 we lose".format(*players) in readme
    assert "| nu | DP-SGD, Poisson, best split (add_remove) | 4.46 | 4.04 to 4.81 |" in page
    assert "they cross at 4.5 (4.0 to 4.8), and at 1 and 2 DP-SGD is ahead" in readme


def files_named(text: str) -> list[Path]:
    """The stored results that a row or an item names."""
    found = [RESULTS / name for name in re.findall(r"`(?:benchmarks/results/)?([\w/-]+\.md)`", text)]
    return [path if path.is_file() else RESULTS / "claims" / path.name for path in found]


@pytest.mark.parametrize("name", ["attack", "headline", "training", "negative"])
def test_every_figure_of_a_page_of_evidence_stands_in_the_results_that_its_row_names(name: str) -> None:
    """A row of a table, an item of a list, or, on the page with one file of results, the page."""
    text = (EVIDENCE / f"{name}.md").read_text()
    parts = [text] if name in ("attack", "headline") else re.split(r"\n(?=[|-] )", text)
    checked = 0
    for part in parts:
        results = " ".join(path.read_text() for path in files_named(part))
        for figure in FIGURE.findall(part) if results else ():
            checked += 1
            assert re.search(rf"(?<![\d.]){re.escape(figure)}", results), (figure, part)
    assert checked > 20
