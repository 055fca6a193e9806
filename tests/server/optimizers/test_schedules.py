"""Schedules are public functions of the round."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldfare_server.optimizers import StepInfo, parse
from fieldfare_server.optimizers.sgd import SGD

SCHEDULES: list[dict[str, Any]] = [
    {"kind": "constant"},
    {"kind": "cool-down"},
    {"kind": "cosine"},
    {"kind": "polynomial", "power": 0.5},
    {"kind": "polynomial", "power": 2.0, "warmup": 0.05},
]


def factors(schedule: dict[str, Any], rounds: int) -> list[float]:
    spec = parse({"kind": "sgd", "learning_rate": 2.0, "schedule": schedule})
    assert isinstance(spec, SGD)
    return [spec.rate(StepInfo(t, rounds, 0.0)) / 2.0 for t in range(rounds)]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@given(rounds=st.integers(1, 300))
def test_factors_are_positive_and_at_most_one(schedule: dict[str, Any], rounds: int) -> None:
    assert all(0.0 < factor <= 1.0 for factor in factors(schedule, rounds))


def test_cool_down_is_linear_over_the_last_quarter() -> None:
    assert factors({"kind": "cool-down"}, 8) == [1, 1, 1, 1, 1, 1, 1, 0.5]


def test_polynomial_decay() -> None:
    assert factors({"kind": "polynomial", "power": 0.5}, 4) == pytest.approx([1, 0.75**0.5, 0.5**0.5, 0.5])


def test_cosine_with_a_floor() -> None:
    assert factors({"kind": "cosine", "final": 0.2}, 2) == pytest.approx([1.0, 0.6])


def test_warm_up_rises_to_the_full_rate() -> None:
    assert factors({"kind": "constant", "warmup": 0.4}, 10)[:6] == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])
