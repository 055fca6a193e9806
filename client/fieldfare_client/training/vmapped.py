"""The batched engine for every other model: `torch.func.vmap` of `grad` over the users of a chunk."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch.func import functional_call, grad, vmap

from fieldfare.plan import ClientSpec
from fieldfare.task import Task
from fieldfare_client.training.dropout import set_keys
from fieldfare_client.training.engines import Batches, Chunk, Engine, is_plain, spread, step_each
from fieldfare_client.training.schedule import step_keys


class VmapEngine(Engine):
    """For models whose forward pass does not branch on its values; others fail in torch, with torch's message."""

    kind: ClassVar[str] = "batched"

    @staticmethod
    def refuses(model: torch.nn.Module) -> str:
        return ""

    def __init__(self, model: torch.nn.Module, task: Task, client: ClientSpec) -> None:
        super().__init__(model, task, client)
        self._gradients = vmap(grad(self._mean_loss), in_dims=(0, 0, 0, 0, 0))

    def _mean_loss(
        self,
        weights: dict[str, torch.Tensor],
        inputs: torch.Tensor,
        targets: torch.Tensor,
        share: torch.Tensor,
        key: torch.Tensor,
    ) -> torch.Tensor:
        """One user's batch loss; `share` weighs its rows and is 0 on padding."""
        set_keys(self.model, key)
        outputs = functional_call(self.model, weights, (inputs,))
        return (self.task.loss(outputs, targets) * share).sum()

    def updates(self, start: torch.Tensor, chunk: Chunk, out: torch.Tensor) -> None:
        client, batches = self.client, Batches(chunk)
        starts = self.schema.split(start)
        weights = {name: spread(value, batches.training) for name, value in starts.items()}
        velocities = [torch.zeros_like(weight) for weight in weights.values()] if client.momentum else None
        for step, active in enumerate(batches.active):
            at = batches.rows[step, :active]
            moving = {name: weight[:active] for name, weight in weights.items()}
            keys = torch.from_numpy(step_keys(chunk.schedule.keys[:active], step)).to(start.device)
            found = self._gradients(moving, chunk.inputs[at], chunk.targets[at], batches.share[step, :active], keys)
            gradients = [found[name] for name in moving]
            if is_plain(client):
                torch._foreach_sub_(list(moving.values()), gradients, alpha=client.learning_rate)
                continue
            rolling = None if velocities is None else [velocity[:active] for velocity in velocities]
            step_each(list(moving.values()), gradients, rolling, list(starts.values()), client)
        for name, where in zip(self.schema.names, self.schema.slices(), strict=True):
            torch.sub(weights[name].flatten(1), starts[name].flatten(), out=out[: batches.training, where])
        out[batches.training :] = 0.0
