"""Layers whose backward pass is written out.

What autograd would do, in the same order of arithmetic, without its graph; and max pooling without its branches, which
cost a CPU as much as a convolution does. Each layer says what it needs of the forward pass to go back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fieldfare_client.training.engines import Gradients

Weights = list[torch.Tensor]

ACTIVATIONS: dict[
    type[nn.Module],
    tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[torch.Tensor, torch.Tensor], torch.Tensor]],
] = {
    nn.ReLU: (torch.relu, lambda back, y: torch.ops.aten.threshold_backward(back, y, 0.0)),
    nn.Tanh: (torch.tanh, torch.ops.aten.tanh_backward),
    nn.Sigmoid: (torch.sigmoid, torch.ops.aten.sigmoid_backward),
    nn.Identity: (lambda x: x, lambda back, y: back),
}
"""Of each activation layer: forward, and (gradient at its output, output) -> gradient at its input."""


class Layer(ABC):
    """One layer. `weights` are all of the model's parameters, in the order of its schema."""

    trains: bool = False
    """Whether it has parameters."""

    @abstractmethod
    def forward(self, weights: Weights, inputs: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Outputs, and what `backward` wants to know."""

    @abstractmethod
    def backward(
        self, weights: Weights, kept: Any, back: torch.Tensor, into: Gradients, below: bool
    ) -> torch.Tensor | None:
        """From the loss gradient at the outputs to the one at the inputs (if `below`), parameters' on the way."""


@dataclass(frozen=True)
class Activation(Layer):
    kind: type[nn.Module]

    def forward(self, weights: Weights, inputs: torch.Tensor) -> tuple[torch.Tensor, Any]:
        outputs = ACTIVATIONS[self.kind][0](inputs)
        return outputs, outputs

    def backward(
        self, weights: Weights, kept: Any, back: torch.Tensor, into: Gradients, below: bool
    ) -> torch.Tensor | None:
        return ACTIVATIONS[self.kind][1](back, kept)


@dataclass(frozen=True)
class Flatten(Layer):
    def forward(self, weights: Weights, inputs: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return inputs.flatten(1), inputs.shape

    def backward(
        self, weights: Weights, kept: Any, back: torch.Tensor, into: Gradients, below: bool
    ) -> torch.Tensor | None:
        return back.reshape(kept)


@dataclass(frozen=True)
class Linear(Layer):
    """Also of many users at once: inputs (users, rows, in), weights (users, out, in)."""

    weight: int
    bias: int | None
    trains = True

    def forward(self, weights: Weights, inputs: torch.Tensor) -> tuple[torch.Tensor, Any]:
        weight, bias = weights[self.weight], None if self.bias is None else weights[self.bias]
        if weight.ndim == 2:
            return nn.functional.linear(inputs, weight, bias), inputs
        if bias is None:
            return torch.bmm(inputs, weight.transpose(1, 2)), inputs
        return torch.baddbmm(bias.unsqueeze(1), inputs, weight.transpose(1, 2)), inputs

    def backward(
        self, weights: Weights, kept: Any, back: torch.Tensor, into: Gradients, below: bool
    ) -> torch.Tensor | None:
        under = back @ weights[self.weight] if below else None  # before a step changes the weights
        if weights[self.weight].ndim == 2:
            back, kept = back.flatten(0, -2), kept.flatten(0, -2)
        into.product(self.weight, back.transpose(-1, -2), kept)
        if self.bias is not None:
            into.put(self.bias, back.sum(-2))
        return under


@dataclass(frozen=True)
class Convolution(Layer):
    weight: int
    bias: int | None
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    trains = True

    def forward(self, weights: Weights, inputs: torch.Tensor) -> tuple[torch.Tensor, Any]:
        bias = None if self.bias is None else weights[self.bias]
        where = self.stride, self.padding, self.dilation
        return torch.conv2d(inputs, weights[self.weight], bias, *where, self.groups), inputs

    def backward(
        self, weights: Weights, kept: Any, back: torch.Tensor, into: Gradients, below: bool
    ) -> torch.Tensor | None:
        weight, wanted = weights[self.weight], [below, True, self.bias is not None]
        how = [self.stride, self.padding, self.dilation, False, [0, 0], self.groups]
        under, gradient, bias = torch.ops.aten.convolution_backward(back, kept, weight, [len(weight)], *how, wanted)
        into.put(self.weight, gradient)
        if self.bias is not None:
            into.put(self.bias, bias)
        return under if below else None


@dataclass(frozen=True)
class HalvingPool(Layer):
    """Maxima of 2 x 2 squares. The first of equal values, row by row, is the maximum: as in PyTorch."""

    def forward(self, weights: Weights, inputs: torch.Tensor) -> tuple[torch.Tensor, Any]:
        left, right = _pairs(inputs, 3)
        wide = torch.maximum(left, right)
        return torch.maximum(*_pairs(wide, 2)), (inputs, wide)

    def backward(
        self, weights: Weights, kept: Any, back: torch.Tensor, into: Gradients, below: bool
    ) -> torch.Tensor | None:
        inputs, wide = kept
        return _share(_share(back, wide, 2), inputs, 3)


def descend(
    layers: Sequence[Layer],
    weights: Weights,
    inputs: torch.Tensor,
    of_loss: Callable[[torch.Tensor], torch.Tensor],
    into: Gradients,
    below: bool = False,
) -> torch.Tensor | None:
    """Forward, `of_loss` (outputs -> loss gradient at them), and backward as far as there is something to train.

    Returns the loss gradient at `inputs` if `below`."""
    kept = []
    for layer in layers:
        inputs, needed = layer.forward(weights, inputs)
        kept.append(needed)
    back: torch.Tensor | None = of_loss(inputs)
    lowest = 0 if below else next(place for place, layer in enumerate(layers) if layer.trains)
    for place in range(len(layers) - 1, lowest - 1, -1):
        assert back is not None
        back = layers[place].backward(weights, kept.pop(), back, into, below or place > lowest)
    return back


def _pairs(values: torch.Tensor, axis: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Even and odd places along `axis`; a last one without a partner is left out."""
    whole = values.shape[axis] // 2 * 2
    if axis == 3:
        return values[..., 0:whole:2], values[..., 1:whole:2]
    return values[:, :, 0:whole:2], values[:, :, 1:whole:2]


def _share(back: torch.Tensor, values: torch.Tensor, axis: int) -> torch.Tensor:
    """Gradient at `values` from the one at the maxima of its pairs along `axis`."""
    out = torch.empty_like(values) if values.shape[axis] % 2 == 0 else torch.zeros_like(values)
    first, second = _pairs(values, axis)
    to_first, to_second = _pairs(out, axis)
    torch.mul(back, first >= second, out=to_first)
    torch.sub(back, to_first, out=to_second)
    return out


def layers_of(model: nn.Module, names: tuple[str, ...]) -> list[Layer] | str:
    """The layers of `model`, or why not all of them are known here. `names`: the schema's."""
    if type(model) is not nn.Sequential:
        return "not an nn.Sequential"
    if any(not p.requires_grad for p in model.parameters()) or len(names) != sum(
        len(list(layer.parameters())) for layer in model
    ):
        return "has frozen or shared weights"
    place = {name: at for at, name in enumerate(names)}
    layers: list[Layer] = []
    for name, layer in model.named_children():
        weight, bias = place.get(f"{name}.weight", -1), place.get(f"{name}.bias")
        if type(layer) in ACTIVATIONS:
            layers.append(Activation(type(layer)))
        elif type(layer) is nn.Linear:
            layers.append(Linear(weight, bias))
        elif type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
            layers.append(Flatten())
        elif type(layer) is nn.Conv2d and layer.padding_mode == "zeros" and not isinstance(layer.padding, str):
            layers.append(Convolution(weight, bias, layer.stride, layer.padding, layer.dilation, layer.groups))
        elif type(layer) is nn.MaxPool2d and _halves(layer):
            if layers and layers[-1] == Activation(nn.ReLU):
                # The maximum of non-negative parts is the non-negative part of the maximum: four times less work.
                # Where maxima tie only after the ReLU they are 0, and no gradient passes either way.
                layers.insert(-1, HalvingPool())
            else:
                layers.append(HalvingPool())
        else:
            return f"has a layer {layer}"
    return layers


def _halves(layer: nn.MaxPool2d) -> bool:
    two = layer.kernel_size in (2, (2, 2)) and layer.stride in (2, (2, 2))
    plain = layer.padding in (0, (0, 0)) and layer.dilation in (1, (1, 1))
    return two and plain and not layer.ceil_mode and not layer.return_indices
