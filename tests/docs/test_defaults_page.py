"""The table behind the page of defaults shows what was measured."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from statistics import fmean

from fieldfare.plan import Plan

ROOT = Path(__file__).parents[2]


def test_the_table_is_that_of_the_stored_runs() -> None:
    spec = importlib.util.spec_from_file_location("strangers", ROOT / "benchmarks/strangers.py")
    assert spec is not None
    assert spec.loader is not None
    strangers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(strangers)
    found = json.loads((ROOT / "benchmarks/results/strangers.json").read_text())
    assert set(found) == set(strangers.SETS)
    assert len(found) == 12
    assert strangers.table(found) in (ROOT / "benchmarks/results/strangers.md").read_text()
    unseen = json.loads((ROOT / "benchmarks/results/unseen.json").read_text())
    assert set(unseen) == set(strangers.UNSEEN)
    assert strangers.unseen(unseen) in (ROOT / "benchmarks/results/strangers.md").read_text()
    kept = [line.split(" | ")[7].split(" / ") for line in strangers.table(found).splitlines()[2:]]
    shares = [[int(share.rstrip("%")) if share != "-" else None for share in both] for both in kept]
    before, beside = ([share for share in column if share is not None] for column in zip(*shares, strict=True))
    page = (ROOT / "docs/evidence/defaults.md").read_text()
    well = [sum(share >= 90 for share in column) for column in (before, beside)]
    assert f"kept on at least 90 % | {well[0]} of 12 data sets | {well[1]} of 12 |" in page
    assert f"kept less | {len(before) - well[0]} | {len(beside) - well[1]} |" in page
    assert f"refused | {12 - len(before)} | {12 - len(beside)} |" in page
    Plan.parse(strangers.starter(Path("people.csv")))  # the script still makes the starter's plan


def test_a_suggestion_that_is_followed_is_never_worse() -> None:
    """Means over seeds as the page has them; nats are better where they are less."""
    page = " ".join((ROOT / "docs/evidence/defaults.md").read_text().split())
    found = json.loads((ROOT / "benchmarks/results/suggested.json").read_text())
    assert len(found) == 4
    for name, result in found.items():
        shipped, suggested = (fmean(result["rows"][row]) for row in ("shipped", "suggested"))
        assert len(result["rows"]["shipped"]) == len(result["rows"]["suggested"]) == 3
        assert (suggested < shipped) if "poems" in name else (suggested > shipped)
        both = f"{shipped:.4f} to {suggested:.4f}"
        assert (both if "poems" in name else both.replace("0.", ".")) in page.replace("`", "")
