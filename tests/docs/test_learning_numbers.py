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
RESULTS = ROOT / "benchmarks/results"
EVIDENCE = ROOT / "docs/evidence"
PAGES = sorted(path.stem for path in EVIDENCE.glob("*.md") if path.stem not in ("index", "negative"))


def cell(start: str, column: int) -> float:
    (line,) = (line for line in README.splitlines() if line.startswith(f"| {start} |"))
    return float(line.strip("|").split("|")[column])


@pytest.mark.parametrize(("start", "mechanism"), [("correlated (`nu`)", "nu auto"), ("independent", "independent")])
def test_the_demos_scores_are_what_five_stored_seeds_predict(start: str, mechanism: str) -> None:
    """One run with fresh noise: inside the 99 % prediction interval of the stored runs of the same plan."""
    rows = json.loads((RESULTS / "optimizers.json").read_text())["rows"]
    (row,) = (r for r in rows if (r["optimizer"], r["mechanism"]) == ("sgd, momentum 0.9", mechanism))
    scores = row["scores"]
    half = float(student.ppf(0.995, len(scores) - 1)) * float(np.std(scores, ddof=1)) * math.sqrt(1 + 1 / len(scores))
    assert abs(cell(start, 3) - float(np.mean(scores))) <= half + 0.0005


ROWS = ("DP-SGD, Poisson (add_remove)", "nu")


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
    if name == "lora":
        return str(importlib.import_module("lora").page(stored))
    if name.startswith("training-"):
        return str(importlib.import_module("training").page(stored))
    module = importlib.import_module(name)
    if name == "clipping":
        return str(module.page(stored["theory"], stored["cells"], stored["command"], stored["size"]))
    return str(module.page(stored["cells"]))


@pytest.mark.parametrize("name", PAGES)
def test_every_page_of_evidence_is_made_of_its_stored_results(name: str, on_path: None) -> None:
    assert (EVIDENCE / f"{name}.md").read_text() == made(name).rstrip() + "\n"


def test_every_figure_is_drawn_from_its_stored_results(on_path: None) -> None:
    drawn = sorted(path.stem for path in EVIDENCE.glob("*.svg"))
    assert drawn == sorted(
        path.stem for path in (RESULTS / "claims").glob("headline-*.json") if path.stem != "headline-noise"
    )
    picture = importlib.import_module("headline").picture
    for name in drawn:
        stored = json.loads((RESULTS / "claims" / f"{name}.json").read_text())
        assert (EVIDENCE / f"{name}.svg").read_text() == picture(stored)


def test_every_stored_claim_has_its_page_and_every_page_is_in_the_navigation() -> None:
    stored = {
        "headline" if path.stem.startswith("headline-") else path.stem for path in (RESULTS / "claims").glob("*.json")
    }
    assert stored == set(PAGES)
    navigation = (ROOT / "mkdocs.yml").read_text()
    for name in (*PAGES, "index", "negative"):
        assert f"evidence/{name}.md" in navigation


def test_the_scores_in_the_readme_are_the_headlines() -> None:
    stored = json.loads((RESULTS / "claims/headline-fashion-small.json").read_text())["cells"]
    text = " ".join((ROOT / "README.md").read_text().split())
    low, high = (
        [sum(scores) / len(scores) for scores in (stored[f"{row}, epsilon {epsilon}"]["scores"] for row in ROWS)]
        for epsilon in (1, 8)
    )
    assert f"DP-SGD scores {low[0]:.3f} and `nu` {low[1]:.3f} at epsilon 1, {high[0]:.3f} and {high[1]:.3f} at" in text
    assert "at epsilon 4.23 (by seed" in (EVIDENCE / "headline.md").read_text()
    assert "changes at about 4.2," in text


def test_what_the_page_of_negative_results_quotes() -> None:
    """Each figure in it stands in a stored result: `NAME:VALUE` in its comments says where."""
    text = (EVIDENCE / "negative.md").read_text()
    quoted = re.findall(r"<!-- (\S+): (\S+) -->", text)
    assert len(quoted) >= 5
    for file, figure in quoted:
        assert Path(ROOT / file).is_file()
        source = (ROOT / file).read_text()
        assert figure in source, (file, figure)
        assert figure in re.sub(r"<!--.*?-->", "", text), figure
