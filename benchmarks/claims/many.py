"""The headline's grids with many seeds, and the runs of the attack, on a machine with many cores.

    python benchmarks/claims/many.py --processes 16 --seconds 540 --out FOLDER      call it again to go on
    python benchmarks/claims/many.py --out FOLDER --tiny                            every part, in a minute or two
    python benchmarks/claims/many_results.py --out FOLDER --commit NAME             what is stored and shown of it

Parts, in this order: fashion small, 12 rows, 12 seeds; the attack's shadow models; DP-SGD at other splits of rounds and
cohort; chess small, 12 seeds; chess with 50 000 people and fashion at the paper's rounds and cohort, six rows, 12
seeds, on a GPU where there is one. `--parts` names those that are made. Of each grid every cell is tuned first, as
`headline.py` tunes, and then its seeds follow one by one, so that a cut leaves whole seeds. No run is begun that would
not end in time.

FOLDER gets `runs.jsonl`, a line a run, written as it ends, and `attack.npz`. A process has one thread. A row with a
certificate stays in one process, which prices it once.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import attack
import harness
import headline_plans as plans
import torch

RATES = 3
SIX = (plans.POISSON, plans.ALLOCATED, plans.NU_BINS, "tree, online", "nu", "banded")
LARGE = ("people", "full")
"""Sizes whose rounds a GPU makes several times as fast."""
OWNED = ("balls-in-bins",)
"""Schemes whose price takes long: one process has all runs of such a cell."""


@dataclass(frozen=True)
class Job:
    """One run. place: in the choices of its cell, or the number of a shadow model."""

    study: str
    label: str
    part: str
    seed: int
    place: int


@dataclass
class Grid:
    """A grid of the headline: cells that are tuned, then scored seed by seed."""

    data: str
    size: str
    rows: tuple[str, ...]
    seeds: int
    setting: plans.Setting
    device: str = "cpu"
    found: dict[Job, harness.Table] = field(default_factory=dict)
    priced: dict[str, harness.Cell] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{'splits' if self.is_split else 'headline'}-{self.data}-{self.size}"

    @property
    def study(self) -> harness.Study:
        return harness.Study(self.name, plans.scored, self.setting.score, self.setting.higher, self.data)

    @cached_property
    def shapes(self) -> list[harness.Cell]:
        """The cells, with rates that are not those of their price: how many choices there are, and which wait."""
        cells = [
            plans.cell_of(self.data, self.setting, row, epsilon, RATES, 1.0)
            for row in self.rows
            for epsilon in plans.EPSILONS
        ]
        # At 100 rounds too few users are there to fill rounds that are not sampled, and no line needs the others.
        return cells if self.is_split else [*cells, plans.free_cell(self.data, self.setting, RATES)]

    @property
    def is_split(self) -> bool:
        return "-" in self.size

    def tune_scores(self, cell: harness.Cell) -> list[float | None]:
        jobs = [Job(self.name, cell.label, "tune", harness.TUNING_SEED, place) for place in range(len(cell.choices))]
        records = [self.found.get(job) for job in jobs]
        return [None if one is None else one["scores"].get(self.setting.score, math.nan) for one in records]

    def waiting(self) -> Iterator[Job]:
        """Runs that can be made now, the first ones first; runs that are being made are among them."""
        cells, chosen = self.shapes, {}
        for cell in cells:
            scores = self.tune_scores(cell)
            places = harness.untried(cell, scores, self.setting.higher)
            yield from (Job(self.name, cell.label, "tune", harness.TUNING_SEED, place) for place in places)
            if not places:
                chosen[cell.label] = harness.choice_of(cell, scores, self.setting.higher)["choice"]
        for seed in range(harness.FIRST_SEED, harness.FIRST_SEED + self.seeds):
            for label, place in chosen.items():
                job = Job(self.name, label, "test", seed, place)
                if job not in self.found:
                    yield job

    def make(self, job: Job) -> tuple[harness.Table, Any]:
        if job.label not in self.priced:
            self.priced[job.label] = self._cell(job.label)
        cell = self.priced[job.label]
        os.environ["FIELDFARE_DEVICE"] = self.device
        plan = self.study.plan(cell.choices[job.place], job.part, job.seed)  # type: ignore[arg-type]
        return harness.run(harness.Plan.parse(plan), job.seed, cell.noiseless)[0], None

    def _cell(self, label: str) -> harness.Cell:
        row, _, epsilon = label.rpartition(", epsilon ")
        if not row:
            return plans.free_cell(self.data, self.setting, RATES)
        noise = plans.prefix_noise(plans.table_of(self.data, self.setting, row, float(epsilon)))
        return plans.cell_of(self.data, self.setting, row, float(epsilon), RATES, noise)

    def result(self) -> dict[str, harness.Table]:
        """{label: choice, runs and scores} of the seeds that every cell has."""
        made: dict[str, harness.Table] = {}
        for cell in self.shapes:
            scores = self.tune_scores(cell)
            if not harness.untried(cell, scores, self.setting.higher):
                made[cell.label] = harness.choice_of(cell, scores, self.setting.higher)
        by_seed = {
            seed: [self.found.get(Job(self.name, label, "test", seed, one["choice"])) for label, one in made.items()]
            for seed in range(harness.FIRST_SEED, harness.FIRST_SEED + self.seeds)
        }
        whole = [records for records in by_seed.values() if all(records)] if len(made) == len(self.shapes) else []
        return {
            label: {
                **one,
                "runs": (runs := [records[at] for records in whole]),
                "scores": [run["scores"][self.setting.score] for run in runs if run],
            }
            for at, (label, one) in enumerate(made.items())
            if whole
        }


@dataclass
class Shadows:
    """The attack's models."""

    setting: attack.Setting
    models: int
    found: dict[Job, harness.Table] = field(default_factory=dict)
    seen: dict[Job, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"attack-{self.setting.name}"

    def waiting(self) -> Iterator[Job]:
        for number in range(self.models):
            for label in attack.EPSILONS:
                if (job := Job(self.name, label, "test", attack.FIRST_SEED + number, number)) not in self.found:
                    yield job

    def make(self, job: Job) -> tuple[harness.Table, Any]:
        return attack.shadow(self.setting, job.label, job.place, job.seed)


Part = Grid | Shadows


def parts_of(tiny: bool) -> list[Part]:
    """Everything that is run, in order."""

    def grid(data: str, size: str, rows: tuple[str, ...], seeds: int) -> Grid:
        s = plans.SETTINGS[data, size]
        if tiny:
            task = {key: 400 if key == "users" else value for key, value in s.task.items()}
            shape = {"users": 400, "rounds": 8, "cohort": 100, "separation": 2}
            s, rows, seeds = dataclasses.replace(s, task=task, **shape), rows[:1] + rows[-1:] + rows[2:3], 2
        device = "cuda" if size in LARGE and torch.cuda.is_available() else "cpu"
        return Grid(data, size, tuple(dict.fromkeys(rows)), seeds, s, device)

    return [
        grid("fashion", "small", tuple(plans.ROWS), 12),
        *(Shadows(setting.tiny() if tiny else setting, 3 if tiny else 64) for setting in attack.SETTINGS),
        *(grid("fashion", f"small-{rounds}x{cohort}", (plans.POISSON,), 12) for rounds, cohort in plans.SPLITS),
        grid("chess", "small", tuple(plans.ROWS), 12),
        grid("chess", "people", SIX, 12),
        grid("fashion", "full", SIX, 12),
    ]


# -- processes ---------------------------------------------------------------------------------------------------------


def _work(pipe: Connection, tiny: bool) -> None:
    """Make runs for the first process, until it closes its end."""
    torch.set_num_threads(1)
    parts = {part.name: part for part in parts_of(tiny)}
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((*parts[job.study].make(job), ""))
        except Exception as error:  # one cell that fails must not end the others
            pipe.send((None, None, repr(error)[:500]))


@dataclass
class Worker:
    number: int
    pipe: Connection
    job: Job | None = None
    since: float = 0.0


def owner(job: Job, processes: int) -> int | None:
    """The only process that makes this run; None: any."""
    row, _, epsilon = job.label.rpartition(", epsilon ")
    if row not in plans.ROWS or plans.ROWS[row][1] not in OWNED:
        return None
    cells = [(one, e) for one, (_, scheme) in plans.ROWS.items() if scheme in OWNED for e in plans.EPSILONS]
    return cells.index((row, float(epsilon))) % processes


class Pool:
    """Processes that make runs until time is up."""

    def __init__(self, parts: list[Part], given: argparse.Namespace) -> None:
        self.parts, self.given, self.until = parts, given, time.monotonic() + given.seconds
        self.walls: dict[str, list[float]] = {}
        self.failed: dict[Job, str] = {}
        self.workers = []
        context = get_context("spawn")
        for number in range(given.processes):
            mine, theirs = context.Pipe()
            context.Process(target=_work, args=(theirs, given.tiny), daemon=True).start()
            theirs.close()
            self.workers.append(Worker(number, mine))

    def expected(self, study: str) -> float:
        """Seconds of a run, on the safe side."""
        walls = self.walls.get(study, [])[-40:]
        return 1.3 * max(walls) if walls else 0.1 * self.given.seconds

    def next_of(self, worker: Worker) -> Job | None:
        left = self.until - time.monotonic()
        busy = {one.job for one in self.workers}
        for part in self.parts:
            if self.expected(part.name) > left:
                continue
            for job in part.waiting():
                free = job not in busy and job not in self.failed
                if free and owner(job, len(self.workers)) in (None, worker.number):
                    return job
        return None

    def run(self, lines: Path) -> None:
        by_name, began, told = {part.name: part for part in self.parts}, time.monotonic(), 0.0
        with lines.open("a", encoding="utf-8") as stored:
            while time.monotonic() < self.until:
                for worker in self.workers:
                    if worker.job is None and (job := self.next_of(worker)):
                        worker.job, worker.since = job, time.monotonic()
                        worker.pipe.send(job)
                busy = {worker.pipe: worker for worker in self.workers if worker.job}
                if not busy:
                    break
                for pipe in wait(list(busy), timeout=max(0.0, min(5.0, self.until - time.monotonic()))):
                    worker = busy[pipe]  # type: ignore[index]
                    job, worker.job = worker.job, None
                    if job is None:
                        continue
                    record, seen, error = worker.pipe.recv()
                    if error:
                        self.failed[job] = error
                        if len(self.failed) <= 20:
                            print(f"FAILED {job}: {error}", flush=True)
                        continue
                    self.walls.setdefault(job.study, []).append(time.monotonic() - worker.since)
                    part = by_name[job.study]
                    part.found[job] = record
                    if isinstance(part, Shadows):
                        part.seen[job] = seen
                    stored.write(json.dumps({"job": dataclasses.asdict(job), "record": record}) + "\n")
                    stored.flush()
                if time.monotonic() - told > 20:
                    told = time.monotonic()
                    print(f"{told - began:.0f} s, load {os.getloadavg()[0]:.0f}: {self.state()}", flush=True)
        print(f"{time.monotonic() - began:.0f} s: {self.state()}; {len(self.failed)} failed", flush=True)

    def state(self) -> str:
        said = []
        for part in self.parts:
            walls = self.walls.get(part.name, [])
            mean = f", {sum(walls) / len(walls):.1f} s each" if walls else ""
            said.append(f"{part.name} {len(part.found)}{mean}")
        return "; ".join(said)


def read(parts: list[Part], folder: Path) -> None:
    """Give the parts what is stored in the folder."""
    by_name = {part.name: part for part in parts}
    if (lines := folder / "runs.jsonl").is_file():
        for line in lines.read_text(encoding="utf-8").splitlines():
            stored = json.loads(line)
            job = Job(**stored["job"])
            if job.study in by_name:
                by_name[job.study].found[job] = stored["record"]
    shadows = [part for part in parts if isinstance(part, Shadows)]
    for part in shadows:
        part.seen = {job: seen for job, seen in attack.load(folder, part.name, Job).items() if job in part.found}
        part.found = {job: record for job, record in part.found.items() if job in part.seen}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=540.0, help="after which nothing is made any more")
    parser.add_argument("--out", type=Path, required=True, help="folder of what is made, and of what was made before")
    parser.add_argument("--tiny", action="store_true", help="every part at a size that says nothing")
    parser.add_argument("--parts", nargs="+", metavar="NAME", help="of those: headline-chess-small, ...")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    parts = [part for part in parts_of(given.tiny) if given.parts is None or part.name in given.parts]
    read(parts, given.out)
    for name in ("fashion", "chess"):
        harness.data_hash(name)
    pool = Pool(parts, given)
    try:
        pool.run(given.out / "runs.jsonl")
    finally:
        attack.save(given.out, {part.name: part.seen for part in parts if isinstance(part, Shadows)})


if __name__ == "__main__":
    main()
