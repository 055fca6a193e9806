"""Whole private rounds here and elsewhere: `python benchmarks/simulation.py --help`.

One round: a cohort of users with 50 examples each, one epoch, batches of 10, updates that are clipped, noise for
epsilon 8. Each system runs in a process with one thread, and takes its turn after the other: some rounds, then the next
system. Figures are medians over turns. A client-task is one user's local training; it is counted per second of CPU time
of all threads. A system whose model is not finite at the end, or no longer small, makes the benchmark fail: NaN trains
at another speed.

- `fieldfare`: `ff.simulate`, from the selection of users to the commit in a ledger on disk, with default rounding and
  BLT noise, of a task that has a model, a loss, users and a score, and no method that speeds anything up;
- `sampled`: the same under `add_remove`, where users take part by chance and no bit of one may depend on who else does.
  `--sampled` measures nothing but these two;
- `lean`: a bare PyTorch loop over users with clipping and noise (simulation_lean.py);
- `func`: all users at once with `torch.func`, with clipping and noise (simulation_func.py);
- `jax`: the same as one program of JAX (simulation_jax.py), for the MLPs;
- `pfl`: pfl-research's own round with its Gaussian noise, in the environment of `--pfl` (simulation_pfl.py);
- `--flower`: Flower's Ray simulation with an actor a core, by wall clock, after its first round; ours next to it in one
  process, and in as many as Flower has actors (`client.workers`).

`--as before` keeps the phases of a round under that name, to compare with later ones.
`--page benchmarks/results/speed.md` writes the results into that page's table; with an empty `--models`, it only writes
what `--out` has there.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from statistics import median
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import torch

from simulation_models import BATCH, CLIP, COHORT, EPSILON, MODELS, ROWS, require_finite
from simulation_turns import System

CORES = os.cpu_count() or 1
PROCESSES = f"fieldfare in {CORES} processes"
TURN = 0.5
"""CPU seconds of a turn, about; at least one round."""
JAX_MODELS = ("mlp-2k", "mlp-197k")
WARM = 4
"""Rounds before the first turn: the choice of an engine, caches."""

TARGETS: dict[str, dict[str, float]] = {
    "mlp-2k, 50": {"pfl": 10, "lean": 1, "func": 2, "jax": 1, "flower": 60},
    "mlp-2k, 500": {"pfl": 18, "lean": 1, "func": 1.4},
    "mlp-197k, 50": {"pfl": 2.5, "lean": 1, "func": 1, "flower": 15},
    "lenet-62k, 50": {"pfl": 1.05, "lean": 1, "flower": 3},
    "cnn-1.6M, 50": {"pfl": 1.0, "lean": 1, "flower": 3},
    "gru-25k, 50": {"pfl": 1.5, "lean": 1},
    "lstm-31k, 50": {"pfl": 1.5, "lean": 1, "func": 1.7},
    "transformer-35k, 50": {"pfl": 1.5, "lean": 1, "func": 1.2},
}
"""Client-tasks a CPU second (of flower: a wall second) over the peer's, aimed at."""


def measure(model: str, cohort: int, turns: int, pfl: str, flower: bool) -> dict[str, Any]:
    """Everything about one model and cohort."""
    arguments = (model, str(cohort))
    systems = {
        "fieldfare": System(sys.executable, "simulation_round.py", *arguments),
        "lean": System(sys.executable, "simulation_lean.py", *arguments),
        "func": System(sys.executable, "simulation_func.py", *arguments),
        "sampled": System(sys.executable, "simulation_round.py", *arguments, "--sampled"),
    }
    if model in JAX_MODELS:
        systems["jax"] = System(sys.executable, "simulation_jax.py", *arguments)
    if pfl:
        systems["pfl"] = System(pfl, "simulation_pfl.py", *arguments)
    loads = [os.getloadavg()[0]]
    try:
        # Rounds of a turn: as many of each system as take about the same time.
        counts = {}
        for name, system in systems.items():
            system.turn(WARM)
            counts[name] = max(1, min(16, round(TURN / system.turn(1)[0])))
        took: dict[str, list[tuple[float, float]]] = {name: [] for name in systems}
        for _ in range(turns):
            for name, system in systems.items():
                took[name].append(system.turn(counts[name]))
            loads.append(os.getloadavg()[0])
    finally:
        for system in systems.values():
            system.close()
    for name, system in systems.items():
        require_finite(system.notes, name)
    cpu = {name: median(seconds for seconds, _ in turn) for name, turn in took.items()}
    ours = took["fieldfare"]
    (engine,) = (json.loads(note)["engine"] for note in systems["fieldfare"].notes if '"engine"' in note)
    result: dict[str, Any] = {
        "tasks_per_cpu_second": {name: round(cohort / seconds, 1) for name, seconds in cpu.items()},
        "round_cpu_ms": {name: round(1e3 * seconds, 2) for name, seconds in cpu.items()},
        "round_wall_ms": {name: round(1e3 * median(wall for _, wall in turn), 2) for name, turn in took.items()},
        "ratio": {
            name: round(median(theirs[0] / own[0] for theirs, own in zip(turn, ours, strict=True)), 2)
            for name, turn in took.items()
            if name != "fieldfare"
        },
        "turns": turns,
        "rounds_a_turn": counts,
        "load": [round(min(loads), 1), round(max(loads), 1)],
        "engine": engine[-1:],
    }
    result["sampled"] = {"share": round(1 / result["ratio"].pop("sampled"), 2), "load": result["load"]}
    if flower:
        from simulation_flower import flower_tasks_per_second

        ours_together = System(sys.executable, "simulation_round.py", *arguments, "--workers", str(CORES))
        ours_together.turn(3 * WARM)  # every process chooses an engine
        seconds = median(ours_together.turn(counts["fieldfare"])[1] for _ in range(turns))
        ours_together.close()
        theirs = flower_tasks_per_second(model, 3)
        walls = {"fieldfare": 1e3 * cohort / result["round_wall_ms"]["fieldfare"], PROCESSES: cohort / seconds}
        result["ratio"]["flower"] = round(max(walls.values()) / theirs, 1)
        result["tasks_per_wall_second"] = {k: round(v, 1) for k, v in {**walls, "flower": theirs}.items()}
    return result


def sampled(model: str, cohort: int, turns: int) -> dict[str, Any]:
    """How fast sampled rounds are, as a share of the unsampled ones' speed."""
    arguments = (model, str(cohort))
    both = [System(sys.executable, "simulation_round.py", *arguments, *flag) for flag in ([], ["--sampled"])]
    loads = [os.getloadavg()[0]]
    for system in both:
        system.turn(2 * WARM)
    counts = [max(1, min(16, round(TURN / system.turn(1)[0]))) for system in both]
    shares = []
    for _ in range(turns):
        ours, theirs = (system.turn(count)[0] for system, count in zip(both, counts, strict=True))
        shares.append(ours / theirs)
        loads.append(os.getloadavg()[0])
    for system in both:
        system.close()
        require_finite(system.notes, "fieldfare")
    return {"share": round(median(shares), 2), "load": [round(min(loads), 1), round(max(loads), 1)]}


def phases(model: str, cohort: int, rounds: int) -> dict[str, Any]:
    """CPU milliseconds of each phase of a round of ours, mean over `rounds`."""
    system = System(sys.executable, "simulation_round.py", model, str(cohort), "--phases")
    before = os.getloadavg()[0]
    system.turn(rounds + WARM)
    system.close()
    (line,) = (note for note in system.notes if '"phases"' in note)
    took = {name: round(ms, 2) for name, ms in json.loads(line)["phases"].items()}
    return {"phases": took, "load": [round(before, 1), round(os.getloadavg()[0], 1)]}


def verdicts(name: str, result: dict[str, Any]) -> dict[str, str]:
    """Each target, what was reached, and whether that is enough."""
    reached, wanted = result["ratio"], TARGETS.get(name, {})
    return {
        peer: f"{reached[peer]:.2f}x, wanted {least:g}x: {'met' if reached[peer] >= least else 'NOT MET'}"
        if peer in reached
        else f"wanted {least:g}x: not measured"
        for peer, least in wanted.items()
    }


def markdown(report: dict[str, Any]) -> str:
    """The report as a page of Markdown."""
    results = report["results"]
    lines = ["# Simulation: whole rounds against peers", "", *(f"- {k}: {v}" for k, v in ABOUT.items()), ""]
    lines += [
        "Client-tasks a CPU second, medians over turns; ratios are medians over pairs of neighbouring turns.",
        "",
        "Sampled tasks are ours too: their speed over that of the first column, in turns with it, and the load then.",
        "",
        "| model, cohort | fieldfare | sampled, of it | lean loop | torch.func | JAX | pfl 0.6.0 | x lean "
        "| x torch.func | x JAX | x pfl | our round, CPU ms | wall ms | load |",
        "|---" * 14 + "|",
    ]
    for name, r in results.items():
        speeds = [
            f"{r['tasks_per_cpu_second'][way]:,.0f}" if way in r["tasks_per_cpu_second"] else "-"
            for way in ("fieldfare", "lean", "func", "jax", "pfl")
        ]
        share = r.get("sampled")
        speeds.insert(1, "{:.2f} ({} to {})".format(share["share"], *share["load"]) if share else "-")
        ratios = [f"{r['ratio'][way]:.2f}" if way in r["ratio"] else "-" for way in ("lean", "func", "jax", "pfl")]
        own = [f"{r[key]['fieldfare']:.1f}" for key in ("round_cpu_ms", "round_wall_ms")]
        lines.append(f"| {name} | {' | '.join(speeds + ratios + own)} | {r['load'][0]} to {r['load'][1]} |")
    walls = {name: r["tasks_per_wall_second"] for name, r in results.items() if "tasks_per_wall_second" in r}
    if walls:
        lines += ["", f"Client-tasks a wall second; Flower on Ray with {CORES} actors, after its first round:", ""]
        lines += [f"| model, cohort | fieldfare | {PROCESSES} | flower | the faster over flower |", "|---" * 5 + "|"]
        for name, wall in walls.items():
            cells = [f"{wall[way]:,.0f}" if way in wall else "-" for way in ("fieldfare", PROCESSES, "flower")]
            lines.append(f"| {name} | {' | '.join(cells)} | {results[name]['ratio']['flower']:.1f} |")
    lines += ["", "Targets:", "", "| model, cohort | peer | |", "|---|---|---|"]
    lines += [f"| {name} | {peer} | {text} |" for name, r in results.items() for peer, text in r["targets"].items()]
    lines += ["", "CPU ms of the phases of a round of ours (mean), in the thread that runs it:", ""]
    for name, states in report["phases"].items():
        names = list(next(iter(states.values()))["phases"])
        lines += [f"| {name} | {' | '.join(states)} |", "|---" * (len(states) + 1) + "|"]
        lines += [
            f"| {phase} | {' | '.join(str(state['phases'].get(phase, 0.0)) for state in states.values())} |"
            for phase in names
        ]
        lines.append(
            f"| all | {' | '.join(format(sum(state['phases'].values()), '.2f') for state in states.values())} |"
        )
        lines.append(f"| load | {' | '.join('{} to {}'.format(*state['load']) for state in states.values())} |")
        lines.append("")
    lines += ["Engines chosen:", "", *(f"- {name}: {'; '.join(r['engine'])}" for name, r in results.items())]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--cohort", type=int, default=COHORT)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--pfl", metavar="PYTHON", default="", help="the interpreter of an environment with pfl")
    parser.add_argument("--flower", action="store_true", help="also Flower's Ray simulation (minutes)")
    parser.add_argument("--phases", action="store_true", help="measure only the phases of a round of ours")
    parser.add_argument("--sampled", action="store_true", help="measure only how fast sampled rounds are, of ours")
    parser.add_argument("--as", dest="state", default="after", help="the name of these phases")
    parser.add_argument("--out", type=Path, help="write simulation.md and simulation.json to this directory")
    parser.add_argument("--page", type=Path, help="fill the table of this page, such as benchmarks/results/speed.md")
    chosen = parser.parse_args()
    kept = chosen.out / "simulation.json" if chosen.out else None
    report: dict[str, Any] = {"results": {}, "phases": {}}
    if kept and kept.exists():
        report = json.loads(kept.read_text())
    for model in chosen.models:
        name = f"{model}, {chosen.cohort}"
        if chosen.phases:
            result = phases(model, chosen.cohort, 40)
            report["phases"].setdefault(name, {})[chosen.state] = result
        elif chosen.sampled:
            result = sampled(model, chosen.cohort, chosen.turns)
            if name in report["results"]:  # else its whole rounds have no row yet: it is printed only
                report["results"][name]["sampled"] = result
        else:
            result = measure(model, chosen.cohort, chosen.turns, chosen.pfl, chosen.flower)
            result["targets"] = verdicts(name, result)
            report["results"][name] = result
        print(f"{name}: {json.dumps(result)}", flush=True)
        if kept:
            kept.parent.mkdir(parents=True, exist_ok=True)
            report["results"] = dict(sorted(report["results"].items(), key=lambda item: _place(item[0])))
            kept.write_text(json.dumps({"about": ABOUT, **report}, indent=2) + "\n")
            kept.with_suffix(".md").write_text(markdown(report))
    if chosen.page:
        chosen.page.write_text(fill(chosen.page.read_text(), report["results"]))


def fill(page: str, results: dict[str, Any]) -> str:
    """`page` with the table "model, cohort" of the public documentation made of `results`.

    Raises `ValueError` where the page has no such table, or results lack a peer.
    """
    lines = page.splitlines(keepends=True)
    heads = [place for place, line in enumerate(lines) if line.startswith("| model, cohort | ff.simulate |")]
    if len(heads) != 1:
        raise ValueError(f"the page has {len(heads)} tables of whole rounds")
    first = last = heads[0] + 2
    while last < len(lines) and lines[last].startswith("|"):
        last += 1
    rows = []
    for name, result in results.items():
        lacking = {"fieldfare", "lean", "pfl"} - set(result["tasks_per_cpu_second"])
        if lacking:
            raise ValueError(f"{name}: {', '.join(sorted(lacking))} was not measured")
        speeds = [f"{result['tasks_per_cpu_second'][system]:,.0f}" for system in ("fieldfare", "lean", "pfl")]
        ratios = [f"{result['ratio'][system]:.1f}" for system in ("lean", "pfl")]
        load = "{:.0f} to {:.0f}".format(*result["load"])
        rows.append(f"| {' | '.join([name, *speeds, *ratios, load])} |\n")
    return "".join([*lines[:first], *rows, *lines[last:]])


def _place(name: str) -> tuple[int, int]:
    model, _, cohort = name.partition(", ")
    return list(MODELS).index(model), int(cohort)


ABOUT = {
    "command": "make bench-simulation ARGS=... (models and cohorts not asked for keep their figures)",
    "machine": f"{os.cpu_count()} cores, torch {torch.__version__}, one thread a process",
    "round": f"users of {ROWS} examples, 1 epoch, batches of {BATCH}, clip norm {CLIP}, epsilon {EPSILON:g}; every "
    f"system in turn, for about {TURN} CPU seconds, after {WARM} rounds that do not count",
}


if __name__ == "__main__":
    main()
