"""Score against epsilon: correlated noise and amplified DP-SGD on real users (correlated-noise paper, figure 4).

    python benchmarks/claims/headline.py --noise-only                   noise alone, no training: a minute
    python benchmarks/claims/headline.py --data fashion --size small    an hour on two cores; chess: half of that
    python benchmarks/claims/base.py --width 32 --steps 100             prints the SHA256 of a base model for poems
    python benchmarks/claims/headline.py --data poems --size small --base SHA256      an hour on two cores
    python benchmarks/claims/headline.py --data fashion                 the reduced protocol: hours
    python benchmarks/claims/headline.py --data fashion --size full     the paper's rounds: a night on sixteen cores

Rows: DP-SGD with Poisson sampling (add_remove), without sampling, tree, optimal-cc, nu, blt, banded, dense where rounds
allow, no privacy; with sampling (add_remove) banded with cyclic Poisson, random allocation, nu and banded with balls in
bins. Adjacencies differ and the figure says which is which. Runs are cached: start the command again to go on. `--rows`
and `--epsilons` run parts of the grid.

Grid of learning rates: `--rates` values around `Setting.centre / (noise in the mean of a prefix)`, at most the largest
that is tried without noise, and a spare one at each end.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Callable

import harness
from headline_figure import picture
from headline_page import page
from headline_plans import (
    BASES,
    DENSE_ROUNDS,
    EPSILONS,
    POISSON,
    ROWS,
    SETTINGS,
    Setting,
    cells_of,
    prefix_noise,
    scored,
    table_of,
)
from reductions import base_scores, baselines

from fieldfare.errors import FieldfareError

# -- noise alone -------------------------------------------------------------------------------------------------------

PICTURE_TIMES = (1, 2, 5, 10, 20)


def noise_table(name: str, s: Setting, rows: list[str], epsilons: list[float]) -> dict[str, dict[str, float]]:
    """{row: {epsilon: prefix noise}}; a row that these rounds do not allow is left out."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        if ROWS[row][0]["kind"] == "dense" and s.rounds > DENSE_ROUNDS:
            continue
        try:
            found[row] = {f"{e:g}": prefix_noise(table_of(name, s, row, e)) for e in epsilons}
        except FieldfareError as refused:
            print(f"{name}, {row}: left out ({refused})")
    return found


def noise_of_runs(name: str) -> dict[str, dict[str, float]]:
    """{row: {epsilon: prefix noise}} of the scored runs that are stored: certificates need not be made again."""
    path = harness.RESULTS / f"{name}.json"
    found: dict[str, dict[str, float]] = {}
    for label, cell in (json.loads(path.read_text())["cells"] if path.is_file() else {}).items():
        row, _, epsilon = label.rpartition(", epsilon ")
        if row:
            found.setdefault(row, {})[epsilon] = cell["runs"][0]["prefix_noise_rms"]
    return found


def crossing(amplified: Callable[[float], float], correlated: Callable[[float], float]) -> float | None:
    """epsilon from which `correlated` has less noise, in [0.25, 32], by bisection to 1 %; None if it lies outside."""
    low, high = 0.25, 32.0
    if correlated(low) < amplified(low) or correlated(high) > amplified(high):
        return None
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if correlated(middle) < amplified(middle) else (middle, high)
    return math.sqrt(low * high)


def crossings(name: str, s: Setting) -> dict[str, float | None]:
    """{participations of a user: the epsilon at which nu and amplified DP-SGD cross}, at fixed rounds and cohort."""
    found: dict[str, float | None] = {}
    for times in PICTURE_TIMES:
        users = s.rounds * s.cohort // times
        changed = dataclasses.replace(s, users=users, separation=s.rounds // times)

        def noise(row: str, changed: Setting = changed) -> Callable[[float], float]:
            return lambda epsilon: prefix_noise(table_of(name, changed, row, epsilon))

        found[str(times)] = crossing(noise(POISSON), noise("nu"))
    return found


def main() -> None:
    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--data", choices=sorted({name for name, _ in SETTINGS}), default="fashion")
        parser.add_argument("--size", choices=("small", "reduced", "full"), default="reduced", help="full: the paper's")
        parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
        parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
        parser.add_argument("--rates", type=int, default=3, help="settings that are tried for each cell")
        parser.add_argument("--base", default="", help="poems: SHA-256 of the base model (benchmarks/claims/base.py)")
        parser.add_argument("--noise-only", action="store_true", help="no training: noise of all data sets")

    arguments = harness.options(__doc__ or "", more=more)
    if arguments.noise_only:
        path = harness.RESULTS / "headline-noise.json"
        before = json.loads(path.read_text())["settings"] if path.is_file() else {}
        found = {}
        for (name, size), s in SETTINGS.items():
            title = f"{name}, {size}"
            print(title)
            setting = {"rounds": s.rounds, "cohort": s.cohort, "users": s.users, "times": s.times, "delta": s.delta}
            old = before.get(title, {})
            stored = old["noise"] if old and {key: old[key] for key in setting} == setting else {}
            scored_rows = noise_of_runs(f"headline-{name}-{size}")
            fresh = noise_table(name, s, arguments.rows, arguments.epsilons)
            noise = {row: stored.get(row, {}) | scored_rows.get(row, {}) | fresh.get(row, {}) for row in ROWS}
            found[title] = setting | {"noise": {row: values for row, values in noise.items() if values}}
        pictured = SETTINGS["fashion", "reduced"]
        harness.store("headline-noise", {"settings": found, "crossings": crossings("fashion", pictured)})
        print(harness.write_page("headline", page()))
        return
    name, size = arguments.data, arguments.size
    if (name, size) not in SETTINGS:
        sys.exit(f"{name} has no size {size}")
    s = SETTINGS[name, size]
    if name == "poems" and not arguments.base:
        sys.exit(f"poems needs --base SHA256 (benchmarks/claims/base.py {BASES[size]}): random weights learn nothing")
    if arguments.base:
        s = dataclasses.replace(s, task={**s.task, "base": arguments.base})
    rows = [r for r in arguments.rows if ROWS[r][0]["kind"] != "dense" or s.rounds <= DENSE_ROUNDS]
    study = harness.Study(f"headline-{name}-{size}", scored, s.score, s.higher, name)
    harness.data_hash(name)  # before minutes of certificates
    cells = cells_of(name, s, rows, arguments.epsilons, arguments.rates)
    chosen = arguments.cache / study.name / "choices.json"
    harness.tune(study, cells, chosen, arguments.cache)
    found = harness.score(study, cells, chosen, arguments.seeds, arguments.cache)
    stored = joined(study.name, name, size, s, found)
    print(harness.store(study.name, stored))
    (harness.ROOT / f"docs/evidence/{study.name}.svg").write_text(picture(stored))
    print(harness.write_page("headline", page()))


def joined(stored: str, name: str, size: str, s: Setting, found: harness.Table) -> harness.Table:
    """What is stored: the cells of this command, and those that were stored before of the same setting."""
    path, setting = harness.RESULTS / f"{stored}.json", json.loads(json.dumps(dataclasses.asdict(s)))
    setting = {key: value for key, value in setting.items() if key != "both" or value}  # older results lack it
    before = json.loads(path.read_text()) if path.is_file() else {}
    cells = before.get("cells", {}) if before.get("setting") == setting else {}
    by_row = list(ROWS)

    def order(label: str) -> tuple[int, float]:
        row, _, epsilon = label.rpartition(", epsilon ")
        return (by_row.index(row), float(epsilon)) if row else (len(by_row), 0.0)

    cells = {**cells, **found}
    return {
        **{"data": name, "size": size, "setting": setting},
        "crossing of noise": noise_crossing(name, s),
        **({"baselines": trivial} if (trivial := baselines(name)) else {}),
        **({"base": base_scores(s.task)} if "base" in s.task else {}),
        "cells": {label: cells[label] for label in sorted(cells, key=order)},
    }


def noise_crossing(name: str, s: Setting) -> float | None:
    """epsilon from which `nu` has less noise than amplified DP-SGD."""

    def noise(row: str) -> Callable[[float], float]:
        return lambda epsilon: prefix_noise(table_of(name, s, row, epsilon))

    return crossing(noise(POISSON), noise("nu"))


if __name__ == "__main__":
    main()
