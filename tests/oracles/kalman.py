"""The stationary Riccati equation and the full filter of DiSK (Zhang et al. 2024), with errata."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fieldfare.arrays import Floats


class Riccati(NamedTuple):
    """Fixed point of the scalar recursion: error variance, gain, and the rate at which gains approach it."""

    error: float
    gain: float
    contraction: float


def stationary(noise: float, curvature: float, innovation: float, *, noisy_input: bool = False) -> Riccati:
    """Closed form of the scalar recursion for variances sigma_w^2, sigma_H^2, sigma_v^2.

    The paper's gain subtracts sigma_H^2 from the denominator (`noisy_input`, Wu et al. 2016); that is optimal only if
    the error of the Hessian product is correlated with the noise in that particular way, and its p is not the true
    error otherwise. The default is the Kalman gain. The contraction is (1 - gain)^2 (the printed c_k has +3 sigma_H^2
    where -sigma_H^2 belongs). Raises ValueError if `noisy_input` and sigma_H^2 >= sigma_w^2: p would not be positive.
    """
    if noisy_input and curvature >= noise:
        raise ValueError(f"curvature {curvature} must be below the noise variance {noise}")
    moved = curvature + innovation
    # p = (s - x) (p + moved) / (p + s - x + moved), x = sigma_H^2 for the paper's gain and 0 for the Kalman gain.
    seen = noise - (curvature if noisy_input else 0.0)
    error = (math.sqrt(moved * (moved + 4.0 * seen)) - moved) / 2.0
    gain = (error + moved) / (error + moved + seen)
    return Riccati(error, gain, (1.0 - gain) ** 2)


class Belief(NamedTuple):
    """What the full filter knows of the gradient: mean (d,) and covariance (d, d)."""

    mean: Floats
    covariance: Floats


def full_kalman(
    belief: Belief,
    observed: Floats,
    *,
    displacement: Floats,
    hessian: Floats,
    noise: Floats,
    innovation: Floats,
    curvature: Floats,
    clipping: Floats | None = None,
    clipping_variance: float = 0.0,
) -> Belief:
    """One step of Algorithm 2 for small d: O(d^3) time, O(d^2) memory, needs the Hessian; a yardstick, not a trainer.

    `observed` (d,) = clipping @ gradient + noise; `displacement` = x_t - x_{t-1}; `hessian` (d, d), its product with
    the displacement having the error covariance `curvature`; `noise`, `innovation`: covariances (d, d); `clipping`
    (d, d): the mean E[C_t], identity by default, with scalar variance `clipping_variance`. With errata: the innovation
    enters the prediction (line 7 drops it), line 8 uses the predicted mean (it prints the one that line 9 defines),
    and the gain has no - Sigma_H.
    """
    mean = belief.mean + hessian @ displacement
    predicted = belief.covariance + curvature + innovation
    seen = np.eye(mean.size) if clipping is None else clipping
    spread = seen @ (predicted + clipping_variance * np.outer(mean, mean)) @ seen.T + noise
    gain = np.linalg.solve(spread.T, (predicted @ seen.T).T).T
    return Belief(mean + gain @ (observed - seen @ mean), predicted - gain @ seen @ predicted)
