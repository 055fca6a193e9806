"""What a round costs in the ledger: 1 000 000 users, cohort 1 000, 2 000 rounds (issue: under 25 ms, 100 MB, 10 bytes).

`python benchmarks/ledger_round.py [--users N] [--cohort N] [--rounds N]` prints one JSON object.
Selection is a uniform draw among the users that the minimum separation allows, from the ledger's state.
"""

from __future__ import annotations

import argparse
import json
import resource
import secrets
import sqlite3
import tempfile
import time
from pathlib import Path

import numpy as np

from fieldfare.accounting import PrivacyLoss
from fieldfare_server.ledger import Ledger, NewRun, Outcome, this_process


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--cohort", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=2_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        print(json.dumps(measure(Path(directory) / "ledger.sqlite3", **vars(arguments)), indent=2))


def measure(path: Path, users: int, cohort: int, rounds: int) -> dict[str, float]:
    """Times in milliseconds, memory in MB, sizes in bytes."""
    rng = np.random.default_rng(1)
    ids = rng.permutation(np.arange(users, dtype=np.uint64) * np.uint64(11400714819323198485))
    everybody = np.arange(users)
    key = secrets.token_hex(32)
    with Ledger.open(str(path), create=True) as ledger:
        ledger.create_population("people", 8.0, 1e-8, actor="benchmark")
        empty = memory()
        run = ledger.start_run(
            NewRun(
                "{}",
                "none",
                "people",
                rounds,
                PrivacyLoss(mu_squared=1.0),
                noise_source="secure-box-muller",
                key_commitment=key,
                trust_node_ids=False,
            ),
            holder=this_process(),
        )
        begin = time.perf_counter()
        run.register_users(ids)
        registered = time.perf_counter() - begin
        begin = time.perf_counter()
        run.register_users(ids)
        known = time.perf_counter() - begin
        size = on_disk(path)
        selects, commits, cpu = [], [], time.process_time()
        for t in range(rounds):
            begin = time.perf_counter()
            last, _ = run.participation(everybody)
            free = np.flatnonzero((last < 0) | (t - last >= 16))
            chosen = rng.choice(free, cohort, replace=False, shuffle=False)
            middle = time.perf_counter()
            opened = run.open_round(chosen)
            run.patterns(chosen)
            run.commit_round(
                opened, Outcome(chosen, PrivacyLoss(mu_squared=(t + 1) / rounds), {"noise": 1.0}), f"{t:064x}"
            )
            commits.append(time.perf_counter() - middle)
            selects.append(middle - begin)
        cpu = time.process_time() - cpu
        peak = memory()
        grown = on_disk(path) - size
        run.hand_back()
        begin = time.perf_counter()
        again = ledger.resume_run(run.id, key_commitment=key, holder=this_process())
        resumed = time.perf_counter() - begin
        again.finish("done")
    total = np.array(selects) + np.array(commits)
    return {
        "register_s": round(registered, 3),
        "look_up_known_ms": round(1e3 * known, 2),
        "select_ms_median": round(1e3 * float(np.median(selects)), 3),
        "open_and_commit_ms_median": round(1e3 * float(np.median(commits)), 3),
        "round_ms_median": round(1e3 * float(np.median(total)), 3),
        "round_cpu_ms_mean": round(1e3 * cpu / rounds, 3),
        "round_ms_p99": round(1e3 * float(np.quantile(total, 0.99)), 3),
        "round_ms_first_100": round(1e3 * float(np.median(total[:100])), 3),
        "round_ms_last_100": round(1e3 * float(np.median(total[-100:])), 3),
        "resume_s": round(resumed, 3),
        "memory_mb": round(peak - empty, 1),
        "bytes_a_participation": round(grown / (rounds * cohort), 2),
    }


def memory() -> float:
    """Peak resident memory of this process so far, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def on_disk(path: Path) -> int:
    """Bytes of the database, with its log moved into it."""
    link = sqlite3.connect(path)
    link.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    link.close()
    return path.stat().st_size


if __name__ == "__main__":
    main()
