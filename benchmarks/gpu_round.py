"""Whole rounds on a GPU against peers: `python benchmarks/gpu_round.py [--device cuda] [--pfl PYTHON] [--seconds 300]`.

`ff.simulate` with its ledger on disk, grid noise and checkpoints, unsampled and sampled, against pfl with its defaults,
the lean loop and torch.func (`simulation_*.py`), all with the same models, users and device, in turns. Wall seconds,
because a GPU computes while a processor waits; the processor's seconds stand beside them.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from statistics import median

import torch

from simulation import WARM
from simulation_models import require_finite
from simulation_turns import System

CASES = [
    ("mlp-2k", 50),
    ("mlp-2k", 500),
    ("mlp-197k", 50),
    ("lenet-62k", 50),
    ("cnn-1.6M", 50),
    ("lstm-31k", 50),
    ("lstm-31k", 500),
    ("transformer-35k", 50),
    ("transformer-35k", 500),
]
TURNS, TURN = 3, 0.8
"""Turns of each system, and wall seconds of one, about."""


def measure(model: str, cohort: int, pfl: str) -> dict[str, list[tuple[float, float]]]:
    """(CPU seconds, wall seconds) of a round, of each system and turn."""
    arguments = (model, str(cohort))
    systems = {
        "fieldfare": System(sys.executable, "simulation_round.py", *arguments),
        "sampled": System(sys.executable, "simulation_round.py", *arguments, "--sampled"),
        "torch.func": System(sys.executable, "simulation_func.py", *arguments),
        "lean loop": System(sys.executable, "simulation_lean.py", *arguments),
    }
    if pfl:
        systems["pfl"] = System(pfl, "simulation_pfl.py", *arguments)
    took: dict[str, list[tuple[float, float]]] = {}
    try:
        counts = {}
        for name, system in systems.items():
            system.turn(2 * WARM)  # a GPU's first rounds load kernels
            counts[name] = max(1, min(64, round(TURN / system.turn(1)[1])))
        for _ in range(TURNS):
            for name, system in systems.items():
                took.setdefault(name, []).append(system.turn(counts[name]))
    finally:
        for system in systems.values():
            system.close()
    for name, system in systems.items():
        require_finite(system.notes, name)
    return took


def main(device: str, pfl: str, seconds: float) -> None:
    os.environ["FIELDFARE_DEVICE"] = device
    name = torch.cuda.get_device_name(0) if device == "cuda" else "no GPU"
    print(f"torch {torch.__version__}, {name}, one CPU thread a process, load {os.getloadavg()[0]:.1f}\n")
    systems = ["fieldfare", "sampled", "torch.func", "lean loop", *(["pfl"] if pfl else [])]
    peers = systems[2:]
    print(f"| model, cohort | {' | '.join(f'{system}, ms' for system in systems)} | our CPU ms |", end="")
    print(f" {' | '.join(f'x {peer}' for peer in peers)} |")
    print("|---" * (2 + len(systems) + len(peers)) + "|", flush=True)
    began = time.perf_counter()
    for model, cohort in CASES:
        if time.perf_counter() - began > seconds:
            print(f"| {model}, {cohort} | no time left |")
            continue
        try:
            took = measure(model, cohort, pfl)
        except (RuntimeError, BrokenPipeError, ValueError) as error:
            print(f"| {model}, {cohort} | {error} |", flush=True)
            continue
        ours = took["fieldfare"]
        walls = [f"{1e3 * median(wall for _, wall in took[system]):.1f}" for system in systems]
        ratios = [
            f"{median(theirs[1] / own[1] for theirs, own in zip(took[peer], ours, strict=True)):.2f}" for peer in peers
        ]
        cells = [*walls, f"{1e3 * median(cpu for cpu, _ in ours):.1f}", *ratios]
        print(f"| {model}, {cohort} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--pfl", metavar="PYTHON", default="", help="the interpreter of an environment with pfl")
    parser.add_argument("--seconds", type=float, default=300.0)
    main(**vars(parser.parse_args()))
