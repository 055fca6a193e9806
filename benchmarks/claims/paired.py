"""Comparisons over seeds: exact tests, Holm's correction, bootstrap intervals, and where two lines cross."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

DRAWS = 10_000
Values = NDArray[np.float64]


def sign_flip(differences: Sequence[float]) -> float:
    """Two-sided p of paired differences: the share of all choices of their signs with a mean at least as far from 0.

    Exact under the hypothesis that a difference and its negative are equally likely; at least 2 / 2^n.
    """
    values = np.asarray(differences, float)
    means = np.abs(_signs(len(values)) @ values)
    return float(np.mean(means >= abs(values.sum()) - 1e-12 * np.abs(values).sum()))


@cache
def _signs(count: int) -> Values:
    return np.array(list(itertools.product((1.0, -1.0), repeat=count)))


def holm(found: Mapping[str, float]) -> dict[str, float]:
    """p corrected for all that were tested (Holm 1979): below .05, it survives at a family-wise error of 5 %."""
    corrected, largest = {}, 0.0
    for rank, name in enumerate(sorted(found, key=lambda name: found[name])):
        largest = max(largest, min(1.0, found[name] * (len(found) - rank)))
        corrected[name] = largest
    return {name: corrected[name] for name in found}


@cache
def resamples(count: int, draws: int = DRAWS) -> NDArray[np.int64]:
    """Places of `count` seeds drawn with replacement, (draws, count): always the same."""
    return np.random.default_rng(0).integers(0, count, (draws, count))


def bootstrap(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % percentile interval of the mean."""
    means = np.asarray(values, float)[resamples(len(values))].mean(1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def cross(ahead: Values, epsilons: Sequence[float]) -> float | None:
    """epsilon at which a line goes from below 0 to above it, by linear interpolation in log epsilon; None: nowhere."""
    for at in range(len(epsilons) - 1):
        below, above = ahead[at], ahead[at + 1]
        if below < 0 <= above:
            share = -below / (above - below)
            return float(epsilons[at] * (epsilons[at + 1] / epsilons[at]) ** share)
    return None


def crossing(ahead: Values, epsilons: Sequence[float]) -> tuple[float, float, float]:
    """(where mean differences cross 0, and its 95 % bootstrap interval over seeds), of differences (epsilons, seeds).

    0: ahead already at the smallest epsilon; infinite: not ahead at the largest.
    """

    def where(means: Values) -> float:
        return at if (at := cross(means, epsilons)) is not None else 0.0 if means[0] >= 0 else np.inf

    places = np.array([where(ahead[:, chosen].mean(1)) for chosen in resamples(ahead.shape[1])])
    low = np.quantile(places, 0.025, method="lower")
    high = np.quantile(places, 0.975, method="higher")
    return where(ahead.mean(1)), float(low), float(high)


def told(at: float, epsilons: Sequence[float], show: Callable[[float], str] = "{:.2f}".format) -> str:
    """A place of `crossing` in words."""
    return (
        f"below {epsilons[0]:g}" if at < epsilons[0] else f"above {epsilons[-1]:g}" if at > epsilons[-1] else show(at)
    )
