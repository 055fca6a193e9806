"""The running charge: an upper bound on what is really distinguishable, monotone, within the reservation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldfare.accounting import PrivacyLoss, charge_for
from fieldfare.accounting.realised import RealisedCharge
from fieldfare.errors import BadInput
from fieldfare.factorization.sensitivity import Sensitivity
from fieldfare.factorization.toeplitz import inverse
from fieldfare.mechanisms.base import Mechanism
from fieldfare.mechanisms.independent import Independent
from fieldfare.mechanisms.toeplitz import ToeplitzMechanism
from fieldfare.participation import (
    CyclicPoisson,
    FixedOrder,
    MinSeparation,
    Participation,
    Poisson,
    Single,
    adjacency_factor,
)
from fieldfare.streams.base import Stream
from support.refusals import coded


def toeplitz(coefs: Sequence[float], rounds: int) -> ToeplitzMechanism:
    def no_stream(*args: object, **more: object) -> Stream:
        raise AssertionError("an accountant draws no noise")

    return ToeplitzMechanism("test", rounds, coefs, inverse(coefs, rounds), no_stream, buffers=0)


def square_root(rounds: int) -> ToeplitzMechanism:
    t = np.arange(1, rounds)
    return toeplitz(np.concatenate([[1.0], np.cumprod((2 * t - 1) / (2 * t))]), rounds)


class Opaque(Mechanism):
    """The same mathematics as another mechanism, of a class that the accountant knows nothing about."""

    kind = "opaque"

    def __init__(self, inner: ToeplitzMechanism) -> None:
        self.inner, self.rounds = inner, inner.rounds

    def strategy_matrix(self, n: int):
        return self.inner.strategy_matrix(n)

    def noising_matrix(self, n: int):
        return self.inner.noising_matrix(n)

    def sensitivity(self, participation: Participation, rounds: int | None = None) -> Sensitivity:
        return self.inner.sensitivity(participation, rounds)

    def pattern_norms(self, patterns, rounds: int | None = None):
        return self.inner.pattern_norms(patterns, rounds)

    def row_norms(self, n: int | None = None):
        return self.inner.row_norms(n)

    def prefix_row_norms(self, n: int | None = None):
        return self.inner.prefix_row_norms(n)

    def stream(self, *args, **more) -> Stream:
        return self.inner.stream(*args, **more)

    @property
    def buffers(self) -> int:
        return 0


MECHANISMS = st.sampled_from(["independent", "root", "banded", "signed", "opaque"])


def build(name: str, rounds: int) -> Mechanism:
    if name == "independent":
        return Independent(rounds)
    if name == "banded":
        return toeplitz([1.0, 0.5, 0.25], rounds)
    if name == "signed":
        return toeplitz([1.0, -0.5, 0.25, -0.3], rounds)
    return Opaque(square_root(rounds)) if name == "opaque" else square_root(rounds)


def schedule(participation: Participation, users: int, rounds: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Random allowed participants of each round."""
    patterns: list[list[int]] = [[] for _ in range(users)]
    out = []
    for t in range(rounds):
        chosen = [u for u in range(users) if rng.random() < 0.5 and participation.allows((*patterns[u], t), rounds)]
        for u in chosen:
            patterns[u].append(t)
        out.append(np.array(chosen, dtype=np.int64))
    return out


def patterns_of(cohorts: list[np.ndarray], users: int) -> list[tuple[int, ...]]:
    return [tuple(t for t, cohort in enumerate(cohorts) if u in cohort) for u in range(users)]


@settings(max_examples=80, deadline=None)
@given(
    name=MECHANISMS,
    participation=st.one_of(
        st.just(Single()),
        st.builds(MinSeparation, st.integers(1, 5), st.none() | st.integers(1, 3)),
        st.builds(FixedOrder, st.integers(1, 5)),
        st.just(Poisson(0.3)),
        st.just(CyclicPoisson(3, 0.3)),
    ),
    rounds=st.integers(1, 14),
    adjacency=st.sampled_from(["zero_out", "replace_one"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_charge_is_a_monotone_bound_within_the_reservation(name, participation, rounds, adjacency, seed) -> None:
    rng, users, sigma = np.random.default_rng(seed), 6, 1.7
    mechanism = build(name, rounds)
    charge = RealisedCharge(mechanism, participation, sigma, adjacency, users=2)
    cohorts = schedule(participation, users, rounds, rng)
    before = PrivacyLoss()
    for t, cohort in enumerate(cohorts):
        spent = charge.add(t, cohort)
        planned = charge_for(mechanism, participation, sigma, t + 1, adjacency)
        assert before.mu_squared <= spent.mu_squared <= charge.planned.mu_squared
        assert spent.mu_squared <= planned.mu_squared * (1 + 1e-12) or name == "opaque"
        # What is really distinguishable: the columns of C in a user's pattern, rows released so far.
        c = np.abs(mechanism.strategy_matrix(rounds)[: t + 1].T @ mechanism.strategy_matrix(rounds)[: t + 1])
        for pattern in patterns_of(cohorts[: t + 1], users):
            chosen = list(pattern)
            real = adjacency_factor(adjacency) ** 2 * c[np.ix_(chosen, chosen)].sum() / sigma**2
            assert real <= spent.mu_squared * (1 + 1e-12)
        before = spent
    patterns = patterns_of(cohorts, users)
    assert charge.largest_norm == pytest.approx(float(max(mechanism.pattern_norms(patterns))), rel=1e-12, abs=1e-12)
    again = RealisedCharge.restored(mechanism, participation, sigma, adjacency, patterns, rounds)
    assert again.spent == before


@pytest.mark.parametrize("name", ["root", "opaque"])
def test_what_odometers_ask_first_changes_no_charge(name: str) -> None:
    rng, users, rounds = np.random.default_rng(5), 6, 8
    asked, plain = (RealisedCharge(build(name, rounds), MinSeparation(2), 1.7) for _ in range(2))
    for t, cohort in enumerate(schedule(MinSeparation(2), users, rounds, rng)):
        others = np.setdiff1d(np.arange(users), cohort)
        for who in (cohort, others, cohort[::-1]) if t % 2 else (others, cohort):
            grown = who.copy()
            asked.growth(t, grown)
            grown[:] = 0  # the caller's own array
        assert asked.add(t, cohort) == plain.add(t, cohort)
        assert asked.largest_norm == plain.largest_norm


def test_opaque_and_known_mechanisms_agree_on_norms() -> None:
    rounds, participation = 40, MinSeparation(3)
    cohorts = schedule(participation, 10, rounds, np.random.default_rng(0))
    known, opaque = (RealisedCharge(m, participation, 1.0) for m in (square_root(rounds), Opaque(square_root(rounds))))
    for t, cohort in enumerate(cohorts):
        known.add(t, cohort)
        opaque.add(t, cohort)
        assert opaque.largest_norm == pytest.approx(known.largest_norm, rel=1e-12)
        assert opaque.spent.mu_squared >= known.spent.mu_squared * (1 - 1e-12)
    assert opaque.spent.mu_squared == pytest.approx(known.spent.mu_squared, rel=1e-12)


def test_fft_and_direct_products_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds, participation = 600, MinSeparation(7)
    cohorts = schedule(participation, 8, rounds, np.random.default_rng(1))
    direct, fft = (RealisedCharge(square_root(rounds), participation, 1.0) for _ in range(2))
    for t, cohort in enumerate(cohorts):
        direct.add(t, cohort)
    monkeypatch.setattr("fieldfare.factorization.toeplitz._DIRECT", 0)
    for t, cohort in enumerate(cohorts):
        fft.add(t, cohort)
    assert fft.largest_norm == pytest.approx(direct.largest_norm, rel=1e-10)
    assert fft.largest_norm >= direct.largest_norm


def test_users_that_never_took_part_twice_cost_what_one_participation_costs() -> None:
    mechanism, participation = square_root(50), MinSeparation(5)
    charge = RealisedCharge(mechanism, participation, 3.0)
    for t in range(50):
        charge.add(t, np.array([2 * t, 2 * t + 1]))
    assert charge.spent.mu == pytest.approx(float(mechanism.sensitivity(Single())) / 3.0)
    assert charge.spent.mu < 0.6 * charge.planned.mu


def test_an_empty_run_costs_nothing() -> None:
    charge = RealisedCharge(square_root(5), MinSeparation(2), 1.0)
    for t in range(5):
        assert charge.add(t, np.empty(0, dtype=np.int64)) == PrivacyLoss()


def test_add_remove_charges_the_plan_whoever_was_drawn() -> None:
    mechanism, participation = Independent(20), Poisson(0.1)
    lucky = RealisedCharge(mechanism, participation, 1.0, "add_remove")
    unlucky = RealisedCharge(mechanism, participation, 1.0, "add_remove")
    for t in range(20):
        lucky.add(t, np.empty(0, dtype=np.int64))
        unlucky.add(t, np.arange(3))
        assert lucky.spent == unlucky.spent == charge_for(mechanism, participation, 1.0, t + 1, "add_remove")


@pytest.mark.parametrize(
    ("participation", "first", "second"),
    [
        (Single(), 0, 5),
        (MinSeparation(4), 0, 3),
        (MinSeparation(1, 1), 0, 1),
        (FixedOrder(4), 0, 5),
        (CyclicPoisson(4, 0.5), 0, 6),
    ],
)
def test_a_pattern_that_the_plan_did_not_price_is_refused_and_not_counted(participation, first, second) -> None:
    charge = RealisedCharge(square_root(10), participation, 1.0)
    spent = charge.add(first, np.array([3]))
    with pytest.raises(BadInput, check=coded("not-allowed", "user")):
        charge.add(second, np.array([1, 3]))
    assert charge.spent == spent
    charge.add(second, np.array([1]))


@pytest.mark.parametrize("users", [[1, 1], [-1, 2]])
def test_participants_are_distinct_users(users: list[int]) -> None:
    with pytest.raises(BadInput, check=coded("out-of-range", "the participants of round")):
        RealisedCharge(square_root(4), MinSeparation(1), 1.0).add(0, np.array(users))


def test_rounds_come_in_order() -> None:
    charge = RealisedCharge(square_root(4), MinSeparation(1), 1.0)
    charge.add(1, np.array([0]))
    for round in (0, 1, 4):
        with pytest.raises(BadInput, check=coded("out-of-range", "round")):
            charge.add(round, np.array([2]))


def test_restored_refuses_rounds_that_are_not_committed() -> None:
    with pytest.raises(BadInput, check=coded("out-of-range", "participation in rounds")):
        RealisedCharge.restored(square_root(10), MinSeparation(3), 1.0, "zero_out", [(0,), (), (2,)], 2)
