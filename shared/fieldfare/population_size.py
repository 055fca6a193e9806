"""Whether a plan's delta and sampling rate fit the number of its users.

delta is the probability with which the guarantee may fail altogether. A mechanism that publishes one of n
users at random is (0, 1/n)-DP, so delta must be far below 1 / n. And a Poisson rate, which is what is
charged, should bring about as many users as the planned cohort, by which every sum is divided.
"""

from __future__ import annotations

import math
from decimal import ROUND_DOWN, Context, Decimal
from typing import TYPE_CHECKING

from fieldfare.errors import OutOfRange
from fieldfare.participation import BMinSep
from fieldfare.text import decimal

if TYPE_CHECKING:
    from fieldfare.accounting import PrivacyLoss
    from fieldfare.plan import Plan

# Refused, and warned of: expected users a round above so many cohorts, or below one cohort over it.
WIDEST, NOTICED = 2.0, 1.2
Finding = tuple[OutOfRange, bool]  # whether it is refused


def check_population_size(plan: Plan, users: int, *, accepted: bool = False) -> list[str]:
    """Return warnings about `plan` on a population of `users` users.

    Args:
        users: at least 1.
        accepted: a person said so, by `--accept-delta`: what would be refused is a warning.

    Raises:
        BadInput: delta >= 1 / users, or a Poisson rate that brings more than twice or less than half the
            cohort.
    """
    found = [*_judge_delta(plan.privacy.delta, users), *_judge_asked(plan, users), *_judge_enrolled(plan, users)]
    for each, refused in found:
        if refused and not accepted:
            raise OutOfRange(each.what, each.why, f"{each.nearest}, or --accept-delta (in Python accept_delta=True)")
    return [_told(each) for each, _ in found]


def population_size_warnings(delta: float, users: int | None, plan: Plan | None = None) -> list[str]:
    """Return the same for a page or a statement, where nothing is refused any more.

    users: None where their number is not known or secret. plan: None for what is said of a population alone.
    """
    if not users:
        return []
    return [_told(each) for each, _ in [*_judge_delta(delta, users), *(_judge_asked(plan, users) if plan else [])]]


def beyond_noise(loss: PrivacyLoss, delta: float, noise_source: str, rounding: str) -> bool:
    """Return whether what no number of the noise reaches may be more probable than a hundredth of `delta`.

    One world shows it, and the other never does. Drawn numbers end at 13.7 standard deviations, those of Box
    and Muller at 9.34 (`fieldfare.noise.secure`).
    """
    reach = 13.7 if (noise_source, rounding) == ("aes-256-ctr", "grid") else 9.34
    tail = math.erfc((reach - math.sqrt(loss.largest_mu_squared)) / math.sqrt(2)) / 2
    return rounding != "discrete" and tail > 0.01 * delta


def _told(each: OutOfRange) -> str:
    return f"{each.what}: {each.why} Better: {each.nearest}."


def largest_delta(users: int) -> float:
    """Return the largest delta, to two digits, that warns nobody with so many users: at most a tenth of 1 / users."""
    return float(Context(prec=2, rounding=ROUND_DOWN).divide(Decimal(1), Decimal(10 * users)))


def _judge_delta(delta: float, users: int) -> list[Finding]:
    if delta * users <= 0.1:
        return []
    why = f"publishing one user at random of {users} has delta {decimal(1 / users, 3)}."
    near = f"at most {decimal(largest_delta(users))}"
    return [(OutOfRange(f"privacy.delta = {decimal(delta)}", why, near), delta * users >= 1)]


def _judge_asked(plan: Plan, users: int) -> list[Finding]:
    return judge_rate(plan, int(plan.asks(users)) or 1)


def judge_rate(plan: Plan, users: int) -> list[Finding]:
    """Return whether the plan's sampler brings another number than its cohort of `users` users whom it may ask."""
    spec = plan.participation
    rate = 1 / spec.bins if spec.bins else spec.rate
    if not plan.samples or rate is None:
        return []
    rate = 1 / BMinSep(spec.separation, rate).period if spec.separation else rate
    expected = rate * users / (spec.groups or 1)
    factor = max(expected / plan.run.cohort, plan.run.cohort / expected)
    if factor <= NOTICED:
        return []
    why = f"it brings about {expected:.3g} of {users} users a round, and run.cohort is {plan.run.cohort}."
    key = f"participation.bins = {spec.bins}" if spec.bins else f"participation.rate = {spec.rate:g}"
    near = f"cohort = {max(1, round(expected))}"
    if not 1 / NOTICED <= expected / max(1, round(expected)) <= NOTICED:  # no cohort is near 0.3 users, or 1.4
        near += ", and a rate that brings as many"
    return [(OutOfRange(key, why, near), factor > WIDEST)]


def _judge_enrolled(plan: Plan, users: int) -> list[Finding]:
    enrolled = plan.participation.enrolled
    if enrolled is None or users <= enrolled:
        return []
    why = f"there are {users} users, and the cap on a round's users is charged for no more than the plan states."
    return [(OutOfRange(f"participation.enrolled = {enrolled}", why, f"{users} or more"), True)]
