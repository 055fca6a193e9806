"""Closed forms and bounds of arXiv 2310.06771 (errata applied) against recorded numbers, quadrature and simulation."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad

from fieldfare.errors import BadInput
from fieldfare.factorization import spectra
from fieldfare.factorization.toeplitz import inverse
from fieldfare.mechanisms.nu import noising_coefficients, strategy_coefficients
from fieldfare_research.forecast.linear_regression import quadratic_form
from oracles import integrals, mean_estimation, norms
from oracles.linear_regression import Regression
from oracles.strongly_convex import StronglyConvex, check_multipliers, frequencies, gamma_squared
from support.refusals import coded

REFERENCE: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "reference" / "correlated_noise.json").read_text(encoding="utf-8")
)
ONE = np.array([1.0])
rng = np.random.default_rng(20261121)


def circle(f: Any) -> float:
    """Integral over (-pi, pi) of an even function of omega that may peak at 0."""
    return 2 * quad(f, 0, np.pi, points=[1e-4, 1e-2, 0.1], limit=400, epsabs=1e-12)[0]


def distance(omega: float, a: float) -> float:
    return float(np.sqrt(a * a + 4 * (1 - a) * np.sin(omega / 2) ** 2))


# Integrals -------------------------------------------------------------------------------------------------------


def test_elliptic_integrals_with_positive_parameter() -> None:
    f8, f9 = REFERENCE["f8"], REFERENCE["f9"]
    assert integrals.inverse_root_plus(f8["m"]) == pytest.approx(f8["value"], abs=5e-10)
    assert integrals.inverse_root_plus_third(f9["m"], f9["alpha_squared"]) == pytest.approx(f9["value"], abs=5e-10)
    third = quad(lambda w: 1 / ((1 - 0.4 * np.sin(w) ** 2) * np.sqrt(1 - 0.5 * np.sin(w) ** 2)), 0, np.pi / 2)[0]
    assert integrals.complete_third(0.4, np.sqrt(0.5)) == pytest.approx(third, rel=1e-12)


@pytest.mark.parametrize(("a", "value"), [(float(a), v) for a, v in REFERENCE["f15"].items()])
def test_inverse_distance(a: float, value: float) -> None:
    assert integrals.inverse_distance(a) == pytest.approx(value, abs=5e-7)
    assert integrals.inverse_distance(a) == pytest.approx(4 * integrals.complete_first(1 - a), rel=1e-12)
    assert integrals.inverse_distance(a) == pytest.approx(circle(lambda w: 1 / distance(w, a)), rel=1e-8)


@pytest.mark.parametrize(("a", "b", "value"), REFERENCE["f16"])
def test_distance_over_squared_distance(a: float, b: float, value: float) -> None:
    assert integrals.distance_over_squared_distance(a, b) == pytest.approx(value, abs=5e-9)
    assert value == pytest.approx(circle(lambda w: distance(w, a) / distance(w, b) ** 2), rel=1e-8)
    if a <= b <= 0.25:  # Lemma C.21
        assert value <= 128 / 49 * np.log(8 / a) * 1.1
    assert integrals.distance_over_squared_distance(a, a) <= 5 * np.log(8 / a)


@pytest.mark.parametrize(("nu", "a", "value"), REFERENCE["damped_ratio"])
def test_damped_anti_pgd_ratio(nu: float, a: float, value: float) -> None:
    assert integrals.damped_anti_pgd_ratio(nu, a) == pytest.approx(value, abs=5e-8)
    numeric = circle(lambda w: distance(w, nu) ** 2 / distance(w, a) ** 2) / (2 * np.pi)
    assert integrals.damped_anti_pgd_ratio(nu, a) == pytest.approx(numeric, rel=1e-8)


def test_cosine_integrals() -> None:
    for lag in (0, 1, -3):
        numeric = circle(lambda w, lag=lag: np.cos(lag * w) / (1.3**2 + 0.4**2 - 2 * 1.3 * 0.4 * np.cos(w)))
        assert integrals.cosine_over_distance(lag, 1.3, 0.4) == pytest.approx(numeric, rel=1e-9)
    assert integrals.inverse_cosine(0.6) == pytest.approx(circle(lambda w: 1 / (1 + 0.6 * np.cos(w))), rel=1e-9)
    assert integrals.inverse_cosine(-1) == np.inf


def test_complete_first_between_its_logarithmic_bounds() -> None:
    for k in np.linspace(0.01, 0.9999, 40):
        log = np.log(4 / np.sqrt(1 - k * k))
        assert log <= integrals.complete_first(k) <= (1 + (1 - k * k) / 4) * log <= 1.25 * log


@pytest.mark.parametrize(
    "call",
    [
        lambda: integrals.inverse_distance(0.0),
        lambda: integrals.distance_over_squared_distance(0.5, 1.0),
        lambda: integrals.cosine_over_distance(1, 0.4, 0.5),
        lambda: integrals.inverse_cosine(1.5),
    ],
)
def test_integrals_refuse_arguments_where_they_diverge(call: Any) -> None:
    with pytest.raises(BadInput, check=coded("bad-input")):
        call()


# Norms -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nu", "value"), [(float(v), g) for v, g in REFERENCE["gamma_squared_limit"].items()])
def test_gamma_limit(nu: float, value: float) -> None:
    assert norms.gamma_squared_limit(nu) == pytest.approx(value, abs=5e-8)
    assert norms.gamma_squared_limit(nu) == pytest.approx(np.sum(strategy_coefficients(nu, 200_000) ** 2), rel=1e-9)
    assert norms.gamma_squared_limit(nu) == pytest.approx(integrals.inverse_distance(nu) / (2 * np.pi), rel=1e-9)
    assert norms.gamma_squared_limit(nu) <= 5 / (2 * np.pi) * np.log(8 / nu)


def test_without_a_horizon_only_positive_nu_can_be_calibrated() -> None:
    with pytest.raises(BadInput, check=coded("bad-input", "nu = 0")):
        norms.gamma_squared_limit(0)
    with pytest.raises(BadInput, check=coded("bad-input", "nu")):
        norms.gamma_squared_limit(1.5)
    assert norms.gamma_squared_limit(1) == 1


@pytest.mark.parametrize(("rounds", "value"), [(int(t), g) for t, g in REFERENCE["gamma_squared_nu0"].items()])
def test_gamma_at_nu_zero(rounds: int, value: float) -> None:
    assert np.sum(strategy_coefficients(0, rounds) ** 2) == pytest.approx(value, abs=5.1e-8)


def test_gamma_at_nu_zero_grows_logarithmically() -> None:
    rest = np.sum(strategy_coefficients(0, 10_000) ** 2) - np.log(10_000) / np.pi
    assert rest == pytest.approx(REFERENCE["asymptote_constant"], abs=1e-5)
    assert norms.gamma_squared_asymptote(10_000) - np.log(10_000) / np.pi == pytest.approx(1.0662759, abs=5e-8)


@pytest.mark.parametrize("nu", [0.01, 0.1, 0.5])
def test_sums_of_beta(nu: float) -> None:
    beta = noising_coefficients(nu, 20_000)
    assert beta.sum() == pytest.approx(norms.nu_sum(nu), abs=1e-9)
    assert np.abs(beta).sum() == pytest.approx(norms.nu_absolute_sum(nu), abs=1e-9)
    assert beta @ beta == pytest.approx(norms.nu_squared_norm(nu), rel=1e-9)


@pytest.mark.parametrize(("nu", "value"), [(float(v), b) for v, b in REFERENCE["squared_norm"].items()])
def test_squared_norm_of_beta(nu: float, value: float) -> None:
    assert norms.nu_squared_norm(nu) == pytest.approx(value, abs=5.1e-9)


@pytest.mark.parametrize(("nu", "value"), [(float(v), c) for v, c in REFERENCE["half_exponential"].items()])
def test_half_exponential_decay(nu: float, value: float) -> None:
    # At most 2 is what Theorem D.13 needs; the constant itself is the sup.
    constant = norms.half_exponential_constant(noising_coefficients(nu, 500 if nu > 0.1 else 5000), nu)
    assert constant == pytest.approx(value, abs=1e-3)
    assert constant <= 2


def test_anti_pgd_norms() -> None:
    for nu in (0.05, 0.3):
        c = (1 - nu) ** np.arange(50)
        assert norms.damped_anti_pgd_gamma_squared(nu, 50) == pytest.approx(c @ c, rel=1e-12)
        assert norms.damped_anti_pgd_gamma_squared(nu) == pytest.approx(1 / (nu * (2 - nu)))
    assert norms.damped_anti_pgd_gamma_squared(0, 50) == 50
    assert norms.damped_anti_pgd_gamma_squared(0) == np.inf


def test_neighbouring_noise_is_anti_correlated() -> None:
    covariance = norms.autocovariance(noising_coefficients(0.02, 5000), 5)
    np.testing.assert_allclose(covariance[1:], REFERENCE["autocovariance_nu0.02"], atol=1.1e-6)
    finite = noising_coefficients(0.02, 40)
    for t in range(1, 40):
        for lag in range(1, t):
            assert finite[: t - lag] @ finite[lag:t] < 0


# Mean estimation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("eta", "ratio"), [(float(e), r) for e, r in REFERENCE["mean_ratio"].items()])
def test_mean_estimation_ratio(eta: float, ratio: float) -> None:
    got = mean_estimation.optimal_error(eta) / mean_estimation.independent_error(eta)
    assert got == pytest.approx(ratio, abs=5.1e-8)


@pytest.mark.parametrize("eta", [0.1, 0.5])
def test_mean_estimation_against_simulation(eta: float) -> None:
    """20 000 chains: the squared mean of that many squares has relative deviation sqrt(2/20000) = 1 %; 5 of them."""
    beta, gamma2, steps = noising_coefficients(eta, 150), norms.gamma_squared_limit(eta), 150
    exact = mean_estimation.optimal_error(eta, sgd_noise=0.3)
    assert mean_estimation.error(beta, gamma2, eta, sgd_noise=0.3) == pytest.approx(exact, rel=1e-6)
    for coefficients, variance, expected in (
        (beta, gamma2 / 2, exact),
        (ONE, 0.5, mean_estimation.independent_error(eta, sgd_noise=0.3)),
    ):
        z = rng.normal(size=(steps, 20_000)) * np.sqrt(variance)
        delta = np.zeros(20_000)
        for t in range(steps):
            m = min(t + 1, len(coefficients))
            noise = coefficients[:m] @ z[t::-1][:m]
            delta = (1 - eta) * delta + eta * 0.3 * rng.normal(size=20_000) - eta * noise
        assert np.mean(delta**2) == pytest.approx(expected, rel=0.05)


def test_no_other_coefficients_beat_the_optimum() -> None:
    eta = 0.2
    best = mean_estimation.optimal_error(eta)
    for _ in range(200):
        beta = np.concatenate([[1.0], rng.uniform(-0.4, 0.1, 5) * 0.7 ** np.arange(5)])
        gamma2 = float(np.sum(inverse(beta, 4000) ** 2))
        assert not np.isfinite(gamma2) or mean_estimation.error(beta, gamma2, eta) >= best * (1 - 1e-9)
    power = np.array([distance(w, eta) for w in np.linspace(0, np.pi, 7)])
    np.testing.assert_allclose(power * (1 / power**2) * power, 1)  # Cauchy-Schwarz: |B|^2/|.|^2 proportional to 1/|B|^2


@pytest.mark.parametrize(("eta", "rho"), [(0.0, 1.0), (1.5, 1.0), (0.5, 0.0)])
def test_mean_estimation_refuses(eta: float, rho: float) -> None:
    with pytest.raises(BadInput, check=coded("bad-input")):
        mean_estimation.optimal_error(eta, rho=rho)


# Linear regression -----------------------------------------------------------------------------------------------

FOUR = REFERENCE["regression"]
PROBLEM = Regression(tuple(FOUR["eigenvalues"]), FOUR["eta"], sgd_noise=FOUR["sgd_noise"])
NOISES = {"sgd": ONE, "nu": noising_coefficients(0.005, 20_000), "anti-pgd": np.array([1.0, -0.95])}


@pytest.mark.parametrize("name", ["sgd", "nu", "anti-pgd"])
def test_exact_error_and_its_bounds(name: str) -> None:
    row, beta = FOUR["rows"][name], NOISES[name]
    g = row["gamma_squared"]
    np.testing.assert_allclose(PROBLEM.quadratic_forms(beta), row["q"], atol=5.1e-9)
    assert PROBLEM.exact(beta, g) == pytest.approx(row["exact"], rel=1e-8)
    assert PROBLEM.linear_part(beta, g) == pytest.approx(row["linear"], rel=1e-8)
    assert PROBLEM.lower_bound(beta, g) == pytest.approx(row["lower"], rel=1e-8)
    assert PROBLEM.upper_bound(beta, g) == pytest.approx(row["upper"], rel=2e-8)
    assert PROBLEM.universal_lower_bound() == pytest.approx(FOUR["universal"])
    exact = PROBLEM.exact(beta, g)
    assert PROBLEM.universal_lower_bound() <= PROBLEM.lower_bound(beta, g) <= exact <= 2 * PROBLEM.upper_bound(beta, g)


@pytest.mark.parametrize("name", ["sgd", "nu", "anti-pgd"])
def test_integral_forms_of_the_bounds(name: str) -> None:
    beta, g = NOISES[name], FOUR["rows"][name]["gamma_squared"]
    power = {"sgd": lambda w: 1.0, "nu": lambda w: distance(w, 0.005), "anti-pgd": lambda w: distance(w, 0.05) ** 2}[
        name
    ]
    integral = circle(lambda w: power(w) * float(spectra.response(np.array([w]), PROBLEM.eigenvalues, PROBLEM.eta)[0]))
    noise = PROBLEM.eta**2 * PROBLEM.noise_variance(g) / (2 * np.pi) * integral
    sgd = 0.5 * PROBLEM.eta * 0.25 * 1.8
    low, high = PROBLEM.integral_lower_bound(beta, g), PROBLEM.integral_upper_bound(beta, g)
    assert low == pytest.approx(sgd + noise, rel=1e-6)
    assert PROBLEM.lower_bound(beta, g) <= low <= PROBLEM.exact(beta, g) <= 2 * PROBLEM.upper_bound(beta, g) <= 2 * high
    assert Regression((1.0,), 0.5).integral_upper_bound(ONE, 1.0) == np.inf


def test_quadratic_forms_are_bounded_by_the_norm() -> None:
    """Lemma F.17: q <= (1 + c)/(1 - c) ||beta||_2^2."""
    for decay in (0.1, 0.5, 0.9, 0.99):
        for _ in range(20):
            beta = rng.normal(size=30)
            assert quadratic_form(beta, decay) <= (1 + decay) / (1 - decay) * float(beta @ beta) * (1 + 1e-12)


@pytest.mark.parametrize("name", ["sgd", "nu", "anti-pgd"])
def test_exact_error_against_simulation(name: str) -> None:
    """1500 chains of 400 steps from the optimum against the exact second moments at that time; 5 standard errors."""
    beta, g = NOISES[name][:400], FOUR["rows"][name]["gamma_squared"]
    lam, eta, chains, steps = PROBLEM.spectrum, PROBLEM.eta, 1500, 400
    expected = float(PROBLEM.trajectory(beta, g, np.zeros(4), steps)[-1] @ lam)
    z = rng.normal(size=(steps, chains, 4)) * np.sqrt(PROBLEM.noise_variance(g))
    theta = np.zeros((chains, 4))
    for t in range(steps):
        m = min(t + 1, len(beta))
        noise = np.tensordot(beta[:m], z[t::-1][:m], axes=1)
        x = rng.normal(size=(chains, 4)) * np.sqrt(lam)
        residual = (x * theta).sum(axis=1) - PROBLEM.sgd_noise * rng.normal(size=chains)
        theta -= eta * (x * residual[:, None] + noise)
    values = np.square(theta) @ lam
    assert abs(values.mean() - expected) < 5 * values.std() / np.sqrt(chains)


def test_trajectory_and_finite_time_bound() -> None:
    row, beta, g = REFERENCE["trajectory"], NOISES["nu"], FOUR["rows"]["nu"]["gamma_squared"]
    g = norms.gamma_squared_limit(0.005)
    moments = PROBLEM.trajectory(beta, g, row["start"], 6000)
    excess = 0.5 * moments @ PROBLEM.spectrum
    for t, exact, bound in zip(row["t"], row["exact"], row["bound"], strict=True):
        assert excess[t] == pytest.approx(exact, abs=5.1e-9)
        assert PROBLEM.finite_time_bound(beta, g, row["start"], t) == pytest.approx(bound, rel=5e-6)
        assert excess[t] <= bound
    assert 0.5 * PROBLEM.exact(beta, g) == pytest.approx(row["stationary"], abs=5.1e-11)
    from_optimum = PROBLEM.trajectory(beta, g, np.zeros(4), 500)
    assert (np.diff(from_optimum, axis=0) >= 0).all()  # Lemma D.12: never decreasing


@pytest.mark.parametrize("nu", [None, 0.02, 0.3])
@pytest.mark.parametrize("a", [0.05, 0.4])
def test_quadratic_form_is_a_frequency_integral(nu: float | None, a: float) -> None:
    for beta, power in (
        (ONE if nu is None else noising_coefficients(nu, 20_000), lambda w: 1.0 if nu is None else distance(w, nu)),
        (np.array([1.0, -(1 - (nu or 0.0))]), lambda w: distance(w, nu or 1e-300) ** 2),
    ):
        numeric = circle(lambda w, power=power: power(w) / distance(w, a) ** 2) / (2 * np.pi)
        assert quadratic_form(beta, 1 - a) / (a * (2 - a)) == pytest.approx(numeric, rel=1e-6)


HARMONIC = REFERENCE["harmonic_128"]
LONG = Regression(tuple(1 / np.arange(1, 129)), HARMONIC["eta"])


def test_published_problem_of_128_directions() -> None:
    assert LONG.exact(ONE, 1.0) == pytest.approx(HARMONIC["sgd"], rel=1e-9)
    for nu, value in HARMONIC["nu"].items():
        beta = noising_coefficients(float(nu), 60_000)
        assert LONG.exact(beta, norms.gamma_squared_limit(float(nu))) == pytest.approx(value, rel=1e-5)
    assert LONG.universal_lower_bound() == pytest.approx(HARMONIC["universal"], rel=1e-4)


def test_optimal_coefficients_of_a_known_spectrum() -> None:
    beta = spectra.optimal_coefficients(LONG.eigenvalues, LONG.eta, 30_000)
    np.testing.assert_allclose(beta[:6], HARMONIC["optimal_beta"], atol=5.1e-8)
    c = inverse(beta[:20_000], 20_000)
    gamma2 = float(c @ c)
    assert gamma2 == pytest.approx(HARMONIC["optimal_gamma_squared"], abs=1e-5)
    exact = LONG.exact(beta, gamma2)
    assert exact == pytest.approx(HARMONIC["optimal_exact"], abs=1e-6)
    assert LONG.spectral_lower_bound() == pytest.approx(HARMONIC["spectral_lower"], abs=1e-9)
    assert LONG.spectral_lower_bound() < exact < min(HARMONIC["nu"].values())


def test_one_direction_gives_the_nu_coefficients() -> None:
    beta = spectra.optimal_coefficients([1.0], 0.02, 400)
    np.testing.assert_allclose(beta, noising_coefficients(0.02, 400), atol=1e-12)


def test_separation_by_effective_dimension() -> None:
    rows = REFERENCE["spiked"]
    for d in (16, 128, 1024):
        problem = Regression((1.0, *([1.0 / d] * (d - 1))), rows["eta"])
        nu = rows["eta"] / d
        sgd, ftrl = rows[str(d)]
        assert problem.exact(ONE, 1.0) == pytest.approx(sgd, rel=1e-6)
        got = problem.exact(noising_coefficients(nu, 400_000), norms.gamma_squared_limit(nu))
        assert got == pytest.approx(ftrl, rel=2e-5)
    assert rows["1024"][0] / rows["128"][0] == pytest.approx(8.0, abs=0.01)
    assert rows["1024"][1] / rows["128"][1] == pytest.approx(1.35, abs=0.01)


def nu_error(problem: Regression) -> float:
    nu = problem.eta * float(problem.spectrum.min())
    return problem.exact(noising_coefficients(nu, 100_000), norms.gamma_squared_limit(nu))


def slope(x: list[float], y: list[float]) -> float:
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def test_published_slopes() -> None:
    """Figure 2: 1.00, .18, .94, 1.27, 2.03 in the paper; ours on the same families within 0.02."""
    expected = REFERENCE["slopes"]
    by_d = [Regression(tuple(1 / np.arange(1, d + 1)), 0.02) for d in (16, 32, 64, 128, 256)]
    assert slope([16, 32, 64, 128, 256], [p.exact(ONE, 1.0) for p in by_d]) == pytest.approx(
        expected["sgd_dimension"], abs=0.02
    )
    decay = [Regression(tuple(np.arange(1, 129) ** -a), 0.02) for a in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)]
    effective = [float(p.spectrum.sum()) for p in decay]
    assert slope(effective, [p.exact(ONE, 1.0) for p in decay]) == pytest.approx(expected["sgd_effective"], abs=0.02)
    assert slope(effective, [nu_error(p) for p in decay]) == pytest.approx(expected["nu_effective"], abs=0.02)
    by_eta = [Regression(LONG.eigenvalues, eta) for eta in (0.02, 0.04, 0.08, 0.16)]
    etas = [p.eta for p in by_eta]
    assert slope(etas, [p.exact(ONE, 1.0) for p in by_eta]) == pytest.approx(expected["sgd_eta"], abs=0.02)
    assert slope(etas, [nu_error(p) for p in by_eta]) == pytest.approx(expected["nu_eta"], abs=0.02)


def test_damped_anti_pgd_lies_between() -> None:
    row = HARMONIC["anti_pgd"]
    problem = Regression(LONG.eigenvalues, row["c"] / float(LONG.spectrum.sum()))
    assert problem.eta == pytest.approx(row["eta"], abs=5e-8)
    nu = 1 / np.sqrt(128)
    middle = problem.exact(np.array([1.0, nu - 1]), norms.damped_anti_pgd_gamma_squared(nu))
    assert middle == pytest.approx(row["error"], rel=1e-5)
    assert problem.exact(ONE, 1.0) == pytest.approx(row["sgd"], rel=1e-6)
    assert nu_error(problem) == pytest.approx(row["nu"], rel=1e-4)
    assert nu_error(problem) < middle < problem.exact(ONE, 1.0)


def test_unstable_and_invalid_problems() -> None:
    assert Regression((1.0,) * 40, 0.5).exact(ONE, 1.0) == np.inf
    assert Regression((1.0,), 0.5).upper_bound(ONE, 1.0) == np.inf
    with pytest.raises(BadInput, check=coded("out-of-range", "learning_rate = 2")):
        Regression((1.0,), 2.0)
    with pytest.raises(BadInput, check=coded("out-of-range", "rho = 0")):
        Regression((1.0,), 0.5, rho=0.0)
    with pytest.raises(BadInput, check=coded("out-of-range", "eigenvalues")):
        Regression((1.0, 0.0), 0.5)


# Spectral factorisation ------------------------------------------------------------------------------------------


def test_minimum_phase_recovers_nu() -> None:
    size = 1 << 16
    omega = 2 * np.pi * np.arange(size) / size
    beta = spectra.minimum_phase(np.sqrt(0.02**2 + 4 * 0.98 * np.sin(omega / 2) ** 2), 300)
    np.testing.assert_allclose(beta, noising_coefficients(0.02, 300), atol=1e-15)


@pytest.mark.parametrize("power", [np.ones(5), np.array([1.0, -1.0]), np.array([1.0, np.nan])])
def test_minimum_phase_refuses(power: np.ndarray) -> None:
    with pytest.raises(BadInput, check=coded("wrong-form", "power spectrum")):
        spectra.minimum_phase(power, 1)


def test_spectra_too_sharp_for_the_grid_are_refused() -> None:
    with pytest.raises(BadInput, check=coded("out-of-range", "eigenvalues from 1e-09 at learning_rate")):
        spectra.optimal_coefficients([1.0, 1e-9], 0.5, 10)


# Strongly convex -------------------------------------------------------------------------------------------------

OMEGA, WEIGHTS = frequencies(8000)


def power_of(nu: float) -> np.ndarray:
    return np.sqrt(nu**2 + 4 * (1 - nu) * np.sin(OMEGA / 2) ** 2)


@pytest.mark.parametrize(
    ("eta", "kappa", "row"),
    [(float(e), int(k), row) for e, rows in REFERENCE["strongly_convex"].items() for k, row in rows.items()],
)
def test_strongly_convex_bound(eta: float, kappa: int, row: list[float]) -> None:
    problem, nu = StronglyConvex(1 / kappa, 1.0, eta), eta / kappa
    sgd = problem.bound(np.ones_like(OMEGA), 1.0, OMEGA, WEIGHTS)
    ftrl = problem.bound(power_of(nu), norms.gamma_squared_limit(nu), OMEGA, WEIGHTS)
    assert sgd == pytest.approx(row[0], rel=1e-3)
    assert ftrl == pytest.approx(row[1], rel=1e-3)
    # Never below the exact error of a quadratic with the same curvature.
    for curvature in (1 / kappa, 0.999):
        noise = 1.0 / (2 - eta * curvature) * eta / 2 / 2
        assert sgd >= noise
        assert ftrl <= sgd


def test_gain_over_independent_noise_grows_with_the_condition_number() -> None:
    rows = REFERENCE["strongly_convex"]["0.5"]
    ratios = [rows[str(k)][0] / rows[str(k)][1] for k in (2, 5, 10, 30, 100)]
    np.testing.assert_allclose(ratios, [1.423, 1.945, 2.444, 3.421, 4.888], atol=1e-3)


@pytest.mark.parametrize(("kappa", "value"), [(int(k), v) for k, v in REFERENCE["strongly_convex_optimised"].items()])
def test_alternating_optimum(kappa: int, value: float) -> None:
    problem, nu = StronglyConvex(1 / kappa, 1.0, 0.5), 0.5 / kappa
    power, best = problem.optimise(OMEGA, WEIGHTS, power_of(nu))
    assert best == pytest.approx(value, rel=1e-3)
    assert problem.bound(power, gamma_squared(power, WEIGHTS), OMEGA, WEIGHTS) <= best * (1 + 1e-6)


def test_sound_lags_tighten_the_bound() -> None:
    omega, weights = frequencies(1200)
    problem, rows = StronglyConvex(0.1, 1.0, 0.5), REFERENCE["strongly_convex_lags_10"]
    ones = np.ones_like(omega)
    assert problem.bound_with_lags(ones, 1.0, omega, weights, 10) == pytest.approx(rows["sgd"], rel=1e-3)
    assert problem.bound_with_lags(ones, 1.0, omega, weights, 10) >= REFERENCE["worst_quadratic_sgd_10"]
    nu = 0.05
    power = np.sqrt(nu**2 + 4 * (1 - nu) * np.sin(omega / 2) ** 2)
    with_lags = problem.bound_with_lags(power, norms.gamma_squared_limit(nu), omega, weights, 10)
    assert with_lags == pytest.approx(rows["nu"], rel=1e-3)


def test_multipliers_of_the_printed_sign_are_unsound_and_refused() -> None:
    """F = max(x, 0)^2/2 (mu = 0, L = 1), x alternating 1, -50: a positive lag multiplies <g_t - x_t, -g_{t+1}> < 0."""
    x = np.array([1.0, -50.0])
    g = np.maximum(x, 0)
    assert sum((g[t] - x[t]) * -g[1 - t] for t in range(2)) * 49 == pytest.approx(-2450)
    with pytest.raises(BadInput, check=coded("bad-input", "lambda_1 = 0.5")):
        check_multipliers(1.0, {1: 0.5})
    check_multipliers(1.0, {1: 0.5}, assume_odd=True)
    check_multipliers(1.0, {1: -0.5, -1: -0.5})
    with pytest.raises(BadInput, check=coded("bad-input", "sum of |lambda_t|, t != 0", "lambda_0 = 1")):
        check_multipliers(1.0, {1: -0.6, -1: -0.5})
    with pytest.raises(BadInput, check=coded("bad-input", "lambda_0")):
        check_multipliers(-1.0, {})
    with pytest.raises(BadInput, check=coded("bad-input", "lags[0]")):
        check_multipliers(1.0, {0: -0.1})


def test_psi_is_the_least_that_the_matrix_inequality_allows() -> None:
    problem, omega = StronglyConvex(0.2, 1.0, 0.4), np.linspace(0.01, np.pi, 50)
    lags = {1: -0.3, -2: -0.2}
    psi = problem.psi(omega, 8.0, lags)
    assert psi is not None
    for w, value in zip(omega, psi, strict=True):
        big = 8.0 + sum(v * np.exp(1j * lag * w) for lag, v in lags.items())
        a = np.array([[0.4, 0], [1 - np.exp(1j * w), -0.4]])
        cross = 0.2 * big + big.conjugate()
        inner = np.array([[-0.2 * 2 * big.real, cross], [cross.conjugate(), -2 * big.real]])
        matrix = a.conj().T @ inner @ a
        gap = np.linalg.eigvalsh(np.diag([-(0.4**2), value]) - matrix)
        assert gap[0] >= -1e-9
        assert value == 0 or gap[0] <= 1e-9
    assert problem.psi(omega, 1e-6) is None


@pytest.mark.parametrize(("mu", "eta", "rho"), [(2.0, 0.5, 1.0), (0.5, 1.5, 1.0), (0.5, 0.5, 0.0)])
def test_strongly_convex_refuses(mu: float, eta: float, rho: float) -> None:
    with pytest.raises(BadInput, check=coded("bad-input")):
        StronglyConvex(mu, 1.0, eta, rho)
