"""How much the mean update really moves in a round, estimated from released values: post-processing, at no
charge.

In the model of `kalman`, g_t moves by q a round per coordinate, in variances of its noise, and a filter that
used gains k_0 = 1, k_1, ... holds m_{t-1}. The residual u_t - m_{t-1} then has, per coordinate and in the
same units,

    E residual^2 = q c_t + N_t,    c_1 = 1,  c_{t+1} = 1 + (1 - k_t)^2 c_t,    N_t = 1 + V_{t-1} - 2 Cov(w_t, m_{t-1}),

with c_t the lag of a filter with these gains and N_t known from the mechanism (V: variance of the noise in
m). The ratio of the sums of residual^2 - N_t and of c_t, over past rounds with weights that fall by `KEEP` a
round, therefore estimates q without bias. One standard error is added: an innovation that cannot be told from
0 must not close the filter to new values.

A filter that began at 0 instead (k_0 < 1) counts its start as movement, for as long as the weights remember
it. Where clients look ahead, the residual also holds the model's movement along the curvature, divided by k:
the estimate is then too large, and the filter smooths less than it could.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fieldfare.lazily import torch
from fieldfare_server.optimizers.kalman import best_gain

Floats = NDArray[np.float64]

# Weight of a round's residual against that of the round after it: some 20 rounds count.
KEEP = 0.95

# q before the first residual, worth one round: it makes 0.7, the published gain, right for white noise.
PRIOR = 0.49 / 0.3

# Past rounds whose noise is followed: as many lags as `Mechanism.autocovariance` has at most.
LAGS = 128


class Innovation(NamedTuple):
    """What is known before a round. All but `weights` are scalars."""

    moved: float = PRIOR  # weighted sum of residual^2 - N
    exposure: float = 1.0  # weighted sum of c
    variance: float = 0.0  # sum of the variances of residual^2, with squared weights
    lag: float = 1.0  # c of this round
    smoothed: float = 0.0  # variance of the noise in the filter, in units of the round's
    gain: float = 0.0  # gain of the round before; 0 before the first round
    weights: Floats = np.zeros(LAGS)  # weights of past rounds' noise in the filter, newest first

    @classmethod
    def from_tensor(cls, stored: torch.Tensor) -> Self:
        """Return the inverse of `to_tensor`."""
        moved, exposure, variance, lag, smoothed, gain = stored[:6].tolist()
        return cls(moved, exposure, variance, lag, smoothed, gain, stored[6:].numpy())

    def to_tensor(self) -> torch.Tensor:
        """Return the fields in order, float64 (6 + LAGS,): what a checkpoint stores."""
        return torch.from_numpy(np.concatenate([self[:6], self.weights]))

    @property
    def value(self) -> float:
        """The estimate of q plus one standard error."""
        return (max(0.0, self.moved) + math.sqrt(self.variance)) / self.exposure

    def covariance(self, autocovariance: tuple[float, ...]) -> float:
        """Return the covariance of this round's noise with the noise in the filter."""
        lags = np.asarray(autocovariance[1 : LAGS + 1], np.float64)
        return float(self.weights[: lags.size] @ lags) / (autocovariance[0] if autocovariance else 1.0)

    def next_gain(self, autocovariance: tuple[float, ...], adaptive: bool, warm: bool) -> tuple[float, float]:
        """Return the next round's gain, and the correlation of the noise in the filter with the noise of that
        round.

        As `kalman.gains` for the estimated q. `warm`: the first observation is taken whole.
        """
        if self.gain == 0.0 and warm:
            return 1.0, 0.0
        gain = limit = best_gain(self.value, autocovariance)
        if adaptive and limit < 1.0:
            moved = limit**2 / (1.0 - limit)
            error = self.gain or 1.0  # the error after an update equals its gain; a cold filter begins with 1
            gain = (error + moved) / (error + moved + 1.0)
        return gain, self.covariance(autocovariance) / math.sqrt(self.smoothed) if self.smoothed > 0 else 0.0

    def observe(self, gain: float, residual: float, size: int, autocovariance: tuple[float, ...]) -> Self:
        """Return what is known after a round.

        Args:
            gain: the round's gain.
            residual: mean over `size` coordinates of (u - m)^2, in variances of the noise.
        """
        covariance, kept = self.covariance(autocovariance), 1.0 - gain
        known = self
        if self.gain > 0.0:  # the first residual is the update itself, not a movement
            known = self._replace(
                moved=KEEP * self.moved + residual - (1.0 + self.smoothed - 2.0 * covariance),
                exposure=KEEP * self.exposure + self.lag,
                variance=KEEP**2 * self.variance + 2.0 * residual**2 / size,
            )
        return known._replace(
            lag=1.0 + kept**2 * self.lag,
            smoothed=kept**2 * self.smoothed + gain**2 + 2.0 * gain * kept * covariance,
            gain=gain,
            weights=np.concatenate([[gain], self.weights[:-1] * kept]),
        )
