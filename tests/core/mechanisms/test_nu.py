"""nu-DP-FTRL against recorded and independent numbers: coefficients, tuning, windows, the fast engine, privacy."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import beta as beta_law

from fieldfare import mechanisms
from fieldfare.errors import BadInput
from fieldfare.factorization import rational, toeplitz
from fieldfare.mechanisms.nu import noising_coefficients, strategy_coefficients
from fieldfare.noise import SecureNoise
from fieldfare.participation import FixedOrder, MinSeparation, Single
from oracles.norms import damped_anti_pgd_gamma_squared, gamma_squared_limit
from support.refusals import coded

FOLDER = Path(__file__).parents[2] / "reference"
PAPER: dict[str, Any] = json.loads((FOLDER / "correlated_noise.json").read_text(encoding="utf-8"))
ROWS: list[dict[str, Any]] = json.loads((FOLDER / "toeplitz.json").read_text(encoding="utf-8"))["rows"]
KEY = bytes(range(32))


# Coefficients ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nu", [0.0, 0.1, 0.5])
def test_recurrences_equal_the_product_formula(nu: float) -> None:
    for t in range(50):
        binomial = np.prod([(0.5 - k) / (t - k) for k in range(t)])
        assert noising_coefficients(nu, 50)[t] == pytest.approx((-1) ** t * binomial * (1 - nu) ** t, abs=1e-14)
    b, c = noising_coefficients(nu, 50), strategy_coefficients(nu, 50)
    assert np.abs(toeplitz.matrix(b, 50) @ toeplitz.matrix(c, 50) - np.eye(50)).max() < 1e-14
    np.testing.assert_allclose(toeplitz.inverse(b, 50), c, atol=1e-14)


def test_recorded_coefficients() -> None:
    np.testing.assert_allclose(noising_coefficients(0, 6), PAPER["beta_nu0"], rtol=1e-15)
    np.testing.assert_allclose(noising_coefficients(0.1, 6), PAPER["beta_nu0.1"], atol=5.1e-9)
    np.testing.assert_allclose(strategy_coefficients(0.1, 6), PAPER["c_nu0.1"], atol=5.1e-9)
    four = PAPER["four_by_four_nu0.1"]
    assert np.sum(strategy_coefficients(0.1, 4) ** 2) == pytest.approx(four["gamma_squared"], rel=1e-14)
    squared = np.sum(toeplitz.prefix_row_norms(noising_coefficients(0.1, 4)) ** 2)
    assert squared == pytest.approx(four["prefix_error_squared"], rel=1e-14)
    for nu, value in PAPER["gamma_squared_1000"].items():
        assert np.sum(strategy_coefficients(float(nu), 1000) ** 2) == pytest.approx(value, abs=5.1e-8)


@pytest.mark.parametrize("spec", [{"kind": "nu", "nu": v} for v in (0.0, 0.1, 1.0)] + [{"kind": "anti-pgd", "nu": 0.2}])
def test_column_zero_is_the_largest_and_gamma_grows(spec: dict[str, Any]) -> None:
    mechanism = mechanisms.build(spec, 64)
    norms = np.linalg.norm(mechanism.strategy_matrix(64), axis=0)
    assert norms.argmax() == 0
    gammas = [float(mechanism.sensitivity(Single(), n)) for n in range(1, 65)]
    assert (np.diff(gammas) >= -1e-15).all()
    assert gammas[-1] == pytest.approx(norms[0], rel=1e-12)


# Independent values ----------------------------------------------------------------------------------------------


def recomputed(row: dict[str, Any]) -> Any:
    """The row's quantity from this library."""
    name, p = row["id"], row["params"]
    n = p.get("n")
    if name == "sqrt_coefs_8":
        return strategy_coefficients(0, 8)
    if name in ("sqrt_inv_coefs_8", "bisr_coefs_8"):
        return noising_coefficients(0, 8)
    if name == "pub_bisr_coefs":
        return mechanisms.build({"kind": "optimal-cc", "window": 5}, 5).noising_matrix(5)[:, 0]
    if name == "fixed_epoch_sqrt_n64_k4":
        return float(toeplitz.sensitivity(strategy_coefficients(0, n), FixedOrder(p["b"], p["k"])))
    if name == "toep_minsep2_nonmonotone":  # their bound: the least non-increasing sequence above (1, .5, .8)
        return toeplitz.sensitivity(toeplitz.coefficients([1.0, 0.8, 0.8], 6), MinSeparation(1, 2)) ** 2
    participation = MinSeparation(p["b"], p["k"]) if "b" in p and p["k"] > 1 else Single()
    if name.startswith("ones_minsep2"):
        return toeplitz.sensitivity(np.ones(n), participation) ** 2
    if name.startswith("bsr"):  # the cut square-root *strategy*; its p["b"] are bands where there is one participation
        bands = int(re.match(r"bsr_?b?(\d+)", name)[1])
        c = toeplitz.coefficients(strategy_coefficients(0, min(bands, n)), n)
        squared = toeplitz.sensitivity(c, participation) ** 2
        if "loss" not in row["quantity"]:
            return squared
        errors = np.square(toeplitz.prefix_row_norms(toeplitz.inverse(c[:bands], n)))
        return squared * (errors.max() if "max" in name else errors.mean())
    spec: dict[str, Any] = {"kind": "independent"}
    if name.startswith("sqrt"):
        spec = {"kind": "optimal-cc", "engine": "exact"}
    elif name.startswith("nu"):
        spec = {"kind": "nu", "nu": p["nu"], "engine": "exact"}
    elif name.startswith("bisr"):
        spec = {"kind": "optimal-cc", "window": p["p"]}
    elif name.startswith("outputpert"):
        spec = {"kind": "anti-pgd"}
    mechanism = mechanisms.build(spec, n)
    if "sens" in row["quantity"] and "loss" not in row["quantity"]:
        return float(mechanism.sensitivity(participation)) ** 2
    if "max" in row["quantity"]:
        return mechanism.max_error(n, participation) ** 2
    return mechanism.mean_error(n, participation) ** 2


OF_OPTIMIZERS = [row for row in ROWS if row["id"].startswith("momentum")]  # see tests/server/optimizers/test_sgd.py


@pytest.mark.parametrize("row", [row for row in ROWS if row not in OF_OPTIMIZERS], ids=lambda row: row["id"])
def test_independent_values(row: dict[str, Any]) -> None:
    np.testing.assert_allclose(recomputed(row), row["value"], rtol=1e-9)


@pytest.mark.parametrize("nu", [0.5, 0.1, 0.01, 0.001])
@pytest.mark.parametrize("engine", ["exact", "fast"])
def test_one_calibration_serves_any_number_of_rounds(nu: float, engine: str) -> None:
    """Anytime use (section 13, item 32): gamma of no horizon covers every T and is reached; nu = 0 has none."""
    limit = gamma_squared_limit(nu)
    for rounds in (1, 100, 20_000):
        charged = mechanisms.build({"kind": "nu", "nu": nu, "engine": engine}, rounds).sensitivity(Single()) ** 2
        assert charged <= limit * (1 + (1e-12 if engine == "exact" else 1e-3))
    assert charged == pytest.approx(limit, rel=1e-9 if engine == "exact" else 1e-3)
    with pytest.raises(BadInput, check=coded("bad-input", "nu = 0")):
        gamma_squared_limit(0)


@pytest.mark.parametrize("nu", [0.0, 0.05, 0.3])
def test_anti_pgd(nu: float) -> None:
    """C = all ones at nu = 0, gamma_T^2 = T; damped (1 - (1 - nu)^2T) / (nu (2 - nu)) (section 2.3, item 25)."""
    mechanism = mechanisms.build({"kind": "anti-pgd", "nu": nu}, 40)
    first, second, *rest = mechanism.noising_matrix(40)[:, 0]
    assert (first, second) == (1.0, pytest.approx(nu - 1, rel=1e-7))  # a float32 stream multiplies by a float32
    assert rest == [0.0] * 38
    nu = 1 + second
    np.testing.assert_allclose(mechanism.strategy_matrix(40)[:, 0], (1 - nu) ** np.arange(40.0), rtol=1e-12)
    assert mechanism.buffers == 1
    for rounds in (1, 7, 40):
        expected = damped_anti_pgd_gamma_squared(nu, rounds)
        assert mechanism.sensitivity(Single(), rounds) ** 2 == pytest.approx(expected, rel=1e-12)


# Windows ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [8, 32, 128])
def test_a_window_is_charged_with_its_own_inverse(width: int) -> None:
    row = PAPER["window"]
    cut = mechanisms.build({"kind": "nu", "nu": row["nu"], "window": width}, row["rounds"])
    full = mechanisms.build({"kind": "nu", "nu": row["nu"], "engine": "exact"}, row["rounds"])
    assert cut.sensitivity(Single()) ** 2 == pytest.approx(row["gamma_squared"][str(width)], abs=5.1e-8)
    assert full.sensitivity(Single()) ** 2 == pytest.approx(row["full"], abs=5.1e-8)
    assert cut.noising_matrix(200)[199].sum() == pytest.approx(row["sum_beta"][str(width)], abs=5.1e-5)
    assert cut.buffers == width - 1


def test_a_window_as_long_as_the_run_is_the_exact_mechanism() -> None:
    memory = mechanisms.build({"kind": "nu", "nu": 0.05, "engine": "memory"}, 30).stream(4, SecureNoise(KEY))
    window = mechanisms.build({"kind": "nu", "nu": 0.05, "window": 30}, 30).stream(4, SecureNoise(KEY))
    for _ in range(30):
        torch.testing.assert_close(window.next(), memory.next(), rtol=1e-6, atol=1e-6)


# Tuning ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", PAPER["tuned"])
def test_tuning_for_the_least_prefix_error(row: list[float]) -> None:
    n, k, b = (int(x) for x in row[:3])
    nu, rmse, sens, rmse0, sens0, identity = row[3:]
    participation = MinSeparation(b, k)
    auto = mechanisms.build({"kind": "nu", "engine": "exact"}, n, participation)
    found = 1 - 2 * float(auto.strategy_matrix(2)[1, 0])  # c_1 = (1 - nu)/2
    assert found == pytest.approx(nu, rel=0.01)
    assert auto.mean_error(n, participation) == pytest.approx(rmse, rel=1e-6)
    # The minimum is flat: the recorded sensitivity belongs to a nu that differs in the fourth digit.
    assert auto.sensitivity(participation) == pytest.approx(sens, rel=1e-3)
    zero = mechanisms.build({"kind": "optimal-cc", "engine": "exact"}, n)
    assert zero.mean_error(n, participation) == pytest.approx(rmse0, abs=6e-7)
    assert zero.sensitivity(participation) == pytest.approx(sens0, abs=6e-7)
    independent = mechanisms.build({"kind": "nu", "nu": 1.0}, n)
    assert independent.mean_error(n, participation) == pytest.approx(identity, abs=6e-7)


@pytest.mark.parametrize(("n", "k", "b", "copies", "rmse"), PAPER["stamped_optimal_cc"])
def test_stamped_optimal_cc(n: int, k: int, b: int, copies: int, rmse: float) -> None:
    spec = {"kind": "optimal-cc", "engine": "exact", "restart_every": n // copies}
    stamped = mechanisms.build(spec, n)
    participation = MinSeparation(b, k)
    assert stamped.mean_error(n, participation) == pytest.approx(rmse, abs=0.006)
    assert stamped.sensitivity(participation).bound == "exact"


def test_restarts_do_not_help_one_participation() -> None:
    """And the recorded best numbers of copies are the best of their neighbours."""
    best = {(n, k, b): copies for n, k, b, copies, _ in PAPER["stamped_optimal_cc"]} | {(2000, 1, 2000): 1}
    for (n, k, b), copies in best.items():
        rmse = {}
        for s in {1, copies // 2, copies, copies * 2, copies + 1} - {0}:
            stamped = mechanisms.build({"kind": "optimal-cc", "engine": "exact", "restart_every": -(-n // s)}, n)
            rmse[s] = stamped.mean_error(n, MinSeparation(b, k))
        assert min(rmse, key=lambda s: rmse[s]) == copies


def test_one_copy_is_the_unstamped_mechanism() -> None:
    spec = {"kind": "nu", "nu": 0.1, "engine": "exact"}
    plain, once = mechanisms.build(spec, 20), mechanisms.build({**spec, "restart_every": 20}, 20)
    assert plain.mean_error(20, MinSeparation(4)) == once.mean_error(20, MinSeparation(4))


def test_tuning_sees_window_and_restarts() -> None:
    """The tuned nu is no worse than any nu near it or at the ends, for the mechanism that will really run."""
    participation = MinSeparation(20, 5)
    for extra in ({"window": 40}, {"restart_every": 50}, {"restart_every": 33}):
        auto = mechanisms.build({"kind": "nu", "engine": "exact", **extra}, 100, participation)
        best = auto.mean_error(100, participation)
        for nu in (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0):
            other = mechanisms.build({"kind": "nu", "nu": nu, "engine": "exact", **extra}, 100, participation)
            assert best <= other.mean_error(100, participation) * (1 + 1e-9)


# The fast engine -------------------------------------------------------------------------------------------------

BUFFERS = [
    (100, 1, 100, (3, 6), (3, 6)),
    (100, 4, 25, (3, 6), (3, 7)),
    (2000, 1, 2000, (4, 9), (4, 10)),
    (2000, 20, 100, (5, 10), (5, 9)),
    (20000, 1, 20000, (5, 11), (5, 12)),
    (20000, 20, 1000, (6, 11), (6, 12)),
]


@pytest.mark.parametrize(("n", "k", "b", "zero", "auto"), BUFFERS)
@pytest.mark.parametrize("which", [0, 1])
def test_fast_engine_reaches_its_tolerance_in_few_buffers(
    n: int, k: int, b: int, zero: tuple[int, int], auto: tuple[int, int], which: int
) -> None:
    tolerance, participation = (1e-3, 1e-6)[which], MinSeparation(b, k)
    for nu, buffers in ((0.0, zero), ("auto", auto)):
        spec = {"kind": "nu", "nu": nu, "tolerance": tolerance}
        fast = mechanisms.build(spec, n, participation)
        exact = mechanisms.build({**spec, "engine": "exact"}, n, participation)
        assert fast.buffers <= buffers[which] + 1  # one to spare for other linear-algebra libraries
        assert fast.mean_error(n, participation) == pytest.approx(exact.mean_error(n, participation), rel=tolerance)
        assert fast.max_error(n, participation) == pytest.approx(exact.max_error(n, participation), rel=tolerance)
        assert fast.sensitivity(participation).bound == "exact"


@pytest.mark.parametrize("nu", [0.0, 1e-4, 0.01, 0.3, 0.99])
@pytest.mark.parametrize("n", [2, 3, 50, 3000])
@pytest.mark.parametrize("buffers", [1, 2, 5, 9])
def test_an_approximation_is_charged_for_what_it_is(nu: float, n: int, buffers: int) -> None:
    few = rational.fit(noising_coefficients(nu, n), buffers)
    beta, c = few.coefficients(n), few.strategy(n)
    np.testing.assert_allclose(c, toeplitz.inverse(beta, n), atol=1e-12)
    assert toeplitz.is_monotone(c)
    for values in (few.omega, few.theta):
        np.testing.assert_array_equal(values, values.astype(np.float32).astype(np.float64))
    assert (few.omega < 0).all()
    assert ((few.theta > 0) & (few.theta < 1)).all()


def test_a_float32_stream_multiplies_by_the_charged_numbers() -> None:
    """After 2000 rounds float32 noise is B z to round-off; with theta off by a float32 ulp it would be off by 1e-4."""
    n = 2000
    mechanism = mechanisms.build({"kind": "optimal-cc"}, n)
    noise = SecureNoise(KEY, map=2)  # it draws the same numbers in both
    coarse, fine = (mechanism.stream(50, noise, dtype=d) for d in (torch.float32, torch.float64))
    worst = 0.0
    for _ in range(n):
        a, b = coarse.next(), fine.next()
        worst = max(worst, float((a.double() - b).abs().max()))
    assert worst < 2e-5


@pytest.mark.parametrize(
    ("coefs", "buffers"), [([1.0, 0.5], 1), ([1.0], 1), ([2.0, -0.5], 1), ([1.0, -2.0], 1), ([1.0, -0.5], 0)]
)
def test_fits_refuse_what_they_cannot_represent(coefs: list[float], buffers: int) -> None:
    with pytest.raises(BadInput, check=coded("out-of-range")):
        rational.fit(np.array(coefs), buffers)


# Noise and privacy -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [{"kind": "nu", "nu": 0.02, "engine": "exact"}, {"kind": "nu", "nu": 0.02}])
def test_empirical_covariance(spec: dict[str, Any]) -> None:
    """1e5 independent coordinates, 36 entries within 6 standard errors: false alarm below 36 x 2e-9 = 8e-8."""
    n, draws = 8, 100_000
    mechanism = mechanisms.build(spec, n)
    stream = mechanism.stream(draws, SecureNoise(KEY), dtype=torch.float64)
    noise = np.stack([stream.next().numpy() for _ in range(n)])
    b = mechanism.noising_matrix(n)
    expected = b @ b.T
    error = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / draws)
    assert (np.abs(noise @ noise.T / draws - expected) < 6 * error).all()
    assert (expected[np.triu_indices(n, 1)] < 0).all()


def test_stream_matrix_and_prefix_forms_give_one_trajectory() -> None:
    n, eta = 12, 0.3
    mechanism = mechanisms.build({"kind": "nu", "nu": 0.1, "engine": "exact"}, n)
    b, c = mechanism.noising_matrix(n), mechanism.strategy_matrix(n)
    noise = SecureNoise(KEY)
    z = np.stack([noise.standard_normal(3, row=t, dtype=torch.float64).numpy() for t in range(n)])
    stream = mechanism.stream(3, noise, dtype=torch.float64)
    theta, gradients, streamed = np.ones(3), [], []
    for _ in range(n):
        gradients.append(theta - 0.2)
        theta = theta - eta * (gradients[-1] + stream.next().numpy())
        streamed.append(theta)
    g = np.stack(gradients)
    before = np.vstack([np.ones(3), streamed[:-1]])
    np.testing.assert_allclose(before - eta * b @ (c @ g + z), streamed, atol=1e-10)
    np.testing.assert_allclose(1 - eta * np.tri(n) @ b @ (c @ g + z), streamed, atol=1e-10)


def test_one_participation_moves_the_gaussian_by_at_most_the_charge() -> None:
    mechanism = mechanisms.build({"kind": "nu", "nu": 0.05}, 40)
    rho, gamma = 0.3, float(mechanism.sensitivity(Single()))
    sigma = gamma / np.sqrt(2 * rho)
    losses = [float(mechanism.pattern_norms([(t,)])[0]) ** 2 / (2 * sigma**2) for t in range(40)]
    assert max(losses) == pytest.approx(rho, rel=1e-12)
    assert losses[0] == max(losses)


def empirical_epsilon(quiet: np.ndarray, moved: np.ndarray, delta: float, miss: float) -> float:
    """Lower bound on epsilon, wrong with probability `miss` (Clopper-Pearson at 8 thresholds, union bound)."""
    n, best = len(quiet), 0.0
    for threshold in np.quantile(quiet, 1 - np.geomspace(3e-4, 3e-2, 8)):
        false, true = int((quiet > threshold).sum()), int((moved > threshold).sum())
        high = beta_law.ppf(1 - miss / 16, false + 1, n - false)
        low = beta_law.ppf(miss / 16, true, n - true + 1)
        best = max(best, float(np.log(max(low - delta, 1e-300) / high)))
    return best


def test_a_canary_cannot_beat_the_claimed_epsilon_and_catches_a_wrong_sensitivity() -> None:
    """A user who gives the full clip norm in round 0, the best statistic <C e_0, C release>; 1e6 coordinates.

    rho = 0.0305566 is epsilon = 1 at delta = 1e-5. Calibrating with 1 instead of the sensitivity must be caught.
    """
    n, rho, epsilon, delta = 64, 0.0305566, 1.0, 1e-5
    mechanism = mechanisms.build({"kind": "optimal-cc"}, n)
    gamma = float(mechanism.sensitivity(Single()))
    c = mechanism.strategy_matrix(n)
    weight = c.T @ c[:, 0] / gamma
    stream = mechanism.stream(1_000_000, SecureNoise(KEY))
    noise = torch.zeros(1_000_000)
    for t in range(n):
        noise += float(weight[t]) * stream.next()
    statistic = noise.double().numpy()
    for factor, holds, miss in ((gamma, True, 1e-6), (1.0, False, 0.01)):
        sigma = factor / np.sqrt(2 * rho)
        found = empirical_epsilon(sigma * statistic, sigma * statistic + weight[0], delta, miss)
        assert (found <= epsilon) is holds
        assert found > 0.3  # the audit has power
