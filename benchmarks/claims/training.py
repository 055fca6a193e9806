"""Claims of the papers that need training on real users, one word each.

    python benchmarks/claims/training.py disk        DiSK against the optimizer that it filters
    python benchmarks/claims/training.py momentum    momentum-tree and other noise against alpha
    python benchmarks/claims/training.py cool-down   falling learning rates against a constant one
    python benchmarks/claims/training.py decaying    noise that falls over the run against constant noise
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
import re
import shlex
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import harness
from remarks import gains_of, median_norms, norms_of, wrapped
from training_plans import (
    BLT,
    COOL_DOWN,
    LARGEST,
    SGD,
    Cells,
    Pair,
    Size,
    cohort,
    cool_down,
    decaying,
    disk,
    momentum,
    nu,
    plan_table,
    small_clip,
)

from fieldfare.plan import Plan


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


CLAIMS = {
    "disk": Claim(
        "DiSK",
        "A Kalman filter in front of the optimizer beats it under the same privacy; the combination before clipping "
        "matters more than the filter; gains between 0.5 and 0.9 differ little.",
        "Zhang et al. 2024 (arXiv 2410.03883), tables 1 to 6 and figure 8",
        disk,
        "epsilon 4, Poisson sampling (add_remove); rows of five times the cohort have a fifth of the rounds",
        gains_of,
    ),
    "momentum": Claim(
        "Momentum aggregation",
        "A tree over discounted updates has less noise than independent noise where momentum is long; three queries a "
        "round, two of them small differences, need less noise still.",
        "Tran, Cutkosky 2022, which has no experiments",
        momentum,
        "epsilon 2, fixed order (zero_out); normalised momentum 1 - alpha in rows with alpha, SGD with momentum 0.9 "
        "and blt in the others; of three queries the differences are clipped to 0.15, or as the row says, with mixing "
        "0.3: neither was tuned. At alpha 1 "
        "momentum-tree is independent noise. Against blt the paper says nothing, and no verdict is given",
    ),
    "cool-down": Claim(
        "Cool-down",
        "A learning rate that falls at the end beats a constant one, most at small epsilon.",
        "Kairouz et al. 2021, and the setup of the correlated-noise paper",
        cool_down,
        "cool-down: the rate falls to 0.05 of itself over the last quarter; polynomial: over all rounds, to 0. Power 1 "
        "halves the mean rate, so its best one may lie between two that were tried",
    ),
    "decaying": Claim(
        "Falling noise",
        "Noise that falls over the run beats constant noise at the same epsilon.",
        "Bombari, Seroussi, Mondelli 2025, equation 4.2 and figure 3, for the last model of one pass alone. Here every "
        "round is released and charged for its own noise: with one participation the round of least noise decides, and "
        "constant noise of that size is never worse (proved). So only users who take part several times are tried",
        decaying,
        "fixed order (zero_out), independent noise, SGD with momentum 0.9; by epoch: the rounds in which every user "
        "takes part once have the same noise",
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
