"""Exact errors and bounds of noisy gradient descent for linear regression (arXiv 2310.06771, 2.2, C and D).

All stationary errors are E ||theta - theta*||_H^2 = 2 E(F - F*) unless the docstring says F; the paper's C.18 bounds
the former, C.14 the latter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fieldfare.arrays import Floats
from fieldfare.factorization.spectra import response
from fieldfare_research.forecast import linear_regression
from fieldfare_research.forecast.linear_regression import partial_quadratic_forms


@dataclass(frozen=True)
class Regression(linear_regression.Regression):
    """The product's problem with the paper's exact errors and bounds."""

    def exact(self, beta: Floats, gamma_squared: float) -> float:
        """Stationary E||theta - theta*||_H^2, Gaussian inputs: infinite where the recursion is unstable.

        [sum_j eta (sigma_sgd^2 lambda_j + sigma^2 q_j)/(2 (1 - eta lambda_j))]
            / [1 - sum_j eta lambda_j/(2 (1 - eta lambda_j))].
        """
        lam, eta = self.spectrum, self.eta
        forcing = self.sgd_noise**2 * lam + self.noise_variance(gamma_squared) * self.quadratic_forms(beta)
        stable = 1.0 - float(np.sum(eta * lam / (2 * (1 - eta * lam))))
        return float(np.sum(eta * forcing / (2 * (1 - eta * lam)))) / stable if stable > 0 else math.inf

    def lower_bound(self, beta: Floats, gamma_squared: float) -> float:
        """Theorem C.18, second form: (eta sigma_sgd^2 Tr H + eta sigma^2 sum_j q_j) / 2."""
        noise = self.noise_variance(gamma_squared) * float(self.quadratic_forms(beta).sum())
        return 0.5 * self.eta * (self.sgd_noise**2 * float(self.spectrum.sum()) + noise)

    def integral_lower_bound(self, beta: Floats, gamma_squared: float) -> float:
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

    def upper_bound(self, beta: Floats, gamma_squared: float) -> float:
        """Theorem C.14 for F - F*: R^2 = 3 Tr H, C_kurt = 3 (Gaussian inputs); infinite unless eta < 1/R^2."""
        r2 = 3.0 * float(self.spectrum.sum())
        if self.eta * r2 >= 1:
            return math.inf
        growth = (1 - math.sqrt(self.eta * r2)) ** -2
        noise = self.eta * self.noise_variance(gamma_squared) * float(self.quadratic_forms(beta).sum())
        return (1 + growth) * self.eta * r2 * self.sgd_noise**2 + (1 + 3 * growth) * noise

    def integral_upper_bound(self, beta: Floats, gamma_squared: float) -> float:
        """Theorem C.15 for F - F*: C.14 with 2 x eta^2 sigma^2/(2 pi) integral |B|^2 h; infinite unless eta < 1/R^2."""
        r2 = 3.0 * float(self.spectrum.sum())
        if self.eta * r2 >= 1:
            return math.inf
        growth = (1 - math.sqrt(self.eta * r2)) ** -2
        sgd = (1 + growth) * self.eta * r2 * self.sgd_noise**2
        return sgd + (1 + 3 * growth) * 2 * self._integral(beta, gamma_squared)

    def _integral(self, beta: Floats, gamma_squared: float) -> float:
        """eta^2 sigma^2/(2 pi) integral |B|^2 h = eta sigma^2 sum_j q_j/(2 - eta lambda_j)."""
        per_direction = self.quadratic_forms(beta) / (2 - self.eta * self.spectrum)
        return self.eta * self.noise_variance(gamma_squared) * float(per_direction.sum())

    def trajectory(self, beta: Floats, gamma_squared: float, start: ArrayLike, steps: int) -> Floats:
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

    def finite_time_bound(self, beta: Floats, gamma_squared: float, start: ArrayLike, t: int) -> float:
        """Theorem D.11: E F(theta_t) - F* <= (sqrt((L/mu) e^{-eta mu t} (F(theta_0) - F*)) + sqrt(F_infinity))^2."""
        lam = self.spectrum
        first = 0.5 * float(lam @ np.square(np.asarray(start, dtype=np.float64)))
        decay = lam.max() / lam.min() * math.exp(-self.eta * lam.min() * t) * first
        return float((math.sqrt(decay) + math.sqrt(0.5 * self.exact(beta, gamma_squared))) ** 2)
