"""Select, charge and remember a round's participants at a million users: milliseconds a round, megabytes of state.

    python benchmarks/participation.py [--users 1000000] [--cohort 1000] [--rounds 2000]

One process, one thread. The charge is the realised one of nu-DP-FTRL; no database is involved.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from fieldfare import mechanisms
from fieldfare.accounting.realised import RealisedCharge
from fieldfare.participation import MinSeparation
from fieldfare.participation_record import ParticipationRecord
from fieldfare_server.run.presence.selection import Selector


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("users", 1_000_000), ("cohort", 1000), ("rounds", 2000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    participation = MinSeparation(max(1, asked.rounds // 6), 6)
    mechanism = mechanisms.build({"kind": "nu", "nu": 0.001}, asked.rounds, participation)
    selector = Selector(participation, asked.rounds, asked.cohort, 1.3)
    charge = RealisedCharge(mechanism, participation, 7.0, users=asked.users)
    taken, rng = ParticipationRecord(asked.users), np.random.default_rng(0)
    everybody, spent = np.arange(asked.users), []
    for t in range(asked.rounds):
        start = time.perf_counter()
        chosen = selector.select(t, everybody, taken.last_and_count, rng, rng.random)
        selected = time.perf_counter()
        reported = rng.permutation(chosen)[: asked.cohort]
        answered = time.perf_counter()
        charge.add(t, reported)
        charged = time.perf_counter()
        taken.add(t, reported)
        spent.append((selected - start, charged - answered, time.perf_counter() - charged))
    median, worst = 1e3 * np.median(spent, axis=0), 1e3 * np.max(spent, axis=0)
    steps = ("select", "charge", "remember")
    print(
        json.dumps(
            {
                **vars(asked),
                "median_ms": dict(zip(steps, median.round(3).tolist(), strict=True)),
                "worst_ms": dict(zip(steps, worst.round(3).tolist(), strict=True)),
                "mu_spent": charge.spent.mu,
                "mu_planned": charge.planned.mu,
            }
        )
    )


if __name__ == "__main__":
    main()
