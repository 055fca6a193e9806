"""One user after another, through layers whose backward pass is written out (`layers`): leaner than autograd."""

from __future__ import annotations

import torch

from fieldfare.plan import ClientSpec
from fieldfare.schema import Schema
from fieldfare.task import Task
from fieldfare_client.training.engines import Gradients, is_plain
from fieldfare_client.training.layers import Layer, descend, layers_of
from fieldfare_client.training.loop import LoopEngine


class LayeredEngine(LoopEngine):
    """For `nn.Sequential` of what `layers` knows. A plain step needs no copy of the gradient."""

    @staticmethod
    def refuses(model: torch.nn.Module) -> str:
        known = layers_of(model, Schema.of(model).names)
        return known if isinstance(known, str) else ""

    def __init__(self, model: torch.nn.Module, task: Task, client: ClientSpec) -> None:
        super().__init__(model, task, client)
        known = layers_of(model, self.schema.names)
        assert not isinstance(known, str)
        self._layers: list[Layer] = known

    @torch.no_grad()
    def _step(
        self,
        weights: list[torch.Tensor],
        starts: list[torch.Tensor],
        velocity: list[torch.Tensor] | None,
        inputs: torch.Tensor,
        targets: torch.Tensor,
    ) -> None:
        share = torch.full((len(inputs),), 1 / len(inputs), device=inputs.device)
        plain = is_plain(self.client)
        gradient = weights if plain else [torch.empty_like(weight) for weight in weights]
        into = Gradients(gradient, self.client.learning_rate if plain else None)
        descend(self._layers, weights, inputs, lambda outputs: self.task.loss_gradient(outputs, targets, share), into)
        if not plain:
            self._apply(weights, gradient, starts, velocity)
