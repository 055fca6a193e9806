"""The batched engine for every other model: `torch.func.vmap` of `grad` over the users of a chunk."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch.func import functional_call, grad, vmap

from fieldfare.plan import ClientSpec
from fieldfare_client.training.dropout import set_keys
from fieldfare_client.training.engines import Chunk, Engine, Loss, is_plain, step_flat
from fieldfare_client.training.schedule import step_keys


class VmapEngine(Engine):
    """For models whose forward pass does not branch on its values; others fail in torch, with torch's message."""

    kind: ClassVar[str] = "batched"

    @staticmethod
    def refuses(model: torch.nn.Module) -> str:
        return ""

    def __init__(self, model: torch.nn.Module, loss: Loss, client: ClientSpec) -> None:
        super().__init__(model, loss, client)
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
        return (self.loss(outputs, targets) * share).sum()

    def updates(self, start: torch.Tensor, chunk: Chunk, out: torch.Tensor) -> None:
        client, plan, device = self.client, chunk.schedule, start.device
        weights = out.copy_(start)
        plain = is_plain(client)
        gradient = None if plain else torch.zeros_like(weights)
        velocity = torch.zeros_like(weights) if client.momentum else None
        rows = torch.from_numpy(plan.rows).to(device)
        counts = torch.from_numpy(plan.counts).to(device)
        share = (torch.arange(rows.shape[2], device=device) < counts[:, :, None]) / counts[:, :, None].clamp(min=1)
        for step, active in enumerate((plan.counts > 0).sum(0)):
            at = rows[:active, step]
            views = self._views(weights[:active])
            keys = torch.from_numpy(step_keys(plan.keys[:active], step)).to(device)
            found = self._gradients(views, chunk.inputs[at], chunk.targets[at], share[:active, step], keys)
            gradients = [found[name] for name in self.schema.names]
            if gradient is None:
                torch._foreach_sub_(list(views.values()), gradients, alpha=client.learning_rate)
                continue
            torch._foreach_copy_(list(self._views(gradient[:active]).values()), gradients)
            moving = None if velocity is None else velocity[:active]
            step_flat(weights[:active], gradient[:active], moving, start, client)
        out.sub_(start)

    def _views(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        named = zip(self.schema.names, self.schema.shapes, self.schema.slices(), strict=True)
        return {name: flat[:, where].view(len(flat), *shape) for name, shape, where in named}
