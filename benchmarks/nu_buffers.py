"""How many buffers the fast `nu` engine needs, how far it is from the exact mechanism, and how long choosing takes.

    PYTHONPATH=shared python benchmarks/nu_buffers.py

Prints a Markdown table. Deviation: the larger of the relative changes of mean and max error against the exact engine.
"""

from __future__ import annotations

import time

from fieldfare import mechanisms
from fieldfare.mechanisms.nu import NuSpec
from fieldfare.participation import MinSeparation

SETTINGS = [(100, 1, 100), (100, 4, 25), (2000, 1, 2000), (2000, 20, 100), (20000, 1, 20000), (20000, 20, 1000)]


def main() -> None:
    """One row for every horizon, participation and nu."""
    print("| T | (k, b) | nu | s to tune | buffers 1e-3 | deviation | s | buffers 1e-6 | deviation | s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for rounds, k, b in SETTINGS:
        participation = MinSeparation(b, k)
        start = time.perf_counter()
        tuned = NuSpec().tuned(rounds, participation)
        tuning = time.perf_counter() - start
        for nu in (0.0, tuned):
            exact = mechanisms.build({"kind": "nu", "nu": nu, "engine": "exact"}, rounds)
            cells = [str(rounds), f"({k}, {b})", f"{nu:.3g}", f"{tuning:.3f}" if nu else ""]
            for tolerance in (1e-3, 1e-6):
                start = time.perf_counter()
                fast = mechanisms.build({"kind": "nu", "nu": nu, "tolerance": tolerance}, rounds, participation)
                seconds = time.perf_counter() - start
                mean = fast.mean_error(rounds, participation) / exact.mean_error(rounds, participation) - 1
                most = fast.max_error(rounds, participation) / exact.max_error(rounds, participation) - 1
                cells += [str(fast.buffers), f"{max(abs(mean), abs(most)):.1e}", f"{seconds:.3f}"]
            print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
