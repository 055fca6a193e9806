"""Gaussian mechanisms amplified by sampling, composed by privacy loss distributions.

One event: every user is included independently with probability q and N(0, sigma^2) noise is added to a sum
of which one user changes at most 1. For adding or removing a user, the dominating pairs are

    (1 - q) N(0, sigma^2) + q N(1, sigma^2)   against   N(0, sigma^2),   in both orders

(Zhu, Dong and Wang 2022, Theorem 11), and dominating pairs compose, also adaptively. Each order's privacy
loss distribution is discretised upwards by connecting the dots (Doroshenko et al. 2022) and composed by FFT
(`composition`, which says why dp_accounting is not used). The worse order counts. This module computes the
points to connect, all at once and to full relative precision. Blocks in which a user takes part once, in a
secret round, have a pair of theirs (`allocation`).

The grid is chosen before anything is computed on it, so that no request (tiny epsilon, tiny sigma, huge
counts) can exhaust memory or time: beyond `MOST_POINTS` points there is no grid, and callers fall back on the
bound without amplification, or refuse.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, astuple, replace
from functools import lru_cache
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

import numpy as np

from fieldfare.accounting.composition import Composition, DiscreteLoss, Vector
from fieldfare.accounting.event import ACROSS, CostEvent, Price, Words, cheaper
from fieldfare.accounting.gaussian import Gaussian
from fieldfare.errors import OutOfRange
from fieldfare.lazily import scipy
from fieldfare.participation import Participation

# Largest grid of a composed distribution: 32 MB, about a second.
MOST_POINTS = 1 << 22
# Grid steps, in units of the privacy loss.
FINEST, COARSEST = 1e-5, 0.05
# Below this the FFT's rounding could matter, so amplification is not claimed.
SMALLEST_DELTA = 1e-11
# Largest step, in standard deviations of the narrowest event's loss.
_RELATIVE = 0.0125
# Standard deviations beyond which mass is negligible (1e-32) when a grid is sized.
_TAIL = 12.0


class SampledEvent(CostEvent):
    """Rounds or blocks in which secret draws include a user: what a sampler is charged as.

    A new sampler is one file with one frozen dataclass under `@register`: `noise_multiplier` (noise std over
    the most that one user changes), `count` (of equal rounds or blocks) and fields of its own, the
    participations that it charges, and what is abstract here. Its sampler has to include each user
    independently of all others, and `losses` have to dominate its rounds.
    """

    rank: ClassVar = 2
    own: ClassVar[frozenset[str]]  # its fields besides those two: by them `event_from_json` knows it
    # Samplers whose rounds are charged as this, where presence is secret.
    participations: ClassVar[tuple[type[Participation], ...]]
    independent: ClassVar[bool] = False  # whether that is proven for independent noise only
    largest_loss: ClassVar[float] = math.inf  # above this, `losses` are not computed

    noise_multiplier: float
    count: int

    def __post_init__(self) -> None:
        if not 0 < self.noise_multiplier < math.inf:
            what = f"noise_multiplier = {self.noise_multiplier}"
            raise OutOfRange(what, "must be a finite number above 0.", "1.0")
        if self.count < 0:
            raise OutOfRange(f"count = {self.count}", "must be at least 0.", "0")

    @classmethod
    @abstractmethod
    def of(cls, participation: Any) -> Self:
        """Return one of the events that charge `participation`, at noise multiplier 1."""

    @classmethod
    def groups(cls, participation: Any) -> int:
        """Return the rounds between two events."""
        return 1

    def over(self, participation: Any, rounds: int, horizon: int) -> tuple[SampledEvent, ...]:
        """Return what the first `rounds` rounds, at least 1, of a run of `horizon` are charged, of events
        such as this.
        """
        return (self.times(-(-rounds // self.groups(participation))),)

    def times(self, count: int) -> Self:
        """Return the event of so many of these rounds or blocks."""
        return replace(self, count=count)  # type: ignore[type-var]

    def order(self) -> tuple[object, ...]:
        """Return the key by which the events of a loss are sorted, so that equal losses have equal texts."""
        return type(self).__name__, astuple(self)  # type: ignore[call-overload]

    def at(self, noise_multiplier: float) -> Self:
        """Return the same with other noise."""
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
    def mu_squared(self) -> float:
        """mu^2 of all of it for an observer who knows the cohorts: each user takes part once in a round or block."""
        inverse = 1 / self.noise_multiplier
        return self.count * inverse * inverse

    @property
    @abstractmethod
    def spread(self) -> float:
        """About the standard deviation of the loss of one round or block."""

    @abstractmethod
    def losses(self, step: float) -> tuple[DiscreteLoss, DiscreteLoss]:
        """Return one round's or block's loss with the user against without, and without against with, on
        multiples of `step`.

        Each dominates its order of the pair.
        """

    @property
    def words(self) -> Words:
        method = "privacy loss distributions for sampled rounds"
        return Words(
            *("sampled-gaussian", method, "Approximate DP", "sampled", ACROSS),
            bounds=(self.bound,),
            samplers=(self.sampler,),
        )

    def curve(self, delta: float) -> float:
        return min(self.without_amplification().curve(delta), epsilon(0.0, (self,), delta))

    def delta(self, at: float) -> float:
        return min(self.without_amplification().delta(at), delta(0.0, (self,), at))

    def price(self, leak: float) -> Price:
        return price(0.0, (self,), leak)

    def compose(self, other: CostEvent) -> Self | None:
        if not isinstance(other, SampledEvent) or self.times(1) != other.times(1):
            return None
        return self.times(self.count + other.count)

    def without_amplification(self) -> Gaussian:
        return Gaussian(self.mu_squared)

    def to_json(self) -> object:
        return asdict(self)  # type: ignore[call-overload]

    @classmethod
    def from_table(cls, noise_multiplier: float, count: int, own: Mapping[str, object]) -> SampledEvent:
        """Return the inverse of `to_json`. own: its other fields. Raises TypeError for what is not a number."""
        return cls(noise_multiplier=noise_multiplier, count=count, **own)  # type: ignore[call-arg]


_EVENTS: dict[frozenset[str], type[SampledEvent]] = {}
_CHARGED: dict[type[Participation], type[SampledEvent]] = {}

EventT = TypeVar("EventT", bound=type[SampledEvent])


def register(kind: EventT) -> EventT:
    """Let charges hold events of this class, ledgers read them and its samplers be charged as it (decorator).

    Raises ValueError where another class has the same fields, or charges one of its samplers.
    """
    if kind.own in _EVENTS:
        raise ValueError(f"events with the fields {sorted(kind.own)} are {_EVENTS[kind.own].__name__}")
    if taken := [way.__name__ for way in kind.participations if way in _CHARGED]:
        raise ValueError(f"{taken[0]} is charged already")
    _EVENTS[kind.own] = kind
    _CHARGED.update(dict.fromkeys(kind.participations, kind))
    return kind


def charged_as(participation: Participation) -> type[SampledEvent] | None:
    """Return the events that charge this sampler where presence is secret; None where none do, or a
    certificate does.
    """
    return _CHARGED.get(type(participation))


Events: TypeAlias = tuple[SampledEvent, ...]


# The fields of the first kind, which ledgers hold as a list.
_LISTED = frozenset({"rate"})


def event_from_json(table: Any) -> SampledEvent:
    """Return the inverse of an event's `to_json`. Raises `BadInput`, TypeError or ValueError for anything else."""
    listed = isinstance(table, list)
    named = dict(zip(("rate", "noise_multiplier", "count"), table, strict=True)) if listed else dict(table)
    noise_multiplier, count = number(named.pop("noise_multiplier")), whole(named.pop("count"))
    kind = _EVENTS.get(frozenset(named))
    if kind is None or listed != (kind.own == _LISTED):
        raise ValueError("not a sampled event")
    return kind.from_table(noise_multiplier, count, named)


def number(value: object) -> float:
    """Return `value` as a float. Raises TypeError for what is not a number, and for a truth value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def whole(value: object) -> int:
    """Return `value`, a whole number. Raises TypeError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not a count")
    return value


def grid_for(mu_squared: float, events: Events) -> float | None:
    """Return the grid step for composing these, a power of two times `FINEST`; None where no allowed step is
    coarse enough.

    The step is as fine as the narrowest event needs, and as coarse as `MOST_POINTS` forces. The
    discretisation error is of second order in step over standard deviation of the event's loss: 2e-5 of
    epsilon for most, and 1e-4 where steps would be below 1e-4. Counts enter as powers of two only, so that
    neighbouring rounds share cached distributions.
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
    """Return the largest loss of one event at rate 1, negligible mass aside; inf where the noise all but vanishes."""
    inverse = 1 / noise_multiplier
    return _TAIL * inverse + 0.5 * inverse * inverse


def refusal(mu_squared: float, events: Events) -> str | None:
    """Return why these cannot be composed numerically, or None."""
    if grid_for(mu_squared, events) is not None:
        return None
    worst = min(events, key=lambda event: event.noise_multiplier / math.sqrt(max(event.count, 1)))
    return (
        f"{worst.count} sampled rounds at noise multiplier {worst.noise_multiplier:.3g} would need a privacy "
        f"loss distribution of more than {MOST_POINTS} points; its epsilon would be far beyond any meaningful budget."
    )


@lru_cache(maxsize=8192)
def epsilon(mu_squared: float, events: Events, delta: float) -> float:
    """Return an upper bound on epsilon at `delta`; inf where there is no grid or `delta` is too small for
    one.

    Cached: ledger, page and progress ask for the same losses, and each costs some milliseconds.

    Args:
        mu_squared: of everything that no draw amplifies, together; 0 for nothing.
        events: the sampled rounds or blocks.
        delta: at which epsilon is asked for.
    """
    if delta < SMALLEST_DELTA:
        return math.inf
    step = grid_for(mu_squared, events)
    if step is None:
        return math.inf
    return max(order.epsilon(delta) for order in _composed(mu_squared, events, step))


def delta(mu_squared: float, events: Events, at: float) -> float:
    """Return an upper bound on delta at epsilon `at`; 1 where there is no grid."""
    step = grid_for(mu_squared, events)
    if step is None:
        return 1.0
    return max(order.delta(at) for order in _composed(mu_squared, events, step))


def compositions(mu_squared: float, events: Events) -> tuple[Composition, Composition] | None:
    """Return everything together, in each order of the two worlds by itself; None where there is no grid."""
    step = grid_for(mu_squared, events)
    return None if step is None else _composed(mu_squared, events, step)


def price(mu_squared: float, events: Events, leak: float) -> Price:
    """Return the least price of all of them together at `leak`; that without sampling where amplification
    cannot be claimed.

    Composed as one, in both orders, each by itself. The least mu is read off the vertices of the trade-off
    curve: exact, without a grid of epsilons, because a convex curve lies below a piecewise linear one if and
    only if it does at the vertices.

    Args:
        mu_squared: of everything that no draw amplifies, together; 0 for nothing.
        events: the sampled rounds or blocks.
        leak: how much of the population's D this may take, at least 0.
    """
    plain = mu_squared + math.fsum(event.mu_squared for event in events)
    # Whichever of the two is less: both are prices of the same run, so the smaller one may be charged.
    orders = compositions(mu_squared, events) if leak > 0 else None
    mu = math.inf if orders is None else max(_least_mu(order, leak) for order in orders)
    return cheaper(plain, mu, leak)


def _least_mu(order: Composition, leak: float) -> float:
    """Return the least mu for one order of the two worlds: the largest of Phi^-1((m - d)/(1 - d)) -
    Phi^-1(a/(1 - d)) over vertices.

    m is the mass of the first world from a loss up (the composition's own error added), a the second world's.
    The first vertex with a positive loss covers epsilon down to 0; negative epsilons are the other order's.
    """
    mass, log_other = order.vertices()
    if order.infinite + order.slack >= leak:
        return math.inf
    # Dominated by E(mu, d) means (m - d) / (1 - d) <= Phi(Phi^-1(a / (1 - d)) + mu) at every vertex (m, a).
    rest = math.log1p(-leak)
    m = np.minimum(mass + order.slack, 1.0)
    inside = (m > leak) & (log_other < rest)
    if not inside.any():
        return 0.0
    first = np.minimum((m[inside] - leak) / (1 - leak), 1.0)
    second = log_other[inside] - rest
    return max(0.0, float(np.max(scipy.special.ndtri(first) - scipy.special.ndtri_exp(second))))


@lru_cache(maxsize=4)
def _composed(mu_squared: float, events: Events, step: float) -> tuple[Composition, Composition]:
    """Return everything together, in both orders of the two worlds."""
    parts = [(_orders(event.times(1), step), event.count) for event in events]
    if mu_squared > 0:
        parts.append((_plain_orders(mu_squared, step), 1))
    # Never the larger of the two orders event by event: the orders of a whole run are compared at the end.
    first, second = ([(orders[i], count) for orders, count in parts] for i in (0, 1))
    return Composition(first), Composition(second)


@lru_cache(maxsize=32)
def _orders(event: SampledEvent, step: float) -> tuple[DiscreteLoss, DiscreteLoss]:
    return event.losses(step)


@lru_cache(maxsize=32)
def _plain_orders(mu_squared: float, step: float) -> tuple[DiscreteLoss, DiscreteLoss]:
    return poisson_losses(1.0, 1 / math.sqrt(mu_squared), step)


def poisson_losses(rate: float, noise_multiplier: float, step: float) -> tuple[DiscreteLoss, DiscreteLoss]:
    """Return the losses of one Poisson-sampled round, in both orders, on multiples of `step`.

    Args:
        rate: the probability that a user is drawn in the round, above 0 and at most 1.
        noise_multiplier: standard deviation of the round's noise in clip norms.
        step: of the grid of losses.
    """
    reach = _reach(noise_multiplier)
    # log(1 - q + q e^z) for |z| <= reach: the losses of the first order; the second order's are their negatives.
    high = math.ceil(float(np.logaddexp(_log_complement(rate), math.log(rate) + reach)) / step)
    low = math.floor(float(np.logaddexp(_log_complement(rate), math.log(rate) - reach)) / step)
    grid = np.arange(low, high + 1, dtype=np.float64) * step
    with_user = DiscreteLoss.through(step, low, _deltas_with_user(grid, rate, noise_multiplier))
    # Without sampling a Gaussian pair is its own mirror image.
    if rate == 1:
        return with_user, with_user
    grid = np.arange(-high, -low + 1, dtype=np.float64) * step
    return with_user, DiscreteLoss.through(step, -high, _deltas_without_user(grid, rate, noise_multiplier))


def _deltas_with_user(epsilons: Vector, rate: float, noise_multiplier: float) -> Vector:
    """Return H of (1 - q) P + q Q over P: q times that of Q over P at log((e^epsilon - 1 + q) / q)."""
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
    """Return H of P over (1 - q) P + q Q: w times that of P over Q at log(q e^epsilon / w), w = 1 - (1 - q)
    e^epsilon > 0.
    """
    left = 1 - (1 - rate) * np.exp(np.minimum(epsilons, 700.0))
    inside = left > 0
    out = np.zeros_like(epsilons)
    shifted = math.log(rate) + epsilons[inside] - np.log(left[inside])
    out[inside] = left[inside] * _gaussian_deltas(shifted, 1 / noise_multiplier)
    return np.clip(out, 0.0, 1.0)


def _gaussian_deltas(epsilons: Vector, mu: float) -> Vector:
    """Return equation (2) of `gaussian` for an array; negative epsilons by symmetry: delta(-e) = 1 - e^-e (1
    - delta(e)).
    """
    size = np.abs(epsilons)
    x = np.clip(size / mu - mu / 2, -1e8, 1e8)
    density = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    out = scipy.special.ndtr(-x) - density * _mills(x + mu)
    far = x > 0
    out[far] = density[far] * (_mills(x[far]) - _mills(x[far] + mu))
    return np.asarray(np.where(epsilons >= 0, out, 1 - np.exp(-size) * (1 - out)), dtype=np.float64)


def _log_complement(rate: float) -> float:
    return math.log1p(-rate) if rate < 1 else -math.inf


def _mills(s: Vector) -> Vector:
    return np.asarray(math.sqrt(math.pi / 2) * scipy.special.erfcx(s / math.sqrt(2)), dtype=np.float64)
