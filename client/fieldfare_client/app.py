"""The Flower ClientApp: the same one in process, under Ray, and in a SuperNode's ClientApp process.

Where a node's configuration comes from, first that is set:

* `task`: the node's own configuration (`--node-config 'task="flights"'`), FIELDFARE_TASK, the run's configuration.
  Never from a message: the server does not choose what code a node imports.
* which users it hosts: `partition-id` and `num-partitions` of the node's configuration; without them, all.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from fieldfare import clipping
from fieldfare.errors import BadInput
from fieldfare.plan import ClientSpec
from fieldfare.schema import Schema
from fieldfare.task import Task, load_task
from fieldfare_client.training import CohortUpdate, Trainer, clip_with
from fieldfare_client.training.workers import WorkerTrainer
from fieldfare_client.users import UserTable
from fieldfare_flower import logs
from fieldfare_flower.messages import TrainInstruction, TrainReply, write_users

log = logging.getLogger("fieldfare.client")

app = ClientApp()


@dataclass(frozen=True)
class Hosted:
    """What a node hosts: a task and its users."""

    name: str
    """What `load_task` knows the task by."""
    task: Task
    all_users: UserTable
    table: UserTable
    """Those of `all_users` who live here."""
    schema: Schema
    order: NDArray[np.int64]
    """Indices into the table by increasing pseudonym."""

    def find(self, names: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Table indices of those of `names` that live here."""
        sorted_names = self.table.pseudonyms[self.order]
        at = np.searchsorted(sorted_names, names)
        at[at == len(sorted_names)] = 0
        return self.order[at[sorted_names[at] == names]] if len(sorted_names) else np.zeros(0, np.int64)


@lru_cache(maxsize=1)
def _task(name: str) -> Task:
    # One at a time in a process: data are read once, however many simulated nodes share them.
    return load_task(name)


@lru_cache(maxsize=128)
def _hosted(name: str, index: int, count: int) -> Hosted:
    task = _task(name)
    users = task.users()
    if not isinstance(users, UserTable):
        raise BadInput(f"run.task = {name!r}", "its users() is not a fieldfare_client.users.UserTable.")
    table = users if count == 1 else users.partition(index, count)
    order = np.argsort(table.pseudonyms, kind="stable").astype(np.int64)
    return Hosted(name, task, users, table, Schema.of(task.build_model()), order)


def user_count(name: str) -> int:
    """How many users the task called `name` brings in all. Reads its data, which nodes of this process then share."""
    return len(_hosted(name, 0, 1).table)


def preload() -> None:
    """For a warm parent: read the users of the task that FIELDFARE_WARM_TASK names; every later task shares them.

    Set it only where the data do not change while the executor runs, and where importing the task's module draws no
    random numbers, which all tasks would then share. Raises `BadInput` for an unknown task.
    """
    if task := os.environ.get("FIELDFARE_WARM_TASK"):
        user_count(task)


def hosted(context: Context) -> Hosted:
    """What this node hosts. Raises `BadInput` where nothing says which task."""
    own, run = context.node_config, context.run_config
    name = own.get("task") or os.environ.get("FIELDFARE_TASK") or run.get("task")
    if not name:
        raise BadInput("task", "neither the node nor the run says which task to train.", 'node-config task="flights"')
    return _hosted(str(name), int(own.get("partition-id", 0)), int(own.get("num-partitions", 1)))


@lru_cache(maxsize=8)
def _trainer(task: Task, settings: str, device: str) -> tuple[Trainer, clipping.ClippingSpec]:
    client, spec, seed = _settings(json.loads(settings))
    return Trainer(task, client, clip_with(spec, Schema.of(task.build_model())), seed=seed, device=device), spec


def _settings(said: dict[str, Any]) -> tuple[ClientSpec, clipping.ClippingSpec, int]:
    return ClientSpec.model_validate(said["client"]), clipping.parse(said["clipping"]), int(said["seed"])


class _Pool:
    """The process's training workers: one pool, kept from round to round, replaced where another one is asked for."""

    def __init__(self) -> None:
        self._key: tuple[Any, ...] = ()
        self._workers: WorkerTrainer | None = None

    def get(
        self,
        here: Hosted,
        client: ClientSpec,
        spec: clipping.ClippingSpec,
        workers: int,
        seed: int,
        points: int,
        queries: int,
    ) -> WorkerTrainer:
        key = here.name, client.model_dump_json(), workers, seed, points, queries
        if self._workers is None or self._key != key or not self._workers.alive:
            self.close()
            # For all users of the task, so that all nodes that this process simulates share it.
            self._workers = WorkerTrainer(
                here.name, client, spec, here.all_users, workers=workers, seed=seed, points=points, queries=queries
            )
            self._key = key
        return self._workers

    def close(self) -> None:
        if self._workers is not None:
            self._workers.close()
        self._workers = None


_POOL = _Pool()
atexit.register(_POOL.close)


def _train(
    here: Hosted,
    points: list[torch.Tensor],
    instruction: TrainInstruction,
    users: NDArray[np.int64],
) -> tuple[CohortUpdate, clipping.ClippingSpec]:
    settings, weights, queries = instruction.settings, instruction.weights, instruction.queries
    client, spec, seed = _settings(settings)
    # The server may ask for workers, the machine says how many there can be. A GPU is not shared between processes.
    workers = min(client.workers, os.cpu_count() or 1)
    if workers > 1 and _device() == "cpu":
        pool = _POOL.get(here, client, spec, workers, seed, len(points), queries)
        inside = here.table.positions(users)
        return pool.train(points, weights, inside, at_round=instruction.batches, spec=spec, queries=queries), spec
    trainer, spec = _trainer(here.task, json.dumps(settings, sort_keys=True), _device())
    return trainer.train(points, weights, here.table, users, at_round=instruction.batches, queries=queries), spec


@app.query("users")
def users(message: Message, context: Context) -> Message:
    """Which users live here, by pseudonym, and which model they would train."""
    logs.configure_app()
    here = hosted(context)
    return Message(write_users(here.table.pseudonyms, here.schema), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the users of the cohort that live here; reply with the sum of their clipped updates and their number."""
    logs.configure_app()
    here = hosted(context)
    instruction = TrainInstruction.read(message.content, here.schema)
    with logs.about(instruction.occasion.run, instruction.occasion.round):
        return _answer(here, instruction, message)


def _answer(here: Hosted, instruction: TrainInstruction, message: Message) -> Message:
    points = [
        torch.cat([torch.from_numpy(p[name]).reshape(-1) for name in here.schema.names]) for p in _own(instruction)
    ]
    result, spec = _train(here, points, instruction, here.find(instruction.users))
    update = result.update.cpu().float()
    if not bool(torch.isfinite(update).all()):
        # Cannot happen after clipping; if it did, the server would have to drop this node's users.
        update = torch.zeros_like(update)
    counts = result.counts or (0.0,) * spec.counts
    sums = here.schema.stacked(instruction.queries).arrays(update)
    reply = TrainReply(instruction.occasion, sums, result.users, counts)
    return Message(reply.write(), reply_to=message)


def _own(instruction: TrainInstruction) -> list[dict[str, Any]]:
    # Arrays read from the wire are read-only views of the message; torch wants writable memory.
    return [{name: value.copy() for name, value in point.items()} for point in instruction.points]


def _device() -> str:
    return os.environ.get("FIELDFARE_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")
