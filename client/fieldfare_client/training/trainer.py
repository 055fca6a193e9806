"""From a broadcast model and a cohort to the one thing that leaves a node: a sum of clipped updates, and a count."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fieldfare.errors import BadInput
from fieldfare.plan import ClientSpec
from fieldfare.schema import Schema
from fieldfare.task import Task
from fieldfare_client.training.choice import Candidate, Choice, recall, remember
from fieldfare_client.training.dropout import unkeyed
from fieldfare_client.training.engines import Chunk, Engine
from fieldfare_client.training.layered import LayeredEngine
from fieldfare_client.training.loop import LoopEngine
from fieldfare_client.training.schedule import schedule, steps_of, user_keys
from fieldfare_client.training.stacked import StackedEngine
from fieldfare_client.training.vmapped import VmapEngine
from fieldfare_client.users import UserTable

Clip = Callable[[torch.Tensor], Sequence[float] | None]
"""Clips updates float32 (users, d) in place; may return sums over the users of scalars in [0, 1] to report."""

CHUNK_BYTES = {"cpu": 8 * 2**20, "cuda": 2**30}
"""Of the updates that are held at once. On a CPU: about what its cache holds, measured; beyond it training slows."""
LOOP_USERS = 4
"""How many users the loop trains between two clippings."""


@dataclass(frozen=True)
class CohortUpdate:
    """All that a node may send: no loss, no norm, nothing about one user."""

    update: torch.Tensor
    """Sum of the users' clipped updates, float64 (queries x d,): what rounding lets one user move, noise hides."""
    users: int
    counts: tuple[float, ...] = ()


class Trainer:
    """Trains cohorts of one task with one `ClientSpec`. Keeps engines between rounds, no results.

    `seed`: of the order of batches (the run's public seed). Raises `BadInput` for a model whose training would depend
    on which users train together or leave something un-noised behind: buffers, BatchNorm, dropout that is not keyed.
    """

    def __init__(
        self, task: Task, client: ClientSpec, clip: Clip, *, seed: int = 0, device: str | torch.device = "cpu"
    ) -> None:
        self.task, self.client, self.clip, self.seed = task, client, clip, seed
        self.device = torch.device(device)
        model = task.build_model().to(self.device).train()
        self.schema = _schema(task, model)
        self._choices: dict[Hashable, Choice] = {}
        self._model = model
        self._engines: dict[type[Engine], Engine] = {}

    def _engine(self, kind: type[Engine]) -> Engine:
        if kind not in self._engines:
            self._engines[kind] = kind(self._model, self.task, self.client)
        return self._engines[kind]

    def chunk_size(self, users: int) -> int:
        """How many users train at once in a batched engine, at most."""
        room = CHUNK_BYTES["cuda" if self.device.type == "cuda" else "cpu"]
        most = room // (4 * self.schema.numel)
        # A few large models gain nothing from each other, and would only take memory.
        return max(1, min(users, most)) if most >= 4 else 1

    def _candidates(self, users: int, inputs: torch.Tensor) -> Choice:
        most = self.chunk_size(users)
        plain = LoopEngine if LayeredEngine.refuses(self._model) else LayeredEngine
        loop = Candidate(self._engine(plain), min(most, LOOP_USERS), "one user at a time")
        if self.client.engine == "loop":
            return Choice([loop], "the plan says so")
        if not StackedEngine.refuses(self._model) and StackedEngine.fits(self._model, inputs):
            stacked = Candidate(self._engine(StackedEngine), most, f"{most} users at once")
            return Choice([stacked], "a stack of linear layers, for which one batched product serves all users")
        vmap = self._engine(VmapEngine)
        sizes = sorted({most, min(most, 10)})
        batched = [Candidate(vmap, size, f"{size} users at once (vmap)") for size in sizes]
        if self.client.engine == "batched":
            return Choice(batched[-1:], "the plan says so")
        return Choice([loop, *batched], "")

    def explain(self) -> list[str]:
        """Which engine trains, how many users at a time, and why: one line for every shape of work so far."""
        return [str(choice) for choice in self._choices.values()]

    def train(
        self,
        points: Sequence[torch.Tensor],
        weights: Sequence[float],
        table: UserTable,
        users: NDArray[np.int64],
        *,
        at_round: int,
        queries: int = 1,
    ) -> CohortUpdate:
        """The sum over `users` (indices into `table`) of clip(sum_i weights[i] x update from points[i]).

        `points`: flat float32 (d,) each; usually one, with weight 1. With several `queries`, `weights` holds one such
        row after another, each is combined, clipped and summed by itself, and the result is float64 (queries x d,);
        every point is trained from once. Memory: a chunk of users a point, whatever the cohort.
        Raises `BadInput` for a user who occurs twice: one contribution a user is what the clip norm bounds; and for
        several queries behind a clipping that counts.
        """
        if len(points) * queries != len(weights) or not points:
            raise BadInput(f"{len(weights)} weights", f"for {len(points)} points.", str(len(points) * queries))
        starts = [point.detach().to(self.device, torch.float32) for point in points]
        if any(start.shape != (self.schema.numel,) for start in starts):
            raise BadInput(
                f"points of shape {[tuple(start.shape) for start in starts]}",
                "are not the model's.",
                f"({self.schema.numel},)",
            )
        users = np.asarray(users, np.int64)
        if np.unique(users).size != users.size:
            raise BadInput("cohort", "names a user twice.")
        steps = steps_of(table.sizes_of(users), self.client)
        users = users[np.argsort(-steps, kind="stable")]
        shape = _bucket(len(users)), _bucket(float(steps.mean()) if len(steps) else 0)
        if shape not in self._choices:
            inputs = self._gather(table, users[:1], at_round).inputs
            self._choices[shape] = recall(self._candidates(len(users), inputs), (*self._identity(), *shape))
        choice = self._choices[shape]
        rows = [weights[first : first + len(points)] for first in range(0, len(weights), len(points))]
        total = torch.zeros(queries, self.schema.numel, dtype=torch.float64, device=self.device)
        counts: list[float] = []
        first = 0
        while first < len(users):
            picked = choice.next()
            chosen = choice.candidates[picked]
            chunk = self._gather(table, users[first : first + chosen.users], at_round)
            began = self._clock()
            try:
                updates = self._updates(chosen.engine, starts, rows, chunk)
            except RuntimeError as error:
                if len(choice.candidates) == 1 or isinstance(chosen.engine, LoopEngine):
                    raise
                choice.drop(picked, str(error).partition("\n")[0])
                continue
            if len(choice.candidates) > 1:
                if self.device.type == "cuda":
                    torch.cuda.synchronize(self.device)
                choice.record(picked, self._clock() - began, int(chunk.schedule.steps.sum()))
            for query, combined in zip(total, updates, strict=True):
                told = self.clip(combined)
                if told and queries > 1:
                    raise BadInput("several queries", "have no one norm to count users by.", "flat")
                query += combined.sum(dim=0, dtype=torch.float64)
                counts = [a + b for a, b in itertools.zip_longest(counts, told or (), fillvalue=0.0)]
            first += len(chunk)
            del updates, chunk  # before the next ones are made, not after
        remember(choice, (*self._identity(), *shape))
        return CohortUpdate(total.view(-1), len(users), tuple(counts))

    def _clock(self) -> float:
        # Of this process where that tells all: a neighbour's load must not decide which engine looks faster.
        alone = self.device.type == "cpu" and torch.get_num_threads() == 1
        return time.process_time() if alone else time.perf_counter()

    def _identity(self) -> tuple[Hashable, ...]:
        return type(self.task), repr(self._model), self.client.model_dump_json(), str(self.device)

    def _gather(self, table: UserTable, users: NDArray[np.int64], at_round: int) -> Chunk:
        rows = table.rows(users, self.device)
        inputs, targets = self.task.prepare(rows.columns)
        keys = user_keys(rows.users, self.seed, at_round)
        return Chunk(inputs, targets, schedule(rows.sizes, keys, self.client))

    def _updates(
        self, engine: Engine, starts: Sequence[torch.Tensor], rows: Sequence[Sequence[float]], chunk: Chunk
    ) -> list[torch.Tensor]:
        """Every query's combination of the chunk's updates, float32 (users, d) each."""
        combined: list[torch.Tensor | None] = [None] * len(rows)
        for place, start in enumerate(starts):
            heard = [query for query, row in enumerate(rows) if row[place]]
            if not heard:
                continue
            updates = torch.empty(len(chunk), self.schema.numel, device=self.device)
            engine.updates(start, chunk, updates)
            for query in heard:
                made, weight = combined[query], rows[query][place]
                if made is not None:
                    made.add_(updates, alpha=weight)
                elif query == heard[-1]:
                    combined[query] = updates.mul_(weight) if weight != 1.0 else updates
                else:
                    combined[query] = updates * weight
        shape = len(chunk), self.schema.numel
        return [torch.zeros(shape, device=self.device) if made is None else made for made in combined]


def _bucket(value: float) -> int:
    return round(math.log2(value)) if value > 0 else -1


def _schema(task: Task, model: torch.nn.Module) -> Schema:
    what = f"run.task = {task.name!r}"
    try:
        schema = Schema.of(model)
    except ValueError as error:
        raise BadInput(what, str(error)) from None
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            raise BadInput(what, f"{name} (BatchNorm) mixes the examples of a batch.", "GroupNorm or LayerNorm")
    if reason := unkeyed(model):
        raise BadInput(what, f"{reason}.", "fieldfare_client.training.KeyedDropout")
    if schema.numel == 0:
        raise BadInput(what, "the model has no parameters to train.")
    return schema
