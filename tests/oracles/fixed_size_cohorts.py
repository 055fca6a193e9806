"""What cohorts of a fixed size would cost if every selected user answered, which a federation cannot promise."""

from __future__ import annotations

import math

import numpy as np

from fieldfare.accounting.composition import Composition, DiscreteLoss
from fieldfare.accounting.poisson import PoissonGaussian
from fieldfare.accounting.sampled import (
    SMALLEST_DELTA,
    _deltas_with_user,
    _log_complement,
    _reach,
    grid_for,
    refusal,
)
from fieldfare.errors import BadInput

ASSUMPTIONS = (
    "every round's cohort is uniform among all users and secret",
    "every selected user answers, in every round",
    "all users are always available",
)


def fixed_size_epsilon(users: int, cohort: int, noise_multiplier: float, rounds: int, delta: float) -> float:
    """epsilon of independent noise with uniform cohorts of fixed size, replace-one, under `ASSUMPTIONS`.

    noise_multiplier: noise std over the clip norm, so replacing a user changes 2 / noise_multiplier.

    An upper bound: both orders of the two worlds obey H_alpha <= f(alpha) = q H(Q || P) at 1 + (alpha - 1)/q for
    alpha >= 1 (Balle, Barthe and Gaboardi 2018, Theorem 10), hence 1 - alpha + alpha f(1/alpha) below 1. That is one
    convex curve, so a dominating pair, which composes. Raises `BadInput` where no grid fits.
    """
    if not 1 <= cohort <= users:
        raise BadInput(f"cohort = {cohort}", f"must be in [1, {users}].", str(users))
    rate, sigma = cohort / users, noise_multiplier / 2
    events = (PoissonGaussian(rate, sigma, rounds),)
    step, reason = grid_for(0.0, events), refusal(0.0, events)
    if step is None or delta < SMALLEST_DELTA:
        raise BadInput(f"{rounds} rounds at rate {rate:g}", reason or f"delta = {delta:g} is too small for a grid.")
    high = math.ceil(float(np.logaddexp(_log_complement(rate), math.log(rate) + _reach(sigma))) / step)
    upper = _deltas_with_user(np.arange(high + 1, dtype=np.float64) * step, rate, sigma)
    negative = np.arange(-high, 0, dtype=np.float64) * step
    lower = -np.expm1(negative) + np.exp(negative) * upper[:0:-1]
    return Composition([(DiscreteLoss.through(step, -high, np.concatenate([lower, upper])), rounds)]).epsilon(delta)
