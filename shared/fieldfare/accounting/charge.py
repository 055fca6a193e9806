"""What a run costs, from the mechanism that is executed and the participation that is enforced.

| adjacency | which participation | charged |
|---|---|---|
| `zero_out` | any | Gaussian, mu = sensitivity / sigma. Cohorts and counts are public, so sampling amplifies nothing |
| `replace_one` | any | the same with twice the sensitivity |
| `add_remove` | Poisson, cyclic Poisson | amplified where the reduction below holds, else Gaussian |
| `add_remove` | truncated Poisson | amplified for independent noise, else refused |
| `add_remove` | random allocation | amplified for independent noise; banded: as below; else refused |
| `add_remove` | balls in bins, b-min-sep | by a certificate (`certification`), which `cost` makes; here Gaussian |

Why only there. Under `add_remove` each user is included by a coin, and one user's coin changes no other
user's inclusion, so the two worlds are coupled round by round. A selector that fills a cohort of fixed size
would put another user in the place of a missing one, which changes two updates. Under `zero_out` the number
of reports is public in this system; given that number, a Poisson sample has a fixed size, and the pair of
`sampled` no longer dominates. For `replace_one` with Poisson sampling no dominating pair for all epsilon is
proven (Lebeda et al. 2024), so none is used.

Cohorts of a fixed size, uniform without replacement, are charged without amplification too. A federation
shows how many users answered. An observer who knows which users never answer then knows that the others were
chosen more often than cohort / users.

**Reduction** (Choquette-Choo et al. 2023, "(Amplified) Banded Matrix Factorization", Theorem 4). Let C be
lower triangular with at most b non-zero entries per column, from the diagonal down, and let a user be
eligible only in rounds r, r + b, r + 2b, ... The columns of these rounds then have disjoint rows: block by
block, the output is a Gaussian mechanism of which the user changes at most ||C_t||, with a fresh coin for
each block. Hence ceil(T / b) Poisson-sampled Gaussian events of noise multiplier sigma / max_t ||C_t||.
Independent noise is b = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from fieldfare.accounting import chained
from fieldfare.accounting.loss import PrivacyLoss
from fieldfare.accounting.sampled import SampledEvent, charged_as, refusal
from fieldfare.errors import OutOfRange, Unsupported
from fieldfare.mechanisms.base import Mechanism
from fieldfare.participation import (
    SAMPLED,
    Adjacency,
    BallsInBins,
    BMinSep,
    Participation,
    RandomAllocation,
    Single,
    TruncatedPoisson,
    adjacency_factor,
)

# Samplers whose events are those of independent noise.
INDEPENDENT_ONLY: Final = (RandomAllocation, TruncatedPoisson)


@dataclass(frozen=True)
class Amplification:
    """Whether sampling lowers the charge, why, and if so the events: one every `groups` rounds."""

    holds: bool
    why: str
    groups: int = 1
    event: SampledEvent | None = None  # one of the events, at noise multiplier 1


def amplification(mechanism: Mechanism, participation: Participation, adjacency: Adjacency) -> Amplification:
    """Judge the conditions of the module's reduction; `why` names the first that fails."""
    if isinstance(participation, BallsInBins | BMinSep):
        return Amplification(False, "a certificate charges the whole run, not sampled events")
    kind = charged_as(participation)
    if kind is None:
        return Amplification(False, "users are not sampled independently of each other")
    event, groups = kind.of(participation), kind.groups(participation)
    if adjacency != "add_remove":
        return Amplification(False, f"sampling earns nothing under adjacency {adjacency!r}; it does under 'add_remove'")
    most = 1 if kind.independent else groups
    bands = mechanism.bandwidth()
    if bands is None or bands > most:
        width = "a strategy that is not banded" if bands is None else f"a strategy of {bands} bands"
        return Amplification(False, f"{width} with {most} group(s); it needs at most as many bands as groups")
    return Amplification(True, f"{bands} band(s), {groups} group(s)", groups, event)


def charge_for(
    mechanism: Mechanism,
    participation: Participation,
    noise_multiplier: float,
    rounds: int,
    adjacency: Adjacency = "zero_out",
) -> PrivacyLoss:
    """Return the privacy loss of the first `rounds` rounds of `mechanism`, an upper bound for every allowed
    participation.

    Monotone in `rounds`; no rounds cost nothing. See the module for when sampling amplifies.

    Args:
        participation: what the selector enforces.
        noise_multiplier: std of z over the clip norm.
        rounds: from 0 to the mechanism's horizon.

    Raises:
        BadInput: `add_remove` without Poisson sampling, values out of range, or sampled rounds with so little
            noise that their numerical composition would exhaust memory (which is refused before it begins).
    """
    if not 0 < noise_multiplier < math.inf:
        raise OutOfRange(f"noise_multiplier = {noise_multiplier}", "must be a finite number above 0.", "1.0")
    if not 0 <= rounds <= mechanism.rounds:
        raise OutOfRange(
            f"rounds = {rounds}", f"must be in [0, {mechanism.rounds}], the mechanism's horizon.", str(mechanism.rounds)
        )
    require_valid(adjacency, participation)
    require_charged(mechanism, participation)
    if rounds == 0:
        return PrivacyLoss()
    amplified = amplification(mechanism, participation, adjacency)
    if amplified.event is not None:
        column = float(mechanism.sensitivity(Single()))
        events = amplified.event.at(noise_multiplier / column).over(participation, rounds, mechanism.rounds)
        reason = refusal(0.0, events)
        if reason is not None:
            raise OutOfRange(f"noise_multiplier = {noise_multiplier:g} with sampling", reason, "more noise")
        return PrivacyLoss(sampled=events)
    sensitivity = adjacency_factor(adjacency) * float(mechanism.sensitivity(participation, rounds))
    mu = sensitivity / noise_multiplier
    return PrivacyLoss(mu * mu)


def require_valid(adjacency: Adjacency, participation: Participation) -> None:
    """Raise `BadInput` where the guarantee of `adjacency` does not follow from how cohorts are chosen."""
    if adjacency == "add_remove" and not (isinstance(participation, SAMPLED) or charged_as(participation)):
        raise Unsupported(
            "adjacency = 'add_remove'",
            f"with {type(participation).__name__} a missing user's place goes to another one, which changes two "
            "updates; only schemes 'poisson', 'truncated-poisson', 'cyclic-poisson', 'random-allocation', "
            "'b-min-sep' and 'balls-in-bins' include users independently.",
            "zero_out",
        )
    if isinstance(participation, (*INDEPENDENT_ONLY, BMinSep)) and adjacency != "add_remove":
        raise Unsupported(
            f"adjacency = {adjacency!r} with {type(participation).__name__}",
            "this sampler earns its charge by keeping who takes part secret, and under this adjacency that is public.",
            "add_remove",
        )


def require_charged(mechanism: Mechanism, participation: Participation) -> None:
    """Raise `BadInput` where no charge of this sampler with this mechanism's noise is proven."""
    if isinstance(participation, BMinSep):
        chained.require_bands(mechanism.bandwidth(), participation, mechanism.kind)
    if not isinstance(participation, INDEPENDENT_ONLY) or mechanism.bandwidth() == 1:
        return
    if isinstance(participation, RandomAllocation):
        if mechanism.kind == "banded":
            chained.require_bands(mechanism.bandwidth(), participation)
            return
        scheme, charged = "random-allocation", "independent and banded noise"
        why = "noise of a block then reaches far beyond it, and the joint charge of many blocks is not computed here."
    else:
        scheme, charged = "truncated-poisson", "independent noise only"
        why = "a user's rounds then share noise, and only rounds with noise of their own are charged with sampling."
    raise Unsupported(
        f"participation.scheme = {scheme!r} with mechanism.kind = {mechanism.kind!r}",
        f"this sampler is charged for {charged}: {why}",
        "mechanism.kind = 'independent'; or scheme 'balls-in-bins', which any kind with a square strategy may have",
    )
