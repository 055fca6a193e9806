"""Gaussian mechanisms amplified by sampling, composed by privacy loss distributions.

One event: every user is included independently with probability q and N(0, sigma^2) noise is added to a sum of which
one user changes at most 1. For adding or removing a user, the dominating pairs are

    (1 - q) N(0, sigma^2) + q N(1, sigma^2)   against   N(0, sigma^2),   in both orders

(Zhu, Dong and Wang 2022, Theorem 11), and dominating pairs compose, also adaptively. Each order's privacy loss
distribution is discretised upwards by connecting the dots (Doroshenko et al. 2022) and composed by FFT (`composition`,
which says why dp_accounting is not used). The worse order counts. This module computes the points to connect, all at
once and to full relative precision. Blocks in which a user takes part once, in a secret round, have a pair of theirs
(`allocation`).

**A cap on the cohort.** Where more than m users are drawn, the round keeps m of them by lot. Let A be the event that
in some round m or more of the *other* users are drawn, out of at most n - 1. Their coins decide it, and never the coins
of the user in question. So both worlds are the same mixture of what happens outside of A, which is Poisson sampling
without a cap, and of something else, with probability tau of A. Hockey-stick divergences are jointly convex, hence

    delta(epsilon) <= (1 - tau) delta_uncapped(epsilon) + tau,      1 - tau >= (1 - P(Bin(n - 1, q) >= m))^T         (1)

in both orders. So a capped round is an uncapped one that shows everything with probability P(Bin(n - 1, q) >= m). Coins
of users who cannot be asked, or who enrol later, count as tossed. n is public: it must hold in both worlds.

The grid is chosen before anything is computed on it, so that no request (tiny epsilon, tiny sigma, huge counts) can
exhaust memory or time: beyond `MOST_POINTS` points there is no grid, and callers fall back on the bound without
amplification, or refuse.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

import numpy as np
from scipy.special import betainc, erfcx, ndtr

from fieldfare.accounting.allocation import LARGEST_LOSS, MOST_BINS, allocated_losses, spread
from fieldfare.accounting.composition import Composition, DiscreteLoss, Vector
from fieldfare.errors import BadInput
from fieldfare.text import decimal

MOST_POINTS = 1 << 22
"""Largest grid of a composed distribution: 32 MB, about a second."""
FINEST, COARSEST = 1e-5, 0.05
"""Grid steps, in units of the privacy loss."""
SMALLEST_DELTA = 1e-11
"""Below this the FFT's rounding could matter, so amplification is not claimed."""
_RELATIVE = 0.0125
"""Largest step, in standard deviations of the narrowest event's loss."""
_TAIL = 12.0
"""Standard deviations beyond which mass is negligible (1e-32) when a grid is sized."""


class Event(ABC):
    """Rounds or blocks in which secret draws include a user: what a sampler is charged as.

    A new one is a frozen dataclass with `noise_multiplier` (noise std over the most that one user changes) and `count`
    (of equal rounds or blocks), registered by `register_event`; its sampler is registered by `charge.register_sampler`.
    """

    own: ClassVar[frozenset[str]]
    """Its fields besides those two: by them `event_from_json` knows it."""
    largest_loss: ClassVar[float] = math.inf
    """Above this, `losses` are not computed."""

    noise_multiplier: float
    count: int

    def times(self, count: int) -> Self:
        """So many of these rounds or blocks."""
        return replace(self, count=count)  # type: ignore[type-var]

    def order(self) -> tuple[Any, ...]:
        """By what events of a loss are sorted, so that equal losses have equal texts."""
        return type(self).__name__, astuple(self)  # type: ignore[call-overload]

    def at(self, noise_multiplier: float) -> Self:
        """The same with other noise."""
        return replace(self, noise_multiplier=noise_multiplier)  # type: ignore[type-var]

    @property
    @abstractmethod
    def sampler(self) -> str:
        """Who takes part, in words."""

    @property
    @abstractmethod
    def bound(self) -> str:
        """How it is charged, in words."""

    @property
    @abstractmethod
    def mu_squared(self) -> float:
        """mu^2 of all of it for an observer who knows the cohorts."""

    @property
    @abstractmethod
    def spread(self) -> float:
        """About the standard deviation of the loss of one round or block."""

    @abstractmethod
    def losses(self, step: float) -> tuple[DiscreteLoss, DiscreteLoss]:
        """One round's or block's loss with the user against without, and without against with, on multiples of `step`.

        Each dominates its order of the pair.
        """

    def to_json(self) -> Any:
        """Of numbers and text, for `event_from_json`."""
        return asdict(self)  # type: ignore[call-overload]

    @classmethod
    def from_table(cls, noise_multiplier: float, count: int, own: Mapping[str, Any]) -> Event:
        """The inverse of `to_json`. own: its other fields. Raises TypeError for what is no number."""
        return cls(noise_multiplier=noise_multiplier, count=count, **own)  # type: ignore[call-arg]


_EVENTS: dict[frozenset[str], type[Event]] = {}

EventT = TypeVar("EventT", bound=type[Event])


def register_event(kind: EventT) -> EventT:
    """Let charges hold events of this class, and ledgers read them back: a decorator.

    Raises ValueError where another class has the same fields.
    """
    if kind.own in _EVENTS:
        raise ValueError(f"events with the fields {sorted(kind.own)} are {_EVENTS[kind.own].__name__}")
    _EVENTS[kind.own] = kind
    return kind


@dataclass(frozen=True)
class SampledGaussian(Event):
    """`count` rounds of Gaussian noise, each of which includes every user independently with probability `rate`.

    No round shows who was included, nor how many. noise_multiplier: noise std over the most that one user changes.
    """

    own: ClassVar = frozenset({"rate"})

    rate: float
    noise_multiplier: float
    count: int

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise BadInput(f"rate = {self.rate}", "must be in (0, 1].", "1.0")
        _require_event(self.noise_multiplier, self.count)

    @property
    def sampler(self) -> str:
        """Who takes part, in words."""
        return f"each user independently with probability {self.rate:.4g}"

    @property
    def bound(self) -> str:
        """How it is charged, in words."""
        return f"privacy loss distributions of {self.count} rounds, discretised upwards"

    @property
    def mu_squared(self) -> float:
        """mu^2 of all of it for an observer who knows the cohorts."""
        return _mu_squared(self.count, self.noise_multiplier)

    @property
    def spread(self) -> float:
        """About the standard deviation of one round's loss: q sqrt(exp(1/sigma^2) - 1) where small, 1/sigma at most."""
        inverse = 1 / self.noise_multiplier
        return min(self.rate * math.sqrt(math.expm1(min(inverse * inverse, 700.0))), inverse)

    def losses(self, step: float) -> tuple[DiscreteLoss, DiscreteLoss]:
        """One round's loss with the user against without, and without against with, on multiples of `step`."""
        return _poisson_losses(self.rate, self.noise_multiplier, step)

    def to_json(self) -> Any:
        """Of numbers and text, for `event_from_json`."""
        return [self.rate, self.noise_multiplier, self.count]


@register_event
@dataclass(frozen=True)
class TruncatedGaussian(SampledGaussian):
    """The same where a round keeps at most `cap` of the users that it includes, by lot.

    enrolled: a public number; there are never more users in either world. See equation (1) of the module.
    """

    own: ClassVar = frozenset({"rate", "cap", "enrolled"})

    cap: int
    enrolled: int

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("cap", self.cap), ("enrolled", self.enrolled)):
            if value < 1:
                raise BadInput(f"{name} = {value}", "must be at least 1.", "1")

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
        """As of `SampledGaussian`, but a user may displace another one, which changes two updates."""
        return 4 * super().mu_squared

    @property
    def excess(self) -> float:
        """The probability that `cap` or more of all users but one are drawn in one round."""
        return excess(self.rate, self.cap, self.enrolled)

    def losses(self, step: float) -> tuple[DiscreteLoss, DiscreteLoss]:
        first, second = (_with_infinite(loss, self.excess) for loss in super().losses(step))
        return first, second

    def to_json(self) -> Any:
        return asdict(self)

    @classmethod
    def from_table(cls, noise_multiplier: float, count: int, own: Mapping[str, Any]) -> Event:
        return cls(_number(own["rate"]), noise_multiplier, count, _count(own["cap"]), _count(own["enrolled"]))


@register_event
@dataclass(frozen=True)
class AllocatedGaussian(Event):
    """`count` blocks of `bins` rounds of Gaussian noise; each user takes part in one round of a block, drawn uniformly.

    No block shows who took part when, nor how many. noise_multiplier: noise std over the most that one user changes.
    """

    own: ClassVar = frozenset({"bins"})
    largest_loss: ClassVar = LARGEST_LOSS

    bins: int
    noise_multiplier: float
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.bins <= MOST_BINS:
            raise BadInput(f"bins = {self.bins}", f"must be in [1, {MOST_BINS}].", str(MOST_BINS))
        _require_event(self.noise_multiplier, self.count)

    @property
    def sampler(self) -> str:
        """As of `SampledGaussian`, like the others below."""
        return f"each user in one of {self.bins} rounds of every block, drawn afresh for each block and kept secret"

    @property
    def bound(self) -> str:
        return f"privacy loss distributions of {self.count} blocks of {self.bins} rounds, discretised upwards"

    @property
    def mu_squared(self) -> float:
        """mu^2 of all of it for an observer who knows the cohorts: each user takes part once in a block."""
        return _mu_squared(self.count, self.noise_multiplier)

    @property
    def spread(self) -> float:
        """About the standard deviation of one block's loss."""
        return spread(self.bins, self.noise_multiplier)

    def losses(self, step: float) -> tuple[DiscreteLoss, DiscreteLoss]:
        """One block's."""
        return allocated_losses(self.bins, self.noise_multiplier, step)

    @classmethod
    def from_table(cls, noise_multiplier: float, count: int, own: Mapping[str, Any]) -> Event:
        return cls(_count(own["bins"]), noise_multiplier, count)


Events: TypeAlias = tuple[Event, ...]


def event_from_json(table: Any) -> Event:
    """The inverse of an event's `to_json`. Raises `BadInput`, TypeError or ValueError for anything else."""
    if isinstance(table, list):
        rate, noise_multiplier, count = table
        return SampledGaussian(_number(rate), _number(noise_multiplier), _count(count))
    named = dict(table)
    noise_multiplier, count = _number(named.pop("noise_multiplier")), _count(named.pop("count"))
    kind = _EVENTS.get(frozenset(named))
    if kind is None:
        raise ValueError("not a sampled event")
    return kind.from_table(noise_multiplier, count, named)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not a count")
    return value


def excess(rate: float, cap: int, enrolled: int) -> float:
    """P(Bin(enrolled - 1, rate) >= cap): that the others alone fill a round's places."""
    return float(betainc(cap, enrolled - cap, rate)) if cap < enrolled else 0.0


def least_cap(rate: float, enrolled: int, rounds: int, most: float) -> int:
    """The smallest cap that any of `rounds` rounds exceeds with probability at most `most`."""
    low, high = 0, enrolled
    while high - low > 1:
        cap = (low + high) // 2
        low, high = (low, cap) if rounds * excess(rate, cap, enrolled) <= most else (cap, high)
    return high


def _mu_squared(count: int, noise_multiplier: float) -> float:
    inverse = 1 / noise_multiplier
    return count * inverse * inverse


def _require_event(noise_multiplier: float, count: int) -> None:
    if not 0 < noise_multiplier < math.inf:
        raise BadInput(f"noise_multiplier = {noise_multiplier}", "must be a finite number above 0.", "1.0")
    if count < 0:
        raise BadInput(f"count = {count}", "must be at least 0.", "0")


def _with_infinite(loss: DiscreteLoss, probability: float) -> DiscreteLoss:
    """`loss`, but an infinite one with this probability, whatever it would have been."""
    infinite = loss.infinite + probability - loss.infinite * probability
    return DiscreteLoss(loss.step, loss.lowest, loss.probs * (1 - probability), infinite)


def grid_for(mu_squared: float, events: Events) -> float | None:
    """The grid step for composing these, a power of two times `FINEST`; None where no allowed step is coarse enough.

    The step is as fine as the narrowest event needs, and as coarse as `MOST_POINTS` forces. The discretisation error is
    of second order in step over standard deviation of the event's loss: 2e-5 of epsilon for most, and 1e-4 where steps
    would be below 1e-4. Counts enter as powers of two only, so that neighbouring rounds share cached distributions.
    """
    widest, total, narrowest = 0.0, mu_squared / 2 + _TAIL * math.sqrt(mu_squared), math.inf
    for event in events:
        reach = _reach(event.noise_multiplier)
        if reach > event.largest_loss:
            return None
        deviation = event.spread
        widest = max(widest, reach)
        rounds = 1 << max(0, event.count - 1).bit_length()
        # Mean loss ~ variance / 2 per round; the composition's tails are cut at Chernoff bounds, 2 reach at most.
        total += min(rounds * min(deviation**2, reach), rounds * reach) + _TAIL * math.sqrt(rounds) * deviation + reach
        narrowest = min(narrowest, deviation)
    enough = min(COARSEST, max(_RELATIVE * narrowest, min(1e-4, 4 * _RELATIVE * narrowest)))
    step = FINEST
    while step * 2 <= enough or max(widest, total) * 4 > step * MOST_POINTS:
        step *= 2
        if step > COARSEST:
            return None
    return step


def _reach(noise_multiplier: float) -> float:
    """The largest loss of one event at rate 1, negligible mass aside; inf where the noise all but vanishes."""
    inverse = 1 / noise_multiplier
    return _TAIL * inverse + 0.5 * inverse * inverse


def refusal(mu_squared: float, events: Events) -> str | None:
    """Why these cannot be composed numerically, or None."""
    if grid_for(mu_squared, events) is not None:
        return None
    worst = min(events, key=lambda event: event.noise_multiplier / math.sqrt(max(event.count, 1)))
    return (
        f"{worst.count} sampled rounds at noise multiplier {worst.noise_multiplier:.3g} would need a privacy "
        f"loss distribution of more than {MOST_POINTS} points; its epsilon would be far beyond any meaningful budget."
    )


@lru_cache(maxsize=8192)
def epsilon(mu_squared: float, events: Events, delta: float) -> float:
    """An upper bound on epsilon at `delta`; inf where there is no grid or `delta` is too small for one.

    Cached: ledger, page and progress ask for the same losses, and each costs some milliseconds.
    """
    if delta < SMALLEST_DELTA:
        return math.inf
    step = grid_for(mu_squared, events)
    if step is None:
        return math.inf
    return max(order.epsilon(delta) for order in _composed(mu_squared, events, step))


def delta(mu_squared: float, events: Events, at: float) -> float:
    """An upper bound on delta at epsilon `at`; 1 where there is no grid."""
    step = grid_for(mu_squared, events)
    if step is None:
        return 1.0
    return max(order.delta(at) for order in _composed(mu_squared, events, step))


def compositions(mu_squared: float, events: Events) -> tuple[Composition, Composition] | None:
    """Everything together, in each order of the two worlds by itself; None where there is no grid."""
    step = grid_for(mu_squared, events)
    return None if step is None else _composed(mu_squared, events, step)


@lru_cache(maxsize=4)
def _composed(mu_squared: float, events: Events, step: float) -> tuple[Composition, Composition]:
    """Everything together, in both orders of the two worlds."""
    parts = [(_orders(event.times(1), step), event.count) for event in events]
    if mu_squared > 0:
        parts.append((_orders(SampledGaussian(1.0, 1 / math.sqrt(mu_squared), 1), step), 1))
    first, second = ([(orders[i], count) for orders, count in parts] for i in (0, 1))
    return Composition(first), Composition(second)


@lru_cache(maxsize=32)
def _orders(event: Event, step: float) -> tuple[DiscreteLoss, DiscreteLoss]:
    return event.losses(step)


def _poisson_losses(rate: float, noise_multiplier: float, step: float) -> tuple[DiscreteLoss, DiscreteLoss]:
    reach = _reach(noise_multiplier)
    # log(1 - q + q e^z) for |z| <= reach: the losses of the first order; the second order's are their negatives.
    high = math.ceil(float(np.logaddexp(_log_complement(rate), math.log(rate) + reach)) / step)
    low = math.floor(float(np.logaddexp(_log_complement(rate), math.log(rate) - reach)) / step)
    grid = np.arange(low, high + 1, dtype=np.float64) * step
    with_user = DiscreteLoss.through(step, low, _deltas_with_user(grid, rate, noise_multiplier))
    if rate == 1:
        return with_user, with_user
    grid = np.arange(-high, -low + 1, dtype=np.float64) * step
    return with_user, DiscreteLoss.through(step, -high, _deltas_without_user(grid, rate, noise_multiplier))


def _deltas_with_user(epsilons: Vector, rate: float, noise_multiplier: float) -> Vector:
    """H of (1 - q) P + q Q over P: q times that of Q over P at log((e^epsilon - 1 + q) / q)."""
    moderate = np.minimum(epsilons, 1.0)
    above = np.expm1(moderate) + rate
    inside = above > 0
    # For large epsilon, without e^epsilon, which would overflow.
    beyond = epsilons[inside] + np.log1p(-(1 - rate) * np.exp(-np.maximum(epsilons[inside], 1.0)))
    shifted = np.where(epsilons[inside] > 1, beyond, np.log(above[inside]))
    out = -np.expm1(moderate)  # at epsilon below log(1 - q) the difference is positive everywhere
    out[inside] = rate * _gaussian_deltas(shifted - math.log(rate), 1 / noise_multiplier)
    return np.clip(out, 0.0, 1.0)


def _deltas_without_user(epsilons: Vector, rate: float, noise_multiplier: float) -> Vector:
    """H of P over (1 - q) P + q Q: w times that of P over Q at log(q e^epsilon / w), w = 1 - (1 - q) e^epsilon > 0."""
    left = 1 - (1 - rate) * np.exp(np.minimum(epsilons, 700.0))
    inside = left > 0
    out = np.zeros_like(epsilons)
    shifted = math.log(rate) + epsilons[inside] - np.log(left[inside])
    out[inside] = left[inside] * _gaussian_deltas(shifted, 1 / noise_multiplier)
    return np.clip(out, 0.0, 1.0)


def _gaussian_deltas(epsilons: Vector, mu: float) -> Vector:
    """Equation (2) of `gaussian` for an array; negative epsilons by symmetry: delta(-e) = 1 - e^-e (1 - delta(e))."""
    size = np.abs(epsilons)
    x = np.clip(size / mu - mu / 2, -1e8, 1e8)
    density = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    out = ndtr(-x) - density * _mills(x + mu)
    far = x > 0
    out[far] = density[far] * (_mills(x[far]) - _mills(x[far] + mu))
    return np.asarray(np.where(epsilons >= 0, out, 1 - np.exp(-size) * (1 - out)), dtype=np.float64)


def _log_complement(rate: float) -> float:
    return math.log1p(-rate) if rate < 1 else -math.inf


def _mills(s: Vector) -> Vector:
    return np.asarray(math.sqrt(math.pi / 2) * erfcx(s / math.sqrt(2)), dtype=np.float64)
