"""The pair of random allocation by numerical integration and by plain Monte Carlo, from the definition alone.

In one block P is the mean over j of N(e_j, sigma^2 I), Q is N(0, sigma^2 I); blocks are independent. Nothing of the
product is used: neither its grids and convex orders, nor its compositions.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Matrix = NDArray[np.float64]


def integrated(blocks: int, bins: int, sigma: float, epsilon: float, rounds: int | None = None) -> tuple[float, float]:
    """(delta of removing, delta of adding) by the trapezoid rule over all but one round, and in closed form over it.

    The last round's part is exact: P - e^epsilon Q changes sign once along it. Rounds: blocks x bins, from 2 to 4, or
    the first `rounds` of them: whoever drew a later one takes no part.
    """
    rounds = blocks * bins if rounds is None else rounds
    points = {2: 20_001, 3: 1_201, 4: 131}[rounds]
    patterns = [
        [block * bins + j for block, j in enumerate(choice) if block * bins + j < rounds]
        for choice in itertools.product(range(bins), repeat=blocks)
    ]
    line, step = np.linspace(-7, 7 + 1 / sigma, points, retstep=True)
    axes = np.meshgrid(*[line] * (rounds - 1), indexing="ij")
    weight = np.exp(-sum(axis**2 for axis in axes) / 2) * (step / math.sqrt(2 * math.pi)) ** (rounds - 1)
    # The likelihood ratio is base + slope W(x), W of the last round.
    base, slope = np.zeros_like(axes[0]), np.zeros_like(axes[0])
    for pattern in patterns:
        rest = [t for t in pattern if t < rounds - 1]
        part = np.exp(sum((axes[t] / sigma for t in rest), np.zeros_like(axes[0])) - len(rest) / (2 * sigma**2))
        if rounds - 1 in pattern:
            slope += part / len(patterns)
        else:
            base += part / len(patterns)
    grow = math.exp(epsilon)
    # base + slope W > t where x > cut; P(x > cut) under Q, and with W as a weight, under N(1 / sigma, 1).
    removing, adding = 0.0, 0.0
    for add, threshold in ((False, grow), (True, 1 / grow)):
        with np.errstate(divide="ignore"):
            cut = sigma * np.log(np.maximum(threshold - base, 0.0) / slope) + 1 / (2 * sigma)
        above, weighted = ndtr(-cut), ndtr(1 / sigma - cut)
        if add:
            adding = float((weight * ((1 - grow * base) * (1 - above) - grow * slope * (1 - weighted))).sum())
        else:
            removing = float((weight * ((base - grow) * above + slope * weighted)).sum())
    return removing, adding


def sampled(
    blocks: int, bins: int, sigma: float, epsilon: float, rng: np.random.Generator, count: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """((mean, standard error) of removing, of adding) by samples of P and of Q themselves."""
    found = []
    for present in (True, False):
        y = rng.standard_normal((count, blocks, bins))
        if present:
            y[np.arange(count)[:, None], np.arange(blocks), rng.integers(0, bins, (count, blocks))] += 1 / sigma
        ratio = np.exp(y / sigma - 1 / (2 * sigma**2)).mean(axis=2).prod(axis=1)
        x = np.maximum(0.0, 1 - math.exp(epsilon) / ratio if present else 1 - math.exp(epsilon) * ratio)
        found.append((float(x.mean()), float(x.std() / math.sqrt(count))))
    return found[0], found[1]
