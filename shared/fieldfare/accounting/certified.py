"""A run's whole privacy curve, certified by Monte Carlo: the unit in which `balls_in_bins` hands over a
charge.

A curve is a list of points (epsilon, delta) at which H(P || Q) and H(Q || P) of a dominating pair are both at
most delta, the failure probability of the Monte Carlo included. H is convex in e^epsilon and falls, so
between two points it lies below their chord in e^epsilon, and beyond the last point below its delta.
Everything here is exact for the lower convex envelope of the points.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from fieldfare.accounting.event import ACROSS, CostEvent, Price, Words, cheaper
from fieldfare.accounting.gaussian import Gaussian, gaussian_delta
from fieldfare.errors import OutOfRange
from fieldfare.lazily import scipy
from fieldfare.participation import BallsInBins, BMinSep, Participation, RandomAllocation
from fieldfare.text import decimal

WITHOUT_SAMPLES = "privacy loss distribution of the dominating pair, discretised upwards, without samples"
MOST_POINTS = 256
# e^epsilon of a point must be a number.
LARGEST_EPSILON = 300.0
# Share of r at which `with_resolution` splits off what two laws that are r/2-GDP apart may differ by.
_APART = 4.0


@dataclass(frozen=True)
class Certified(CostEvent):
    """Upper bounds on delta, valid in both orders of the two worlds, and how they were made.

    Args:
        mu: without amplification the run is mu-GDP; this holds with certainty.
        points: (epsilon, delta), epsilon increasing from 0. `failure` is part of every delta.
        failure: probability, over the seed, that the points are no bounds.
        seed: what the samples were drawn from, 32 hex digits. It was fixed before they were drawn.
        attempt: which certification of this plan it is, from 1: each later one has half the failure
            probability.
        samples: drawn for (removing a user, adding one). (0, 0): the points are exact but for rounding up, and do not
            fail (`sampling_free`).

    Raises:
        BadInput: numbers out of range, or points that are not in order.
    """

    rank: ClassVar = 3

    mu: float
    points: tuple[tuple[float, float], ...]
    failure: float
    seed: str
    attempt: int
    samples: tuple[int, int]

    def __post_init__(self) -> None:
        epsilons = [epsilon for epsilon, _ in self.points]
        in_order = all(a < b for a, b in itertools.pairwise(epsilons))
        inside = all(0 <= e <= LARGEST_EPSILON and self.failure <= d <= 1 for e, d in self.points)
        if not (2 <= len(epsilons) <= MOST_POINTS and epsilons[0] == 0 and in_order and inside):
            raise OutOfRange("points of a certified curve", "must be (epsilon, delta) in order, from epsilon 0.")
        drawn = self.samples != (0, 0)
        if not (0 < self.mu < math.inf and 0 <= self.failure < 1 and (self.failure > 0) == drawn):
            why = "must be above 0, and failure below 1; none where nothing is drawn."
            raise OutOfRange(f"mu = {self.mu}, failure = {self.failure}", why)
        seeded = len(self.seed) == 32 and set(self.seed) <= set("0123456789abcdef")
        if not seeded or self.attempt < 1 or len(self.samples) != 2 or min(self.samples) < int(drawn):
            raise OutOfRange("seed, attempt or samples of a certified curve", "must be 32 hex digits, and at least 1.")

    @cached_property
    def _envelope(self) -> tuple[np.ndarray, np.ndarray]:
        """e^epsilon and delta at the vertices of the lower convex envelope that does not rise."""
        # A true delta is convex in e^epsilon and never rises. So chords between upper bounds are upper bounds
        # as well, and the lowest of them is the lower envelope.
        hull: list[tuple[float, float]] = []
        lowest = 1.0
        for epsilon, delta in self.points:
            lowest = min(lowest, delta)
            new = (math.exp(epsilon), lowest)
            while len(hull) > 1 and _above(hull[-2], hull[-1], new):
                hull.pop()
            hull.append(new)
        x, h = np.array(hull).T
        return x, h

    def delta(self, epsilon: float) -> float:
        """Return an upper bound on delta at `epsilon` >= 0, never above that without amplification."""
        x, h = self._envelope
        # Beyond the last vertex the curve falls: its delta there stays a bound.
        chord = float(np.interp(math.exp(min(epsilon, LARGEST_EPSILON)), x, h)) * (1 + 1e-12)
        return min(chord, gaussian_delta(self.mu, epsilon))

    def by_points(self, delta: float) -> float:
        """Return an upper bound on epsilon at `delta` by the points alone; inf where the last of them is
        above `delta`.
        """
        x, h = self._envelope
        delta *= 1 - 1e-12
        if h[-1] > delta:
            return math.inf
        if h[0] <= delta:
            return 0.0
        after = int(np.argmax(h <= delta))
        share = (h[after - 1] - delta) / (h[after - 1] - h[after])
        return math.log(float(x[after - 1] + share * (x[after] - x[after - 1]))) * (1 + 1e-12)

    def curve(self, delta: float) -> float:
        """Return an upper bound on epsilon at `delta`, never above that without amplification."""
        return min(self.without_amplification().curve(delta), self.by_points(delta))

    def price(self, leak: float) -> Price:
        return cheaper(self.mu**2, self.least_mu(leak) if leak > 0 else math.inf, leak)

    def compose(self, other: CostEvent) -> None:
        """Refuse to be one event: two certified runs together count as the Gaussians that they are without
        amplification.
        """
        return None

    def without_amplification(self) -> Gaussian:
        return Gaussian(self.mu**2)

    @property
    def words(self) -> Words:
        if not self.failure:
            bound = f"{WITHOUT_SAMPLES}; upper bounds at {len(self.points)} points"
            method = "privacy loss distribution of the dominating pair of the whole run"
            return Words("certified-monte-carlo", method, "Approximate DP", "certified", ACROSS, (bound,))
        bound = (
            f"{sum(self.samples):,} samples of the dominating pair, drawn from a seed that the journal held before; "
            f"upper bounds at {len(self.points)} points, wrong with probability {decimal(self.failure, 2)}, which is "
            "part of delta"
        )
        method = "certified Monte Carlo of the dominating pair of the whole run"
        return Words("certified-monte-carlo", method, "Approximate DP", "certified", ACROSS, (bound,))

    def least_mu(self, leak: float) -> float:
        """Return the least mu for which E(mu, `leak`) of `filter` lies above the curve; inf where no mu does.

        Each chord is a test: of mass m in one world and a in the other, where delta = m - a e^epsilon. A
        convex curve of chords lies below another convex one if and only if each chord's whole line does.
        Epsilons below 0 are the other order's, which the points bound too.
        """
        x, h = self._envelope
        if h[-1] > leak:
            return math.inf
        a = -np.diff(h) / np.diff(x)
        m = np.minimum(h[:-1] + a * x[:-1], 1.0)
        inside = (m > leak) & (a > 0) & (a < 1 - leak)
        if not inside.any():
            return 0.0
        first = np.minimum((m[inside] - leak) / (1 - leak), 1.0)
        apart = scipy.special.ndtri(first) - scipy.special.ndtri_exp(np.log(a[inside]) - math.log1p(-leak))
        return max(0.0, float(np.max(apart)))

    def with_resolution(self, r: float) -> Certified:
        """Return the curve where each world's real release and the exact one are r / 2 GDP apart
        (`privatise`).

        With d = g_{r/2}(4 r): P~ <= e^{4r} P + d and Q <= e^{4r} Q~ + d on every set, hence at epsilon + 8 r
        the delta e^{4r} delta + d (1 + e^{epsilon + 4r}). At epsilon 0 total variations add up.
        """
        if r == 0:
            return self
        each = _APART * r
        d = gaussian_delta(r / 2, each)
        points = [(0.0, min(1.0, self.points[0][1] + 2 * gaussian_delta(r / 2, 0.0)))]
        for epsilon, delta in self.points:
            moved = epsilon + 2 * each
            if moved <= LARGEST_EPSILON:
                points.append((moved, min(1.0, math.exp(each) * delta + d * (1 + math.exp(epsilon + each)))))
        return replace(self, mu=self.mu + r, points=tuple(points))

    def agrees_with(self, other: Certified, tolerance: float = 1e-6) -> bool:
        """Return whether both are of the same samples, and their numbers the same up to another machine's
        last digits.
        """
        made = (self.seed, self.attempt, self.samples, len(self.points)) == (
            other.seed,
            other.attempt,
            other.samples,
            len(other.points),
        )
        ours, theirs = (
            [self.mu, self.failure, *np.ravel(self.points)],
            [other.mu, other.failure, *np.ravel(other.points)],
        )
        return made and all(math.isclose(a, b, rel_tol=tolerance) for a, b in zip(ours, theirs, strict=True))

    def to_json(self) -> dict[str, object]:
        """Return finite JSON; floats in full precision."""
        return {
            "attempt": self.attempt,
            "failure": self.failure,
            "mu": self.mu,
            "points": [list(point) for point in self.points],
            "samples": list(self.samples),
            "seed": self.seed,
        }

    @classmethod
    def from_json(cls, table: object) -> Certified:
        """Return the inverse of `to_json`. Raises `BadInput`, TypeError or ValueError for anything else."""
        if not isinstance(table, dict) or set(table) != {"attempt", "failure", "mu", "points", "samples", "seed"}:
            raise ValueError("not a certified curve")
        flat = itertools.chain.from_iterable(table["points"])
        numbers = [table["attempt"], table["failure"], table["mu"], *table["samples"], *flat]
        if any(isinstance(value, bool) or not isinstance(value, int | float) for value in numbers):
            raise TypeError("a value of a certified curve is not a number")
        points = tuple((float(epsilon), float(delta)) for epsilon, delta in table["points"])
        remove, add = (int(count) for count in table["samples"])
        made = (str(table["seed"]), int(table["attempt"]), (remove, add))
        return cls(float(table["mu"]), points, float(table["failure"]), *made)


def _above(before: tuple[float, float], middle: tuple[float, float], after: tuple[float, float]) -> bool:
    """Return whether `middle` lies on or above the chord from `before` to `after`."""
    rise = (after[1] - before[1]) * (middle[0] - before[0])
    return (middle[1] - before[1]) * (after[0] - before[0]) >= rise


def sampler_of(participation: Participation) -> str:
    """Return who takes part by which secret draws, in words: a curve does not say it."""
    if isinstance(participation, BMinSep):
        return (
            f"each user after a pause of {participation.separation - 1} rounds with probability "
            f"{participation.rate:g} a round, by coins that are kept secret"
        )
    assert isinstance(participation, BallsInBins | RandomAllocation)
    once = "once" if isinstance(participation, BallsInBins) else "afresh for each block"
    return f"each user in one of {participation.bins} rounds of every block, drawn {once} and kept secret"
