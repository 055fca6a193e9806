"""How fast the shipped sampled plans train: `python benchmarks/sampled.py [--cohorts 50 500] [--turns 7]`.

Of each model that a sampled plan under `deploy/plans` trains: rounds of its users where it is secret who trains
(`add_remove`), in turns with rounds of the same users where it is not, by CPU time of one thread. Shares are medians
over pairs of neighbouring turns. Users of the flights are those of the plan; images are made up, one a user.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch

from fieldfare import clipping
from fieldfare.plan_tables import ClientSpec
from fieldfare.schema import Schema
from fieldfare.task import Task, load_task
from fieldfare_client.training.clip import clip_with
from fieldfare_client.training.trainer import Trainer
from fieldfare_client.users import UserTable

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks/research"))
WARM = 4
"""Rounds before the first that counts: trials of chunks, the choice of an engine."""


def images(*shape: int) -> Callable[[Task], UserTable]:
    """Make up 2 000 users with one image each."""
    draw, users = np.random.default_rng(0), 2000
    columns = {"x": draw.integers(0, 256, (users, *shape)).astype(np.uint8), "y": draw.integers(0, 10, users)}
    return lambda task: UserTable([str(user) for user in range(users)], np.arange(users + 1), columns)


PLANS: dict[str, Callable[[Task], Any]] = {
    "flights-poisson": lambda task: task.users(),
    "papers/disk-mnist-base": images(28, 28),
    "papers/disk-cifar10-base": images(32, 32, 3),
}
"""A plan of each model, and its users: further sampled plans of the same model train it alike."""


def measure(plan: str, cohort: int, turns: int) -> str:
    """One row of the table."""
    tables = tomllib.loads((ROOT / f"deploy/plans/{plan}.toml").read_text())
    task = load_task(tables["run"]["task"])
    table, model = PLANS[plan](task), task.build_model()
    schema = Schema.of(model)
    start = schema.flatten(dict(model.named_parameters())).detach()
    clip = clip_with(clipping.parse({"kind": "flat", "norm": tables["clipping"]["norm"]}), schema)
    client = ClientSpec.model_validate(tables["client"])
    both = [Trainer(task, client, clip, isolated=isolated) for isolated in (False, True)]
    draw, took, loads = np.random.default_rng(1), list[list[float]](), [os.getloadavg()[0]]
    for at_round in range(WARM + turns):
        users = draw.choice(len(table), min(cohort, len(table)), replace=False)
        took.append([])
        for trainer in both:
            began = time.process_time()
            trainer.train([start], [1.0], table, users, at_round=at_round)
            took[-1].append(1e3 * (time.process_time() - began))
        loads.append(os.getloadavg()[0])
    unsampled, sampled = (median(turn[place] for turn in took[WARM:]) for place in (0, 1))
    share = median(turn[0] / turn[1] for turn in took[WARM:])
    how = "; ".join(trainer.explain()[-1].partition(":")[0] for trainer in both)
    return (
        f"| {plan}, {cohort} | {unsampled:.1f} | {sampled:.1f} | {share:.2f} | {how} "
        f"| {min(loads):.0f} to {max(loads):.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plans", nargs="*", choices=PLANS, default=list(PLANS))
    parser.add_argument("--cohorts", type=int, nargs="*", default=[50, 500])
    parser.add_argument("--turns", type=int, default=7)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print("| plan, cohort | a round unsampled, CPU ms | sampled | speed, of unsampled | engines | load |")
    print("|---" * 6 + "|")
    for plan in chosen.plans:
        for cohort in chosen.cohorts:
            print(measure(plan, cohort, chosen.turns), flush=True)


if __name__ == "__main__":
    main()
