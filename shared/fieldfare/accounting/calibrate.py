"""The least noise that keeps a run within (epsilon, delta)."""

from __future__ import annotations

import math

from fieldfare.accounting.charge import amplification, charge_for, require_charged, require_valid
from fieldfare.accounting.gaussian import gaussian_mu
from fieldfare.accounting.loss import PrivacyLoss
from fieldfare.accounting.sampled import SMALLEST_DELTA
from fieldfare.errors import BadInput, BudgetRefused, OutOfRange, TooLarge
from fieldfare.lazily import scipy
from fieldfare.mechanisms.base import Mechanism
from fieldfare.participation import Adjacency, Participation, adjacency_factor
from fieldfare.text import decimal

# Below this the grid of a privacy loss distribution, not the mechanism, would decide the noise.
SMALLEST_SAMPLED_EPSILON = 1e-3
# Noise multipliers found numerically are at most this much above the least one.
_RELATIVE = 1e-5


def calibrate(
    mechanism: Mechanism,
    participation: Participation,
    *,
    epsilon: float,
    delta: float,
    adjacency: Adjacency = "zero_out",
    already: PrivacyLoss | None = None,
) -> float:
    """Return the least noise multiplier at which all rounds, composed with `already`, cost at most `epsilon`.

    Closed form without sampled events, else a search over numerical compositions (seconds).

    Args:
        already: what was spent before; of sampled rounds, by a plan that was fixed together with this one.

    Returns:
        A multiplier for which (already + charge_for(...)).epsilon(delta) <= epsilon exactly as evaluated.

    Raises:
        BadInput: values out of range, or too small for numerical composition.
        BudgetRefused: `already` leaves nothing.
    """
    before = PrivacyLoss() if already is None else already
    if not 0 < epsilon < math.inf:
        raise OutOfRange(f"epsilon = {epsilon}", "must be a finite number above 0.", "1.0")
    require_valid(adjacency, participation)
    require_charged(mechanism, participation)
    if 0 < delta <= before.leak:
        raise BudgetRefused(
            f"a leak of {decimal(before.leak)}", f"leaves nothing of delta = {decimal(delta)}.", decimal(delta / 10)
        )
    most = gaussian_mu(epsilon, (delta - before.leak) / (1 - before.leak)) ** 2
    amplified = amplification(mechanism, participation, adjacency).holds
    if before.epsilon(delta) >= epsilon:
        raise BudgetRefused(
            f"epsilon = {epsilon:g} at delta = {decimal(delta)}", f"{before.epsilon(delta):.6g} of it is spent already."
        )
    sensitivity = adjacency_factor(adjacency) * float(mechanism.sensitivity(participation))
    # Finite values above 0 in the place of infinity and of 0 (a large delta alone): the root finder takes logarithms.
    far, free = 1e3 * epsilon, 1e-300

    def cost(sigma: float) -> float:
        try:
            loss = charge_for(mechanism, participation, sigma, mechanism.rounds, adjacency)
        except BadInput:  # too little noise to compose numerically: the cost is far above any target
            return far
        return max(free, min(far, (before + loss).epsilon(delta)))

    if not amplified and not before.sampled:
        sigma = sensitivity / math.sqrt(most - before.mu_squared)
        # The closed form may round to a cost just above epsilon: step by single bits.
        while cost(sigma) > epsilon:
            sigma *= 1 + 4e-16
        return sigma
    if epsilon < SMALLEST_SAMPLED_EPSILON or delta < SMALLEST_DELTA:
        raise TooLarge(
            f"epsilon = {epsilon:g}, delta = {decimal(delta)} with sampling",
            "the privacy loss distribution would need too fine a grid.",
            f"epsilon {SMALLEST_SAMPLED_EPSILON:g}, delta {SMALLEST_DELTA:g}",
        )
    # This much noise is enough even without any amplification, of this run or of those before it.
    plain = most - before.without_amplification().mu_squared
    high = sensitivity / math.sqrt(plain) if plain > 0 else sensitivity / math.sqrt(most)
    while (dear := cost(high)) > epsilon:
        high *= 2 if dear > epsilon * (1 + 1e-9) else 1 + 1e-12  # only the last bits are too many: nothing is amplified
        if high > 1e9 * sensitivity:
            raise BudgetRefused(
                f"epsilon = {epsilon:g} at delta = {decimal(delta)}", "what is spent leaves too little of it."
            )
    low = high
    while cost(low) <= epsilon:
        high, low = low, low / 2
    if cost(math.exp(math.log(high))) > epsilon:  # high is the least already, to the last bit: nothing is amplified
        return high
    # Smooth and falling in log sigma. The root finder may stop on either side; only the upper one is enough noise.
    root = scipy.optimize.brentq(
        lambda log: math.log(cost(math.exp(log)) / epsilon), math.log(low), math.log(high), xtol=_RELATIVE / 4
    )
    sigma = math.exp(float(root))
    while cost(sigma) > epsilon:
        sigma *= 1 + _RELATIVE / 4
    return sigma
