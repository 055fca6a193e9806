"""Optimizers that adapt, under noise: a transformer on `poems` at equal privacy.

    python benchmarks/claims/base.py --width 32 --steps 100
    python benchmarks/claims/adaptive.py --base SHA256

Adam divides by the root of a second moment that is mostly noise; with the noise's known variance taken out of it, by
what is left. Scaled updates adapt before the noise instead (`scaled_verse.py`). All of them against SGD with momentum,
which is tuned over twice as many settings. The size is that of the headline's poems: 40 rounds of 195 of 3 900 poets.
Ten seeds, two-sided sign-flip tests, Holm's correction over all comparisons. Runs are cached.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from pathlib import Path

import harness
import headline_plans as plans
import one_pass
import paired
from remarks import wrapped
from scaled_verse import ScaledPass

from fieldfare_research.poems import PoemsTask

STUDY = harness.Study("adaptive", plans.scored, "nats", higher=False, data="poems")
SIZE = plans.SETTINGS["poems", "small"]
NOISE = {"blt": "blt", plans.POISSON: "Poisson (add_remove)"}
EPSILONS = (4.0, 8.0)
CLIPS = (0.3, 1.0)
"""A fifth of the median length of a tune poet's update at the base, and two thirds of it."""
SGD, ADAM, CORRECTED = "SGD", "Adam", "Adam, noise taken out"
DAMPING = {"scaled, SGD": 1.0}
ROWS = (SGD, ADAM, CORRECTED, *DAMPING)
PAIRS = (*((row, SGD) for row in ROWS[1:]), (CORRECTED, ADAM))
ADAM_RATE = 0.003
"""The middle rate, as of the LoRA rows that train everything."""
FREE = "no privacy"
CLAIM = """**Claim.** Adapting pays under noise as without it: by a second moment of noised updates, better with the
noise's variance taken out, or by scales that are applied before clipping and noise."""
SOURCE = """**Source.** Tang et al. 2024 (DP-AdamBC, arXiv 2312.14334) and Li, Zaheer, Reddi, Smith 2022 (AdaDPS, arXiv
2202.05963), with other tasks."""


def cells(base: str) -> list[harness.Cell]:
    """Each row with each noise at each epsilon, and without privacy."""
    made = []
    for row in ROWS:
        for noise, short in NOISE.items():
            made += [cell(base, row, f"{row}, {short}, epsilon {e:g}", noise, e) for e in EPSILONS]
        made.append(cell(base, row, f"{row}, {FREE}", "blt", 8.0, noiseless=True))
    return made


def cell(base: str, row: str, label: str, noise: str, epsilon: float, noiseless: bool = False) -> harness.Cell:
    """Two clip norms, three rates and a spare one at each end of each; SGD with momentum and without."""
    choices: list[harness.Table] = []
    spare: harness.Spares = ()
    for clip in CLIPS:
        s = dataclasses.replace(SIZE, clip=clip, task={**SIZE.task, "base": base})
        table = plans.table_of("poems", s, noise, epsilon)
        if row in DAMPING:
            table["run"] = {**table["run"], "task": "scaled_verse:ScaledPoems"}
            table["task"] = {**table["task"], "damping": DAMPING[row]}
        if row in (ADAM, CORRECTED):
            grids = [[adam(table, place, row == CORRECTED) for place in range(-2, 3)]]
        else:
            found = [s.largest / plans.RATIO**k for k in range(3, -2, -1)] if noiseless else private_rates(s, table)
            grids = [
                [plans.with_rate(table, rate, momentum) for rate in found]
                for momentum in ((0.9, 0.0) if row == SGD else (0.9,))
            ]
        for grid in grids:
            first = len(choices)
            choices += grid
            spare += ((first + 1, first), (first + 3, first + 4))
    return harness.Cell(label, tuple(choices), noiseless, spare, grid=5)


def private_rates(s: plans.Setting, table: harness.Table) -> list[float]:
    return plans.rates(s, plans.prefix_noise(table), 3)


def adam(table: harness.Table, place: int, corrected: bool) -> harness.Table:
    optimizer = {"kind": "adamw", "learning_rate": ADAM_RATE * plans.RATIO**place, "noise_correction": corrected}
    return {**table, "server_optimizer": {**optimizer, "schedule": {"kind": "cool-down", "share": 0.25, "final": 0.05}}}


def page(stored: harness.Table) -> str:
    """The page from what `main` stores."""
    found, base = stored["cells"], stored["base"]["nats"]
    columns = [f"{short}, epsilon {e:g}" for short in NOISE.values() for e in EPSILONS] + [FREE]
    rows = [
        [row, *(harness.show([base - value for value in found[f"{row}, {column}"]["scores"]]) for column in columns)]
        for row in ROWS
    ]
    tested, ahead = {}, {}
    for column in columns[:-1]:
        for row, other in PAIRS:
            ours, theirs = (found[f"{name}, {column}"]["scores"] for name in (row, other))
            name = f"{row} against {other}, {column}"
            ahead[name] = [b - a for a, b in zip(ours, theirs, strict=True)]
            tested[name] = paired.sign_flip(ahead[name])
    corrected = paired.holm(tested)
    lines = []
    for name, differences in ahead.items():
        low, high = paired.bootstrap(differences)
        verdict = "undecided"
        if corrected[name] < 0.05:
            verdict = "ahead" if statistics.mean(differences) > 0 else "behind"
        lines.append(
            f"| {name} | {statistics.mean(differences):+.4f} ({low:+.4f} to {high:+.4f}) | {corrected[name]:.3f} | "
            f"**{verdict}** |"
        )
    run = f"""**Run here.** `poems`, a transformer of one layer, 75 764 parameters, from a base model of little training
on Tang (`{stored["command"]}`); {SIZE.rounds} rounds of {SIZE.cohort} of {SIZE.users:,} users, each at most
{SIZE.times} times; delta 1e-5. For each row clip norms 0.3 and 1, three rates 2.5 apart, and one more where the first
or last of the three is the best; SGD with momentum 0.9 and with none. Adam has beta 0.9 and 0.999. Scales are of 2 048
public windows at the base model, damping 1; damping 0.1 was tuned and, for want of time, not scored to the end.
Scales from released models were not tried. Gain: nats of the base model less those of the row, on test poets, mean and
95 % interval."""
    return f"""# Optimizers that adapt, under noise

{wrapped(CLAIM)}

{wrapped(SOURCE)}

{wrapped(run)}

{harness.markdown_table(("gain in nats", *columns), rows)}

**Verdict**, paired by seed: difference in nats with its bootstrap interval, p after Holm's correction over all
{len(tested)}.

| comparison | ahead by | p | |
|---|---|---|---|
{chr(10).join(lines)}

{harness.footer(stored["command"], found, tuned=True)}
"""


def run(base: str, seeds: int, folder: Path, quiet: bool = False) -> harness.Table:
    """Tune and score all cells."""
    # It trains `poems` as before, and `ScaledPoems` too.
    one_pass.OnePassVerse = ScaledPass  # type: ignore[misc]
    made = cells(base)
    chosen = folder / STUDY.name / f"choices-{base[:12]}.json"
    harness.tune(STUDY, made, chosen, folder, quiet)
    return harness.score(STUDY, made, chosen, seeds, folder, quiet)


def main() -> None:
    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--base", required=True, help="SHA-256 that benchmarks/claims/base.py prints")

    given = harness.options(__doc__ or "", seeds=10, more=more)
    task = PoemsTask(width=SIZE.task["width"], most=SIZE.task["most"], base=given.base)
    found = run(given.base, given.seeds, given.cache)
    stored = {
        "command": f"python benchmarks/claims/adaptive.py --base {given.base}",
        "base": task.evaluate(task.build_model()),
        "cells": found,
    }
    harness.store("adaptive", stored)
    print(harness.write_page("adaptive", page(stored)))


if __name__ == "__main__":
    main()
