"""What an attacker can tell from a release: canaries, and three empirical epsilons from their scores.

A canary is a user with a private coordinate, who contributes the whole clip norm to it in every round of one allowed
pattern. Half of the canaries are included, half are not. The attacker sees every released round, knows the mechanism,
and scores each coordinate by its likelihood ratio: the strongest attack on this release.

All three figures are lower bounds or estimates of the privacy loss, never a guarantee: a small figure does not show
privacy, and a bound of 0 is no evidence of anything. They are compared with what the run has spent. Two are valid at
the stated confidence (Clopper-Pearson; one run: Steinke, Nasr and Jagielski 2023, Theorem 5.2 and its appendix). The
Gaussian one is an estimate that is close for Gaussian mechanisms, with a standard error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from scipy import linalg, stats

from fieldfare.accounting import PrivacyLoss
from fieldfare.lazily import torch
from fieldfare.mechanisms import Mechanism
from fieldfare.noise import SecureNoise
from fieldfare.participation import Participation, adjacency_factor
from fieldfare_server.ledger.reads import Reader
from fieldfare_server.ledger.views import RunView

Float = NDArray[np.float64]

CANARIES = 2000
"""How many are included, and how many are not."""
MOST_ROUNDS = 4096


class CanaryEstimates(BaseModel):
    """Empirical epsilons of one simulated attack; `spent` is what the ledger holds for it, for comparison."""

    model_config = ConfigDict(frozen=True)

    canaries: int
    delta: float
    confidence: float
    spent: float
    gaussian_estimate: float
    """From the distance of the two score distributions: an estimate, not a bound."""
    gaussian_standard_error: float
    clopper_pearson_lower_bound: float
    """0: no evidence of any loss, which is no evidence of privacy."""
    one_run_lower_bound: float


def attack_run(
    ledger: Reader,
    run: RunView,
    mechanism: Mechanism,
    participation: Participation,
    noise_multiplier: float,
    noise: SecureNoise,
) -> CanaryEstimates | None:
    """Attack a simulated release of the committed rounds, as the user who took part in the worst way really did.

    Where presence is secret the worst pattern that the plan allows takes the place of who took part, as in the
    charge. None before the first commit, in a very long run (the filter needs the whole noising matrix), and where
    sampling amplifies: a canary in chosen rounds is not sampled.
    """
    rounds = run.next_round
    if not 0 < rounds <= MOST_ROUNDS or run.spent.zcdp is None:
        return None
    patterns = ledger.participation_patterns(run.id) or densest_patterns(participation, rounds)
    included, excluded = scores(
        mechanism, noise, patterns, noise_multiplier, CANARIES, rounds, change=adjacency_factor(run.adjacency)
    )
    return estimates(included, excluded, run.spent_epsilon, run.delta)


def scores(
    mechanism: Mechanism,
    noise: SecureNoise,
    patterns: Sequence[tuple[int, ...]],
    noise_multiplier: float,
    canaries: int,
    rounds: int,
    *,
    scale: float = 1.0,
    change: float = 1.0,
) -> tuple[Float, Float]:
    """Attack a simulated release of the first `rounds` rounds of `mechanism`.

    Args:
        patterns: in which rounds a canary may take part; the worst of them is attacked.
        canaries: how many are included, and how many are not.
        scale: factor on the noise that is really added, to see what a faulty build would reveal.
        change: by how many clip norms a canary moves each of its rounds: 2 under `replace_one`.

    Returns:
        Log-likelihood ratios (up to an affine map) of included and of excluded canaries, (canaries,) each.
    """
    worst = patterns[int(np.argmax(mechanism.pattern_norms(patterns, rounds)))]
    direction = np.zeros(rounds)
    direction[list(worst)] = change
    # A canary shifts Gaussian noise of covariance B B^T = R^T R by `direction`. The likelihood ratio is then the
    # matched filter of the whitened rounds, with weights (B B^T)^-1 direction; two triangular solves give them.
    upper = np.asarray(linalg.qr(mechanism.noising_matrix(rounds).T, mode="r")[0])[:rounds]
    white = linalg.solve_triangular(upper, direction, trans="T", lower=False)
    weights = linalg.solve_triangular(upper, white, lower=False) / np.linalg.norm(white)
    stream = mechanism.stream(2 * canaries, noise, dtype=torch.float64)
    total = np.zeros(2 * canaries)
    for t in range(rounds):
        released = scale * noise_multiplier * stream.next().numpy()
        released[:canaries] += direction[t]
        total += weights[t] * released
    return total[:canaries], total[canaries:]


def densest_patterns(participation: Participation, rounds: int) -> list[tuple[int, ...]]:
    """The allowed patterns that take part as often and as close together as possible, one for each first round."""
    separation, most = participation.separation_and_count(rounds)
    starts = min(rounds, max(separation, -(-rounds // most)))
    return [_densest_from(start, participation, rounds) for start in range(starts)]


def _densest_from(start: int, participation: Participation, rounds: int) -> tuple[int, ...]:
    """The allowed pattern that begins in round `start` and goes on each time as early as it may."""
    separation, most = participation.separation_and_count(rounds)
    pattern: tuple[int, ...] = (start,)
    candidate = start + separation
    while candidate < rounds and len(pattern) < most:
        allowed = participation.allows((*pattern, candidate), rounds)
        pattern = (*pattern, candidate) if allowed else pattern
        candidate += separation if allowed else 1
    return pattern


def estimates(
    included: Float, excluded: Float, spent: float, delta: float, confidence: float = 0.95
) -> CanaryEstimates:
    """All three empirical epsilons of one attack's scores; `spent` is the accountant's epsilon at `delta`."""
    estimate, error = gaussian_estimate(included, excluded, delta)
    return CanaryEstimates(
        canaries=included.size + excluded.size,
        delta=delta,
        confidence=confidence,
        spent=spent,
        gaussian_estimate=estimate,
        gaussian_standard_error=error,
        clopper_pearson_lower_bound=clopper_pearson(included, excluded, delta, confidence),
        one_run_lower_bound=one_run(included, excluded, delta, confidence),
    )


def gaussian_estimate(included: Float, excluded: Float, delta: float) -> tuple[float, float]:
    """Epsilon of the Gaussian mechanism whose two score distributions are as far apart, and its standard error.

    Not a bound: it is above the truth about half of the time. The distance d of two samples of n scores has the
    variance 2 / n + d^2 / (4 n); the error of epsilon is half of what it moves between d - se and d + se.
    """
    deviation = math.sqrt((float(np.var(included, ddof=1)) + float(np.var(excluded, ddof=1))) / 2)
    distance = max(0.0, float(np.mean(included) - np.mean(excluded)) / deviation)
    error = math.sqrt((2 + distance**2 / 4) / min(included.size, excluded.size))

    def epsilon(mu: float) -> float:
        return float(PrivacyLoss(mu_squared=mu**2).epsilon(delta)) if mu > 0 else 0.0

    return epsilon(distance), (epsilon(distance + error) - epsilon(distance - error)) / 2


def clopper_pearson(included: Float, excluded: Float, delta: float, confidence: float = 0.95) -> float:
    """Lower bound on epsilon from the error rates of a threshold on the scores.

    The first half of the scores chooses the threshold and the second half judges it: a threshold judged by the scores
    that chose it would look better than it is.
    """
    half = min(included.size, excluded.size) // 2
    threshold = max(
        np.quantile(excluded[:half], np.linspace(0.5, 1 - 1 / half, 32)),
        key=lambda value: _threshold_bound(included[:half], excluded[:half], float(value), delta, confidence),
    )
    return _threshold_bound(included[half:], excluded[half:], float(threshold), delta, confidence)


def _threshold_bound(included: Float, excluded: Float, threshold: float, delta: float, confidence: float) -> float:
    """epsilon >= ln((TPR - delta) / FPR), with both rates at the pessimistic end of their confidence intervals."""
    significance = (1 - confidence) / 2  # each of the two intervals may fail
    hits, alarms = int((included > threshold).sum()), int((excluded > threshold).sum())
    low = float(stats.beta.ppf(significance, hits, included.size - hits + 1)) if hits else 0.0
    quiet = excluded.size - alarms
    high = float(stats.beta.ppf(1 - significance, alarms + 1, quiet)) if quiet else 1.0
    return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0


def one_run(included: Float, excluded: Float, delta: float, confidence: float = 0.95) -> float:
    """Lower bound on epsilon from guessing who is included, from one run of the mechanism.

    The attacker guesses "included" for the highest scores and "excluded" for the lowest, and abstains in between.
    Several numbers of guesses are tried, and the confidence is shared among them.
    """
    values = np.concatenate([included, excluded])
    truth = np.concatenate([np.ones(included.size), np.zeros(excluded.size)])[np.argsort(values)]
    shares = [share for share in (0.02, 0.05, 0.1, 0.25, 0.5) if share * values.size >= 1]
    best = 0.0
    for share in shares:
        side = int(share * values.size / 2) or 1
        correct = int(truth[-side:].sum() + (1 - truth[:side]).sum())
        best = max(best, _one_run_bound(values.size, 2 * side, correct, delta, (1 - confidence) / len(shares)))
    return best


def _one_run_bound(canaries: int, guesses: int, correct: int, delta: float, significance: float) -> float:
    """The largest epsilon that so many correct guesses refute, by bisection: the p-value grows with epsilon."""
    low, high = 0.0, 20.0
    if _p_value(canaries, guesses, correct, low, delta) > significance:
        return 0.0
    for _ in range(50):
        middle = (low + high) / 2
        refuted = _p_value(canaries, guesses, correct, middle, delta) <= significance
        low, high = (middle, high) if refuted else (low, middle)
    return low


def _p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Probability, at most, of `correct` or more correct guesses if the release is (epsilon, delta)-DP.

    Under pure epsilon each guess is right with probability at most e^epsilon / (1 + e^epsilon), so the count is
    dominated by a binomial. The second term is what delta adds (Theorem 5.2).
    """
    chance = 1 / (1 + math.exp(-epsilon))
    tail = float(stats.binom.sf(correct - 1, guesses, chance))
    below = np.cumsum(stats.binom.pmf(np.arange(correct - 1, -1, -1), guesses, chance))
    slack = float((below / np.arange(1, correct + 1)).max(initial=0.0))
    return min(1.0, tail + 2 * canaries * delta * slack)
