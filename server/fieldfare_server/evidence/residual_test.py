"""Does a mechanism add the noise it claims? The whitened-residual test, a gate for every build and for every run.

The server's noise is run on sums that are known, the sums are subtracted, and what is left is whitened by the claimed
covariance B B^T: with L L^T = B B^T, the rows of L^-1 (residual) / (sigma clip) are i.i.d. N(0, 1) if and only if the
stream really applies a matrix with that covariance to fresh Gaussian noise. A wrong scale moves the mean square, a
wrong correlation or a reused row the products between rows, a shared source the products between coordinates, a wrong
law the shape. With 2**21 numbers an error of 1 % in the scale is 20 standard deviations away, a build that is honest
fails once in a million. Nothing here touches users' data.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
from fieldfare_server.evidence.canaries import CanaryEstimates, estimates, scores
from fieldfare_server.evidence.guarantee import plan_facts
from fieldfare_server.ledger import Ledger

Float = NDArray[np.float64]
Restore = Callable[[Mechanism, int, SecureNoise, Stream], Stream]
"""(mechanism, numel, noise, the stream that is lost) -> the stream that goes on in its place."""

NUMBERS = 2**21
FALSE_ALARMS = 1e-6
MOST_ROUNDS = 512
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
    """The smallest relative error of the scale that this test is sure to see (99.9 %)."""
    limit: float
    """|z| beyond this fails."""
    passed: bool
    message: str


@dataclass(frozen=True)
class _Products:
    row: float
    rows: float
    coordinates: float


def whitened_residual(
    mechanism: Mechanism,
    noise: SecureNoise,
    participation: Participation,
    *,
    claimed: float = 1.0,
    numbers: int = NUMBERS,
    restore_at: int | None = None,
    restore: Restore | None = None,
    false_alarms: float = FALSE_ALARMS,
) -> Residual:
    """Test `mechanism`'s stream against its own matrices.

    claimed: the noise std that is claimed for multiplier times clip 1; anything but 1 must fail. numbers: about how
    many noise values to look at. restore_at: before this round the stream is replaced by one made anew and given the
    old one's state (or by what `restore` makes), as after a crash; default: halfway.
    """
    rounds = min(mechanism.rounds, MOST_ROUNDS)
    numel = max(64, -(-numbers // rounds))
    released, known = _release(mechanism, noise, rounds, numel, restore_at, restore or _by_state)
    b = mechanism.noising_matrix(rounds)
    white = linalg.solve_triangular(_factor(b), released - known, lower=True) / claimed
    square = float(np.mean(white**2))
    scale_z = (square - 1) * math.sqrt(white.size / 2)
    products = _products(white)
    tests = 3 + rounds + rounds * (rounds - 1) // 2 + 4
    limit = float(stats.norm.isf(false_alarms / 2 / tests))
    thin = white.reshape(-1)[:: max(1, white.size // 200_000)]
    result: dict[str, Any] = {
        "kind": mechanism.kind,
        "rounds": rounds,
        "numel": numel,
        "scale": math.sqrt(square),
        "scale_z": scale_z,
        "mean_z": float(white.mean() * math.sqrt(white.size)),
        "row_z": products.row,
        "rows_z": products.rows,
        "coordinates_z": products.coordinates,
        "shape_p": float(stats.kstest(thin, "norm").pvalue),
        "identity_error": float(np.abs(b @ mechanism.strategy_matrix(rounds) - np.eye(rounds)).max()),
        "sensitivity_excess": _excess(mechanism, participation, rounds),
        "resolution": (limit + 3.1) / math.sqrt(2 * white.size),
        "limit": limit,
    }
    fault = _fault(result, false_alarms)
    good = f"the noise is what was claimed, to {result['resolution']:.2%} of its scale"
    return Residual(**result, passed=not fault, message=fault or good)


def _release(
    mechanism: Mechanism, noise: SecureNoise, rounds: int, numel: int, restore_at: int | None, restore: Restore
) -> tuple[Float, Float]:
    """What a server releases for known sums, and those sums; each (rounds, numel)."""
    stream = mechanism.stream(numel, noise)
    change = rounds // 2 if restore_at is None else restore_at
    ramp = torch.linspace(-1.0, 1.0, numel)
    released, known = np.empty((rounds, numel)), np.empty((rounds, numel))
    for t in range(rounds):
        if t == change and t > 0:
            stream = restore(mechanism, numel, noise, stream)
        total = ramp * (1 + t % 3)
        known[t] = total.double().numpy()
        released[t] = stream.add_to(total.double()).numpy()
    return released, known


def _by_state(mechanism: Mechanism, numel: int, noise: SecureNoise, lost: Stream) -> Stream:
    fresh = mechanism.stream(numel, noise)
    fresh.load_state_dict(lost.state_dict())
    return fresh


def _factor(b: Float) -> Float:
    """Lower-triangular L with positive diagonal and L L^T = B B^T, without squaring the condition number."""
    upper = np.asarray(linalg.qr(b.T, mode="r")[0])[: b.shape[0]]
    signs = np.where(np.diag(upper) < 0, -1.0, 1.0)
    return np.asarray((upper * signs[:, None]).T)


def _products(white: Float) -> _Products:
    rounds, numel = white.shape
    gram = white @ white.T
    row = (np.diag(gram) - numel) / math.sqrt(2 * numel)
    rows = gram[np.triu_indices(rounds, 1)] / math.sqrt(numel)
    apart = [float((white[:, k:] * white[:, :-k]).sum() / math.sqrt(rounds * (numel - k))) for k in range(1, 5)]
    return _Products(_largest(row), _largest(rows), max(map(abs, apart)))


def _largest(values: Float) -> float:
    return float(np.abs(values).max(initial=0.0))


def _excess(mechanism: Mechanism, participation: Participation, rounds: int) -> float:
    """How far the worst of some allowed patterns exceeds the charged sensitivity: all patterns of up to 10 rounds,
    and every densest pattern of the whole horizon."""
    charged = float(mechanism.sensitivity(participation, rounds))
    separation, most = participation.separation_and_count(rounds)
    dense = [tuple(range(start, rounds, separation))[:most] for start in range(min(separation, rounds))]
    worst = float(mechanism.pattern_norms([p for p in dense if participation.allows(p, rounds)], rounds).max())
    short = min(rounds, 10)
    few = [p for p in participation.patterns(short) if participation.allows(p, rounds)]
    if few:
        worst = max(worst, float(mechanism.pattern_norms(few, rounds).max()))
    return worst / charged - 1


def _fault(r: dict[str, Any], false_alarms: float) -> str:
    """The most telling fault in words, or ""."""
    if abs(r["scale_z"]) > r["limit"]:
        return f"the noise is {r['scale']:.4f} times what was claimed (z = {r['scale_z']:.1f})"
    if r["rows_z"] > r["limit"]:
        return f"rounds are correlated in another way than claimed (z = {r['rows_z']:.1f}): wrong matrix or lost state"
    if r["row_z"] > r["limit"]:
        return f"one round's noise has another scale than claimed (z = {r['row_z']:.1f})"
    if r["coordinates_z"] > r["limit"]:
        return f"coordinates share noise (z = {r['coordinates_z']:.1f})"
    if abs(r["mean_z"]) > r["limit"]:
        return f"the noise has a mean (z = {r['mean_z']:.1f})"
    if r["shape_p"] < false_alarms:
        return f"the noise is not Gaussian (p = {r['shape_p']:.1e})"
    if r["identity_error"] > _IDENTITY:
        return f"the noising matrix does not belong to the charged strategy (B C - I = {r['identity_error']:.1e})"
    if r["sensitivity_excess"] > 1e-9:
        return f"an allowed pattern exceeds the charged sensitivity by {r['sensitivity_excess']:.2%}"
    return ""


CANARIES = 2000
_MOST_CANARY_ROUNDS = 4096


class RunAudit(BaseModel):
    """What an audit of a run found. It tests the run's mechanism anew, with a key of its own and no user's data."""

    model_config = ConfigDict(frozen=True)

    run: str
    residual: Residual
    canaries: CanaryEstimates | None
    """Lower bounds and an estimate, never a guarantee; None without a noise multiplier, or in a very long run."""


def audit_run(ledger: Ledger, run_id: str, *, actor: str, numbers: int = NUMBERS) -> RunAudit:
    """Audit the mechanism of a run and record the result in the ledger.

    Raises `BadInput` if there is no such run, or its plan was written by another version.
    """
    view = ledger.run(run_id)
    facts = plan_facts(view)
    if facts is None:
        raise BadInput(f"audit of run {run_id!r}", "this version cannot read its plan.", "the version that ran it")
    noise = SecureNoise(secrets.token_bytes(32))
    residual = whitened_residual(facts.mechanism, noise.derive("audit"), facts.participation, numbers=numbers)
    found = None
    sigma = facts.noise_multiplier
    if sigma is not None and facts.mechanism.rounds <= _MOST_CANARY_ROUNDS:
        taken, left = scores(facts.mechanism, noise.derive("canaries"), facts.participation, sigma, CANARIES)
        mu = float(facts.mechanism.sensitivity(facts.participation)) / sigma
        claimed = float(PrivacyLoss(mu_squared=mu**2).epsilon(view.delta))
        found = estimates(taken, left, claimed, view.delta)
    result = RunAudit(run=run_id, residual=residual, canaries=found)
    body = residual.model_dump(mode="json", include={"passed", "scale", "message", "resolution", "rounds", "kind"})
    if found is not None:
        body["canaries"] = found.model_dump(mode="json")
    ledger.record_residual_test(run_id, body, actor=actor)
    return result
