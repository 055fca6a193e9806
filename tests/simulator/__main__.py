"""`python -m simulator`: one seed with its history, or as many seeds as fit into a time."""

from __future__ import annotations

import argparse
import sys
import time
import warnings

from simulator.history import Told, simulate


def show(told: Told, lines: int) -> None:
    """Print a history and how it ended."""
    for at, who, text in told.history[-lines:]:
        print(f"{at - 1_700_000_000:10.3f}  {who:16} {text}")
    print(f"seed {told.seed}: {told.rounds} rounds in {told.seconds:.0f} simulated seconds, log {told.log[:16]}")


def main() -> int:
    """1 if a seed breaks what the ledger promises."""
    parser = argparse.ArgumentParser(prog="python -m simulator", description=__doc__)
    parser.add_argument("--seed", type=int, help="print the history of this seed")
    parser.add_argument("--seconds", type=float, default=60.0, help="run seeds for so long")
    parser.add_argument("--first", type=int, default=0, help="the first of those seeds")
    parser.add_argument("--step", type=int, default=1, help="from one seed to the next")
    parser.add_argument("--rounds", type=int, default=120, help="committed rounds of one history")
    parser.add_argument("--simulated", type=float, default=4000.0, help="simulated seconds of one history, at most")
    parser.add_argument("--lines", type=int, default=1000, help="how many lines of a history are printed")
    parser.add_argument("--windows", action="store_true", help="with calendar windows, over midnight")
    parser.add_argument("--hazard", type=float, default=1.0, help="how often all goes wrong, as a share of the default")
    chosen = parser.parse_args()
    warnings.filterwarnings("ignore", category=ResourceWarning)
    if chosen.seed is not None:
        told = simulate(chosen.seed, chosen.rounds, chosen.simulated, windows=chosen.windows, hazard=chosen.hazard)
        show(told, chosen.lines)
        return 1 if told.violation else 0
    begin, busy, seed, rounds, simulated = time.monotonic(), time.process_time(), chosen.first, 0, 0.0
    while time.monotonic() - begin < chosen.seconds:
        told = simulate(seed, chosen.rounds, chosen.simulated, windows=chosen.windows, hazard=chosen.hazard)
        rounds, simulated = rounds + told.rounds, simulated + told.seconds
        if told.violation:
            show(told, 40)
            return 1
        seed += chosen.step
    took, busy = time.monotonic() - begin, time.process_time() - busy
    count = (seed - chosen.first) // chosen.step
    print(
        f"{count} seeds from {chosen.first}, nothing found: {rounds} rounds in {took:.0f} s, {simulated / took:.0f} "
        f"times as fast as life; {rounds / busy * 3600:,.0f} rounds an hour of one core"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
