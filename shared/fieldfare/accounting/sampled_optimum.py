"""Strategies chosen for a certified charge: the least noise in a prefix sum at the plan's (epsilon, delta).

With sampling it pays to forget old noise sooner than without: at the demo's plan and epsilon 1 the best nu is
about .23 instead of .05. What is minimised is sigma(C) ||A C^-1||_F, where sigma(C) is the uncertified
estimate of `certification` with the same normals for every C, so that it is smooth in C. It decides a
strategy, never a charge: whatever comes out is certified.

Every kind is sought in one family of Toeplitz coefficients, all positive and falling, as |C| = C asks:

    c_0 = 1,   c_t = c_{t-1} r (t - s) / t,   0 < r <= 1, 0 < s < 1                                                 (1)

`nu` has s = 1/2 and r = 1 - nu. `banded` cuts (1) after its bands; `blt` fits few exponentials to it.
"""

from __future__ import annotations

import math
from collections.abc import MutableMapping

import numpy as np

from fieldfare.accounting import balls_in_bins, chained
from fieldfare.accounting.certification import estimate_delta, estimate_noise
from fieldfare.accounting.importance import Law, Vector
from fieldfare.factorization import rational, toeplitz
from fieldfare.lazily import scipy
from fieldfare.mechanisms.banded import BandedSpec
from fieldfare.mechanisms.base import MechanismSpec
from fieldfare.mechanisms.blt import MOST_BUFFERS, BltSpec
from fieldfare.mechanisms.nu import NuSpec
from fieldfare.participation import BallsInBins, Participation

# Samples of one estimate.
_COUNT = 1 << 13
# Relative change of a strategy's error that `blt` accepts for having few buffers.
_EXPONENTIALS = 1e-3
# Longer plans keep the strategy that is best without sampling.
_MOST_ROUNDS = 2048


def choose(
    spec: MechanismSpec,
    rounds: int,
    participation: Participation,
    epsilon: float,
    delta: float,
    cache: MutableMapping[str, bytes],
) -> None:
    """Put into `cache` what the optimiser of `spec` decides for the amplified charge, under its own names.

    Kinds without a free choice, stamped ones, and whatever `cache` has already, stay as they are. Samplers
    other than balls in bins are certified for bands alone.
    """
    if spec.restart_every is not None or rounds > _MOST_ROUNDS:
        return
    if not (isinstance(participation, BallsInBins) or isinstance(spec, BandedSpec)):
        return
    objective = _Objective(rounds, participation, epsilon, delta)
    if isinstance(spec, NuSpec) and spec.nu == "auto" and spec.window is None and "nu" not in cache:
        cache["nu"] = np.array([1 - objective.best_rate()]).tobytes()
    elif isinstance(spec, BandedSpec) and not spec.column_normalised and spec.objective == "mean" and "c" not in cache:
        c = family(*objective.best_pair(spec.bands), min(spec.bands, rounds))
        cache["c"] = toeplitz.round_to_float32(c).astype("<f8").tobytes()
    elif isinstance(spec, BltSpec) and spec.objective == "mean" and "exponentials" not in cache:
        c = family(*objective.best_pair(rounds), rounds)
        fit = rational.nearest(c, toeplitz.inverse(c, rounds), participation, _EXPONENTIALS)
        if len(fit.omega) <= (MOST_BUFFERS if spec.buffers == "auto" else spec.buffers):
            cache["exponentials"] = np.concatenate([fit.omega, fit.theta]).astype("<f8").tobytes()


def family(rate: float, shift: float, n: int) -> Vector:
    """Return the first n coefficients (1)."""
    t = np.arange(1, n)
    return np.concatenate([[1.0], np.cumprod(rate * (t - shift) / t)])


class _Objective:
    """log(sigma(C) ||A C^-1||_F) over the family, with the noise of the last strategy as the next one's first guess."""

    def __init__(self, rounds: int, participation: Participation, epsilon: float, delta: float) -> None:
        self._n, self._participation, self._epsilon, self._delta = rounds, participation, epsilon, delta
        # log sigma, and log ||sensitivity||, of the strategy before.
        self._near: tuple[float, float] | None = None

    def value(self, c: Vector) -> float:
        full = np.concatenate([c, np.zeros(self._n - c.size)])
        error = np.cumsum(np.cumsum(toeplitz.inverse(c, self._n)) ** 2).mean()
        return self._log_noise(full) + 0.5 * math.log(error)

    def _log_noise(self, c: Vector) -> float:
        law: Law
        if isinstance(self._participation, BallsInBins):
            law = balls_in_bins.law_of_filter(c, self._participation.bins)
        else:
            law = chained.of_matrix(toeplitz.matrix(c, self._n), self._participation)
        size = 0.5 * math.log(law.largest)
        if self._near is None:
            found = math.log(estimate_noise(law, self._epsilon, self._delta, _COUNT))
        else:
            found = self._secant(law, self._near[0] + size - self._near[1])
        self._near = (found, size)
        return found

    def _secant(self, law: Law, guess: float) -> float:
        def off(log: float) -> float:
            estimated = estimate_delta(law, math.exp(log), self._epsilon, _COUNT)
            return math.log(max(estimated, 1e-300) / self._delta)

        here, value = guess, off(guess)
        there = here + min(max(value / 15, -0.3), 0.3)  # log delta falls about 15 times as fast as log sigma rises
        for _ in range(12):
            other = off(there)
            if abs(other) < 2e-3 or other == value:
                break
            slope = (other - value) / (there - here)
            here, value = there, other
            there -= min(max(other / slope, -0.5), 0.5) if slope < 0 else -0.1
        return there

    def best_rate(self) -> float:
        """Return r of the best strategy with s = 1/2."""
        search = scipy.optimize.minimize_scalar(
            lambda log: self.value(family(1 - math.exp(log), 0.5, self._n)),
            bounds=(math.log(1e-3), math.log(0.999)),
            method="bounded",
            options={"xatol": 0.03},
        )
        return 1 - math.exp(float(search.x))

    def best_pair(self, bands: int) -> tuple[float, float]:
        """Return (r, s) of the best strategy of so many bands."""

        def pair(point: Vector) -> tuple[float, float]:
            forget, shift = 1 / (1 + np.exp(-np.clip(point, -12.0, 12.0)))
            return 1 - float(forget), float(shift)

        search = scipy.optimize.minimize(
            lambda point: self.value(family(*pair(point), min(bands, self._n))),
            np.array([-1.5, 0.3]),
            method="Nelder-Mead",
            options={"xatol": 0.05, "fatol": 3e-4, "maxfev": 50},
        )
        return pair(search.x)
