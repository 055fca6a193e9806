"""Random allocation: each user takes part in one secret round of every block, drawn afresh for each block.

**Sampler.** In every block of b rounds a user draws one round, uniformly and independently of everything
else, and takes part in that round alone. Noise is independent. (Feldman and Shenfeld 2025, arXiv 2502.08202
and 2602.17284.)

**What is charged.** By the theorem of `balls_in_bins`, for any lower-triangular C, any secret law of a user's
pattern and any adaptive updates, the run is dominated by the mixture of N(|C| pi, sigma^2 I) over patterns pi
against N(0, sigma^2 I). Here C = I, blocks have independent draws, and so the pair is a product of one pair
for each block:

    P* = mean over j of N(e_j, sigma^2 I_b)   against   Q* = N(0, sigma^2 I_b),       e_j the j-th unit vector.     (1)

Of the last block the run may hold r < b rounds only. A user who drew a round beyond its end takes no part:
that is a secret law of a pattern too, and in L the b - r other variables are 1 (`CutAllocation`). The
constant is smaller in convex order than W, so that such a block never costs more than a whole one.

**How.** Under Q* the likelihood ratio is L = (W_1 + .. + W_b) / b for independent W = exp(x / sigma - 1 / (2
sigma^2)), x standard normal. With it both orders are

    H(P* || Q*) = E (L - e^epsilon)_+,     H(Q* || P*) = E (1 - e^epsilon L)_+,                                     (2)

means of convex functions of L. Hence both rise when W is replaced by a variable that is larger in convex
order, and means of independent variables keep that order. So W, and every mean of two means on the way to b
of them, is moved to a geometric grid exp(h i) by splitting the mass of a cell between the cell's ends such
that its mean stays: what is between two ends moves to both. The result is the likelihood ratio of a pair on a
grid that dominates (1) in both orders, and dominating pairs compose. Every step adds positive numbers, so
that small masses keep their relative precision. Mass below the grid goes to 0 and to the grid's lower end,
mean and all. What L has above the grid's upper end is cut off: that raises the second order, and the part of
the mean that is lost is charged to the first one at an infinite loss.

The grid is as fine, relative to a mean's spread, for the first means as for the last, and each step adds
about h^2 / 6 to the variance of log L: with h of 1/80 of the spread, some 1e-4 of epsilon in all.
`tests/oracles/allocation.py` has the pair by integration and by samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Self

import numpy as np

from fieldfare.accounting.composition import DiscreteLoss, Vector
from fieldfare.accounting.sampled import SampledEvent, register, whole
from fieldfare.errors import OutOfRange
from fieldfare.lazily import scipy
from fieldfare.participation import RandomAllocation

MOST_BINS: Final = 1024
# Of a single round that is known: with so little noise exp of a loss would leave float64's range.
LARGEST_LOSS: Final = 400.0
# Largest grid step, in standard deviations of the logarithm of a mean.
_RELATIVE: Final = 0.0125
# Standard deviations of x on the grid: beyond, 7e-19 of its mass.
_REACH: Final = 8.8
# Mass at either end that may leave the grid of a mean, below or above.
_CUT: Final = 1e-18


@register
@dataclass(frozen=True)
class Allocation(SampledEvent):
    """`count` blocks of `bins` rounds of Gaussian noise; each user takes part in one round of a block, drawn
    uniformly.

    No block shows who took part when, nor how many. noise_multiplier: noise std over the most that one user
    changes.
    """

    own: ClassVar = frozenset({"bins"})
    participations: ClassVar[tuple[type[RandomAllocation], ...]] = (RandomAllocation,)
    independent: ClassVar = True
    largest_loss: ClassVar = LARGEST_LOSS

    bins: int
    noise_multiplier: float
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.bins <= MOST_BINS:
            raise OutOfRange(f"bins = {self.bins}", f"must be in [1, {MOST_BINS}].", str(MOST_BINS))
        super().__post_init__()

    @classmethod
    def of(cls, participation: RandomAllocation) -> Self:
        return cls(participation.bins, 1.0, 1)

    @classmethod
    def groups(cls, participation: RandomAllocation) -> int:
        return participation.bins

    @property
    def sampler(self) -> str:
        return f"each user in one of {self.bins} rounds of every block, drawn afresh for each block and kept secret"

    @property
    def bound(self) -> str:
        return f"privacy loss distributions of {self.count} blocks of {self.bins} rounds, discretised upwards"

    @property
    def spread(self) -> float:
        return spread(self.bins, self.noise_multiplier)

    def over(self, participation: RandomAllocation, rounds: int, horizon: int) -> tuple[SampledEvent, ...]:
        cut = 0 if participation.whole else horizon % self.bins
        if not cut or rounds <= horizon - cut:
            return super().over(participation, rounds, horizon)
        blocks, last = horizon // self.bins, CutAllocation(self.bins, self.noise_multiplier, 1, cut)
        return (self.times(blocks), last) if blocks else (last,)

    def losses(self, step: float) -> tuple[DiscreteLoss, DiscreteLoss]:
        return allocated_losses(self.bins, self.noise_multiplier, step)

    @classmethod
    def from_table(cls, noise_multiplier: float, count: int, own: Mapping[str, object]) -> SampledEvent:
        return cls(whole(own["bins"]), noise_multiplier, count)


@register
@dataclass(frozen=True)
class CutAllocation(Allocation):
    """A block of which the run holds the first `rounds` rounds: with probability rounds / bins the user is in one."""

    own: ClassVar = frozenset({"bins", "rounds"})
    participations: ClassVar = ()

    rounds: int

    def __post_init__(self) -> None:
        if not 1 <= self.rounds < self.bins:
            raise OutOfRange(f"rounds = {self.rounds}", f"must be in [1, {self.bins}).", "1")
        super().__post_init__()

    @property
    def sampler(self) -> str:
        return f"in a last block of {self.rounds} rounds each user with probability {self.rounds} in {self.bins}"

    @property
    def bound(self) -> str:
        return f"the same of its {self.rounds} rounds"

    @property
    def spread(self) -> float:
        return spread(self.bins, self.noise_multiplier) * math.sqrt(self.rounds / self.bins)

    def losses(self, step: float) -> tuple[DiscreteLoss, DiscreteLoss]:
        return allocated_losses(self.bins, self.noise_multiplier, step, self.rounds)

    @classmethod
    def from_table(cls, noise_multiplier: float, count: int, own: Mapping[str, object]) -> SampledEvent:
        return cls(whole(own["bins"]), noise_multiplier, count, whole(own["rounds"]))


def spread(bins: int, noise_multiplier: float) -> float:
    """Estimate the standard deviation of log L: sqrt((exp(1 / sigma^2) - 1) / b) where small, 1 / sigma at most."""
    inverse = 1 / noise_multiplier
    return min(math.sqrt(math.expm1(min(inverse * inverse, 700.0)) / bins), inverse)


def allocated_losses(
    bins: int, noise_multiplier: float, step: float, rounds: int | None = None
) -> tuple[DiscreteLoss, DiscreteLoss]:
    """Return the losses of one block on multiples of `step`: with the user against without, and without
    against with.

    Formal guarantee: each dominates its order of the pair (1), so that compositions of them bound those of
    blocks.

    Args:
        bins: rounds of a block, at least 1.
        noise_multiplier: noise std over the most that one user changes.
        step: of the grid of losses.
        rounds: of the block that the run holds; None: all.
    """
    mean = _mean_of(rounds or bins, noise_multiplier, step)
    if mean.count < bins:
        # The other variables are 1.
        rest = _Mean(bins - mean.count, step, mean.power, 0, np.ones(1), 0.0, 0.0)
        mean = _together(mean, rest, noise_multiplier)
    while mean.power:
        mean = mean.refined()
    losses = step * np.arange(mean.lowest, mean.lowest + mean.masses.size, dtype=np.float64)
    present = mean.masses * np.exp(losses)
    # What rounding took from either world's mass counts as an infinite loss.
    with_user = DiscreteLoss(step, mean.lowest, present, max(mean.lost, 1 - float(present.sum())))
    absent = mean.masses[::-1].copy()
    highest = mean.lowest + mean.masses.size - 1
    return with_user, DiscreteLoss(step, -highest, absent, max(mean.zero, 1 - float(absent.sum())))


@dataclass(frozen=True, eq=False)
class _Mean:
    """The mean of `count` of the variables W, moved to a grid: value exp(h (lowest + i)) with mass
    `masses[i]`.

    h = step 2^power. `zero`: the mass at 0. `lost`: how much of the mean 1 lies above the grid.
    """

    count: int
    step: float
    power: int
    lowest: int
    masses: Vector
    zero: float
    lost: float

    @property
    def h(self) -> float:
        return math.ldexp(self.step, self.power)

    def refined(self) -> _Mean:
        """Return the same on the grid of half the step."""
        masses = np.zeros(2 * self.masses.size - 1)
        masses[::2] = self.masses
        return _Mean(self.count, self.step, self.power - 1, 2 * self.lowest, masses, self.zero, self.lost)

    def trimmed(self) -> _Mean:
        """Cut off ends that hold next to nothing: the lower one's mass is divided between 0 and the new lower
        end, which keeps the mean; the upper one's is moved down to the new upper end.
        """
        values = np.exp(self.h * np.arange(self.lowest, self.lowest + self.masses.size))
        below = np.cumsum(self.masses)
        first = int(np.searchsorted(below, _CUT))
        above = np.cumsum((self.masses * values)[::-1])[::-1]
        last = max(first, int(np.count_nonzero(above > _CUT)) - 1)
        masses = self.masses[first : last + 1].copy()
        share = values[:first] / values[first]
        masses[0] += float(self.masses[:first] @ share)
        zero = self.zero + float(self.masses[:first] @ (1 - share))
        beyond = self.masses[last + 1 :]
        # Cut down to the last value: mass stays, mean is lost.
        masses[-1] += float(beyond.sum())
        lost = self.lost + float(beyond @ (values[last + 1 :] - values[last]))
        masses *= (1 - zero) / float(masses.sum())  # rounding doubles with every mean of two
        return _Mean(self.count, self.step, self.power, self.lowest + first, masses, zero, lost)


def _mean_of(bins: int, noise_multiplier: float, step: float) -> _Mean:
    """Return the mean of `bins` variables W: means of 1, 2, 4, ... of them, by the binary digits of `bins`."""
    doubled = _single(noise_multiplier, step)
    whole = doubled if bins & 1 else None
    while bins := bins >> 1:
        doubled = _together(doubled, doubled, noise_multiplier)
        if bins & 1:
            whole = doubled if whole is None else _together(whole, doubled, noise_multiplier)
    assert whole is not None  # the highest bit is set
    return whole


def _coarser(count: int, noise_multiplier: float, step: float) -> int:
    """Return the largest power of two by which the grid of a mean of `count` may be coarser than `step`."""
    enough = _RELATIVE * spread(count, noise_multiplier)
    return max(0, math.floor(math.log2(enough / step))) if enough > step else 0


def _single(noise_multiplier: float, step: float) -> _Mean:
    """Return the distribution of W on its grid."""
    power, s = _coarser(1, noise_multiplier, step), 1 / noise_multiplier
    h = math.ldexp(step, power)
    # The mass of the mean is that of x moved by s, so the upper end lies further out.
    lowest = math.floor((-_REACH * s - s * s / 2) / h)
    highest = math.ceil(((_REACH + s) * s - s * s / 2) / h)
    logs: Vector = h * np.arange(lowest, highest + 1, dtype=np.float64)
    x = (logs + s * s / 2) / s
    mass, moment = _between(x), _between(x - s)
    # moment = lower e^log + upper e^(log + h), in which lower + upper = mass.
    moment = moment * np.exp(-logs[:-1])
    upper = np.clip((moment - mass) / math.expm1(h), 0.0, mass)
    masses = np.zeros(logs.size)
    masses[1:] += upper
    masses[:-1] += mass - upper
    at_bottom = min(float(scipy.special.ndtr(x[0])), float(scipy.special.ndtr(x[0] - s)) * math.exp(-logs[0]))
    masses[0] += at_bottom
    beyond, mean_beyond = float(scipy.special.ndtr(-x[-1])), float(scipy.special.ndtr(s - x[-1]))
    masses[-1] += beyond
    return _Mean(1, step, power, lowest, masses, float(scipy.special.ndtr(x[0])) - at_bottom, mean_beyond)


def _between(x: Vector) -> Vector:
    """Return the normal mass between neighbours of the rising x, to full relative precision in both tails."""
    below, above = scipy.special.ndtr(x), scipy.special.ndtr(-x)
    return np.asarray(np.where(x[:-1] > 0, above[:-1] - above[1:], below[1:] - below[:-1]))


def _together(one: _Mean, other: _Mean, noise_multiplier: float) -> _Mean:
    """Return the mean of all variables of two independent means."""
    count = one.count + other.count
    target = min(_coarser(count, noise_multiplier, one.step), one.power, other.power)
    same = one is other
    while one.power > other.power:
        one = one.refined()
    while other.power > one.power:
        other = other.refined()
    scale = 1 << (one.power - target)
    h, fine = one.h, math.ldexp(one.step, target)
    log_one, log_other = math.log(one.count / count), math.log(other.count / count)
    # At most the larger of the two values, at least it times its share.
    floor = math.floor(min(log_one, log_other) / fine)
    lowest = scale * min(one.lowest, other.lowest) + floor
    highest = scale * max(one.lowest + one.masses.size, other.lowest + other.masses.size)
    masses = np.zeros(highest - lowest + 2)
    largest = max(one.masses.size, other.masses.size)
    product, part = np.empty(largest), np.empty(largest)

    def put(ours: Vector, theirs: Vector | float, first: int, shift: float) -> None:
        """Place products of masses at h (first + i) + shift, i = 0, 1, ...: each to the two ends of its cell."""
        size = ours.size
        products, share = np.multiply(ours, theirs, out=product[:size]), part[:size]
        cell = math.floor(shift / fine)
        upper = min(max(math.expm1(shift - cell * fine) / math.expm1(fine), 0.0), 1.0)
        start = scale * first + cell - lowest
        stop = start + scale * (size - 1) + 1
        below, above = masses[start:stop:scale], masses[start + 1 : stop + 1 : scale]
        np.add(below, np.multiply(products, 1 - upper, out=share), out=below)
        np.add(above, np.multiply(products, upper, out=share), out=above)

    # log(w e^x + w' e^y) depends on x - y but for a shift, so one value serves a whole diagonal.
    # By the difference of the two positions: the value is that of the second position, moved by one shift.
    differences = range(
        0 if same else one.lowest - (other.lowest + other.masses.size - 1), one.lowest + one.masses.size - other.lowest
    )
    shifts = np.logaddexp(log_one + np.array(differences) * h, log_other).tolist()
    twice, both = 2 * one.masses, other.masses
    for difference, shift in zip(differences, shifts, strict=True):
        # other's index j meets one's index j + difference.
        first = max(other.lowest, one.lowest - difference)
        last = min(other.lowest + both.size, one.lowest + one.masses.size - difference)
        if first < last:
            ours, moved = twice if same and difference else one.masses, difference - one.lowest
            put(ours[first + moved : last + moved], both[first - other.lowest : last - other.lowest], first, shift)
    if one.zero:
        put(other.masses, one.zero, other.lowest, log_other)
    if other.zero:
        put(one.masses, other.zero, one.lowest, log_one)
    lost = (one.count * one.lost + other.count * other.lost) / count
    return _Mean(count, one.step, target, lowest, masses, one.zero * other.zero, lost).trimmed()
