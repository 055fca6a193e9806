"""The risk ODE of clipped private regression and the paper's noise schedules (Bombari, Seroussi, Mondelli 2025)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import solve_ivp

from fieldfare.arrays import Floats
from fieldfare_research.forecast import clipped_regression
from fieldfare_research.forecast.clipped_regression import clipping_factors


@dataclass(frozen=True)
class ClippedRegression(clipped_regression.ClippedRegression):
    """The product's problem with the paper's ODE."""

    def ode(
        self,
        step: float,
        clip: float,
        power: float,
        private_rate: Callable[[float], float],
        times: ArrayLike,
        bound: Literal["coupled", "upper", "lower"] = "coupled",
    ) -> Floats:
        """R at `times` in [0, 1], same shape (equations 4.9, C.19).

        `private_rate(t)`: what noise adds to R per unit of time; see `independent_rate`, `last_iterate_rate`.
        "upper" and "lower" are the decoupled bounds, from the extreme eigenvalues alone.
        """
        lam = np.asarray(self.eigenvalues, np.float64)
        low, high = lam.min(keepdims=True), lam.max(keepdims=True)
        descent, spread = {"coupled": (lam, lam), "upper": (low, high), "lower": (high, np.ones(1))}[bound]
        weigh = lam if bound == "coupled" else np.ones(1)
        size = lam.size if bound == "coupled" else 1

        def slope(t: float, d: Floats) -> Floats:
            risk = max(float(np.mean(weigh * d)), 0.0)
            population = risk + self.label_noise**2 / 2.0
            mu, nu = clipping_factors(clip, population)
            eta = step * max(0.0, 1.0 - t) ** power
            drift = -2.0 * descent * eta * float(mu) * d
            return np.asarray(drift + spread * eta**2 * float(nu) * population * self.gamma + private_rate(t))

        grid = np.asarray(times, np.float64)
        start = np.full(size, self.initial_risk)
        solved = solve_ivp(
            slope, (0.0, 1.0), start, method="LSODA", rtol=1e-9, atol=1e-12, t_eval=np.unique(np.append(grid, 1.0))
        )
        risk = (weigh[:, None] * solved.y).mean(axis=0)
        return np.asarray(np.interp(grid, solved.t, risk))

    def independent_rate(
        self, step: float, clip: float, power: float, noise_multiplier: float, rounds: int
    ) -> Callable[[float], float]:
        """Independent noise of std noise_multiplier x clip on each of `rounds` released sums, every round charged:
        gamma^2 c^2 z^2 T eta^2 / 2. Fewer, larger cohorts carry less."""
        scale = 0.5 * (self.gamma * clip * noise_multiplier) ** 2 * rounds

        def rate(t: float) -> float:
            return float(scale * (step * max(0.0, 1.0 - t) ** power) ** 2)

        return rate

    def last_iterate_rate(self, step: float, clip: float, power: float, rho: float) -> Callable[[float], float]:
        """The paper's own schedule (4.2), where only the last model is released: 2 c^2 gamma^2 (-d eta^2 / dt) / rho^2.

        To reproduce the paper. Fieldfare releases every model and never charges by this (invariant I6).
        """
        scale = 2.0 * (clip * self.gamma * step / rho) ** 2

        def rate(t: float) -> float:
            return float(scale * 2.0 * power * max(0.0, 1.0 - t) ** (2.0 * power - 1.0)) if power > 0 else 0.0

        return rate

    def last_iterate_jump(self, step: float, clip: float, rho: float) -> float:
        """What power 0 adds at the end, where all of its noise is: 2 c^2 eta^2 gamma^2 / rho^2 (4.12)."""
        return 2.0 * (clip * step * self.gamma / rho) ** 2
