"""Risk of clipped private regression, in advance and without data (Bombari, Seroussi, Mondelli 2025).

Linear regression in the proportional regime: x ~ N(0, Sigma), tr Sigma = d, labels with noise zeta^2, one pass over n
users, d / n = gamma. With clip norm C = c sqrt(d) and step eta_t = step (1 - t)^power / n for each user, the excess
risk R follows an ODE in t = share of the pass; c' = c / sqrt(2 R + zeta^2) is the clip norm in units of the typical
gradient. A cohort of any size gives the same ODE. `rounds` adds any mechanism's noise to it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erf

from fieldfare.arrays import Floats
from fieldfare.errors import BadInput

MOST_BLOCKS = 256
"""Most blocks that rounds are merged into; within a block, model and step count as constant."""


def clipping_factors(clip: ArrayLike, population_risk: ArrayLike) -> tuple[Floats, Floats]:
    """(mu, nu): the factors of the descent and of the gradient's second moment under clipping (Lemma B.1).

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

    def rounds(
        self, step: ArrayLike, clip: ArrayLike, power: ArrayLike, noise_multiplier: float, noising: Floats
    ) -> Floats:
        """The final R, when round t's sum carries noise_multiplier x clip x row t of `noising` z.

        The noise of all rounds is carried through the descent that the noise-free part and the risk set, so that
        correlated noise cancels as far as the model has not moved; exact for independent noise as T grows.

        Args:
            step: eta, the step at the start.
            clip: c, the clip norm over sqrt(d).
            power: of the step's decay (1 - t)^power.
            noise_multiplier: sigma, the standard deviation of z in clip norms.
            noising: B, shape (T, m).

        Returns:
            R in the shape that `step`, `clip` and `power` broadcast to; inf where the step exceeds 2 / gamma or
            overshoots in a single round.
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
