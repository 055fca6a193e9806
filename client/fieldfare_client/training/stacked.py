"""The batched engine for stacks of linear layers: all users of a chunk at once, backward pass written out.

One batched matrix product a layer, direction and step, whatever the number of users. Without momentum, decay,
proximal term and gradient clipping the step is fused into the last of them and no gradient is ever stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import nn

from fieldfare.plan import ClientSpec
from fieldfare_client.training.engines import Chunk, Engine, Loss, is_plain, step_flat

# Activation layers, and the factor of the backward pass as a function of the activation's output.
_ACTIVATIONS: dict[type[nn.Module], Callable[[torch.Tensor], torch.Tensor]] = {
    nn.ReLU: lambda y: y > 0,
    nn.Tanh: lambda y: 1 - y * y,
    nn.Sigmoid: lambda y: y * (1 - y),
    nn.Identity: lambda y: torch.ones((), device=y.device),
}


class StackedEngine(Engine):
    """For `nn.Sequential` of Linear, ReLU, Tanh, Sigmoid, Identity and a leading Flatten."""

    kind: ClassVar[str] = "batched"

    @staticmethod
    def refuses(model: nn.Module) -> str:
        if type(model) is not nn.Sequential:
            return "not an nn.Sequential"
        for place, layer in enumerate(model):
            flattens = type(layer) is nn.Flatten and place == 0 and layer.start_dim == 1 and layer.end_dim == -1
            if type(layer) is not nn.Linear and type(layer) not in _ACTIVATIONS and not flattens:
                return f"has a {type(layer).__name__} layer"
        if any(not p.requires_grad for p in model.parameters()) or len({*model.parameters()}) != len(
            [p for layer in model for p in layer.parameters()]
        ):
            return "has frozen or shared weights"
        return ""

    def __init__(self, model: nn.Module, loss: Loss, client: ClientSpec) -> None:
        super().__init__(model, loss, client)
        assert isinstance(model, nn.Sequential)
        self._layers: list[tuple[slice, slice | None, torch.Size] | Callable[[torch.Tensor], torch.Tensor]] = []
        self._functions: list[nn.Module] = []
        where = dict(zip(self.schema.names, self.schema.slices(), strict=True))
        for name, layer in model.named_children():
            if isinstance(layer, nn.Linear):
                self._layers.append((where[f"{name}.weight"], where.get(f"{name}.bias"), layer.weight.shape))
            elif not isinstance(layer, nn.Flatten):
                self._layers.append(_ACTIVATIONS[type(layer)])
            else:
                continue
            self._functions.append(layer)

    def updates(self, start: torch.Tensor, chunk: Chunk, out: torch.Tensor) -> None:
        client, plan = self.client, chunk.schedule
        device = start.device
        weights = out.copy_(start)
        plain = is_plain(client)
        gradient = None if plain else torch.zeros_like(weights)
        velocity = torch.zeros_like(weights) if client.momentum else None
        inputs = chunk.inputs.flatten(1)
        rows = torch.from_numpy(plan.rows).to(device)
        counts = torch.from_numpy(plan.counts).to(device)
        share = (torch.arange(rows.shape[2], device=device) < counts[:, :, None]) / counts[:, :, None].clamp(min=1)
        for step, active in enumerate((plan.counts > 0).sum(0)):
            at = rows[:active, step]
            if plain:
                self._step(weights[:active], inputs[at], chunk.targets[at], share[:active, step], None)
                continue
            assert gradient is not None
            self._step(weights[:active], inputs[at], chunk.targets[at], share[:active, step], gradient[:active])
            moving = None if velocity is None else velocity[:active]
            step_flat(weights[:active], gradient[:active], moving, start, client)
        out.sub_(start)

    def _step(
        self,
        weights: torch.Tensor,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        share: torch.Tensor,
        gradient: torch.Tensor | None,
    ) -> None:
        """One batch of each user: the gradient into `gradient`, or the whole step into `weights`."""
        users, rows = inputs.shape[:2]
        values = [inputs]
        for layer, function in zip(self._layers, self._functions, strict=True):
            last = values[-1]
            if not isinstance(layer, tuple):
                values.append(function(last))
                continue
            weight = weights[:, layer[0]].view(users, *layer[2]).transpose(1, 2)
            if layer[1] is None:
                values.append(torch.bmm(last, weight))
            else:
                values.append(torch.baddbmm(weights[:, layer[1]].unsqueeze(1), last, weight))
        outputs = values.pop().flatten(0, 1).requires_grad_()
        total = (self.loss(outputs, targets.flatten(0, 1)) * share.flatten()).sum()
        (back,) = torch.autograd.grad(total, outputs)
        back = back.view(users, rows, -1)

        into, old, scale = (weights, 1.0, -self.client.learning_rate) if gradient is None else (gradient, 0.0, 1.0)
        first = next(place for place, layer in enumerate(self._layers) if isinstance(layer, tuple))
        for place in range(len(self._layers) - 1, first - 1, -1):
            layer = self._layers[place]
            if not isinstance(layer, tuple):
                back = back * layer(
                    outputs.view(users, rows, -1) if place == len(self._layers) - 1 else values[place + 1]
                )
                continue
            below = None
            if place > first:
                below = torch.bmm(back, weights[:, layer[0]].view(users, *layer[2]))
            into[:, layer[0]].view(users, *layer[2]).baddbmm_(
                back.transpose(1, 2), values[place], beta=old, alpha=scale
            )
            if layer[1] is not None:
                bias = into[:, layer[1]]
                bias.mul_(old).add_(back.sum(1), alpha=scale)
            if below is not None:
                back = below
