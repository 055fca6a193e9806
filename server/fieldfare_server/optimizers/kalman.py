"""The filters behind DiSK (Zhang et al. 2024): scalar gains for white and for correlated noise.

Model: the mean update g_t moves by an innovation of variance q a round (per coordinate), and is seen through noise
w_t of variance 1 and autocovariance r(0) = 1, r(1), ... A filter with gain k keeps m_t = (1 - k) m_{t-1} +
k (g_t + w_t), where the look-ahead point has already moved m_{t-1} along the curvature. All variances below are in
units of the noise's.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
from scipy import optimize

LEAST_GAIN = 1e-3
"""No gain below this is ever chosen: a filter that hears nothing new is a stopped run."""

_LONGEST = 4096
"""Rounds for which gains are worked out one by one; from there on the last one is used."""


def smoothed_variance(kappa: float, autocovariance: tuple[float, ...] = (1.0,)) -> float:
    """Stationary variance of the noise behind a fixed gain: kappa / (2 - kappa) (1 + 2 sum_j (1 - kappa)^j r(j)),
    in units of r(0).

    White noise: kappa / (2 - kappa). Noise of a mechanism with negative autocorrelation is damped more.
    """
    lags = np.asarray(autocovariance or (1.0,), np.float64)
    lags = lags / lags[0]
    powers = (1.0 - kappa) ** np.arange(1, lags.size)
    return float(kappa / (2.0 - kappa) * (1.0 + 2.0 * (powers @ lags[1:])))


@functools.lru_cache(maxsize=64)
def best_gain(innovation: float, autocovariance: tuple[float, ...] = (1.0,)) -> float:
    """The fixed gain with the least stationary error: smoothed noise + (1 - k)^2 q / (1 - (1 - k)^2).

    For white noise k = (sqrt(q^2 + 4 q) - q) / 2, that is q = k^2 / (1 - k) (disk.md, section 2); for the noise of a
    correlated mechanism the white formula is wrong and the minimum is found numerically.
    """
    if not any(autocovariance[1:]):
        return max(LEAST_GAIN, 2.0 * innovation / (innovation + math.sqrt(innovation**2 + 4.0 * innovation)))

    def error(kappa: float) -> float:
        kept = (1.0 - kappa) ** 2
        return smoothed_variance(kappa, autocovariance) + innovation * kept / (1.0 - kept)

    grid = np.concatenate([np.geomspace(LEAST_GAIN, 0.5, 60), np.linspace(0.5, 1.0, 51)[1:]])
    at = int(np.argmin([error(float(kappa)) for kappa in grid]))
    low, high = float(grid[max(at - 1, 0)]), float(grid[min(at + 1, grid.size - 1)])
    found = optimize.minimize_scalar(error, bounds=(low, high), method="bounded", options={"xatol": 1e-10})
    return float(found.x) if error(float(found.x)) <= error(float(grid[at])) else float(grid[at])


class Gains(NamedTuple):
    """Gain of each round, and the correlation of the filter's noise before the round with the round's noise."""

    gain: tuple[float, ...]
    correlation: tuple[float, ...]

    def at(self, step: int) -> tuple[float, float]:
        """(gain, correlation) of this round; the last ones for ever."""
        index = min(step, len(self.gain) - 1)
        return self.gain[index], self.correlation[index]


@functools.lru_cache(maxsize=64)
def gains(kappa: float | None, innovation: float, autocovariance: tuple[float, ...], warm: bool, rounds: int) -> Gains:
    """Every round's gain, before any data is seen: the gains depend on public numbers only.

    `kappa`: a fixed gain, or None for the adaptive one: the scalar Riccati recursion k = (p + q) / (p + q + 1),
    p = (1 - k)(p + q) of disk.md, S3, with the q whose fixed point is `best_gain`. For white noise that is the given
    innovation; for correlated noise minimising each round's error alone would end at a wrong gain (up to 80 % more
    error for differenced noise). `warm`: the first observation is taken whole; otherwise the filter starts from 0
    with p = 1.
    """
    lags = np.asarray(autocovariance or (1.0,), np.float64)
    lags = lags / lags[0]
    limit = best_gain(innovation, autocovariance)
    moved = limit**2 / (1.0 - limit) if limit < 1.0 else math.inf
    error, variance, chosen, correlations = 1.0, 0.0, [], []
    weights = np.zeros(0)  # of past noise in the filter, newest first
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
        # The tail falls geometrically; what is below 1e-13 no longer moves a variance.
        weights = weights[: int(np.flatnonzero(weights > 1e-13)[-1]) + 1]
    return Gains(tuple(chosen), tuple(correlations))
