"""How fast a cohort trains here, against other ways to train it: `python benchmarks/simulation.py --help`.

One round: 50 users of 50 examples, one epoch, batches of 10, clip norm 0.4. Client-tasks (one user's local training)
per CPU second of one thread, best of `--repeats` rounds; every way is measured in turn, in the same process, on the
same data. `flower` is Flower's Ray simulation with as many actors as cores, by wall clock, after its first round.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from torch import nn

from fieldfare import clipping
from fieldfare.plan import ClientSpec
from fieldfare.task import Task, seeded
from fieldfare.wire import Schema
from fieldfare_client.training import Trainer, clip_with
from fieldfare_client.users import UserTable

USERS, ROWS, BATCH, RATE, CLIP = 50, 50, 10, 0.1, 0.4


class Gru(nn.Module):
    """A small next-character model."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.recurrent = nn.Embedding(64, 32), nn.GRU(32, 64, batch_first=True)
        self.head = nn.Linear(64, 64)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(self.recurrent(self.embedding(inputs))[0])
        return outputs


def lenet() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


def cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * 14 * 14, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


def mlp(inputs: int, hidden: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 10))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...] | None]] = {
    "mlp-2k": (lambda: mlp(64, 32), (64,)),
    "mlp-197k": (lambda: mlp(3072, 64), (3072,)),
    "lenet-62k": (lenet, (3, 32, 32)),
    "cnn-1.6M": (cnn, (3, 32, 32)),
    "gru-25k": (Gru, None),
}


class BenchTask(Task):
    """One of `MODELS` on random data."""

    name = "bench"
    score_name = "none"
    held_out = "Nothing is evaluated."

    def __init__(self, model: str) -> None:
        self.make, self.shape = MODELS[model]

    def build_model(self) -> nn.Module:
        with seeded(0):
            return self.make()

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if outputs.ndim == 3:
            return nn.functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none").mean(1)
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    def users(self) -> UserTable:
        generator, rows = np.random.default_rng(0), USERS * ROWS
        if self.shape is None:
            columns = {"x": generator.integers(0, 64, (rows, 20)), "y": generator.integers(0, 64, (rows, 20))}
        else:
            x: Any = generator.standard_normal((rows, *self.shape), np.float32)
            columns = {"x": x, "y": generator.integers(0, 10, rows)}
        return UserTable([str(user) for user in range(USERS)], np.arange(USERS + 1) * ROWS, columns)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"none": 0.0}


def ours(task: BenchTask, table: UserTable, engine: Any = "auto") -> Callable[[], Any]:
    """Fieldfare's own training, with the clipping of a plan."""
    schema = Schema.of(task.build_model())
    spec = clipping.parse({"kind": "flat", "norm": CLIP})
    client = ClientSpec(engine=engine, batch_size=BATCH, learning_rate=RATE)
    trainer = Trainer(task, client, clip_with(spec, schema))
    start = schema.flatten(dict(task.build_model().named_parameters()))
    rounds = iter(range(10**9))
    run = lambda: trainer.train([start], [1.0], table, np.arange(USERS), at_round=next(rounds))  # noqa: E731
    run.explain = trainer.explain  # type: ignore[attr-defined]
    return run


def plain(task: BenchTask, table: UserTable) -> Callable[[], Any]:
    """What one writes first: a module, an optimizer, one user after another."""
    rows = table.rows(np.arange(USERS)).columns
    model = task.build_model()
    start = [p.detach().clone() for p in model.parameters()]

    def run() -> list[torch.Tensor]:
        total = [torch.zeros_like(p) for p in start]
        for user in range(USERS):
            with torch.no_grad():
                for p, s in zip(model.parameters(), start, strict=True):
                    p.copy_(s)
            optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
            for batch in torch.randperm(ROWS).add(user * ROWS).split(BATCH):
                optimizer.zero_grad()
                task.loss(model(rows["x"][batch]), rows["y"][batch]).mean().backward()
                optimizer.step()
            with torch.no_grad():
                update = [p - s for p, s in zip(model.parameters(), start, strict=True)]
                norm = torch.linalg.vector_norm(torch.stack([u.norm() for u in update]))
                for t, u in zip(total, update, strict=True):
                    t += u * (CLIP / norm).clamp(max=1)
        return total

    return run


def lean(task: BenchTask, table: UserTable) -> Callable[[], Any]:
    """The leanest sequential loop: `torch.autograd.grad` and fused list operations, nothing checked."""
    rows = table.rows(np.arange(USERS)).columns
    model = task.build_model()
    weights = list(model.parameters())
    start = [p.detach().clone() for p in weights]

    def run() -> list[torch.Tensor]:
        total = [torch.zeros_like(p) for p in start]
        for user in range(USERS):
            with torch.no_grad():
                torch._foreach_copy_(weights, start)
            for batch in torch.randperm(ROWS).add_(user * ROWS).split(BATCH):
                gradient = torch.autograd.grad(task.loss(model(rows["x"][batch]), rows["y"][batch]).mean(), weights)
                with torch.no_grad():
                    torch._foreach_add_(weights, gradient, alpha=-RATE)
            with torch.no_grad():
                update = torch._foreach_sub(weights, start)
                norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(update)))
                torch._foreach_mul_(update, (CLIP / norm).clamp_(max=1))
                torch._foreach_add_(total, update)
        return total

    return run


def tasks_per_second(ways: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Best of `repeats` rounds of each, interleaved, after two rounds that do not count."""
    best = dict.fromkeys(ways, float("inf"))
    for repeat in range(repeats + 2):
        for name, run in ways.items():
            began = time.process_time()
            run()
            if repeat >= 2:
                best[name] = min(best[name], time.process_time() - began)
    return {name: USERS / seconds for name, seconds in best.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--flower", action="store_true", help="also Flower's Ray simulation (minutes)")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    results = {}
    for name in chosen.models:
        task = BenchTask(name)
        table = task.users()
        fieldfare = ours(task, table)
        found = tasks_per_second(
            {"fieldfare": fieldfare, "lean": lean(task, table), "plain": plain(task, table)}, chosen.repeats
        )
        if chosen.flower:
            from simulation_flower import flower_tasks_per_second

            began = time.perf_counter()
            for _ in range(chosen.repeats):
                fieldfare()
            found["fieldfare, wall"] = chosen.repeats * USERS / (time.perf_counter() - began)
            found["flower, wall"] = flower_tasks_per_second(name, chosen.repeats)
        results[name] = {"tasks_per_second": found, "engine": fieldfare.explain()}  # type: ignore[attr-defined]
        if not chosen.json:
            shown = "  ".join(f"{way} {speed:,.0f}/s" for way, speed in found.items())
            ratios = f"{found['fieldfare'] / found['lean']:.2f}x lean, {found['fieldfare'] / found['plain']:.2f}x plain"
            if chosen.flower:
                ratios += f", {found['fieldfare, wall'] / found['flower, wall']:.0f}x Flower on Ray"
            print(f"{name}: {shown}  ({ratios})\n    {'; '.join(results[name]['engine'])}", flush=True)
    if chosen.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
