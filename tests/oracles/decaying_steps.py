"""Closed forms for steps that decay polynomially: the comparison equations of clipped private regression.

Bombari, Seroussi and Mondelli 2025, appendix D: with step (1 - t)^power and the clipping factors replaced by constants,

    dR/dt = -pull (1 - t)^power R + spread (1 - t)^(2 power) + private (1 - t)^(2 power - 1),

whose solutions bound the risk from above or below, depending on the constants. One formula covers every power >= 1/2
(D.49 and D.81 are its cases 1/2 and >= 1); power 0 is (D.22). At t = 1 it shows what decay buys: the noise terms shrink
with powers of `pull`, the start with exp(-pull / (1 + power)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gamma, gammaincc

from fieldfare.errors import BadInput


def exponential_integral(beta: float, x: ArrayLike) -> NDArray[np.float64]:
    """E_beta(x) = int_1^inf exp(-x t) t^-beta dt = x^(beta - 1) Gamma(1 - beta, x) for beta < 1, x > 0; shape of x."""
    at = np.asarray(x, np.float64)
    return np.asarray(at ** (beta - 1.0) * gamma(1.0 - beta) * gammaincc(1.0 - beta, at))


@dataclass(frozen=True)
class DecayingSteps:
    """The equation above. `start` = R(0); `power` is 0 or at least 1/2. With power 0 there is no private term.

    Raises `BadInput` for another power, a pull that is not positive, or a private term with power 0.
    """

    start: float
    pull: float
    spread: float
    private: float
    power: float

    def __post_init__(self) -> None:
        if self.power != 0 and not 0.5 <= self.power < math.inf:
            raise BadInput(f"power = {self.power}", "no closed form.", "0, or at least 0.5")
        if not 0 < self.pull < math.inf:
            raise BadInput(f"pull = {self.pull}", "must be positive and finite.")
        if self.power == 0 and self.private:
            raise BadInput(
                f"private = {self.private}", "power 0 puts all of its noise at the end, not into the ODE.", "0"
            )

    def risk(self, times: ArrayLike) -> NDArray[np.float64]:
        """R at `times` in [0, 1], same shape."""
        left = 1.0 - np.asarray(times, np.float64)
        if self.power == 0:
            level = self.spread / self.pull
            return np.asarray((self.start - level) * np.exp(-self.pull * (1.0 - left)) + level)
        order = 1.0 + self.power
        k = self.pull / order
        remaining = k * left**order
        total = self.start * np.exp(remaining - k)
        for weight, shape in ((self.spread, 2.0 - 1.0 / order), (self.private, 2.0 * self.power / order)):
            # u^(order shape) E_(1 - shape)(k u^order) = k^-shape Gamma(shape, k u^order), also where u = 0.
            scale = weight / order * k**-shape * float(gamma(shape))
            total = total + scale * np.exp(remaining) * (gammaincc(shape, remaining) - gammaincc(shape, k))
        return np.asarray(total)

    def last_at_most(self) -> float:
        """A bound on R(1) that is tight for a large pull (D.60; D.88 and D.89 with their constants kept)."""
        if self.power == 0:
            return self.start * math.exp(-self.pull) + self.spread / self.pull
        order = 1.0 + self.power
        k = self.pull / order
        shapes = ((self.spread, 2.0 - 1.0 / order), (self.private, 2.0 * self.power / order))
        return self.start * math.exp(-k) + math.fsum(w / order * k**-s * float(gamma(s)) for w, s in shapes)
