"""A forecast in sentences: what to set, to what, why, and on which assumption."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ellipk

from fieldfare.cost import Cost
from fieldfare.mechanisms import Mechanism
from fieldfare.plan import Plan
from fieldfare_research.forecast.clipped_regression import ClippedRegression, clipping_factors
from fieldfare_research.forecast.linear_regression import Regression
from fieldfare_research.forecast.search import POWERS, CohortOption, Setting, at_equal_epsilon
from fieldfare_server.optimizers.innovation import PRIOR
from fieldfare_server.optimizers.kalman import best_gain, smoothed_variance

REGRESSION = "Gaussian linear regression with fresh data at every visit; one round moves the model a little"


LEAST_QUANTILE = 0.05
"""No smaller quantile is suggested, nor a larger one than 1 less this: a norm follows an extreme one slowly."""


@dataclass(frozen=True)
class Suggestion:
    """One setting: what to set, to what, why, and the assumption that it stands or falls with."""

    setting: str
    value: float | str
    because: str
    assumes: str
    at_limit: bool = False
    """Whether the forecast looked no further: the best value may lie beyond."""


def suggest(
    cost: Cost, problem: ClippedRegression, best: Setting, cohorts: tuple[CohortOption, ...]
) -> tuple[Suggestion, ...]:
    """The suggestions that follow from the best setting of the search, and from the compared cohorts."""
    plan = cost.plan
    suggestions = [
        *_clipping(problem, best),
        _learning_rate(plan, problem, best),
        Suggestion(
            "server_optimizer.schedule",
            f"polynomial, power {best.power:g}",
            "more decay pays as users outnumber directions (gamma below .1: 1/2, below .02: 1)",
            REGRESSION,
            at_limit=best.power == max(POWERS),
        ),
        _kappa(cost.mechanism),
        *_nu(cost, problem, best.progress),
    ]
    if cohorts:
        least = min(cohorts, key=lambda option: option.risk)
        suggestions.append(
            Suggestion(
                "run.cohort",
                float(least.cohort),
                f"of the compared cohorts, with {least.rounds} rounds: forecast {least.risk:.3g}",
                f"{REGRESSION}; as many users are available at once",
            )
        )
    return tuple(suggestions)


def _learning_rate(plan: Plan, problem: ClippedRegression, best: Setting) -> Suggestion:
    """The learning rate that goes `best.progress` of the way: progress (1 - momentum) / (local rate x local steps)."""
    momentum = float(getattr(plan.server_optimizer, "momentum", 0.0))
    steps = plan.client.steps or 1
    local = plan.client.learning_rate * steps
    return Suggestion(
        "server_optimizer.learning_rate",
        best.progress * (1.0 - momentum) / local,
        f"one unclipped round then goes {best.progress:.3g} of the way to the optimum, with {steps} local "
        f"step{'s' * (steps != 1)} at {plan.client.learning_rate:g} and momentum {momentum:g}, where the mean "
        "curvature is 1: divide by your curvature, and by local steps if there are more. Keep learning rate x clip "
        "norm if the norm changes",
        f"{REGRESSION}; gamma = {problem.gamma:.3g}",
        at_limit=best.progress_at_limit,
    )


def _nu(cost: Cost, problem: ClippedRegression, progress: float) -> tuple[Suggestion, ...]:
    """From the largest stable step where `progress` is no stable one: the quadratic then has no stationary error.

    None where the plan with that nu has more noise in its prefix sums than the plan as it is: the theory is of one
    participation, long after the start, and a plan of several, or of few rounds, is neither.
    """
    stable = min(progress, 0.99 / max(problem.eigenvalues))
    cut = "" if stable == progress else f" (steps of {progress:.3g} do not settle: for steps of {stable:.3g})"
    nu = best_nu(problem, stable)
    table = cost.plan.model_dump(mode="json", exclude_none=True) | {"mechanism": {"kind": "nu", "nu": nu}}
    other = at_equal_epsilon(cost, table)
    if other is None or other.prefix_noise_rms > cost.prefix_noise_rms:
        return ()
    suggestion = Suggestion(
        "mechanism.nu",
        nu,
        f"least stationary error on the quadratic{cut}; learning rate x smallest curvature is "
        f"{stable * min(problem.eigenvalues):.3g}; noise in a prefix sum {other.prefix_noise_rms:.4g} "
        f"instead of {cost.prefix_noise_rms:.4g}",
        "a quadratic, clipping inactive, one participation, long after the start (correlated-noise theory 5.1)",
        at_limit=stable != progress,
    )
    return (suggestion,)


def _clipping(problem: ClippedRegression, best: Setting) -> tuple[Suggestion, Suggestion]:
    start = problem.initial_risk + problem.label_noise**2 / 2.0
    end = best.risk + problem.label_noise**2 / 2.0
    clip = best.clip_ratio * math.sqrt(2.0 * start)
    first, last = (float(clipping_factors(clip, risk)[0]) for risk in (start, end))
    quantile = (first + last) / 2.0
    return (
        Suggestion(
            "clipping.norm",
            best.clip_ratio,
            "times the root mean square update norm at the start; tighter costs little, looser costs its square",
            REGRESSION,
            at_limit=best.clip_at_limit,
        ),
        Suggestion(
            "clipping.quantile",
            min(max(quantile, LEAST_QUANTILE), 1 - LEAST_QUANTILE),
            f"the unclipped share runs from {first:.2f} to {last:.2f} at that norm; for kind 'adaptive-quantile'",
            REGRESSION,
            at_limit=not LEAST_QUANTILE < quantile < 1 - LEAST_QUANTILE,
        ),
    )


def _kappa(mechanism: Mechanism) -> Suggestion:
    lags = mechanism.autocovariance()
    kappa = best_gain(PRIOR, lags)
    return Suggestion(
        "server_optimizer.kappa",
        kappa,
        f"DiSK's best fixed gain for this mechanism; it leaves {smoothed_variance(kappa, lags):.2f} of the noise",
        "the mean update changes by 1.63 variances of its noise a round, which makes 0.7 right for white noise",
    )


def best_nu(problem: ClippedRegression, eta: float) -> float:
    """The nu with the least exact stationary error of nu-DP-FTRL on the problem's spectrum, without label noise.

    Args:
        problem: gives the spectrum.
        eta: learning rate in units of one over mean curvature.
    """
    theory = Regression(problem.eigenvalues, eta)
    grid = np.geomspace(max(1e-5, eta * min(problem.eigenvalues) / 30), 0.9, 40)

    def error(nu: float) -> float:
        # B's coefficients are those of (1 - (1 - nu) x)^(1/2); after 20 / nu of them (1 - nu)^t is below 1e-8.
        size = min(1 << 15, max(64, int(20.0 / nu)))
        t = np.arange(1, size)
        beta = np.concatenate([[1.0], np.cumprod((1.0 - nu) * (t - 1.5) / t)])
        # C's squared column norm, sum_t binom(-1/2, t)^2 (1 - nu)^(2 t), is an elliptic integral.
        return theory.linear_part(beta, 2.0 / math.pi * float(ellipk((1.0 - nu) ** 2)))

    return float(grid[int(np.argmin([error(float(nu)) for nu in grid]))])
