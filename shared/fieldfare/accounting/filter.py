"""The filter across runs: budgets that stay valid when every run is chosen after seeing what earlier runs
released.

**Why a filter.** Inside one run the mechanisms are fixed in advance, and privacy loss distributions compose.
Across runs somebody looks at the released models and decides what to run next. Composing distributions is not
valid then: a chooser that picks the second run by what the first one released can reach twice the claimed
delta (`tests/core/accounting/test_filter.py` has the pair). Two numbers can be summed under any such choice:

E(mu, d) is the experiment "with probability d tell the world outright, else show N(b mu, 1)", b being the
world. A run is *priced* (mu, d) when its output is a post-processing of E(mu, d), in both orders of the two
worlds.

**Theorem (filter).** Let run i be a post-processing of E(mu_i, d_i), where mu_i and d_i may depend on
everything released before. If sum mu_i^2 <= M and sum d_i <= D on every path, all releases together are a
post-processing of E(sqrt M, D), so

    delta(epsilon) <= D + (1 - D) g_sqrt(M)(epsilon),     g_mu as equation (1) of `gaussian`.                       (1)

*Proof sketch.* Let X(s) = b s + W(s) be a Brownian motion with drift, and U uniform. Run i reads the next
mu_i^2 of X, whose scaled increment is N(b mu_i, 1) whatever was released before, and leaks when U exceeds
prod_{j <= i} (1 - d_j). Never more than X up to M is read, and a leak implies U > 1 - D. For d = 0 this is
the filter of Smith and Thakurta 2022 (arXiv 2210.17520) and of Koskela, Tobaben and Honkela 2023 (arXiv
2209.15596).

**The rectangle is fixed in advance.** D is chosen when a population is made and M follows from it. Comparing
the Gaussian of the sum of mu^2 at "delta minus what leaked so far" instead is *not* a filter: its region is
no rectangle, and choosing between the two by outcome again overspends. The guarantee is the rectangle's
(epsilon, delta). What equation (1) gives for the sums so far is only a *gauge*: it is a guarantee only if the
moment of stopping did not depend on what was released.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from fieldfare.accounting import discretised
from fieldfare.accounting.event import Price as Price
from fieldfare.accounting.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu
from fieldfare.accounting.loss import PrivacyLoss
from fieldfare.errors import OutOfRange, Unsupported
from fieldfare.participation import Adjacency
from fieldfare.text import decimal

# Default D of a population under `add_remove`, as a share of delta: M shrinks by about 1 %.
SAMPLED_SHARE = 0.1
# Default D under the other adjacencies, as a share of delta: enough for discrete noise, whose leak is far smaller.
#
# delta - D is delta in float64, so M is that of D = 0: a plan calibrated to the whole budget fits.
PLAIN_SHARE = 2.0**-60
# M of the largest rectangle, far beyond any privacy.
LARGEST_M = 1e18
# The leak of one sampled run, as a share of what is left of D when it starts.
#
# A share of what is left, and not of D, so that some is left for every later run; the leak may depend on
# earlier runs by the theorem. A quarter, because the price of a run of many rounds changes by a percent or
# two between a hundredth and a third of delta, so that the first dozen of runs all have a useful leak.
RUN_SHARE = 0.25


def default_leak(adjacency: Adjacency, delta: float) -> float:
    """Return D of a population that does not choose it. Ledgers of the first version are migrated to this."""
    return (SAMPLED_SHARE if adjacency == "add_remove" else PLAIN_SHARE) * delta


@dataclass(frozen=True)
class Rectangle:
    """A population's budget: at most `mu_squared` (M) and at most `leak` (D), summed over all runs.

    Guarantee: (epsilon, delta) of `of` for every user, under any adaptive choice of runs (the module's
    theorem).
    """

    mu_squared: float
    leak: float

    @classmethod
    def of(cls, epsilon: float, delta: float, leak: float) -> Rectangle:
        """Return the largest rectangle of width `leak` whose equation (1) holds at (epsilon, delta).

        Raises `BadInput` unless 0 <= leak < delta < 1.
        """
        _require_leak(leak, delta)
        # delta = D + (1 - D) g_mu(epsilon) is the guarantee; D is set aside whole, whatever runs take of it.
        # Equation (1), solved for the delta that is left to the Gaussian part.
        mu = gaussian_mu(epsilon, (delta - leak) / (1 - leak))
        # A smaller M holds too, and that of an epsilon of 1e308 would be infinite.
        return cls(min(mu * mu, LARGEST_M), leak)

    def holds(self, price: Price) -> bool:
        """Return whether `price` fits. No tolerance: both sums are compared as they are."""
        return price.mu_squared <= self.mu_squared and price.leak <= self.leak

    def delta(self, epsilon: float) -> float:
        """Return delta of equation (1): what the whole rectangle allows at `epsilon`."""
        return self.leak + (1 - self.leak) * gaussian_delta(math.sqrt(self.mu_squared), epsilon)


def gauge(spent: float, delta: float, leak: float) -> float:
    """Return epsilon of equation (1) for a sum `spent` of mu^2 at `delta`, the whole of D = `leak` set aside.

    0 where nothing is spent. A reading, not a guarantee: see the module.

    Args:
        spent: a sum of mu^2.
        delta: of the population, above 0 and below 1.
        leak: D, at least 0 and below delta.
    """
    if spent <= 0:
        return 0.0
    _require_leak(leak, delta)
    return gaussian_epsilon(math.sqrt(spent), (delta - leak) / (1 - leak))


@dataclass(frozen=True)
class Terms:
    """A population's budget: its (epsilon, delta), which is the guarantee, and its leak D, which never changes."""

    epsilon: float
    delta: float
    leak: float

    def gauge(self, total: Price) -> float:
        """Return the epsilon that `total` has used, with all of D set aside: a reading. The guarantee is epsilon."""
        return _gauge(total.mu_squared, self.delta, self.leak)

    def hold(self, total: Price) -> bool:
        """Return whether `total` is within the rectangle.

        mu^2 <= M is asked as gauge <= epsilon, so that a plan calibrated to the whole epsilon fits to the
        last bit.
        """
        return total.leak <= self.leak and total.mu_squared < math.inf and self.gauge(total) <= self.epsilon


@lru_cache(maxsize=8192)
def _gauge(mu_squared: float, delta: float, leak: float) -> float:
    return gauge(mu_squared, delta, leak)


def price(loss: PrivacyLoss, leak: float) -> Price:
    """Return the least (mu, `leak`) that one run of `loss` is a post-processing of.

    Gaussian runs cost mu^2 and no leak. Sampled runs are composed as one (`sampled.price`); a certified curve
    is priced by its chords (`Certified.least_mu`). Where `leak` is 0, or too small for the numerical
    composition, amplification cannot be claimed: the price is that of the same rounds without sampling.

    Raises `BadInput` for a loss of which only zCDP is known: such charges have their own conversion.
    """
    return loss.price(leak)


def require_priced(planned: PrivacyLoss) -> None:
    """Raise `BadInput` for a run whose loss has no price: of which only zCDP is known."""
    if planned.concentrated:
        raise Unsupported("a run of which only rho-zCDP is known", "has no price that holds across runs.")


def leak_of_run(planned: PrivacyLoss, left: float) -> float | None:
    """Return how much of D a run takes that starts when `left` is left, where it may choose; None where its
    noise decides.
    """
    return RUN_SHARE * max(0.0, left) if planned.amplified else None


def leak_of_noise(planned: PrivacyLoss, discrete: bool) -> float | None:
    """Return d of a run's price where its noise decides it: that of discrete noise, 0 for Gaussian noise;
    None where it is chosen when the run is admitted."""
    if planned.amplified:
        return None
    return planned.leak + (discretised.leak(planned.mu_squared) if discrete else 0.0)


def reserve(planned: PrivacyLoss, leak: float | None = None) -> Price:
    """Return what a run that plans `planned` reserves.

    leak: how much of D a run takes that may choose; else what its noise leaks (None: 0, or that of discrete
        noise in a run of the ledger's first version).
    """
    if planned.amplified:
        return _priced(planned, leak or 0.0)
    if planned.concentrated:  # of a run's planned loss, only the first version's discrete noise
        plain = discretised.as_gaussian(planned).mu_squared
        return Price(plain, discretised.leak(plain))
    return Price(planned.mu_squared, max(leak or 0.0, planned.leak))


@lru_cache(maxsize=1024)
def _priced(planned: PrivacyLoss, leak: float) -> Price:
    return price(planned, leak)


def pay(planned: PrivacyLoss, spent: PrivacyLoss, reserved: Price) -> Price:
    """Return what of its price `reserved` a run has spent whose committed rounds cost `spent`.

    With amplification all of it: when the run stopped may have depended on what it released.

    Args:
        planned: the loss of the whole run.
        spent: the loss of its committed rounds.
        reserved: what the run reserved when it started, at the leak that it took.
    """
    if planned.amplified:
        return reserved
    if planned.concentrated:
        return Price(discretised.as_gaussian(spent).mu_squared, reserved.leak)
    return Price(spent.mu_squared, reserved.leak)


def is_price(planned: PrivacyLoss, named: Price, thorough: bool = True) -> bool:
    """Return whether `named` is what a run that plans `planned` must reserve, at the leak that it names.

    Another machine may compute a sampled price with other last digits.

    thorough: whether to compute a price that takes a numerical composition; else it is believed.
    """
    if not planned.amplified:
        return not planned.concentrated and named.mu_squared == planned.mu_squared and named.leak >= planned.leak
    # Only too small a price would harm: a larger one takes more of the budget and guarantees the same.
    return not thorough or named.mu_squared >= reserve(planned, named.leak).mu_squared * (1 - 1e-9)


def _require_leak(leak: float, delta: float) -> None:
    if not 0 < delta < 1:
        raise OutOfRange(f"delta = {delta}", "must be above 0 and below 1.", "1e-5")
    if not 0 <= leak < delta:
        raise OutOfRange(
            f"leak = {leak}", f"must be at least 0 and below delta = {decimal(delta)}.", decimal(delta / 10)
        )
