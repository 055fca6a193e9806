"""What every training engine offers.

All engines compute the same thing, to round-off: from the broadcast point, SGD on each user's own batches
(`schedule`), and the difference that it made. One step on the batch gradient g at the local model w:

    g <- clip(g, gradient_clip);  g <- g + weight_decay w + proximal (w - broadcast);  v <- momentum v + g;
    w <- w - learning_rate v.

The proximal term is FedProx's (Li et al. 2020, "Federated Optimization in Heterogeneous Networks", eq. 2).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch

from fieldfare.plan import ClientSpec
from fieldfare.wire import Schema
from fieldfare_client.training.schedule import Schedule

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


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

    def __init__(self, model: torch.nn.Module, loss: Loss, client: ClientSpec) -> None:
        """`model` is used for its structure; its own weights do not matter and may be overwritten."""
        self.model, self.loss, self.client = model, loss, client
        self.schema = Schema.of(model)

    @staticmethod
    @abstractmethod
    def refuses(model: torch.nn.Module) -> str:
        """Why this engine cannot train `model`; empty where it can."""

    @abstractmethod
    def updates(self, start: torch.Tensor, chunk: Chunk, out: torch.Tensor) -> None:
        """Write each user's local model minus `start` (d,) to `out` (users, d) float32; 0 for users without rows."""


def step_flat(
    weights: torch.Tensor,
    gradient: torch.Tensor,
    velocity: torch.Tensor | None,
    start: torch.Tensor,
    client: ClientSpec,
) -> None:
    """One SGD step of many users, in place: all (users, d), `start` (d,). Overwrites `gradient`."""
    if client.gradient_clip is not None:
        norms = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
        gradient.mul_((client.gradient_clip / norms).clamp_(max=1.0))
    if client.weight_decay:
        gradient.add_(weights, alpha=client.weight_decay)
    if client.proximal:
        gradient.add_(weights, alpha=client.proximal).sub_(start, alpha=client.proximal)
    if velocity is not None:
        gradient = velocity.mul_(client.momentum).add_(gradient)
    weights.sub_(gradient, alpha=client.learning_rate)


def is_plain(client: ClientSpec) -> bool:
    """Whether a step is w <- w - learning_rate g and nothing else."""
    return not (client.gradient_clip or client.weight_decay or client.proximal or client.momentum)
