"""Throughput over processes of one machine, and over actors of a Ray cluster: `python benchmarks/cores.py --help`.

*Processes.* Whole rounds of `ff.simulate` (simulation_round.py) in one process and with `client.workers` = the cores,
in turn, by wall clock. `efficiency` is N workers' client-tasks a second over N times one process's; the aim is .85
where a user takes over 1 ms. `ceiling` is what the machine allows: N independent runs in one process each, at the same
time, over N times one. CPU time of a round says where the rest goes: what the first process does while the workers
wait, and what training costs more in workers than alone.

*Actors* (`--ray`). A cluster of machines with one core each, started here, and `fieldfare simulate --engine flower
--ray-address` on it with 1, 2, ... actors: client-tasks a second between the first round's commit and the last one's,
from the ledger. The same plan in this process without Ray is measured too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import torch

from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from simulation_models import BATCH, CLIP, COHORT, MODELS, POPULATION, RATE, require_finite
from simulation_turns import System

CORES = os.cpu_count() or 1
WARM = 12
"""Rounds before the first turn: every worker's choice of an engine."""
TURN = 1.0
"""Seconds of a turn of one process, about; at least one round."""
ENOUGH = 0.85
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}

CLUSTER = """
import sys
from ray.cluster_utils import Cluster
machine = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
cluster = Cluster(initialize_head=True, head_node_args={**machine, "include_dashboard": False})
for _ in range(int(sys.argv[1]) - 1):
    cluster.add_node(**machine)
cluster.wait_for_nodes()
print("address", cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""

PLAN = """
[privacy]
population = "bench"
noise_multiplier = 1.0
delta = 1e-6
[run]
task = "simulation_task:BenchTask"
rounds = {rounds}
cohort = {cohort}
[task]
model = "{model}"
users = {users}
[participation]
scheme = "min-separation"
separation = 8
[mechanism]
kind = "blt"
buffers = 3
[clipping]
kind = "flat"
norm = {clip}
[client]
batch_size = {batch}
learning_rate = {rate}
"""


def processes(model: str, cohort: int, turns: int) -> dict[str, Any]:
    """One process, a process a core, and independent runs at the same time."""
    runs = [System(sys.executable, "simulation_round.py", model, str(cohort)) for _ in range(CORES)]
    together = System(sys.executable, "simulation_round.py", model, str(cohort), "--workers", str(CORES))
    loads, took = [os.getloadavg()[0]], []
    try:
        for system in (*runs, together):
            system.turn(WARM)
        rounds = max(1, round(TURN / runs[0].turn(1)[1]))
        for _ in range(turns):
            one, many = runs[0].turn(rounds), together.turn(rounds)
            with ThreadPoolExecutor(CORES) as threads:
                same_time = list(threads.map(lambda system: system.turn(rounds)[1], runs))
            ceiling = sum(one[1] / wall for wall in same_time) / CORES
            took.append((one, many, together.others, one[1] / many[1] / CORES, ceiling))
            loads.append(os.getloadavg()[0])
    finally:
        for system in (*runs, together):
            system.close()
    for system in (*runs, together):
        require_finite(system.notes, "fieldfare")
    cpu_alone = median(1e3 * one[0] for one, *_ in took)
    cpu_workers = median(1e3 * others for _, _, others, *_ in took)
    result = {
        "tasks_a_second": {
            "one process": round(cohort / median(one[1] for one, *_ in took), 1),
            f"{CORES} workers": round(cohort / median(many[1] for _, many, *_ in took), 1),
        },
        "efficiency": round(median(each[3] for each in took), 3),
        "ceiling": round(median(each[4] for each in took), 3),
        "round_cpu_ms": {
            "one process": round(cpu_alone, 1),
            "first process": round(median(1e3 * (many[0] - others) for _, many, others, *_ in took), 1),
            "workers": round(cpu_workers, 1),
        },
        "round_wall_ms": round(median(1e3 * many[1] for _, many, *_ in took), 1),
        "ms_a_user": round(cpu_alone / cohort, 2),
        "load": [round(min(loads), 1), round(max(loads), 1)],
    }
    return result


@contextmanager
def cluster(machines: int, env: dict[str, str]) -> Iterator[str]:
    """The address of a Ray cluster of `machines` with one core each, on this machine."""
    command = [sys.executable, "-c", CLUSTER, str(machines)]
    process = subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdin
    assert process.stdout
    try:
        lines = (line.split() for line in process.stdout)
        address = next((words[1] for words in lines if words[:1] == ["address"]), "")
        if not address:
            raise RuntimeError(f"a Ray cluster of {machines} did not start")
        yield address
    finally:
        process.stdin.close()
        process.wait(120)


def simulate(plan: Path, env: dict[str, str], nodes: int, address: str) -> float:
    """Client-tasks a second of a run of `plan`, without its first round."""
    with tempfile.TemporaryDirectory() as directory:
        home = StateDirectory(Path(directory), f"sqlite:///{directory}/ledger.sqlite3")
        home.prepare()
        with Ledger.open(home.ledger, create=True, head_file=home.head_file) as ledger:
            ledger.create_population("bench", 1e9, 1e-6, simulated=True, actor="benchmark")
        command = [sys.executable, "-c", "from fieldfare_server.cli import main; main()", "simulate", str(plan)]
        command += ["--nodes", str(nodes), "--json", "--home", directory, "--ledger", home.ledger, "--accept-delta"]
        if address:
            command += ["--engine", "flower", "--ray-address", address]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        with Ledger.open(home.ledger) as ledger:
            items = ledger.rounds(json.loads(done.stdout)["run"]).items
        rounds = [each for each in items if each.state == "committed" and each.closed_at]
        seconds = float(rounds[-1].closed_at or 0) - float(rounds[0].closed_at or 0)
        return sum(each.participants or 0 for each in rounds[1:]) / seconds


def actors(model: str, cohort: int, rounds: int, nodes: int) -> dict[str, Any]:
    """Client-tasks a second without Ray, and on clusters of 1, 2, ... actors."""
    here = str(Path(__file__).resolve().parent)
    path = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, **QUIET, "PYTHONPATH": path}
    with tempfile.TemporaryDirectory() as directory:
        plan = Path(directory) / "plan.toml"
        settings = {"users": POPULATION * cohort, "clip": CLIP, "batch": BATCH, "rate": RATE}
        plan.write_text(PLAN.format(model=model, cohort=cohort, rounds=rounds, **settings))
        speeds, load = {"without Ray": simulate(plan, env, nodes, "")}, os.getloadavg()[0]
        for machines in range(1, CORES + 1):
            with cluster(machines, env) as address:
                speeds[f"{machines} actor{'s' * (machines > 1)}"] = simulate(plan, env, nodes, address)
    over = speeds[f"{CORES} actors"] / speeds["1 actor"] if CORES > 1 else 1.0
    return {
        "tasks_a_second": {name: round(speed, 1) for name, speed in speeds.items()},
        "over_one_actor": round(over, 2),
        "rounds": rounds,
        "nodes": nodes,
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
    }


def markdown(report: dict[str, Any]) -> str:
    """The report as a page of Markdown."""
    lines = ["# Throughput over cores and actors", "", *(f"- {name}: {text}" for name, text in ABOUT.items()), ""]
    heads = ("model, cohort", "ms a user", "one process", f"{CORES} workers", "efficiency", "machine's ceiling", "load")
    lines += [f"| {' | '.join(heads)} |"]
    lines += ["|---" * 7 + "|"]
    for name, r in report["processes"].items():
        speeds = [f"{speed:,.0f}" for speed in r["tasks_a_second"].values()]
        cells = [name, f"{r['ms_a_user']:g}", *speeds, f"{r['efficiency']:.2f}", f"{r['ceiling']:.2f}"]
        lines.append(f"| {' | '.join(cells)} | {r['load'][0]} to {r['load'][1]} |")
    lines += ["", "CPU ms of a round:", ""]
    lines += ["| model, cohort | one process | with workers: first process | all workers | wall |", "|---" * 5 + "|"]
    lines += [
        f"| {name} | {' | '.join(f'{ms:g}' for ms in r['round_cpu_ms'].values())} | {r['round_wall_ms']:g} |"
        for name, r in report["processes"].items()
    ]
    wanted = {name: r for name, r in report["processes"].items() if r["ms_a_user"] > 1}
    lines += ["", f"Aim: {ENOUGH} where a user takes over 1 ms.", ""]
    lines += [f"- {name}: {'met' if r['efficiency'] >= ENOUGH else 'NOT MET'}" for name, r in wanted.items()]
    for name, r in report["actors"].items():
        lines += ["", f"## Actors: {name}", "", f"{r['rounds']} rounds, {r['nodes']} nodes, by wall clock; load "]
        lines[-1] += f"{r['load'][0]} to {r['load'][1]}."
        lines += ["", f"| {' | '.join(r['tasks_a_second'])} | most actors over one |"]
        lines += ["|---" * (len(r["tasks_a_second"]) + 1) + "|"]
        lines += [f"| {' | '.join(f'{v:g}' for v in r['tasks_a_second'].values())} | {r['over_one_actor']:g} |"]
    return "\n".join(lines) + "\n"


ABOUT = {
    "command": "python benchmarks/cores.py --ray --out benchmarks/results (what was not asked for keeps its figures)",
    "machine": f"{CORES} cores, torch {torch.__version__}, one thread a process",
    "tasks": "client-tasks a second by wall clock: users of 50 examples, 1 epoch, batches of 10; medians over turns",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--models", nargs="*", choices=MODELS, default=["mlp-197k", "lenet-62k", "cnn-1.6M", "lstm-31k"]
    )
    parser.add_argument("--cohort", type=int, default=COHORT)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--ray", action="store_true", help="also throughput over the actors of a Ray cluster (minutes)")
    parser.add_argument("--ray-model", choices=MODELS, default="lenet-62k")
    parser.add_argument("--ray-rounds", type=int, default=8)
    parser.add_argument("--ray-nodes", type=int, default=10)
    parser.add_argument("--out", type=Path, help="write cores.md and cores.json to this directory")
    chosen = parser.parse_args()
    kept = chosen.out / "cores.json" if chosen.out else None
    report: dict[str, Any] = {"processes": {}, "actors": {}}
    if kept and kept.exists():
        report.update(json.loads(kept.read_text()))

    def note(part: str, model: str, result: dict[str, Any]) -> None:
        report[part][f"{model}, {chosen.cohort}"] = result
        print(f"{part}, {model}: {json.dumps(result)}", flush=True)
        if kept:
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps({**report, "about": ABOUT}, indent=2) + "\n")
            kept.with_suffix(".md").write_text(markdown(report))

    for model in chosen.models:
        note("processes", model, processes(model, chosen.cohort, chosen.turns))
    if chosen.ray:
        note("actors", chosen.ray_model, actors(chosen.ray_model, chosen.cohort, chosen.ray_rounds, chosen.ray_nodes))


if __name__ == "__main__":
    main()
