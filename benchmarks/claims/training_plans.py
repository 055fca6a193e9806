"""The plans of `training.py`: for each claim its rows, the choices of each, and the pairs that are compared."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache

import harness
import numpy as np

from fieldfare.costing import cost_of
from fieldfare.mechanisms import build
from fieldfare.mechanisms.nu import NuSpec
from fieldfare.participation import MinSeparation
from fieldfare.plan import Plan

Cells = list[harness.Cell]
Pair = tuple[str, str, str]
"""(what is claimed, the label that should be better, the label that should be worse)."""


@dataclass(frozen=True)
class Size:
    """How large a run is."""

    rounds: int = 500
    cohort: int = 500
    users: int = 50_000
    rates: int = 3

    @property
    def separation(self) -> int:
        return self.users // self.cohort


SGD = {"kind": "sgd", "momentum": 0.9}
COOL_DOWN = {"kind": "cool-down", "share": 0.25, "final": 0.05}


def plan_table(
    s: Size, mechanism: harness.Table, epsilon: float, optimizer: harness.Table, scheme: str = "min-separation"
) -> harness.Table:
    participation: harness.Table = {
        "min-separation": {"scheme": "min-separation", "separation": s.separation},
        "fixed-order": {"scheme": "fixed-order", "period": s.separation},
        "poisson": {"scheme": "poisson", "rate": s.cohort / s.users},
    }[scheme]
    return {
        "privacy": {
            **{"population": "fashion", "epsilon": epsilon, "delta": 1e-5},
            "adjacency": "add_remove" if scheme == "poisson" else "zero_out",
        },
        "run": {"task": "fashion", "rounds": s.rounds, "cohort": s.cohort, "evaluate_every": s.rounds},
        "task": {"model": "cnn-small", "users": s.users},
        "participation": participation,
        "mechanism": mechanism,
        "clipping": {"kind": "flat", "norm": 1.0},
        "server_optimizer": optimizer,
        "client": {"steps": 1, "batch_size": 1, "learning_rate": 1.0},
    }


CENTRE, LARGEST = 0.12, 15.0
"""As of the headline's `fashion`: effective rate x noise in the mean of a prefix, and the largest effective rate."""


def grid(count: int, centre: float) -> list[float]:
    """Rates with ratio 2.5 around `centre`, and two spare ones at each end."""
    return [centre * 2.5 ** (index - count // 2) for index in range(-2, count + 2)]


def centre_of(s: Size, mechanism: harness.Table, epsilon: float, scheme: str, optimizer: harness.Table) -> float:
    """The rate of SGD around which is tried, from the noise alone; momentum makes it smaller."""
    noise = _noise(json.dumps(plan_table(s, mechanism, epsilon, {"kind": "sgd"}, scheme)))
    momentum = innermost(optimizer).get("momentum", 0.0)
    effective = min(LARGEST / 2.5, CENTRE * s.cohort / noise)
    return effective * (1.0 - momentum)


@cache
def _noise(table: str) -> float:
    cost = cost_of(Plan.parse(json.loads(table)))
    return cost.noise_multiplier * float(np.sqrt(np.mean(np.square(cost.mechanism.prefix_row_norms()))))


def innermost(optimizer: harness.Table) -> harness.Table:
    """The optimizer behind all filters."""
    return innermost(optimizer["base"]) if "base" in optimizer else optimizer


def rated(optimizer: harness.Table, rate: float) -> harness.Table:
    """The optimizer with a learning rate, in front of a filter or behind it."""
    if "base" in optimizer:
        return {**optimizer, "base": rated(optimizer["base"], rate)}
    return {**optimizer, "learning_rate": rate}


def cell(
    label: str,
    s: Size,
    mechanism: harness.Table,
    epsilon: float,
    optimizer: harness.Table,
    scheme: str = "min-separation",
    centre: float | None = None,
) -> harness.Cell:
    """centre: the middle rate, where it is not SGD's."""
    if centre is None:
        centre = centre_of(s, mechanism, epsilon, scheme, optimizer)
    choices = (plan_table(s, mechanism, epsilon, rated(optimizer, rate), scheme) for rate in grid(s.rates, centre))
    return harness.Cell(label, tuple(choices), spare=spares(s.rates))


def spares(count: int) -> tuple[tuple[int, int], ...]:
    """The first two and last two of `grid` wait until their neighbours are the best."""
    return (2, 1), (1, 0), (count + 1, count + 2), (count + 2, count + 3)


MODES = ("one-point", "two-point", "doppler")
BLT, INDEPENDENT = {"kind": "blt"}, {"kind": "independent"}


def disk(s: Size) -> tuple[Cells, list[Pair]]:
    """Small cohorts and large ones, at equal examples; SGD and Adam; modes, and gains of the two-point mode."""
    cells, pairs = [], []
    for cohort in (s.cohort, 5 * s.cohort):
        size = replace(s, cohort=cohort, rounds=max(1, s.rounds * s.cohort // cohort))
        for kind, centre in (("sgd", None), ("fedadam", 0.01)):
            base: harness.Table = {"kind": kind}
            variants: dict[str, harness.Table] = {"base": base}
            for mode in MODES:
                variants[mode] = {"kind": "disk", "mode": mode, "kappa": 0.7, "base": base}
            for kappa in (0.9, 0.5, 0.3):
                variants[f"two-point, kappa {kappa:g}"] = {**variants["two-point"], "kappa": kappa}
            name = f"{kind}, cohort {cohort}"
            for variant, optimizer in variants.items():
                cells.append(cell(f"{name}, {variant}", size, INDEPENDENT, 4.0, optimizer, "poisson", centre))
            pairs += [
                *((f"{m} DiSK beats {kind} at cohort {cohort}", f"{name}, {m}", f"{name}, base") for m in MODES[:2]),
                (f"two points beat the filter alone ({name})", f"{name}, two-point", f"{name}, doppler"),
                (f"gain 0.9 beats 0.5 ({name})", f"{name}, two-point, kappa 0.9", f"{name}, two-point, kappa 0.5"),
            ]
    return cells, pairs


def momentum(s: Size) -> tuple[Cells, list[Pair]]:
    cells, pairs = [], []
    for alpha in (0.01, 0.03, 0.1, 0.3, 1.0):
        beta = 1 - alpha
        mechanisms = {
            "momentum-tree": {"kind": "momentum-tree", "momentum": beta},
            "tree, online": {"kind": "tree", "estimator": "online"},
            "blt": BLT,
            "independent": INDEPENDENT,
        }
        optimizer = {"kind": "normalised-momentum", "momentum": beta}
        for name, mechanism in mechanisms.items():
            cells.append(
                # One order of users, as the theory has it. The middle length of a step was found on tune users.
                cell(f"alpha {alpha:g}, {name}", s, mechanism, 2.0, optimizer, "fixed-order", 0.625)
            )
        if alpha < 1:
            # The paper's second algorithm: three clipped queries a round in front of the same momentum and tree.
            queries = {"kind": "three-query", "period": s.separation, "mixing": 0.3, "change": 0.15, "drift": 0.15}
            three, tree = f"alpha {alpha:g}, momentum-tree, three queries", f"alpha {alpha:g}, momentum-tree"
            cells.append(
                cell(three, s, mechanisms["momentum-tree"], 2.0, {**queries, "base": optimizer}, "fixed-order", 0.625)
            )
            pairs.append((f"three queries a round beat one at alpha {alpha:g}", three, tree))
        if alpha <= 0.1:
            claimed = f"momentum-tree beats independent noise at alpha {alpha:g}"
            pairs.append((claimed, f"alpha {alpha:g}, momentum-tree", f"alpha {alpha:g}, independent"))
    for change in (0.15, 0.3):
        query = {"kind": "three-query", "period": s.separation, "mixing": 0.3, "change": change, "drift": change}
        label = f"three queries, change {change:g}"
        cells.append(cell(label, s, BLT, 2.0, {**query, "base": SGD}, "fixed-order"))
        pairs.append((f"three queries a round, change {change:g}, beat one (blt)", label, "one query"))
    cells.append(cell("one query", s, BLT, 2.0, SGD, "fixed-order"))
    return cells, pairs


def cool_down(s: Size) -> tuple[Cells, list[Pair]]:
    cells, pairs = [], []
    schedules: dict[str, harness.Table] = {
        "constant": {"kind": "constant"},
        "cool-down": COOL_DOWN,
        "polynomial 0.5": {"kind": "polynomial", "power": 0.5},
        "polynomial 1": {"kind": "polynomial", "power": 1.0},
    }
    for epsilon in (2.0, 8.0):
        for noise, mechanism, scheme in (("blt", BLT, "min-separation"), ("Poisson", INDEPENDENT, "poisson")):
            name = f"{noise}, epsilon {epsilon:g}"
            for label, schedule in schedules.items():
                optimizer = {**SGD, "schedule": schedule}
                cells.append(cell(f"{name}, {label}", s, mechanism, epsilon, optimizer, scheme))
            for falling in ("cool-down", "polynomial 0.5", "polynomial 1"):
                claimed = f"{falling} beats a constant rate ({name})"
                pairs.append((claimed, f"{name}, {falling}", f"{name}, constant"))
    return cells, pairs


def decaying(s: Size) -> tuple[Cells, list[Pair]]:
    """Noise that falls over the run, where users take part several times; with one participation it cannot pay."""
    cells, pairs = [], []
    schedules: dict[str, harness.Table] = {"constant rate": {"kind": "constant"}, "cool-down": COOL_DOWN}
    for epsilon in (2.0, 8.0):
        for rate, schedule in schedules.items():
            name, constant = f"epsilon {epsilon:g}, {rate}", f"epsilon {epsilon:g}, {rate}, constant noise"
            noises: dict[str, harness.Table] = {constant: INDEPENDENT}
            for final, hold, when in ((0.5, s.separation, "epoch"), (0.25, s.separation, "epoch"), (0.5, 1, "round")):
                label = f"{name}, noise falls to {final:g} by {when}"
                noises[label] = {"kind": "decaying", "final": final, "shape": "geometric", "hold": hold}
                pairs.append(
                    (f"noise that falls to {final:g} by {when} beats constant noise ({name})", label, constant)
                )
            for label, mechanism in noises.items():
                cells.append(cell(label, s, mechanism, epsilon, {**SGD, "schedule": schedule}, "fixed-order"))
    return cells, pairs


def cohort(s: Size) -> tuple[Cells, list[Pair]]:
    cells, pairs = [], []
    for epsilon in (1.0, 8.0):
        for factor in (0.5, 1.0, 2.0, 4.0):
            size = replace(s, cohort=max(1, round(s.cohort * factor)), rounds=max(1, round(s.rounds / factor)))
            for noise, mechanism, scheme in (("blt", BLT, "min-separation"), ("Poisson", INDEPENDENT, "poisson")):
                label = f"{noise}, epsilon {epsilon:g}, cohort x {factor:g}"
                cells.append(cell(label, size, mechanism, epsilon, {**SGD, "schedule": COOL_DOWN}, scheme))
    for noise in ("blt", "Poisson"):
        for factor in (0.5, 1.0):
            large, small = (f"{noise}, epsilon 1, cohort x {f:g}" for f in (4.0, factor))
            pairs.append((f"cohort x 4 beats x {factor:g} at epsilon 1 ({noise})", large, small))
            large, small = (f"{noise}, epsilon 8, cohort x {f:g}" for f in (4.0, factor))
            pairs.append((f"cohort x {factor:g} beats x 4 at epsilon 8 ({noise})", small, large))
    return cells, pairs


def nu(s: Size) -> tuple[Cells, list[Pair]]:
    """nu "auto" minimises the prefix error of the plan; the cells take multiples of it."""
    auto = build(NuSpec(nu="auto"), s.rounds, MinSeparation(s.separation))
    value = float(1 - (auto.noising_matrix(2)[1, 0] / -0.5))
    cells = []
    for factor in (0.1, 0.3, 1.0, 3.0, 10.0):
        mechanism = {"kind": "nu", "nu": min(1.0, value * factor)}
        cells.append(cell(f"nu x {factor:g}", s, mechanism, 4.0, {**SGD, "schedule": COOL_DOWN}))
    pairs = [(f"nu auto is no worse than x {f:g}", "nu x 1", f"nu x {f:g}") for f in (0.1, 0.3, 3.0, 10.0)]
    return cells, pairs


def small_clip(s: Size) -> tuple[Cells, list[Pair]]:
    cells = []
    for rounds in (max(1, s.rounds // 4), s.rounds):
        for clip in (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0):
            tried, size = [], replace(s, rounds=rounds)
            for product in grid(s.rates, centre_of(size, BLT, 2.0, "min-separation", SGD)):
                optimizer = {**SGD, "schedule": COOL_DOWN, "learning_rate": product / clip}
                tried.append({**plan_table(size, BLT, 2.0, optimizer), "clipping": {"kind": "flat", "norm": clip}})
            cells.append(harness.Cell(f"{rounds} rounds, clip {clip:g}", tuple(tried), spare=spares(s.rates)))
    pairs = []
    for name in (f"{rounds} rounds" for rounds in (max(1, s.rounds // 4), s.rounds)):
        small = f"{name}, clip 0.1"
        pairs += [(f"{name}: clip norm 0.1 beats {large}", small, f"{name}, clip {large}") for large in (1, 3, 10)]
        pairs.append((f"{name}: the least clip norm, 0.01, beats 0.1", f"{name}, clip 0.01", small))
    return cells, pairs
