"""Training on a GPU against a CPU, sampled and not: `python benchmarks/gpu.py [--device cuda] [--seconds 240]`.

What a node does between receiving a model and sending a sum, of the models of the simulation benchmark: users of 50
examples, batches of 10, one epoch, clipping. "sampled" is `add_remove`, where no bit of a user's update may depend on
who else trains. That is checked here: users are trained in cohorts of several sizes, and every bit is compared; so is
what happens where memory runs out. The exit code says whether all of it held.

Needs numpy, torch, pydantic, and `shared/` and `client/` on PYTHONPATH; what else those import is replaced where it is
missing, because no training calls it. `--device cpu` runs the same checks without a GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import os
import sys
import time
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import numpy as np
import torch


class _Missing:
    """Imports stand-ins of packages that prices and keys need, and training does not."""

    wanted = ("scipy", "cryptography", "flwr", "platformdirs")
    names = tuple(name for name in wanted if importlib.util.find_spec(name) is None)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] in self.names else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module: Any = MagicMock(name=spec.name)
        module.__path__, module.__spec__, module.__all__ = [], spec, []
        return module  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        pass


sys.meta_path.append(_Missing())  # type: ignore[arg-type]

from fieldfare import clipping  # noqa: E402
from fieldfare.plan_tables import ClientSpec  # noqa: E402
from fieldfare.schema import Schema  # noqa: E402
from fieldfare.task import Task  # noqa: E402
from fieldfare_client.training import isolation  # noqa: E402
from fieldfare_client.training.clip import clip_with  # noqa: E402
from fieldfare_client.training.trainer import Trainer  # noqa: E402
from fieldfare_client.users import UserTable  # noqa: E402
from simulation_models import BATCH, CLIP, RATE, ROWS, columns, example_loss, make  # noqa: E402

CASES = [
    ("mlp-2k", 50),
    ("mlp-2k", 500),
    ("mlp-197k", 50),
    ("lenet-62k", 50),
    ("cnn-1.6M", 20),
    ("lstm-31k", 50),
    ("lstm-31k", 500),
    ("transformer-35k", 50),
]


class Made(Task):
    """A model of the simulation benchmark, and users with random rows."""

    name, score_name, held_out = "made", "loss", "Nothing is evaluated."

    def __init__(self, model: str, users: int, even: bool = True) -> None:
        self.model, self.count, self.even = model, users, even

    def build_model(self) -> torch.nn.Module:
        return make(self.model)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return example_loss(outputs, targets)

    def users(self) -> UserTable:
        sizes = np.full(self.count, ROWS)
        if not self.even:
            sizes -= np.random.default_rng(1).integers(0, ROWS - BATCH, self.count)
        ends, data = np.concatenate(([0], np.cumsum(sizes))), columns(self.model, self.count)
        ids = [f"user {number}" for number in range(self.count)]
        return UserTable(ids, ends, {name: values[: ends[-1]] for name, values in data.items()})

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        return {"loss": 0.0}


class Cohorts:
    """A trainer of a task on a device, and the clipped updates of its last cohort."""

    def __init__(self, task: Made, device: str, isolated: bool, engine: str = "auto") -> None:
        model = task.build_model()
        schema = Schema.of(model)
        self.start, self.table = schema.flatten(dict(model.named_parameters())).detach(), task.users()
        clip = clip_with(clipping.parse({"kind": "flat", "norm": CLIP}), schema)
        client = ClientSpec(batch_size=BATCH, learning_rate=RATE, engine=engine)
        self.trainer = Trainer(task, client, clip, device=device, isolated=isolated)

    def train(self, users: np.ndarray[Any, Any], at_round: int) -> Any:
        return self.trainer.train([self.start], [1.0], self.table, users, at_round=at_round)

    def each(self, users: np.ndarray[Any, Any]) -> dict[int, torch.Tensor]:
        """Every user's clipped update, as it enters the sum."""
        from fieldfare_client.training import trainer

        rows: list[torch.Tensor] = []
        add = trainer.add_rows_

        def note(total: torch.Tensor, updates: torch.Tensor) -> None:
            rows.append(updates.detach().cpu().clone())
            add(total, updates)

        trainer.add_rows_ = note  # type: ignore[assignment]
        try:
            self.train(users, 0)
        finally:
            trainer.add_rows_ = add
        order = users[np.argsort(-self.table.sizes_of(users), kind="stable")]
        return dict(zip(order.tolist(), torch.cat(rows), strict=True))


def seconds_a_round(task: Made, device: str, isolated: bool, budget: float) -> tuple[float, str]:
    """Wall seconds of a round, the best of those that fit into `budget` after the first four; and the engine."""
    cohorts, users = Cohorts(task, device, isolated), np.arange(task.count)
    began, took = time.perf_counter(), list[float]()
    while len(took) < 5 or (len(took) < 12 and time.perf_counter() - began < budget):
        since = time.perf_counter()
        cohorts.train(users, len(took)).update.sum().item()
        took.append(time.perf_counter() - since)
        if time.perf_counter() - began > 4 * budget:
            break
    return min(took[min(4, len(took) - 1) :]), (cohorts.trainer.explain() or ["?"])[-1].partition(":")[0]


def isolated_bits(model: str, device: str) -> tuple[bool, str]:
    """Whether users in cohorts of 30, 13, 20 and 1 have the same bits, trained together; and what was tried."""
    task, chance = Made(model, 40, even=False), np.random.default_rng(2)
    everyone = chance.permutation(40)
    whole = Cohorts(task, device, True, "batched").each(everyone[:30])
    same = True
    for part in (everyone[10:23], everyone[25:26], everyone[20:]):
        cohorts = Cohorts(task, device, True, "batched")
        some = cohorts.each(part)
        same &= all(torch.equal(update, whole[user]) for user, update in some.items() if user in whole)
    tried = [fits for found in isolation.FOUND.values() for fits in found.values()]
    together = sum(cohorts.trainer._apart.width(int(rows)) > 0 for rows in task.users().sizes)  # type: ignore[union-attr]
    isolation.FOUND.clear()
    return same, f"{together} of 40 users in chunks, {sum(tried)} of {len(tried)} sizes fit"


def memory_runs_out(device: str) -> tuple[bool, str]:
    """Whether chunks are halved, and nobody fails, where memory holds few users."""
    if device == "cpu":
        return True, "not tried on a CPU"
    task = Made("lstm-31k", 500)
    cohorts, total = Cohorts(task, device, False, "batched"), torch.cuda.get_device_properties(0).total_memory
    expected = cohorts.train(np.arange(500), 0).update
    peak = torch.cuda.max_memory_reserved()
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(max(0.3 * peak, 2**28) / total)
    try:
        result = cohorts.train(np.arange(500), 0)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    close = torch.allclose(result.update, expected, rtol=1e-3, atol=1e-5)
    said = f"{cohorts.trainer._room} users at once in {0.3 * peak / 2**20:.0f} MiB, {result.failures.total()} failures"
    return close and not result.failures, said


def main(device: str, seconds: float) -> int:
    logging.basicConfig(format="%(message)s")
    torch.set_num_threads(1)
    name = torch.cuda.get_device_name(0) if device == "cuda" else "no GPU"
    print(f"torch {torch.__version__}, {name}, one CPU thread, load {os.getloadavg()[0]:.1f}")
    began, good = time.perf_counter(), True
    for model in ("mlp-2k", "lenet-62k", "lstm-31k", "transformer-35k"):
        try:
            same, said = isolated_bits(model, device)
        except Exception as error:
            same, said = False, f"{type(error).__name__}: {error}"
        good &= same
        print(f"{model}: {'every bit the same whoever else trains' if same else 'BITS MOVE'}; {said}", flush=True)
    try:
        held, said = memory_runs_out(device)
    except Exception as error:
        held, said = False, f"{type(error).__name__}: {error}"
    good &= held
    print(f"memory runs out: {'nobody fails' if held else 'FAILED'}; {said}\n")
    print("| model, cohort | device | ms a round | sampled, ms | sampled speed / unsampled | engines |", flush=True)
    print("|---" * 6 + "|")
    for model, users in CASES:
        for where in dict.fromkeys((device, "cpu")):
            left = seconds - (time.perf_counter() - began)
            if left < 0 or (where == "cpu" and device != "cpu" and left < seconds / 4):
                print(f"| {model}, {users} | {where} | no time left |")
                continue
            try:
                task, budget = Made(model, users), seconds / 80
                plain, how = seconds_a_round(task, where, False, budget)
                sampled, same_how = seconds_a_round(task, where, True, budget)
            except Exception as error:
                good = False
                print(f"| {model}, {users} | {where} | {type(error).__name__}: {error} |")
                continue
            cells = [f"{1e3 * plain:.2f}", f"{1e3 * sampled:.2f}", f"{plain / sampled:.2f}", f"{how}; {same_how}"]
            print(f"| {model}, {users} | {where} | {' | '.join(cells)} |", flush=True)
    print(f"\n{time.perf_counter() - began:.0f} s; {'all held' if good else 'SOMETHING DID NOT HOLD'}")
    return 0 if good else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--seconds", type=float, default=240.0)
    sys.exit(main(**vars(parser.parse_args())))
