"""What every training engine offers.

All engines compute the same thing, to round-off: from the broadcast point, SGD on each user's own batches
(`schedule`), and the difference that it made. One step on the batch gradient g at the local model w:

    g <- clip(g, gradient_clip);  g <- g + weight_decay w + proximal (w - broadcast);  v <- momentum v + g;
    w <- w - learning_rate v.

The proximal term is FedProx's (Li et al. 2020, "Federated Optimization in Heterogeneous Networks", eq. 2).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from fieldfare.plan import ClientSpec
from fieldfare.schema import Schema
from fieldfare.task import Task
from fieldfare_client.training.schedule import Schedule


@dataclass(frozen=True)
class Chunk:
    """The data of some users, on the training device, users with more batches first."""

    inputs: torch.Tensor
    targets: torch.Tensor
    schedule: Schedule

    def __len__(self) -> int:
        return len(self.schedule.counts)


class Engine(ABC):
    """Trains chunks of users. May keep buffers between calls; results do not depend on them."""

    kind: ClassVar[str]

    def __init__(self, model: torch.nn.Module, task: Task, client: ClientSpec) -> None:
        """`model` is used for its structure; its own weights do not matter and may be overwritten."""
        self.model, self.task, self.client = model, task, client
        self.schema = Schema.of(model)

    @staticmethod
    @abstractmethod
    def refuses(model: torch.nn.Module) -> str:
        """Why this engine cannot train `model`; empty where it can."""

    @abstractmethod
    def updates(self, start: torch.Tensor, chunk: Chunk, out: torch.Tensor) -> None:
        """Write each user's local model minus `start` (d,) to `out` (users, d) float32; 0 for users without rows."""


@dataclass(frozen=True)
class Gradients:
    """Where a backward pass writes, parameter by parameter: one user's, or with a leading axis many users'."""

    tensors: Sequence[torch.Tensor]
    rate: float | None
    """None: the tensors become the gradients. A rate: they are the weights, and step by -rate x gradient."""

    def put(self, place: int, gradient: torch.Tensor) -> None:
        if self.rate is None:
            self.tensors[place].copy_(gradient)
        else:
            self.tensors[place].sub_(gradient, alpha=self.rate)

    def product(self, place: int, left: torch.Tensor, right: torch.Tensor) -> None:
        """As `put(place, left @ right)`, without the product in memory."""
        out = self.tensors[place]
        if self.rate is None:
            torch.matmul(left, right, out=out)
        elif out.ndim == 2:
            out.addmm_(left, right, alpha=-self.rate)
        else:
            out.baddbmm_(left, right, alpha=-self.rate)


class Batches:
    """A chunk's batches, step by step, on its device. Users with fewer batches are later in the chunk."""

    active: list[int]
    """How many users have a batch at each step: the first ones of the chunk."""
    rows: torch.Tensor
    """Rows of the chunk, int64 (steps, users, width)."""
    share: torch.Tensor
    """The weight of each row in the mean loss of its user's batch, float32 (steps, users, width); 0 on padding."""

    def __init__(self, chunk: Chunk) -> None:
        plan, device = chunk.schedule, chunk.inputs.device
        self.active = (plan.counts > 0).sum(0).tolist()
        self.training = self.active[0] if self.active else 0
        self.width = plan.rows.shape[2]
        self.rows = torch.from_numpy(plan.rows.transpose(1, 0, 2).copy()).to(device)
        counts = plan.counts.T[:, :, None]
        share = (np.arange(self.width) < counts) / np.maximum(counts, 1).astype(np.float32)
        self.share = torch.from_numpy(share.astype(np.float32)).to(device)

    def columns(self, step: int) -> slice:
        """Where the rows of `step` are, in all rows of a user in the order of training."""
        return slice(step * self.width, (step + 1) * self.width)


def spread(value: torch.Tensor, users: int) -> torch.Tensor:
    """A copy of `value` for each user, (users, *shape), contiguous."""
    return value.expand(users, *value.shape).clone(memory_format=torch.contiguous_format)


def step_each(
    weights: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor],
    velocities: Sequence[torch.Tensor] | None,
    starts: Sequence[torch.Tensor],
    client: ClientSpec,
) -> None:
    """One SGD step of many users, in place, parameter by parameter: (users, *shape), `starts` (*shape).

    Overwrites `gradients`."""
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
