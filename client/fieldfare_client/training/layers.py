"""Linear layers and activations of many users at once, with the backward pass written out.

The arithmetic and its order are autograd's. There is no graph, and a plain SGD step is fused into the last product, so
that no gradient is ever stored. Every tensor has a leading axis of users: inputs (users, rows, in), weights
(users, out, in), biases (users, out). No operation mixes two users.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

Weights = list[torch.Tensor]
"""All parameters of the model, in the order of its schema."""

ACTIVATIONS: dict[
    type[nn.Module],
    tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[torch.Tensor, torch.Tensor], torch.Tensor]],
] = {
    nn.ReLU: (torch.relu, lambda gradient, y: torch.ops.aten.threshold_backward(gradient, y, 0.0)),
    nn.Tanh: (torch.tanh, torch.ops.aten.tanh_backward),
    nn.Sigmoid: (torch.sigmoid, torch.ops.aten.sigmoid_backward),
    nn.Identity: (lambda x: x, lambda gradient, y: gradient),
}
"""Of each activation: forward, and (gradient at its output, output) -> gradient at its input."""


@dataclass(frozen=True)
class Destination:
    """Where a backward pass writes the gradients of the parameters, each (users, *shape)."""

    tensors: Sequence[torch.Tensor]
    rate: float | None
    """None: the tensors become the gradients. A rate: they are the weights, and step by -rate x gradient."""

    def put(self, place: int, gradient: torch.Tensor) -> None:
        """Write the gradient of parameter `place`."""
        if self.rate is None:
            self.tensors[place].copy_(gradient)
        else:
            self.tensors[place].sub_(gradient, alpha=self.rate)

    def put_product(self, place: int, left: torch.Tensor, right: torch.Tensor) -> None:
        """Do as `put(place, left @ right)`, without the product in memory."""
        if self.rate is None:
            torch.bmm(left, right, out=self.tensors[place])
        else:
            self.tensors[place].baddbmm_(left, right, alpha=-self.rate)


@dataclass(frozen=True)
class Linear:
    """`nn.Linear`: `weight` and `bias` are places in the schema."""

    weight: int
    bias: int | None

    def forward(self, weights: Weights, inputs: torch.Tensor) -> torch.Tensor:
        transposed = weights[self.weight].transpose(1, 2)
        if self.bias is None:
            return torch.bmm(inputs, transposed)
        return torch.baddbmm(weights[self.bias].unsqueeze(1), inputs, transposed)


@dataclass(frozen=True)
class Activation:
    """One of `ACTIVATIONS`."""

    kind: type[nn.Module]

    def forward(self, weights: Weights, inputs: torch.Tensor) -> torch.Tensor:
        return ACTIVATIONS[self.kind][0](inputs)


Layer = Linear | Activation


def layers_of(model: nn.Module, names: tuple[str, ...]) -> list[Layer] | str:
    """Read the layers of `model` behind a leading Flatten.

    Args:
        model: any model.
        names: its parameters in the order of the schema.

    Returns:
        The layers, or the reason why not all of them are known here.
    """
    if type(model) is not nn.Sequential:
        return "not an nn.Sequential"
    if any(not p.requires_grad for p in model.parameters()) or len(names) != sum(
        len(list(layer.parameters())) for layer in model
    ):
        return "has frozen or shared weights"
    places = {name: place for place, name in enumerate(names)}
    layers: list[Layer] = []
    for index, (name, layer) in enumerate(model.named_children()):
        if index == 0 and flattens(layer):
            continue
        if type(layer) in ACTIVATIONS:
            layers.append(Activation(type(layer)))
        elif type(layer) is nn.Linear:
            layers.append(Linear(places[f"{name}.weight"], places.get(f"{name}.bias")))
        else:
            return f"has a layer {layer}"
    return layers


def flattens(layer: nn.Module) -> bool:
    """Whether `layer` makes one vector of each row."""
    return type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1)


def backpropagate(
    layers: Sequence[Layer],
    weights: Weights,
    inputs: torch.Tensor,
    loss_gradient: Callable[[torch.Tensor], torch.Tensor],
    destination: Destination,
    *,
    below: bool = False,
) -> torch.Tensor:
    """Go forward through `layers`, and back as far as there is something to train.

    Args:
        layers: the layers to train.
        weights: their parameters; a `destination` that steps changes them.
        inputs: (users, rows, in).
        loss_gradient: from the outputs to the gradient of the loss at them, both (users, rows, out).
        destination: receives the gradients of the parameters.
        below: go back to the inputs.

    Returns:
        The gradient of the loss at the lowest point that was reached: at `inputs` if `below`.
    """
    passed = [inputs]
    for layer in layers:
        passed.append(layer.forward(weights, passed[-1]))
    gradient = loss_gradient(passed[-1])
    lowest = 0 if below else next(place for place, layer in enumerate(layers) if isinstance(layer, Linear))
    for place in range(len(layers) - 1, lowest - 1, -1):
        layer, outputs = layers[place], passed.pop()
        if isinstance(layer, Activation):
            gradient = ACTIVATIONS[layer.kind][1](gradient, outputs)
            continue
        above = gradient
        if below or place > lowest:
            # Before the step: it changes these weights in place.
            gradient = torch.bmm(above, weights[layer.weight])
        destination.put_product(layer.weight, above.transpose(1, 2), passed[-1])
        if layer.bias is not None:
            destination.put(layer.bias, above.sum(1))
    return gradient
