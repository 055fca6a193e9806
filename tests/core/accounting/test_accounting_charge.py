"""What a run costs, and the noise that makes it cost so much: which amplification is earned and which is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldfare import mechanisms
from fieldfare.accounting import (
    PoissonGaussian,
    PrivacyLoss,
    amplification,
    calibrate,
    charge_for,
    gaussian_mu,
)
from fieldfare.errors import BadInput, BudgetRefused
from fieldfare.factorization.toeplitz import inverse
from fieldfare.mechanisms import Mechanism
from fieldfare.mechanisms.independent import Independent
from fieldfare.mechanisms.toeplitz import ToeplitzMechanism
from fieldfare.participation import CyclicPoisson, FixedOrder, MinSeparation, Participation, Poisson, Single
from support.refusals import coded

ROWS = {
    row["id"]: row
    for row in json.loads((Path(__file__).parents[2] / "reference" / "accounting.json").read_text())["rows"]
}


def toeplitz(coefs: Sequence[float], rounds: int) -> ToeplitzMechanism:
    def no_stream(*args: object, **more: object) -> None:
        raise AssertionError("an accountant draws no noise")

    return ToeplitzMechanism("test", rounds, coefs, inverse(coefs, rounds), no_stream, buffers=0)  # type: ignore


@pytest.mark.parametrize("bands", [1, 4, 16, 64])
def test_a_banded_strategy_with_cyclic_poisson_costs_what_is_published(bands: int) -> None:
    """n = 1024, N = 65536, cohort 256: rate bands * 256 / 65536 within each of `bands` groups."""
    row = ROWS[f"bandmf_amp_b{bands}"]
    coefs = np.linspace(1, 0.3, bands)
    mechanism = toeplitz(coefs / np.linalg.norm(coefs), 1024)
    participation = CyclicPoisson(bands, bands * 256 / 65536)
    loss = charge_for(mechanism, participation, 1.0, 1024, "add_remove")
    (event,) = loss.sampled
    assert (event.count, event.rate) == (1024 // bands, bands * 256 / 65536)
    assert event.noise_multiplier == pytest.approx(1.0, rel=1e-12)
    assert loss.epsilon(row["params"]["delta"]) == pytest.approx(row["value"], abs=5e-5)


@settings(max_examples=100, deadline=None)
@given(
    sigma=st.floats(0.1, 20),
    rounds=st.integers(1, 30),
    participation=st.one_of(
        st.just(Single()),
        st.builds(MinSeparation, st.integers(1, 9), st.none() | st.integers(1, 4)),
        st.builds(FixedOrder, st.integers(1, 9)),
        st.just(Poisson(0.2)),
        st.just(CyclicPoisson(3, 0.2)),
    ),
    name=st.sampled_from(["independent", "optimal-cc"]),
)
def test_gaussian_charges_are_sensitivity_over_sigma_and_monotone(
    sigma: float, rounds: int, participation: Participation, name: str
) -> None:
    mechanism = mechanisms.build({"kind": name}, 30, participation)
    loss = charge_for(mechanism, participation, sigma, rounds, "zero_out")
    assert loss.mu == pytest.approx(float(mechanism.sensitivity(participation, rounds)) / sigma, rel=1e-12)
    assert loss.rho == pytest.approx(loss.mu**2 / 2)
    assert loss.sampled == ()
    twice = charge_for(mechanism, participation, sigma, rounds, "replace_one")
    assert twice.mu == pytest.approx(2 * loss.mu)
    assert charge_for(mechanism, participation, sigma, rounds - 1, "zero_out").mu <= loss.mu


def test_no_rounds_cost_nothing() -> None:
    assert charge_for(Independent(5), Single(), 1.0, 0) == PrivacyLoss()
    assert charge_for(Independent(5), Poisson(0.1), 1.0, 0, "add_remove") == PrivacyLoss()


def test_an_approximation_is_charged_as_itself() -> None:
    """I3: the fast engine's own C decides, not that of the mechanism it approximates."""
    exact = mechanisms.build({"kind": "optimal-cc", "engine": "exact"}, 300, None)
    fast = mechanisms.build({"kind": "optimal-cc", "engine": "fast"}, 300, None)
    c = fast.strategy_matrix(300)
    assert charge_for(fast, Single(), 1.0, 300).mu == pytest.approx(float(np.linalg.norm(c, axis=0).max()), rel=1e-9)
    assert not np.array_equal(c, exact.strategy_matrix(300))


@pytest.mark.parametrize(
    ("participation", "adjacency", "coefs", "why"),
    [
        (MinSeparation(4), "zero_out", [1.0], "not sampled independently"),
        (Single(), "replace_one", [1.0], "not sampled independently"),
        (Poisson(0.1), "zero_out", [1.0], "'zero_out'"),
        (Poisson(0.1), "replace_one", [1.0], "'replace_one'"),
        (Poisson(0.1), "add_remove", [1.0, 0.5], "2 bands with 1 group"),
        (CyclicPoisson(3, 0.1), "add_remove", [1.0, 0.5, 0.2, 0.1], "4 bands with 3 group"),
    ],
)
def test_amplification_that_is_not_earned_is_not_charged(participation, adjacency, coefs, why) -> None:
    mechanism = toeplitz(coefs, 12)
    judged = amplification(mechanism, participation, adjacency)
    assert not judged.holds
    assert why in judged.why
    assert charge_for(mechanism, participation, 1.0, 12, adjacency).sampled == ()


def test_sampling_with_wide_bands_is_charged_for_every_round_that_a_coin_may_pick() -> None:
    mechanism = toeplitz([1.0, 0.5], 10)
    loss = charge_for(mechanism, Poisson(0.01), 1.0, 10, "add_remove")
    assert loss.mu == pytest.approx(float(np.linalg.norm(mechanism.strategy_matrix(10).sum(axis=1))))


@pytest.mark.parametrize("participation", [Single(), MinSeparation(3), FixedOrder(3)])
def test_add_remove_needs_independent_sampling(participation: Participation) -> None:
    with pytest.raises(BadInput, check=coded("unsupported", "adjacency", "zero_out")):
        charge_for(Independent(9), participation, 1.0, 9, "add_remove")
    with pytest.raises(BadInput, check=coded("unsupported", "adjacency", "zero_out")):
        calibrate(Independent(9), participation, epsilon=1.0, delta=1e-6, adjacency="add_remove")


def test_so_little_noise_that_no_grid_fits_is_refused_with_the_reason() -> None:
    with pytest.raises(BadInput, check=coded("out-of-range", "noise_multiplier", "1000", "0.01", "4194304")):
        charge_for(Independent(1000), Poisson(0.1), 0.01, 1000, "add_remove")


def test_calibration_to_a_loose_target_meets_that_refusal_and_goes_on() -> None:
    sigma = calibrate(Independent(10), Poisson(0.5), epsilon=900.0, delta=1e-6, adjacency="add_remove")
    assert charge_for(Independent(10), Poisson(0.5), sigma, 10, "add_remove").epsilon(1e-6) <= 900.0


def test_cyclic_events_after_every_round() -> None:
    counts = [
        sum(e.count for e in charge_for(Independent(10), CyclicPoisson(4, 0.1), 1.0, t, "add_remove").sampled)
        for t in range(11)
    ]
    assert counts == [0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3]


def test_the_event_uses_the_largest_column_of_the_real_strategy() -> None:
    mechanism = toeplitz([1.0, 0.75], 8)
    (event,) = charge_for(mechanism, CyclicPoisson(2, 0.1), 2.5, 8, "add_remove").sampled
    assert event.noise_multiplier == pytest.approx(2.5 / 1.25)


@pytest.mark.parametrize(
    ("spec", "bands"),
    [
        ({"kind": "independent"}, 1),
        ({"kind": "banded", "bands": 3}, 3),
        ({"kind": "banded", "bands": 3, "column_normalised": True}, 3),
        ({"kind": "optimal-cc", "engine": "exact"}, 16),
        ({"kind": "optimal-cc", "engine": "exact", "restart_every": 4}, 4),
        ({"kind": "tree"}, None),
    ],
)
def test_bandwidth_is_read_off_the_strategy(spec: dict, bands: int | None) -> None:
    mechanism = mechanisms.build(spec, 16, None)
    assert mechanism.bandwidth() == bands
    if bands is not None:
        rows, columns = np.nonzero(mechanism.strategy_matrix(16))
        assert int((rows - columns).max()) + 1 <= bands
        assert (rows >= columns).all()


def test_columns_of_one_group_share_no_row() -> None:
    """The premise of the reduction, for every mechanism that it is applied to."""
    for spec in ({"kind": "banded", "bands": 3}, {"kind": "banded", "bands": 3, "column_normalised": True}):
        c = mechanisms.build(spec, 16, None).strategy_matrix(16) != 0
        for group in range(3):
            assert c[:, group::3].sum(axis=1).max() == 1


def test_a_matrix_too_large_to_inspect_is_not_called_banded() -> None:
    class Large(Mechanism):
        kind = "large"
        rounds = 5000
        buffers = 0
        strategy_matrix = noising_matrix = sensitivity = pattern_norms = None  # type: ignore
        row_norms = prefix_row_norms = stream = None  # type: ignore

    assert Large().bandwidth() is None


@settings(max_examples=60, deadline=None)
@given(
    epsilon=st.floats(0.01, 50),
    delta=st.floats(1e-10, 1e-2),
    spent=st.floats(0, 0.99),
    adjacency=st.sampled_from(["zero_out", "replace_one"]),
)
def test_calibrated_noise_is_enough_and_least(epsilon: float, delta: float, spent: float, adjacency) -> None:
    mechanism, participation = mechanisms.build({"kind": "optimal-cc"}, 40, None), MinSeparation(10)
    already = PrivacyLoss((spent * gaussian_mu(epsilon, delta)) ** 2)
    sigma = calibrate(mechanism, participation, epsilon=epsilon, delta=delta, adjacency=adjacency, already=already)
    assert (already + charge_for(mechanism, participation, sigma, 40, adjacency)).epsilon(delta) <= epsilon
    less = already + charge_for(mechanism, participation, sigma * (1 - 1e-9), 40, adjacency)
    assert less.epsilon(delta) > epsilon


def test_calibrated_noise_of_a_sampled_run() -> None:
    mechanism, participation = Independent(200), Poisson(0.02)
    sigma = calibrate(mechanism, participation, epsilon=1.5, delta=1e-6, adjacency="add_remove")
    epsilon = charge_for(mechanism, participation, sigma, 200, "add_remove").epsilon(1e-6)
    assert 1.5 * (1 - 1e-4) < epsilon <= 1.5
    assert sigma < 0.3 * calibrate(mechanism, participation, epsilon=1.5, delta=1e-6)


@pytest.mark.slow
def test_calibrated_noise_of_amplified_bands_is_below_renyi_accounting() -> None:
    row = ROWS["calib_bandmf16_e8.0"]
    mechanism = toeplitz(np.full(16, 0.25), 1024)
    sigma = calibrate(
        mechanism,
        CyclicPoisson(16, 16 * 256 / 65536),
        epsilon=8.0,
        delta=row["params"]["delta"],
        adjacency="add_remove",
    )
    assert 0.9 * row["value"] < sigma < row["value"]


@pytest.mark.slow
def test_a_gaussian_run_after_a_sampled_one() -> None:
    already = PrivacyLoss(sampled=(PoissonGaussian(0.02, 1.5, 100),))
    sigma = calibrate(Independent(4), Single(), epsilon=2.0, delta=1e-6, already=already)
    loss = already + charge_for(Independent(4), Single(), sigma, 4)
    assert 2.0 * (1 - 1e-4) < loss.epsilon(1e-6) <= 2.0


def test_nothing_left_is_a_refusal_of_the_budget() -> None:
    with pytest.raises(BudgetRefused, check=coded("budget-refused", "epsilon")):
        calibrate(Independent(4), Single(), epsilon=1.0, delta=1e-6, already=PrivacyLoss(gaussian_mu(1.0, 1e-6) ** 2))
    with pytest.raises(BudgetRefused, check=coded("budget-refused", "epsilon")):
        calibrate(Independent(4), Single(), epsilon=1.0, delta=1e-6, already=PrivacyLoss(9.0))


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.0, 1e-6), (-1.0, 1e-6), (math.inf, 1e-6), (math.nan, 1e-6), (1.0, 0.0), (1.0, 1.0)]
)
def test_targets_that_are_none(epsilon: float, delta: float) -> None:
    with pytest.raises(BadInput):
        calibrate(Independent(4), Single(), epsilon=epsilon, delta=delta)


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-4, 1e-6), (1.0, 1e-13)])
def test_sampled_targets_beyond_the_grid_are_refused_with_the_reason(epsilon: float, delta: float) -> None:
    with pytest.raises(BadInput, check=coded("too-large", "epsilon")):
        calibrate(Independent(4), Poisson(0.1), epsilon=epsilon, delta=delta, adjacency="add_remove")


@pytest.mark.parametrize(("sigma", "rounds"), [(0.0, 1), (-1.0, 1), (math.inf, 1), (math.nan, 1), (1.0, -1), (1.0, 5)])
def test_charges_that_are_none(sigma: float, rounds: int) -> None:
    with pytest.raises(BadInput):
        charge_for(Independent(4), Single(), sigma, rounds)
