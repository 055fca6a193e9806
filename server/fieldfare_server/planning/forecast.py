"""What a plan is likely to achieve and how to set it, from the plan and a few stated guesses: touches no data.

Two exact theories, both of regression, stand in for the task. Clipped private regression (Bombari et al. 2025) weighs
clip norm, step and decay against the noise; noisy gradient descent on a quadratic (Choquette-Choo et al. 2024, section
5.1) sets nu; the filter theory of DiSK sets kappa for the mechanism's own noise. A forecast is a way to choose among
plans before any budget is spent. It is not a promise: every suggestion names what it rests on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ellipk

from fieldfare.cost import Cost, cost_of
from fieldfare.errors import BadInput
from fieldfare.mechanisms import Mechanism
from fieldfare.plan import Plan
from fieldfare.theory.clipped_regression import ClippedRegression, clipping_factors
from fieldfare.theory.linear_regression import Regression
from fieldfare_server.optimizers.innovation import PRIOR
from fieldfare_server.optimizers.kalman import best_gain, smoothed_variance
from fieldfare_server.optimizers.noise_profile import autocovariance

MOST_ROUNDS = 4096
"""Longest plan that is forecast: the noise of a round is looked at as a row of B."""

POWERS = (0.0, 0.5, 1.0, 2.0)
"""Decay powers that are compared; larger ones pay only for far more users than directions."""


@dataclass(frozen=True)
class Assumed:
    """What the user believes of the task; nothing is measured.

    `effective_dimension`: trace over largest eigenvalue of the updates' covariance, at most the number of parameters.
    `signal_to_noise`: how much larger a typical squared update is at the start than at the best model.
    `condition`: largest over smallest curvature among the directions that matter.
    """

    effective_dimension: float
    signal_to_noise: float = 11.0
    condition: float = 1.0

    def __post_init__(self) -> None:
        """Raises `BadInput`."""
        for name, least in (("effective_dimension", 1.0), ("signal_to_noise", 1e-3), ("condition", 1.0)):
            value = getattr(self, name)
            if not least <= value < math.inf:
                raise BadInput(f"{name} = {value}", f"must be at least {least}.", str(least))

    def problem(self, visits: int) -> ClippedRegression:
        """As a regression: initial excess risk 1/2, spectrum of two equally frequent eigenvalues with mean 1."""
        low = 2.0 / (1.0 + self.condition)
        spectrum = (1.0,) if self.condition == 1.0 else (low, low * self.condition)
        noise = math.sqrt(1.0 / self.signal_to_noise)
        return ClippedRegression(self.effective_dimension / visits, noise, 0.5, spectrum)


@dataclass(frozen=True)
class Suggestion:
    """One setting: what to set, to what, why, and the assumption that it stands or falls with."""

    setting: str
    value: float | str
    because: str
    assumes: str


@dataclass(frozen=True)
class Setting:
    """A point of the search, and the excess risk (start: 0.5) that is forecast for it.

    `clip_ratio`: clip norm over the root mean square update norm at the start. `progress`: the share of the way to
    the optimum, along a direction of mean curvature, that one unclipped round would go. `power`: (1 - t/T)^power.
    """

    clip_ratio: float
    progress: float
    power: float
    risk: float


@dataclass(frozen=True)
class CohortOption:
    """The same users' visits in fewer, larger or more, smaller rounds, at the same epsilon."""

    cohort: int
    rounds: int
    noise_multiplier: float
    risk: float


@dataclass(frozen=True)
class Forecast:
    """`best` over the search; `by_power` the best at each decay power; `noiseless` without any privacy noise."""

    assumed: Assumed
    visits: int
    gamma: float
    best: Setting
    by_power: tuple[Setting, ...]
    noiseless: float
    cohorts: tuple[CohortOption, ...]
    suggestions: tuple[Suggestion, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `fieldfare plan --json`."""
        return asdict(self)


def forecast(cost: Cost, assumed: Assumed, cohorts: Sequence[float] = ()) -> Forecast:
    """Forecast a calibrated plan. `cohorts`: factors of the planned cohort to compare at equal visits and epsilon.

    Raises `BadInput` for more than 4096 rounds. Deterministic; seconds at most, unless `cohorts` rebuilds a mechanism
    that is optimised numerically.
    """
    rounds, cohort = cost.plan.run.rounds, cost.plan.run.cohort
    if rounds > MOST_ROUNDS:
        raise BadInput(f"run.rounds = {rounds}", "forecasts look at every round's noise.", str(MOST_ROUNDS))
    visits = rounds * cohort
    problem = assumed.problem(visits)
    found = _search(problem, _noise(cost), cost.mechanism.noising_matrix(rounds))
    quiet = _search(problem, 0.0, np.eye(rounds)[:, :1])
    best = min(found, key=lambda setting: setting.risk)
    options = tuple(option for factor in cohorts if (option := _with_cohort(cost, assumed, factor)) is not None)
    return Forecast(
        assumed,
        visits,
        problem.gamma,
        best,
        found,
        min(setting.risk for setting in quiet),
        options,
        _suggestions(cost, problem, best, options),
    )


def _noise(cost: Cost) -> float:
    """Std of z in units of the clipped update's largest norm."""
    spec = cost.plan.clipping
    return cost.noise_multiplier * spec.joint_bound / spec.bound


def _search(problem: ClippedRegression, noise: float, noising: NDArray[np.float64]) -> tuple[Setting, ...]:
    """The best setting at each power, over a grid of clip norms and steps."""
    clips = np.geomspace(0.02, 5.0, 12)[:, None]
    steps = np.geomspace(0.05, min(problem.largest_step, 400.0) * (1 - 1e-12), 14)[None, :]
    start, settings = math.sqrt(2.0 * problem.initial_risk + problem.label_noise**2), []
    for power in POWERS:
        risk = problem.rounds(steps, clips, power, noise, noising)
        row, column = np.unravel_index(int(np.argmin(risk)), risk.shape)
        clip, step = float(clips[row, 0]), float(steps[0, column])
        settings.append(Setting(clip / start, step / noising.shape[0], power, float(risk[row, column])))
    return tuple(settings)


def _with_cohort(cost: Cost, assumed: Assumed, factor: float) -> CohortOption | None:
    """None where the plan's participation cannot be stretched like that."""
    plan = cost.plan
    rounds, cohort = round(plan.run.rounds / factor), round(plan.run.cohort * factor)
    if rounds < 1 or cohort < 1 or rounds > MOST_ROUNDS:
        return None

    def stretched(value: int | None) -> int | None:
        return None if value is None else max(1, math.ceil(value / factor))

    scheme = plan.participation
    table = plan.model_dump(mode="json", exclude_none=True)
    table["run"] |= {"rounds": rounds, "cohort": cohort, "min_reports": None}
    table["participation"] |= {"separation": stretched(scheme.separation), "period": stretched(scheme.period)}
    if scheme.rate is not None:
        table["participation"]["rate"] = scheme.rate * factor
    # The comparison is at equal epsilon also where the plan fixes the multiplier.
    table["privacy"] |= {"epsilon": cost.epsilon, "noise_multiplier": None}
    try:
        other = cost_of(Plan.parse(table))
    except BadInput:
        return None
    found = _search(assumed.problem(rounds * cohort), _noise(other), other.mechanism.noising_matrix(rounds))
    return CohortOption(cohort, rounds, other.noise_multiplier, min(setting.risk for setting in found))


REGRESSION = "Gaussian linear regression with fresh data at every visit; one round moves the model a little"


def _suggestions(
    cost: Cost, problem: ClippedRegression, best: Setting, options: tuple[CohortOption, ...]
) -> tuple[Suggestion, ...]:
    start = problem.initial_risk + problem.label_noise**2 / 2.0
    clip = best.clip_ratio * math.sqrt(2.0 * start)
    first, last = (float(clipping_factors(clip, risk)[0]) for risk in (start, best.risk + problem.label_noise**2 / 2.0))
    share = min(max((first + last) / 2.0, 0.05), 0.95)
    kappa, lags = _kappa(cost.mechanism)
    eta = best.progress
    made = [
        Suggestion(
            "clipping.norm",
            best.clip_ratio,
            "times the root mean square update norm at the start; tighter costs little, looser costs its square",
            REGRESSION,
        ),
        Suggestion(
            "clipping.quantile",
            share,
            f"the unclipped share runs from {first:.2f} to {last:.2f} at that norm; for kind 'adaptive-quantile'",
            REGRESSION,
        ),
        Suggestion(
            "server_optimizer.learning_rate",
            best.progress,
            "share of the way to the optimum that one unclipped round should go: learning rate x local learning rate "
            "x local steps x mean curvature. Keep learning rate x clip norm if the norm changes",
            REGRESSION + f"; without momentum (with it, multiply by 1 - momentum); gamma = {problem.gamma:.3g}",
        ),
        Suggestion(
            "server_optimizer.schedule",
            f"polynomial, power {best.power:g}",
            "more decay pays as users outnumber directions (gamma below .1: 1/2, below .02: 1)",
            REGRESSION,
        ),
        Suggestion(
            "server_optimizer.kappa",
            kappa,
            f"DiSK's best fixed gain for this mechanism; it leaves {smoothed_variance(kappa, lags):.2f} of the noise",
            "the mean update changes by 1.63 variances of its noise a round, which makes 0.7 right for white noise",
        ),
    ]
    nu = _nu(problem, eta) if 0 < eta * max(problem.eigenvalues) < 1 else None
    if nu is not None:
        made.append(
            Suggestion(
                "mechanism.nu",
                nu,
                f"least stationary error on the quadratic; learning rate x smallest curvature is "
                f"{eta * min(problem.eigenvalues):.3g}",
                "a quadratic, clipping inactive, one participation, long after the start (correlated-noise theory 5.1)",
            )
        )
    if options:
        least = min(options, key=lambda option: option.risk)
        made.append(
            Suggestion(
                "run.cohort",
                float(least.cohort),
                f"of the compared cohorts, with {least.rounds} rounds: forecast {least.risk:.3g}",
                REGRESSION + "; as many users are available at once",
            )
        )
    return tuple(made)


def _kappa(mechanism: Mechanism) -> tuple[float, tuple[float, ...]]:
    lags = autocovariance(mechanism)
    return best_gain(PRIOR, lags), lags


def _nu(problem: ClippedRegression, eta: float) -> float:
    """The nu with the least exact stationary error of nu-DP-FTRL on the problem's spectrum (label noise aside)."""
    theory = Regression(problem.eigenvalues, eta)
    grid = np.geomspace(max(1e-5, eta * min(problem.eigenvalues) / 30), 0.9, 40)

    def error(nu: float) -> float:
        size = min(1 << 15, max(64, int(20.0 / nu)))
        t = np.arange(1, size)
        beta = np.concatenate([[1.0], np.cumprod((1.0 - nu) * (t - 1.5) / t)])
        return theory.linear_part(beta, 2.0 / math.pi * float(ellipk((1.0 - nu) ** 2)))

    return float(grid[int(np.argmin([error(float(nu)) for nu in grid]))])
