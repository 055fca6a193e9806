"""From a broadcast model and a cohort to the one thing that leaves a node: a sum of clipped updates, and a count."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fieldfare.errors import BadInput
from fieldfare.plan import ClientSpec
from fieldfare.task import Task
from fieldfare.wire import Schema
from fieldfare_client.training.engines import Chunk, Engine
from fieldfare_client.training.loop import LoopEngine
from fieldfare_client.training.schedule import schedule, steps_of, user_keys
from fieldfare_client.training.stacked import StackedEngine
from fieldfare_client.users import UserTable

Clip = Callable[[torch.Tensor], Sequence[float] | None]
"""Clips updates float32 (users, d) in place; may return sums over the users of scalars in [0, 1] to report."""

CHUNK_BYTES = 16 * 2**20
"""Of the updates that are held at once: beyond it batched training is slower, for lack of cache."""


@dataclass(frozen=True)
class CohortUpdate:
    """All that a node may send: no loss, no norm, nothing about one user."""

    update: torch.Tensor
    """Sum of the users' clipped updates, float32 (d,)."""
    users: int
    counts: tuple[float, ...] = ()


class Trainer:
    """Trains cohorts of one task with one `ClientSpec`. Keeps engines and buffers between rounds, no results.

    `seed`: of the order of batches (the run's public seed). Raises `BadInput` for a model with buffers.
    """

    def __init__(
        self, task: Task, client: ClientSpec, clip: Clip, *, seed: int = 0, device: str | torch.device = "cpu"
    ) -> None:
        self.task, self.client, self.clip, self.seed = task, client, clip, seed
        self.device = torch.device(device)
        model = task.build_model().to(self.device)
        try:
            self.schema = Schema.of(model)
        except ValueError as error:
            raise BadInput(f"run.task = {task.name!r}", str(error)) from None
        reason = StackedEngine.refuses(model)
        if client.engine == "batched" and reason:
            raise BadInput("client.engine = 'batched'", f"the model {reason}.", "'loop'")
        chosen = LoopEngine if client.engine == "loop" or reason else StackedEngine
        self.engine: Engine = chosen(model, task.loss, client)

    def chunk_size(self, users: int) -> int:
        """How many users train at once."""
        return max(1, min(users, CHUNK_BYTES // (4 * self.schema.numel)))

    def train(
        self,
        points: Sequence[torch.Tensor],
        weights: Sequence[float],
        table: UserTable,
        users: NDArray[np.int64],
        *,
        at_round: int,
    ) -> CohortUpdate:
        """The sum over `users` (indices into `table`) of clip(sum_i weights[i] x update from points[i]).

        `points`: flat float32 (d,) each; usually one, with weight 1. Memory: a chunk of users, whatever the cohort.
        """
        if len(points) != len(weights) or not points:
            raise BadInput(f"{len(weights)} weights", f"for {len(points)} points.", str(len(points)))
        starts = [point.detach().to(self.device, torch.float32) for point in points]
        users = np.asarray(users, np.int64)
        sizes = table.sizes[users]
        users = users[np.argsort(-steps_of(sizes, self.client), kind="stable")]
        total = torch.zeros(self.schema.numel, device=self.device)
        counts: list[float] = []
        size = self.chunk_size(len(users))
        for first in range(0, len(users), size):
            updates = self._updates(starts, weights, table, users[first : first + size], at_round)
            told = self.clip(updates)
            total += updates.sum(0)
            counts = [a + b for a, b in itertools.zip_longest(counts, told or (), fillvalue=0.0)]
        return CohortUpdate(total, len(users), tuple(counts))

    def _updates(
        self,
        starts: Sequence[torch.Tensor],
        weights: Sequence[float],
        table: UserTable,
        users: NDArray[np.int64],
        at_round: int,
    ) -> torch.Tensor:
        rows = table.rows(users, self.device)
        inputs, targets = self.task.prepare(rows.columns)
        keys = user_keys(rows.users, self.seed, at_round)
        chunk = Chunk(inputs, targets, schedule(rows.sizes, keys, self.client))
        updates = torch.empty(len(users), self.schema.numel, device=self.device)
        self.engine.updates(starts[0], chunk, updates)
        if weights[0] != 1.0:
            updates *= weights[0]
        for start, weight in zip(starts[1:], weights[1:], strict=True):
            other = torch.empty_like(updates)
            self.engine.updates(start, chunk, other)
            updates.add_(other, alpha=weight)
        return updates
