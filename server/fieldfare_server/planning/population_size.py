"""Whether a plan's delta and sampling rate fit the number of its users.

delta is the probability with which the guarantee may fail altogether. A mechanism that publishes one of n users at
random is (0, 1/n)-DP, so delta must be far below 1 / n. And a Poisson rate, which is what is charged, should bring
about as many users as the planned cohort, by which every sum is divided.
"""

from __future__ import annotations

from fieldfare.errors import BadInput
from fieldfare.plan import Plan

WIDEST = 2.0
"""Refused: expected users a round above this many cohorts, or below one cohort over this."""
NOTICED = 1.2
"""The same, warned of."""


def check_population_size(plan: Plan, users: int, *, accepted: bool = False) -> list[str]:
    """Warnings about `plan` on a population of `users` users.

    Args:
        users: at least 1.
        accepted: a person said `--accept-delta`: what would be refused is a warning.

    Raises:
        BadInput: delta >= 1 / users, or a Poisson rate that brings more than twice or less than half the cohort.
    """
    warnings = []
    delta = plan.privacy.delta
    if delta * users > 0.1:
        near = f"{0.1 / users:.2g}"
        why = f"publishing one user at random of {users} has delta {1 / users:.3g}."
        if delta * users >= 1 and not accepted:
            raise BadInput(f"privacy.delta = {delta:g}", why, f"{near}, or --accept-delta")
        warnings.append(f"privacy.delta = {delta:g}: {why} Better: at most {near}.")
    if plan.samples and plan.participation.rate is not None:
        expected = plan.participation.rate * users / (plan.participation.groups or 1)
        factor = max(expected / plan.run.cohort, plan.run.cohort / expected)
        why = f"brings about {expected:.3g} of {users} users a round, and run.cohort is {plan.run.cohort}."
        near = f"cohort = {max(1, round(expected))}"
        if factor > WIDEST and not accepted:
            raise BadInput(f"participation.rate = {plan.participation.rate:g}", why, f"{near}, or --accept-delta")
        if factor > NOTICED:
            warnings.append(f"participation.rate = {plan.participation.rate:g} {why} Better: {near}.")
    return warnings
