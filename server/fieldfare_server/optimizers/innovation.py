"""How much the mean update really moves a round, estimated from what a filter has released: post-processing, free.

Model (see `kalman`): g_t moves by q a round per coordinate, in variances of its noise, and a filter that used gains
k_0 = 1, k_1, ... holds m_{t-1}. The residual u_t - m_{t-1} then has, per coordinate and in the same units,

    E residual^2 = q c_t + N_t,    c_1 = 1,  c_{t+1} = 1 + (1 - k_t)^2 c_t,    N_t = 1 + V_{t-1} - 2 Cov(w_t, m_{t-1}),

with c_t the lag of a filter of these gains and N_t known from the mechanism (V: noise in m). Hence the ratio of sums of
residual^2 - N_t and of c_t, over past rounds with weights that fall by `KEEP` a round, estimates q without bias. One
standard error is added: what cannot be told from nothing must not stop the filter from listening.

A filter that began at 0 instead (k_0 < 1) remembers that start as if it were movement, for as long as the weights do.
Where clients look ahead the residual also holds the model's movement along the curvature, divided by k: the estimate
is one from above then, and the gain errs towards less smoothing.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from fieldfare_server.optimizers.kalman import best_gain

Floats = NDArray[np.float64]

KEEP = 0.95
"""Weight of a round's residual against that of the round after it: some 20 rounds count."""

PRIOR = 0.49 / 0.3
"""Before anything was seen, worth one round: what makes 0.7, the published gain, right for white noise."""

LAGS = 128
"""Past rounds whose noise is followed: as many as `Mechanism.autocovariance` tells of."""


class Innovation(NamedTuple):
    """What is known before a round. All but `weights` are scalars."""

    moved: float = PRIOR
    """Weighted sum of residual^2 - N."""
    exposure: float = 1.0
    """The same of c."""
    variance: float = 0.0
    """The same, with squared weights, of the variance of residual^2 about its mean."""
    lag: float = 1.0
    """c of this round."""
    smoothed: float = 0.0
    """Variance of the noise in the filter, in units of the round's."""
    gain: float = 0.0
    """Of the round before; 0 before the first."""
    weights: Floats = np.zeros(LAGS)
    """Of past noise in the filter, newest first."""

    @classmethod
    def of(cls, kept: torch.Tensor) -> Self:
        """From `tensor`."""
        moved, exposure, variance, lag, smoothed, gain = kept[:6].tolist()
        return cls(moved, exposure, variance, lag, smoothed, gain, kept[6:].numpy())

    def tensor(self) -> torch.Tensor:
        """Float64 (6 + LAGS,)."""
        return torch.from_numpy(np.concatenate([self[:6], self.weights]))

    @property
    def value(self) -> float:
        """q, one standard error up."""
        return (max(0.0, self.moved) + math.sqrt(self.variance)) / self.exposure

    def covariance(self, autocovariance: tuple[float, ...]) -> float:
        """Of this round's noise with that in the filter."""
        lags = np.asarray(autocovariance[1 : LAGS + 1], np.float64)
        return float(self.weights[: lags.size] @ lags) / (autocovariance[0] if autocovariance else 1.0)

    def next_gain(self, autocovariance: tuple[float, ...], adaptive: bool, warm: bool) -> tuple[float, float]:
        """(gain, correlation of the noise in the filter with the round's) as `kalman.gains` has them for a known q."""
        if self.gain == 0.0 and warm:
            return 1.0, 0.0
        gain = limit = best_gain(self.value, autocovariance)
        if adaptive and limit < 1.0:
            moved = limit**2 / (1.0 - limit)
            before = self.gain or 1.0  # the error after an update is its gain; a cold filter begins with 1
            gain = (before + moved) / (before + moved + 1.0)
        return gain, self.covariance(autocovariance) / math.sqrt(self.smoothed) if self.smoothed > 0 else 0.0

    def after(self, gain: float, residual: float, size: int, autocovariance: tuple[float, ...]) -> Self:
        """Of the next round. residual: mean over `size` coordinates of (u - m)^2, in variances of the noise.

        Before the first the filter held nothing, so that the first residual says nothing of movement.
        """
        together, kept = self.covariance(autocovariance), 1.0 - gain
        known = self
        if self.gain > 0.0:
            known = self._replace(
                moved=KEEP * self.moved + residual - (1.0 + self.smoothed - 2.0 * together),
                exposure=KEEP * self.exposure + self.lag,
                variance=KEEP**2 * self.variance + 2.0 * residual**2 / size,
            )
        return known._replace(
            lag=1.0 + kept**2 * self.lag,
            smoothed=kept**2 * self.smoothed + gain**2 + 2.0 * gain * kept * together,
            gain=gain,
            weights=np.concatenate([[gain], self.weights[:-1] * kept]),
        )
