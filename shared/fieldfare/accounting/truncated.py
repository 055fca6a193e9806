"""Poisson-sampled rounds with a cap on the cohort.

Where more than m users are drawn, the round keeps m of them by lot. Let A be the event that
in some round m or more of the *other* users are drawn, out of at most n - 1. Their coins decide it, and never the coins
of the user in question. So both worlds are the same mixture of what happens outside of A, which is Poisson sampling
without a cap, and of something else, with probability tau of A. Hockey-stick divergences are jointly convex, hence

    delta(epsilon) <= (1 - tau) delta_uncapped(epsilon) + tau,      1 - tau >= (1 - P(Bin(n - 1, q) >= m))^T         (1)

in both orders. So a capped round is an uncapped one that shows everything with probability P(Bin(n - 1, q) >=
m). Coins of users who cannot be asked, or who enrol later, count as tossed. n is public: it must hold in both
worlds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

from fieldfare.accounting.composition import DiscreteLoss
from fieldfare.accounting.poisson import PoissonGaussian
from fieldfare.accounting.sampled import SampledEvent, number, register, whole
from fieldfare.errors import OutOfRange
from fieldfare.lazily import scipy
from fieldfare.participation import TruncatedPoisson
from fieldfare.text import decimal


@register
@dataclass(frozen=True)
class TruncatedGaussian(PoissonGaussian):
    """The same where a round keeps at most `cap` of the users that it includes, by lot.

    enrolled: a public number; there are never more users in either world. See equation (1) of the module.
    """

    own: ClassVar = frozenset({"rate", "cap", "enrolled"})
    participations: ClassVar = (TruncatedPoisson,)
    independent: ClassVar = True

    cap: int
    enrolled: int

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("cap", self.cap), ("enrolled", self.enrolled)):
            if value < 1:
                raise OutOfRange(f"{name} = {value}", "must be at least 1.", "1")

    @classmethod
    def of(cls, participation: Any) -> Self:
        return cls(participation.rate, 1.0, 1, participation.cap, participation.enrolled)

    @property
    def sampler(self) -> str:
        return (
            f"{super().sampler}, of whom a secret lot keeps {self.cap} where there are more; there are never more than "
            f"{self.enrolled} users, which is public"
        )

    @property
    def bound(self) -> str:
        filled = decimal(self.count * self.excess, 2)
        return (
            f"{super().bound}; that others alone fill a round has probability {filled} at most, which is part of delta"
        )

    @property
    def mu_squared(self) -> float:
        """As of `PoissonGaussian`, but a user may displace another one, which changes two updates."""
        return 4 * super().mu_squared

    @property
    def excess(self) -> float:
        """The probability that `cap` or more of all users but one are drawn in one round."""
        return excess(self.rate, self.cap, self.enrolled)

    def losses(self, step: float) -> tuple[DiscreteLoss, DiscreteLoss]:
        first, second = (_with_infinite(loss, self.excess) for loss in super().losses(step))
        return first, second

    def to_json(self) -> object:
        return asdict(self)

    @classmethod
    def from_table(cls, noise_multiplier: float, count: int, own: Mapping[str, object]) -> SampledEvent:
        return cls(number(own["rate"]), noise_multiplier, count, whole(own["cap"]), whole(own["enrolled"]))


def excess(rate: float, cap: int, enrolled: int) -> float:
    """Return P(Bin(enrolled - 1, rate) >= cap): that the others alone fill a round's places.

    Args:
        rate: the probability that a user is drawn in a round.
        cap: places in a round.
        enrolled: how many users may be drawn.
    """
    return float(scipy.special.betainc(cap, enrolled - cap, rate)) if cap < enrolled else 0.0


def least_cap(rate: float, enrolled: int, rounds: int, most: float) -> int:
    """Return the smallest cap that any of `rounds` rounds exceeds with probability at most `most`.

    Args:
        rate: the probability that a user is drawn in a round.
        enrolled: how many users may be drawn.
        rounds: of the whole run.
        most: the probability, for all rounds together (a union bound).
    """
    low, high = 0, enrolled
    while high - low > 1:
        cap = (low + high) // 2
        low, high = (low, cap) if rounds * excess(rate, cap, enrolled) <= most else (cap, high)
    return high


def _with_infinite(loss: DiscreteLoss, probability: float) -> DiscreteLoss:
    """Return `loss`, but an infinite one with this probability, whatever it would have been."""
    # Of two independent ways to be infinite, either.
    infinite = loss.infinite + probability - loss.infinite * probability
    return DiscreteLoss(loss.step, loss.lowest, loss.probs * (1 - probability), infinite)
