"""Amplification by sampling: upper bounds only, close to other people's, on grids that cannot grow without limit."""

from __future__ import annotations

import json
import math
from pathlib import Path

import mpmath
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant, privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldfare.accounting import PoissonGaussian, PrivacyLoss, calibrate, charge_for, gaussian_epsilon
from fieldfare.accounting import sampled as numerical
from fieldfare.accounting.gaussian import gaussian_mu
from fieldfare.errors import BadInput
from fieldfare.mechanisms import build
from fieldfare.mechanisms.independent import Independent
from fieldfare.participation import CyclicPoisson, Poisson, TruncatedPoisson

REFERENCE = json.loads((Path(__file__).parents[2] / "reference" / "accounting.json").read_text())
ROWS = {row["id"]: row for row in REFERENCE["rows"]}


def loss(rate: float, sigma: float, count: int, mu_squared: float = 0.0) -> PrivacyLoss:
    return PrivacyLoss(mu_squared, (PoissonGaussian(rate, sigma, count),))


@pytest.mark.parametrize("bands", [1, 4, 16, 64])
def test_amplified_banded_strategies(bands: int) -> None:
    row = ROWS[f"bandmf_amp_b{bands}"]
    found = loss(bands * 256 / 65536, 1.0, 1024 // bands).epsilon(row["params"]["delta"])
    assert found == pytest.approx(row["value"], abs=5e-5)


@pytest.mark.parametrize("row", [r for r in ROWS.values() if r["id"].startswith("prv_")], ids=lambda r: r["id"])
def test_epsilon_lies_in_the_interval_of_prv_accountant(row: dict) -> None:
    p = row["params"]
    lower, estimate, upper = row["value"]
    found = loss(p["q"], p["sigma"], p["T"]).epsilon(p["delta"])
    assert lower <= found <= upper
    assert found == pytest.approx(estimate, rel=2e-5)


def test_epsilon_of_dp_accounting_recorded() -> None:
    row = ROWS["dpsgd_pld_nm4.0_q0.1_T512"]
    p = row["params"]
    assert loss(p["q"], p["sigma"], p["T"]).epsilon(p["delta"]) == pytest.approx(row["value"], rel=2e-5)


def test_epsilon_noise_and_rounds_of_a_published_example() -> None:
    """Printed to two decimals; 155 is the last number of rounds within epsilon = 2."""
    p = ROWS["pub_jp_dpsgd_eps"]["params"]
    found = loss(p["q"], p["sigma"], p["T"]).epsilon(p["delta"])
    assert round(found, 2) == ROWS["pub_jp_dpsgd_eps"]["value"]
    row = ROWS["pub_jp_dpsgd_steps"]
    rate, sigma, target, delta = (row["params"][key] for key in ("q", "sigma", "eps", "delta"))
    assert loss(rate, sigma, row["value"]).epsilon(delta) <= target < loss(rate, sigma, row["value"] + 1).epsilon(delta)
    row = ROWS["pub_jp_dpsgd_sigma"]
    rate, rounds, target, delta = (row["params"][key] for key in ("q", "T", "eps", "delta"))
    schedule = Poisson(rate)
    noise = calibrate(Independent(rounds), schedule, epsilon=target, delta=delta, adjacency="add_remove")
    assert round(noise, 2) == row["value"]


def test_epsilon_of_another_numerical_accountant() -> None:
    p = ROWS["opacus_prv_nm4.0_q0.1_T512"]["params"]
    found = loss(p["q"], p["sigma"], p["T"]).epsilon(p["delta"])
    assert found == pytest.approx(ROWS["opacus_prv_nm4.0_q0.1_T512"]["value"], abs=0.02)


@pytest.mark.parametrize("name", ["opacus_gdp_nm0.8_q0.01_T2000", "opacus_gdp_nm4.0_q0.1_T512"])
def test_the_central_limit_approximation_is_no_bound(name: str) -> None:
    """q sqrt(T (e^(1/sigma^2) - 1))-GDP (Bu et al. 2020) reports less than even an optimistic accountant proves."""
    p = ROWS[name]["params"]
    limit = p["q"] * math.sqrt(p["T"] * math.expm1(p["sigma"] ** -2))
    assert gaussian_epsilon(limit, p["delta"]) == pytest.approx(ROWS[name]["value"], rel=1e-9)
    optimistic = privacy_loss_distribution.from_gaussian_mechanism(
        p["sigma"], sampling_prob=p["q"], pessimistic_estimate=False, use_connect_dots=False
    ).self_compose(p["T"])
    needed = optimistic.get_epsilon_for_delta(p["delta"])
    assert ROWS[name]["value"] < needed <= loss(p["q"], p["sigma"], p["T"]).epsilon(p["delta"])


@pytest.mark.parametrize(
    "row",
    [r for r in ROWS.values() if r["id"].startswith(("dpsgd_rdp", "opacus_rdp"))],
    ids=lambda r: r["id"],
)
def test_never_above_renyi_accounting_nor_above_no_amplification(row: dict) -> None:
    p = row["params"]
    found = loss(p["q"], p["sigma"], p["T"])
    assert found.epsilon(p["delta"]) < row["value"]
    assert found.epsilon(p["delta"]) < found.without_amplification().epsilon(p["delta"])


@pytest.mark.parametrize(("rate", "sigma", "count"), [(0.2, 1.5, 20), (0.05, 0.7, 50), (0.01, 1.0, 300)])
def test_between_the_optimistic_and_the_pessimistic_dp_accounting(rate: float, sigma: float, count: int) -> None:
    accountant = PLDAccountant()
    accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(sigma)), count)
    optimistic = privacy_loss_distribution.from_gaussian_mechanism(
        sigma, sampling_prob=rate, pessimistic_estimate=False, use_connect_dots=False
    ).self_compose(count)
    for delta in (1e-9, 1e-6, 1e-3):
        found = loss(rate, sigma, count).epsilon(delta)
        assert found >= optimistic.get_epsilon_for_delta(delta)
        assert found == pytest.approx(accountant.get_epsilon(delta), rel=2e-4)


def exact_single(rate: float, sigma: float, epsilon: float) -> tuple[float, float]:
    """delta of one sampled event in both orders, with 50 digits, integrated over where the difference is positive."""
    with mpmath.workdps(50):
        q, s, e = mpmath.mpf(rate), mpmath.mpf(sigma), mpmath.exp(mpmath.mpf(epsilon))
        # (1 - q) p + q p1 > e p  <=>  p1/p > (e - 1 + q) / q  <=>  x > s^2 log(.) + 1/2
        x = s**2 * mpmath.log((e - 1 + q) / q) + mpmath.mpf(1) / 2
        with_user = q * (1 - mpmath.ncdf((x - 1) / s)) + (1 - q - e) * (1 - mpmath.ncdf(x / s))
        without_user = mpmath.mpf(0)
        w = 1 - e * (1 - q)
        if w > 0:
            x = s**2 * mpmath.log(w / (q * e)) + mpmath.mpf(1) / 2
            without_user = w * mpmath.ncdf(x / s) - e * q * mpmath.ncdf((x - 1) / s)
        return float(with_user), float(without_user)


@pytest.mark.parametrize("rate", [1e-4, 0.01, 0.3, 0.99])
@pytest.mark.parametrize("sigma", [0.4, 1.0, 8.0])
def test_one_event_is_a_tight_upper_bound_of_the_closed_form(rate: float, sigma: float) -> None:
    for epsilon in (0.0, 0.001, 0.05, 0.5, 2.0, 6.0):
        exact = max(exact_single(rate, sigma, epsilon))
        found = loss(rate, sigma, 1).delta(epsilon)
        assert found >= exact
        assert found <= exact * (1 + 2e-3) + 1e-11


@pytest.mark.parametrize(("sigma", "count"), [(10.0, 100), (1.0, 1), (40.0, 10_000), (0.5, 4), (0.02, 1)])
@pytest.mark.parametrize("delta", [1e-11, 1e-8, 1e-3])
def test_at_rate_one_the_grid_bounds_the_exact_gaussian_tightly(sigma: float, count: int, delta: float) -> None:
    """Also large losses, where e^epsilon overflows: a curve that is too low there would be a breach, not an error."""
    exact = gaussian_epsilon(math.sqrt(count) / sigma, delta)
    grid = numerical.epsilon(0.0, (PoissonGaussian(1.0, sigma, count),), delta)
    assert exact <= grid <= exact * (1 + 0.02)
    # The composition with a Gaussian part goes through the grid as well.
    both = numerical.epsilon(1 / sigma**2, (PoissonGaussian(1.0, sigma, count),), delta)
    assert gaussian_epsilon(math.sqrt(count + 1) / sigma, delta) <= both


@pytest.mark.parametrize("mu_squared", [0.01, 1.0, 1e4])
def test_a_gaussian_beside_sampled_events_costs_at_least_itself(mu_squared: float) -> None:
    whole = loss(0.01, 1.0, 1000, mu_squared)
    alone = gaussian_epsilon(math.sqrt(mu_squared), 1e-6)
    assert max(alone, loss(0.01, 1.0, 1000).epsilon(1e-6)) <= whole.epsilon(1e-6) <= alone + 4
    assert whole.epsilon(1e-6) <= whole.without_amplification().epsilon(1e-6)


EVENTS = st.builds(PoissonGaussian, st.sampled_from([0.02, 0.3]), st.sampled_from([1.0, 3.0]), st.integers(1, 20))
LOSSES = st.builds(PrivacyLoss, st.floats(0, 4), st.lists(EVENTS, max_size=2).map(tuple))


@settings(deadline=None)
@given(LOSSES, LOSSES)
def test_composition_commutes_and_round_trips(a: PrivacyLoss, b: PrivacyLoss) -> None:
    assert a + b == b + a
    assert a + PrivacyLoss() == a
    assert PrivacyLoss.from_json((a + b).to_json()) == a + b
    assert hash(a + b) == hash(b + a)
    assert sum(e.count for e in (a + b).sampled) == sum(e.count for e in a.sampled + b.sampled)


@settings(deadline=None)
@given(LOSSES, LOSSES, LOSSES)
def test_composition_is_associative_to_rounding(a: PrivacyLoss, b: PrivacyLoss, c: PrivacyLoss) -> None:
    left, right = (a + b) + c, a + (b + c)
    assert left.sampled == right.sampled
    assert left.mu_squared == pytest.approx(right.mu_squared, rel=1e-15)


@settings(max_examples=3, deadline=None)
@given(a=LOSSES, b=LOSSES, delta=st.sampled_from([1e-8, 1e-5, 1e-2]))
def test_epsilon_is_monotone_and_inverse_to_delta(a: PrivacyLoss, b: PrivacyLoss, delta: float) -> None:
    whole = (a + b).epsilon(delta)
    # Grids differ with what is composed; each is an upper bound within 1e-4 of the truth.
    assert whole >= max(a.epsilon(delta), b.epsilon(delta)) * (1 - 1e-4) - 1e-6
    assert (a + b).epsilon(delta / 10) >= whole
    assert (a + b).delta(whole) <= delta * (1 + 1e-9)
    if whole > 0.01:
        assert (a + b).delta(whole * 0.99) > delta


@settings(max_examples=3, deadline=None)
@given(rate=st.floats(0.01, 0.5), sigma=st.floats(0.6, 5), count=st.integers(1, 200))
def test_more_rounds_more_users_or_less_noise_never_cost_less(rate: float, sigma: float, count: int) -> None:
    base = loss(rate, sigma, count).epsilon(1e-6)
    slack = base * 1e-4 + 1e-6
    assert loss(rate, sigma, count + 1).epsilon(1e-6) >= base - slack
    assert loss(min(1.0, rate * 1.1), sigma, count).epsilon(1e-6) >= base - slack
    assert loss(rate, sigma * 0.9, count).epsilon(1e-6) >= base - slack


def test_equal_events_are_one_entry_however_many_rounds() -> None:
    total = PrivacyLoss()
    for _ in range(10_000):
        total = total + loss(0.01, 1.0, 1)
    assert total.sampled == (PoissonGaussian(0.01, 1.0, 10_000),)
    assert len(total.to_json()) < 80


def test_events_of_no_rounds_are_no_loss() -> None:
    assert loss(0.5, 1.0, 0) == PrivacyLoss()
    assert PrivacyLoss(-0.0).to_json() == PrivacyLoss().to_json()
    assert PrivacyLoss().epsilon(1e-6) == 0.0
    assert PrivacyLoss().delta(0.0) == 0.0


@pytest.mark.parametrize(
    ("rate", "sigma", "count"),
    [(0.1, 1e-4, 10), (0.1, 0.05, 10_000), (0.1, 1e-3, 10**9), (1e-12, 1e-9, 1), (0.5, 1e-300, 1)],
)
def test_requests_without_a_grid_are_refused_before_the_accountant_and_not_called_amplified(
    rate: float, sigma: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*args: object, **more: object) -> None:
        raise AssertionError("the accountant was called")

    monkeypatch.setattr(numerical, "_orders", explode)
    for cached in (numerical._composed, numerical.epsilon):
        cached.cache_clear()
    wild = loss(rate, sigma, count)
    assert numerical.grid_for(0.0, wild.sampled) is None
    assert "points" in str(numerical.refusal(0.0, wild.sampled))
    assert wild.epsilon(1e-6) == wild.without_amplification().epsilon(1e-6)
    assert wild.delta(1.0) == wild.without_amplification().delta(1.0)


@settings(max_examples=300, deadline=None)
@given(
    rate=st.floats(1e-12, 1),
    sigma=st.floats(1e-3, 1e6),
    count=st.integers(1, 10**12),
    mu_squared=st.floats(0, 1e12),
)
def test_grids_are_bounded(rate: float, sigma: float, count: int, mu_squared: float) -> None:
    events = (PoissonGaussian(rate, sigma, count),)
    step = numerical.grid_for(mu_squared, events)
    if step is None:
        assert numerical.refusal(mu_squared, events)
    else:
        assert numerical.FINEST <= step <= numerical.COARSEST
        assert (numerical._TAIL / sigma + 0.5 / sigma**2) / step < numerical.MOST_POINTS
        assert (mu_squared / 2) / step < numerical.MOST_POINTS


def test_tiny_epsilon_stays_a_bound_in_bounded_time() -> None:
    """google/dpsynth #71: a grid that follows a tiny epsilon down exhausts memory."""
    tiny = loss(1e-9, 1.0, 1000)
    assert 0 <= tiny.epsilon(1e-6) < 1e-2
    assert tiny.delta(0.0) >= exact_single(1e-9, 1.0, 0.0)[0]


def test_every_delta_counts_what_the_transform_may_be_wrong_by() -> None:
    both = numerical.compositions(0.0, (PoissonGaussian(0.01, 1.0, 10),))
    assert both is not None
    for composition in both:
        assert composition.delta(1e3) >= 1e-12


def test_a_delta_below_the_rounding_of_transforms_gets_no_amplification() -> None:
    sampled = loss(0.01, 1.0, 10)
    assert sampled.epsilon(1e-13) == sampled.without_amplification().epsilon(1e-13)


@pytest.mark.parametrize(
    "build",
    [
        lambda: PoissonGaussian(0.0, 1.0, 1),
        lambda: PoissonGaussian(1.1, 1.0, 1),
        lambda: PoissonGaussian(math.nan, 1.0, 1),
        lambda: PoissonGaussian(0.1, 0.0, 1),
        lambda: PoissonGaussian(0.1, math.inf, 1),
        lambda: PoissonGaussian(0.1, 1.0, -1),
        lambda: PrivacyLoss(-1.0),
        lambda: PrivacyLoss(math.nan),
    ],
)
def test_refuses_what_is_no_release(build) -> None:
    with pytest.raises(BadInput):
        build()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "null",
        "3",
        '{"mu_squared":1.0}',
        '{"mu_squared":"1","sampled":[]}',
        '{"mu_squared":true,"sampled":[]}',
        '{"mu_squared":NaN,"sampled":[]}',
        '{"mu_squared":1.0,"sampled":[[0.1,1.0]]}',
        '{"mu_squared":1.0,"sampled":[[0.1,1.0,1.5]]}',
        '{"mu_squared":1.0,"sampled":[[0.1,1.0,true]]}',
        '{"mu_squared":1.0,"sampled":[],"more":1}',
        '{"mu_squared":-1.0,"sampled":[]}',
    ],
)
def test_torn_text_is_not_no_loss(text: str) -> None:
    with pytest.raises(BadInput):
        PrivacyLoss.from_json(text)


@pytest.mark.parametrize("rounds", [16, 32, 128])
def test_a_rate_of_one_is_calibrated_like_no_sampling(rounds: int) -> None:
    """The closed form is the answer already, and no interval is left to search."""
    everybody = CyclicPoisson(2, 1.0)
    mechanism = build({"kind": "banded", "bands": 2}, rounds, everybody)
    noise = calibrate(mechanism, everybody, epsilon=1.0, delta=1e-5, adjacency="add_remove")
    assert noise == pytest.approx(float(mechanism.sensitivity(everybody)) / gaussian_mu(1.0, 1e-5), rel=1e-6)


@pytest.mark.parametrize(("rounds", "epsilon"), [(19, 1.0), (21, 1.0), (50, 4.0)])
def test_a_closed_form_that_is_too_small_by_its_last_bit_leaves_an_interval(rounds: int, epsilon: float) -> None:
    """The root finder had an interval of one sign: its ends are taken from logarithms, and move by a bit."""
    everybody, mechanism = Poisson(1.0), Independent(rounds)
    noise = calibrate(mechanism, everybody, epsilon=epsilon, delta=1e-5, adjacency="add_remove")
    assert noise == pytest.approx(math.sqrt(rounds) / gaussian_mu(epsilon, 1e-5), rel=1e-5)
    assert charge_for(mechanism, everybody, noise, rounds, "add_remove").epsilon(1e-5) <= epsilon


def test_a_delta_that_alone_covers_the_rounds_is_calibrated_for() -> None:
    """So much noise costs epsilon 0 there, of which the root finder took the logarithm."""
    capped, mechanism = TruncatedPoisson(0.5, 2, 2), Independent(20)
    sigma = calibrate(mechanism, capped, epsilon=0.1, delta=0.045, adjacency="add_remove")
    spent = charge_for(mechanism, capped, sigma, 20, "add_remove").epsilon(0.045)
    assert 0 < spent <= 0.1
