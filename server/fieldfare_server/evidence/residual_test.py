"""The residual test: does a mechanism add the noise that it claims? A gate for every build and for every run.

The test runs the server's noise on known sums, subtracts the sums, and whitens the residual by the claimed covariance
B B^T. With L L^T = B B^T, the entries of L^-1 (residual) / (sigma clip) are i.i.d. N(0, 1) if and only if the stream
applies a matrix with that covariance to fresh Gaussian noise. A wrong scale moves the mean square. A wrong correlation
or a reused row moves the products between rounds, a shared source the products between coordinates, a wrong law the
shape. With 2**21 numbers an error of 1 % in the scale is 20 standard deviations away; an honest build fails once in a
million. No user's data is touched.

The test drives a fresh stream in single precision. It does not execute the rest of a release: several queries' shares,
and rounding to a grid.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from scipy import linalg, stats

from fieldfare.accounting import PrivacyLoss
from fieldfare.errors import BadInput
from fieldfare.mechanisms import Mechanism
from fieldfare.noise import SecureNoise
from fieldfare.participation import Participation
from fieldfare.streams.base import Stream
from fieldfare_server.evidence.canaries import CanaryEstimates, densest_patterns, estimates, scores
from fieldfare_server.evidence.plan_facts import plan_facts
from fieldfare_server.ledger import Ledger

Float = NDArray[np.float64]
Restore = Callable[[Mechanism, int, SecureNoise, Stream], Stream]
"""(mechanism, numel, noise, the lost stream) -> the stream that replaces it."""

NUMBERS = 2**21
FALSE_ALARMS = 1e-6
"""The probability that an honest mechanism fails."""
MOST_ROUNDS = 512
CANARIES = 2000
MOST_CANARY_ROUNDS = 4096
"""A longer run gets no canaries: their filter needs the whole noising matrix."""

_NEIGHBOURS = 4
"""How far apart coordinates are compared."""
_IDENTITY = 1e-6


class Residual(BaseModel):
    """The result of one whitened-residual test. Every `z` is standard normal for an honest mechanism."""

    model_config = ConfigDict(frozen=True)

    kind: str
    rounds: int
    """Rounds tested, from the first."""
    numel: int
    scale: float
    """Measured over claimed standard deviation; 1 when honest."""
    scale_z: float
    mean_z: float
    row_z: float
    """The largest |z| of one round's mean square."""
    rows_z: float
    """The largest |z| of the product of two rounds: correlation that was not claimed, or noise used twice."""
    coordinates_z: float
    """The largest |z| of the product of coordinates 1 to 4 apart."""
    shape_p: float
    """Kolmogorov-Smirnov p-value against the normal law."""
    identity_error: float
    """Largest entry of |B C - I|: whether the noising matrix belongs to the strategy whose sensitivity is charged."""
    sensitivity_excess: float
    """Largest pattern norm over the charged sensitivity, minus 1; at most 0 when the charge covers them."""
    resolution: float
    """The smallest relative error of the scale that this test detects with 99.9 % probability."""
    limit: float
    """A |z| beyond this fails."""
    passed: bool
    message: str


class RunTest(BaseModel):
    """The residual test of a run's mechanism, under a fresh key and without any user's data."""

    model_config = ConfigDict(frozen=True)

    run: str
    residual: Residual
    canaries: CanaryEstimates | None
    """Lower bounds and an estimate, never a guarantee; None without a noise multiplier, or in a very long run."""


def run_residual_test(
    ledger: Ledger, run_id: str, *, actor: str, numbers: int = NUMBERS, root: Path | None = None
) -> RunTest:
    """Test the mechanism of a run and record the result in the ledger.

    root: the state directory, where the run's strategy is stored (see `plan_facts`).

    Raises:
        BadInput: there is no such run, or another version wrote its plan.
        StrategyError: the strategy that the run applies is not there.
    """
    view = ledger.run(run_id)
    facts = plan_facts(view, root)
    if facts is None:
        raise BadInput(f"audit of run {run_id!r}", "this version cannot read its plan.", "the version that ran it")
    noise = SecureNoise(secrets.token_bytes(32))
    residual = whitened_residual(facts.mechanism, noise.derive("audit"), facts.participation, numbers=numbers)
    canaries = None
    sigma = facts.noise_multiplier
    if sigma is not None and facts.mechanism.rounds <= MOST_CANARY_ROUNDS:
        included, excluded = scores(facts.mechanism, noise.derive("canaries"), facts.participation, sigma, CANARIES)
        mu = float(facts.mechanism.sensitivity(facts.participation)) / sigma
        claimed = float(PrivacyLoss(mu_squared=mu**2).epsilon(view.delta))
        canaries = estimates(included, excluded, claimed, view.delta)
    body = residual.model_dump(mode="json", include={"passed", "scale", "message", "resolution", "rounds", "kind"})
    if canaries is not None:
        body["canaries"] = canaries.model_dump(mode="json")
    ledger.record_residual_test(run_id, body, actor=actor)
    return RunTest(run=run_id, residual=residual, canaries=canaries)


def whitened_residual(
    mechanism: Mechanism,
    noise: SecureNoise,
    participation: Participation,
    *,
    claimed: float = 1.0,
    numbers: int = NUMBERS,
    restore: Restore | None = None,
) -> Residual:
    """Test `mechanism`'s stream against its own matrices.

    Args:
        claimed: the claimed noise std, in units of multiplier times clip norm; anything but 1 must fail.
        numbers: roughly how many noise values to test.
        restore: replaces the stream halfway, as after a crash; default: a fresh stream that loads the old one's state.
    """
    rounds = min(mechanism.rounds, MOST_ROUNDS)
    numel = max(64, -(-numbers // rounds))
    released, known = _sample(mechanism, noise, rounds, numel, restore or _restore_by_state)
    b = mechanism.noising_matrix(rounds)
    white = linalg.solve_triangular(_factor(b), released - known, lower=True) / claimed
    square = float(np.mean(white**2))
    gram = white @ white.T
    lagged = [(white[:, k:] * white[:, :-k]).sum() / math.sqrt(rounds * (numel - k)) for k in range(1, _NEIGHBOURS + 1)]
    # Bonferroni over every |z| that is compared with the limit: scale, mean, shape, rounds, pairs of rounds, lags.
    tests = 3 + rounds + rounds * (rounds - 1) // 2 + _NEIGHBOURS
    limit = float(stats.norm.isf(FALSE_ALARMS / 2 / tests))
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
        shape_p=float(stats.kstest(thinned, "norm").pvalue),
        identity_error=_largest(b @ mechanism.strategy_matrix(rounds) - np.eye(rounds)),
        sensitivity_excess=_sensitivity_excess(mechanism, participation, rounds),
        resolution=resolution,
        limit=limit,
        passed=True,
        message=f"the noise is what was claimed, to {resolution:.2%} of its scale",
    )
    fault = _describe_fault(result)
    return result.model_copy(update={"passed": False, "message": fault}) if fault else result


def _sample(mechanism: Mechanism, noise: SecureNoise, rounds: int, numel: int, restore: Restore) -> tuple[Float, Float]:
    """What a server releases for known sums, and those sums; (rounds, numel) each."""
    stream = mechanism.stream(numel, noise)
    ramp = torch.linspace(-1.0, 1.0, numel)
    released, known = np.empty((rounds, numel)), np.empty((rounds, numel))
    for t in range(rounds):
        if t == rounds // 2 and t > 0:
            stream = restore(mechanism, numel, noise, stream)
        total = ramp * (1 + t % 3)
        known[t] = total.double().numpy()
        released[t] = stream.add_to(total.double()).numpy()
    return released, known


def _restore_by_state(mechanism: Mechanism, numel: int, noise: SecureNoise, lost: Stream) -> Stream:
    fresh = mechanism.stream(numel, noise)
    fresh.load_state_dict(lost.state_dict())
    return fresh


def _factor(b: Float) -> Float:
    """Lower-triangular L with positive diagonal and L L^T = B B^T.

    From a QR factorisation of B^T: a Cholesky factorisation of B B^T would square the condition number.
    """
    upper = np.asarray(linalg.qr(b.T, mode="r")[0])[: b.shape[0]]
    signs = np.where(np.diag(upper) < 0, -1.0, 1.0)
    return np.asarray((upper * signs[:, None]).T)


def _largest(values: Float) -> float:
    return float(np.abs(values).max(initial=0.0))


def _sensitivity_excess(mechanism: Mechanism, participation: Participation, rounds: int) -> float:
    """How far the worst tested pattern exceeds the charged sensitivity.

    Tested are every densest pattern of the whole horizon, and all patterns of the first 10 rounds; all patterns of a
    longer horizon would be too many.
    """
    charged = float(mechanism.sensitivity(participation, rounds))
    worst = float(mechanism.pattern_norms(densest_patterns(participation, rounds), rounds).max())
    short = min(rounds, 10)
    few = [p for p in participation.patterns(short) if participation.allows(p, rounds)]
    if few:
        worst = max(worst, float(mechanism.pattern_norms(few, rounds).max()))
    return worst / charged - 1


def _describe_fault(result: Residual) -> str:
    """The most telling fault in words, or ""."""
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
    if result.shape_p < FALSE_ALARMS:
        return f"the noise is not Gaussian (p = {result.shape_p:.1e})"
    if result.identity_error > _IDENTITY:
        return f"the noising matrix does not belong to the charged strategy (B C - I = {result.identity_error:.1e})"
    if result.sensitivity_excess > 1e-9:
        return f"an allowed pattern exceeds the charged sensitivity by {result.sensitivity_excess:.2%}"
    return ""
