"""Stationary error of noisy gradient descent for the mean of a scalar (arXiv 2310.06771, section 2.1, appendix B).

delta_{t+1} = (1 - eta) delta_t + eta sigma_sgd u_t - eta sigma_dp G sum_s beta_s w_{t-s}, sigma_dp^2 = gamma^2/(2 rho).
All functions return E delta^2, *not* the loss F - F* = E delta^2 / 2 (the paper calls both F_infinity).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fieldfare.errors import BadInput
from fieldfare_research.forecast.linear_regression import quadratic_form
from oracles.norms import gamma_squared_limit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]


def error(
    beta: Vector, gamma_squared: float, eta: float, *, rho: float = 1.0, clip: float = 1.0, sgd_noise: float = 0.0
) -> float:
    """eta (sigma_sgd^2 + clip^2 gamma^2/(2 rho) q(beta)) / (2 - eta), q = <beta, T beta> at decay 1 - eta (C.4)."""
    _check(eta, rho)
    noise = clip * clip * gamma_squared / (2 * rho) * quadratic_form(beta, 1 - eta)
    return eta * (sgd_noise**2 + noise) / (2 - eta)


def independent_error(eta: float, *, rho: float = 1.0, clip: float = 1.0, sgd_noise: float = 0.0) -> float:
    """DP-SGD: (eta / (2 - eta)) (G^2/(2 rho) + sigma_sgd^2)."""
    _check(eta, rho)
    return eta / (2 - eta) * (clip * clip / (2 * rho) + sgd_noise**2)


def optimal_error(eta: float, *, rho: float = 1.0, clip: float = 1.0, sgd_noise: float = 0.0) -> float:
    """Theorem 2.1, attained by nu = eta: eta^2 G^2/(2 rho) ((2/pi) K(1 - eta))^2 + eta sigma_sgd^2/(2 - eta)."""
    _check(eta, rho)
    return eta**2 * clip * clip / (2 * rho) * gamma_squared_limit(eta) ** 2 + eta * sgd_noise**2 / (2 - eta)


def _check(eta: float, rho: float) -> None:
    if not 0 < eta <= 1:
        raise BadInput(f"eta = {eta}", "must be in (0, 1].", "1")
    if not rho > 0:
        raise BadInput(f"rho = {rho}", "must be positive.")
