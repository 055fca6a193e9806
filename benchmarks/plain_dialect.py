"""What a round of the plain dialect costs the server beside noise, against Flower's own wrapper for fixed clipping.

    .venv/bin/python benchmarks/plain_dialect.py [--parameters 10000000] [--nodes 4] [--rounds 5] [--out DIRECTORY]

Both run the same ClientApp in one process, in turn. It answers with arrays that were made before the clock started, so
that a round is what the server does: write instructions, read replies, clip, sum, step. Seconds are the CPU's, which
other programs on the machine stretch less than the clock's; waits for the disk are not in them. Excluded, by their own
clocks, are the ClientApp and the drawing of noise in both. Ours is measured twice: a run as a user starts it, with
ledger and checkpoints on disk, which Flower's wrapper has not; and the same rounds without them. All use one thread.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg, dp_fixed_clipping
from threadpoolctl import threadpool_limits

from fieldfare_client.simulation import LocalGrid
from fieldfare_server.run.private.plan import plan_from
from fieldfare_server.run.private.strategy import PrivateStrategy
from fieldfare_server.run.round.dialects import PlainDialect, same_config
from fieldfare_server.run.round.own_model import OwnModel
from fieldfare_server.run.round.roles import assign_roles
from fieldfare_server.run.round.running_noise import RunningNoise
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session

CLIP = 1.0


class Clock:
    """Seconds spent in what is not counted."""

    def __init__(self) -> None:
        self.excluded = 0.0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, whose time is not counted."""

        def timed(*places: Any, **names: Any) -> Any:
            began = time.process_time()
            try:
                return function(*places, **names)
            finally:
                self.excluded += time.process_time() - began

        return timed


def make_app(arrays: ArrayRecord, clock: Clock) -> ClientApp:
    """Answers with the same arrays, moved by a little, whatever it is sent."""
    moved = ArrayRecord({name: Array(array.numpy() + np.float32(1e-3)) for name, array in arrays.items()})
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"num-examples": 10, "train_loss": 0.5})
        return Message(RecordDict({"arrays": moved, "metrics": metrics}), reply_to=message)

    return app


def time_rounds(clock: Clock, run: Callable[[Callable[[], None]], None]) -> list[float]:
    """Seconds of each round but the first, without what `clock` excludes. run: is given what to call after a round."""
    marks: list[float] = []

    def mark() -> None:
        marks.append(time.process_time() - clock.excluded)

    run(mark)
    return [after - before for before, after in itertools.pairwise(marks)]


def time_flower(arrays: ArrayRecord, nodes: int, rounds: int) -> list[float]:
    """Rounds of FedAvg in Flower's wrapper."""
    clock = Clock()
    grid = LocalGrid(make_app(arrays, clock), nodes, {})
    grid.answer = clock.wrap(grid.answer)  # type: ignore[method-assign]
    original = dp_fixed_clipping.add_gaussian_noise_inplace
    dp_fixed_clipping.add_gaussian_noise_inplace = clock.wrap(original)
    try:
        fedavg = FedAvg(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes)
        wrapper = DifferentialPrivacyServerSideFixedClipping(fedavg, 1.0, CLIP, nodes)
        config = ConfigRecord({"lr": 0.1})
        return time_rounds(
            clock,
            lambda mark: wrapper.start(grid, arrays, rounds, train_config=config, evaluate_fn=lambda n, a: mark()),
        )
    finally:
        dp_fixed_clipping.add_gaussian_noise_inplace = original


def time_private(arrays: ArrayRecord, nodes: int, rounds: int) -> list[float]:
    """Rounds of a private run as a user starts it."""
    clock = Clock()
    grid = LocalGrid(make_app(arrays, clock), nodes, {})
    grid.answer = clock.wrap(grid.answer)  # type: ignore[method-assign]
    original = RunningNoise.privatise
    RunningNoise.privatise = clock.wrap(original)  # type: ignore[method-assign]
    try:
        with tempfile.TemporaryDirectory() as home:
            strategy = PrivateStrategy(
                epsilon=8, delta=1e-5, cohort=nodes, clip=CLIP, mechanism="independent", population="p", budget=100,
                home=home,
            )  # fmt: skip
            config = ConfigRecord({"lr": 0.1})
            return time_rounds(
                clock,
                lambda mark: strategy.start(grid, arrays, rounds, train_config=config, evaluate_fn=lambda n, a: mark()),
            )
    finally:
        RunningNoise.privatise = original  # type: ignore[method-assign]


def time_dialect(arrays: ArrayRecord, nodes: int, rounds: int) -> list[float]:
    """The same rounds without noise, ledger and checkpoints: what both strategies do."""
    clock = Clock()
    grid = LocalGrid(make_app(arrays, clock), nodes, {})
    grid.answer = clock.wrap(grid.answer)  # type: ignore[method-assign]
    values = OwnModel.read(arrays)
    model = OwnModel(values, assign_roles(values))
    keywords = {"noise_multiplier": 1.0, "delta": 1e-5, "cohort": nodes, "clip": CLIP, "population": "p"}
    plan = plan_from(None, {**keywords, "mechanism": "independent"}, {}, rounds=rounds, nodes=nodes)
    session = Session.rehearse(
        plan, noise=False, model=model, dialect=PlainDialect(model, same_config(ConfigRecord({"lr": 0.1})))
    )

    def run(mark: Callable[[], None]) -> None:
        mark()

        def committed(report: object) -> None:
            model.record(session.params)  # as `evaluate_fn` and the `Result` get it
            mark()

        FieldfareStrategy(session, committed).take_to_end(grid)

    return time_rounds(clock, run)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--parameters", type=int, default=10_000_000)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=3, help="how often each is measured, in alternation")
    parser.add_argument("--out", type=Path, help="directory for plain_dialect.json")
    options = parser.parse_args()
    # Threads that wait for work burn seconds of the CPU, and the programs use different libraries for theirs.
    torch.set_num_threads(1)
    threadpool_limits(1)
    generator = np.random.default_rng(1)
    size = options.parameters // 10
    arrays = ArrayRecord(
        {f"layer{i}.weight": Array(generator.normal(0, 0.1, size).astype(np.float32)) for i in range(10)}
    )
    programs = {"flower's wrapper": time_flower, "plain dialect": time_dialect, "private run": time_private}
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(options.turns):
        for name, measure in programs.items():
            seconds[name] += measure(arrays, options.nodes, options.rounds)[1:]
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    result = {
        "command": shlex.join(["benchmarks/plain_dialect.py", *sys.argv[1:]]),
        "parameters": options.parameters,
        "nodes": options.nodes,
        "rounds": len(seconds["plain dialect"]),
        "median_seconds": medians,
        "range_seconds": {name: [min(values), max(values)] for name, values in seconds.items()},
        "overhead_of_the_dialect": medians["plain dialect"] / medians["flower's wrapper"] - 1,
        "overhead_with_ledger_and_checkpoints": medians["private run"] / medians["flower's wrapper"] - 1,
        "machine": {
            "threads": torch.get_num_threads(),
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "load": os.getloadavg(),
        },
    }
    print(json.dumps(result, indent=2))
    if options.out is not None:
        (options.out / "plain_dialect.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
