"""What the check before a charge costs in a large ledger: `python benchmarks/proof.py [runs] [rounds]`.

A ledger (SQLite) of ended runs is made first, or found where `--ledger` says. A process checks all of it once; then a
run is under way, and after each of its rounds the check that every admission asks is timed: what is new in the journal,
and the comparison of the tables. CPU time of the one thread, so that other programs of the machine do not count. A
round and a look at the population are timed besides, by both clocks.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import large_ledger
from fieldfare_server.ledger import Ledger

ROUNDS = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=int, nargs="?", default=300)
    parser.add_argument("rounds", type=int, nargs="?", default=4)
    parser.add_argument("--ledger", type=Path, help="a file that is made once and kept")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = asked.ledger or Path(directory) / "ledger.sqlite3"
        if not path.exists():
            large_ledger.fill(f"sqlite:///{path}", asked.runs, asked.rounds)
        with Ledger.open(str(path)) as ledger:
            measure(ledger)


def measure(ledger: Ledger) -> None:
    """Print the first check and the later ones."""
    start = time.thread_time()
    checked = ledger.proof.advance()
    first = time.thread_time() - start
    handle = large_ledger.start(ledger, f"after-{checked.rows}", ROUNDS)
    times, commits, reads = [], [], []
    for _ in range(ROUNDS - 1):
        commits.append(timed(lambda: large_ledger.commit(handle)))
        with ledger.read() as connection:
            start = time.thread_time()
            ledger.proof.require(connection)
            times.append(time.thread_time() - start)
        reads.append(timed(lambda: ledger.population(large_ledger.POPULATION)))
    handle.finish("stopped")
    median, most = np.median(times) * 1e3, np.quantile(times, 0.9) * 1e3
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f"{checked.rows} journal rows: first check {first:.1f} s, each later one {median:.2f} ms, 90 % below "
        f"{most:.2f} ms (CPU); {memory} MB; load {Path('/proc/loadavg').read_text().split()[0]}"
    )
    for what, seconds in (("a round, opened and committed", commits), ("the population, read", reads)):
        (wall, cpu), (most, most_cpu) = (np.quantile(seconds, part, axis=0) * 1e3 for part in (0.5, 0.99))
        print(f"{what}: median {wall:.2f} ms, 99 % below {most:.2f} ms (wall); {cpu:.2f}, {most_cpu:.2f} (CPU)")


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of wall and of this thread that `work` takes."""
    wall, busy = time.perf_counter(), time.thread_time()
    work()
    return time.perf_counter() - wall, time.thread_time() - busy


if __name__ == "__main__":
    main()
