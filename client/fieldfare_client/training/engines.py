"""What every training engine offers, and what the batched ones share.

All engines compute the same thing, to round-off: from the broadcast point, SGD on each user's own batches
(`schedule`), and the difference that it made. One step on the batch gradient g at the local model w:

    g <- clip(g, gradient_clip);  g <- g + weight_decay w + proximal (w - broadcast);  v <- momentum v + g;
    w <- w - learning_rate v.

The proximal term is FedProx's (Li et al. 2020, "Federated Optimization in Heterogeneous Networks", eq. 2).

**Isolation.** The task's code sees the rows of one user at a time: engines map the loss over users, and call it with
exactly the rows of one batch, never with padding. So a loss may mix the examples of a batch, and no user's update is a
function of another user's data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fieldfare.plan_tables import ClientSpec
from fieldfare.schema import Schema
from fieldfare.task import Task
from fieldfare_client.training.schedule import Schedule


@dataclass(frozen=True)
class Chunk:
    """The data of some users on the training device, users with more rows first."""

    inputs: torch.Tensor
    """Rows of the users, one user after another: (rows, ...)."""
    targets: torch.Tensor
    schedule: Schedule

    def __len__(self) -> int:
        return len(self.schedule.counts)


class Engine(ABC):
    """Trains chunks of users. May keep buffers between calls; results do not depend on them."""

    def __init__(self, model: torch.nn.Module, task: Task, client: ClientSpec) -> None:
        """Keep `model` for its structure; its own weights do not matter and may be overwritten."""
        self.model, self.task, self.client = model, task, client
        self.schema = Schema.of(model)

    @abstractmethod
    def updates(self, start: torch.Tensor, chunk: Chunk, out: torch.Tensor) -> None:
        """Train every user of a chunk.

        Args:
            start: the broadcast model, float32 (d,).
            chunk: whose data to train on.
            out: receives each user's local model minus `start`, float32 (users, d); 0 for users without rows.

        Raises:
            Exception: whatever the task's code or torch raises. `out` is then undefined.
        """


Group = tuple[slice | torch.Tensor, int]
"""Users of a chunk, and how many rows each of them has in a batch."""


class Batches:
    """A chunk's batches, step by step, on its device. Users with fewer batches are later in the chunk."""

    active: list[int]
    """How many users have a batch at each step: the first ones of the chunk."""
    rows: torch.Tensor
    """Rows of the chunk, int64 (steps, users, width)."""
    groups: list[list[Group]]
    """At each step, the active users by the number of rows in their batch."""

    def __init__(self, chunk: Chunk) -> None:
        schedule, device = chunk.schedule, chunk.inputs.device
        self.active = (schedule.counts > 0).sum(0).tolist()
        self.training = self.active[0] if self.active else 0
        self.width = schedule.rows.shape[2]
        self.rows = torch.from_numpy(schedule.rows.transpose(1, 0, 2).copy()).to(device)
        self.groups = [_group(schedule.counts[:active, step], device) for step, active in enumerate(self.active)]


def _group(counts: NDArray[np.int64], device: torch.device) -> list[Group]:
    """Users by their entry of `counts` (users,): a slice where they are adjacent, because a slice copies nothing."""
    groups: list[Group] = []
    for count in np.unique(counts).tolist():
        users = np.flatnonzero(counts == count)
        first, end = int(users[0]), int(users[-1]) + 1
        adjacent = end - first == len(users)
        groups.append((slice(first, end) if adjacent else torch.from_numpy(users).to(device), count))
    return groups


def spread(value: torch.Tensor, users: int) -> torch.Tensor:
    """A copy of `value` for each user, (users, *shape), contiguous."""
    return value.expand(users, *value.shape).clone(memory_format=torch.contiguous_format)


def own_memory(gradients: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """`gradients` as tensors that can be changed in place.

    Autograd may give two parameters the same tensor (those of `a + b`), or one whose elements share their memory.
    """
    seen: set[int] = set()
    own = []
    for gradient in gradients:
        whole = gradient.contiguous()
        own.append(whole.clone() if whole.data_ptr() in seen else whole)
        seen.add(whole.data_ptr())
    return own


def step_each(
    weights: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor],
    velocities: Sequence[torch.Tensor] | None,
    starts: Sequence[torch.Tensor],
    client: ClientSpec,
) -> None:
    """Take one SGD step of many users, in place.

    Args:
        weights: each parameter of every user, (users, *shape).
        gradients: likewise, no two in the same memory (`own_memory`); overwritten.
        velocities: likewise; None without momentum.
        starts: the broadcast parameters, (*shape).
        client: rates and terms of the step.
    """
    if client.gradient_clip is not None:
        parts = [torch.linalg.vector_norm(gradient.flatten(1), dim=1) for gradient in gradients]
        factors = (client.gradient_clip / torch.linalg.vector_norm(torch.stack(parts), dim=0)).clamp_(max=1.0)
        for gradient in gradients:
            gradient.flatten(1).mul_(factors[:, None])
    for place, (weight, gradient, start) in enumerate(zip(weights, gradients, starts, strict=True)):
        if client.weight_decay:
            gradient.add_(weight, alpha=client.weight_decay)
        if client.proximal:
            gradient.add_(weight, alpha=client.proximal).sub_(start, alpha=client.proximal)
        if velocities is not None:
            velocities[place].mul_(client.momentum).add_(gradient)
        weight.sub_(gradient if velocities is None else velocities[place], alpha=client.learning_rate)


def is_plain(client: ClientSpec) -> bool:
    """Whether a step is w <- w - learning_rate g and nothing else."""
    return not (client.gradient_clip or client.weight_decay or client.proximal or client.momentum)
