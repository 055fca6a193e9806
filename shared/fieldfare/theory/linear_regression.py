"""Errors of noisy gradient descent for linear regression with Gaussian inputs (arXiv 2310.06771, 2.2, C and D).

f = (y - <theta, x>)^2 / 2, x ~ N(0, H), one example a step. H enters through its eigenvalues, noise through beta and
gamma^2 = sensitivity^2: sigma^2 = G^2 gamma^2/(2 rho) per coordinate of z. All stationary errors are
E ||theta - theta*||_H^2 = 2 E(F - F*) unless the docstring says F; the paper's C.18 bounds the former, C.14 the latter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.signal import lfilter

from fieldfare.errors import BadInput
from fieldfare.theory.spectra import eigenvalue_vector, response

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Vector = NDArray[np.float64]


def quadratic_form(beta: Vector, decay: float) -> float:
    """q = sum_{s,t} beta_s beta_t decay^|s - t| (equation 32): O(len(beta)) by one recursion."""
    return float(partial_quadratic_forms(beta, decay)[-1])


def partial_quadratic_forms(beta: Vector, decay: float) -> Vector:
    """The same sum over s, t <= n for every n, shape of beta."""
    past = lfilter([0.0, decay], [1.0, -decay], beta)  # s_t = decay (s_{t-1} + beta_{t-1})
    return np.asarray(np.cumsum(np.square(beta) + 2.0 * beta * past), dtype=np.float64)


@dataclass(frozen=True)
class Regression:
    """One problem and one noise budget; methods give its errors for noise coefficients beta with sensitivity^2 gamma^2.

    Every `beta` is a vector beta_0, beta_1, ... of any length, taken as 0 beyond it.
    """

    eigenvalues: tuple[float, ...]
    eta: float
    rho: float = 1.0
    clip: float = 1.0
    sgd_noise: float = 0.0

    def __post_init__(self) -> None:
        """Raises `BadInput` unless eigenvalues > 0, 0 < eta < 1 / the largest, and rho > 0."""
        eigenvalue_vector(self.eigenvalues, self.eta)
        if not self.rho > 0:
            raise BadInput(f"rho = {self.rho}", "must be positive.")

    @property
    def spectrum(self) -> Vector:
        """The eigenvalues, shape (d,)."""
        return np.asarray(self.eigenvalues, dtype=np.float64)

    def noise_variance(self, gamma_squared: float) -> float:
        """sigma^2 = G^2 gamma^2 / (2 rho)."""
        return self.clip**2 * gamma_squared / (2 * self.rho)

    def quadratic_forms(self, beta: Vector) -> Vector:
        """q_j at decay 1 - eta lambda_j, shape (d,); equal eigenvalues are computed once."""
        values, place = np.unique(self.spectrum, return_inverse=True)
        return np.array([quadratic_form(beta, 1 - self.eta * float(v)) for v in values])[place]

    def exact(self, beta: Vector, gamma_squared: float) -> float:
        """Stationary E||theta - theta*||_H^2, Gaussian inputs: infinite where the recursion is unstable.

        [sum_j eta (sigma_sgd^2 lambda_j + sigma^2 q_j)/(2 (1 - eta lambda_j))]
            / [1 - sum_j eta lambda_j/(2 (1 - eta lambda_j))].
        """
        lam, eta = self.spectrum, self.eta
        forcing = self.sgd_noise**2 * lam + self.noise_variance(gamma_squared) * self.quadratic_forms(beta)
        stable = 1.0 - float(np.sum(eta * lam / (2 * (1 - eta * lam))))
        return float(np.sum(eta * forcing / (2 * (1 - eta * lam)))) / stable if stable > 0 else math.inf

    def linear_part(self, beta: Vector, gamma_squared: float) -> float:
        """The same with x x^T replaced by its mean H (equation 46): sum_j eta (.)_j / (2 - eta lambda_j)."""
        lam = self.spectrum
        forcing = self.sgd_noise**2 * lam + self.noise_variance(gamma_squared) * self.quadratic_forms(beta)
        return float(np.sum(self.eta * forcing / (2 - self.eta * lam)))

    def lower_bound(self, beta: Vector, gamma_squared: float) -> float:
        """Theorem C.18, second form: (eta sigma_sgd^2 Tr H + eta sigma^2 sum_j q_j) / 2."""
        noise = self.noise_variance(gamma_squared) * float(self.quadratic_forms(beta).sum())
        return 0.5 * self.eta * (self.sgd_noise**2 * float(self.spectrum.sum()) + noise)

    def integral_lower_bound(self, beta: Vector, gamma_squared: float) -> float:
        """Theorem C.18, first form: eta sigma_sgd^2 Tr H / 2 + eta^2 sigma^2/(2 pi) integral |B|^2 h (by C.4)."""
        return 0.5 * self.eta * self.sgd_noise**2 * float(self.spectrum.sum()) + self._integral(beta, gamma_squared)

    def universal_lower_bound(self) -> float:
        """(2 eta sigma_sgd^2 + eta^2 G^2/(2 rho)) Tr H / 4: no beta does better (C.18, last line)."""
        sgd, private = 2 * self.eta * self.sgd_noise**2, self.eta**2 * self.clip**2 / (2 * self.rho)
        return 0.25 * (sgd + private) * float(self.spectrum.sum())

    def spectral_lower_bound(self, points: int = 1 << 16) -> float:
        """eta^2 G^2/(8 pi^2 rho) (integral sqrt(h))^2 (equation 47): the noise part of C.18, any beta."""
        s = (np.arange(points) + 0.5) / points
        omega, weight = np.pi * s**3, 3 * np.pi * s**2 / points  # clusters where h peaks
        integral = 2 * float(np.sum(weight * np.sqrt(response(omega, self.spectrum, self.eta))))
        return (self.eta * self.clip * integral) ** 2 / (8 * np.pi**2 * self.rho)

    def upper_bound(self, beta: Vector, gamma_squared: float) -> float:
        """Theorem C.14 for F - F*: R^2 = 3 Tr H, C_kurt = 3 (Gaussian inputs); infinite unless eta < 1/R^2."""
        r2 = 3.0 * float(self.spectrum.sum())
        if self.eta * r2 >= 1:
            return math.inf
        growth = (1 - math.sqrt(self.eta * r2)) ** -2
        noise = self.eta * self.noise_variance(gamma_squared) * float(self.quadratic_forms(beta).sum())
        return (1 + growth) * self.eta * r2 * self.sgd_noise**2 + (1 + 3 * growth) * noise

    def integral_upper_bound(self, beta: Vector, gamma_squared: float) -> float:
        """Theorem C.15 for F - F*: C.14 with 2 x eta^2 sigma^2/(2 pi) integral |B|^2 h; infinite unless eta < 1/R^2."""
        r2 = 3.0 * float(self.spectrum.sum())
        if self.eta * r2 >= 1:
            return math.inf
        growth = (1 - math.sqrt(self.eta * r2)) ** -2
        sgd = (1 + growth) * self.eta * r2 * self.sgd_noise**2
        return sgd + (1 + 3 * growth) * 2 * self._integral(beta, gamma_squared)

    def _integral(self, beta: Vector, gamma_squared: float) -> float:
        """eta^2 sigma^2/(2 pi) integral |B|^2 h = eta sigma^2 sum_j q_j/(2 - eta lambda_j)."""
        per_direction = self.quadratic_forms(beta) / (2 - self.eta * self.spectrum)
        return self.eta * self.noise_variance(gamma_squared) * float(per_direction.sum())

    def trajectory(self, beta: Vector, gamma_squared: float, start: ArrayLike, steps: int) -> Vector:
        """Second moments S_t of theta_t - theta* in H's eigenbasis (diagonals), t = 0..steps: shape (steps + 1, d).

        Equation 83 for Gaussian inputs; `start` is theta_0 - theta*, shape (d,). E(F - F*) at t is lambda . S_t / 2.
        """
        lam, eta = self.spectrum, self.eta
        padded = np.zeros(steps)
        padded[: min(steps, len(beta))] = beta[:steps]
        forms = np.stack([partial_quadratic_forms(padded, 1 - eta * float(v)) for v in lam], axis=1)
        forcing = eta**2 * (self.sgd_noise**2 * lam + self.noise_variance(gamma_squared) * forms)
        moments = np.empty((steps + 1, len(lam)))
        moments[0] = np.square(np.asarray(start, dtype=np.float64))
        for t in range(steps):
            s = moments[t]
            moments[t + 1] = s - 2 * eta * lam * s + eta**2 * (2 * lam**2 * s + lam * float(lam @ s)) + forcing[t]
        return moments

    def finite_time_bound(self, beta: Vector, gamma_squared: float, start: ArrayLike, t: int) -> float:
        """Theorem D.11: E F(theta_t) - F* <= (sqrt((L/mu) e^{-eta mu t} (F(theta_0) - F*)) + sqrt(F_infinity))^2."""
        lam = self.spectrum
        first = 0.5 * float(lam @ np.square(np.asarray(start, dtype=np.float64)))
        decay = lam.max() / lam.min() * math.exp(-self.eta * lam.min() * t) * first
        return float((math.sqrt(decay) + math.sqrt(0.5 * self.exact(beta, gamma_squared))) ** 2)
