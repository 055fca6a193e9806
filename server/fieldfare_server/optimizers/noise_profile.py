"""How a mechanism's noise hangs together from round to round: what `StepInfo.noise_autocovariance` carries."""

from __future__ import annotations

import numpy as np

from fieldfare.mechanisms import Mechanism
from fieldfare.mechanisms.toeplitz import ToeplitzMechanism

MOST_ROUNDS = 1024
"""Of a mechanism that is not Toeplitz, so many leading rounds are looked at. This decides no privacy, only a gain."""


def autocovariance(mechanism: Mechanism, lags: int = 128) -> tuple[float, ...]:
    """r(0) = 1, r(1), ..., at most `lags` values: of round t's noise with round t - j's.

    Toeplitz kinds: exact at the end of the horizon. Others (trees, stamped and dense kinds), whose noise is not
    stationary: the average over rounds. Public: a function of the plan alone.
    """
    if isinstance(mechanism, ToeplitzMechanism):
        rows = mechanism.noising_coefs[None, :]
    else:
        rows = mechanism.noising_matrix(min(mechanism.rounds, MOST_ROUNDS)).T
    # Toeplitz: <B_t, B_{t-j}> is the autocorrelation of the coefficients. Otherwise, summed over t, it is the sum over
    # z's coordinates of the autocorrelation in time of how each enters.
    size = 1 << (2 * rows.shape[1] - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(rows, size, axis=1)) ** 2
    overlap = np.fft.irfft(spectrum.sum(axis=0), size)[: min(lags, rows.shape[1])]
    values = overlap / overlap[0]
    heard = np.flatnonzero(np.abs(values) > 1e-12)  # below is the round-off of the transform
    return tuple(float(value) for value in values[: heard[-1] + 1])
