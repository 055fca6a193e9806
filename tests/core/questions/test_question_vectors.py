"""The vectors of questions are those that their script computes, which `python tests/reference/questions.py` renews."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "reference" / "questions.py"
MADE = runpy.run_path(str(SCRIPT))
KEPT = json.loads(SCRIPT.with_suffix(".json").read_text())
# A quarter of a minute each.
LONG = {"area", "sealed"}


def test_no_part_is_kept_that_nothing_computes() -> None:
    assert list(KEPT) == list(MADE["PARTS"])


@pytest.mark.parametrize("part", [pytest.param(each, marks=[pytest.mark.slow] * (each in LONG)) for each in KEPT])
def test_what_is_kept_is_what_is_computed(part: str) -> None:
    agree(MADE["short"](MADE["PARTS"][part]()), KEPT[part])


def agree(made: Any, kept: Any) -> None:
    """Compare two JSON values: numbers but for the last digits of another machine."""
    if isinstance(kept, dict):
        assert list(made) == list(kept)
    if isinstance(kept, dict | list):
        assert len(made) == len(kept)
        for key in kept if isinstance(kept, dict) else range(len(kept)):
            agree(made[key], kept[key])
    else:
        assert made == (pytest.approx(kept, rel=1e-7, abs=1e-12) if isinstance(kept, float) else kept)
