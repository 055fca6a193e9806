"""A forecast in sentences: what to set, to what, why, and on which assumption."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ellipk

from fieldfare.mechanisms import Mechanism
from fieldfare.theory.clipped_regression import ClippedRegression, clipping_factors
from fieldfare.theory.linear_regression import Regression
from fieldfare_server.optimizers.innovation import PRIOR
from fieldfare_server.optimizers.kalman import best_gain, smoothed_variance
from fieldfare_server.planning.search import CohortOption, Setting

REGRESSION = "Gaussian linear regression with fresh data at every visit; one round moves the model a little"


@dataclass(frozen=True)
class Suggestion:
    """One setting: what to set, to what, why, and the assumption that it stands or falls with."""

    setting: str
    value: float | str
    because: str
    assumes: str


def suggest(
    mechanism: Mechanism, problem: ClippedRegression, best: Setting, cohorts: tuple[CohortOption, ...]
) -> tuple[Suggestion, ...]:
    """The suggestions that follow from the best setting of the search, and from the compared cohorts."""
    suggestions = [
        *_clipping(problem, best),
        Suggestion(
            "server_optimizer.learning_rate",
            best.progress,
            "share of the way to the optimum that one unclipped round should go: learning rate x local learning rate "
            "x local steps x mean curvature. Keep learning rate x clip norm if the norm changes",
            f"{REGRESSION}; without momentum (with it, multiply by 1 - momentum); gamma = {problem.gamma:.3g}",
        ),
        Suggestion(
            "server_optimizer.schedule",
            f"polynomial, power {best.power:g}",
            "more decay pays as users outnumber directions (gamma below .1: 1/2, below .02: 1)",
            REGRESSION,
        ),
        _kappa(mechanism),
    ]
    eta = best.progress
    if 0 < eta * max(problem.eigenvalues) < 1:  # otherwise the quadratic has no stationary error
        suggestions.append(
            Suggestion(
                "mechanism.nu",
                best_nu(problem, eta),
                f"least stationary error on the quadratic; learning rate x smallest curvature is "
                f"{eta * min(problem.eigenvalues):.3g}",
                "a quadratic, clipping inactive, one participation, long after the start (correlated-noise theory 5.1)",
            )
        )
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


def _clipping(problem: ClippedRegression, best: Setting) -> tuple[Suggestion, Suggestion]:
    start = problem.initial_risk + problem.label_noise**2 / 2.0
    end = best.risk + problem.label_noise**2 / 2.0
    clip = best.clip_ratio * math.sqrt(2.0 * start)
    first, last = (float(clipping_factors(clip, risk)[0]) for risk in (start, end))
    return (
        Suggestion(
            "clipping.norm",
            best.clip_ratio,
            "times the root mean square update norm at the start; tighter costs little, looser costs its square",
            REGRESSION,
        ),
        Suggestion(
            "clipping.quantile",
            min(max((first + last) / 2.0, 0.05), 0.95),
            f"the unclipped share runs from {first:.2f} to {last:.2f} at that norm; for kind 'adaptive-quantile'",
            REGRESSION,
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
