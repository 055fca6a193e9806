"""What charges are called, and what they rest on, in words: for pages, statements, registries and Flower."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fieldfare.participation import BallsInBins, BMinSep, Participation, RandomAllocation
from fieldfare.text import decimal

if TYPE_CHECKING:
    from fieldfare.accounting.loss import PrivacyLoss


@dataclass(frozen=True)
class Words:
    """How one loss is told to people."""

    accountant: str
    """In one word, as Flower's `PrivacySpent` names it."""
    method: str
    """What computes its epsilon."""
    flavor: str
    """Which definitions of privacy it is stated in."""
    theorem: str = ""
    """Which theorem a certificate names for secret draws; "" without any."""
    price: str = ""
    """How it is priced across runs, where that is more than its own epsilon."""
    bounds: tuple[str, ...] = ()
    """What the epsilon of secret draws rests on, one for each kind of draw."""
    samplers: tuple[str, ...] = ()
    """Who takes part, where that earns a lower charge and the charge itself says it."""


_GAUSSIAN = Words(
    "gaussian",
    "exact Gaussian trade-off of one correlated release",
    "Gaussian DP, stated also as zero-concentrated and approximate DP",
)
_CONCENTRATED = Words(
    "zcdp",
    "zero-concentrated DP of one correlated release, converted to (epsilon, delta)",
    "Zero-concentrated DP, stated also as approximate DP",
)
_ACROSS = "as sampled runs are priced across runs"


def words_of(loss: PrivacyLoss) -> Words:
    """The words for `loss`; those of its part that decides how it is composed."""
    if loss.certified:
        bounds = tuple(
            f"{sum(curve.samples):,} samples of the dominating pair, drawn from a seed that the journal held before; "
            f"upper bounds at {len(curve.points)} points, wrong with probability {decimal(curve.failure, 2)}, which is "
            "part of delta"
            for curve in loss.certified
        )
        method = "certified Monte Carlo of the dominating pair of the whole run"
        return Words("certified-monte-carlo", method, "Approximate DP", "certified", _ACROSS, bounds)
    if loss.sampled:
        bounds = tuple(event.bound for event in loss.sampled)
        samplers = tuple(event.sampler for event in loss.sampled)
        method = "privacy loss distributions for sampled rounds"
        return Words("sampled-gaussian", method, "Approximate DP", "sampled", _ACROSS, bounds, samplers)
    return _CONCENTRATED if loss.concentrated else _GAUSSIAN


def sampler_of(loss: PrivacyLoss, participation: Participation) -> str | None:
    """Who takes part by which secret draws, where they lower `loss`; None where no amplification is claimed."""
    if loss.sampled:
        return loss.sampled[0].sampler
    if not loss.certified:
        return None
    if isinstance(participation, BMinSep):
        return (
            f"each user after a pause of {participation.separation - 1} rounds with probability "
            f"{participation.rate:g} a round, by coins that are kept secret"
        )
    assert isinstance(participation, BallsInBins | RandomAllocation)
    once = "once" if isinstance(participation, BallsInBins) else "afresh for each block"
    return f"each user in one of {participation.bins} rounds of every block, drawn {once} and kept secret"
