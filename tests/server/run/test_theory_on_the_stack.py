"""What theory predicts of private regression, done by the real server with simulated users.

Every figure is compared with an exact formula or an ODE of the papers, never with another simulation of ours; runs are
deterministic (noise keys and data come from seeds), and tolerances are standard errors of the runs themselves.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import erfinv

from fieldfare.costing import cost_of
from fieldfare.mechanisms import build
from fieldfare.participation import Single
from fieldfare.plan import Plan
from fieldfare_client.app import app
from fieldfare_client.simulation import LocalGrid
from fieldfare_research.forecast.clipped_regression import clipping_factors
from fieldfare_server.run.rehearsal import Rehearsal
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session, seeded_key
from oracles.clipped_regression import ClippedRegression
from oracles.linear_regression import Regression
from support.regressions import FOUR, one_pass, risks, spectrum, weighted, within

Floats = NDArray[np.float64]

TIMES = np.array([0.1, 0.25, 0.5, 0.75, 0.9, 1.0])


# -- Figure 1 of Bombari et al. 2025: gamma = .1, rho = 1, zeta = .3, step 3, clip sqrt(d), noise schedule (4.2) -------


def figure_1(shape: str, size: int, rounds: int, power: float, trials: int) -> tuple[Floats, Floats]:
    """(risks at TIMES, shape (trials, 6), what the coupled ODE says, shape (6,))."""
    step, rho, users = 3.0, 1.0, 10 * size
    # Noise 2 sigma_t in the model, through a step of rate_t: sigma is constant for power 1/2, all at the end for 0.
    left = rounds - np.arange(rounds)
    noise = 2.0 / (rho * np.sqrt(left)) if power else np.where(left == 1, 2.0 / rho, 0.0)
    seen = []
    for seed in range(trials):
        plan = one_pass(
            f"{shape}_{size}_{users}_{seed}",
            rounds=rounds,
            cohort=users // rounds,
            clip=math.sqrt(size),
            rate=step / rounds,
            power=power,
            mechanism={"kind": "independent"},
            noise=1.0,
        )
        seen.append(risks(plan, seed, weighted(plan, noise))[np.rint(TIMES * rounds).astype(int) - 1])
    problem = ClippedRegression(0.1, 0.3, 0.5, tuple(float(value) for value in spectrum(shape, size)))
    expected = problem.ode(step, 1.0, power, problem.last_iterate_rate(step, 1.0, power, rho), TIMES)
    expected[-1] += 0.0 if power else problem.last_iterate_jump(step, 1.0, rho)
    return np.array(seen), expected


@pytest.mark.parametrize("power", [0.0, 0.5])
def test_figure_1_in_little(power: float) -> None:
    seen, expected = figure_1("flat", 100, rounds=100, power=power, trials=8)
    for at, value in enumerate(expected):
        within(seen[:, at], float(value))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "power", "last"),
    [("flat", 0.0, 0.192240), ("flat", 0.5, 0.097209), ("twofold", 0.0, 0.192462), ("twofold", 0.5, 0.097418)],
)
def test_figure_1(shape: str, power: float, last: float) -> None:
    """d = 1000; `last`: the end of the ODE as written down independently of our solver.

    The ODE is the limit of large d: the mean of 20 trials lies .4 to 2.4 % above it here, and up to 9 % at d = 125.
    """
    seen, expected = figure_1(shape, 1000, rounds=400, power=power, trials=10)
    assert expected[-1] == pytest.approx(last, abs=2e-5)
    for at, value in enumerate(expected):
        within(seen[:, at], float(value), limit=0.025)


@pytest.mark.slow
def test_the_size_of_the_cohort_does_not_matter_there() -> None:
    """As long as rounds are many: the ODE knows neither m nor T, only the pass over all users."""
    for rounds in (100, 1000):
        seen, expected = figure_1("flat", 500, rounds=rounds, power=0.5, trials=6)
        within(seen[:, -1], float(expected[-1]))


# -- Every model released, at equal zCDP: section 5 of the notes on clipping ------------------------------------------

INDEPENDENT, TREE = {"kind": "independent"}, {"kind": "tree", "estimator": "plain"}


def released(
    size: int, gamma: float, rounds: int, mechanism: dict[str, Any], clip: float, step: float, power: float, trials: int
) -> Floats:
    """Final risks, shape (trials,), at mu = 1 (zCDP 1/2) against the replacement of one user."""
    users = round(size / gamma)
    noise = 2.0 * float(build(mechanism, rounds=rounds).sensitivity(Single()))
    last = []
    for seed in range(trials):
        plan = one_pass(
            f"flat_{size}_{users}_{seed}",
            rounds=rounds,
            cohort=users // rounds,
            clip=clip * math.sqrt(size),
            rate=step / rounds,
            power=power,
            mechanism=mechanism,
            noise=noise,
        )
        cost = cost_of(plan)
        assert cost.loss.mu == pytest.approx(1.0)
        last.append(risks(plan, seed, cost)[-1])
    return np.array(last)


def test_trees_beat_independent_noise_where_every_model_is_released() -> None:
    tree = released(100, 0.1, 100, TREE, clip=0.2, step=3.0, power=0.0, trials=4)
    independent = released(100, 0.1, 100, INDEPENDENT, clip=0.2, step=3.0, power=0.5, trials=4)
    gap = independent - tree  # the same users, target and order
    assert gap.min() > 0
    assert gap.mean() > 4 * gap.std(ddof=1) / math.sqrt(gap.size)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gamma", "rounds", "step", "tree", "independent"),
    [
        (0.1, 50, 3.0, 0.316, 0.408),
        (0.1, 200, 3.0, 0.371, 0.850),
        (0.02, 250, 6.0, 0.0746, 0.170),
        (0.02, 1000, 6.0, 0.0927, 0.472),
    ],
)
def test_trees_and_independent_noise_at_full_size(
    gamma: float, rounds: int, step: float, tree: float, independent: float
) -> None:
    """d = 1000, three runs each, as the independent simulation that the figures come from; 10 % covers both errors."""
    found = released(1000, gamma, rounds, TREE, clip=0.2, step=step, power=0.0, trials=3)
    assert found.mean() == pytest.approx(tree, rel=0.1)
    against = released(1000, gamma, rounds, INDEPENDENT, clip=0.2, step=step, power=0.5, trials=3)
    assert against.mean() == pytest.approx(independent, rel=0.1)
    assert found.max() < against.min()


def all_rounds_ode(gamma: float, rounds: int, clip: float, step: float, power: float) -> float:
    problem = ClippedRegression(gamma, 0.3, 0.5)
    return float(problem.ode(step, clip, power, problem.independent_rate(step, clip, power, 2.0, rounds), [1.0])[0])


def test_the_price_of_releasing_every_model() -> None:
    """The private term is T times that of the last model alone: 2 c^2 gamma^2 eta^2 T / rho^2."""
    seen = released(100, 0.1, 50, INDEPENDENT, clip=0.3, step=3.0, power=0.5, trials=8)
    within(seen, all_rounds_ode(0.1, 50, 0.3, 3.0, 0.5))


@pytest.mark.slow
@pytest.mark.parametrize(("rounds", "ode"), [(50, 0.464), (200, 1.448), (1000, 7.23)])
def test_the_price_of_releasing_every_model_at_full_size(rounds: int, ode: float) -> None:
    assert all_rounds_ode(0.1, rounds, 0.3, 3.0, 0.5) == pytest.approx(ode, rel=2e-3)
    seen = released(1000, 0.1, rounds, INDEPENDENT, clip=0.3, step=3.0, power=0.5, trials=6)
    within(seen, ode)


def test_the_adaptive_norm_finds_the_quantile_that_theory_knows() -> None:
    """||gradient|| = sqrt(d) |residual|: the norm settles at sqrt(2) erfinv(q) sqrt(2 P d), and q is the share below.

    The model stands still (a step of 1e-9), so the residual's variance 2 P = 1 + 0.09 does.
    """
    size, rounds, quantile = 400, 60, 0.4
    fixed = one_pass(
        f"flat_{size}_6000_3",
        rounds=rounds,
        cohort=100,
        clip=1.0,
        rate=1e-9,
        power=0.0,
        mechanism={"kind": "nu", "nu": 0.1},
        noise=0.5,
    )
    adaptive = {"kind": "adaptive-quantile", "norm": 5.0, "quantile": quantile, "rate": 0.3, "count_weight": 0.3}
    plan = Plan.parse({**fixed.model_dump(mode="json"), "clipping": adaptive})
    norms: list[float] = []
    with Session(plan, cost_of(plan), Rehearsal(), None, seeded_key(3)) as session:
        FieldfareStrategy(session, lambda report: norms.append(session.released.clip)).start(
            LocalGrid(app, 1, {"task": plan.run.task})
        )
    expected = math.sqrt(2.0) * float(erfinv(quantile)) * math.sqrt(1.09 * size)
    assert norms[0] < expected
    assert np.mean(norms[-30:]) == pytest.approx(expected, rel=0.08)
    mu, _ = clipping_factors(float(np.mean(norms[-30:])) / math.sqrt(size), 1.09 / 2)
    assert float(mu) == pytest.approx(quantile, abs=0.04)


# -- Noisy-FTRL on a quadratic: section 5.1 of the notes on correlated noise -------------------------------------------

CLIP = 64.0
"""Above every gradient: Noisy-FTRL has no clipping. (The largest of 10^5 gradients near the optimum is about 15.)"""


def stationary(
    mechanism: dict[str, Any], gamma_squared: float, users: int, settle: int, seed: int, rate: float = 0.05
) -> Floats:
    """Means of ||theta - theta*||_H^2 over 10 stretches after `settle` rounds, shape (10,): G = 1, rho = 1."""
    plan = one_pass(
        f"four_4_{users}_{seed}",
        rounds=users,
        cohort=1,
        clip=CLIP,
        rate=rate,
        power=0.0,
        mechanism=mechanism,
        noise=math.sqrt(gamma_squared / 2.0) / CLIP,
    )
    return 2.0 * risks(plan, seed)[settle:].reshape(10, -1).mean(axis=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("mechanism", "gamma_squared", "exact"),
    [
        ({"kind": "independent"}, 1.0, 0.0659207860),
        ({"kind": "nu", "nu": 0.005}, 2.3535037734, 0.0214470341),
        ({"kind": "anti-pgd", "nu": 0.05}, 10.2564102564, 0.0374884936),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_the_table_of_four_eigenvalues(mechanism: dict[str, Any], gamma_squared: float, exact: float) -> None:
    """A stretch of 500 rounds is five times the slowest direction's memory, so the ten are nearly independent."""
    within(stationary(mechanism, gamma_squared, users=6_000, settle=1_000, seed=1), exact)


def test_correlated_noise_is_as_much_better_on_a_quadratic_as_theory_says() -> None:
    """The same in little: a faster problem, and only as many rounds as tell the two apart."""
    rate, users, settle = 0.2, 600, 100
    theory = Regression(FOUR, rate, sgd_noise=0.5)
    found = {}
    for kind, fields, gamma_squared in (("independent", {}, 1.0), ("anti-pgd", {"nu": 0.2}, 1 / (1 - 0.8**2))):
        mechanism: dict[str, Any] = {"kind": kind, **fields}
        seen = stationary(mechanism, gamma_squared, users, settle, seed=2, rate=rate)
        beta = np.array([1.0, -0.8]) if fields else np.ones(1)
        within(seen, theory.exact(beta, gamma_squared))
        found[kind] = seen.mean()
    assert found["anti-pgd"] < found["independent"]
