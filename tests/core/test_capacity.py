"""How many rounds users can fill: the greedy timetable against every timetable, and the closed form against both."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldfare.capacity import EXACT_ROUNDS, Capacity, fills, is_plentiful


def any_timetable(state: tuple[tuple[int, int], ...], rounds: int, size: int, separation: int) -> bool:
    """Try every cohort of every round. `state`: (left, rest) of each user."""

    @cache
    def possible(state: tuple[tuple[int, int], ...], rounds: int) -> bool:
        if rounds == 0:
            return True
        free = [user for user, (left, rest) in enumerate(state) if left > 0 and rest <= 0]
        for cohort in itertools.combinations(free, size):
            after = tuple(
                sorted(
                    (left - 1, separation - 1) if user in cohort else (left, max(0, rest - 1))
                    for user, (left, rest) in enumerate(state)
                )
            )
            if possible(after, rounds - 1):
                return True
        return False

    return possible(tuple(sorted(state)), rounds)


@settings(max_examples=300, deadline=None)
@given(
    data=st.data(),
    rounds=st.integers(0, 6),
    size=st.integers(1, 3),
    separation=st.integers(1, 4),
    users=st.integers(0, 6),
)
def test_the_greedy_timetable_answers_as_all_timetables_do(
    data: st.DataObject, rounds: int, size: int, separation: int, users: int
) -> None:
    user = st.tuples(st.integers(0, 4), st.integers(0, separation - 1))
    state = tuple(data.draw(st.lists(user, min_size=users, max_size=users)))
    left, rest = np.array(state, np.int64).reshape(-1, 2).T
    expected = any_timetable(state, rounds, size, separation)
    assert Capacity.of(left, rest, separation).lasts(rounds, size) == expected


@settings(max_examples=300, deadline=None)
@given(
    users=st.integers(0, 60),
    rounds=st.integers(1, 14),
    size=st.integers(1, 12),
    separation=st.integers(1, 9),
    most=st.integers(1, 6),
)
def test_the_closed_form_is_the_timetable_from_the_start(
    users: int, rounds: int, size: int, separation: int, most: int
) -> None:
    most = min(most, -(-rounds // separation))
    fresh = Capacity.of(np.full(users, most), np.zeros(users), separation)
    assert fills(users, rounds, size, separation, most) == fresh.lasts(rounds, size)


def test_three_users_who_rest_a_round_do_not_fill_three_rounds_of_two() -> None:
    """They have six rounds in all, which is enough; but two rounds in a row need four users."""
    assert not Capacity.of([2, 2, 2], [0, 0, 0], 2).lasts(3, 2)
    assert Capacity.of([2, 2, 2, 2], [0, 0, 0, 0], 2).lasts(3, 2)


def test_the_largest_size_is_the_largest() -> None:
    capacity = Capacity.of([4] * 200, [0] * 200, 1)
    assert capacity.largest(30, 30) == 26  # 800 participations over 30 rounds
    assert capacity.largest(30, 20) == 20
    assert capacity.largest(30, 30, fewest=27) == 0
    assert Capacity.of([], [], 3).largest(1, 5) == 0


@settings(max_examples=200, deadline=None)
@given(data=st.data(), users=st.integers(1, 40), past=st.integers(0, 8), asked=st.integers(1, 8))
def test_plenty_is_plenty_whoever_took_part(data: st.DataObject, users: int, past: int, asked: int) -> None:
    separation, most = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    rounds, size = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 8))
    # The worst that past rounds can have done: the same users every time they were allowed to.
    last, count = np.full(users, -100), np.zeros(users, int)
    for round in range(past):
        fit = np.flatnonzero((round - last >= separation) & (count < most))
        chosen = fit[np.argsort(-count[fit], kind="stable")][:asked]
        last[chosen], count[chosen] = round, count[chosen] + 1
    if is_plentiful(users, rounds, size, separation, most, past=past, asked=asked):
        rest = np.where(count > 0, last + separation - past, 0)
        assert Capacity.of(most - count, rest, separation).lasts(rounds, size)


def test_plenty_is_found_where_there_is_plenty() -> None:
    assert is_plentiful(1_000_000, 1990, 1000, 20, 10, past=10, asked=1000)
    assert not is_plentiful(500, 29, 100, 4, 6, past=1, asked=100)


@pytest.mark.parametrize(("users", "lasts"), [(49, False), (50, True)])
def test_a_very_long_run_is_judged_by_its_totals(users: int, lasts: bool) -> None:
    rounds = EXACT_ROUNDS + 1
    assert Capacity.of([rounds] * users, [0] * users, 5).lasts(rounds, 10) == lasts
