"""The attack's stored result, its picture and its tables."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import attack
import figure
import harness
import lira
import numpy as np

if TYPE_CHECKING:
    import many

LABELS = attack.EPSILONS
RATES = (0.01, 0.001)
CURVE = tuple(float(rate) for rate in np.logspace(-4, -1, 25))
MARKED = frozenset((CURVE[8], CURVE[16], CURVE[24]))
UNSEEN = 1000
"""Coins of `number + UNSEEN` are those of no model: an attack on them must come out as a guess."""


def results(shadows: Sequence[many.Shadows], commit: str, code: Mapping[str, str]) -> dict[str, harness.Table]:
    """What is stored of each setting."""
    return {part.setting.name: _setting(part, commit, code) for part in shadows}


def _setting(part: many.Shadows, commit: str, code: Mapping[str, str]) -> harness.Table:
    s = part.setting
    taken, unseen = (
        np.stack([attack.taken(s, number + shift) for number in range(part.models)]) for shift in (0, UNSEEN)
    )
    cells = {}
    for label in LABELS:
        jobs = sorted((job for job in part.found if job.label == label), key=lambda job: job.place)
        records = [part.found[job] for job in jobs]
        if any(record["code"] != code for record in records):
            sys.exit(f"{part.name}, {label}: its runs were not made by the code of {commit}")
        seen = np.stack([part.seen[job] for job in jobs]).astype(float)
        first = records[0]
        cells[label] = {
            **{key: first[key] for key in ("epsilon", "delta", "noise_multiplier", "adjacency", "scheme", "code")},
            **{"versions": first["versions"], "commit": commit},
            "cpu_seconds": sum(record["cpu_seconds"] for record in records),
            "accuracy": float(np.mean([record["scores"]["accuracy"] for record in records])),
            "attack": lira.judged(lira.ratios(seen, taken), taken, (*RATES, *CURVE)),
            "own spread": lira.judged(lira.ratios(seen, taken, own=True), taken, RATES),
            "coins of no model": lira.judged(lira.ratios(seen, unseen), unseen, RATES),
            "models": {str(record["seed"]): record["model"] for record in records},
        }
        print(part.name, label, cells[label]["attack"]["auc"], flush=True)
    users = s.candidates // 2
    return {
        **{"candidates": s.candidates, "attacked": s.seen, "shadows": part.models, "rounds": s.base.rounds},
        **{"cohort": s.base.cohort, "visits": s.base.rounds * s.base.cohort / users, "cells": cells},
    }


def bound(cell: harness.Table, figure_name: str) -> float:
    """What the cell's epsilon and delta allow at most: of "auc", or of the true positive rate at a rate."""
    if cell["epsilon"] is None:
        return 1.0
    if figure_name == "auc":
        return lira.allowed_area(cell["epsilon"], cell["delta"])
    return lira.allowed(float(figure_name), cell["epsilon"], cell["delta"])


def percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def table(setting: harness.Table, kind: str = "attack") -> str:
    """Rows by epsilon: area and true positive rates, each with its interval and with what epsilon allows."""
    rows = []
    for label, cell in setting["cells"].items():
        found = cell[kind]
        auc, *ends = found["auc"]
        shown = [f"{auc:.3f} [{ends[0]:.3f}, {ends[1]:.3f}]"]
        shown += ["{} [{}, {}]".format(*map(percent, found[f"{rate:g}"])) for rate in RATES]
        if kind == "attack":
            limits = [f"{bound(cell, 'auc'):.3f}", *(percent(bound(cell, f"{rate:g}")) for rate in RATES)]
            shown = [one if label == "none" else f"{one}; {most}" for one, most in zip(shown, limits, strict=True)]
        rows.append(("no noise" if label == "none" else f"epsilon {label}", f"{cell['accuracy']:.3f}", *shown))
    heads = ("", "accuracy", "area under the curve", *(f"found, at {100 * rate:g} % false alarms" for rate in RATES))
    return harness.markdown_table(heads, rows)


def picture(result: harness.Table) -> str:
    """The share of participants that is found against false alarms, on log axes, a panel for each setting."""
    names = {"none": "no noise", "8": "epsilon 8", "4": "epsilon 4", "1": "epsilon 1"}
    shown = []
    for setting in result["settings"].values():
        cells = setting["cells"]
        lines = [
            figure.Line(
                name,
                [(rate, *cells[label]["attack"][f"{rate:g}"]) for rate in CURVE],
                figure.STYLES[(1, 3, 2, 0)[place]],
                MARKED,
            )
            for place, (label, name) in enumerate(names.items())
        ]
        flat = [(rate, rate, rate, rate) for rate in CURVE]
        most = [(rate, *[bound(cells["1"], f"{rate:.17g}")] * 3) for rate in CURVE]
        lines.append(figure.Line("most at epsilon 1", most, figure.STYLES[6], frozenset(), thin=True))
        lines.append(figure.Line("guessing", flat, figure.STYLES[4], frozenset(), thin=True))
        found = {label: percent(cells[label]["attack"]["0.001"][0]) for label in ("none", "1")}
        notes = ("Found at 0.1 % false alarms:", f"no noise {found['none']}, epsilon 1 {found['1']}")
        shown.append(figure.Panel(f"Each image trained on {setting['visits']:g} times", lines, notes))
    axis = (1e-4, 1e-3, 1e-2, 1e-1)
    return figure.panels(
        "Who was in the training data? An attack with 64 models of its own",
        shown,
        figure.Axis("false alarms among those who were not", axis, True, lambda v: f"{100 * v:g} %"),
        figure.Axis("found among those who were", (*axis, 1.0), True, lambda v: f"{100 * v:g} %"),
    )


def page(result: harness.Table) -> str:
    """benchmarks/results/claims/attack.md."""
    parts = [
        """# Membership inference: who was in the training data?

**Question.** How many participants can an attacker tell from people who did not take part, and how does that compare
with what epsilon allows?

**Attack.** LiRA, online (Carlini et al. 2022, arXiv 2112.03570): 64 models at each epsilon, each trained on the half of
the candidates that a fair coin chose. Each model is attacked with the help of the other 63: an image's confidence
log(p / (1 - p)) in its own label is compared with two normal distributions, of models with and without it, whose means
are the image's and whose spreads are one for all images; none of them contains the attacked model. One query an image,
one threshold for all models. Intervals: 95 % bootstrap over models and images together; models are resampled as
targets, not as helpers.

**What the attacker has.** All candidates with labels, the plan with epsilon and rates, that a fair coin decided, the
final model's confidence, and 63 models trained in the same way on known halves of the same candidates. Not: rounds in
between, updates, who was called when.

**Promise.** DP-SGD with Poisson sampling, add_remove, delta 1e-5: whether somebody took part is what is hidden. After
the semicolon: the most that any attack may reach. Without noise nothing limits it; that row is not sampled."""
    ]
    for setting in result["settings"].values():
        runs = sum(len(cell["models"]) for cell in setting["cells"].values())
        cpu = sum(cell["cpu_seconds"] for cell in setting["cells"].values())
        first = next(iter(setting["cells"].values()))
        parts.append(f"""## Each image trained on {setting["visits"]:g} times

{setting["rounds"]} rounds of {setting["cohort"]} of about {setting["candidates"] // 2:,} users;
{setting["candidates"]:,} candidates, of whom {setting["attacked"]:,} are attacked.

{table(setting)}

With a spread of its own for each image:

{table(setting, "own spread")}

With coins that no model saw, which no attack can tell (the yardstick of the attack itself):

{table(setting, "coins of no model")}

{runs} models, {cpu / 3600:.1f} CPU hours; commit {first["commit"]}; {first["versions"]}.""")
    last = "python benchmarks/claims/many_results.py --out FOLDER --commit NAME"
    parts.append(f"`{result['command']}` made the runs, and `{last}` these tables of them.")
    return "\n\n".join(parts)
