"""Risk of clipped private regression, in advance and without data (Bombari, Seroussi, Mondelli 2025).

Linear regression in the proportional regime: x ~ N(0, Sigma), tr Sigma = d, labels with noise zeta^2, one pass over n
users, d / n = gamma. Clip norm C = c sqrt(d) and step eta_t = step (1 - t)^power / n a user make the excess risk R
follow an ODE in t = share of the pass; c' = c / sqrt(2 R + zeta^2) is the clip norm in units of the typical gradient.
A cohort of any size gives the same ODE (`rounds` below adds any mechanism's noise to it).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import solve_ivp
from scipy.special import erf

from fieldfare.errors import BadInput

Floats = NDArray[np.float64]

MOST_BLOCKS = 256
"""Rounds are merged into at most so many blocks; within one, model and step count as constant."""


def clipping_factors(clip: ArrayLike, population_risk: ArrayLike) -> tuple[Floats, Floats]:
    """(mu, nu): by what clipping multiplies the descent and the second moment of the gradient (Lemma B.1).

    `population_risk` is R + zeta^2 / 2. mu is also the share of users that are not clipped.
    """
    ratio = np.asarray(clip, np.float64) / np.sqrt(2.0 * np.asarray(population_risk, np.float64))
    mu = erf(ratio / math.sqrt(2.0))
    kept = mu - math.sqrt(2.0 / math.pi) * ratio * np.exp(-(ratio**2) / 2.0)
    return np.asarray(mu), np.asarray(ratio**2 * (1.0 - mu) + kept)


@dataclass(frozen=True)
class ClippedRegression:
    """One problem. `eigenvalues` of Sigma (equally many directions each) have mean 1; `gamma` = d / n."""

    gamma: float
    label_noise: float = 0.3
    initial_risk: float = 0.5
    eigenvalues: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        """Raises `BadInput` on a value that is not positive, or a spectrum whose mean is not 1."""
        for name in ("gamma", "label_noise", "initial_risk"):
            if not 0 < getattr(self, name) < math.inf:
                raise BadInput(f"{name} = {getattr(self, name)}", "must be positive and finite.")
        if not self.eigenvalues or min(self.eigenvalues) <= 0:
            raise BadInput("eigenvalues", "must be positive, and at least one.", "1.0")
        if abs(float(np.mean(self.eigenvalues)) - 1.0) > 1e-6:
            raise BadInput(
                f"eigenvalues with mean {np.mean(self.eigenvalues):.6g}", "must have mean 1.", "divide by it"
            )

    @property
    def largest_step(self) -> float:
        """2 / gamma: above it the step is no contraction for a single user's gradient (Lemma C.2)."""
        return 2.0 / self.gamma

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

    def rounds(
        self, step: ArrayLike, clip: ArrayLike, power: ArrayLike, noise_multiplier: float, noising: Floats
    ) -> Floats:
        """Final R when round t's sum carries noise_multiplier x clip x row t of `noising` z, `noising` (T, m).

        `step`, `clip`, `power` broadcast to one shape, that of the result; those whose step exceeds 2 / gamma, or that
        overshoot in a single round, are inf.
        The noise of all rounds is carried through the descent that the noise-free part and the risk set, so that
        correlated noise cancels as far as the model has not moved; exact for independent noise as T grows.
        """
        v, c, a = np.broadcast_arrays(
            np.asarray(step, np.float64), np.asarray(clip, np.float64), np.asarray(power, np.float64)
        )
        shape, v, c, a = v.shape, v.reshape(-1), c.reshape(-1), a.reshape(-1)
        lam = np.asarray(self.eigenvalues, np.float64)
        total = noising.shape[0]
        edges = np.unique(np.linspace(0, total, min(total, MOST_BLOCKS) + 1).round().astype(int))
        blocks = np.add.reduceat(noising, edges[:-1], axis=0)
        free = np.full((v.size, lam.size), self.initial_risk)
        carried = np.zeros((v.size, lam.size, noising.shape[1]))
        scale = 0.5 * (self.gamma * c * noise_multiplier) ** 2
        risk, wild = np.full(v.shape, self.initial_risk), v > self.largest_step
        with np.errstate(over="ignore", invalid="ignore"):
            for start, stop, row in zip(edges[:-1], edges[1:], blocks, strict=True):
                population = risk + self.label_noise**2 / 2.0
                mu, nu = clipping_factors(c, population)
                eta = v * (1.0 - 0.5 * (start + stop - 1) / total) ** a
                moved = lam * (eta * mu / total)[:, None]
                wild |= moved.max(axis=1) > 1.0
                kept = np.clip(1.0 - moved, 0.0, 1.0) ** (stop - start)
                sampling = lam * (eta**2 * nu * population)[:, None] * self.gamma * (stop - start) / total
                free = kept**2 * free + sampling
                carried = kept[:, :, None] * carried + eta[:, None, None] * row
                energy = np.einsum("vek,vek->ve", carried, carried) * scale[:, None]
                risk = np.asarray(np.mean(lam * (free + energy), axis=1))
        risk = np.where(wild | ~np.isfinite(risk), np.inf, risk)
        return np.asarray(risk.reshape(shape))
