"""What every training engine offers, and what the batched ones share.

All engines compute the same thing, to round-off: from the broadcast point, SGD on each user's own batches
(`schedule`), and the difference that it made. One step on the batch gradient g at the local model w:

    g <- clip(g, gradient_clip);  g <- g + weight_decay w + proximal (w - broadcast);  v <- momentum v + g;
    w <- w - learning_rate v.

The proximal term is FedProx's (Li et al. 2020, "Federated Optimization in Heterogeneous Networks", eq. 2).

**Isolation.** The task's code sees the rows of one user at a time: engines map the loss over users, and call
it with exactly the rows of one batch, never with padding. So a loss may mix the examples of a batch, and no
user's update is a function of another user's data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fieldfare.plan_tables import ClientSpec
from fieldfare.schema import Schema
from fieldfare.task import Task
from fieldfare_client.training.loss_gradient import LONGEST, Operations, Recorded
from fieldfare_client.training.schedule import BatchSchedule


class Sizes(Protocol):
    """Numbers of users who may train at once: `isolation.Isolation` finds them out."""

    def fits(self, slots: int, width: int, count: int) -> bool:
        """Return whether `slots` users may train at once, on batches of `count` rows in place of `width`."""

    def room(self, users: int, width: int, count: int) -> int:
        """Return a number of slots that fits, and holds `users` users."""

    def parts(self, users: int, width: int, count: int) -> list[int]:
        """Return numbers of slots that fit, and hold `users` users together."""


@dataclass(frozen=True)
class Chunk:
    """The data of some users on the training device, users with more rows first."""

    inputs: torch.Tensor  # rows of the users, one user after another: (rows, ...)
    targets: torch.Tensor
    schedule: BatchSchedule
    # How many users may train at once without moving a bit of any of them; None: any number.
    sizes: Sizes | None = None
    wide: bool = False  # where `sizes` hold for a first layer that is not copied (`wide_input.OwnInputLayer`)

    def __len__(self) -> int:
        return len(self.schedule.counts)


# (users, rows) -> trains so many made-up users, by two steps or more on so many rows of each.
Train = Callable[[int, int], object]


class Engine(ABC):
    """Trains chunks of users. May keep buffers between calls; results do not depend on them."""

    # Where no Python of the task may see two users: a step's gradient, as torch's operations.
    recorded: Recorded | None = None

    def __init__(self, model: torch.nn.Module, task: Task, client: ClientSpec) -> None:
        """Keep `model` for its structure; its own weights do not matter and may be overwritten."""
        self.model, self.task, self.client = model, task, client
        self.schema = Schema.of(model)

    def gradient(
        self, differentiate: Callable[..., list[torch.Tensor]], given: Sequence[torch.Tensor], users: int, rows: int
    ) -> list[torch.Tensor]:
        """Return `differentiate` of `given`, of `users` users with batches of `rows` rows."""
        return differentiate(*given) if self.recorded is None else self.recorded(differentiate, given, users, rows)

    def seal(self, train: Train, sizes: Sequence[int] = (1,), longest: int = LONGEST) -> int:
        """Repeat from now on what is recorded of made-up users: no Python of the task sees a user.

        Args:
            train: trains made-up users by this engine.
            sizes: how many it trains at once.
            longest: rows of the longest batch that is recorded, if the plan's are not shorter.

        Returns:
            The rows of the longest batch.

        Raises:
            Exception: as `Recorded.learn`; nothing is sealed then.
        """
        self.recorded, longest = Recorded(), min(longest, self.client.batch_size)
        try:
            self.recorded.learn(sizes, longest, train)
            self.refuse_weights(self.recorded.operations.values())
        except Exception:
            self.recorded = None
            raise
        return longest

    def refuse_weights(self, found: Iterable[Operations]) -> None:
        """Raise ValueError where one reads weights that it is not given: the user before left them."""
        own = {value.untyped_storage().data_ptr() for value in self.model.parameters() if value.requires_grad}
        if any(own & operations.kept for operations in found):
            raise ValueError("the task keeps weights of its model, whose gradient a recorded step would lack")

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


@dataclass(frozen=True)
class Group:
    """Slots of a chunk with equally long batches, which are mapped together."""

    # Those that are mapped: a slice where they are adjacent, because a slice copies nothing.
    slots: slice | torch.Tensor
    count: int  # rows of each batch
    owners: slice | torch.Tensor  # whose result counts: the first of `slots`, as many as there are
    real: int | None = None  # how many owners there are; None: all slots

    def covers(self, slots: int, width: int) -> bool:
        """Return whether these are the first `slots` slots, with batches of `width` rows."""
        return self.slots == slice(0, slots) and self.count == width if isinstance(self.slots, slice) else False


class Batches:
    """A chunk's batches, step by step, on its device. Users with fewer batches are later in the chunk.

    Where the chunk says how many users may train at once (`Chunk.sizes`), there are as many slots: after users who
    have a batch come others, who have taken their last step, and dummies with some row of the chunk.
    """

    active: list[int]  # how many users have a batch at each step: the first ones of the chunk
    slots: list[int]  # how many slots are computed at each step: at least the active ones
    room: int  # the most slots of a step
    rows: torch.Tensor  # rows of the chunk, int64 (steps, slots, width)
    keys: NDArray[np.uint64]  # the key of every slot, (slots,); 0 of dummies
    groups: list[list[Group]]  # at each step, the active users by the number of rows in their batch

    def __init__(self, chunk: Chunk) -> None:
        schedule, device, sizes = chunk.schedule, chunk.inputs.device, chunk.sizes
        self.fixed = sizes is not None
        self.active = (schedule.counts > 0).sum(0).tolist()
        self.training = self.active[0] if self.active else 0
        self.width = schedule.rows.shape[2]
        self.slots = self.active if sizes is None else self._slots(sizes)
        rows, self.keys = schedule.rows.transpose(1, 0, 2), schedule.keys
        self.room = max(self.slots, default=0)
        if (dummies := self.room - len(chunk)) > 0:
            rows = np.pad(rows, ((0, 0), (0, dummies), (0, 0)))
            self.keys = np.pad(self.keys, (0, dummies))
        self.rows = torch.from_numpy(np.ascontiguousarray(rows)).to(device)
        self.groups = [
            self._group(schedule.counts[:active, step], slots, sizes, device)
            for step, (active, slots) in enumerate(zip(self.active, self.slots, strict=True))
        ]

    def _slots(self, sizes: Sizes) -> list[int]:
        """Return the slots that fit, of each step. A few users less do not shrink them: each size is tried first."""
        slots: list[int] = []
        for users in self.active:
            few = not slots or 4 * users <= 3 * slots[-1]
            slots.append(sizes.room(users, self.width, self.width) if few else slots[-1])
        return slots

    def _group(self, counts: NDArray[np.int64], slots: int, sizes: Sizes | None, device: torch.device) -> list[Group]:
        """Return users by their entry of `counts` (users,)."""
        groups: list[Group] = []
        lengths = [int(counts[0])] if (counts == counts[0]).all() else np.unique(counts).tolist()
        for count in lengths:
            users = np.flatnonzero(counts == count)
            if sizes is not None:
                if len(lengths) == 1 and sizes.fits(slots, self.width, count):
                    groups.append(Group(whole := slice(0, slots), count, whole))
                    continue
                for part in sizes.parts(len(users), self.width, count):
                    real, users = users[:part], users[part:]
                    owners = torch.from_numpy(real).to(device)
                    # Slots beyond the real users train the last of them again; `owners` leaves those results out.
                    filled = torch.from_numpy(np.pad(real, (0, part - len(real)), mode="edge")).to(device)
                    groups.append(Group(filled, count, owners, len(real)))
                continue
            first, end = int(users[0]), int(users[-1]) + 1
            found = slice(first, end) if end - first == len(users) else torch.from_numpy(users).to(device)
            groups.append(Group(found, count, found))
        return groups


def spread(value: torch.Tensor, users: int) -> torch.Tensor:
    """Return a copy of `value` for each user, (users, *shape), contiguous."""
    return value.expand(users, *value.shape).clone(memory_format=torch.contiguous_format)


def own_memory(gradients: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return `gradients` as tensors that can be changed in place.

    Autograd may give two parameters the same tensor (those of `a + b`), or one whose elements share memory.
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
        rows = [gradient.view(len(gradient), -1) for gradient in gradients]
        parts = [torch.linalg.vector_norm(row, dim=1) for row in rows]
        factors = (client.gradient_clip / torch.linalg.vector_norm(torch.stack(parts), dim=0)).clamp_(max=1.0)
        for row in rows:
            row.mul_(factors[:, None])
    for place, (weight, gradient, start) in enumerate(zip(weights, gradients, starts, strict=True)):
        if client.weight_decay:
            gradient.add_(weight, alpha=client.weight_decay)
        if client.proximal:
            gradient.add_(weight, alpha=client.proximal).sub_(start, alpha=client.proximal)
        if velocities is not None:
            velocities[place].mul_(client.momentum).add_(gradient)
        weight.sub_(gradient if velocities is None else velocities[place], alpha=client.learning_rate)


def is_plain(client: ClientSpec) -> bool:
    """Return whether a step is w <- w - learning_rate g and nothing else."""
    return not (client.gradient_clip or client.weight_decay or client.proximal or client.momentum)
