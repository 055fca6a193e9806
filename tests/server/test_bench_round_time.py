"""A round taken apart: phases add up to it, and only the nodes that it asked count."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest


@pytest.fixture(scope="module")
def bench() -> Any:
    path = Path(__file__).parents[2] / "benchmarks" / "round_time.py"
    spec = importlib.util.spec_from_file_location("round_time", path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules["round_time"] = module = importlib.util.module_from_spec(spec)  # its dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_phases_add_up_and_end_with_the_last_node_that_was_asked(bench: Any) -> None:
    def lines(node: int, *times: float) -> list[Any]:
        return [bench.Line(at, node, phase, 10 * at) for at, phase in zip(times, bench.PHASES, strict=True)]

    earlier = lines(0, 1.0, 2.0, 3.0, 4.0) + lines(2, 1.0, 2.0, 3.0, 4.0)
    inside = lines(0, 10.5, 11.0, 12.0, 12.5) + lines(1, 10.25, 11.5, 11.75, 13.0)
    later = lines(2, 20.5, 21.0, 22.0, 23.0)
    this = SimpleNamespace(opened_at=10.0, closed_at=14.0)
    found = bench.apart(this, SimpleNamespace(opened_at=15.0), earlier + inside + later)
    *phases, whole, processor = found.values()
    assert phases == [0.5, 1.0, 0.5, 1.0, 1.0, 1.0]
    assert sum(phases) == whole == 5.0
    assert processor == 10 * (13.0 - 4.0)
