"""The batched engine for stacks of linear layers: all users of a chunk at once, backward pass written out.

One batched matrix product a layer, direction and step, whatever the number of users. Every parameter of all users is
one contiguous block: only then is a batched product one call and not one a user. Without momentum, decay, proximal term
and gradient clipping the step is fused into the last of the products (`layers`), and a wide first layer is not copied
for every user (`wide_input`). Only the loss is the task's code; it is mapped over users.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from fieldfare.plan_tables import ClientSpec
from fieldfare.schema import Schema
from fieldfare.task import Task
from fieldfare_client.training.engines import Batches, Chunk, Engine, Group, is_plain, spread, step_each
from fieldfare_client.training.layers import Destination, Linear, backpropagate, flattens, layers_of
from fieldfare_client.training.loss_gradient import LossGradient
from fieldfare_client.training.schedule import Schedule
from fieldfare_client.training.wide_input import InputLayer, pays


class StackedEngine(Engine):
    """For `nn.Sequential` of Linear, ReLU, Tanh, Sigmoid, Identity and a leading Flatten."""

    @staticmethod
    def refuses(model: nn.Module) -> str:
        """Why this engine cannot train `model`; empty where it can."""
        layers = layers_of(model, Schema.of(model).names)
        return layers if isinstance(layers, str) else ""

    def __init__(self, model: nn.Module, task: Task, client: ClientSpec) -> None:
        super().__init__(model, task, client)
        layers = layers_of(model, self.schema.names)
        assert not isinstance(layers, str)
        self._layers = layers
        self._gradient = LossGradient(task.loss)

    def updates(self, start: torch.Tensor, chunk: Chunk, out: torch.Tensor) -> None:
        if chunk.inputs.ndim != 2 and not flattens(next(self.model.children())):
            # A linear layer by itself also takes sequences; here a row is one vector.
            raise ValueError("a row is several vectors")
        self._gradient.begin()
        client, batches = self.client, Batches(chunk)
        starts, slices = list(self.schema.split(start).values()), self.schema.slices()
        inputs, trained = chunk.inputs.flatten(1), out[: batches.training]
        plain = is_plain(client)
        first = self._layers[0]
        wide, places = None, batches.rows
        if plain and isinstance(first, Linear):
            wide, places = self._wide_input(first, starts, inputs, chunk.schedule, batches)
        # The first layer's parameters come first. Where it goes its own way, its weights are never copied.
        shared = 0 if wide is None or not isinstance(first, Linear) else 1 if first.bias is None else 2
        weights = starts[:shared] + [spread(value, len(trained)) for value in starts[shared:]]
        gradients = weights if plain else [torch.empty_like(weight) for weight in weights]
        velocities = [torch.zeros_like(weight) for weight in weights] if client.momentum else None
        for step, active in enumerate(batches.active):
            everyone = active == len(trained)  # then no slice is made
            moving = [w if everyone or place < shared else w[:active] for place, w in enumerate(weights)]
            written = moving if plain else [gradient[:active] for gradient in gradients]
            destination = Destination(written, client.learning_rate if plain else None)
            rows, groups = batches.rows[step, :active].flatten(), batches.groups[step]
            targets = chunk.targets[batches.rows[step, :active]]

            loss_gradient = partial(self._loss_gradient, targets=targets, groups=groups)
            if wide is None:
                values = inputs.index_select(0, rows).view(active, batches.width, -1)
                backpropagate(self._layers, moving, values, loss_gradient, destination)
            else:
                values = wide.forward(places[step, :active])
                gradient = backpropagate(self._layers[1:], moving, values, loss_gradient, destination, below=True)
                wide.backward(places[step, :active], gradient)
            if not plain:
                rolling = None if velocities is None else [velocity[:active] for velocity in velocities]
                step_each(moving, written, rolling, starts, client)
        for place in range(shared, len(weights)):
            torch.sub(weights[place].flatten(1), starts[place].flatten(), out=trained[:, slices[place]])
        if wide is not None and isinstance(first, Linear):
            weight = trained[:, slices[first.weight]].view(-1, *starts[first.weight].shape)
            wide.write(weight, None if first.bias is None else trained[:, slices[first.bias]])
        out[len(trained) :] = 0.0

    def _loss_gradient(self, outputs: torch.Tensor, targets: torch.Tensor, groups: list[Group]) -> torch.Tensor:
        """The gradient of every user's mean loss at `outputs` (users, rows, out); 0 on padding.

        Users with equally long batches are mapped together. The loss never sees padding, because it may mix rows.
        """
        if groups == [(slice(0, len(outputs)), outputs.shape[1])]:  # no padding, and slices cost as much as a layer
            return self._gradient(outputs, targets)
        gradient = torch.zeros_like(outputs)
        for users, count in groups:
            gradient[users, :count] = self._gradient(outputs[users, :count], targets[users, :count])
        return gradient

    def _wide_input(
        self, first: Linear, starts: list[torch.Tensor], inputs: torch.Tensor, schedule: Schedule, batches: Batches
    ) -> tuple[InputLayer | None, torch.Tensor]:
        """The first layer in its own way, where that pays, else None; and the rows of every batch in its inputs."""
        weight, bias = starts[first.weight], None if first.bias is None else starts[first.bias]
        users, rows, rate = batches.training, batches.rows, self.client.learning_rate
        sizes, used = schedule.sizes[:users], schedule.counts[:users].sum(1)
        if users and (sizes == sizes[0]).all() and (used >= sizes).all():
            # Each row is used, and users lie as far apart: their rows stay where they are, whatever the epochs.
            pay = pays(int(sizes[0]), weight.shape[1], weight.shape[0])
            return (InputLayer(inputs.reshape(users, int(sizes[0]), -1), weight, bias, rate) if pay else None), rows
        slots = len(batches.active) * batches.width
        if not pays(slots, weight.shape[1], weight.shape[0]):
            return None, rows
        ordered = inputs[rows[:, :users].transpose(0, 1).flatten(1)]
        in_order = torch.arange(users * slots, device=inputs.device).view(users, len(batches.active), -1)
        return InputLayer(ordered, weight, bias, rate), in_order.transpose(0, 1)
