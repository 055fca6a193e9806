"""Optimised banded *noising* matrices: B has `bands` diagonals, so the stream keeps the last bands - 1 rows
of z.

The idea is the banded inverse square root's (Kalinin, McKenna, Upadhyay and Lampert 2025, "Back to Square
Roots": kind `optimal-cc` with a `window`); its coefficients are optimised for the plan's rounds and
participation instead of cut (BandInvMF there). C = B^-1 is full: its columns overlap however far apart a
user's rounds are.

Formal guarantee: that of `ToeplitzMechanism`. At the optimum C's coefficients stay non-negative but rise a
little every `bands` rounds. So the sensitivity is an upper bound, and exact where `toeplitz.sensitivity` sees
the evenly spaced pattern attain it. Candidates are compared by that bound.

`banded` keeps as many vectors of state. Here a row of noise is a weighted sum of independent rows, so
resuming draws bands - 1 rows again instead of replaying all rounds.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fieldfare.arrays import Floats, lfilter
from fieldfare.errors import OutOfRange
from fieldfare.factorization import toeplitz
from fieldfare.factorization.objective import Objective, PrefixLoss
from fieldfare.factorization.stamping import block_rounds
from fieldfare.lazily import scipy
from fieldfare.mechanisms.base import About, Mechanism, MechanismSpec
from fieldfare.mechanisms.nu import noising_coefficients
from fieldfare.mechanisms.optimum import recall
from fieldfare.mechanisms.registry import register
from fieldfare.mechanisms.stamped import stamped
from fieldfare.mechanisms.toeplitz import ToeplitzMechanism, window_stream
from fieldfare.participation import MinSeparation, Participation

# The log-loss of coefficients whose inverse overflows: the line search turns back from it.
_REFUSED_STEP = 1e10


def optimise(loss: PrefixLoss, bands: int) -> Floats:
    """Return the first column of the best B found, shape (bands,), float32 values, beta_0 = 1.

    L-BFGS from the cut inverse square root. The search assumes that the evenly spaced pattern is the worst,
    so the start is returned where it has the smaller loss at the sensitivity that is charged.
    """
    start = toeplitz.round_to_float32(noising_coefficients(0.0, bands))
    if bands == 1:
        return start
    options = {"maxiter": 500, "maxcor": 30, "ftol": 1e-13, "gtol": 1e-8}
    result = scipy.optimize.minimize(_log_loss, start[1:], args=(loss,), jac=True, method="L-BFGS-B", options=options)
    end = toeplitz.round_to_float32(np.concatenate([[1.0], result.x]))
    return min(start, end, key=lambda b: _charged(b, loss))


def _charged(b: Floats, loss: PrefixLoss) -> float:
    """Return the logarithm of the loss at the sensitivity that is charged."""
    c = toeplitz.inverse(b, loss.n)
    if not np.isfinite(c).all() or np.abs(c).max() > 1e60:
        return np.inf
    sensitivity = toeplitz.sensitivity(c, MinSeparation(loss.separation, loss.count))
    return 2.0 * float(np.log(sensitivity)) + loss.log_error_squared(toeplitz.coefficients(b, loss.n))[0]


def _log_loss(tail: Floats, loss: PrefixLoss) -> tuple[float, Floats]:
    """log-loss and gradient in beta_1 .. beta_{bands - 1} with beta_0 = 1."""
    n, bands = loss.n, len(tail) + 1
    b = np.zeros(n)
    b[0], b[1:bands] = 1.0, tail
    c = toeplitz.inverse(b[:bands], n)
    if not np.isfinite(c).all() or np.abs(c).max() > 1e60:
        return _REFUSED_STEP, np.zeros(bands - 1)
    log_sensitivity, of_c = loss.log_sensitivity_squared(c)
    log_error, of_b = loss.log_error_squared(b)
    # dC = -C dB C, so the gradient in beta_j is -<C^T of_c, c shifted by j>; C^T is substitution from the last row up.
    back = lfilter([1.0], b[:bands], of_c[::-1])[::-1]
    through_c = np.array([back[j:] @ c[: n - j] for j in range(1, bands)])
    return log_sensitivity + log_error, of_b[1:bands] - through_c


@register
class BandedInverseSpec(MechanismSpec):
    """`bands` diagonals of B, optimised for the plan's rounds and participation."""

    about: ClassVar[About] = About(
        source="Kalinin, McKenna, Upadhyay, Lampert 2025",
        memory="bands - 1",
        cost="1 draw, 1 pass a band",
        anytime=False,
        slow=False,
        example={"kind": "banded-inverse", "bands": 16},
    )
    kind: Literal["banded-inverse"] = "banded-inverse"
    bands: int = Field(ge=1, description="diagonals of B; at most the rounds")
    objective: Objective = Field(default="mean", description="which prefix error to minimise")

    def build_cached(
        self, rounds: int, participation: Participation | None, cache: MutableMapping[str, bytes]
    ) -> Mechanism:
        n = block_rounds(self.restart_every, rounds)
        if self.bands > n:
            raise OutOfRange(f"mechanism.bands = {self.bands}", f"must be in [1, {n}], the rounds.", str(n))
        loss = PrefixLoss.of(n, participation, self.objective)
        b = recall(cache, "b", lambda: optimise(loss, self.bands))
        c = toeplitz.inverse(b, n)
        block = ToeplitzMechanism(self.kind, n, c, b, window_stream(len(b)), buffers=len(b) - 1)
        return stamped(block, self.restart_every, rounds)
