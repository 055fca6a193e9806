"""Bounds that papers state and Fieldfare shows, but never charges.

They hold for what a federation does not do - releasing only the last model of one pass over convex losses -
or are looser than the charge. An `Informational` value is no `PrivacyLoss`: no ledger accepts it.

What is *not* here: the claims of Arora, Marinov and Ullah ("Private Stochastic Convex Optimization: Efficient
Algorithms for Non-smooth Objectives", early version) that noisy follow-the-regularised-leader gains privacy
with the number of steps. They are false; `tests/core/mechanisms/test_false_bounds.py` keeps the
counterexamples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfare.accounting.gaussian import zcdp_epsilon
from fieldfare.errors import OutOfRange, Unsupported, WrongForm


@dataclass(frozen=True)
class Informational:
    """A value to show next to the charge: what it would be if `assumptions` held, according to `source`."""

    rho: float  # zCDP, adjacency replace-one
    source: str
    assumptions: tuple[str, ...]
    charged: Literal[False] = False

    def epsilon(self, delta: float) -> float:
        """Convert from zCDP (`zcdp_epsilon`)."""
        return zcdp_epsilon(self.rho, delta)


LAST_ITERATE_ASSUMPTIONS = (
    "no model but the last is ever released",
    "every user's loss is convex",
    "every step size is at most 2 / smoothness, so that steps do not expand",
    "every user takes part in one step, with one gradient",
    "the noise of a step is independent of that of all others",
)


def last_iterate(
    step_sizes: Sequence[float],
    noise: Sequence[float],
    *,
    only_last_released: bool,
    convex: bool,
    smoothness: float,
    participations: int,
) -> Informational:
    """Bound amplification by iteration: rho^2/2-zCDP with rho = max_k eta_k / sqrt(sum_{j >= k} sigma_j^2).

    From "Better Rates for Private Linear Regression in the Proportional Regime via Aggressive Clipping"
    (Bombari, Seroussi and Mondelli 2025), equation (4.1), after Feldman, Koren and Talwar 2020, Theorem 3.1.

    Args:
        step_sizes: eta_k, shape (n,).
        noise: sigma_k, shape (n,): step k adds Gaussian noise of std 2 C sigma_k / m to the model, where C is
            the clip norm and m the number of users that a step averages over.

    Raises:
        BadInput: names the assumption that fails. A federation that sends its models to clients fails the
            first.
    """
    eta, sigma = _schedule(step_sizes, "step_sizes"), _schedule(noise, "noise")
    if eta.shape != sigma.shape:
        raise WrongForm(f"{sigma.size} noise levels", f"for {eta.size} steps.", str(eta.size))
    failing = (
        (not only_last_released, "models were released before the last one"),
        (not convex, "the loss is not convex, so steps may expand differences"),
        (not 0 <= smoothness < math.inf, "the loss has no finite smoothness"),
        (float(eta.max()) * max(smoothness, 0.0) > 2, f"a step size is above 2 / smoothness = 2 / {smoothness:g}"),
        (participations != 1, f"a user takes part {participations} times"),
    )
    for fails, why in failing:
        if fails:
            raise Unsupported("the last-iterate bound", f"{why}.", "what `charge_for` charges for all released models")
    # Noise of later steps hides step k, too, if only the last model is seen.
    tail = np.sqrt(np.cumsum(np.square(sigma)[::-1])[::-1])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(eta == 0, 0.0, eta / tail)
    rho = float(ratios.max())
    return Informational(rho * rho / 2, "Bombari, Seroussi and Mondelli 2025, equation (4.1)", LAST_ITERATE_ASSUMPTIONS)


def simple_zcdp_epsilon(rho: float, delta: float) -> float:
    """Return rho + 2 sqrt(rho log(1/delta)) (Bun and Steinke 2016, Proposition 1.3): what papers print, and looser."""
    if not rho >= 0:
        raise OutOfRange(f"rho = {rho}", "must be at least 0.", "0")
    if not 0 < delta < 1:
        raise OutOfRange(f"delta = {delta}", "must be strictly between 0 and 1.", "1e-6")
    return rho + 2 * math.sqrt(-rho * math.log(delta))


def _schedule(values: ArrayLike, name: str) -> NDArray[np.float64]:
    out = np.asarray(values, dtype=np.float64)
    if out.ndim != 1 or out.size == 0 or not np.isfinite(out).all() or (out < 0).any():
        raise OutOfRange(name, "must be finite numbers of at least 0, one a step.")
    return out
