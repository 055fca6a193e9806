"""Containers that die at random in the middle of runs: which, when and how often is drawn from a seed, and printed.

`make containers-random SCHEDULES=20` runs twenty schedules; `SEEDS="17 23"` repeats those of an earlier run.
"""

from __future__ import annotations

import base64
import os
import random
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load

from support.container_runs import check_run, plan, run_alone
from support.containers import SERVICES, Federation, wait_for

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(4 * 3600)]

SCHEDULES = int(os.environ.get("CONTAINERS_SCHEDULES", "3"))
SEEDS = [int(word) for word in os.environ.get("CONTAINERS_SEEDS", "").split()]
ROUNDS = 4
LONGEST = 12.0
"""Most seconds between two kills: a round takes about four, so several may fall into one round."""


@dataclass(frozen=True)
class Kill:
    pause: float
    """Seconds since the kill before, or since the first round was open."""
    service: str


def draw(seed: int) -> list[Kill]:
    """One to five kills. Every third hits the service of the one before again, often while that comes back."""
    generator = random.Random(seed)
    kills: list[Kill] = []
    for _ in range(generator.randint(1, 5)):
        again = bool(kills) and generator.random() < 1 / 3
        service = kills[-1].service if again else generator.choice(SERVICES)
        kills.append(Kill(round(generator.uniform(0.0, LONGEST), 1), service))
    return kills


def seeds() -> Iterator[int]:
    if SEEDS:
        yield from SEEDS
    else:
        yield from (random.SystemRandom().randrange(10**6) for _ in range(SCHEDULES))


def model(federation: Federation, run: str) -> dict[str, np.ndarray]:
    """The arrays of the run's model, as it may be shared."""
    text = federation.exec("keeper", "base64", f"/state/runs/{run}/model.safetensors")
    return load(base64.b64decode(text))


def files(federation: Federation, run: str) -> list[str]:
    """What is left of the run on the coordinator's volume, but for its strategy, which is public."""
    listed = federation.exec("keeper", "find", f"/state/runs/{run}", "-type", "f", "-printf", "%P\n").split()
    found = [name for name in listed if not name.endswith(".strategy")]
    assert found == ["model.safetensors"], f"run {run}: a key or a checkpoint is left behind: {found}"
    return found


def note_return(federation: Federation, service: str, died: int, back: dict[str, list[float]]) -> None:
    """Seconds from now until `service` has a process again that is not `died`."""
    began = time.monotonic()
    wait_for(lambda: federation.main_process(service) not in (0, died), 120)
    back[service].append(time.monotonic() - began)


def print_recovery(back: dict[str, list[float]], commit: dict[str, list[float]]) -> None:
    """A table row for each service: seconds, median and most, until it runs again and until a round is committed."""
    print("| service | kills | process is back: median (most) | next commit: median (most) | each |")
    print("|---|--:|--:|--:|---|")
    for service, seconds in sorted(back.items()):
        cells = [f"{statistics.median(s):.0f} s ({max(s):.0f} s)" if s else "–" for s in (seconds, commit[service])]
        each = " ".join(f"{s:.0f}" for s in commit[service])
        print(f"| {service} | {len(seconds)} | {cells[0]} | {cells[1]} | {each} |")


def test_runs_outlive_schedules_of_kills_drawn_at_random(federation: Federation, tmp_path: Path) -> None:
    """At the end of each: the model, each round's charge and noise row, the whole journal, and no key left behind."""
    recovery: dict[str, list[float]] = defaultdict(list)
    back: dict[str, list[float]] = defaultdict(list)
    done = compared = kills_in_all = 0
    for seed in seeds():
        kills, began = draw(seed), time.monotonic()
        print(f"schedule {done + 1}, seed {seed}: {[(k.pause, k.service) for k in kills]}", flush=True)
        home = tmp_path / str(seed)
        alone = run_alone(plan(f"random-{seed}", ROUNDS), home)
        (reference,) = [load(path.read_bytes()) for path in home.glob("*/model.safetensors")]
        run = federation.submit(plan(f"random-{seed}", ROUNDS))
        federation.wait_open(run, 0)
        struck: list[tuple[float, str]] = []
        watchers: list[threading.Thread] = []
        for kill in kills:
            time.sleep(kill.pause)
            died = federation.strike(kill.service)
            struck.append((time.time(), kill.service))
            watchers.append(threading.Thread(target=note_return, args=(federation, kill.service, died, back)))
            watchers[-1].start()
        federation.wait_done(run)
        for watcher in watchers:
            watcher.join()
        same = check_run(federation, run, alone)
        released = model(federation, run)
        assert {name: value.shape for name, value in released.items()} == {
            name: value.shape for name, value in reference.items()
        }
        assert all(np.isfinite(value).all() for value in released.values())
        if same == ROUNDS:
            # Every round is the one of a single process, so the released model is that process's model.
            for name, value in released.items():
                np.testing.assert_allclose(value, reference[name], rtol=0, atol=1e-4, err_msg=f"seed {seed}: {name}")
            compared += 1
        # A coordinator that dies at the very end leaves its key to the next one, or to the `verify` in check_run.
        wait_for(lambda run=run: files(federation, run) == ["model.safetensors"], 120)  # type: ignore[misc]
        actions = federation.sql(f"SELECT action, count(*) FROM audit WHERE run = '{run}' GROUP BY action")
        counted = {str(action): int(count) for action, count in actions}
        assert counted["round.commit"] == ROUNDS, f"seed {seed}: {counted}"
        commits = federation.sql(f"SELECT at FROM audit WHERE run = '{run}' AND action = 'round.commit' ORDER BY at")
        for at, service in struck:
            later = [float(commit) - at for (commit,) in commits if float(commit) > at]
            if later:
                recovery[service].append(later[0])
        done, kills_in_all = done + 1, kills_in_all + len(kills)
        print(f"  {counted}, {time.monotonic() - began:.0f} s", flush=True)
    print_recovery(back, recovery)
    print(f"{done} schedules, {kills_in_all} kills, {compared} runs with the model of one process")
    assert done == (len(SEEDS) or SCHEDULES) > 0
