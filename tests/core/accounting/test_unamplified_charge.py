"""Sampling that keeps a user's rounds apart is charged without amplification: how much that leaves, by simulation.

jax-privacy estimates what balls-in-bins (one random residue, Chua et al. 2024) and b-min-sep sampling would cost if
nobody knew who is in which cohort. A federation shows who was asked (`zero_out`), so Fieldfare charges the worst
pattern; here its strategy matrices and its enumerated patterns give their numbers, and its charge is above them.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logsumexp

from fieldfare.accounting import charge_for
from fieldfare.factorization.toeplitz import inverse
from fieldfare.mechanisms.toeplitz import ToeplitzMechanism, window_stream
from fieldfare.participation import FixedOrder, MinSeparation, Participation

ROWS = {
    row["id"]: row
    for row in json.loads((Path(__file__).parents[2] / "reference" / "accounting.json").read_text())["rows"]
}
ROUNDS, CYCLE, RATE, SEPARATION, SAMPLES = 100, 10, 0.1, 4, 100_000


def four_bands() -> ToeplitzMechanism:
    c = np.zeros(ROUNDS)
    c[:4] = 0.5 ** np.arange(4)
    c /= np.linalg.norm(c)
    beta = inverse(c, ROUNDS)
    return ToeplitzMechanism("banded", ROUNDS, c, beta, window_stream(len(beta)), buffers=3)


def residues(c: np.ndarray, sigma: float, present: bool, rng: np.random.Generator) -> np.ndarray:
    """log of the mixture over the cycle's residues against noise alone, at samples of either, shape (SAMPLES,)."""
    modes = np.stack([c[:, offset::CYCLE].sum(axis=1) for offset in range(CYCLE)])
    outputs = sigma * rng.standard_normal((SAMPLES, ROUNDS))
    if present:
        outputs += modes[rng.integers(0, CYCLE, SAMPLES)]
    losses = (outputs @ modes.T - np.square(modes).sum(axis=1) / 2) / sigma**2
    return np.asarray(logsumexp(losses, axis=1) - math.log(CYCLE))


def separated(c: np.ndarray, sigma: float, present: bool, rng: np.random.Generator) -> np.ndarray:
    """The same for users who come back after 3 rounds' rest with chance 0.1 a round, from a stationary start."""
    first = np.full(SEPARATION, RATE)
    first[0] = 1.0
    first /= first.sum()
    outputs = sigma * rng.standard_normal((SAMPLES, ROUNDS))
    if present:
        free = rng.choice(SEPARATION, SAMPLES, p=first)
        for t in range(ROUNDS):
            now = (free <= t) & (rng.random(SAMPLES) < RATE)
            outputs[now] += c[:, t]
            free[now] = t + SEPARATION
    likelihood = np.exp((outputs @ c - np.square(c).sum(axis=0) / 2) / sigma**2)
    after = [np.ones(SAMPLES)] * SEPARATION  # from rounds t, t + 1, ... of a user who is free in them
    for t in reversed(range(ROUNDS)):
        after = [(1 - RATE) * after[0] + RATE * likelihood[:, t] * after[-1], *after[:-1]]
    return np.log(sum(p * ratio for p, ratio in zip(first, after, strict=True)))


@pytest.mark.parametrize("name", [name for name in ROWS if name.startswith("mc_")])
def test_simulated_delta_of_amplified_sampling(name: str) -> None:
    """Within 5.1 standard errors of both estimates (false alarm 3e-7 each), and below what is charged."""
    p, estimates = ROWS[name]["params"], ROWS[name]["value"]
    epsilon, sigma = p["eps"], p["noise_multiplier"]
    mechanism = four_bands()
    c = mechanism.strategy_matrix(ROUNDS)
    bins = "ballsinbins" in name
    participation: Participation = FixedOrder(CYCLE) if bins else MinSeparation(SEPARATION)
    charged = charge_for(mechanism, participation, sigma, ROUNDS).delta(epsilon)
    rng = np.random.default_rng(7)
    for present, theirs in zip((True, False), estimates, strict=True):
        losses = (residues if bins else separated)(c, sigma, present, rng) * (1 if present else -1)
        excess = -np.expm1(np.minimum(epsilon - losses, 0.0))
        spread = excess.std()
        error = spread * math.sqrt(1 / SAMPLES + 1 / p["samples"])
        assert abs(excess.mean() - theirs) < 5.1 * error
        if present:
            assert spread / math.sqrt(p["samples"]) == pytest.approx(p["std_err"], rel=0.05)
        assert theirs + 5.1 * error < charged
