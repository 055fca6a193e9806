"""The residual test: does a run's code add the noise that it charges? A gate for every build and for every
run.

The run's plan is rebuilt in a real session under a fresh key, on replies of known sums (`known_sums`). What
leaves the private step, less the known sum, is divided by the promised standard deviation (noise multiplier x
joint clip bound, and what rounding adds to it), and whitened by the claimed covariance B B^T. With L L^T = B
B^T, the entries of L^-1 residual are i.i.d. N(0, 1) if and only if the session applies a matrix with that
covariance to fresh Gaussian noise of that scale. A wrong scale moves the mean square. A wrong correlation or
a reused row moves the products between rounds, a shared source the products between coordinates, a wrong law
the shape and the largest value. With 2**21 numbers an error of 1 % in the scale is 20 standard deviations
away; an honest build fails once in a million. No user's data is touched.

Not tested here: what is charged for that noise (`verify` does), and how users are drawn, trained and clipped
(`canary_runs` does, where there are nodes to do it).
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from fieldfare.accounting.likelihood import whitening
from fieldfare.costing import cost_of, implied_noise
from fieldfare.errors import BadInput, Unsupported
from fieldfare.lazily import scipy
from fieldfare.mechanisms import Mechanism
from fieldfare.participation import Participation
from fieldfare_server.evidence.canaries import CanaryEstimates, densest_patterns
from fieldfare_server.evidence.canary_runs import attack
from fieldfare_server.evidence.known_sums import Releases, release_known_sums
from fieldfare_server.evidence.plan_facts import plan_facts
from fieldfare_server.files.strategies import StoredStrategy
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.round.aggregation import Aggregate
from fieldfare_server.run.round.answers import sum_of
from fieldfare_server.run.round.strategy import GridOf

Float = NDArray[np.float64]

NUMBERS = 2**21
# The probability that an honest mechanism fails.
FALSE_ALARMS = 1e-6
MOST_ROUNDS = 512

# How far apart coordinates are compared.
_NEIGHBOURS = 4
_IDENTITY = 1e-6


class Residual(BaseModel):
    """The result of one whitened-residual test. Every `z` is standard normal for an honest mechanism."""

    model_config = ConfigDict(frozen=True)

    kind: str
    rounds: int  # rounds tested, from the first
    numel: int
    scale: float  # measured over claimed standard deviation; 1 when honest
    scale_z: float
    mean_z: float
    row_z: float  # the largest |z| of one round's mean square
    # The largest |z| of the product of two rounds: correlation that was not claimed, or noise used twice.
    rows_z: float
    coordinates_z: float  # the largest |z| of the product of coordinates 1 to 4 apart
    shape_p: float  # Kolmogorov-Smirnov p-value against the normal law
    tail_p: float  # p-value of the largest magnitude, on both sides: tails that are cut, or too heavy
    # Largest entry of |B C - I|: whether the noising matrix belongs to the strategy whose sensitivity is charged.
    identity_error: float
    # Largest pattern norm over the charged sensitivity, minus 1; at most 0 when the charge covers them.
    sensitivity_excess: float
    # The smallest relative error of the scale that this test detects with 99.9 % probability.
    resolution: float
    limit: float  # a |z| beyond this fails
    passed: bool
    message: str


class RunTest(BaseModel):
    """The residual test of a run's plan, under a fresh key and without any user's data."""

    model_config = ConfigDict(frozen=True)

    run: str
    residual: Residual
    # Lower bounds and an estimate, never a guarantee; None where no canaries were played.
    canaries: CanaryEstimates | None


def run_residual_test(
    ledger: Ledger,
    run_id: str,
    *,
    actor: str,
    numbers: int = NUMBERS,
    root: Path | None = None,
    grid_of: GridOf | None = None,
) -> RunTest:
    """Test the mechanism of a run and record the result in the ledger.

    Args:
        root: the state directory, where the run's strategy is stored (see `plan_facts`).
        grid_of: makes the nodes that train a plan's task; None: no canaries are played.

    Raises:
        BadInput: there is no such run, or another version wrote its plan.
        StrategyError: the strategy that the run applies is not there.
    """
    view = ledger.run(run_id)
    facts = plan_facts(view, root)
    if facts is None:
        raise Unsupported(f"audit of run {run_id!r}", "this version cannot read its plan.", "the version that ran it")
    if sum_of(facts.plan, 0.0)[0] is not Aggregate:
        why = "what it released is no noised sum, so there is no residual to test."
        raise BadInput(f"audit of run {run_id!r}", why, f"fieldfare certificate {run_id}", code="no-residual")
    decided: dict[str, bytes] = {}
    if root is None:
        cost = cost_of(facts.plan, decided)
    else:  # raises where the facts have a gap
        cost, decided = StoredStrategy(root, run_id, view.strategy, view.planned).applied(view.plan)
    # What was charged decides, not what the run's strategy says.
    implied = implied_noise(view.planned, cost.mechanism, cost.participation, cost.plan, cost.resolution)
    sigma = cost.noise_multiplier if math.isnan(implied) else implied
    rounds = min(cost.mechanism.rounds, MOST_ROUNDS)
    releases = release_known_sums(cost, decided, sigma, rounds, numbers)
    residual = whitened_residual(cost.mechanism, cost.participation, releases)
    canaries = None
    if grid_of is not None and (played := attack(cost, decided, sigma, grid_of)) is not None:
        canaries, fault = played
        if fault and residual.passed:
            residual = residual.model_copy(update={"passed": False, "message": fault})
    body = residual.model_dump(mode="json", include={"passed", "scale", "message", "resolution", "rounds", "kind"})
    if canaries is not None:
        body["canaries"] = canaries.model_dump(mode="json")
    ledger.record_residual_test(run_id, body, actor=actor)
    return RunTest(run=run_id, residual=residual, canaries=canaries)


def whitened_residual(mechanism: Mechanism, participation: Participation, releases: Releases) -> Residual:
    """Judge what was released for known sums by the matrices of `mechanism`, round after round from the first."""
    rounds, numel = releases.released.shape
    b = mechanism.noising_matrix(rounds)
    noise = (releases.released - releases.known) / releases.std
    white = scipy.linalg.solve_triangular(whitening(b), noise, lower=True)
    square = float(np.mean(white**2))
    gram = white @ white.T
    lagged = [(white[:, k:] * white[:, :-k]).sum() / math.sqrt(rounds * (numel - k)) for k in range(1, _NEIGHBOURS + 1)]
    # Bonferroni over all that is tested: scale, mean, shape, tails, rounds, pairs of rounds, lags.
    tests = 4 + rounds + rounds * (rounds - 1) // 2 + _NEIGHBOURS
    limit = float(scipy.stats.norm.isf(FALSE_ALARMS / 2 / tests))
    # Every n-th value is enough for the shape, and Kolmogorov-Smirnov sorts all that it is given.
    thinned = white.reshape(-1)[:: max(1, white.size // 200_000)]
    resolution = (limit + 3.1) / math.sqrt(2 * white.size)  # 3.1: the normal quantile of 99.9 %
    result = Residual(
        kind=mechanism.kind,
        rounds=rounds,
        numel=numel,
        scale=math.sqrt(square),
        scale_z=(square - 1) * math.sqrt(white.size / 2),
        mean_z=float(white.mean() * math.sqrt(white.size)),
        row_z=_largest((np.diag(gram) - numel) / math.sqrt(2 * numel)),
        rows_z=_largest(gram[np.triu_indices(rounds, 1)] / math.sqrt(numel)),
        coordinates_z=_largest(np.asarray(lagged)),
        shape_p=float(scipy.stats.kstest(thinned, "norm").pvalue),
        tail_p=_tail_p(_largest(white), white.size),
        identity_error=_largest(b @ mechanism.strategy_matrix(rounds) - np.eye(rounds)),
        sensitivity_excess=_sensitivity_excess(mechanism, participation, rounds),
        resolution=resolution,
        limit=limit,
        passed=True,
        message=f"the noise is what was claimed, to {resolution:.2%} of its scale",
    )
    fault = releases.fault or _describe_fault(result, FALSE_ALARMS / tests)
    return result.model_copy(update={"passed": False, "message": fault}) if fault else result


def _tail_p(largest: float, size: int) -> float:
    """Return Two-sided p-value of the largest magnitude among `size` independent N(0, 1)."""
    log_below = size * math.log1p(-2 * float(scipy.stats.norm.sf(largest))) if largest > 0 else -math.inf
    return min(1.0, 2 * math.exp(log_below), -2 * math.expm1(log_below))


def _largest(values: Float) -> float:
    return float(np.abs(values).max(initial=0.0))


def _sensitivity_excess(mechanism: Mechanism, participation: Participation, rounds: int) -> float:
    """Return how far the worst tested pattern exceeds the charged sensitivity."""
    charged = float(mechanism.sensitivity(participation, rounds))
    worst = float(mechanism.pattern_norms(densest_patterns(participation, rounds), rounds).max())
    short = min(rounds, 10)  # all patterns of a longer horizon would be too many
    few = [p for p in participation.patterns(short) if participation.allows(p, rounds)]
    if few:
        worst = max(worst, float(mechanism.pattern_norms(few, rounds).max()))
    return worst / charged - 1


def _describe_fault(result: Residual, unlikely: float) -> str:
    """Return the most telling fault in words, or "". unlikely: a p-value below it fails."""
    if abs(result.scale_z) > result.limit:
        return f"the noise is {result.scale:.4f} times what was claimed (z = {result.scale_z:.1f})"
    if result.rows_z > result.limit:
        return (
            f"rounds are correlated in another way than claimed (z = {result.rows_z:.1f}): wrong matrix or lost state"
        )
    if result.row_z > result.limit:
        return f"one round's noise has another scale than claimed (z = {result.row_z:.1f})"
    if result.coordinates_z > result.limit:
        return f"coordinates share noise (z = {result.coordinates_z:.1f})"
    if abs(result.mean_z) > result.limit:
        return f"the noise has a mean (z = {result.mean_z:.1f})"
    if min(result.shape_p, result.tail_p) < unlikely:
        return f"the noise is not Gaussian (p = {min(result.shape_p, result.tail_p):.1e})"
    if result.identity_error > _IDENTITY:
        return f"the noising matrix does not belong to the charged strategy (B C - I = {result.identity_error:.1e})"
    if result.sensitivity_excess > 1e-9:
        return f"an allowed pattern exceeds the charged sensitivity by {result.sensitivity_excess:.2%}"
    return ""
