"""Stationary error of noisy gradient descent for linear regression with Gaussian inputs (arXiv 2310.06771, C).

f = (y - <theta, x>)^2 / 2, x ~ N(0, H), one example in each step. H enters through its eigenvalues, noise through beta
and gamma^2 = sensitivity^2: sigma^2 = G^2 gamma^2/(2 rho) per coordinate of z. Errors are
E ||theta - theta*||_H^2 = 2 E(F - F*).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fieldfare.arrays import Floats, lfilter
from fieldfare.errors import OutOfRange
from fieldfare.factorization.spectra import eigenvalue_vector


def quadratic_form(beta: Floats, decay: float) -> float:
    """q = sum_{s,t} beta_s beta_t decay^|s - t| (equation 32): O(len(beta)) by one recursion."""
    return float(partial_quadratic_forms(beta, decay)[-1])


def partial_quadratic_forms(beta: Floats, decay: float) -> Floats:
    """The sum of `quadratic_form` over s, t <= n for every n, shape of beta."""
    past = lfilter([0.0, decay], [1.0, -decay], beta)  # s_t = decay (s_{t-1} + beta_{t-1})
    return np.asarray(np.cumsum(np.square(beta) + 2.0 * beta * past), dtype=np.float64)


@dataclass(frozen=True)
class Regression:
    """One problem and one noise budget.

    Args:
        eigenvalues: of H, all positive.
        eta: learning rate, in (0, 1 / largest eigenvalue).
        rho: zCDP of the whole run.
        clip: clip norm G.
        sgd_noise: standard deviation of the labels' noise.

    Raises:
        BadInput: eigenvalues, eta or rho are out of range.
    """

    eigenvalues: tuple[float, ...]
    eta: float
    rho: float = 1.0
    clip: float = 1.0
    sgd_noise: float = 0.0

    def __post_init__(self) -> None:
        eigenvalue_vector(self.eigenvalues, self.eta)
        if not self.rho > 0:
            raise OutOfRange(f"rho = {self.rho}", "must be positive.")

    @property
    def spectrum(self) -> Floats:
        """The eigenvalues, shape (d,)."""
        return np.asarray(self.eigenvalues, dtype=np.float64)

    def noise_variance(self, gamma_squared: float) -> float:
        """sigma^2 = G^2 gamma^2 / (2 rho)."""
        return self.clip**2 * gamma_squared / (2 * self.rho)

    def quadratic_forms(self, beta: Floats) -> Floats:
        """q_j at decay 1 - eta lambda_j, shape (d,); equal eigenvalues are computed once."""
        values, place = np.unique(self.spectrum, return_inverse=True)
        return np.array([quadratic_form(beta, 1 - self.eta * float(v)) for v in values])[place]

    def linear_part(self, beta: Floats, gamma_squared: float) -> float:
        """Stationary error with x x^T replaced by its mean H (equation 46): sum_j eta (.)_j / (2 - eta lambda_j).

        Args:
            beta: noise coefficients beta_0, beta_1, ... of any length, taken as 0 beyond it.
            gamma_squared: squared sensitivity of their inverse.
        """
        lam = self.spectrum
        forcing = self.sgd_noise**2 * lam + self.noise_variance(gamma_squared) * self.quadratic_forms(beta)
        return float(np.sum(self.eta * forcing / (2 - self.eta * lam)))
