"""Train a whole cohort of `poems` in one pass, where each poet's windows are one batch. For rehearsals only.

One step from a common point needs no model a user: the forward pass and the backward pass through the activations serve
many users at once, and the gradient of one user's weights is a product of what the passes leave at each layer. It is
clipped while it is in the cache. Padding is left out of the output layer, which is most of the work.

The sums are those of `fieldfare_client.training.Trainer` to round-off, which a test compares. Nodes do not train like
this, because round-off would depend on who else trains: under `add_remove` that is secret.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import layer_norm, linear

from fieldfare.schema import Schema
from fieldfare_client.app import Settings
from fieldfare_client.tasks.poems import PoemsTask, Verse
from fieldfare_client.tasks.sequences import PADDING
from fieldfare_client.training.engines import is_plain
from fieldfare_client.training.machine import flushed_denormals, keep_freed_memory
from fieldfare_client.training.trainer import CohortUpdate
from fieldfare_client.users import UserTable

TOGETHER = 16
"""Users in a pass: their outputs, 2 004 numbers a character, still fit a processor's cache."""

Rows = slice
Gradient = Callable[[Rows, Rows], torch.Tensor]
"""(a user's positions, those of them with a target) -> the gradient of one parameter, (its numel,) or its shape."""


class OnePassVerse:
    """`Trainer.train` for `PoemsTask`, one plain step over all windows of a user, one point, and flat clipping."""

    def __init__(self, task: PoemsTask, settings: Settings) -> None:
        model = task.build_model()
        assert isinstance(model, Verse)
        self._task, self._model, self._schema = task, model, Schema.of(model)
        self._rate, self._clip = settings.client.learning_rate, settings.clipping
        keep_freed_memory()
        for value in model.parameters():
            value.requires_grad_(False)  # what is differentiated are activations

    @staticmethod
    def fits(task: Any, settings: Settings) -> bool:
        """Whether this class trains what `settings` ask for."""
        client = settings.client
        return (
            isinstance(task, PoemsTask)
            and client.local_epochs == 1
            and client.batch_size >= task.most
            and is_plain(client)
            and settings.clipping.kind == "flat"
        )

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
        """As `Trainer.train`."""
        if len(points) != 1 or queries != 1:
            raise ValueError("one pass trains from one point")
        for name, value in self._schema.split(points[0].float()).items():
            self._model.get_parameter(name).copy_(value)
        ((_, part),) = self._clip.blocks([slice(0, 1)], 1)
        one, total = torch.empty(self._schema.numel), torch.zeros(self._schema.numel, dtype=torch.float64)
        parts = list(self._schema.split(one).items())
        for first in range(0, len(users), TOGETHER):
            chosen = users[first : first + TOGETHER]
            rows = table.rows(chosen)
            inputs, targets = self._task.prepare(rows.columns)
            with flushed_denormals():
                gradients = self._gradients(inputs, targets, rows.sizes)
            together = torch.zeros(self._schema.numel)
            length, real = inputs.shape[1], (targets != PADDING).sum(1).numpy()
            last = np.cumsum(rows.sizes)
            ends = np.concatenate([[0], np.cumsum(real)])
            for begin, end in zip(last - rows.sizes, last, strict=True):
                at, seen = slice(begin * length, end * length), slice(ends[begin], ends[end])
                for name, target in parts:
                    target.copy_(gradients[name](at, seen).view_as(target))
                step = -self._rate * weights[0]
                together.add_(one, alpha=step * float(part.factors(abs(step) * one.norm()[None])[0]))
            total += together
        return CohortUpdate(total, len(users))

    def _gradients(self, inputs: torch.Tensor, targets: torch.Tensor, sizes: NDArray[np.int64]) -> dict[str, Gradient]:
        """How each trained parameter's gradient of one user's loss follows from passes over the rows of many."""
        model, heads = self._model, self._model.heads
        rows, length = inputs.shape
        taps: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

        def tap(name: str, below: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = model.get_submodule(name)(below)
            taps[name] = below.detach().flatten(0, 1), out
            return out

        start = (model.embedding(inputs) + model.positions[:length]).requires_grad_()
        width = start.shape[-1]
        joint = tap("qkv", tap("first", start)).reshape(rows, length, 3, heads, width // heads)
        query, key, value = joint.permute(2, 0, 3, 1, 4).unbind(0)
        shares = torch.softmax(query @ key.transpose(-1, -2) / (width // heads) ** 0.5 + model.get_buffer("mask"), -1)
        state = start + tap("mixed", (shares @ value).transpose(1, 2).reshape(rows, length, width))
        state = state + tap("narrow", torch.relu(tap("wide", tap("second", state))))
        ended = tap("last", state)

        real = (targets != PADDING).flatten()
        seen = ended.flatten(0, 1)[real]
        table = model.embedding.weight
        with torch.no_grad():
            above = torch.softmax(linear(seen, table, model.bias), 1)
            above[torch.arange(len(above)), targets.flatten()[real]] -= 1
            # A user's loss is the mean over the windows, and a window's that over its characters.
            share = 1 / ((targets != PADDING).sum(1) * torch.from_numpy(np.repeat(sizes, sizes)))
            above *= share.float().repeat_interleave(length)[real, None]
        trained = {name.split(".")[0] for name in self._schema.names} & taps.keys()
        wanted = {name: taps[name][1] for name in trained}
        if "positions" in self._schema.names:
            wanted["start"] = start
        found = torch.autograd.grad(seen, list(wanted.values()), above @ table)
        backs = {name: back.flatten(0, 1) for name, back in zip(wanted, found, strict=True)}
        seen = seen.detach()

        def embedding(at: Rows, ends: Rows) -> torch.Tensor:
            return (above[ends].T @ seen[ends]).index_add_(0, inputs.flatten()[at], backs["start"][at])

        made: dict[str, Gradient] = {
            "bias": lambda at, ends: above[ends].sum(0),
            "embedding.weight": embedding,
            "positions": lambda at, ends: backs["start"][at].view(-1, length, width).sum(0),
        }
        for name in trained:
            made |= _layer(name, model.get_submodule(name), taps[name][0], backs[name])
        return made


def _layer(name: str, layer: Any, below: torch.Tensor, above: torch.Tensor) -> dict[str, Gradient]:
    """Gradients of the parameters of a layer norm or an `Adapted`, whose inputs are `below`, (positions, in)."""
    if isinstance(layer, torch.nn.LayerNorm):
        normal = layer_norm(below, layer.normalized_shape)
        return {
            f"{name}.weight": lambda at, ends: (above[at] * normal[at]).sum(0),
            f"{name}.bias": lambda at, ends: above[at].sum(0),
        }
    made: dict[str, Gradient] = {
        f"{name}.whole.weight": lambda at, ends: above[at].T @ below[at],
        f"{name}.whole.bias": lambda at, ends: above[at].sum(0),
    }
    if layer.rank:
        low, high = below @ layer.down.T, above @ layer.up
        made |= {
            f"{name}.down": lambda at, ends: high[at].T @ below[at],
            f"{name}.up": lambda at, ends: above[at].T @ low[at],
        }
    return made
