"""Losses that other trainers report, priced for the filter: mu, zCDP rho, (epsilon, delta), or sampled.

| reported | price |
|---|---|
| mu of Gaussian DP | (mu^2, 0), exact |
| rho of zCDP | the least mu for which every rho-zCDP mechanism is a post-processing of N(mu, 1) against N(0, 1) |
| mu of each of n sealed trials, of which only the best is shown | `fieldfare.accounting.sealed` |
| (epsilon, delta) | "with probability delta tell, else randomised response": one vertex, leak delta |
| Poisson-sampled Gaussian (rate, sigma, steps) | as our own sampled runs; amplified only where presence is secret |

*rho.* delta(e) <= min over a > 1 of exp((a - 1)(a rho - e)) (1 - 1/a)^(a - 1) / a (Canonne, Kamath and
Steinke 2020, Proposition 12), and the total variation TV obeys TV log((1 + TV) / (1 - TV)) <= rho: on the
best event p - q = TV, so 2 rho >= KL + KL' >= TV (logit p - logit q), least at p = 1 - q. The true curve is
convex in exp(e), so the lower hull of these bounds on a grid is a bound, and each segment of it is priced
exactly. About 1.36 to 1.6 times sqrt(2 rho): a Gaussian mechanism whose mu is known costs less.

*(epsilon, delta).* Kairouz, Oh and Viswanath 2015: mu = -2 Phi^-1(1 / (1 + exp(epsilon))) after the leak.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Self

import numpy as np
from pydantic import Field, ValidationError, model_validator

from fieldfare.accounting.event import Price
from fieldfare.accounting.filter import RUN_SHARE
from fieldfare.accounting.loss import PrivacyLoss
from fieldfare.accounting.poisson import PoissonGaussian
from fieldfare.accounting.sealed import MOST_TRIALS, least_mu, mu_of_curve
from fieldfare.errors import NotGiven, Unknown, Unsupported
from fieldfare.lazily import scipy
from fieldfare.participation import Adjacency, adjacency_factor, hides_presence
from fieldfare.refusals import bad_input
from fieldfare.registry import Table

# A loss above these is no privacy, and most likely a mistake. Beyond, quantiles near 1 would lose their digits.
LARGEST_MU, LARGEST_RHO, LARGEST_EPSILON = 500.0, 8.0, 500.0

# A smaller rho is priced as this one, which bounds it: below, the hull of the bounds drowns in round-off.
SMALLEST_RHO = 1e-7


class Foreign(Table):
    """What a trainer reports, for the adjacency of the population that it charges. Exactly one kind.

    mu: of Gaussian DP, or, with trials, of each of so many sealed trials. rho: of zero-concentrated DP.
    epsilon and delta: of (epsilon, delta)-DP.
    rate, noise_multiplier, steps: of a Poisson-sampled Gaussian mechanism, as DP-SGD is.
    """

    mu: float | None = Field(default=None, ge=0, le=LARGEST_MU, description="of Gaussian DP")
    trials: int | None = Field(default=None, ge=2, le=MOST_TRIALS, description="with mu: sealed trials of that mu each")
    rho: float | None = Field(default=None, ge=0, le=LARGEST_RHO, description="of zero-concentrated DP")
    epsilon: float | None = Field(default=None, ge=0, le=LARGEST_EPSILON, description="of (epsilon, delta)-DP")
    delta: float | None = Field(default=None, ge=0, lt=1, description="with epsilon; 0 if it is not given")
    rate: float | None = Field(default=None, gt=0, le=1, description="of Poisson sampling, with the two below")
    noise_multiplier: float | None = Field(default=None, gt=0, le=1e9, description="noise std over clip norm")
    steps: int | None = Field(default=None, ge=1, le=1_000_000_000, description="sampled steps")
    adjacency: Adjacency | None = Field(
        default=None, description="the population's, which refuses another; needed unless zero_out, or sampled"
    )

    @classmethod
    def of(cls, table: Mapping[str, object]) -> Foreign:
        """Return the loss of a table. Raises `BadInput` that names what is wrong."""
        try:
            return cls.model_validate(dict(table))
        except ValidationError as error:
            raise bad_input(error, "", cls) from None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = {name for name, value in self if value is not None and name != "adjacency"}
        kinds = (
            {"mu"},
            {"mu", "trials"},
            {"rho"},
            {"epsilon", "delta"},
            {"epsilon"},
            {"rate", "noise_multiplier", "steps"},
        )
        if given not in kinds:
            raise Unknown(
                f"a loss with {', '.join(sorted(given)) or 'nothing'}",
                "it is not known what that means.",
                "mu; mu and trials; rho; epsilon and delta; or rate, noise_multiplier and steps",
            )
        return self

    def price(self, adjacency: Adjacency, leak: float) -> Price:
        """Return what it takes from a population of `adjacency`, of whose D `leak` is left.

        Raises `BadInput` for sampled losses that cannot be priced, and for one that does not name `adjacency` where
        that of another would be too little: by half of mu under `replace_one`, or by what secret counts tell.
        """
        if self.adjacency is None and self.rate is None and adjacency != "zero_out":
            why = f"the population's is {adjacency!r}, under which what was computed for another may be too little."
            raise NotGiven("adjacency of the loss", why, f"adjacency = {adjacency!r}, where it was computed for it")
        if self.mu is not None:
            if self.trials is None:
                return Price(self.mu * self.mu)
            # Of what is left, so that later ones find some too.
            if (part := RUN_SHARE * leak) <= 0:
                why = "their price takes a leak, and of this population's nothing is left."
                near = f"mu {1.000001 * self.mu * math.sqrt(self.trials):.7g} for all, or a population with --leak"
                raise Unsupported(f"{self.trials} sealed trials", why, near)
            return Price(least_mu(self.mu, self.trials, part) ** 2, part)
        if self.rho is not None:
            mu = _of_rho(max(self.rho, SMALLEST_RHO)) if self.rho > 0 else 0.0
            return Price(mu * mu)
        if self.epsilon is not None:
            # Round-off is added on top: of the quantile, and of its argument, where a small epsilon drowns.
            mu = -2.0 * float(scipy.special.ndtri(1.0 / (1.0 + math.exp(self.epsilon)))) * (1 + 1e-12) + 1e-14
            return Price(mu * mu, self.delta or 0.0)
        assert self.rate is not None
        assert self.noise_multiplier is not None
        assert self.steps is not None
        event = PrivacyLoss(sampled=(PoissonGaussian(self.rate, self.noise_multiplier, self.steps),))
        if hides_presence(adjacency):
            return event.price(RUN_SHARE * leak)
        # Amplification is proven for the presence of a user, not for what stands in the user's place.
        return Price(adjacency_factor(adjacency) ** 2 * event.without_amplification().mu_squared)


def _of_rho(rho: float) -> float:
    """Return the least mu, rounded up, whose Gaussian pair has every rho-zCDP mechanism as post-processing."""
    grid = np.concatenate([[0.0], np.geomspace(1e-4, 1.0, 400) * (rho + 14.0 * math.sqrt(rho) + 1e-9)])
    # Beyond the grid (delta < 1e-21) no vertex can ask for more: the bound falls as exp(-(e - rho)^2 / (4
    # rho)), the Gaussian's curve slower, as exp(-(e - mu^2 / 2)^2 / (2 mu^2)), because mu^2 > 2 rho.
    return mu_of_curve(grid, np.minimum([_delta(rho, float(e)) for e in grid], _total_variation(rho)))


def _delta(rho: float, epsilon: float) -> float:
    """Bound delta by the module's first inequality at the best of many orders, each of which is a bound."""
    orders = 1.0 + np.geomspace(1e-3, 1e4, 600)
    log = (orders - 1) * (orders * rho - epsilon) + (orders - 1) * np.log1p(-1 / orders) - np.log(orders)
    return float(np.exp(min(0.0, float(log.min()))))


def _total_variation(rho: float) -> float:
    """Return the largest TV with TV log((1 + TV) / (1 - TV)) <= rho, rounded up."""
    top = 1.0 - 1e-15
    if top * (math.log1p(top) - math.log1p(-top)) <= rho:
        return 1.0
    below, above = 0.0, top
    for _ in range(60):  # bisection: the left side grows with TV
        middle = (below + above) / 2
        if middle * (math.log1p(middle) - math.log1p(-middle)) <= rho:
            below = middle
        else:
            above = middle
    return min(1.0, above * (1 + 1e-12) + 1e-15)
