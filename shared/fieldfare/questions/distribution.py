"""How values are distributed: a histogram over bins that are public, and quantiles.

A user contributes the share of the user's rows in each bin: a probability vector, whose norm is at most 1. So a user
with many rows counts as one user.

*Quantiles* need sums over many bins, which is what the mechanisms of this project answer over many rounds: the noise
of neighbouring bins is correlated. A user contributes C e, e the probability vector and C the square root
factorisation of prefix sums ("optimal-cc"), divided by the largest norm of C's columns, so that the norm is at most 1.
The sums are A B y for the released y, with B = C^-1 and A the prefix sums, and their noise has the standard deviation
that `Mechanism.prefix_row_norms` says: about 2.4 user counts at mu 1 for 64 bins, where independent bins give 8.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from fieldfare.arrays import Floats
from fieldfare.errors import OutOfRange
from fieldfare.participation import Single
from fieldfare.questions.base import FEWEST, MOST_CELLS, WIDE, Estimate, ModelQuestion, Values, register

if TYPE_CHECKING:
    from fieldfare.mechanisms import Mechanism


class _Bins(ModelQuestion):
    bins: int = Field(ge=2, le=MOST_CELLS, description="how many bins the range is cut into")
    spacing: Literal["linear", "log"] = Field(
        default="linear", description="bins of equal width, or of equal ratio for a range above 0"
    )

    @model_validator(mode="after")
    def _log_of_positive(self) -> Self:
        if self.spacing == "log" and self.low <= 0:
            raise OutOfRange(f"question.low = {self.low:g}", "bins of equal ratio need a range above 0.", "1e-6")
        return self

    @property
    def width(self) -> int:
        return self.bins

    @property
    def edges(self) -> Floats:
        """Where bins begin and end, shape (bins + 1,)."""
        space = np.geomspace if self.spacing == "log" else np.linspace
        edges: Floats = space(self.low, self.high, self.bins + 1)
        return edges

    def shares(self, values: Values) -> Floats:
        """The share of each user's rows in each bin, shape (users, bins)."""
        number = values.numbers[:, 0]
        cells = np.clip(np.searchsorted(self.edges[1:-1], number, side="right"), 0, self.bins - 1)
        return values.shares(np.where(np.isnan(number), -1, cells), self.bins)


@register
class BinCounts(_Bins):
    """How many users lie in each bin of [low, high); what is outside counts in the first or the last bin."""

    kind: Literal["histogram"] = "histogram"

    def contributions(self, values: Values) -> Floats:
        return self.shares(values)

    def read(self, total: Floats, sd: float, users: int) -> tuple[Estimate, ...]:
        edges = self.edges
        return tuple(
            Estimate.normal(f"{edges[bin]:.6g} to {edges[bin + 1]:.6g}", float(count), sd, 0, users)
            for bin, count in enumerate(total)
        )

    def spread(self, sd: float, users: int) -> tuple[tuple[str, float], ...]:
        return (("users of a bin", sd),)


@register
class Quantile(_Bins):
    """The values below which given shares of the users lie. One question gives every quantile.

    With `some`, of the users who have a value, whose number is then the noised sum over all bins.
    """

    kind: Literal["quantile"] = "quantile"
    at: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = Field(
        default=(0.5,), min_length=1, max_length=99, description="the shares, from 0 to 1"
    )
    some: bool = Field(default=False, description="only some users have a value: their number is noised as well")

    @property
    def released(self) -> str:
        return f"{super().released}; a user's numbers are a mixture of columns of the matrix of 'optimal-cc'"

    def contributions(self, values: Values) -> Floats:
        mechanism = _prefix_sums(self.bins)
        return self.shares(values) @ mechanism.strategy_matrix(self.bins).T / _largest_column(mechanism)

    def read(self, total: Floats, sd: float, users: int) -> tuple[Estimate, ...]:
        mechanism = _prefix_sums(self.bins)
        below = np.cumsum(mechanism.noising_matrix(self.bins) @ total) * _largest_column(mechanism)
        errors = self._errors(sd)
        counted = float(below[-1]) if self.some else float(users)
        if counted < FEWEST * errors[-1]:
            return tuple(Estimate(f"{share:g}", None, self.low, self.high) for share in self.at)
        smooth = isotonic(below)
        return tuple(self._read_one(share, counted, below, smooth, errors) for share in self.at)

    def _read_one(self, share: float, counted: float, below: Floats, smooth: Floats, errors: Floats) -> Estimate:
        # The bin holds the quantile if no more than `sought` lie below it, and as many do with it. Each of
        # the two may fail for the right bin with probability 2.5 %. With a noised number of users the errors
        # of both add up.
        sought, edges = share * counted, self.edges
        noise = WIDE * (errors + (share * errors[-1] if self.some else 0.0))
        within = (np.concatenate([[-np.inf], (below - noise)[:-1]]) <= sought) & (below + noise >= sought)
        held = np.flatnonzero(within)
        if not held.size:  # fewer users have a value
            return Estimate(f"{share:g}", None, self.low, self.high)
        bin = min(int(np.searchsorted(smooth, sought)), self.bins - 1)
        first, last = min(bin, int(held[0])), max(bin, int(held[-1]))
        start = float(smooth[bin - 1]) if bin else 0.0
        part = float(np.clip((sought - start) / max(float(smooth[bin]) - start, 1e-300), 0.0, 1.0))
        low, high = edges[bin], edges[bin + 1]
        value = low * (high / low) ** part if self.spacing == "log" else low + (high - low) * part
        return Estimate(f"{share:g}", float(value), float(edges[first]), float(edges[last + 1]))

    def having(self, total: Floats, sd: float, users: int) -> tuple[Estimate, ...]:
        mechanism, error = _prefix_sums(self.bins), float(self._errors(sd)[-1])
        number = float((mechanism.noising_matrix(self.bins) @ total).sum()) * _largest_column(mechanism)
        return (Estimate.normal("users with a value", number, error, 0, users),)

    def spread(self, sd: float, users: int) -> tuple[tuple[str, float], ...]:
        return (("share of users below a value", float(self._errors(sd).max()) / users),)

    def _errors(self, sd: float) -> Floats:
        """Standard deviation of how many users lie below each bin's end, shape (bins,)."""
        mechanism = _prefix_sums(self.bins)
        return mechanism.prefix_row_norms(self.bins) * (sd * _largest_column(mechanism))


@lru_cache(maxsize=8)
def _prefix_sums(bins: int) -> Mechanism:
    from fieldfare.mechanisms import build  # with SciPy, which a node that answers questions has no use for

    return build({"kind": "optimal-cc", "engine": "exact"}, bins, Single())


def _largest_column(mechanism: Mechanism) -> float:
    return float(mechanism.sensitivity(Single()))


def isotonic(values: Floats) -> Floats:
    """The nearest non-decreasing sequence in squared error, shape (n,): pool adjacent violators."""
    means: list[float] = []
    sizes: list[int] = []
    for value in values.tolist():
        mean, size = value, 1
        while means and means[-1] >= mean:
            before, count = means.pop(), sizes.pop()
            mean, size = (before * count + mean * size) / (count + size), count + size
        means.append(mean)
        sizes.append(size)
    return np.repeat(means, sizes)
