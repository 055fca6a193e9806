"""Discrete Gaussian noise on a grid, charged as the continuous Gaussian that it is a coarsening of.

Let z have independent discrete Gaussian entries of scale S (in grid cells) around whole-number shifts of norm
at most Delta, over N entries. Draw y ~ N(x, S^2 - s^2) and then k from the discrete Gaussian of scale s
around y. By Poisson summation sum_j exp(-(j - y)^2 / (2 s^2)) is the same for every y up to a factor 1 +- 2
exp(-2 pi^2 s^2), so k has the law of x + z up to a factor exp(+-kappa) an entry, kappa = 2.1 exp(-2 pi^2 s^2)
+ 2.1 exp(-2 pi^2 S^2). k is a post-processing of the Gaussian y. Hence such a run is a post-processing of
E(mu, d) (see `filter`) with

    mu = Delta / sqrt(S^2 - s^2),        d = 2 N kappa / Phi(-mu / 2),        for N kappa <= 0.1.            (1)

Here s = 3, S is at least `SMALLEST_SCALE` (`privatise.Privatiser` refuses less), and N is at most 2^63: mu^2
rises by 8.6e-6 of itself, and d is below 1e-40 for mu up to 15. The shifts are those of C x, for C and B of
whole numbers with B C = I: what is released, B (C x + z), is a function of C x + z.
"""

from __future__ import annotations

import math
from typing import Final

from fieldfare.accounting.loss import PrivacyLoss
from fieldfare.lazily import scipy

# Least scale S of discrete noise, in grid cells.
SMALLEST_SCALE: Final = 1024
# s of equation (1).
_KERNEL: Final = 3.0
# mu^2 of equation (1) over (Delta / S)^2, at the smallest S.
SHARE: Final = 1 / (1 - (_KERNEL / SMALLEST_SCALE) ** 2)
_LOG_LEAK: Final = math.log(2 * 2.0**63 * 2 * 2.1) - 2 * math.pi**2 * _KERNEL**2


def as_gaussian(loss: PrivacyLoss) -> PrivacyLoss:
    """Return the charge of discrete noise whose Gaussian of the same scale would cost `loss`, which has no
    sampled events.

    Rounded up. A concentrated part, by which the ledger's first version charged discrete noise, is rho = mu^2
    / 2.
    """
    return PrivacyLoss(2 * loss.rho * SHARE * (1 + 1e-15))


def on_cells(loss: PrivacyLoss, cells: int) -> float:
    """Return mu^2 of discrete noise `cells` wide whose charge is `loss`; by an s of 2 where only zCDP was charged."""
    return 2 * loss.rho * cells**2 / (cells**2 - 4) * (1 + 1e-12) if loss.concentrated else loss.mu_squared


def leak(mu_squared: float) -> float:
    """Return d of equation (1) for a run that `as_gaussian` charges `mu_squared`; 0 for no charge."""
    return math.exp(_LOG_LEAK - float(scipy.special.log_ndtr(-math.sqrt(mu_squared) / 2))) if mu_squared > 0 else 0.0
