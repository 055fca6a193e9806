"""`python -m simulator`: one seed with its history, or as many seeds as fit into a time."""

from __future__ import annotations

import argparse
import sys
import time
import warnings

from simulator.history import Told, simulate

CALM, LONGER = 0.02, 4
"""Of every third history: the share of the hazard, and how many times the rounds."""


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
    parser.add_argument("--calm", action="store_true", help=f"{CALM:g} of that hazard, and {LONGER} times the rounds")
    chosen = parser.parse_args()
    warnings.filterwarnings("ignore", category=ResourceWarning)

    def play(seed: int, calm: bool) -> Told:
        rounds, hazard = (LONGER * chosen.rounds, CALM * chosen.hazard) if calm else (chosen.rounds, chosen.hazard)
        return simulate(seed, rounds, chosen.simulated, windows=chosen.windows, hazard=hazard)

    if chosen.seed is not None:
        told = play(chosen.seed, chosen.calm)
        show(told, chosen.lines)
        return 1 if told.violation else 0
    begin, busy, count, rounds, simulated = time.monotonic(), time.process_time(), 0, 0, 0.0
    while time.monotonic() - begin < chosen.seconds:
        # In stormy histories most of the time goes to recoveries; calm ones have the rounds, and the long logs.
        seed, calm = chosen.first + count * chosen.step, count % 3 == 2 or chosen.calm
        told = play(seed, calm)
        count, rounds, simulated = count + 1, rounds + told.rounds, simulated + told.seconds
        if told.violation:
            show(told, 40)
            print(f"python -m simulator --seed {seed}{' --calm' if calm else ''}")
            return 1
    took, busy = time.monotonic() - begin, time.process_time() - busy
    print(
        f"{count} histories from seed {chosen.first}, a third of them calm, nothing found: {rounds} rounds in "
        f"{took:.0f} s, {simulated / took:.0f} times as fast as life; "
        f"{rounds / busy * 3600:,.0f} rounds an hour of one core"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
