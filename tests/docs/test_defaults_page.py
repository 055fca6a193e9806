"""The table behind the page of defaults shows what was measured."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

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
    Plan.parse(strangers.starter(Path("people.csv")))  # the script still makes the starter's plan
