"""The comparison with Flower's wrapper measures what it says: all programs do rounds, without what is excluded."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from support.deployed import benchmark


@pytest.fixture(scope="module")
def bench() -> Any:
    return benchmark("plain_dialect")


@pytest.mark.parametrize("program", ["time_flower", "time_dialect", "time_private"])
def test_each_program_does_all_rounds(bench: Any, program: str) -> None:
    arrays = ArrayRecord({name: Array(np.zeros(size, np.float32)) for name, size in {"w": 30, "b": 3}.items()})
    measured = getattr(bench, program)(arrays, nodes=2, rounds=3)
    assert len(measured) == 3
    assert all(seconds > 0 for seconds in measured)


def test_what_the_clock_excludes_is_in_no_round(bench: Any) -> None:
    clock = bench.Clock()

    def work() -> None:
        until = time.process_time() + 0.5
        while time.process_time() < until:
            pass

    def run(mark: Any) -> None:
        for _ in range(3):
            mark()
            clock.wrap(work)()

    assert max(bench.time_rounds(clock, run)) < 0.25
