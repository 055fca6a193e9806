"""A round taken apart: phases add up to it, and only the nodes that it asked count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from support.deployed import round_time


@pytest.fixture(scope="module")
def bench() -> Any:
    return round_time()


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
