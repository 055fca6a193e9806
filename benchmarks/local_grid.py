"""One unmodified Flower app, in `ff.LocalGrid` and under Flower's own simulation (Ray): seconds of a whole run.

LocalGrid's nodes answer one after another (local), and as many at a time as there are cores (threads).

The app is that of Flower's PyTorch quick start: its network (62 006 parameters), its optimizer, ten nodes of which half
train and all evaluate, FedAvg. Its data are random images of CIFAR-10's shape: this machine cannot download CIFAR-10.

    .venv/bin/python benchmarks/local_grid.py --out benchmarks/results/local_grid.md
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

SIZES = (400, 4000)
"""Images of a node; the quick start has 4 000."""
WAYS = ("local", "threads", "ray")


def train_here(way: str) -> None:
    """Run the app once in this process; print its seconds as JSON. Import times count: they are part of a run."""
    began = time.perf_counter()
    import local_grid_app as app

    if way != "ray":
        import fieldfare as ff

        at_once = (os.cpu_count() or 1) if way == "threads" else 1
        ff.LocalGrid(app.client, app.NODES, at_once=at_once).run_app(app.server)
    else:
        from flwr.simulation import run_simulation

        resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
        run_simulation(app.server, app.client, app.NODES, backend_config=resources)
    took = time.perf_counter() - began
    if app.replies_of != [app.NODES // 2] * app.ROUNDS:
        raise RuntimeError(f"{way}: good replies a round: {app.replies_of}")
    print(json.dumps({"run": took, "round": (app.ends[-1] - app.ends[1]) / (app.ROUNDS - 1)}))


def measure(way: str, images: int) -> dict[str, float]:
    """One run in a fresh process."""
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    # One thread a process: with more, PyTorch's threads wait for each other on a machine that has other work.
    threads = {"OMP_NUM_THREADS": "1", "LOCAL_GRID_IMAGES": str(images)}
    # Ray's actors import the app by its name.
    path = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, __file__, "--way", way]
    environment = {**os.environ, **quiet, **threads, **path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.way:
        train_here(options.way)
        return
    loads, rows = [os.getloadavg()[0]], []
    for images in SIZES:
        # In turn, so that a busy moment of the machine meets both.
        results = [{way: measure(way, images) for way in WAYS} for _ in range(options.repeats)]
        figures = {
            (way, name): statistics.median(result[way][name] for result in results)
            for way in WAYS
            for name in ("run", "round")
        }
        cells = []
        for name in ("run", "round"):
            local, threads, ray = (figures[way, name] for way in WAYS)
            cells += [f"{local:.2f}", f"{threads:.2f}", f"{ray:.2f}", f"{ray / local:.1f}", f"{ray / threads:.1f}"]
        rows.append(f"| {images:,} | {' | '.join(cells)} |")
        print(rows[-1], flush=True)
        loads.append(os.getloadavg()[0])
    import flwr
    import torch

    from local_grid_app import BATCH, NODES, ROUNDS

    heads = [
        f"{name}, {column}"
        for name in ("run", "round")
        for column in ("LocalGrid, s", "threads, s", "Ray, s", "Ray / LocalGrid", "Ray / threads")
    ]
    text = "\n".join(
        [
            "# One unmodified Flower app: LocalGrid beside Ray",
            "",
            "- command: .venv/bin/python benchmarks/local_grid.py --out benchmarks/results/local_grid.md",
            f"- machine: {os.cpu_count()} cores, torch {torch.__version__}, flwr {flwr.__version__}; "
            f"load {min(loads):.1f} to {max(loads):.1f} (other work on the same cores)",
            f"- app: Flower's PyTorch quick start on random images; {NODES} nodes, 5 train and 10 evaluate a round, "
            f"{ROUNDS} rounds, batches of {BATCH}",
            "- LocalGrid: one process; its nodes one after another in one thread, or in a thread a core. "
            "Ray: an actor a core of one thread each, Flower's default.",
            f"- median of {options.repeats} runs in turn, each in a fresh process; a run includes imports and "
            "the start of Ray; a round is one after the first",
            "",
            f"| images a node | {' | '.join(heads)} |",
            "|---" * (1 + len(heads)) + "|",
            *rows,
            "",
        ]
    )
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
