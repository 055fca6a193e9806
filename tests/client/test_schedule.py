"""Batches: every row once an epoch, in an order that only the user, the round and the seed decide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldfare.hashing import mix
from fieldfare.plan_tables import ClientSpec
from fieldfare_client.training.schedule import schedule, user_keys

USERS = np.arange(1, 50, dtype=np.uint64)


def real(plan: Any, user: int) -> list[list[int]]:
    return [rows[:count].tolist() for rows, count in zip(plan.rows[user], plan.counts[user], strict=True) if count]


@given(st.lists(st.integers(0, 20), min_size=1, max_size=8), st.integers(1, 25), st.integers(1, 3))
def test_an_epoch_takes_every_row_once(sizes: list[int], batch: int, epochs: int) -> None:
    plan = schedule(np.array(sizes), user_keys(USERS[: len(sizes)], 0, 0), ClientSpec(batch_size=batch, epochs=epochs))
    first = 0
    for user, size in enumerate(sizes):
        batches = real(plan, user)
        assert sorted(row for b in batches for row in b) == sorted(list(range(first, first + size)) * epochs)
        assert [len(b) for b in batches] == ([batch] * (size // batch) + [size % batch] * (size % batch > 0)) * epochs
        first += size


@given(st.lists(st.integers(0, 20), min_size=1, max_size=8), st.integers(1, 7), st.integers(1, 12))
def test_steps_count_batches_over_as_many_epochs_as_it_takes(sizes: list[int], batch: int, steps: int) -> None:
    plan = schedule(np.array(sizes), user_keys(USERS[: len(sizes)], 0, 0), ClientSpec(batch_size=batch, steps=steps))
    assert plan.steps.tolist() == [steps if size else 0 for size in sizes]
    for user, size in enumerate(sizes):
        flat = [row for b in real(plan, user) for row in b]
        times = np.bincount(np.array(flat, int) - sum(sizes[:user]), minlength=size) if size else np.zeros(1)
        assert times.max() - times.min() <= 1


def test_a_users_batches_do_not_depend_on_its_neighbours() -> None:
    client, sizes = ClientSpec(batch_size=4, epochs=2), np.array([9, 30, 2])
    together = schedule(sizes, user_keys(USERS[:3], 5, 7), client)
    alone = schedule(sizes[1:2], user_keys(USERS[1:2], 5, 7), client)
    assert [[row - 9 for row in batch] for batch in real(together, 1)] == real(alone, 0)


def test_padding_repeats_the_users_own_first_row() -> None:
    plan = schedule(np.array([3, 9]), user_keys(USERS[:2], 0, 0), ClientSpec(batch_size=4))
    assert plan.rows.shape == (2, 3, 4)
    assert (plan.rows[0] < 3).all()
    assert (plan.rows[1] >= 3).all()
    assert plan.rows[1, 2, 1:].tolist() == [3, 3, 3]


def test_orders_are_uniform() -> None:
    """First row of the first batch over many users: chi-squared against uniform, 9 degrees of freedom."""
    users = np.arange(20_000, dtype=np.uint64)
    plan = schedule(np.full(20_000, 10), user_keys(users, 0, 0), ClientSpec(batch_size=10))
    for slot in (0, 9):
        seen = np.bincount(plan.rows[:, 0, slot] % 10, minlength=10)
        assert ((seen - 2000) ** 2 / 2000).sum() < 30


def test_mix_is_splitmix64() -> None:
    """The first outputs of SplitMix64 from state 0, as published with its reference implementation."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    states = np.arange(3, dtype=np.uint64) * golden
    assert [hex(int(v)) for v in mix(states)] == ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"]


@pytest.mark.parametrize("change", [{"seed": 1}, {"at_round": 1}])
def test_keys_differ_by_seed_and_round(change: dict[str, int]) -> None:
    base = {"seed": 0, "at_round": 0}
    assert not np.isin(user_keys(USERS, **base), user_keys(USERS, **(base | change))).any()
