"""What every claim's command shares: runs by cache, tuning before scoring, intervals, verdicts.

A study is a list of cells; a cell is a list of choices (learning rates, clip norms, ...), each a whole plan. `tune`
runs every choice once on the tuning seed, scored on *tune* users, and freezes the best in a file. `score` takes that
file and nothing else, and runs the chosen plans on other seeds, scored on *test* users. All are uncharged rehearsals.

Each run is stored when it ends, so that Ctrl-C loses at most one. Its key is the plan's digest, the seed, the hash of
the data and the digests of the code that makes its bits (`bits.py`).
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import bits
import kernels  # before PyTorch
import numpy as np
import torch
from one_pass import one_pass
from scipy.stats import t as student

from fieldfare.cost import Cost
from fieldfare.costing import cost_of
from fieldfare.plan import Plan
from fieldfare_client.app import app
from fieldfare_client.simulation import LocalGrid
from fieldfare_client.sources import data_folder
from fieldfare_server.run.rehearsal import Rehearsal
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session, seeded_key

Table = dict[str, Any]
Spares = tuple[tuple[int, int], ...]
Part = Literal["tune", "test"]
TUNING_SEED, FIRST_SEED = 1, 1000
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks/results/claims"
Verdict = Literal["holds", "holds weakly", "does not hold here", "undecided"]


@dataclass(frozen=True)
class Cell:
    """One row or point of a figure: the plans among which tuning chooses, in the order of its grid."""

    label: str
    choices: tuple[Table, ...]
    """Whole plan tables without what `Study.plan` adds."""
    noiseless: bool = False
    """Scale the noise to nothing: the row without privacy."""
    spare: Spares = ()
    """(a place in `choices`, another one that is tried only where the first is the best so far)."""
    grid: int = 0
    """Length of each grid of rates in `choices`, whose ends are edges. 0: all are one grid."""


@dataclass(frozen=True)
class Study:
    """What a claim's command runs."""

    name: str
    plan: Callable[[Table, Part, int], Table]
    """(choice, part, seed) -> plan table: names the users that are scored, and a draw of made-up data."""
    score: str
    """A key of the task's scores."""
    higher: bool = True
    data: str = ""
    """The fetched data set whose hash is part of a run's key."""


def options(description: str, seeds: int = 3, more: Callable[[argparse.ArgumentParser], None] | None = None) -> Any:
    """Parse the options that every command has: `--seeds`, `--cache`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=seeds, help="scored seeds, 1000, 1001, ...")
    parser.add_argument("--cache", type=Path, default=ROOT / "benchmarks/claims/cache", help="where runs are kept")
    if more:
        more(parser)
    return parser.parse_args()


class Runs:
    """Runs by cache, with progress on standard error."""

    def __init__(self, study: Study, cache: Path, total: int, quiet: bool = False) -> None:
        self.study, self.cache, self.total, self.quiet = study, cache / study.name, total, quiet
        self.done, self.seconds, self.fresh = 0, 0.0, 0

    def get(self, cell: Cell, choice: Table, part: Part, seed: int) -> Table:
        """The record of one run, from the cache or made now."""
        plan = Plan.parse(self.study.plan(choice, part, seed))
        code = " ".join(bits.digests().values())
        key = _sha(f"{plan.digest()} {seed} {cell.noiseless} {data_hash(self.study.data)} {code}")
        path = self.cache / f"{key[:32]}.json"
        if path.is_file():
            record: Table = json.loads(path.read_text())
        else:
            record, _ = run(plan, seed, cell.noiseless)
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = path.with_suffix(".part")
            fresh.write_text(json.dumps(record, indent=1) + "\n")
            fresh.replace(path)
            self.seconds, self.fresh = self.seconds + record["wall_seconds"], self.fresh + 1
        self.done += 1
        if not self.quiet:
            left = (self.total - self.done) * self.seconds / self.fresh if self.fresh else 0.0
            name, value = self.study.score, record["scores"].get(self.study.score, math.nan)
            print(
                f"[{self.done}/{self.total}] {cell.label:40} seed {seed:<5} {name} {value:.4f}   ~{left:.0f} s left",
                file=sys.stderr,
                flush=True,
            )
        return record

    def made(self, cell: Cell, choice: Table, part: Part, seed: int) -> Table:
        """The record of one run that is made now, whatever is in the cache."""
        data_hash(self.study.data)  # ends the command where the data are not there
        return run(Plan.parse(self.study.plan(choice, part, seed)), seed, cell.noiseless)[0]


def alone(plan: Plan) -> Plan:
    """The plan with one process: several would add their sums in the order of a clock's choice, and move last bits."""
    return plan.model_copy(update={"client": plan.client.model_copy(update={"workers": 1})})


def run(plan: Plan, seed: int, noiseless: bool = False) -> tuple[Table, torch.Tensor]:
    """Train now: (the record of the run, the parameters at its end)."""
    cost = charged_cost(plan, noiseless)
    wall, cpu = time.perf_counter(), time.process_time()
    with Session(alone(plan), cost, Rehearsal(), None, seeded_key(seed)) as session, one_pass():
        FieldfareStrategy(session).start(LocalGrid(app, 1, {"task": plan.task_reference}))
    scores = {name: float(value) for name, value in session.released.score.items()}
    record = {
        "plan": plan.digest(),
        "seed": seed,
        "scores": scores,
        "model": hashlib.sha256(session.released.params.cpu().numpy().tobytes()).hexdigest()[:16],
        "noise_multiplier": cost.noise_multiplier,
        "epsilon": None if noiseless else cost.epsilon,
        "delta": plan.privacy.delta,
        "adjacency": plan.privacy.adjacency,
        "scheme": plan.participation.scheme,
        "prefix_noise_rms": float(np.sqrt(np.mean(np.square(cost.mechanism.prefix_row_norms()))))
        * cost.noise_multiplier,
        "cpu_seconds": time.process_time() - cpu,
        "wall_seconds": time.perf_counter() - wall,
        "load": os.getloadavg()[0],
        "commit": commit(),
        "code": bits.digests(),
        "versions": f"Python {platform.python_version()}, torch {torch.__version__}, {_device()}",
    }
    return record, session.released.params


def _device() -> str:
    on_gpu = os.environ.get("FIELDFARE_DEVICE", "").startswith("cuda")
    return torch.cuda.get_device_name() if on_gpu else kernels.named()


def trained(plan: Plan, seed: int) -> torch.Tensor:
    """The parameters at the end of a run of the plan without noise."""
    cost = dataclasses.replace(cost_of(plan), noise_multiplier=1e-6)
    with Session(alone(plan), cost, Rehearsal(), None, seeded_key(seed)) as session, one_pass():
        FieldfareStrategy(session).start(LocalGrid(app, 1, {"task": plan.task_reference}))
    return session.released.params


def charged_cost(plan: Plan, noiseless: bool = False) -> Cost:
    """The plan's cost, computed once for all its learning rates and seeds; noiseless: with next to no noise.

    Raises ValueError unless the plan's epsilon is charged (`require_charged`).
    """
    # Neither the seed of made-up data nor the learning rate is part of a cost.
    known = json.dumps([plan.privacy.model_dump(), plan.mechanism.model_dump(), plan.participation.model_dump()])
    key = _sha(f"{known} {plan.run.rounds}")
    cost = _COSTS.get(key)
    if cost is None:
        cost = _COSTS[key] = cost_of(plan)
    if plan.privacy.epsilon is not None and not noiseless:
        require_charged(cost)
    return dataclasses.replace(cost, plan=plan, **({"noise_multiplier": 1e-6} if noiseless else {}))


_COSTS: dict[str, Cost] = {}
CERTIFIED = 5e-3
"""How much less than its epsilon a certified plan may be charged: what the noise has in reserve for the certificate."""


def require_charged(cost: Cost) -> None:
    """Raise ValueError unless the plan's epsilon is charged: never more, and at most 1e-4 of it less, which is what the
    search for a sampled plan's noise leaves, or `CERTIFIED`."""
    target, slack = cost.plan.privacy.epsilon, CERTIFIED if cost.plan.participation.scheme == "balls-in-bins" else 1e-4
    if target is None or not target * (1 - slack) <= cost.epsilon <= target * (1 + 1e-9):
        raise ValueError(f"the plan's epsilon is {target}, and {cost.epsilon} is charged")


def _best(scores: Sequence[float | None], higher: bool) -> int:
    """The place of the best tune score, the first of several; what is not finite is never the best."""

    def rank(place: int) -> float:
        value = scores[place]
        if value is None or not math.isfinite(value):
            return -math.inf
        return value if higher else -value

    return max(range(len(scores)), key=rank)


def untried(cell: Cell, scores: Sequence[float | None], higher: bool = True) -> list[int]:
    """Places that tuning tries next, given the tune scores so far (None: not tried): none where it has ended."""
    spare = {place for _, place in cell.spare}
    first = [place for place, value in enumerate(scores) if value is None and place not in spare]
    best = _best(scores, higher)
    return first or [place for neighbour, place in cell.spare if neighbour == best and scores[place] is None]


def choice_of(cell: Cell, scores: Sequence[float | None], higher: bool = True) -> Table:
    """What is frozen of a cell once tuning has ended."""
    best = _best(scores, higher)
    tried = [place for place, value in enumerate(scores) if value is not None]
    tried = [place for place in tried if not cell.grid or place // cell.grid == best // cell.grid]
    return {
        "choice": best,
        "tune_scores": [None if value is None or not math.isfinite(value) else value for value in scores],
        "edge": len(scores) > 1 and best in (tried[0], tried[-1]),
    }


def tune(study: Study, cells: Sequence[Cell], chosen: Path, cache: Path, quiet: bool = False) -> Table:
    """Choose for each cell on tune users, and freeze what was chosen in the file `chosen`.

    The best tune score wins, ties go to the earlier choice; a run that is not finite never wins. Where the best has a
    spare neighbour, that is tried too. The file says which cells ended at an edge, on the first or last that was tried.
    """
    runs = Runs(study, cache, sum(len(cell.choices) for cell in cells), quiet)
    frozen: Table = {}
    for cell in cells:
        scores: list[float | None] = [None] * len(cell.choices)
        while waiting := untried(cell, scores, study.higher):
            for place in waiting:
                record = runs.get(cell, cell.choices[place], "tune", TUNING_SEED)
                scores[place] = record["scores"].get(study.score, math.nan)
        frozen[cell.label] = choice_of(cell, scores, study.higher)
    chosen.parent.mkdir(parents=True, exist_ok=True)
    before = json.loads(chosen.read_text()) if chosen.is_file() else {}
    chosen.write_text(json.dumps(before | frozen, indent=1) + "\n")  # of other parts of the grid, too
    return frozen


def score(study: Study, cells: Sequence[Cell], chosen: Path, seeds: int, cache: Path, quiet: bool = False) -> Table:
    """Score the frozen choices on test users with `seeds` other seeds: {label: {"choice", "runs", "scores", ...}}.

    Raises FileNotFoundError before tuning has ended.
    """
    frozen = json.loads(chosen.read_text())
    runs = Runs(study, cache, seeds * len(cells), quiet)
    found: Table = {}
    for cell in cells:
        choice = cell.choices[frozen[cell.label]["choice"]]
        records = [runs.get(cell, choice, "test", FIRST_SEED + index) for index in range(seeds)]
        found[cell.label] = {
            **frozen[cell.label],
            "runs": records,
            "scores": [record["scores"][study.score] for record in records],
        }
    return found


def interval(values: Sequence[float]) -> tuple[float, float]:
    """(mean, half width of Student's 95 % interval); infinite with fewer than two values."""
    if len(values) < 2:
        return float(np.mean(values)), math.inf
    half = float(student.ppf(0.975, len(values) - 1)) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return float(np.mean(values)), half


def verdict(claimed: Sequence[float], against: Sequence[float], higher: bool = True) -> Verdict:
    """Whether `claimed` beats `against`, paired by seed.

    "holds": the paired 95 % interval is above 0. "holds weakly": every seed has the claimed sign, but the interval
    reaches 0. "does not hold here": the interval is below 0. Otherwise, and from a single seed, "undecided".
    """
    sign = 1.0 if higher else -1.0
    differences = [sign * (a - b) for a, b in zip(claimed, against, strict=True)]
    mean, half = interval(differences)
    if not math.isfinite(half):
        return "undecided"
    if mean - half > 0:
        return "holds"
    if mean + half < 0:
        return "does not hold here"
    return "holds weakly" if min(differences) > 0 else "undecided"


def show(values: Sequence[float], digits: int = 4) -> str:
    """mean +- half width."""
    mean, half = interval(values)
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def footer(command: str, found: Mapping[str, Table], tuned: bool) -> str:
    """How a figure was made: command, commit, seeds, CPU time, load, versions."""
    records = [record for cell in found.values() for record in cell["runs"]]
    seeds = sorted({record["seed"] for record in records})
    cpu = sum(record["cpu_seconds"] for record in records)
    loads = [record["load"] for record in records]
    commits = ", ".join(sorted({record["commit"] for record in records}))
    edges = sum(bool(cell.get("edge")) for cell in found.values())
    lines = [
        f"`{command}`; commit {commits}; seeds {', '.join(map(str, seeds))}; {len(records)} scored runs of "
        f"{cpu / len(records):.2g} CPU seconds (one thread, load {min(loads):.0f} to {max(loads):.0f}); "
        f"{records[0]['versions']}. Intervals: Student's t over seeds, 95 %.",
        "Uncharged rehearsals: nothing here was paid for from a budget, and none of these models is private.",
    ]
    if tuned:
        lines.append(
            f"Settings were chosen on one other seed and on users that are not scored; {edges} of {len(found)} cells "
            "ended at an edge of their grid. Tuning is not charged; charging it would cost as many runs as were tried."
        )
    return "\n".join(lines)


def store(name: str, content: Table) -> Path:
    """Write benchmarks/results/claims/NAME.json."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def write_page(name: str, text: str) -> Path:
    """Write benchmarks/results/claims/NAME.md; docs/evidence says what follows from it."""
    path = RESULTS / f"{name}.md"
    path.write_text(text.rstrip() + "\n")
    return path


def commit() -> str:
    """The checkout's commit, with a plus where files differ from it."""

    def ask(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    changed = ask("status", "--porcelain", "--untracked-files=no", "shared", "server", "client")
    return (ask("rev-parse", "--short", "HEAD") or "unknown") + ("+" if changed else "")


def data_hash(name: str) -> str:
    """Of a fetched data set's tables; ends the command where they are not there."""
    if not name:
        return ""
    folder = data_folder()
    path = None if folder is None else folder / f"{name}.json"
    if path is None or not path.is_file():
        sys.exit(f"needs the data: FIELDFARE_DATA=FOLDER fieldfare data fetch {name}")
    return _sha(json.dumps(json.loads(path.read_text())["tables"], sort_keys=True))


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
