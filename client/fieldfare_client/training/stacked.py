"""The batched engine for stacks of linear layers: all users of a chunk at once, backward pass written out.

One batched matrix product a layer, direction and step, whatever the number of users. Every parameter of all users is
one contiguous block: only then is a batched product one call and not one a user. Without momentum, decay, proximal term
and gradient clipping the step is fused into the last of the products and no gradient is ever stored, and a wide first
layer is not copied for every user (`gram`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import nn

from fieldfare.plan import ClientSpec
from fieldfare.schema import Schema
from fieldfare.task import Task
from fieldfare_client.training.engines import Batches, Chunk, Engine, Gradients, is_plain, spread, step_each
from fieldfare_client.training.gram import InputLayer, pays
from fieldfare_client.training.layers import Activation, Flatten, Linear, descend, layers_of


class StackedEngine(Engine):
    """For `nn.Sequential` of Linear, ReLU, Tanh, Sigmoid, Identity and a leading Flatten."""

    kind: ClassVar[str] = "batched"

    @staticmethod
    def refuses(model: nn.Module) -> str:
        known = layers_of(model, Schema.of(model).names)
        if isinstance(known, str):
            return known
        for place, layer in enumerate(known):
            if not isinstance(layer, Linear | Activation) and not (isinstance(layer, Flatten) and place == 0):
                return f"has a {type(layer).__name__} layer"
        return ""

    @staticmethod
    def fits(model: nn.Module, inputs: torch.Tensor) -> bool:
        """Whether each row of `inputs` is one vector to the model: a Linear layer by itself may also take sequences."""
        known = layers_of(model, Schema.of(model).names)
        return inputs.ndim == 2 or (not isinstance(known, str) and isinstance(known[0], Flatten))

    def __init__(self, model: nn.Module, task: Task, client: ClientSpec) -> None:
        super().__init__(model, task, client)
        known = layers_of(model, self.schema.names)
        assert not isinstance(known, str)
        self._layers = [layer for layer in known if not isinstance(layer, Flatten)]

    def updates(self, start: torch.Tensor, chunk: Chunk, out: torch.Tensor) -> None:
        client, batches = self.client, Batches(chunk)
        starts, slices = list(self.schema.split(start).values()), self.schema.slices()
        inputs, mine = chunk.inputs.flatten(1), out[: batches.training]
        plain = is_plain(client)
        early = self._early(starts, inputs, batches) if plain else None
        # The first layer's parameters come first. Where it goes its own way, its weights are never copied.
        copied = 0 if early is None else (1 if self._first().bias is None else 2)
        weights = starts[:copied] + [spread(value, len(mine)) for value in starts[copied:]]
        gradients = weights if plain else [torch.empty_like(weight) for weight in weights]
        velocities = [torch.zeros_like(weight) for weight in weights] if client.momentum else None
        for step, active in enumerate(batches.active):
            moving = [weight if place < copied else weight[:active] for place, weight in enumerate(weights)]
            found = moving if plain else [gradient[:active] for gradient in gradients]
            into = Gradients(found, client.learning_rate if plain else None)
            at, share = batches.rows[step, :active].flatten(), batches.share[step, :active].flatten()
            of_loss = self._of_loss(chunk.targets.index_select(0, at), share)
            if early is None:
                values = inputs.index_select(0, at).view(active, batches.width, -1)
                descend(self._layers, moving, values, of_loss, into)
            else:
                columns = batches.columns(step)
                values = early.forward(active, columns)
                back = descend(self._layers[1:], moving, values, of_loss, into, below=True)
                assert back is not None
                early.backward(active, columns, back)
            if not plain:
                rolling = None if velocities is None else [velocity[:active] for velocity in velocities]
                step_each(moving, found, rolling, starts, client)
        for place in range(copied, len(weights)):
            torch.sub(weights[place].flatten(1), starts[place].flatten(), out=mine[:, slices[place]])
        if early is not None:
            first = self._first()
            weight = mine[:, slices[first.weight]].view(-1, *starts[first.weight].shape)
            early.write(weight, None if first.bias is None else mine[:, slices[first.bias]])
        out[len(mine) :] = 0.0

    def _of_loss(self, targets: torch.Tensor, share: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
        """Loss gradient at outputs (users, rows, out); `share` (users x rows,) weighs the rows."""
        return lambda outputs: self.task.loss_gradient(outputs.flatten(0, 1), targets, share).view(outputs.shape)

    def _first(self) -> Linear:
        first = self._layers[0]
        assert isinstance(first, Linear)
        return first

    def _early(self, starts: list[torch.Tensor], inputs: torch.Tensor, batches: Batches) -> InputLayer | None:
        """The first layer in its own way, where that pays; else None."""
        if not isinstance(self._layers[0], Linear) or not batches.training:
            return None
        weight, bias = starts[self._first().weight], self._first().bias
        if not pays(len(batches.active) * batches.width, weight.shape[1], weight.shape[0]):
            return None
        ordered = inputs[batches.rows[:, : batches.training].transpose(0, 1).flatten(1)]
        return InputLayer(ordered, weight, None if bias is None else starts[bias], self.client.learning_rate)
