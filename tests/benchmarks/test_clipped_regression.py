"""The ODE of clipped private regression against reference numbers, simulation, and the orderings it predicts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fieldfare.errors import BadInput
from fieldfare_research.forecast.clipped_regression import clipping_factors
from oracles.clipped_regression import ClippedRegression

FIGURE_1 = ClippedRegression(gamma=0.1, label_noise=0.3)
TIMES = [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0]


@pytest.mark.parametrize(
    ("ratio", "mu", "nu"),
    [
        (0.1, 0.079656, 0.009469),
        (0.25, 0.197413, 0.054240),
        (0.5, 0.382925, 0.185128),
        (0.6745, 0.500007, 0.298801),
        (1.0, 0.682689, 0.516059),
        (1.5, 0.866386, 0.778465),
        (2.0, 0.954500, 0.920537),
        (3.0, 0.997300, 0.995007),
    ],
)
def test_clipping_factors(ratio: float, mu: float, nu: float) -> None:
    """spec/clipping, section 2.2; only c / sqrt(2 P) matters."""
    for scale in (1.0, 5.0):
        found = clipping_factors(ratio * scale, scale**2 / 2)
        assert [float(x) for x in found] == pytest.approx([mu, nu], abs=1e-6)


@pytest.mark.parametrize(
    ("power", "expected"),
    [
        (0.0, [0.5, 0.346464, 0.187815, 0.062364, 0.023335, 0.015108, 0.012240]),
        (0.5, [0.5, 0.365163, 0.231005, 0.124593, 0.091369, 0.089606, 0.097209]),
    ],
)
def test_figure_1_of_the_paper(power: float, expected: list[float]) -> None:
    rate = FIGURE_1.last_iterate_rate(3.0, 1.0, power, rho=1.0)
    np.testing.assert_allclose(FIGURE_1.ode(3.0, 1.0, power, rate, TIMES), expected, atol=1e-5)


def test_output_perturbation_jumps_at_the_end() -> None:
    assert FIGURE_1.last_iterate_jump(3.0, 1.0, 1.0) == pytest.approx(0.18)


@pytest.mark.parametrize(
    ("power", "expected"), [(0.0, (0.004121, 0.012462, 0.033472)), (0.5, (0.047823, 0.097418, 0.134995))]
)
def test_bounds_enclose_the_coupled_solution(power: float, expected: tuple[float, float, float]) -> None:
    """kappa = 2, power-law spectrum, d = 1000."""
    d = 1000
    spectrum = np.arange(1, d + 1) ** (-math.log(2) / math.log(d))
    problem = ClippedRegression(0.1, 0.3, eigenvalues=tuple(spectrum / spectrum.mean()))
    rate = problem.last_iterate_rate(3.0, 1.0, power, 1.0)
    found = [problem.ode(3.0, 1.0, power, rate, [1.0], which)[0] for which in ("lower", "coupled", "upper")]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def final(problem: ClippedRegression, step: float, clip: float, power: float) -> float:
    rate = problem.last_iterate_rate(step, clip, power, 1.0)
    jump = problem.last_iterate_jump(step, clip, 1.0) if power == 0 else 0.0
    return float(problem.ode(step, clip, power, rate, [1.0])[0]) + jump


def test_below_the_largest_step_no_user_overshoots() -> None:
    """Lemma C.2: the step of one user is min(eta, 2 / ||x||^2), and below 2 / gamma the minimum is eta for all."""
    size, problem = 1000, ClippedRegression(gamma=0.1)
    users = round(size / problem.gamma)
    squares = np.random.default_rng(0).chisquare(size, users)
    assert (0.8 * problem.largest_step / users <= 2.0 / squares).all()
    assert not (1.3 * problem.largest_step / users <= 2.0 / squares).any()


def test_optimal_settings_of_the_reference_grid() -> None:
    """spec/clipping, section 3: values at their optima, and the order of decay powers, which flips with gamma."""
    scarce, plenty = ClippedRegression(0.2), ClippedRegression(0.01)
    assert final(scarce, 4.95, 0.20, 0.0) == pytest.approx(0.1671, abs=2e-3)
    assert final(plenty, 6.9, 0.32, 0.0) == pytest.approx(0.00263, abs=5e-5)
    assert final(plenty, 11.7, 0.32, 0.5) == pytest.approx(0.00149, abs=3e-5)
    assert final(plenty, 16.7, 0.32, 1.0) == pytest.approx(0.00133, abs=3e-5)


def test_a_loose_clip_norm_is_far_worse_than_a_tight_one() -> None:
    """gamma = .01, power 1/2, step re-optimised: .0015 at c = .3, .0117 at c = 3 (T8)."""
    problem = ClippedRegression(0.01)

    def best(clip: float) -> float:
        return min(final(problem, step, clip, 0.5) for step in np.geomspace(0.5, 100, 25))

    tight, loose = best(0.3), best(3.0)
    assert tight == pytest.approx(0.00149, abs=5e-5)
    assert loose == pytest.approx(0.0117, rel=0.05)


@pytest.mark.parametrize(("rounds", "expected"), [(1000, 7.23), (200, 1.448), (50, 0.464)])
def test_releasing_every_round_costs_rounds_times_more(rounds: int, expected: float) -> None:
    """c = .3, v = 3, power 1/2, gamma .1, std 2 C eta / (m rho), rho = 1 (spec/clipping, section 5)."""
    rate = FIGURE_1.independent_rate(3.0, 0.3, 0.5, 2.0, rounds)
    assert FIGURE_1.ode(3.0, 0.3, 0.5, rate, [1.0])[0] == pytest.approx(expected, rel=5e-3)


def test_rounds_agree_with_the_ode_for_independent_noise() -> None:
    for rounds in (250, 2000):
        rate = FIGURE_1.independent_rate(3.0, 0.3, 0.5, 0.5, rounds)
        expected = float(FIGURE_1.ode(3.0, 0.3, 0.5, rate, [1.0])[0])
        found = float(FIGURE_1.rounds(3.0, 0.3, 0.5, 0.5, np.eye(rounds)))
        assert found == pytest.approx(expected, rel=0.03)


def tree(rounds: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Increments of plain binary-tree prefix noise: row t is the change of the set of open nodes."""
    prefix = np.zeros((rounds + 1, rounds))
    for t in range(1, rounds + 1):
        left = t
        while left:
            prefix[t, left - 1] = 1.0
            left &= left - 1
    return np.diff(prefix, axis=0)


@pytest.mark.parametrize(
    ("gamma", "rounds", "step", "expected", "independent"),
    [(0.02, 1000, 6.0, 0.0927, 0.472), (0.02, 250, 6.0, 0.0746, 0.170), (0.1, 200, 3.0, 0.371, 0.850)],
)
def test_tree_beats_independent_noise_by_what_simulation_found(
    gamma: float, rounds: int, step: float, expected: float, independent: float
) -> None:
    """spec/clipping, section 5: c = .2, one pass, all rounds released, zCDP 1/2; three simulated trials each."""
    problem = ClippedRegression(gamma, 0.3)
    height = math.sqrt(math.floor(math.log2(rounds)) + 1)
    correlated = float(problem.rounds(step, 0.2, 0.0, 2.0 * height, tree(rounds)))
    white = float(problem.rounds(step, 0.2, 0.5, 2.0, np.eye(rounds)))
    assert correlated == pytest.approx(expected, rel=0.12)
    assert white == pytest.approx(independent, rel=0.12)


def test_rounds_follow_a_real_simulation() -> None:
    """d = 200, n = 4000, 40 rounds of 100: clipped SGD with noise, 12 trials, within 4 standard errors and 6 %."""
    d, users, rounds, clip, step, power, z = 200, 4000, 40, 0.5, 4.0, 0.5, 1.0
    problem, rng = ClippedRegression(d / users, 0.3), np.random.default_rng(3)
    cohort, ends = users // rounds, []
    for _ in range(12):
        target = rng.normal(size=d)
        target /= np.linalg.norm(target)
        theta = np.zeros(d)
        for t in range(rounds):
            x = rng.normal(size=(cohort, d))
            gradient = x * (x @ (theta - target) - 0.3 * rng.normal(size=cohort))[:, None]
            norms = np.linalg.norm(gradient, axis=1, keepdims=True)
            clipped = gradient * np.minimum(1.0, clip * math.sqrt(d) / norms)
            noise = z * clip * math.sqrt(d) * rng.normal(size=d)
            theta = theta - step * (1 - t / rounds) ** power / users * (clipped.sum(axis=0) + noise)
        ends.append(0.5 * float((theta - target) @ (theta - target)))
    expected = float(problem.rounds(step, clip, power, z, np.eye(rounds)))
    error = float(np.std(ends, ddof=1)) / math.sqrt(len(ends))
    assert abs(float(np.mean(ends)) - expected) <= 4 * error + 0.06 * expected


def test_many_settings_at_once_are_the_single_ones() -> None:
    steps, clips = np.array([1.0, 3.0, 25.0]), np.array([[0.2], [1.0]])
    table = FIGURE_1.rounds(steps, clips, 0.5, 0.5, np.eye(30))
    assert table.shape == (2, 3)
    assert table[1, 1] == pytest.approx(float(FIGURE_1.rounds(3.0, 1.0, 0.5, 0.5, np.eye(30))), rel=1e-12)
    assert np.isinf(table[:, 2]).all(), "a step above 2 / gamma is no step to plan with"


@pytest.mark.parametrize(
    "bad", [{"gamma": 0.0}, {"gamma": 0.1, "label_noise": math.nan}, {"gamma": 0.1, "eigenvalues": (1.0, 2.0)}]
)
def test_refusals(bad: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        ClippedRegression(**bad)
