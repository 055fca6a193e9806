"""What looks cost in time: a metric's part of a round's processor time, and a question to 1 000 simulated users.

    OMP_NUM_THREADS=1 python benchmarks/looks.py [--out benchmarks/results/looks.md]

A metric's part is the time of its own code in a whole run (on nodes where it is measured, and on the server where it is
read), as a share of all the rest of the run: the median of five runs. A question is asked four times in one process:
the first time imports what a question needs. `fieldfare ask` is a process of its own each time, in a directory of
`fieldfare init`; the first one, which is not shown, keeps the bytecode of what it imports.
"""

from __future__ import annotations

import argparse
import functools
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import fieldfare as ff
from fieldfare.questions import parse
from fieldfare.questions.items import Items

RUNS: dict[str, dict[str, Any]] = {
    "digits": {"parameters": {"users": 1000}, "cohort": 100, "rounds": 40, "separation": 8, "times": 5},
    "flights": {"cohort": 200, "rounds": 20, "separation": 2, "times": 10},
}
FILE = """
[question]
kind = "quantile"
measure = "rows"
low = 0
high = 60
bins = 60
[run]
task = "csv_task:CsvTask"
[privacy]
population = "example"
epsilon = 0.1
delta = 1e-5
"""
QUESTION = {"kind": "quantile", "measure": "rows", "low": 0, "high": 60, "bins": 60, "at": [0.2, 0.5, 0.8]}


def metric_share(task: str) -> tuple[float, float, float]:
    """Of one metric in a run of `task`: ms a round, microseconds a user, and its share of the rest in per cent."""
    from fieldfare_client.training.measures import Measures  # PyTorch, which the first question is to import
    from fieldfare_server.run.round.ridden import RiddenMetrics

    spent = 0.0

    def timed(owner: type, name: str) -> Any:
        call = getattr(owner, name)

        @functools.wraps(call)
        def within(*arguments: Any) -> Any:
            nonlocal spent
            began = time.thread_time()
            try:
                return call(*arguments)
            finally:
                spent += time.thread_time() - began

        setattr(owner, name, within)
        return call

    made = dict(RUNS[task])
    apart = {"separation": made.pop("separation"), "max_participations": made.pop("times")}
    metrics = {"show": {"correct": [0, 1]}, "weight": 0.1}
    plan = ff.Plan(
        task=task,
        epsilon=8,
        delta=1e-5,
        mechanism="blt",
        metrics=metrics,
        participation={"scheme": "min-separation", **apart},
        **made,
    )
    names = [(Measures, "__call__"), (RiddenMetrics, "__init__"), (RiddenMetrics, "add"), (RiddenMetrics, "read")]
    kept = [(owner, name, timed(owner, name)) for owner, name in names]
    began = time.process_time()
    with tempfile.TemporaryDirectory() as home:
        ff.simulate(plan, population="people", budget=50, ledger=home, progress=False)
    whole = time.process_time() - began
    for owner, name, call in kept:
        setattr(owner, name, call)
    rounds, cohort = made["rounds"], made["cohort"]
    return 1e3 * whole / rounds, 1e6 * spent / rounds / cohort, 100 * spent / (whole - spent)


def metric_row(task: str, runs: int = 5) -> str:
    """A row of the table."""
    rounds, users, shares = np.array([metric_share(task) for _ in range(runs)]).T
    share = f"{np.median(shares):.1f} % ({shares.min():.1f} to {shares.max():.1f})"
    cohort = RUNS[task]["cohort"]
    return f"| {task}, {cohort} users a round | {np.median(rounds):.1f} | {np.median(users):.1f} | {share} |"


def asked() -> str:
    """A row of the table: a question to 1 000 users."""
    began, wall = time.process_time(), time.time()
    ff.ask(QUESTION, task="digits", parameters={"users": 1000}, population="p", budget=8, epsilon=1.0, delta=1e-5)
    return f"{time.process_time() - began:.2f} ({time.time() - wall:.2f})"


def commanded(times: int = 5) -> list[str]:
    """Seconds of processor of `fieldfare ask` for 1 000 people, and of importing PyTorch and nothing else."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    fieldfare = [str(Path(sys.executable).parent / "fieldfare")]

    def spent(command: list[str], directory: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=directory, env=environment, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    with tempfile.TemporaryDirectory() as home:
        environment["FIELDFARE_HOME"] = home
        spent([*fieldfare, "init", "people"], home)
        (Path(home) / "people/question.toml").write_text(FILE)
        asks = [spent([*fieldfare, "ask", "question.toml"], f"{home}/people") for _ in range(times + 1)][1:]
        imports = [spent([sys.executable, "-c", "import os, torch; os._exit(0)"], home) for _ in range(times)]
    return [f"{min(each):.2f} to {max(each):.2f}" for each in (asks, imports)]


def words(users: int = 1000, draws: int = 300, law: int = 2000) -> str:
    """What a question of kind items tells of words whose frequencies follow Zipf's law, one word a user."""
    question = parse({"kind": "items", "measure": "word", "words": True, "leak": 1e-7}).of_users(users)
    assert isinstance(question, Items)
    draw, sigma, chances = np.random.default_rng(7), 3.73, 1 / np.arange(1, law + 1)
    found = np.zeros(7)
    for _ in range(draws):
        counts = draw.multinomial(users, chances / chances.sum())
        counts = counts[counts > 0]
        noised = question.shown(counts + sigma * draw.standard_normal(len(counts)), sigma, 2.0**-20)
        *shown, least = question.answer([str(place) for place in range(len(counts))], noised, sigma, users)
        true = counts[[int(each.name) for each in shown]]
        held = [(each.low or 0) <= count <= (each.high or 0) for each, count in zip(shown, true, strict=True)]
        frequent, more = (counts >= (least.value or 0) + above for above in (0, 2 * sigma))
        passed = [((noised > 0) & each).sum() for each in (frequent, more, counts == 1)]
        found += [len(shown), sum(held), *passed, frequent.sum(), more.sum()]
    return (
        f"{users} users with one word each of {law} (Zipf's law), epsilon 1, leak 1e-7, {draws} draws: shown from "
        f"{least.value:.1f} users on; {found[0] / draws:.1f} words are shown, {100 * found[2] / found[5]:.1f} % of "
        f"those that so many users have, {100 * found[3] / found[6]:.1f} % of those that two deviations more have, and "
        f"{found[4]:.0f} that one user alone had. {100 * found[1] / found[0]:.1f} % of the intervals hold the count."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    asks, imports = commanded()
    questions = [asked() for _ in range(4)]
    [metric_share(task) for task in RUNS]  # the first run of a process finds which engine is the faster
    rows = "\n".join(map(metric_row, RUNS))
    text = f"""# What looks cost in time

`OMP_NUM_THREADS=1 python benchmarks/looks.py`; {platform.processor() or platform.machine()}, load {load:.1f} to \
{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.

| one metric in a run of | ms of processor a round | microseconds a user | share of the rest |
|---|---|---|---|
{rows}

A question to 1 000 simulated users, seconds of processor (of the clock): {questions[0]} the first time, which imports
PyTorch and the rest, then {", ".join(questions[1:])}.

`fieldfare ask` in a directory of `fieldfare init`, 1 000 people of whom 800 are asked, five times, a process each: \
{asks} seconds of processor. Importing PyTorch alone takes {imports} of them: noise, sums and models are its tensors.

{words()}
"""
    print(text)
    if arguments.out:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
