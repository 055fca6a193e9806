"""Between which limits the charge of a secret sampler lies, without a sample: a second opinion on `certification`.

The pair is that of `importance`: P, the mixture over a user's patterns pi of N(m_pi, I), against Q = N(0, I).

**From above.** By Kahane's inequality (`balls_in_bins`) both orders' divergences rise when <m_pi, m_pi'> is
replaced by anything that is not below it for every two patterns, pi = pi' included. Take s + o n(pi, pi'), n
the number of blocks in which both have the same round (`CommonParts`). Gaussian exponents with this
covariance are a sum of independent ones: one of variance s that all patterns share, and for each round of
each block one of variance o. So P / Q becomes a product of the likelihood ratio of a Gaussian mechanism with
mu = sqrt(s) and of one of random allocation with noise 1 / sqrt(o) for each block, and these compose by
privacy loss distributions, each rounded upwards (`allocation`). Where noise is independent, s = 0; if all patterns
are of one length besides, the bound is the pair itself, nothing is lost, and it is what is charged
(`SecondOpinion.is_exact`): a Monte Carlo would add its own margin, and could fail.

**From below.** Any set of outputs is a test. That of y = <output, mbar / |mbar|> sees N(0, 1) against the mixture of
N(a_pi, 1), a_pi = <m_pi, mbar> / |mbar|, and so, for every threshold t,

    H(P || Q) >= E Phi(a_pi - t) - e^epsilon Phi(-t),     H(Q || P) >= Phi(t) - e^epsilon E Phi(t - a_pi).          (1)

Both rise with a_pi, which may therefore be rounded down. No charge may lie below (1): it holds with certainty, for this
strategy and noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from fieldfare.accounting import sampled
from fieldfare.accounting.allocation import Allocation
from fieldfare.accounting.certified import Certified
from fieldfare.accounting.gaussian import gaussian_delta, gaussian_epsilon
from fieldfare.accounting.importance import Law, Vector
from fieldfare.errors import Differs
from fieldfare.lazily import scipy
from fieldfare.text import decimal

_THRESHOLDS: Final = np.linspace(-10.0, 40.0, 4001)
# What float64 may get wrong in a difference of probabilities.
_NEGLIGIBLE: Final = 1e-14


@dataclass(frozen=True)
class SecondOpinion:
    """Limits of delta and epsilon of a law at the noise of a run, by the two arguments of the module.

    Args:
        law: at the noise that is charged.
    """

    law: Law

    @property
    def is_exact(self) -> bool:
        """Whether `at_most` only loses what it rounds up: noise is independent, and patterns are of one length."""
        apart = self.law.apart()
        return apart is not None and apart.shared == 0 and self.law.mean >= self.law.largest * (1 - 1e-12)

    def at_least(self, epsilon: float) -> float:
        """A delta that the pair reaches at `epsilon`, in the worse order.

        Formal guarantee: no valid charge has a smaller delta at this epsilon (equation 1 of the module).
        """
        found = 0.0
        absent, present, shown, hidden = self._test
        for gain in (present - math.exp(epsilon) * absent, hidden - math.exp(epsilon) * shown):
            found = max(found, float(gain.max()))
        return max(0.0, found - _NEGLIGIBLE * math.exp(epsilon))

    def at_most(self, epsilon: float) -> float:
        """A bound on delta at `epsilon`, in both orders: by the split, or that without amplification.

        Formal guarantee: the run is (epsilon, this)-DP where cohorts are secret, with no failure probability.
        """
        plain = gaussian_delta(math.sqrt(self.law.largest), epsilon)
        return min(plain, sampled.delta(*self._split, epsilon)) if self._split else plain

    def epsilons(self, delta: float) -> tuple[float, float]:
        """Limits of the true epsilon at `delta`."""
        plain = gaussian_epsilon(math.sqrt(self.law.largest), delta)
        high = min(plain, sampled.epsilon(*self._split, delta)) if self._split else plain
        off: Callable[[float], float] = lambda epsilon: self.at_least(epsilon) - delta  # noqa: E731
        # What the root finder may be off by is taken away: a limit from below stays one.
        return (0.0 if off(0.0) <= 0 else scipy.optimize.brentq(off, 0.0, high, xtol=1e-9) - 1e-9), high

    def require(self, curve: Certified) -> None:
        """Raise `BadInput` where a point of `curve`, that of this law, lies below what the pair reaches."""
        for epsilon, delta in curve.points:
            if delta < (reached := self.at_least(epsilon)):
                raise Differs(
                    f"delta = {decimal(delta)} at epsilon = {epsilon:.6g}",
                    f"a certified charge may not lie below {decimal(reached)}, which one test reaches.",
                )

    @cached_property
    def _split(self) -> tuple[float, sampled.Events] | None:
        apart = self.law.apart()
        if apart is None:
            return None
        if apart.own == 0 or apart.bins == 1:  # nothing secret is left: one Gaussian mechanism
            return apart.shared + apart.own * apart.blocks, ()
        return apart.shared, (Allocation(apart.bins, 1 / math.sqrt(apart.own), apart.blocks),)

    @cached_property
    def _test(self) -> tuple[Vector, Vector, Vector, Vector]:
        """Probabilities of y > t without and with the user, then of y <= t with and without: shape (thresholds,)."""
        values, weights = self.law.projected()
        held = weights > 0
        values, weights = values[held], weights[held]
        above, below = np.zeros(len(_THRESHOLDS)), np.zeros(len(_THRESHOLDS))
        for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
            above += weight * scipy.special.ndtr(value - _THRESHOLDS)
            below += weight * scipy.special.ndtr(_THRESHOLDS - value)
        return scipy.special.ndtr(-_THRESHOLDS), above, below, scipy.special.ndtr(_THRESHOLDS)
