"""How fast a cohort trains here, against other ways to train it: `python benchmarks/simulation.py --help`.

One round: 50 users of 50 examples, one epoch, batches of 10, clip norm 0.4. Client-tasks (one user's local training)
per CPU second of one thread, best of `--repeats` turns; every system takes its turn, on the same data. Ours is training
and clipping alone (README.md says what that leaves out). `--pfl` runs
pfl-research in an environment of its own (simulation_pfl.py says how to make one), `--flower` Flower's Ray simulation
with as many actors as cores, by wall clock, after its first round.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from fieldfare import clipping
from fieldfare.plan import ClientSpec
from fieldfare.schema import Schema
from fieldfare_client.training import Trainer, clip_with
from fieldfare_client.training.choice import KNOWN
from fieldfare_client.training.workers import WorkerTrainer
from fieldfare_client.users import UserTable
from simulation_models import BATCH, CLIP, MODELS, RATE, ROWS, USERS
from simulation_task import BenchTask, reference

CORES = os.cpu_count() or 1
CLIENT = ClientSpec(batch_size=BATCH, learning_rate=RATE)


def ours(task: BenchTask, table: UserTable) -> Callable[[], Any]:
    """Fieldfare's own training, with the clipping of a plan."""
    schema = Schema.of(task.build_model())
    spec = clipping.parse({"kind": "flat", "norm": CLIP})
    trainer = Trainer(task, CLIENT, clip_with(spec, schema))
    start = schema.flatten(dict(task.build_model().named_parameters()))
    rounds = iter(range(10**9))
    run = lambda: trainer.train([start], [1.0], table, np.arange(USERS), at_round=next(rounds))  # noqa: E731
    run.explain = trainer.explain  # type: ignore[attr-defined]
    return run


def plain(task: BenchTask, table: UserTable) -> Callable[[], Any]:
    """The obvious loop: a module, an optimizer, one user after another."""
    rows = table.rows(np.arange(USERS)).columns
    model = task.build_model()
    start = [p.detach().clone() for p in model.parameters()]

    def run() -> list[torch.Tensor]:
        total = [torch.zeros_like(p) for p in start]
        for user in range(USERS):
            with torch.no_grad():
                for p, s in zip(model.parameters(), start, strict=True):
                    p.copy_(s)
            optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
            for batch in torch.randperm(ROWS).add(user * ROWS).split(BATCH):
                optimizer.zero_grad()
                task.loss(model(rows["x"][batch]), rows["y"][batch]).mean().backward()
                optimizer.step()
            with torch.no_grad():
                update = [p - s for p, s in zip(model.parameters(), start, strict=True)]
                norm = torch.linalg.vector_norm(torch.stack([u.norm() for u in update]))
                for t, u in zip(total, update, strict=True):
                    t += u * (CLIP / norm).clamp(max=1)
        return total

    return run


def lean(task: BenchTask, table: UserTable) -> Callable[[], Any]:
    """The leanest sequential loop: `torch.autograd.grad` and fused list operations, nothing checked."""
    rows = table.rows(np.arange(USERS)).columns
    model = task.build_model()
    weights = list(model.parameters())
    start = [p.detach().clone() for p in weights]

    def run() -> list[torch.Tensor]:
        total = [torch.zeros_like(p) for p in start]
        for user in range(USERS):
            with torch.no_grad():
                torch._foreach_copy_(weights, start)
            for batch in torch.randperm(ROWS).add_(user * ROWS).split(BATCH):
                gradient = torch.autograd.grad(task.loss(model(rows["x"][batch]), rows["y"][batch]).mean(), weights)
                with torch.no_grad():
                    torch._foreach_add_(weights, gradient, alpha=-RATE)
            with torch.no_grad():
                update = torch._foreach_sub(weights, start)
                norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(update)))
                torch._foreach_mul_(update, (CLIP / norm).clamp_(max=1))
                torch._foreach_add_(total, update)
        return total

    return run


class Pfl:
    """pfl-research in its own environment, a round at a time."""

    def __init__(self, python: str, model: str) -> None:
        command = [python, str(Path(__file__).with_name("simulation_pfl.py")), model]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def __call__(self) -> float:
        """CPU seconds of one round, by the clock of that process."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("round "):
                return float(line.split()[1])
        raise RuntimeError(f"pfl ended with exit code {self._process.wait()}")

    def close(self) -> None:
        self._process.stdin.close()  # type: ignore[union-attr]
        self._process.stdout.close()  # type: ignore[union-attr]
        self._process.terminate()
        self._process.wait()


TURN = 0.1
"""CPU seconds of a turn, at least: in training, rounds follow one another and find their caches warm."""


def timed(run: Callable[[], Any]) -> Callable[[], float]:
    """CPU seconds of one call in this process, mean over a turn."""

    def measure() -> float:
        began, calls = time.process_time(), 0
        while (took := time.process_time() - began) < TURN:
            run()
            calls += 1
        return took / calls

    return measure


def rounds(ways: dict[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """CPU seconds of a round in each of `repeats` turns, after two turns that do not count."""
    took: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(repeats + 2):
        for name, run in ways.items():
            seconds = run()
            if repeat >= 2:
                took[name].append(seconds)
    return took


def first_round(model: str) -> float:
    """Wall seconds from loaded data to the end of the first round: model, trainer, choice of engine."""
    task = BenchTask(model)
    table = task.users()
    KNOWN.clear()
    began = time.perf_counter()
    ours(task, table)()
    return time.perf_counter() - began


def measure(name: str, repeats: int, pfl: str, flower: bool) -> dict[str, Any]:
    """Everything about one model."""
    task = BenchTask(name)
    table = task.users()
    first = first_round(name)
    fieldfare = ours(task, table)
    ways = {
        "fieldfare": timed(fieldfare),
        "lean": timed(lean(task, table)),
        "plain": timed(plain(task, table)),
    }
    peer = Pfl(pfl, name) if pfl else None
    if peer:
        ways["pfl"] = peer
    try:
        took = rounds(ways, repeats)
    finally:
        if peer:
            peer.close()
    ours_took = np.array(took["fieldfare"])
    result: dict[str, Any] = {
        "tasks_per_cpu_second": {way: round(USERS / min(seconds), 1) for way, seconds in took.items()},
        "ratio_of_best": {way: round(min(t) / ours_took.min(), 3) for way, t in took.items() if way != "fieldfare"},
        "median_ratio_of_neighbouring_rounds": {
            way: round(float(np.median(np.array(t) / ours_took)), 3) for way, t in took.items() if way != "fieldfare"
        },
        "first_round_wall_seconds": round(first, 3),
        "engine": fieldfare.explain(),  # type: ignore[attr-defined]
    }
    if flower:
        from simulation_flower import flower_tasks_per_second

        speeds = {
            "fieldfare, 1 process": wall_speed(fieldfare),
            f"fieldfare, {CORES} processes": workers_speed(task, table),
            f"flower, {CORES} actors": flower_tasks_per_second(name, 3),
        }
        best, theirs = max(list(speeds.values())[:2]), list(speeds.values())[2]
        result["tasks_per_wall_second"] = {way: round(speed, 1) for way, speed in speeds.items()}
        result["ratio_of_wall"] = {"flower": round(best / theirs, 2)}
    return result


def wall_speed(run: Callable[[], Any]) -> float:
    """Client-tasks per wall second, over a second or three rounds, whichever is longer."""
    began, calls = time.perf_counter(), 0
    while calls < 3 or time.perf_counter() - began < 1:
        run()
        calls += 1
    return calls * USERS / (time.perf_counter() - began)


def workers_speed(task: BenchTask, table: UserTable) -> float:
    """As `wall_speed`, with a training process for every core, after two rounds that do not count."""
    start = Schema.of(task.build_model()).flatten(dict(task.build_model().named_parameters()))
    spec = clipping.parse({"kind": "flat", "norm": CLIP})
    rounds = iter(range(10**9))
    with WorkerTrainer(reference(task.model), CLIENT, spec, table, workers=CORES) as pool:
        run = lambda: pool.train([start], [1.0], np.arange(USERS), at_round=next(rounds))  # noqa: E731
        run()
        run()
        return wall_speed(run)


TARGETS = {
    "mlp-2k": {"pfl": 30, "flower": 150},
    "mlp-197k": {"pfl": 2.2, "flower": 12},
    "lenet-62k": {"pfl": 1.15, "flower": 3},
    "cnn-1.6M": {"pfl": 1.0, "flower": 2},
    "gru-25k": {"pfl": 2},
}
LEAN = 0.97
"""Never slower than the lean loop by more than 3 %."""


def verdicts(name: str, result: dict[str, Any]) -> dict[str, str]:
    """Each target, what was reached, and whether that is enough: by the best round of each."""
    reached = {**result["ratio_of_best"], **result.get("ratio_of_wall", {})}
    wanted = {**TARGETS[name], "lean": LEAN}
    return {
        peer: f"{reached[peer]:.2f}x, wanted {least}x: {'met' if reached[peer] >= least else 'NOT MET'}"
        if peer in reached
        else f"wanted {least}x: not measured"
        for peer, least in wanted.items()
    }


def markdown(results: dict[str, Any]) -> str:
    """The results as a page of Markdown."""
    lines = ["# Simulation: client-tasks per second against peers", "", *(f"- {k}: {v}" for k, v in ABOUT.items()), ""]
    lines += [
        "Per CPU second, best round of each; `median` is the median ratio of rounds that ran one after another.",
        "",
        "| model | fieldfare | lean loop | plain loop | pfl 0.6.0 | median x lean, pfl | first round, s | rounds "
        "| load |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, r in results.items():
        speed, median = r["tasks_per_cpu_second"], r["median_ratio_of_neighbouring_rounds"]
        cells = [f"{speed[way]:,.0f}" if way in speed else "-" for way in ("fieldfare", "lean", "plain", "pfl")]
        ratios = ", ".join(f"{median[way]:.2f}" if way in median else "-" for way in ("lean", "pfl"))
        lines.append(
            f"| {name} | {' | '.join(cells)} | {ratios} | {r['first_round_wall_seconds']:.2f} "
            f"| {r['rounds']} | {r['load_average'][0]} to {r['load_average'][1]} |"
        )
    walls = {name: r["tasks_per_wall_second"] for name, r in results.items() if "tasks_per_wall_second" in r}
    if walls:
        ways = list(next(iter(walls.values())))
        lines += ["", "Per wall second; Flower on Ray after its first round; the ratio is of the better of ours:", ""]
        lines += [f"| model | {' | '.join(ways)} | ratio |", "|---" * (len(ways) + 2) + "|"]
        for name, wall in walls.items():
            ratio = results[name]["ratio_of_wall"]["flower"]
            lines.append(f"| {name} | {' | '.join(f'{speed:,.0f}' for speed in wall.values())} | {ratio:.1f} |")
    lines += ["", "Targets:", "", "| model | peer | |", "|---|---|---|"]
    lines += [f"| {name} | {peer} | {said} |" for name, r in results.items() for peer, said in r["targets"].items()]
    lines += ["", "Engines chosen:", "", *(f"- {name}: {'; '.join(r['engine'])}" for name, r in results.items())]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--pfl", metavar="PYTHON", default="", help="the interpreter of an environment with pfl")
    parser.add_argument("--flower", action="store_true", help="also Flower's Ray simulation (minutes)")
    parser.add_argument("--out", type=Path, help="write simulation.md and simulation.json to this directory")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    kept = chosen.out / "simulation.json" if chosen.out else None
    results: dict[str, Any] = json.loads(kept.read_text())["results"] if kept and kept.exists() else {}
    for name in chosen.models:
        load = os.getloadavg()[0]
        result = measure(name, chosen.repeats, chosen.pfl, chosen.flower)
        result["rounds"] = chosen.repeats
        result["load_average"] = [round(load, 1), round(os.getloadavg()[0], 1)]
        result["targets"] = verdicts(name, result)
        print(f"{name}: {json.dumps(result)}", flush=True)
        results[name] = result
        if kept:
            kept.parent.mkdir(parents=True, exist_ok=True)
            results = {model: results[model] for model in MODELS if model in results}
            kept.write_text(json.dumps({"about": ABOUT, "results": results}, indent=2) + "\n")
            kept.with_suffix(".md").write_text(markdown(results))


ABOUT = {
    "command": "make bench-simulation (models not asked for by --models keep their figures)",
    "machine": f"{os.cpu_count()} cores, torch {torch.__version__}, one thread a process",
    "round": f"{USERS} users of {ROWS} examples, 1 epoch, batches of {BATCH}, clip norm {CLIP}; every system in turn, "
    f"for {TURN} CPU seconds at least, after 2 turns that do not count",
    "first round": "wall seconds, with the data loaded and Python's modules imported: model, trainer, choice of engine",
}


if __name__ == "__main__":
    main()
