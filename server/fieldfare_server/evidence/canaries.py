"""What an attacker could tell from a release: canaries, and three empirical epsilons from their scores.

A canary is a user with a coordinate of its own, who contributes the whole clip norm to it whenever it takes part; half
of them do, half do not. The attacker sees every released round and knows the mechanism, and scores each coordinate by
the likelihood ratio: the strongest attack there is on this release.

All three figures are LOWER BOUNDS or estimates of the loss, never a guarantee: a small one does not show privacy. Two
are valid at the stated confidence (Clopper-Pearson; one-run, Steinke, Nasr and Jagielski 2023, Theorem 5.2 and its
appendix); the Gaussian one is an estimate that is close for Gaussian mechanisms.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from scipy import linalg, stats

from fieldfare.accounting import PrivacyLoss
from fieldfare.mechanisms import Mechanism
from fieldfare.noise import SecureNoise
from fieldfare.participation import Participation

Float = NDArray[np.float64]


class CanaryEstimates(BaseModel):
    """Empirical epsilons of one simulated attack; `claimed` is the accountant's, for comparison."""

    model_config = ConfigDict(frozen=True)

    canaries: int
    delta: float
    confidence: float
    claimed: float
    gaussian_estimate: float
    """From the distance of the two score distributions: an estimate, not a bound."""
    clopper_pearson_lower_bound: float
    one_run_lower_bound: float


def scores(
    mechanism: Mechanism,
    noise: SecureNoise,
    participation: Participation,
    noise_multiplier: float,
    canaries: int,
    *,
    scale: float = 1.0,
) -> tuple[Float, Float]:
    """(scores of canaries that took part, of those that did not), each (canaries,): log-likelihood ratios.

    scale: multiplies the noise that is really added, to see what a faulty build would reveal.
    """
    rounds = mechanism.rounds
    pattern = _worst_pattern(mechanism, participation, rounds)
    direction = np.zeros(rounds)
    direction[list(pattern)] = 1.0
    b = mechanism.noising_matrix(rounds)
    upper = np.asarray(linalg.qr(b.T, mode="r")[0])[:rounds]
    # The attacker whitens with what it knows, so a matched filter is the likelihood ratio.
    white = linalg.solve_triangular(upper, direction, trans="T", lower=False)
    weights = linalg.solve_triangular(upper, white, lower=False) / np.linalg.norm(white)
    stream = mechanism.stream(2 * canaries, noise, dtype=torch.float64)
    total = np.zeros(2 * canaries)
    for t in range(rounds):
        released = scale * noise_multiplier * stream.next().numpy()
        released[:canaries] += direction[t]
        total += weights[t] * released
    return total[:canaries], total[canaries:]


def _worst_pattern(mechanism: Mechanism, participation: Participation, rounds: int) -> tuple[int, ...]:
    separation, most = participation.separation_and_count(rounds)
    starts = range(min(separation, rounds))
    patterns = [tuple(range(start, rounds, separation))[:most] for start in starts]
    allowed = [p for p in patterns if participation.allows(p, rounds)]
    return allowed[int(np.argmax(mechanism.pattern_norms(allowed, rounds)))]


def estimates(taken: Float, left: Float, claimed: float, delta: float, confidence: float = 0.95) -> CanaryEstimates:
    """All three empirical epsilons of one attack's scores (`taken`: of canaries that took part)."""
    return CanaryEstimates(
        canaries=taken.size + left.size,
        delta=delta,
        confidence=confidence,
        claimed=claimed,
        gaussian_estimate=gaussian_estimate(taken, left, delta),
        clopper_pearson_lower_bound=clopper_pearson(taken, left, delta, confidence),
        one_run_lower_bound=one_run(taken, left, delta, confidence),
    )


def gaussian_estimate(taken: Float, left: Float, delta: float) -> float:
    """Epsilon of the Gaussian mechanism whose two score distributions are as far apart. Not a bound."""
    deviation = math.sqrt((float(np.var(taken, ddof=1)) + float(np.var(left, ddof=1))) / 2)
    distance = max(0.0, float(np.mean(taken) - np.mean(left)) / deviation)
    return float(PrivacyLoss(mu_squared=distance**2).epsilon(delta)) if distance > 0 else 0.0


def clopper_pearson(taken: Float, left: Float, delta: float, confidence: float = 0.95) -> float:
    """Lower bound from the error rates of a threshold, which the first half chooses and the second half judges."""
    half = min(taken.size, left.size) // 2
    threshold = max(
        np.quantile(left[:half], np.linspace(0.5, 1 - 1 / half, 32)),
        key=lambda value: _bound(taken[:half], left[:half], float(value), delta, confidence),
    )
    return _bound(taken[half:], left[half:], float(threshold), delta, confidence)


def _bound(taken: Float, left: Float, threshold: float, delta: float, confidence: float) -> float:
    each = (1 - confidence) / 2
    hits, alarms = int((taken > threshold).sum()), int((left > threshold).sum())
    low = float(stats.beta.ppf(each, hits, taken.size - hits + 1)) if hits else 0.0
    high = float(stats.beta.ppf(1 - each, alarms + 1, left.size - alarms)) if alarms < left.size else 1.0
    return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0


def one_run(taken: Float, left: Float, delta: float, confidence: float = 0.95) -> float:
    """Lower bound from guessing who took part: the best and the worst scores are guessed, the middle is passed over.

    Several numbers of guesses are tried, and the confidence is shared among them.
    """
    values = np.concatenate([taken, left])
    truth = np.concatenate([np.ones(taken.size), np.zeros(left.size)])[np.argsort(values)]
    tries = [g for g in (0.02, 0.05, 0.1, 0.25, 0.5) if g * values.size >= 1]
    best = 0.0
    for part in tries:
        side = int(part * values.size / 2) or 1
        right = int(truth[-side:].sum() + (1 - truth[:side]).sum())
        best = max(best, _one_run_bound(values.size, 2 * side, right, delta, (1 - confidence) / len(tries)))
    return best


def _one_run_bound(canaries: int, guesses: int, right: int, delta: float, significance: float) -> float:
    low, high = 0.0, 20.0
    if _p_value(canaries, guesses, right, low, delta) > significance:
        return 0.0
    for _ in range(50):
        middle = (low + high) / 2
        refuted = _p_value(canaries, guesses, right, middle, delta) <= significance
        low, high = (middle, high) if refuted else (low, middle)
    return low


def _p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Probability, at most, of `right` or more correct guesses if the release is (epsilon, delta)-DP."""
    chance = 1 / (1 + math.exp(-epsilon))
    alone = float(stats.binom.sf(right - 1, guesses, chance))
    below = np.cumsum(stats.binom.pmf(np.arange(right - 1, -1, -1), guesses, chance))
    slack = float((below / np.arange(1, right + 1)).max(initial=0.0))
    return min(1.0, alone + 2 * canaries * delta * slack)
