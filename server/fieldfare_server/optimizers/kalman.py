"""The filters behind DiSK (Zhang et al. 2024, arXiv 2410.03883): scalar gains for white and for correlated
noise.

In the model, the mean update g_t moves by an innovation of variance q a round (per coordinate), and is seen
through noise w_t of variance 1 and autocovariance r(0) = 1, r(1), ... A filter with gain k keeps m_t = (1 -
k) m_{t-1} + k (g_t + w_t), where the look-ahead point has already moved m_{t-1} along the curvature. All
variances below are in units of the noise's.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from fieldfare.lazily import scipy

# The smallest gain that is ever chosen: a filter that takes in nothing new stops the run.
LEAST_GAIN = 1e-3

# Rounds whose gains are computed one by one; later rounds use the last one.
_LONGEST = 4096


def smoothed_variance(kappa: float, autocovariance: tuple[float, ...] = (1.0,)) -> float:
    """Return the stationary variance of the noise behind a fixed gain, in units of r(0).

    kappa / (2 - kappa) (1 + 2 sum_j (1 - kappa)^j r(j)), which is kappa / (2 - kappa) for white noise. Noise
    with negative autocorrelation is damped more.
    """
    lags = np.asarray(autocovariance or (1.0,), np.float64)
    lags = lags / lags[0]
    powers = (1.0 - kappa) ** np.arange(1, lags.size)
    return float(kappa / (2.0 - kappa) * (1.0 + 2.0 * (powers @ lags[1:])))


@functools.lru_cache(maxsize=64)
def best_gain(innovation: float, autocovariance: tuple[float, ...] = (1.0,)) -> float:
    """Return the fixed gain with the least stationary error: smoothed noise + (1 - k)^2 q / (1 - (1 - k)^2).

    For white noise k = (sqrt(q^2 + 4 q) - q) / 2, that is q = k^2 / (1 - k) (disk.md, section 2). For
    correlated noise that formula is wrong, and the minimum is found numerically.
    """
    # Written as 2 q / (q + sqrt(q^2 + 4 q)), the white formula does not cancel for large q.
    if not any(autocovariance[1:]):
        return max(LEAST_GAIN, 2.0 * innovation / (innovation + math.sqrt(innovation**2 + 4.0 * innovation)))

    def error(kappa: float) -> float:
        kept = (1.0 - kappa) ** 2
        return smoothed_variance(kappa, autocovariance) + innovation * kept / (1.0 - kept)

    grid = np.concatenate([np.geomspace(LEAST_GAIN, 0.5, 60), np.linspace(0.5, 1.0, 51)[1:]])
    # The error may have several local minima: the grid finds the right one, and the search refines it.
    least = int(np.argmin([error(float(kappa)) for kappa in grid]))
    low, high = float(grid[max(least - 1, 0)]), float(grid[min(least + 1, grid.size - 1)])
    search = scipy.optimize.minimize_scalar(error, bounds=(low, high), method="bounded", options={"xatol": 1e-10})
    refined = float(search.x)
    return min(refined, float(grid[least]), key=error)


class Gains(NamedTuple):
    """Gain of each round, and the correlation of the filter's noise before the round with the round's noise."""

    gain: tuple[float, ...]
    correlation: tuple[float, ...]

    def at(self, step: int) -> tuple[float, float]:
        """Return (gain, correlation) of this round; after the last round, the last ones."""
        index = min(step, len(self.gain) - 1)
        return self.gain[index], self.correlation[index]


@functools.lru_cache(maxsize=64)
def gains(kappa: float | None, innovation: float, autocovariance: tuple[float, ...], warm: bool, rounds: int) -> Gains:
    """Return every round's gain, before any data is seen: gains depend on public numbers only.

    The adaptive gain is the scalar Riccati recursion k = (p + q) / (p + q + 1), p = (1 - k)(p + q) of
    disk.md, S3, with the q whose fixed point is `best_gain`. For white noise that is the given innovation.
    For correlated noise it is not: minimising each round's error alone would end at a wrong gain (up to 80 %
    more error for differenced noise).

    Args:
        kappa: a fixed gain, or None for the adaptive one.
        warm: take the first observation whole; otherwise the filter starts from 0 with p = 1.
    """
    lags = np.asarray(autocovariance or (1.0,), np.float64)
    lags = lags / lags[0]
    limit = best_gain(innovation, autocovariance)
    moved = limit**2 / (1.0 - limit) if limit < 1.0 else math.inf
    error, variance, chosen, correlations = 1.0, 0.0, [], []
    weights = np.zeros(0)  # weights of past noise in the filter, newest first
    for step in range(min(rounds, _LONGEST)):
        if step == 0 and warm:
            gain = 1.0
        elif kappa is not None:
            gain = kappa
        else:
            # With noise of variance 1 the error after the update, (1 - k)(p + q), is k itself.
            gain = error = (error + moved) / (error + moved + 1.0) if moved < math.inf else 1.0
        reach = min(weights.size, lags.size - 1)
        covariance = float(weights[:reach] @ lags[1 : reach + 1])
        correlations.append(covariance / math.sqrt(variance) if variance > 0 else 0.0)
        chosen.append(gain)
        variance = (1.0 - gain) ** 2 * variance + gain**2 + 2.0 * gain * (1.0 - gain) * covariance
        weights = np.concatenate([[gain], weights * (1.0 - gain)])
        # The tail falls geometrically; below 1e-13 it no longer changes a variance.
        weights = weights[: int(np.flatnonzero(weights > 1e-13)[-1]) + 1]
    return Gains(tuple(chosen), tuple(correlations))
