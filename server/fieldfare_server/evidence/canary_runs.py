"""Play a run's plan with canaries in the place of its users, and measure what the release tells of each.

The session is the one that trains, with real nodes, engines, clipping, coins, sums, noise, checkpoints,
commits and a resume halfway; the ledger, the key and the task are throwaway ones. A canary has a coordinate
of its own, where it contributes all it may in every round that it takes part in, and a second one which
nobody has. The attacker sees every noised sum and knows all but who is there: the likelihood ratios of both
coordinates (`fieldfare.accounting.likelihood`) are the scores of a user who is there and of one who is not,
as many as there are canaries.

What no attacker sees is compared with the plan as well: nobody moves a sum by more than is charged, nor in a
coordinate of others, nor in a round that the plan forbids, and the draws of secret samplers have the law that
is charged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fieldfare.accounting.likelihood import public_log_ratios, secret_log_ratios, share
from fieldfare.cost import Cost
from fieldfare.lazily import scipy, torch
from fieldfare.participation import Participation
from fieldfare.plan import Plan
from fieldfare_server import optimizers
from fieldfare_server.evidence.canaries import DELTA, FALSE_ALARMS, CanaryEstimates, describe_point, estimates
from fieldfare_server.evidence.known_sums import SeenNoise, play_resumed, promised_std, rehearsed
from fieldfare_server.run.round.strategy import FieldfareStrategy, GridOf
from fieldfare_server.run.session import Session

Float = NDArray[np.float64]

CANARIES = 1000
# Longer plans are not played: each round is whole, and the attack needs all of the noising matrix.
MOST_ROUNDS = 1024
# A short plan is played again until about so many rounds are seen.
_ROUNDS = 128
# Of a plan that is charged less epsilon than this at the bounds' delta, so many times as many are played: the
# weaker the loss, the more scores a bound needs.
_WEAK, _MORE = 0.5, 4
_TASK = "fieldfare_client.canaries:canaries_"


@dataclass(frozen=True, eq=False)
class _Play:
    """What one play of the plan shows along each canary's coordinates, in standard deviations of z."""

    # The noised sums, (rounds, 2 canaries): of their own coordinates, and of those that nobody has.
    released: Float
    taken: NDArray[np.bool_]  # who took part, (rounds, canaries)
    shifts: Float  # what a canary contributes, (rounds,)
    stray: float  # the largest contribution that is not there, or of another size


@dataclass(frozen=True, eq=False)
class _SeenSums(SeenNoise):
    """Copies the sums that it receives, too."""

    sums: list[Float] = field(default_factory=list)

    def privatise(self, total: torch.Tensor) -> torch.Tensor:
        self.sums.append(total.double().numpy().copy())
        return super().privatise(total)


def attack(
    cost: Cost, decided: dict[str, bytes], noise_multiplier: float, grid_of: GridOf
) -> tuple[CanaryEstimates, str] | None:
    """Attack fresh plays of the plan of `cost`; None for too many rounds, or a sampler whose law is not known
    here.

    Args:
        decided: what optimisers decided for the run.
        noise_multiplier: as charged.
        grid_of: makes the nodes that train a plan's task in this process.

    Returns:
        The figures, and what contradicts the charge, in words, or "".
    """
    mechanism, participation, rounds = cost.mechanism, cost.participation, cost.plan.run.rounds
    secret = cost.loss != cost.loss.without_amplification()
    if rounds > MOST_ROUNDS or (secret and share(participation) is None):
        return None
    # No more users than a plan says that there ever are.
    count = min(CANARIES, cost.plan.participation.enrolled or CANARIES)
    plan = _with_canaries(cost, count)
    more = _MORE if cost.loss.epsilon(DELTA) < _WEAK else 1
    times = max(1, more * min(8, _ROUNDS // rounds))
    plays = [_play(plan, count, decided, noise_multiplier, grid_of) for _ in range(times)]
    if secret:
        scores = np.stack([secret_log_ratios(mechanism, participation, seen.shifts, seen.released) for seen in plays])
    else:
        # A canary and the coordinate beside it have one pattern.
        shifts = np.hstack([np.tile(seen.taken * seen.shifts[:, None], 2) for seen in plays])
        released = np.hstack([seen.released for seen in plays])
        scores = public_log_ratios(mechanism.noising_matrix(rounds), shifts, released).reshape(len(plays), -1)
    included, excluded = (part.ravel() for part in np.hsplit(scores, 2))
    found = estimates(included, excluded, cost.loss, gaussian=not secret)
    fault = next(filter(None, (_fault(seen, participation, noise_multiplier, secret) for seen in plays)), "")
    beyond = [point for point in found.tradeoff if point["at_least"] > point["charged"]]
    if beyond and not fault:
        told = f"{describe_point(beyond[0])} at epsilon {beyond[0]['epsilon']:g}"
        fault = f"the release tells more than is charged: {told}"
    return found, fault


def _with_canaries(cost: Cost, count: int) -> Plan:
    """Return the plan of `cost` for canaries: with as many users a round as let each take part as often as it may."""
    plan, rounds = cost.plan, cost.plan.run.rounds
    keys = {"evaluate_every": rounds, "round_seconds": None, "min_reports": None, "min_available": None}
    if not plan.presence_is_secret:
        apart, most = cost.participation.separation_and_count(rounds)
        keys["cohort"] = max(1, min(count * most // rounds, count // apart))
    return rehearsed(cost, task=f"{_TASK}{count}", over_selection=1.0, **keys)


def _play(plan: Plan, count: int, decided: dict[str, bytes], noise_multiplier: float, grid_of: GridOf) -> _Play:
    sums: list[Float] = []
    released: list[Float] = []
    grid = grid_of(plan)

    def begin(session: Session) -> None:
        _SeenSums.watch(session, seen=released, sums=sums)
        strategy = FieldfareStrategy(session)
        while session.coming_round < plan.run.rounds // 2:
            strategy.run_round(grid)
        session.rounds.commits.commit_held()

    def end(session: Session) -> float:
        _SeenSums.watch(session, seen=released, sums=sums)
        std = promised_std(session, noise_multiplier)
        FieldfareStrategy(session).take_to_end(grid)
        return std

    std = play_resumed(plan, decided, begin, end)
    queries = optimizers.build(plan.server_optimizer).queries
    return _read(np.stack(sums) / std, np.stack(released) / std, queries, count)


def _read(sums: Float, released: Float, queries: int, count: int) -> _Play:
    """Look along each canary's direction: its coordinate in every query, as much as it contributes to each."""
    whole = (len(sums), queries, 2 * count)
    sums, released = (values[:, : queries * 2 * count].reshape(whole) for values in (sums, released))
    largest = sums[:, :, :count].max(axis=2)
    signals = np.linalg.norm(largest, axis=1)
    directions = largest / np.where(signals, signals, 1.0)[:, None]
    along, noised = (np.einsum("tqj,tq->tj", values, directions) for values in (sums, released))
    taken = along[:, :count] > signals[:, None] / 2
    stray = float(np.abs(along - np.pad(taken, ((0, 0), (0, count))) * signals[:, None]).max())
    # In a round without anybody a canary would have contributed what it does in others.
    shifts = np.where(signals > 0, signals, signals.max(initial=0.0))
    return _Play(noised, taken, shifts, stray)


def _fault(seen: _Play, participation: Participation, noise_multiplier: float, secret: bool) -> str:
    """What contradicts the charge in what went into the sums, in words, or ""."""
    rounds, count = seen.taken.shape
    most = float(seen.shifts.max()) * noise_multiplier
    if most > 1 + 1e-6:
        return f"a user moves the sum by {most:.4f} of what is charged"
    if seen.stray * noise_multiplier > 1e-3:
        return f"one user's training moves another's, by {seen.stray * noise_multiplier:.4f} clip norms"
    patterns = {tuple(np.flatnonzero(pattern).tolist()) for pattern in seen.taken.T}
    if not all(participation.allows(pattern, rounds) for pattern in patterns):
        return "a user took part in rounds that the plan forbids"
    if not secret:
        return ""
    chance = share(participation) or 0.0
    # Each round's count is binomial, and so nearly is what each of many users' counts adds up to.
    counts, often = seen.taken.sum(axis=1), seen.taken.sum(axis=0)
    by_chance = scipy.stats.binom(count, chance)
    rare = 2 * min(by_chance.cdf(counts).min(), by_chance.sf(counts - 1).min())
    error = float(often.std(ddof=1)) / math.sqrt(count) or math.inf
    tail = 2 * float(scipy.stats.norm.sf(abs(float(often.mean()) - rounds * chance) / error))
    if min(rare, tail) < FALSE_ALARMS / (rounds + 1):
        return f"users take part in {often.mean() / rounds:.4f} of the rounds, where {chance:.4f} is charged"
    return ""
