"""A privacy budget in words: what it lets somebody who sees every release conclude about one user."""

from __future__ import annotations

import math

from fieldfare.accounting.filter import Rectangle
from fieldfare.lazily import scipy
from fieldfare.text import promised, up

# The share of wrong accusations at which an attacker's success is stated.
FALSE_POSITIVES = 0.01


def true_positive_rate(mu: float, leak: float = 0.0, false_positives: float = FALSE_POSITIVES) -> float:
    """Return the most users that any attacker identifies who wrongly accuses `false_positives` of the others.

    Guarantee: for every test between "this user's data were used" and "they were not", if the releases are a
    post-processing of E(mu, leak): the trade-off function of the Gaussian (Dong, Roth and Su 2019, equation
    6), and with probability `leak` the world outright (`fieldfare.accounting.filter`).
    """
    # Who learns the world outright accuses nobody wrongly: all wrong accusations are left for the others.
    rate = min(false_positives / (1 - leak), 1.0)
    return leak + (1 - leak) * float(scipy.special.ndtr(scipy.special.ndtri(rate) + mu))


def bounded_rate(epsilon: float, delta: float, false_positives: float = FALSE_POSITIVES) -> float:
    """Return the same where only (epsilon, delta) is known: both its inequalities (Kairouz et al. 2015)."""
    if epsilon > 700:  # exp overflows
        return 1.0
    growing = math.exp(epsilon) * false_positives + delta
    falling = 1 - math.exp(-epsilon) * (1 - false_positives - delta)
    return max(0.0, min(growing, falling, 1.0))


def budget_in_words(epsilon: float, delta: float, leak: float) -> str:
    """Return a population's guarantee, a bound for each of its users whatever is run.

    epsilon, delta: the largest budget so far: a limit that was tightened since is no bound for earlier runs.
    """
    mu = math.sqrt(Rectangle.of(epsilon, delta, leak).mu_squared)
    return _in_words(epsilon, delta, true_positive_rate(mu, leak))


def loss_in_words(epsilon: float, delta: float, mu: float | None) -> str:
    """Put one run's loss into words. mu: of a Gaussian loss; None where only (epsilon, delta) is known."""
    return _in_words(epsilon, delta, identified(epsilon, delta, mu))


def identified(epsilon: float, delta: float, mu: float | None) -> float:
    """Return the share of users whom an attacker identifies at most; arguments as of `loss_in_words`."""
    return bounded_rate(epsilon, delta) if mu is None else true_positive_rate(mu)


def odds_factor(epsilon: float) -> float | None:
    """Return by what factor, but for delta, any probability may change; None where it says nothing."""
    return None if epsilon > 30 else math.exp(epsilon)


def _in_words(epsilon: float, delta: float, rate: float) -> str:
    factor = odds_factor(epsilon)  # the odds after one outcome go beyond it more often than delta
    odds = "an unbounded factor" if factor is None else f"a factor of {_up(factor)}"
    return (
        f"Whether a user's data are used or not: but for a difference of {promised(delta)}, the probability of what "
        f"all releases together show changes by at most {odds}. An attacker who wrongly accuses "
        f"{FALSE_POSITIVES * 100:g} % of the users whose data were not used identifies at most {_up(100 * rate)} % of "
        "the others."
    )


def _up(value: float) -> str:
    """Round up to three digits: a bound must not look smaller than it is."""
    rounded = up(value, 3)
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:.3g}"
