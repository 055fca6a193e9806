"""The pair of balls in bins by numerical integration and by plain Monte Carlo, from the definition alone.

P is the mean over bins j of N(m_j, sigma^2 I), Q is N(0, sigma^2 I), m_j the sum of the columns j, j + b, ... of |C|.
Nothing of the product is used: neither its proposals, nor its sampling in b dimensions, nor its generator.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def modes(c: Matrix, bins: int) -> Matrix:
    """m_j, one row for each bin: shape (bins, rows)."""
    columns = np.abs(c).T
    return np.array([sum(columns[t] for t in range(j, len(columns), bins)) for j in range(bins)])


def integrated(c: Matrix, bins: int, sigma: float, epsilon: float, points: int = 2001) -> tuple[float, float]:
    """(delta of removing, delta of adding) for two bins, by the trapezoid rule in the plane that the modes span."""
    assert bins == 2
    first, second = modes(c, bins) / sigma
    x = first / np.linalg.norm(first)
    rest = second - (second @ x) * x
    y = rest / np.linalg.norm(rest) if np.linalg.norm(rest) > 1e-12 else np.zeros_like(x)
    reach = 9 + max(np.linalg.norm(first), np.linalg.norm(second))
    line, step = np.linspace(-reach, reach, points, retstep=True)
    a, b = np.meshgrid(line, line)

    def density(mode: Matrix) -> Matrix:
        return np.exp(-((a - mode @ x) ** 2 + (b - mode @ y) ** 2) / 2) / (2 * math.pi)

    p, q = (density(first) + density(second)) / 2, density(np.zeros_like(first))
    grow = math.exp(epsilon)
    removing, adding = (float(np.maximum(f, 0).sum()) * step**2 for f in (p - grow * q, q - grow * p))
    return removing, adding


def sampled(
    c: Matrix, bins: int, sigma: float, epsilon: float, rng: np.random.Generator, count: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """((mean, standard error) of removing, of adding) by samples of P and of Q themselves, in all rows of C."""
    centres = modes(c, bins) / sigma
    noise = rng.standard_normal((count, centres.shape[1]))
    found = []
    for present in (True, False):
        y = noise + centres[rng.integers(0, bins, count)] if present else noise
        ratio = np.exp(y @ centres.T - (centres**2).sum(axis=1) / 2).mean(axis=1)
        x = 1 - math.exp(epsilon) / ratio if present else 1 - math.exp(epsilon) * ratio
        x = np.maximum(x, 0)
        found.append((float(x.mean()), float(x.std() / math.sqrt(count))))
    return found[0], found[1]
