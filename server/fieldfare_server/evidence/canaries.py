"""What an attacker can tell from a release: the trade-off that canaries' scores show, and bounds on epsilon.

A score is the likelihood ratio of one canary's presence (`canary_runs`): of canaries who are there, and of as
many who are not. All figures are lower bounds or estimates of the privacy loss, never a guarantee: a small
figure does not show privacy, and a bound of 0 is no evidence of anything. They are compared with what the run
was charged for.

- The trade-off: delta at several epsilons, with standard errors.
- A lower bound, valid at the stated confidence (`threshold_bound`), at a delta that so many scores can
  resolve.
- Where nothing is sampled, the epsilon of the Gaussian mechanism whose scores are as far apart: an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from fieldfare.accounting import PrivacyLoss
from fieldfare.lazily import scipy
from fieldfare.participation import Participation

Float = NDArray[np.float64]

# Of the bounds: a run's own delta, such as 1e-5, is out of the reach of some thousand scores.
DELTA = 0.01
# Of the trade-off.
EPSILONS = (0.0, 0.5, 1.0, 2.0, 4.0)
# The share of scores, one in so many, that chooses a threshold for the others.
_PART = 4
# Of rates, in a bound.
_CELLS = 2000
# Chance that any lower bound on the trade-off of one attack is above the truth.
FALSE_ALARMS = 1e-6


class CanaryEstimates(BaseModel):
    """What the scores of a simulated attack say; `claimed` is the charge of the whole plan at `delta`, to compare."""

    model_config = ConfigDict(frozen=True)

    canaries: int
    delta: float
    confidence: float
    claimed: float
    # From the distance of the two score distributions: an estimate, not a bound. None for sampled plans.
    gaussian_estimate: float | None
    gaussian_standard_error: float | None
    threshold_lower_bound: float  # 0: no evidence of any loss, which is no evidence of privacy
    # At each `epsilon`: delta as `measured`, with its `standard_error`, as `charged`, and what it is `at_least`.
    tradeoff: list[dict[str, float]]


def densest_patterns(participation: Participation, rounds: int) -> list[tuple[int, ...]]:
    """Return the allowed patterns that take part as often and as close together as possible, one a first round."""
    separation, most = participation.separation_and_count(rounds)
    patterns = []
    for start in range(min(rounds, max(separation, -(-rounds // most)))):
        pattern: tuple[int, ...] = (start,)
        candidate = start + separation
        # Each further round is the earliest that the participation allows.
        while candidate < rounds and len(pattern) < most:
            allowed = participation.allows((*pattern, candidate), rounds)
            pattern = (*pattern, candidate) if allowed else pattern
            candidate += separation if allowed else 1
        patterns.append(pattern)
    return patterns


def estimates(
    included: Float, excluded: Float, loss: PrivacyLoss, *, gaussian: bool = True, confidence: float = 0.95
) -> CanaryEstimates:
    """Return all figures of one attack.

    Args:
        included, excluded: log-likelihood ratios of canaries who are there and who are not, (n,) each.
        loss: what the release is charged for.
        gaussian: whether scores are Gaussian, as where nothing is sampled.
    """
    estimate = gaussian_estimate(included, excluded, DELTA) if gaussian else (None, None)
    return CanaryEstimates(
        canaries=included.size + excluded.size,
        delta=DELTA,
        confidence=confidence,
        claimed=loss.epsilon(DELTA),
        gaussian_estimate=estimate[0],
        gaussian_standard_error=estimate[1],
        threshold_lower_bound=threshold_bound(included, excluded, DELTA, confidence),
        tradeoff=[_point(included, excluded, epsilon, loss.delta(epsilon)) for epsilon in EPSILONS],
    )


def describe_point(point: Mapping[str, float]) -> str:
    """Return a point of the trade-off in words."""
    measured, error = max(0.0, point["measured"]), point["standard_error"]
    return f"delta {measured:.4f} (standard error {error:.2g}), charged {point['charged']:.4f}"


def _point(included: Float, excluded: Float, epsilon: float, charged: float) -> dict[str, float]:
    """Return delta at `epsilon`, in the order of the two worlds that shows more."""
    best, at_least = (-math.inf, 0.0), 0.0
    each = FALSE_ALARMS / (4 * len(EPSILONS))
    for p, q in ((included, excluded), (-excluded, -included)):
        # delta = max over events E of P(E) - e^epsilon Q(E); that of a likelihood ratio above e^epsilon attains it.
        hits, alarms = int(np.sum(p > epsilon)), int(np.sum(q > epsilon))
        # Of a count that may be 0 the square root of itself is no error: one more is added.
        variance = (hits + 1) / p.size**2 * (1 - hits / (p.size + 1))
        variance += math.exp(2 * epsilon) * (alarms + 1) / q.size**2 * (1 - alarms / (q.size + 1))
        best = max(best, (hits / p.size - math.exp(epsilon) * alarms / q.size, math.sqrt(variance)))
        low = float(scipy.stats.beta.ppf(each, hits, p.size - hits + 1)) if hits else 0.0
        high = float(scipy.stats.beta.ppf(1 - each, alarms + 1, q.size - alarms)) if alarms < q.size else 1.0
        at_least = max(at_least, low - math.exp(epsilon) * high)
    return {
        "epsilon": epsilon,
        "measured": best[0],
        "standard_error": best[1],
        "charged": charged,
        "at_least": at_least,
    }


def gaussian_estimate(included: Float, excluded: Float, delta: float) -> tuple[float, float]:
    """Return the epsilon of a Gaussian mechanism whose two distributions lie as far apart as these scores, and
    its standard error.

    Not a bound: it is above the truth about half of the time. The distance d of two samples of n scores has
    the variance 2 / n + d^2 / (4 n); the error of epsilon is half of what it moves between d - se and d + se.
    """
    deviation = math.sqrt((float(np.var(included, ddof=1)) + float(np.var(excluded, ddof=1))) / 2)
    distance = max(0.0, float(np.mean(included) - np.mean(excluded)) / deviation)
    error = math.sqrt((2 + distance**2 / 4) / min(included.size, excluded.size))

    def epsilon(mu: float) -> float:
        return float(PrivacyLoss(mu_squared=mu**2).epsilon(delta)) if mu > 0 else 0.0

    return epsilon(distance), (epsilon(distance + error) - epsilon(distance - error)) / 2


def threshold_bound(included: Float, excluded: Float, delta: float, confidence: float = 0.95) -> float:
    """Bound epsilon from below by the error rates of a threshold on the scores.

    A part of the scores chooses the threshold that the others judge: a threshold judged by the scores that
    chose it would look better than it is. The first quarter and the last one both do, and the two bounds
    share what may fail: where chance makes one of them choose a poor threshold, the other one's stands.

    Args:
        included, excluded: scores of plays with the canary and without, shape (n,) each.
        delta: of the claim.
        confidence: the probability with which the bound holds.
    """
    part, shared = min(included.size, excluded.size) // _PART, (1 + confidence) / 2

    def counts(which: slice, threshold: float) -> tuple[int, int, int, int]:
        there, gone = included[which], excluded[which]
        return int((there > threshold).sum()), there.size, int((gone > threshold).sum()), gone.size

    def bound(choose: slice, judge: slice) -> float:
        def forecast(threshold: float) -> float:
            """Forecast as if those who judge had the rates of those who choose."""
            hits, there, alarms, gone = (n * (_PART - 1) for n in counts(choose, threshold))
            return _bound(hits, there, alarms, gone, delta, shared, _CELLS // 16)

        tails = np.concatenate([np.geomspace(0.5, 0.05, 10), np.geomspace(0.04, 1 / part, 14)])
        threshold = max(np.quantile(excluded[choose], 1 - tails).tolist(), key=forecast)
        return _bound(*counts(judge, threshold), delta, shared, _CELLS)

    return max(bound(slice(part), slice(part, None)), bound(slice(-part, None), slice(-part)))


def _bound(hits: int, there: int, alarms: int, gone: int, delta: float, confidence: float, cells: int) -> float:
    """Return the largest epsilon such that no rates p <= e^epsilon q + delta explain so many hits and so few alarms."""
    q = np.concatenate([[0.0], np.geomspace(1e-9, 1.0, cells)])
    # Neither chance exceeds what it is at one end of its cell: that of few alarms at the lower, of many hits
    # at the upper.
    few = scipy.stats.binom.cdf(alarms, gone, q[:-1])

    def refuted(epsilon: float) -> bool:
        many = scipy.stats.binom.sf(hits - 1, there, np.minimum(1.0, math.exp(epsilon) * q[1:] + delta))
        # For a given q both chances are independent, and each is at most uniform. A product x of two such is
        # that small with a chance of x (1 - log x) at most (Fisher).
        x = float((few * many).max())
        return x == 0 or x * (1 - math.log(x)) <= 1 - confidence

    low, high = 0.0, 30.0
    if not refuted(low):
        return 0.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
