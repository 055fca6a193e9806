"""Norms of the nu and anti-PGD coefficients, finite and at T -> infinity (arXiv 2310.06771, sections 2 and 3)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fieldfare.errors import BadInput
from oracles.integrals import complete_first, complete_second

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]


def gamma_squared_limit(nu: float) -> float:
    """gamma_infinity^2 = (2/pi) K(1 - nu): the squared single-participation sensitivity of `nu` for any horizon.

    Calibrating with it serves a run of unknown length. Raises `BadInput` outside (0, 1]: at nu = 0 it diverges.
    """
    if not 0 < nu <= 1:
        why = "the sensitivity grows without bound: name the rounds" if nu == 0 else "must be in (0, 1]"
        raise BadInput(f"nu = {nu} without a horizon", f"{why}.", "nu > 0, or a fixed number of rounds")
    return 2 / math.pi * complete_first(1 - nu)


def gamma_squared_asymptote(rounds: int) -> float:
    """nu = 0: gamma_T^2 = (log T + gamma_Euler + 4 log 2)/pi + o(1)."""
    return (math.log(rounds) + np.euler_gamma + 4 * math.log(2)) / math.pi


def damped_anti_pgd_gamma_squared(nu: float, rounds: int | None = None) -> float:
    """(1 - (1 - nu)^{2T}) / (nu (2 - nu)); T for nu = 0; `rounds=None` is T -> infinity (infinite for nu = 0)."""
    if nu == 0:
        return math.inf if rounds is None else float(rounds)
    rest = 0.0 if rounds is None else (1 - nu) ** (2 * rounds)
    return (1 - rest) / (nu * (2 - nu))


def nu_sum(nu: float) -> float:
    """sum_t beta_t = sqrt(nu)."""
    return math.sqrt(nu)


def nu_absolute_sum(nu: float) -> float:
    """||beta||_1 = 2 - sqrt(nu)."""
    return 2 - math.sqrt(nu)


def nu_squared_norm(nu: float) -> float:
    """||beta||_2^2 = (2/pi)(2 - nu) E(k), k = 2 sqrt(1 - nu)/(2 - nu)."""
    return 2 / math.pi * (2 - nu) * complete_second(2 * math.sqrt(1 - nu) / (2 - nu))


def half_exponential_constant(beta: Vector, nu: float) -> float:
    """sup_t sum_{k <= t} |beta_k| (1 - nu)^{(t - k)/2} / (1 - nu)^{t/2} over t < len(beta) (definition D.3).

    For the nu coefficients it is at most 2.
    """
    decay = (1 - nu) ** (0.5 * np.arange(len(beta)))
    return float(np.max(np.cumsum(np.abs(beta) / decay)))


def autocovariance(beta: Vector, lags: int) -> Vector:
    """E <w_t, w_{t+l}> for unit noise, stationary: sum_s beta_s beta_{s+l}, l = 0..lags, shape (lags + 1,)."""
    return np.array([float(beta[: len(beta) - lag] @ beta[lag:]) for lag in range(lags + 1)])
