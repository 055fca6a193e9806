"""What odometers of 1 000 000 users add to a round and to memory: `python benchmarks/odometers.py [users] [cohort]`.

A run of 2 000 rounds, each user at most 6 times, at least 314 apart (nu). Timed for each round: who of the candidates
has enough left, what the round costs its users, the check against what they have left, and the blob that the commit
stores. Where a user was pledged less than the run can cost, candidates are judged one by one: measured for all users.
CPU time of the one thread, so that other programs of the machine do not count. And once for all users: the check of a
run's admission (`odometers.admission`), with its pledges, and the histogram of the page.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from fieldfare.costing import cost_of
from fieldfare.plan import Plan
from fieldfare_server.ledger.sql import odometer_tables
from fieldfare_server.ledger.state import odometers
from fieldfare_server.run.pricing import demand_of


def main() -> None:
    users, cohort = (int(value) for value in (*sys.argv[1:], 1_000_000, 1000)[:2])
    table = {
        "privacy": {"population": "p", "noise_multiplier": 7.0, "delta": 1e-10},
        "run": {"task": "t", "rounds": 2000, "cohort": cohort},
        "participation": {"scheme": "min-separation", "separation": 314, "max_participations": 6},
        "mechanism": {"kind": "nu", "nu": 0.1},
    }
    cost = cost_of(Plan.parse(table))
    charge, most = cost.realised(), cost.most_units()
    generator = np.random.default_rng(1)
    caps, taken = np.full(users, most, dtype=np.int64), np.zeros(users, dtype=np.int64)
    caps[: users // 2] -= 1  # half of the users are not pledged in full
    added, before = [], []
    for round in range(2000):
        drawn = generator.choice(users, 2 * cohort, replace=False)
        last, count = charge._record.last_and_count(drawn)
        able = drawn[(count == 0) | ((round - last >= 314) & (count < 6))]
        charge._products_of(round)  # which the charge of the whole run needs anyway
        start = time.thread_time()
        affords = cost.increments(charge.growth(round, able)) <= caps[able] - taken[able]
        asked = able[affords][:cohort]
        units = cost.increments(charge.growth(round, asked))
        assert (units <= caps[asked] - taken[asked]).all()
        blob = odometer_tables.encode(units[np.argsort(asked, kind="stable")])
        odometers.digest(units)
        taken[asked] += units
        added.append(time.thread_time() - start)
        start = time.thread_time()
        charge.add(round, asked)
        before.append(time.thread_time() - start)
    milliseconds = np.array(added) * 1e3
    print(
        f"{users} users, cohort {cohort}: median {np.median(milliseconds):.2f} ms a round, 95 % below "
        f"{np.quantile(milliseconds, 0.95):.2f} ms (of it, the charge that was there before: "
        f"{np.median(before) * 1e3:.2f} ms); {(caps.nbytes + taken.nbytes) / 1e6:.0f} MB; {len(blob)} bytes a commit"
    )

    room = generator.integers(0, most + 1, users)
    demand = demand_of(cost.plan, cost)
    assert demand is not None
    for name, work in (
        ("admission", lambda: (odometers.admission(room, demand, 0), odometers.pledge(room, demand.most))),
        ("digest and blobs of the pledges", lambda: (odometers.digest(room), odometer_tables.encode(room))),
        ("histogram", lambda: odometers.histogram(room, most)),
    ):
        start = time.thread_time()
        work()
        print(f"{name} of {users} users: {(time.thread_time() - start) * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
