"""The batched engine for stacks of linear layers: all users of a chunk at once, backward pass written out.

One batched matrix product a layer, direction and step, whatever the number of users. Without momentum, decay,
proximal term and gradient clipping the step is fused into the last of them and no gradient is ever stored, and a wide
first layer is not copied for every user (`gram`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import nn

from fieldfare.plan import ClientSpec
from fieldfare_client.training.engines import Chunk, Engine, Loss, is_plain, step_flat
from fieldfare_client.training.gram import InputLayer, pays

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
        client, plan, device = self.client, chunk.schedule, start.device
        plain = is_plain(client)
        gradient = None if plain else torch.zeros_like(out)
        velocity = torch.zeros_like(out) if client.momentum else None
        inputs = chunk.inputs.flatten(1)
        rows = torch.from_numpy(plan.rows).to(device)
        counts = torch.from_numpy(plan.counts).to(device)
        share = (torch.arange(rows.shape[2], device=device) < counts[:, :, None]) / counts[:, :, None].clamp(min=1)
        training = int((plan.counts[:, :1] > 0).sum())  # users without rows are the last ones
        early = self._early(start, inputs, rows[:training]) if plain else None
        later = slice(0 if early is None else self._early_end, None)
        out[:, later] = start[later]
        for step, active in enumerate((plan.counts > 0).sum(0).tolist()):
            at = rows[:active, step]
            wide = None if early is None else (early, slice(step * rows.shape[2], (step + 1) * rows.shape[2]))
            found = None if gradient is None else gradient[:active]
            self._step(
                out[:active],
                inputs[at] if wide is None else None,
                chunk.targets[at],
                share[:active, step],
                found,
                wide,
            )
            if found is not None:
                moving = None if velocity is None else velocity[:active]
                step_flat(out[:active], found, moving, start, client)
        out[:, later].sub_(start[later])
        if early is not None:
            where, bias, shape = self._first()
            out[training:, : self._early_end] = 0.0
            mine = out[:training]
            early.write(mine[:, where].view(training, *shape), None if bias is None else mine[:, bias])

    def _first(self) -> tuple[slice, slice | None, torch.Size]:
        first = self._layers[0]
        assert isinstance(first, tuple)
        return first

    def _early(self, start: torch.Tensor, inputs: torch.Tensor, rows: torch.Tensor) -> InputLayer | None:
        """The first layer in its own way, where that pays; else None."""
        if not isinstance(self._layers[0], tuple) or not rows.numel():
            return None
        where, bias, shape = self._first()
        if not pays(rows.shape[1] * rows.shape[2], shape[1], shape[0]):
            return None
        self._early_end = where.stop if bias is None else bias.stop
        weight = start[where].view(shape)
        ordered, offset = inputs[rows.flatten(1)], None if bias is None else start[bias]
        return InputLayer(ordered, weight, offset, self.client.learning_rate)

    def _step(
        self,
        weights: torch.Tensor,
        inputs: torch.Tensor | None,
        targets: torch.Tensor,
        share: torch.Tensor,
        gradient: torch.Tensor | None,
        wide: tuple[InputLayer, slice] | None,
    ) -> None:
        """One batch of each user: the gradient into `gradient`, or the whole step into `weights`."""
        users, rows = share.shape
        # The input of each layer, and of what comes after the last; with `wide`, nothing is known of the first.
        values: list[torch.Tensor] = []
        last = wide[0].forward(users, wide[1]) if wide is not None else inputs
        assert last is not None
        if wide is not None:
            values.append(last)
        for layer, function in list(zip(self._layers, self._functions, strict=True))[len(values) :]:
            values.append(last)
            if not isinstance(layer, tuple):
                last = function(last)
                continue
            weight = weights[:, layer[0]].view(users, *layer[2]).transpose(1, 2)
            if layer[1] is None:
                last = torch.bmm(last, weight)
            else:
                last = torch.baddbmm(weights[:, layer[1]].unsqueeze(1), last, weight)
        values.append(last)
        outputs = last.flatten(0, 1).detach().requires_grad_()
        total = (self.loss(outputs, targets.flatten(0, 1)) * share.flatten()).sum()
        (back,) = torch.autograd.grad(total, outputs)
        back = back.view(users, rows, -1)

        into, old, scale = (weights, 1.0, -self.client.learning_rate) if gradient is None else (gradient, 0.0, 1.0)
        first = next(place for place, layer in enumerate(self._layers) if isinstance(layer, tuple))
        for place in range(len(self._layers) - 1, first - 1, -1):
            layer = self._layers[place]
            if not isinstance(layer, tuple):
                back = back * layer(values[place + 1])
                continue
            if wide is not None and place == 0:
                wide[0].backward(users, wide[1], back)
                break
            below = None
            if place > first:
                below = torch.bmm(back, weights[:, layer[0]].view(users, *layer[2]))
            into[:, layer[0]].view(users, *layer[2]).baddbmm_(
                back.transpose(1, 2), values[place], beta=old, alpha=scale
            )
            if layer[1] is not None:
                bias = into[:, layer[1]]
                if gradient is None:
                    bias.add_(back.sum(1), alpha=scale)
                else:
                    torch.sum(back, 1, out=bias)
            if below is not None:
                back = below
