"""Score against epsilon: correlated noise and amplified DP-SGD on real users (correlated-noise paper, figure 4).

    python benchmarks/claims/headline.py --noise-only                   noise alone, no training: a minute
    python benchmarks/claims/headline.py --data fashion --size small    an hour on two cores
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
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

import figure
import harness
import numpy as np
from numpy.typing import NDArray
from reductions import baselines, reduction

from fieldfare.errors import FieldfareError
from fieldfare.plan import Plan

EPSILONS = (1.0, 2.0, 4.0, 8.0)
DENSE_ROUNDS = 512
RATIO = 2.5

Sampling = str
POISSON, CYCLIC = "DP-SGD, Poisson (add_remove)", "banded, cyclic Poisson (add_remove)"
ALLOCATED = "independent, random allocation (add_remove)"
NU_BINS, BANDED_BINS = "nu, balls in bins (add_remove)", "banded, balls in bins (add_remove)"
ROWS: dict[str, tuple[harness.Table, Sampling]] = {
    POISSON: ({"kind": "independent"}, "poisson"),
    "independent": ({"kind": "independent"}, "apart"),
    "tree, online": ({"kind": "tree", "estimator": "online"}, "apart"),
    "optimal-cc": ({"kind": "optimal-cc"}, "apart"),
    "nu": ({"kind": "nu", "nu": "auto"}, "apart"),
    "blt": ({"kind": "blt"}, "apart"),
    "banded": ({"kind": "banded"}, "apart"),
    CYCLIC: ({"kind": "banded"}, "cyclic-poisson"),
    ALLOCATED: ({"kind": "independent"}, "random-allocation"),
    NU_BINS: ({"kind": "nu", "nu": "auto"}, "balls-in-bins"),
    BANDED_BINS: ({"kind": "banded"}, "balls-in-bins"),
    "dense": ({"kind": "dense"}, "apart"),
}
CYCLIC_BANDS = 4
"""Groups, and bands, of the row with cyclic Poisson sampling."""
NO_PRIVACY = "no privacy (clipped)"


@dataclass(frozen=True)
class Setting:
    """One column of the table in docs/evidence/headline.md."""

    task: harness.Table
    users: int
    rounds: int
    cohort: int
    separation: int
    delta: float
    clip: float
    momentum: float
    client: harness.Table
    centre: float
    """Learning rate x noise in the mean of a prefix, per coordinate, around which rates are tried."""
    largest: float
    """Effective rate (rate / (1 - momentum)) above which nothing is tried."""
    score: str
    higher: bool = True
    both: bool = False
    """Independent rows try each rate with momentum and without. False: once with momentum, at the middle rate."""

    @property
    def times(self) -> int:
        return -(-self.rounds // self.separation)

    @property
    def bins(self) -> int:
        """Rounds of a block in which each user takes part once."""
        return round(self.users / self.cohort)


GRADIENT = {"steps": 1, "batch_size": 1, "learning_rate": 1.0}
EPOCH = {"epochs": 1, "batch_size": 16, "learning_rate": 1.0}
SETTINGS: dict[tuple[str, str], Setting] = {
    ("fashion", "small"): Setting(
        {"model": "cnn-small", "users": 10_000},
        *(10_000, 200, 250, 40, 1e-5, 1.0, 0.9, GRADIENT, 0.12, 15.0, "accuracy"),
    ),
    ("fashion", "reduced"): Setting(
        {"model": "cnn-small"}, 50_000, 500, 500, 100, 1e-5, 1.0, 0.9, GRADIENT, 0.015, 5.0, "accuracy"
    ),
    ("fashion", "full"): Setting(
        {"model": "cnn"}, 50_000, 2000, 500, 100, 1e-5, 1.0, 0.9, GRADIENT, 0.015, 5.0, "accuracy"
    ),
    ("poems", "reduced"): Setting(
        {"width": 32, "most": 4}, 7_806, 60, 195, 40, 1e-5, 0.3, 0.9, EPOCH, 0.01, 30.0, "nats", False
    ),
    ("poems", "full"): Setting(
        {"width": 64, "most": 16}, 7_806, 400, 390, 20, 1e-5, 0.3, 0.95, EPOCH, 0.01, 10.0, "nats", False
    ),
    ("chess", "small"): Setting(
        {"users": 5_000}, 5_000, 100, 250, 20, 1e-5, 0.3, 0.9, GRADIENT, 0.2, 30.0, "auc", both=True
    ),
    ("chess", "reduced"): Setting(
        {}, 189_864, 100, 400, 100, 1e-6, 0.3, 0.95, {**EPOCH, "batch_size": 1}, 0.05, 10.0, "auc"
    ),
    ("chess", "full"): Setting(
        {}, 189_864, 1000, 1000, 189, 1e-6, 0.3, 0.95, {**EPOCH, "batch_size": 1}, 0.05, 10.0, "auc"
    ),
}


def table_of(name: str, s: Setting, row: str, epsilon: float) -> harness.Table:
    """The plan of a cell without its server optimizer."""
    mechanism, sampling = ROWS[row]
    if mechanism["kind"] == "banded":
        bands = CYCLIC_BANDS if sampling == "cyclic-poisson" else s.separation
        mechanism = {**mechanism, "bands": min(bands, s.rounds)}
    participation = {
        "poisson": {"scheme": "poisson", "rate": s.cohort / s.users},
        "cyclic-poisson": {
            **{"scheme": "cyclic-poisson", "groups": CYCLIC_BANDS},
            "rate": min(1.0, s.cohort * CYCLIC_BANDS / s.users),
        },
        "balls-in-bins": {"scheme": "balls-in-bins", "bins": s.bins},
        "random-allocation": {"scheme": "random-allocation", "bins": s.bins},
        "apart": {"scheme": "min-separation", "separation": s.separation, "max_participations": s.times},
    }[sampling]
    return {
        "privacy": {
            **{"population": name, "epsilon": epsilon, "delta": s.delta},
            "adjacency": "zero_out" if sampling == "apart" else "add_remove",
        },
        "run": {"task": name, "rounds": s.rounds, "cohort": s.cohort, "evaluate_every": s.rounds},
        "task": s.task,
        "participation": participation,
        "mechanism": mechanism,
        "clipping": {"kind": "flat", "norm": s.clip},
        "client": s.client,
    }


def with_rate(table: harness.Table, effective: float, momentum: float) -> harness.Table:
    optimizer = {"kind": "sgd", "learning_rate": effective * (1 - momentum), "momentum": momentum}
    schedule = {"kind": "cool-down", "share": 0.25, "final": 0.05}
    return {**table, "server_optimizer": {**optimizer, "schedule": schedule}}


def prefix_noise(table: harness.Table) -> float:
    """Root-mean-square noise of a prefix sum, per coordinate, clip norm 1; the charge is checked."""
    cost = harness.charged_cost(Plan.parse(table))
    return float(cost.noise_multiplier * np.sqrt(np.mean(np.square(cost.mechanism.prefix_row_norms()))))


def rates(s: Setting, noise: float, count: int) -> list[float]:
    """Effective rates, RATIO apart, centred by the noise alone: no score enters. One more at each end is spare."""
    centre = min(s.largest / RATIO ** (count // 2), s.centre * s.cohort / (noise * s.clip))
    return [centre * RATIO ** (index - count // 2) for index in range(-1, count + 1)]


def spares(count: int) -> harness.Spares:
    """The first and the last of `rates` wait until their neighbours are the best."""
    return (1, 0), (count, count + 1)


def cells_of(name: str, s: Setting, rows: list[str], epsilons: list[float], count: int) -> list[harness.Cell]:
    cells = []
    for row in rows:
        for epsilon in epsilons:
            table = table_of(name, s, row, epsilon)
            tried = rates(s, prefix_noise(table), count)
            # DP-SGD runs without momentum, as in the paper, and then with it.
            independent = ROWS[row][0]["kind"] == "independent"
            choices = [with_rate(table, rate, 0.0 if independent else s.momentum) for rate in tried]
            spare = spares(count)
            if independent:
                again = tried if s.both else [tried[len(tried) // 2]]
                choices += [with_rate(table, rate, s.momentum) for rate in again]
                spare += tuple((a + len(tried), b + len(tried)) for a, b in spares(count) if s.both)
            cells.append(harness.Cell(f"{row}, epsilon {epsilon:g}", tuple(choices), spare=spare, grid=len(tried)))
    free = table_of(name, s, "nu", 8.0) | {"mechanism": {"kind": "independent"}}
    tried = [s.largest / RATIO**index for index in range(count, -2, -1)]
    choices = tuple(with_rate(free, rate, s.momentum) for rate in tried)
    return [*cells, harness.Cell(NO_PRIVACY, choices, noiseless=True, spare=spares(count))]


def scored(choice: harness.Table, part: harness.Part, seed: int) -> harness.Table:
    return {**choice, "task": {**choice["task"], "scored": part}}


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
            fresh = noise_table(name, s, arguments.rows, arguments.epsilons)
            noise = {row: stored.get(row, {}) | fresh.get(row, {}) for row in ROWS}
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
        sys.exit("poems needs --base SHA256 (benchmarks/claims/base.py --width 32): random weights learn nothing here")
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
        "cells": {label: cells[label] for label in sorted(cells, key=order)},
    }


def noise_crossing(name: str, s: Setting) -> float | None:
    """epsilon from which `nu` has less noise than amplified DP-SGD."""

    def noise(row: str) -> Callable[[float], float]:
        return lambda epsilon: prefix_noise(table_of(name, s, row, epsilon))

    return crossing(noise(POISSON), noise("nu"))


# -- pages -------------------------------------------------------------------------------------------------------------


def page() -> str:
    """docs/evidence/headline.md: scores of every setting that was run, then noise alone."""
    shown = []
    for path in sorted(harness.RESULTS.glob("headline-*.json")):
        if path.stem != "headline-noise":
            stored = json.loads(path.read_text())
            shown.append(score_section(path.stem, stored))
    return f"""# Correlated noise against amplified DP-SGD

**Claim.** Correlated noise beats DP-SGD with amplification by sampling from epsilon 4 on, and DP-SGD wins below.

**Source.** Choquette-Choo et al. 2023 (arXiv 2310.06771), figure 4. Printed there: CIFAR-10 at epsilon 4, 63.02 (nu)
against 62.02 (DP-SGD); at epsilon 10, 69.26 (nu) against 70.83 (dense, several epochs). StackOverflow at epsilon 2,
23.6 (nu) against 22.6; at epsilon 8, 25.3.

**Two promises.** Rows marked *add_remove* hide whether a user is in the data at all, and need users who can be called
at any time, because the dice decide who takes part. The others hide the values that a user sends (*zero_out*): who
takes part is public. An epsilon of the one is not an epsilon of the other.

{chr(10).join(shown)}
{noise_section()}"""


def epsilons_of(stored: harness.Table) -> list[float]:
    return sorted({float(label.rpartition(", epsilon ")[2]) for label in stored["cells"] if label != NO_PRIVACY})


def picture(stored: harness.Table) -> str:
    """The figure: score against epsilon."""
    cells, epsilons = stored["cells"], epsilons_of(stored)
    rows = {
        row: {
            f"{e:g}": harness.interval(cells[label]["scores"])
            for e in epsilons
            if (label := f"{row}, epsilon {e:g}") in cells
        }
        for row in ROWS
    }
    level = (NO_PRIVACY, float(np.mean(cells[NO_PRIVACY]["scores"]))) if NO_PRIVACY in cells else None
    return figure.lines(
        {row: points for row, points in rows.items() if points},
        [f"{e:g}" for e in epsilons],
        level,
        axes=("epsilon", f"{stored['setting']['score']} on {stored['data']}, test"),
        dashed=[row for row in rows if "add_remove" in row],
    )


def score_section(name: str, stored: harness.Table) -> str:
    s, cells, epsilons = stored["setting"], stored["cells"], epsilons_of(stored)
    rows = [row for row in ROWS if any(f"{row}, epsilon {e:g}" in cells for e in epsilons)]

    def each(value: Callable[[str, float], str], of: list[str]) -> list[tuple[str, ...]]:
        return [(r, *(value(r, e) if f"{r}, epsilon {e:g}" in cells else "not run" for e in epsilons)) for r in of]

    def scores(row: str, epsilon: float) -> list[float]:
        return list(cells[f"{row}, epsilon {epsilon:g}"]["scores"])

    def shown(row: str, epsilon: float) -> str:
        return harness.show(scores(row, epsilon))

    def paired(row: str, epsilon: float) -> str:
        return harness.show([a - b for a, b in zip(scores(row, epsilon), scores("nu", epsilon), strict=True)])

    def noise(row: str, epsilon: float) -> str:
        return f"{cells[f'{row}, epsilon {epsilon:g}']['runs'][0]['prefix_noise_rms']:.2f}"

    header = ("row", *(f"epsilon {e:g}" for e in epsilons))
    command = f"python benchmarks/claims/headline.py --data {stored['data']} --size {stored['size']}"
    times = -(-s["rounds"] // s["separation"])
    seeds = len(cells[NO_PRIVACY]["scores"])
    rate, again = s["cohort"] / s["users"], "at each rate too" if s.get("both") else "in one more run"
    run = f"""**Run here.** {reduction(stored)}{s["rounds"]} rounds of {s["cohort"]} of {s["users"]:,} users,
{s["separation"]} rounds apart and so at most {times} times each; sampled rows call every user with probability {rate:g}
a round, or in one secret round of every {round(1 / rate)}: the same of each block (balls in bins) or a fresh one
(random allocation). Clip norm {s["clip"]:g}, delta {s["delta"]:g}. For each cell three server learning rates are tried,
2.5 apart around one that is proportional to 1 / noise (the factor was found with `nu` on tune users), and a fourth
where the first or last of the three is the best. Momentum is {s["momentum"]:g}; for independent rows it is 0, as in the
paper, and {s["momentum"]:g} {again}. Scored: {seeds} seeds on test users.
Without privacy, clipped: {harness.show(cells[NO_PRIVACY]["scores"])}. The intervals are over seeds; the test rows,
which all cells share, add their own."""
    if any(f"{row}, epsilon {e:g}" not in cells for row in rows for e in epsilons):
        run += " Cells that say *not run* were left out to save time (`--rows`, `--epsilons`)."
    if missing := [row for row in ROWS if row not in rows]:
        run += f" Rows that were not run: {', '.join(missing)}."
    return f"""## Scores: {stored["data"]}, {stored["size"]}

{textwrap.fill(" ".join(run.split()), 120, break_on_hyphens=False)}

![{s["score"]} against epsilon]({name}.svg)

{s["score"]}, mean and 95 % interval over seeds:

{harness.markdown_table(header, each(shown, rows))}

Difference to `nu`, paired by seed:

{harness.markdown_table(header, each(paired, [row for row in rows if row != "nu"]))}

Noise of these plans (root-mean-square of a prefix sum, per coordinate, clip norm 1):

{harness.markdown_table(header, each(noise, rows))}

**Verdict.**

{verdicts_of_scores(stored)}

{harness.footer(command, cells, True)}
"""


def score_crossing(stored: harness.Table) -> tuple[float | None, list[float | None]]:
    """(epsilon at which mean scores of `nu` and amplified DP-SGD cross, the same of each seed), by linear
    interpolation in log epsilon; None where nu is ahead or behind everywhere."""
    cells, epsilons = stored["cells"], epsilons_of(stored)
    sign = 1.0 if stored["setting"]["higher"] else -1.0
    ahead = np.array(
        [
            [
                sign * (a - b)
                for a, b in zip(
                    cells[f"nu, epsilon {e:g}"]["scores"], cells[f"{POISSON}, epsilon {e:g}"]["scores"], strict=True
                )
            ]
            for e in epsilons
        ]
    )

    def cross(values: NDArray[np.float64]) -> float | None:
        for at in range(len(epsilons) - 1):
            below, above = values[at], values[at + 1]
            if below < 0 <= above:
                share = -below / (above - below)
                return float(epsilons[at] * (epsilons[at + 1] / epsilons[at]) ** share)
        return None

    return cross(ahead.mean(1)), [cross(column) for column in ahead.T]


def verdicts_of_scores(stored: harness.Table) -> str:
    cells, epsilons, higher = stored["cells"], epsilons_of(stored), stored["setting"]["higher"]

    def of(row: str, epsilon: float) -> list[float] | None:
        cell = cells.get(f"{row}, epsilon {epsilon:g}")
        return None if cell is None else list(cell["scores"])

    def judged(what: str, better: str, worse: str, least: float = 0.0, below: float = math.inf) -> str:
        found = []
        for epsilon in epsilons:
            one, other = of(better, epsilon), of(worse, epsilon)
            if one and other and least <= epsilon < below:
                found.append(f"epsilon {epsilon:g} **{harness.verdict(one, other, higher)}**")
        return f"- {what}: {', '.join(found)}" if found else ""

    lines = [
        judged("`nu` above amplified DP-SGD from epsilon 4 on", "nu", POISSON, least=4.0),
        judged("amplified DP-SGD above `nu` below epsilon 4", POISSON, "nu", below=4.0),
        *(judged(f"`nu` above {row}", "nu", row) for row in ("optimal-cc", "tree, online", "independent")),
        *(judged(f"{row} above `nu`", row, "nu") for row in ("blt", "banded", "dense")),
        *(judged(f"{row} above amplified DP-SGD", row, POISSON) for row in (CYCLIC, ALLOCATED, NU_BINS, BANDED_BINS)),
        judged(f"{NU_BINS} above `nu`", NU_BINS, "nu"),
        judged(f"{BANDED_BINS} above banded", BANDED_BINS, "banded"),
    ]
    mean, seeds = score_crossing(stored)
    noise = stored["crossing of noise"]
    in_noise = "nowhere between 0.25 and 32" if noise is None else f"at epsilon {noise:.2f}"
    in_score = (
        f"nowhere between epsilon {epsilons[0]:g} and {epsilons[-1]:g}" if mean is None else f"at epsilon {mean:.2f}"
    )
    each = ", ".join("none" if value is None else f"{value:.2f}" for value in seeds)
    lines.append(
        f"- **Crossing** of `nu` and amplified DP-SGD: in score {in_score} (by seed: {each}; interpolated in log "
        f"epsilon), in noise {in_noise}"
    )
    return "\n".join(line for line in lines if line)


def noise_section() -> str:
    """Noise alone, from the stored results."""
    stored = json.loads((harness.RESULTS / "headline-noise.json").read_text())
    parts = []
    for title, setting in stored["settings"].items():
        epsilons = list(next(iter(setting["noise"].values())))
        least = {e: min(row[e] for row in setting["noise"].values()) for e in epsilons}
        rows = [
            (row, *(f"**{v[e]:.2f}**" if v[e] == least[e] else f"{v[e]:.2f}" for e in epsilons))
            for row, v in setting["noise"].items()
        ]
        head = (
            f"### {title}: {setting['rounds']} rounds of {setting['cohort']} of {setting['users']:,} users, at most "
            f"{setting['times']} times each, delta {setting['delta']:g}"
        )
        parts.append(f"{head}\n\n{harness.markdown_table(('row', *(f'epsilon {e}' for e in epsilons)), rows)}\n")
    crossed = [
        (times, "none between 0.25 and 32" if value is None else f"{value:.2f}")
        for times, value in stored["crossings"].items()
    ]
    pictured = stored["settings"]["fashion, reduced"]
    return f"""## Noise alone

**Run here.** No training: the root-mean-square noise of a prefix sum, per coordinate, at clip norm 1 and at the exact
charge of each plan. The least of each column is bold.

{chr(10).join(parts)}
### Where the two cross

epsilon from which `nu` has less noise than amplified DP-SGD, at {pictured["rounds"]} rounds of
{pictured["cohort"]} users, when a user takes part this often:

{harness.markdown_table(("participations", "crossing epsilon"), crossed)}

**Verdict.** {verdict_of_noise(stored)}
Scores may cross elsewhere, because momentum and clipping treat white noise and negatively correlated noise differently.

`python benchmarks/claims/headline.py --noise-only`; deterministic, no seeds. Scores of settings that have no section
above have their commands (`--data`, `--size`), need hours to days, and were **not run**.
"""


def verdict_of_noise(stored: harness.Table) -> str:
    lines = []
    for title, setting in stored["settings"].items():
        noise = setting["noise"]
        amplified = noise[POISSON]
        ahead = [e for e in amplified if min(noise["nu"][e], noise["blt"][e]) < amplified[e]]
        lines.append(f"- {title}: " + (f"from epsilon {ahead[0]} on" if ahead else "nowhere up to epsilon 8"))
    return (
        "In noise, nu or blt is ahead of amplified DP-SGD at these of the epsilons above:\n\n" + "\n".join(lines) + "\n"
    )


if __name__ == "__main__":
    main()
