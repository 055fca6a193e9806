"""The exact Gaussian conversions, against 60-digit arithmetic and other people's numbers."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import mpmath
import pytest
from dp_accounting import get_epsilon_gaussian, get_sigma_gaussian
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldfare.accounting import (
    gaussian,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_log_delta,
    gaussian_mu,
    zcdp_epsilon,
    zcdp_rho,
)
from fieldfare.errors import BadInput

REFERENCE = json.loads((Path(__file__).parents[2] / "reference" / "accounting.json").read_text())
ROWS = {row["id"]: row for row in REFERENCE["rows"]}
MUS = (1e-6, 1e-4, 0.01, 0.1, 0.5, 1.0, 3.0, 7.0, 20.0, 50.0)


def exact_delta(mu: float, epsilon: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@pytest.mark.parametrize("mu", MUS)
@pytest.mark.parametrize("x", [-20, -5, -1.01, -0.99, -0.3, 0, 0.4, 1, 3, 8, 20, 36])
def test_delta_has_twelve_digits_from_one_half_to_1e_minus_300(mu: float, x: float) -> None:
    epsilon = mu * (x + mu / 2)
    if epsilon < 0:
        epsilon = 0.0
    expected = exact_delta(mu, epsilon)
    assert gaussian_log_delta(mu, epsilon) == pytest.approx(float(mpmath.log(expected)), abs=1e-12)
    assert gaussian_delta(mu, epsilon) == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize("mu", MUS)
@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-16, 1e-10, 1e-6, 1e-3, 0.3])
def test_epsilon_attains_its_delta_to_twelve_digits(mu: float, delta: float) -> None:
    epsilon = gaussian_epsilon(mu, delta)
    at = exact_delta(mu, epsilon)
    if epsilon == 0:
        assert at <= delta
    else:
        assert float(mpmath.log(at)) == pytest.approx(math.log(delta), abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 1e-3, 0.1, 1.0, 8.0, 100.0, 1000.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-10, 1e-5, 0.1, 0.9])
def test_mu_is_the_largest_that_attains_its_delta(epsilon: float, delta: float) -> None:
    assert float(exact_delta(gaussian_mu(epsilon, delta), epsilon)) == pytest.approx(delta, rel=1e-11)


def test_epsilon_is_an_upper_bound_to_the_last_bit() -> None:
    """Where rounding decides, it decides for more epsilon."""
    for mu, log_delta in itertools.product((0.01, 0.3, 0.7, 1.1, 2.9, 7.0), (-3.0, -7.7, -11.5, -20.1, -50.0)):
        delta = math.exp(log_delta)
        assert gaussian_log_delta(mu, gaussian_epsilon(mu, delta)) <= math.log(delta)


def test_newtons_root_is_the_bisected_one_in_a_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def count(mu: float, epsilon: float) -> float:
        nonlocal calls
        calls += 1
        return gaussian_log_delta(mu, epsilon)

    monkeypatch.setattr(gaussian, "gaussian_log_delta", count)
    for mu, log_delta in itertools.product((1e-5, 0.003, 0.08, 0.25, 0.9, 1.4, 5.0, 30.0), (-1.5, -6.0, -13.8, -40.0)):
        if gaussian_log_delta(mu, 0.0) <= log_delta:
            continue
        high = mu * (mu / 2 + math.sqrt(-2 * log_delta))
        calls = 0
        newton = gaussian._newton_root(mu, log_delta, high)
        assert 0 < calls <= 12
        bisected = gaussian._decreasing_root(lambda e, mu=mu, y=log_delta: gaussian_log_delta(mu, e) - y, 0.0, high)
        assert newton == pytest.approx(bisected, rel=1e-13)
        assert gaussian_log_delta(mu, newton) <= log_delta


def test_where_newton_is_not_sure_the_root_is_bisected(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = gaussian_epsilon(0.4, 1e-6)
    gaussian_epsilon.cache_clear()
    monkeypatch.setattr(gaussian, "_newton_root", lambda mu, target, high: 0.0)
    assert gaussian_epsilon(0.4, 1e-6) == pytest.approx(expected, rel=1e-13)
    gaussian_epsilon.cache_clear()


@pytest.mark.parametrize(
    "row", [r for r in ROWS.values() if r["id"].startswith("gauss_analytic")], ids=lambda r: r["id"]
)
def test_epsilon_of_dp_accounting(row: dict) -> None:
    assert gaussian_epsilon(1 / row["params"]["sigma"], row["params"]["delta"]) == pytest.approx(row["value"], rel=1e-9)


@pytest.mark.parametrize("row", [r for r in ROWS.values() if r["id"].startswith("gauss_pld")], ids=lambda r: r["id"])
def test_epsilon_of_dp_accountings_loss_distribution(row: dict) -> None:
    """Pessimistic on a grid: never below the exact curve."""
    exact = gaussian_epsilon(1 / row["params"]["sigma"], row["params"]["delta"])
    assert exact <= row["value"] * (1 + 1e-9)
    assert exact == pytest.approx(row["value"], rel=2e-3)


@pytest.mark.parametrize(
    "row", [r for r in ROWS.values() if r["id"].startswith("sigma_analytic")], ids=lambda r: r["id"]
)
def test_sigma_of_dp_accounting(row: dict) -> None:
    assert 1 / gaussian_mu(row["params"]["eps"], row["params"]["delta"]) == pytest.approx(row["value"], rel=1e-9)


@pytest.mark.parametrize(
    "row", [r for r in ROWS.values() if r["id"].startswith("zcdp") and "_gauss_" in r["id"]], ids=lambda r: r["id"]
)
def test_the_gaussian_of_a_rho(row: dict) -> None:
    mu = math.sqrt(2 * row["params"]["rho"])
    assert gaussian_epsilon(mu, row["params"]["delta"]) == pytest.approx(row["value"], rel=1e-9)


@pytest.mark.parametrize("row", REFERENCE["analytic_gaussian"]["rows"], ids=lambda r: f"eps{r['epsilon']}")
def test_analytic_gaussian_table(row: dict) -> None:
    assert 1 / gaussian_mu(row["epsilon"], row["delta"]) == pytest.approx(row["sigma"], abs=6e-8)


def test_gboard() -> None:
    rho = ROWS["gboard_es_zcdp"]["value"]
    assert gaussian_epsilon(math.sqrt(2 * rho), 1e-10) == pytest.approx(ROWS["gboard_es_exact_eps"]["value"], rel=1e-9)


@pytest.mark.parametrize("row", REFERENCE["zcdp"]["forward"], ids=lambda r: f"rho{r['rho']}-{r['delta']}")
def test_zcdp_table(row: dict) -> None:
    assert zcdp_epsilon(row["rho"], row["delta"]) == pytest.approx(row["epsilon"], abs=6e-7)


@pytest.mark.parametrize("row", REFERENCE["zcdp"]["inverse"], ids=lambda r: f"eps{r['epsilon']}-{r['delta']}")
def test_zcdp_inverse_table(row: dict) -> None:
    rho = zcdp_rho(row["epsilon"], row["delta"])
    assert rho == pytest.approx(row["rho"], abs=1.1e-7)
    if "sigma" in row:  # noise multiplier over sensitivity
        assert 1 / math.sqrt(2 * rho) == pytest.approx(row["sigma"], abs=6e-7)


@pytest.mark.parametrize(
    "row",
    [r for r in ROWS.values() if r["id"].startswith(("gauss_rdp", "zcdp")) and "rdp" in r["id"]],
    ids=lambda r: r["id"],
)
def test_zcdp_lies_between_the_exact_curve_and_rdp_on_a_grid_of_orders(row: dict) -> None:
    params = row["params"]
    rho = params["rho"] if "rho" in params else 1 / (2 * params["sigma"] ** 2)
    loose = zcdp_epsilon(rho, params["delta"])
    assert gaussian_epsilon(math.sqrt(2 * rho), params["delta"]) < loose <= row["value"] * (1 + 1e-9)
    assert loose == pytest.approx(row["value"], rel=1e-3)


@settings(deadline=None)
@given(mu=st.floats(1e-5, 40), delta=st.floats(1e-11, 0.5), other=st.floats(1.0001, 3), lower=st.floats(0.01, 0.999))
def test_epsilon_is_monotone_and_inverse_to_delta(mu: float, delta: float, other: float, lower: float) -> None:
    epsilon = gaussian_epsilon(mu, delta)
    assert gaussian_epsilon(mu * other, delta) >= epsilon
    assert gaussian_epsilon(mu, delta * lower) >= epsilon
    if epsilon > 0:
        assert gaussian_delta(mu, epsilon) == pytest.approx(delta, rel=1e-11)


@settings(deadline=None)
@given(sigma=st.floats(0.3, 30), delta=st.floats(1e-10, 1e-2))
def test_agrees_with_dp_accounting(sigma: float, delta: float) -> None:
    epsilon = get_epsilon_gaussian(sigma, delta)
    assert gaussian_epsilon(1 / sigma, delta) == pytest.approx(epsilon, rel=1e-7, abs=1e-9)
    if epsilon > 1e-3:
        assert 1 / gaussian_mu(epsilon, delta) == pytest.approx(get_sigma_gaussian(epsilon, delta), rel=1e-6)


@settings(deadline=None)
@given(rho=st.floats(1e-12, 1e6), delta=st.floats(1e-30, 0.999))
def test_zcdp_is_never_below_the_exact_gaussian(rho: float, delta: float) -> None:
    assert zcdp_epsilon(rho, delta) >= gaussian_epsilon(math.sqrt(2 * rho), delta) * (1 - 1e-9)


@settings(deadline=None)
@given(rho=st.floats(1e-6, 50), delta=st.floats(1e-12, 0.5), more=st.floats(1.001, 3), lower=st.floats(0.01, 0.999))
def test_zcdp_is_monotone_and_inverse_to_rho(rho: float, delta: float, more: float, lower: float) -> None:
    """Section 13, item 11."""
    epsilon = zcdp_epsilon(rho, delta)
    assert zcdp_epsilon(rho * more, delta) >= epsilon
    assert zcdp_epsilon(rho, delta * lower) >= epsilon
    if epsilon > 1e-3:
        assert zcdp_rho(epsilon, delta) == pytest.approx(rho, rel=1e-6)


def test_the_ends() -> None:
    assert gaussian_epsilon(0.0, 1e-6) == 0.0
    assert gaussian_delta(0.0, 0.0) == 0.0
    assert gaussian_epsilon(math.inf, 1e-6) == math.inf
    assert gaussian_delta(math.inf, 5.0) == 1.0
    assert gaussian_delta(1.0, math.inf) == 0.0
    assert zcdp_epsilon(0.0, 1e-6) == 0.0
    assert zcdp_epsilon(math.inf, 1e-6) == math.inf


@pytest.mark.parametrize(
    "call",
    [
        lambda: gaussian_delta(-1.0, 1.0),
        lambda: gaussian_delta(math.nan, 1.0),
        lambda: gaussian_delta(1.0, -1e-9),
        lambda: gaussian_delta(1.0, math.nan),
        lambda: gaussian_epsilon(1.0, 0.0),
        lambda: gaussian_epsilon(1.0, 1.0),
        lambda: gaussian_epsilon(1.0, math.nan),
        lambda: gaussian_mu(math.inf, 1e-6),
        lambda: gaussian_mu(-1.0, 1e-6),
        lambda: zcdp_epsilon(-1.0, 1e-6),
        lambda: zcdp_rho(0.0, 1e-6),
    ],
)
def test_refuses_what_is_no_privacy_parameter(call) -> None:
    with pytest.raises(BadInput):
        call()
