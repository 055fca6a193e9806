"""Train a whole cohort of `poems` in one pass, where each poet's windows are one batch. For rehearsals only.

One step from a common point needs no model a user: the forward pass and the backward pass through the activations serve
many users at once, and the gradient of one user's weights is a product of what the passes leave at each layer.
Padding is left out of the output layer, which is most of the work.

The sums are those of `fieldfare_client.training.Trainer` to round-off, which a test compares. Nodes do not train like
this, because round-off would depend on who else trains: under `add_remove` that is secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import layer_norm, linear

from fieldfare.schema import Schema
from fieldfare_client.settings import TrainingSettings
from fieldfare_client.training.engines import is_plain
from fieldfare_client.training.machine import flushed_denormals, keep_freed_memory
from fieldfare_client.training.trainer import CohortUpdate
from fieldfare_client.users import UserTable
from fieldfare_research.poems import PoemsTask, Verse
from fieldfare_research.sequences import PADDING

TOGETHER = 64
"""Users in a pass: more of them ask for fewer, larger products, until their gradients no longer fit a cache."""


class OnePassVerse:
    """`Trainer.train` for `PoemsTask`, one plain step over all windows of a user, one point, and flat clipping."""

    def __init__(self, task: PoemsTask, settings: TrainingSettings) -> None:
        model = task.build_model()
        assert isinstance(model, Verse)
        self._task, self._model, self._schema = task, model, Schema.of(model)
        self._rate, self._clip = settings.client.learning_rate, settings.clipping
        keep_freed_memory()
        for value in model.parameters():
            value.requires_grad_(False)  # what is differentiated are activations

    @staticmethod
    def fits(task: Any, settings: TrainingSettings) -> bool:
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
        total, step = torch.zeros(self._schema.numel, dtype=torch.float64), -self._rate * weights[0]
        for first in range(0, len(users), TOGETHER):
            rows = table.rows(users[first : first + TOGETHER])
            inputs, targets = self._task.prepare(rows.columns)
            with flushed_denormals():
                gradients = self._gradients(inputs, targets, rows.sizes)
            ordered = [gradients[name] for name in self._schema.names]
            lengths = torch.stack([torch.linalg.vector_norm(each, dim=1) for each in ordered]).norm(dim=0)
            factors = step * part.factors(abs(step) * lengths)
            total += torch.cat([factors.to(each.dtype) @ each for each in ordered])
        return CohortUpdate(total, len(users))

    def _gradients(
        self, inputs: torch.Tensor, targets: torch.Tensor, sizes: NDArray[np.int64]
    ) -> dict[str, torch.Tensor]:
        """{name: each user's gradient of the parameter, (users, numel)}. inputs, targets: the users' rows, in order."""
        model, heads = self._model, self._model.heads
        rows, length = inputs.shape
        taps: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

        def tap(name: str, below: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = model.get_submodule(name)(below)
            taps[name] = below.detach(), out
            return out

        start = (model.embedding(inputs) + model.positions[:length]).requires_grad_()
        width = start.shape[-1]
        joint = tap("qkv", tap("first", start)).reshape(rows, length, 3, heads, width // heads)
        query, key, value = joint.permute(2, 0, 3, 1, 4).unbind(0)
        shares = torch.softmax(query @ key.transpose(-1, -2) / (width // heads) ** 0.5 + model.get_buffer("mask"), -1)
        state = start + tap("mixed", (shares @ value).transpose(1, 2).reshape(rows, length, width))
        state = state + tap("narrow", torch.relu(tap("wide", tap("second", state))))
        ended = tap("last", state)

        counts = (targets != PADDING).sum(1)
        owner = torch.arange(len(sizes)).repeat_interleave(torch.from_numpy(sizes))
        real = (targets != PADDING).flatten()
        seen = ended.flatten(0, 1)[real]
        table = model.embedding.weight
        with torch.no_grad():
            above = torch.softmax(linear(seen, table, model.bias), 1)
            above[torch.arange(len(above)), targets.flatten()[real]] -= 1
            # A user's loss is the mean over the windows, and a window's that over its characters.
            share = 1 / (counts * torch.from_numpy(np.repeat(sizes, sizes)))
            above *= share.float().repeat_interleave(length)[real, None]
        trained = {name.split(".")[0] for name in self._schema.names} & taps.keys()
        wanted = {name: taps[name][1] for name in trained}
        if "positions" in self._schema.names:
            wanted["start"] = start
        found = torch.autograd.grad(seen, list(wanted.values()), above @ table)
        backs = dict(zip(wanted, found, strict=True))
        seen = seen.detach()

        def of_users(each: torch.Tensor, whose: torch.Tensor) -> torch.Tensor:
            flat = each.flatten(1)
            return flat.new_zeros(len(sizes), flat.shape[1]).index_add_(0, whose, flat)

        made: dict[str, torch.Tensor] = {}
        if "bias" in self._schema.names:
            made["bias"] = of_users(above, owner.repeat_interleave(counts))
        if "embedding.weight" in self._schema.names:
            made["embedding.weight"] = self._embeddings(inputs, backs["start"], above, seen, counts, sizes)
        if "positions" in self._schema.names:
            made["positions"] = of_users(backs["start"], owner)
        for name in trained:
            each = _layer(name, model.get_submodule(name), taps[name][0], backs[name])
            made |= {one: of_users(value, owner) for one, value in each.items()}
        return made

    def _embeddings(
        self,
        inputs: torch.Tensor,
        below: torch.Tensor,
        above: torch.Tensor,
        seen: torch.Tensor,
        counts: torch.Tensor,
        sizes: NDArray[np.int64],
    ) -> torch.Tensor:
        """Each user's gradient of the embedding, which is the output layer's table, too: (users, numel).

        below: at the inputs, (rows, length, width). above, seen: at the outputs, and what they are made of, for the
        positions with a target; `counts` of a row.
        """
        whole = above.new_empty(len(sizes), above.shape[1], seen.shape[1])
        last = np.cumsum(sizes)
        ends = np.concatenate([[0], counts.cumsum(0).numpy()])
        for one, begin, end in zip(whole, last - sizes, last, strict=True):
            at = slice(ends[begin], ends[end])
            torch.mm(above[at].T, seen[at], out=one)
            one.index_add_(0, inputs[begin:end].flatten(), below[begin:end].flatten(0, 1))
        return whole.flatten(1)


def _layer(name: str, layer: Any, below: torch.Tensor, above: torch.Tensor) -> dict[str, torch.Tensor]:
    """{name: each row's gradient} for a layer norm or an `Adapted`. below: its inputs, above: what comes back to its
    outputs, (rows, length, size)."""
    if isinstance(layer, torch.nn.LayerNorm):
        normal = layer_norm(below, layer.normalized_shape)
        return {f"{name}.weight": (above * normal).sum(1), f"{name}.bias": above.sum(1)}
    back = above.transpose(1, 2)
    made = {f"{name}.whole.weight": back @ below, f"{name}.whole.bias": above.sum(1)}
    if layer.rank:
        made |= {
            f"{name}.down": (above @ layer.up).transpose(1, 2) @ below,
            f"{name}.up": back @ (below @ layer.down.T),
        }
    return made
