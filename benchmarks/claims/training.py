"""Claims of the papers that need training on real users, one word each.

    python benchmarks/claims/training.py disk        DiSK against the optimizer that it filters
    python benchmarks/claims/training.py momentum    momentum-tree and other noise against alpha
    python benchmarks/claims/training.py cool-down   falling learning rates against a constant one
    python benchmarks/claims/training.py cohort      rounds against cohort at equal rounds x cohort
    python benchmarks/claims/training.py nu          nu "auto" against multiples of it
    python benchmarks/claims/training.py small-clip  clip norm over three decades, with rounds

On `fashion` (FIELDFARE_DATA, `fieldfare data fetch fashion`) with the small model. Each takes hours of CPU time: all
runs are cached, and the command goes on where it was stopped. `--rounds`, `--cohort`, `--users` and `--rates` reduce
it; the page says by how much.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import shlex
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import harness
import numpy as np
from remarks import gains_of, median_norms, norms_of, wrapped

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


@dataclass(frozen=True)
class Claim:
    """One word of the command line."""

    title: str
    claim: str
    source: str
    made: Callable[[Size], tuple[Cells, list[Pair]]]
    """(cells, paired comparisons) of a size."""
    note: str = ""
    more: Callable[[harness.Table], list[str]] = lambda stored: []
    """What else the page says of what was stored."""


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
        if alpha <= 0.1:
            claimed = f"momentum-tree beats independent noise at alpha {alpha:g}"
            pairs.append((claimed, f"alpha {alpha:g}, momentum-tree", f"alpha {alpha:g}, independent"))
    for change in (0.15, 0.3):
        query = {"kind": "three-query", "period": s.separation, "mixing": 0.3, "change": change, "drift": change}
        label = f"three queries, change {change:g}"
        cells.append(cell(label, s, BLT, 2.0, {**query, "base": SGD}, "fixed-order"))
        pairs.append((f"three queries a round, change {change:g}, beat one", label, "one query"))
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
            pairs.append((f"cool-down beats a constant rate ({name})", f"{name}, cool-down", f"{name}, constant"))
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


CLAIMS = {
    "disk": Claim(
        "DiSK",
        "A Kalman filter in front of the optimizer beats it under the same privacy; the combination before clipping "
        "matters more than the filter; gains between 0.5 and 0.9 differ little.",
        "Zhang et al. 2024 (arXiv 2410.03883), tables 1 to 6 and figure 8",
        disk,
        "epsilon 4, Poisson sampling (add_remove)",
        gains_of,
    ),
    "momentum": Claim(
        "Momentum aggregation",
        "A tree over discounted updates has less noise than independent noise where momentum is long.",
        "Tran, Cutkosky 2022, which has no experiments",
        momentum,
        "epsilon 2, fixed order (zero_out). Against blt the paper says nothing, and no verdict is given",
    ),
    "cool-down": Claim(
        "Cool-down",
        "A learning rate that falls at the end beats a constant one, most at small epsilon.",
        "Kairouz et al. 2021, and the setup of the correlated-noise paper",
        cool_down,
    ),
    "cohort": Claim(
        "Cohort against rounds",
        "At equal rounds x cohort, large cohorts win at small epsilon and many rounds at large epsilon.",
        "noise that is spread over a cohort: both papers on correlated noise",
        cohort,
    ),
    "nu": Claim(
        "nu is near its optimum",
        "nu, chosen by the error of prefix sums alone, is near the best for training.",
        "Choquette-Choo et al. 2023 (arXiv 2310.06771)",
        nu,
        "epsilon 4, minimum separation (zero_out)",
    ),
    "small-clip": Claim(
        "A small clip norm, on images",
        "The score is flat for clip norms below the typical gradient, and falls above.",
        "Bombari, Seroussi, Mondelli 2025, whose theory is on regression",
        small_clip,
        "epsilon 2, blt, minimum separation (zero_out); the learning rate is tau / clip with tau tuned",
        norms_of,
    ),
}


def scored(choice: harness.Table, part: harness.Part, seed: int) -> harness.Table:
    return {**choice, "task": {**choice["task"], "scored": part}}


def run(
    word: str, s: Size, seeds: int, folder: Path, match: str = "", quiet: bool = False
) -> tuple[harness.Table, list[Pair]]:
    """Tune and score the claim `word`; returns what was found and what is compared. match: of the labels, to run."""
    study = harness.Study(f"training-{word}", scored, "accuracy", data="fashion")
    cells, pairs = CLAIMS[word].made(s)
    cells = [cell for cell in cells if re.search(match, cell.label)]
    kept = {cell.label for cell in cells}
    pairs = [pair for pair in pairs if {*pair[1:]} <= kept]
    chosen = folder / study.name / f"choices-{s.rounds}-{s.cohort}-{s.users}-{s.rates}.json"
    harness.tune(study, cells, chosen, folder, quiet)
    return harness.score(study, cells, chosen, seeds, folder, quiet), pairs


def page(stored: harness.Table) -> str:
    """The page of a claim from what `main` stores."""
    claim, s, found, pairs = CLAIMS[stored["claim"]], Size(**stored["size"]), stored["cells"], stored["pairs"]
    rows = [
        (label, harness.show(one["scores"]), f"{max(v for v in one['tune_scores'] if v is not None):.4f}")
        for label, one in found.items()
    ]
    verdicts = [
        f"- {what}: {harness.show([a - b for a, b in zip(found[x]['scores'], found[y]['scores'], strict=True)])}: "
        f"**{harness.verdict(found[x]['scores'], found[y]['scores'])}**"
        for what, x, y in pairs
    ]
    verdicts += [f"- {line}" for line in claim.more(stored)]
    tests = [statistics.mean(one["scores"]) for one in found.values()]
    run = f"""**Run here.** `fashion`, one image a user, the network of 18 842 parameters; {s.rounds} rounds of
{s.cohort} of {s.users:,} users where the row does not say otherwise{"; " + claim.note if claim.note else ""}; delta
1e-5, clip norm 1 unless swept. For each row {s.rates} learning rates are tried, 2.5 apart, and up to two more while the
first or last is the best. All users of a round train in one pass, which gives the sums of the product's nodes to
round-off. Rows of the claim that the command leaves out were not run. Scores are test accuracy."""
    return f"""# {claim.title}

{wrapped(f"**Claim.** {claim.claim}")}

{wrapped(f"**Source.** {claim.source}.")}

{wrapped(run)}

{harness.markdown_table(("row", "accuracy", "best on tune users"), rows)}

The rows' means span {min(tests):.4f} to {max(tests):.4f}.

**Verdict**, paired by seed:

{chr(10).join(verdicts)}

{harness.footer(stored["command"], found, tuned=True)}
"""


def main() -> None:
    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("claim", choices=list(CLAIMS))
        for name, value in (("rounds", 500), ("cohort", 500), ("users", 50_000), ("rates", 3)):
            parser.add_argument(f"--{name}", type=int, default=value)
        parser.add_argument("--match", default="", help="run only the rows whose label this regular expression finds")

    given = harness.options(__doc__ or "", more=more)
    s = Size(given.rounds, given.cohort, given.users, given.rates)
    found, pairs = run(given.claim, s, given.seeds, given.cache, given.match)
    command = f"python benchmarks/claims/training.py {given.claim}"
    if s != Size():
        command += f" --rounds {s.rounds} --cohort {s.cohort} --users {s.users} --rates {s.rates}"
    if given.match:
        command += f" --match {shlex.quote(given.match)}"
    size = dataclasses.asdict(s)
    stored = {"claim": given.claim, "size": size, "command": command, "cells": found, "pairs": pairs}
    if given.claim == "small-clip":
        free = {**SGD, "schedule": COOL_DOWN, "learning_rate": LARGEST / 2.5 * 0.1}
        stored["norms"] = median_norms(Plan.parse(scored(plan_table(s, BLT, 2.0, free), "tune", harness.TUNING_SEED)))
    harness.store(f"training-{given.claim}", stored)
    print(harness.write_page(f"training-{given.claim}", page(stored)))


if __name__ == "__main__":
    main()
