"""Cohorts: nothing that the accountant assumes is left to chance, and everything else is uniform."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fieldfare.errors import BadInput
from fieldfare.participation import CyclicPoisson, FixedOrder, MinSeparation, Participation, Poisson, Single
from fieldfare.participation_record import ParticipationRecord
from fieldfare_server.planning.feasibility import is_feasible
from fieldfare_server.run.presence.selection import Eligibility, NotEnoughUsers, Selector
from support.refusals import Coded, coded

FALSE_ALARM = 1e-6
"""Rate at which a chi-square test here would fail a right sampler with fresh randomness (the seeds are fixed)."""


def uniform(counts: np.ndarray, expected: np.ndarray | float) -> bool:
    expected = np.broadcast_to(expected, counts.shape)
    statistic = float(np.sum((counts - expected) ** 2 / expected))
    return bool(statistic < stats.chi2.isf(FALSE_ALARM, counts.size - 1))


def selector(participation: Participation, rounds: int, cohort: int, *args: float, seed: int = 5, **more) -> Selector:
    return Selector(participation, rounds, cohort, *args, order=np.random.default_rng(seed), **more)


SCHEMES = st.one_of(
    st.just(Single()),
    st.builds(MinSeparation, st.integers(1, 9), st.none() | st.integers(1, 4)),
    st.builds(FixedOrder, st.integers(1, 9), st.none() | st.integers(1, 4)),
    st.builds(Poisson, st.floats(0.01, 1)),
    st.builds(CyclicPoisson, st.integers(1, 6), st.floats(0.01, 1)),
)


@settings(max_examples=150, deadline=None)
@given(
    scheme=SCHEMES,
    users=st.integers(1, 200),
    rounds=st.integers(1, 25),
    cohort=st.integers(1, 30),
    over=st.floats(1, 2),
    dropout=st.floats(0, 0.9),
    gone=st.floats(0, 0.9),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_schedule_of_dropouts_and_absences_breaks_a_constraint(
    scheme: Participation, users: int, rounds: int, cohort: int, over: float, dropout: float, gone: float, seed: int
) -> None:
    rng, taken = np.random.default_rng(seed), ParticipationRecord(users)
    sampled = isinstance(scheme, Poisson | CyclicPoisson)
    chooser = selector(scheme, rounds, cohort, 1.0 if sampled else over, seed=seed, fewest=1)
    for t in range(rounds):
        available = np.flatnonzero(rng.random(users) >= gone)
        try:
            chosen = chooser.select(t, available, taken.last_and_count, rng, rng.random)
        except NotEnoughUsers:
            assert chooser.standing(t, available, taken.last_and_count).eligible == 0
            continue
        assert chosen.dtype == np.int64
        assert np.all(np.diff(chosen) > 0)
        assert np.isin(chosen, available).all()
        assert sampled or chosen.size <= chooser.asked
        taken.add(t, chosen[rng.random(chosen.size) >= dropout])
    for pattern in taken.patterns(np.arange(users)):
        assert not pattern or scheme.allows(pattern, rounds)


@pytest.mark.parametrize("users", [12, 500])  # below and above the size at which few candidates are drawn first
def test_a_cohort_is_uniform_among_the_eligible(users: int) -> None:
    taken = ParticipationRecord(users)
    tired = np.arange(0, users, 3)
    taken.add(4, tired)
    chooser, rng = Selector(MinSeparation(5), 7, 4), np.random.default_rng(11)
    counts, trials = np.zeros(users), 20_000
    for _ in range(trials):
        counts[chooser.select(6, np.arange(users), taken.last_and_count, rng, rng.random)] += 1
    assert counts[tired].sum() == 0
    rested = np.setdiff1d(np.arange(users), tired)
    # Without replacement the counts vary less than a multinomial's by (1 - 4 / n): the test stays conservative.
    assert uniform(counts[rested], trials * 4 / rested.size)


def test_pairs_are_uniform_too() -> None:
    chooser, rng, users = Selector(Single(), 1, 2), np.random.default_rng(12), 20
    nobody = ParticipationRecord(users)
    pairs: dict[tuple[int, int], int] = defaultdict(int)
    for _ in range(20_000):
        a, b = chooser.select(0, np.arange(users), nobody.last_and_count, rng, rng.random)
        pairs[int(a), int(b)] += 1
    counts = np.array([pairs[a, b] for a in range(users) for b in range(a + 1, users)])
    assert uniform(counts, 20_000 / counts.size)


def test_poisson_inclusions_are_independent_coins() -> None:
    rate, users, rounds = 0.1, 30, 20_000
    chooser, rng = Selector(Poisson(rate), rounds, 3), np.random.default_rng(13)
    taken = ParticipationRecord(users)
    included = np.zeros((rounds, users), dtype=bool)
    for t in range(rounds):
        included[t, chooser.select(t, np.arange(users), taken.last_and_count, rng, rng.random)] = True
    sizes = np.bincount(included.sum(1), minlength=users + 1)
    expected = stats.binom.pmf(np.arange(users + 1), users, rate) * rounds
    frequent = expected > 20
    assert uniform(sizes[frequent], expected[frequent])
    assert abs(included.mean() - rate) < 5 * np.sqrt(rate * (1 - rate) / included.size)
    covariance = np.cov(included.T.astype(float))[np.triu_indices(users, 1)]
    assert np.abs(covariance).max() < 6 * rate * (1 - rate) / np.sqrt(rounds)
    successive = np.corrcoef(included[:-1].ravel(), included[1:].ravel())[0, 1]
    assert abs(successive) < 6 / np.sqrt(included.size)


def test_a_poisson_coin_is_never_more_probable_than_the_rate_that_is_charged() -> None:
    grid, nobody = 2.0**-53, ParticipationRecord(4)
    # Of the 2^53 values of a coin, those below rate 2^53 must include the user: here 5 of them, for a rate of 5.5.
    coins = np.array([0, 4 * grid, 5 * grid, 1 - grid])
    chooser, rng = Selector(Poisson(5.5 * grid), 1, 1), np.random.default_rng(0)
    assert chooser.select(0, np.arange(4), nobody.last_and_count, rng, lambda n: coins[:n]).tolist() == [0, 1]
    always = Selector(Poisson(1.0), 1, 1)
    assert always.select(0, np.arange(4), nobody.last_and_count, rng, lambda n: coins[:n]).size == 4


def test_a_poisson_coin_does_not_depend_on_who_else_is_there() -> None:
    users, nobody = 200, ParticipationRecord(200)
    coins = np.random.default_rng(3).random(users)
    chooser, rng = Selector(Poisson(0.4), 1, 80), np.random.default_rng(0)
    everybody = chooser.select(0, np.arange(users), nobody.last_and_count, rng, lambda n: coins[:n])
    half = np.arange(1, users, 2)
    some = chooser.select(0, half, nobody.last_and_count, rng, lambda n: coins[:n])
    assert some.tolist() == np.intersect1d(everybody, half).tolist()


def test_poisson_neither_fills_nor_cuts_a_cohort() -> None:
    chooser, nobody = Selector(Poisson(1.0), 3, 2), ParticipationRecord(50)
    assert (
        chooser.select(
            0, np.arange(50), nobody.last_and_count, np.random.default_rng(0), np.random.default_rng(0).random
        ).size
        == 50
    )
    rare = Selector(Poisson(1e-9), 3, 2)
    assert (
        rare.select(
            0, np.arange(50), nobody.last_and_count, np.random.default_rng(0), np.random.default_rng(0).random
        ).size
        == 0
    )
    assert (
        rare.select(0, [], nobody.last_and_count, np.random.default_rng(0), np.random.default_rng(0).random).size == 0
    )


def test_a_cyclic_user_has_one_group_for_the_whole_run() -> None:
    users, groups = 300, 4
    taken, rng = ParticipationRecord(users), np.random.default_rng(2)
    chooser = selector(CyclicPoisson(groups, 0.5), 40, 10)
    for t in range(40):
        taken.add(t, chooser.select(t, np.arange(users), taken.last_and_count, rng, rng.random))
    residues = [{t % groups for t in pattern} for pattern in taken.patterns(np.arange(users))]
    assert all(len(seen) <= 1 for seen in residues)
    sizes = np.bincount([next(iter(seen)) for seen in residues if seen], minlength=groups)
    assert uniform(sizes, users / groups)


def test_places_follow_from_the_key_and_not_from_how_many_users_there_are() -> None:
    few, many = selector(FixedOrder(7), 20, 5), selector(FixedOrder(7), 20, 5)
    other = selector(FixedOrder(7), 20, 5, seed=6)
    assert few._places is not None
    assert many._places is not None
    assert other._places is not None
    before = few._places.of(np.arange(1000))
    assert np.array_equal(many._places.of(np.arange(200_000))[:1000], before)
    assert np.array_equal(few._places.of(np.arange(200_000))[:1000], before)
    assert not np.array_equal(other._places.of(np.arange(1000)), before)


def test_fixed_order_deals_equal_cohorts_and_epochs_repeat() -> None:
    users, period = 700, 7
    taken, rng = ParticipationRecord(users), np.random.default_rng(3)
    chooser = selector(FixedOrder(period), 21, 100)
    cohorts = []
    for t in range(21):
        cohorts.append(chooser.select(t, np.arange(users), taken.last_and_count, rng, rng.random))
        taken.add(t, cohorts[-1])
    assert [cohort.size for cohort in cohorts] == [100] * 21
    for t in range(14):
        assert np.array_equal(cohorts[t], cohorts[t + period])
    assert np.array_equal(np.sort(np.concatenate(cohorts[:period])), np.arange(users))


def test_over_selection_asks_more_and_takes_what_there_is() -> None:
    taken, rng = ParticipationRecord(100), np.random.default_rng(4)
    chooser = Selector(Single(), 10, 20, 1.25, fewest=20)
    sizes = []
    for t in range(4):
        cohort = chooser.select(t, np.arange(100), taken.last_and_count, rng, rng.random)
        sizes.append(cohort.size)
        taken.add(t, cohort)
    assert sizes == [25, 25, 25, 25]
    with pytest.raises(NotEnoughUsers, check=coded("not-enough-users", "the cohort of round 5")) as refusal:
        chooser.select(4, np.arange(100), taken.last_and_count, rng, rng.random)
    assert refusal.value.standing == Eligibility(available=100, eligible=0, resting=0, exhausted=100)


@pytest.mark.parametrize("users", [1_000, 1_000_000])
def test_a_round_looks_at_two_cohorts_whatever_the_number_of_users(users: int) -> None:
    chooser, asked = selector(MinSeparation(8), 64, 50), list[int]()

    def taken(some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        asked.append(some.size)
        return np.full(some.size, -1, np.int32), np.zeros(some.size, np.int32)

    everyone = np.arange(users)
    cohort = chooser.select(3, everyone, taken, np.random.default_rng(1), lambda count: np.zeros(count), everyone)
    assert cohort.size == 50
    assert asked == [100]


def test_the_refusal_says_who_rests() -> None:
    taken, rng = ParticipationRecord(10), np.random.default_rng(4)
    taken.add(0, np.arange(6))
    chooser = Selector(MinSeparation(3, 2), 10, 5, fewest=5)
    with pytest.raises(NotEnoughUsers, check=coded("not-enough-users", "the cohort of round 2")):
        chooser.select(1, np.arange(10), taken.last_and_count, rng, rng.random)


def test_the_same_key_selects_the_same_cohort() -> None:
    taken = ParticipationRecord(5000)
    picks = [
        Selector(Single(), 3, 10).select(
            0, np.arange(5000), taken.last_and_count, np.random.default_rng(9), np.random.default_rng(9).random
        )
        for _ in range(2)
    ]
    assert np.array_equal(*picks)


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda: Selector(Poisson(0.1), 5, 5, 1.2), coded("conflict", "over_selection")),
        (lambda: Selector(CyclicPoisson(2, 0.1), 5, 5, 1.2), coded("conflict", "over_selection")),
        (lambda: Selector(FixedOrder(3), 5, 5), coded("not-given", "order")),
        (lambda: Selector(CyclicPoisson(3, 0.1), 5, 5), coded("not-given", "order")),
        (lambda: Selector(Single(), 0, 5), coded("out-of-range", "rounds")),
        (lambda: Selector(Single(), 5, 0), coded("out-of-range", "cohort")),
        (lambda: Selector(Single(), 5, 5, 0.5), coded("out-of-range", "over_selection")),
        (lambda: Selector(Single(), 5, 5, fewest=6), coded("out-of-range", "fewest")),
    ],
)
def test_refuses_what_it_cannot_enforce(build, what: Coded) -> None:
    with pytest.raises(BadInput, check=what):
        build()


def test_refuses_a_round_beyond_the_horizon() -> None:
    with pytest.raises(BadInput, check=coded("out-of-range", "round")):
        Selector(Single(), 5, 1).select(
            5,
            np.arange(3),
            ParticipationRecord(3).last_and_count,
            np.random.default_rng(0),
            np.random.default_rng(0).random,
        )


def sizes_of_a_run(chooser: Selector, users: int, seed: int = 0) -> list[int]:
    """The cohort sizes of a run in which all users stay and answer, until a round cannot be filled."""
    rng, taken = np.random.default_rng(seed), ParticipationRecord(users)
    sizes = []
    for t in range(chooser.rounds):
        try:
            chosen = chooser.select(t, np.arange(users), taken.last_and_count, rng, rng.random)
        except NotEnoughUsers:
            break
        taken.add(t, chosen)
        sizes.append(chosen.size)
    return sizes


def test_a_run_without_a_visit_to_spare_lasts_to_the_end() -> None:
    """F4: 30 x 100 = 3 000 = 500 x 6. Uniform cohorts end at round 28 with all of the budget spent."""
    for seed in range(3):
        assert sizes_of_a_run(selector(MinSeparation(4, 6), 30, 100, fewest=75), 500, seed) == [100] * 30


def test_cohorts_shrink_evenly_where_visits_are_short() -> None:
    """F4: 200 users x 4 = 800 visits, where 30 cohorts of 30 would be 900."""
    sizes = sizes_of_a_run(selector(MinSeparation(1, 4), 30, 30, fewest=22), 200)
    assert len(sizes) == 30
    assert min(sizes) == 26
    assert sum(sizes) <= 800


@settings(max_examples=150, deadline=None)
@given(
    scheme=st.one_of(
        st.just(Single()),
        st.builds(MinSeparation, st.integers(1, 6), st.none() | st.integers(1, 4)),
        st.builds(FixedOrder, st.integers(1, 6), st.none() | st.integers(1, 4)),
    ),
    users=st.integers(1, 80),
    rounds=st.integers(1, 16),
    cohort=st.integers(1, 12),
    share=st.floats(0.1, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_run_that_can_last_does_last(
    scheme: Participation, users: int, rounds: int, cohort: int, share: float, seed: int
) -> None:
    fewest = max(1, round(share * cohort))
    chooser = selector(scheme, rounds, cohort, seed=seed, fewest=fewest)
    taken = ParticipationRecord(users)
    possible = is_feasible(scheme, rounds, fewest, users)
    # For fixed order `is_feasible` assumes the least favourable deal; the selector knows the deal.
    lasting = chooser.can_last(0, np.arange(users), taken.last_and_count)
    assert lasting == possible or (lasting and isinstance(scheme, FixedOrder))
    sizes = sizes_of_a_run(chooser, users, seed)
    assert (len(sizes) == rounds) == lasting
    assert not sizes or min(sizes) >= fewest
    # An even run: once the size that all rounds can have is known, no later round is smaller.
    if lasting and not isinstance(scheme, FixedOrder):
        assert min(sizes) == min(cohort, max(m for m in range(1, cohort + 1) if is_feasible(scheme, rounds, m, users)))


def test_users_who_are_away_count_for_later_rounds() -> None:
    """Half of the users is online at a time: cohorts are not cut as if the others never came back."""
    users, rounds = 40, 8
    chooser, rng = selector(MinSeparation(1, 3), rounds, 10, fewest=5), np.random.default_rng(3)
    taken = ParticipationRecord(users)
    for t in range(rounds):
        online = np.arange(t % 2, users, 2)
        chosen = chooser.select(t, online, taken.last_and_count, rng, rng.random, np.arange(users))
        assert chosen.size == 10
        taken.add(t, chosen)
