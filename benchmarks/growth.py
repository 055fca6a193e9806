"""What a round costs as things grow: `python benchmarks/growth.py [--axes NAME ...] [--turns N]`.

Of each axis, runs of some sizes, each in a process of one thread, in turns: CPU time of a whole round, from the
selection of users to the durable commit. The exponent is that of the power of the size which fits best, by least
squares of logarithms: 0 is flat, 1 is in proportion. What grows only from some size on has a larger exponent there:
each size's own figure is beside it. A population of ten million users takes minutes to register, and some GB.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from statistics import median

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch

from fieldfare.errors import Interrupted
from fieldfare.plan import Plan
from fieldfare.task import Task, seeded
from fieldfare_client import app as client_app
from fieldfare_client.simulation import LocalGrid
from fieldfare_client.users import UserTable
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.round.strategy import FieldfareStrategy, RoundReport
from fieldfare_server.run.session import Session
from simulation_turns import System, Turnstile

SMALL = {"users": 1_000, "cohort": 50, "parameters": 64, "before": 16, "populations": 1, "nodes": 1}
"""A run that one axis makes larger. `before`: rounds that are over."""
AXES: dict[str, tuple[int, ...]] = {
    "users": (1_000, 100_000, 1_000_000, 10_000_000),
    "cohort": (50, 200, 800),
    "parameters": (1_000, 10_000, 100_000, 1_000_000),
    "before": (16, 64, 256),
    "populations": (1, 10, 100),
    "nodes": (1, 2, 4, 8),
}
ROUNDS_A_TURN = 8


class Linear(Task):
    """Linear regression of as many parameters as are asked for; one example a user."""

    name, score_name, held_out = "linear", "none", "Nothing is evaluated."
    users_, parameters = 0, 0

    def build_model(self) -> torch.nn.Module:
        with seeded(0):
            return torch.nn.Sequential(torch.nn.Linear(self.parameters, 1, bias=False))

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (outputs[:, 0] - targets) ** 2

    def users(self) -> UserTable:
        # Odd multiples of a number are distinct modulo 2^64, and in no order.
        names = np.arange(1, self.users_ + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        columns = {"x": np.ones((self.users_, 1), np.float32), "y": np.zeros(self.users_, np.float32)}
        return UserTable(names, np.arange(self.users_ + 1), columns)

    def prepare(self, columns: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return columns["x"].expand(-1, self.parameters), columns["y"]

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        return {"none": 0.0}


def run(size: dict[str, int], root: Path) -> None:
    """A run of this size, round by round as the turnstile lets it."""
    torch.set_num_threads(1)
    Linear.users_, Linear.parameters = max(size["users"], 16 * size["cohort"]), size["parameters"]
    home = StateDirectory(root, f"sqlite:///{root / 'ledger.sqlite3'}")
    home.prepare()
    with Ledger.open(home.ledger, create=True, head_file=home.head_file) as ledger:
        for number in range(size["populations"]):
            ledger.create_population(f"people{number}", 1e4, 1e-7, simulated=True, actor="benchmark")
    plan = Plan.parse(
        {
            "privacy": {"population": "people0", "noise_multiplier": 1.0, "delta": 1e-7},
            "run": {"task": "__main__:Linear", "rounds": 2048, "cohort": size["cohort"]},
            "participation": {"scheme": "min-separation", "separation": 8},
            "mechanism": {"kind": "nu", "nu": 0.01},
            "client": {"batch_size": 2, "learning_rate": 0.001},
        }
    )
    turnstile, done = Turnstile(), 0

    def look(report: RoundReport) -> None:
        nonlocal done
        done += 1
        if done >= size["before"] and not turnstile.enter():
            raise KeyboardInterrupt

    with Session.begin(home, plan, True) as session:
        grid = LocalGrid(client_app.app, size["nodes"], {"task": "__main__:Linear"})
        with suppress(Interrupted):
            FieldfareStrategy(session, look).start(grid)


def measure(axis: str, turns: int) -> str:
    """The rows of one axis, as Markdown."""
    systems, loads = list[System](), [os.getloadavg()[0]]
    for size in AXES[axis]:
        systems.append(System(sys.executable, "growth.py", "--run", axis, str(size)))
        systems[-1].turn(2)
    took: list[list[float]] = [[] for _ in systems]
    for _ in range(turns):
        for system, seconds in zip(systems, took, strict=True):
            seconds.append(1e3 * system.turn(ROUNDS_A_TURN)[0])
        loads.append(os.getloadavg()[0])
    for system in systems:
        system.close()
    costs = [median(seconds) for seconds in took]
    over = [median(b / a for a, b in zip(took[0], seconds, strict=True)) for seconds in took]
    exponent = np.polyfit(np.log(AXES[axis]), np.log(costs), 1)[0]
    cells = "; ".join(f"{n:,}: {ms:.1f} ({r:.2f})" for n, ms, r in zip(AXES[axis], costs, over, strict=True))
    return f"| {axis} | {cells} | {exponent:.2f} | {min(loads):.0f} to {max(loads):.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--axes", nargs="*", choices=AXES, default=list(AXES))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--run", nargs=2, metavar=("AXIS", "SIZE"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.run:
        axis, size = chosen.run
        with tempfile.TemporaryDirectory() as directory:
            run({**SMALL, axis: int(size)}, Path(directory))
        return
    print("| what grows | size: CPU ms of a round (over the first size, in turns) | exponent | load |")
    print("|---|---|--:|---|")
    for axis in chosen.axes:
        print(measure(axis, chosen.turns), flush=True)


if __name__ == "__main__":
    main()
