"""Which mechanism, and which way of asking users, leaves a plan the least noise: a table of estimates.

Every row has the plan's rounds, epsilon, delta and planned cohort, and a user takes part as often and as far apart as
in the plan. Some rows are expected certificates (`certification.least_noise`), within about a percent of what a run
will be charged; the others are exact. Nothing is certified, charged or run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fieldfare.accounting import calibrate, certification, sampled_optimum
from fieldfare.errors import BadInput, Refused
from fieldfare.mechanisms import Mechanism, build, parse
from fieldfare.participation import (
    PRESENCE,
    Adjacency,
    BallsInBins,
    BMinSep,
    CyclicPoisson,
    MinSeparation,
    Participation,
    Poisson,
    RandomAllocation,
)
from fieldfare.plan import Plan

_BANDS = (2, 4, 8)
_MOST_ROUNDS = 2048
_KINDS: tuple[dict[str, object], ...] = ({"kind": "independent"}, {"kind": "nu"}, {"kind": "blt"})


@dataclass(frozen=True)
class MechanismChoice:
    """One way to run the plan."""

    mechanism: str
    scheme: str
    adjacency: Adjacency
    noise_multiplier: float
    prefix_noise: float
    """Root-mean-square noise in a prefix sum, clip norm 1."""
    certified: bool
    """Whether a run is charged by a certificate, so that this row is an estimate."""


def compare_mechanisms(plan: Plan) -> list[MechanismChoice]:
    """All choices, the least noise first.

    Raises:
        BadInput: the plan names no epsilon, is for another adjacency, or has too many rounds.
    """
    privacy, rounds = plan.privacy, plan.run.rounds
    if privacy.epsilon is None:
        raise BadInput("privacy.noise_multiplier", "fixes the noise, so there is nothing to compare.", "epsilon")
    if privacy.adjacency == "replace_one":
        raise BadInput("privacy.adjacency = 'replace_one'", "sampling earns nothing under it.", f"zero_out, {PRESENCE}")
    if rounds > _MOST_ROUNDS:
        raise BadInput(f"run.rounds = {rounds}", "comparing so many takes too long.", str(_MOST_ROUNDS))
    block = _block(plan)
    choices = []
    for table, participation in _ways(block, rounds):
        try:
            choices.append(_choice(plan, table, participation))
        except Refused:
            continue  # a way that this plan cannot take: more bands than rounds, or an epsilon out of its reach
    return sorted(choices, key=lambda choice: choice.prefix_noise)


def _block(plan: Plan) -> int:
    """The rounds between two participations of a user."""
    spec = plan.participation
    if spec.scheme == "b-min-sep":
        return max(1, min(plan.run.rounds, round(BMinSep(spec.separation or 1, spec.rate or 1).period)))
    if spec.rate is not None:
        return max(1, min(plan.run.rounds, round((spec.groups or 1) / spec.rate)))
    return min(plan.run.rounds, spec.bins or spec.separation or spec.period or plan.run.rounds)


def _ways(block: int, rounds: int) -> Iterator[tuple[dict[str, object], Participation]]:
    bands = [count for count in _BANDS if count <= min(block, rounds)]
    for table in (*_KINDS, *({"kind": "banded", "bands": count} for count in bands)):
        yield table, MinSeparation(block)
        yield table, BallsInBins(block)
    yield {"kind": "independent"}, Poisson(1 / block)
    yield {"kind": "independent"}, RandomAllocation(block)
    for count in bands:
        yield {"kind": "banded", "bands": count}, CyclicPoisson(count, count / block)
        yield {"kind": "banded", "bands": count}, RandomAllocation(block)
        if count < block:  # else it is balls in bins
            yield {"kind": "banded", "bands": count}, BMinSep(count, 1 / (block - count + 1))


def _choice(plan: Plan, table: dict[str, object], participation: Participation) -> MechanismChoice:
    privacy, rounds, cache = plan.privacy, plan.run.rounds, dict[str, bytes]()
    assert privacy.epsilon is not None  # `compare_mechanisms`
    epsilon, delta = privacy.epsilon, privacy.delta
    adjacency: Adjacency = "zero_out" if isinstance(participation, MinSeparation) else PRESENCE
    allocated = isinstance(participation, RandomAllocation) and "bands" in table
    certified = allocated or isinstance(participation, BallsInBins | BMinSep)
    if certified:
        sampled_optimum.choose(parse(table), rounds, participation, epsilon, delta, cache)
        mechanism = build(table, rounds, participation, cache)
        sigma = certification.least_noise(certification.law_of(mechanism, participation), epsilon, delta)
    else:
        mechanism = build(table, rounds, participation, cache)
        sigma = calibrate(mechanism, participation, epsilon=epsilon, delta=delta, adjacency=adjacency)
    return MechanismChoice(
        _label(table), _scheme(participation), adjacency, sigma, sigma * _error(mechanism), certified
    )


def _error(mechanism: Mechanism) -> float:
    return math.sqrt(float(np.mean(np.square(mechanism.prefix_row_norms()))))


def _label(table: dict[str, object]) -> str:
    return f"{table['kind']}, {table['bands']} bands" if "bands" in table else str(table["kind"])


def _scheme(participation: Participation) -> str:
    if isinstance(participation, BallsInBins):
        return f"balls-in-bins, {participation.bins} bins"
    if isinstance(participation, BMinSep):
        return f"b-min-sep, separation {participation.separation}, rate {participation.rate:.4g}"
    if isinstance(participation, RandomAllocation):
        return f"random-allocation, {participation.bins} bins"
    if isinstance(participation, Poisson):
        return f"poisson, rate {participation.rate:.4g}"
    if isinstance(participation, CyclicPoisson):
        return f"cyclic-poisson, {participation.groups} groups, rate {participation.rate:.4g}"
    return f"min-separation {participation.separation_and_count(1)[0]}"
