"""Whole rounds of `ff.simulate`: `python simulation_round.py MODEL COHORT [--phases] [--workers N] [--sampled]`.

Nothing is left out: users are selected, the round is opened in a ledger on disk, trained, clipped, summed, noised on
the default grid with BLT noise of three buffers, stepped, written as a checkpoint, charged and committed.
A part of `simulation.py` and `cores.py`.
"""

from __future__ import annotations

import argparse
import functools
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

import fieldfare as ff
from fieldfare.errors import Interrupted
from fieldfare_client.training.trainer import Trainer
from fieldfare_server.run.round.strategy import FieldfareStrategy
from simulation_models import BATCH, CLIP, EPSILON, POPULATION, RATE, SEPARATION, largest
from simulation_task import BenchTask
from simulation_turns import Turnstile

ROUNDS = 512
"""Planned; a benchmark stops long before."""

PHASES = {
    "select": ["fieldfare_server.run.presence.presence:Presence.select"],
    "open in the ledger": ["fieldfare_server.ledger.run_handle:RunHandle.open_round"],
    "write and read messages": [
        "fieldfare_server.run.round.dialects:CohortDialect.write",
        "fieldfare_client.simulation:LocalGrid.push_messages",
        "fieldfare_client.simulation:LocalGrid.answer",
        "fieldfare_server.run.round.attempt:Attempt.add",
    ],
    "train": ["fieldfare_client.training.trainer:Trainer.train"],
    "sum": ["fieldfare_server.run.round.aggregation:Aggregate.add"],
    "noise": [
        "fieldfare_server.run.round.rounds:Rounds._draw_nonce",
        "fieldfare_server.run.round.running_noise:RunningNoise.privatise",
        "fieldfare_server.run.round.running_noise:RunningNoise.state",
    ],
    "charge": ["fieldfare_server.run.round.rounds:Rounds._charge_round"],
    "checkpoint": [
        "fieldfare_server.files.checkpoint:RunFiles.write",
        "fieldfare_server.files.checkpoint:RunFiles.promote",
    ],
    "commit in the ledger": [
        "fieldfare_server.run.round.commits:Commits.commit_written",
        "fieldfare_server.run.round.commits:Commits.commit_held",
        "fieldfare_server.ledger.run_handle:RunHandle.hold_round",
        "fieldfare_server.ledger.run_handle:RunHandle.request",
    ],
    "epsilon and report": ["fieldfare_server.run.round.strategy:FieldfareStrategy._report"],
}
"""Of a round, with the functions that each is; what else a round does is "other"."""


class Stopwatch:
    """CPU seconds of this thread by phase; a function's own seconds are not those of its caller."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._within: list[str] = ["other"]
        self._since = time.thread_time()

    def install(self) -> None:
        """Put a stopwatch around every function of `PHASES`."""
        for phase, paths in PHASES.items():
            for path in paths:
                module, _, name = path.partition(":")
                owner, _, method = name.partition(".")
                found: Any = getattr(import_module(module), owner)
                setattr(found, method, self._timed(phase, getattr(found, method)))

    def reset(self) -> None:
        """Begin at zero."""
        self.seconds.clear()
        self._since = time.thread_time()

    def _switch(self) -> None:
        now = time.thread_time()
        self.seconds[self._within[-1]] += now - self._since
        self._since = now

    def _timed(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **keywords: Any) -> Any:
            self._switch()
            self._within.append(phase)
            try:
                return function(*args, **keywords)
            finally:
                self._switch()
                self._within.pop()

        return timed


def main(model: str, cohort: int, phases: bool, workers: int = 1, sampled: bool = False) -> None:
    torch.set_num_threads(1)
    watch, turnstile, whole = Stopwatch(), Turnstile(), FieldfareStrategy.run_round
    trainers: list[Trainer] = []
    done = 0

    def run_round(strategy: FieldfareStrategy, grid: Any) -> bool:
        nonlocal done
        if not turnstile.enter():
            print(largest([strategy.session.params]))
            raise KeyboardInterrupt
        done += 1
        if done == 4 and phases:
            watch.reset()  # the first rounds choose an engine and fill caches
        return whole(strategy, grid)

    def make_trainer(trainer: Trainer, *args: Any, **keywords: Any) -> None:
        make(trainer, *args, **keywords)
        trainers.append(trainer)

    make = Trainer.__init__
    if phases:
        watch.install()
    FieldfareStrategy.run_round, Trainer.__init__ = run_round, make_trainer  # type: ignore[method-assign, assignment]
    users = POPULATION * cohort
    # Other processes load a task by its name.
    named: dict[str, Any] = {"task": "simulation_task:BenchTask", "parameters": {"model": model, "users": users}}
    drawn: dict[str, Any] = {
        "mechanism": {"kind": "blt", "buffers": 3},
        "participation": {"scheme": "min-separation", "separation": SEPARATION},
    }
    if sampled:
        drawn = {
            "mechanism": "independent",
            "participation": {"scheme": "poisson", "rate": 1 / POPULATION},
            "adjacency": "add_remove",
        }
    plan = ff.Plan(
        **(named if workers > 1 else {"task": BenchTask(model, users)}),
        epsilon=EPSILON,
        delta=1e-6,
        rounds=ROUNDS,
        cohort=cohort,
        clip=CLIP,
        accept_noise=True,  # a benchmark of speed
        **drawn,
        client={"batch_size": BATCH, "learning_rate": RATE, "workers": workers},
    )
    with tempfile.TemporaryDirectory() as directory:
        try:
            ff.simulate(plan, population="bench", budget=1e9, ledger=directory, accept_delta=True, progress=False)
        except Interrupted:
            print(json.dumps({"engine": [line for trainer in trainers for line in trainer.explain()]}))
    if phases:
        watch._switch()
        print(json.dumps({"phases": {name: 1e3 * took / (done - 3) for name, took in watch.seconds.items()}}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("cohort", type=int)
    parser.add_argument("--phases", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--sampled", action="store_true")
    main(**vars(parser.parse_args()))
