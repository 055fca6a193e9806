"""A whole run at scale: 1 000 000 users, 1 000 rounds of cohort 1 000, `python benchmarks/simulation_scale.py --help`.

Everything is real: users in an Arrow file that is mapped, not read; users who come, go and drop out, 1.2 times as many
asked as are needed; training, clipping, aggregation, noise, checkpoints, and a ledger in SQLite whose every commit is
durable. Reported are rounds per second, and memory with its growth from the 20th round to the last: `anonymous` is what
the process itself holds, without the pages of mapped files, which the system can reclaim. `tenths` has the median CPU
time of a round and the memory in each tenth of the run: both should be flat.

A long run is `--rounds 20000 --cohort 50 --separation 1000`; `--seconds` ends it early, with what there is by then.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from fieldfare.plan import Plan
from fieldfare.task import Task, seeded
from fieldfare_client import app as client_app
from fieldfare_client.simulation import LocalGrid
from fieldfare_client.storage import open_table, write
from fieldfare_client.users import UserTable
from fieldfare_server.evidence.verify import verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.round.strategy import FieldfareStrategy, RoundReport
from fieldfare_server.run.session import Session

FEATURES, ROWS, BLOCK, SETTLED = 32, 4, 50_000, 20
FILE = "FIELDFARE_BENCH_USERS"


class Linear(Task):
    """Linear regression from `FEATURES` numbers; `ROWS` examples a user, in the file that `FILE` names."""

    name = "linear"
    score_name = "none"
    held_out = "Nothing is evaluated."

    def build_model(self) -> torch.nn.Module:
        with seeded(0):
            return torch.nn.Sequential(torch.nn.Linear(FEATURES, 1))

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (outputs[:, 0] - targets) ** 2

    def users(self) -> UserTable:
        return open_table(Path(os.environ[FILE]))

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        return {"none": 0.0}


def blocks(users: int) -> Iterator[UserTable]:
    """All users, a block at a time."""
    draw, truth = np.random.default_rng(0), np.linspace(-1, 1, FEATURES, dtype=np.float32)
    for first in range(0, users, BLOCK):
        count = min(BLOCK, users - first)
        # Odd multiples of a number are distinct modulo 2^64, and in no order.
        names = np.arange(first + 1, first + count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = draw.standard_normal((count * ROWS, FEATURES), np.float32)
        yield UserTable(names, np.arange(count + 1) * ROWS, {"x": x, "y": x @ truth})


def memory() -> dict[str, float]:
    """Memory of this process, MB: at its peak, now, and now without mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    status = {line.partition(":")[0]: line.partition(":")[2] for line in lines}
    names = {"peak": "VmHWM", "resident": "VmRSS", "anonymous": "RssAnon"}
    return {ours: round(int(status[theirs].split()[0]) / 1024, 1) for ours, theirs in names.items()}


def tenths(seen: list[tuple[float, float, dict[str, float]]]) -> list[dict[str, float]]:
    """Of each tenth of the rounds after the first `SETTLED`: median CPU ms of a round, and memory at its end."""
    parts = np.array_split(np.arange(min(SETTLED, len(seen) - 1), len(seen) - 1), 10)
    cpu = np.diff([moment for _, moment, _ in seen])
    return [
        {"cpu_ms": round(1e3 * float(np.median(cpu[part])), 2), "anonymous_mb": seen[part[-1] + 1][2]["anonymous"]}
        for part in parts
        if len(part)
    ]


def measure(users: int, cohort: int, rounds: int, separation: int, seconds: float, root: Path) -> dict[str, object]:
    """The run, or as much of it as `seconds` allow."""
    os.environ[FILE] = str(root / "users.arrow")
    began = time.perf_counter()
    write(root / "users.arrow", blocks(users))
    prepared = time.perf_counter() - began
    home = StateDirectory(root, f"sqlite:///{root / 'ledger.sqlite3'}")
    home.prepare()
    with Ledger.open(home.ledger, create=True, head_file=home.head_file) as ledger:
        ledger.create_population("people", 1e4, 1e-7, simulated=True, actor="benchmark")
    plan = Plan.parse(
        {
            "privacy": {"population": "people", "noise_multiplier": 1.0, "delta": 1e-7},
            "run": {"task": "__main__:Linear", "rounds": rounds, "cohort": cohort, "over_selection": 1.2},
            "participation": {"scheme": "min-separation", "separation": separation},
            "mechanism": {"kind": "nu", "nu": 0.01},
            "client": {"batch_size": 2, "learning_rate": 0.01},
            "availability": {"reachable": 0.5, "daily_swing": 0.5, "dropout": 0.1},
        }
    )
    seen: list[tuple[float, float, dict[str, float]]] = []

    def look(report: RoundReport) -> None:
        seen.append((time.perf_counter(), time.process_time(), memory()))
        if len(seen) % max(100, rounds // 100) == 0:
            print(f"round {len(seen)}: {seen[-1][2]}", flush=True)
        if time.perf_counter() - began > seconds:
            raise KeyboardInterrupt

    ended = "done"
    with Session.begin(home, plan, True) as session:
        begun = time.perf_counter()
        try:
            FieldfareStrategy(session, look).start(LocalGrid(client_app.app, 1, {"task": "__main__:Linear"}))
        except Exception as error:
            ended = str(error)
            if "interrupted" not in ended:
                raise
    settled, last = seen[min(SETTLED, len(seen)) - 1], seen[-1]
    counted = max(1, len(seen) - SETTLED)
    with Ledger.open(home.ledger) as ledger:
        whole = verify(ledger, home.root).ok
    ledger_bytes = sum(f.stat().st_size for f in root.glob("ledger.sqlite3*"))
    return {
        "users": users,
        "cohort": cohort,
        "separation": separation,
        "rounds": len(seen),
        "ended": ended,
        "ledger_verified": whole,
        "file_mb": round((root / "users.arrow").stat().st_size / 1e6, 1),
        "file_written_s": round(prepared, 1),
        "first_round_s": round(seen[0][0] - begun, 2),
        "rounds_per_second": round(counted / (last[0] - settled[0]), 2),
        "rounds_per_cpu_second": round(counted / (last[1] - settled[1]), 2),
        "memory_mb_first_round": seen[0][2],
        f"memory_mb_round_{SETTLED}": settled[2],
        "memory_mb_last_round": last[2],
        "anonymous_growth_kb_a_round": round(1024 * (last[2]["anonymous"] - settled[2]["anonymous"]) / counted, 2),
        "tenths": tenths(seen),
        "ledger_mb": round(ledger_bytes / 1e6, 1),
        "ledger_bytes_a_participation": round(ledger_bytes / (len(seen) * cohort), 1),
        "load_average": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--cohort", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=1_000)
    parser.add_argument("--separation", type=int, default=50, help="rounds after which a user may take part again")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after the round that passes this")
    parser.add_argument("--out", type=Path, help="write the result there as JSON")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        result = measure(chosen.users, chosen.cohort, chosen.rounds, chosen.separation, chosen.seconds, Path(directory))
    text = json.dumps(result, indent=2)
    print(text)
    if chosen.out:
        chosen.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
