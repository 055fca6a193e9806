"""Linear layers and activations of many users at once, with the backward pass written out.

The arithmetic and its order are autograd's. There is no graph, and a plain SGD step is fused into the last
product, so that no gradient is ever stored. Every tensor has a leading axis of users: inputs (users, rows,
in), weights (users, out, in), biases (users, out). No operation mixes two users.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch import nn

Weights = list[torch.Tensor]  # all parameters of the model, in the order of its schema

# Of each activation: forward, and (gradient at its output, output) -> gradient at its input.
ACTIVATIONS: dict[
    type[nn.Module], tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]
] = {
    nn.ReLU: (torch.relu, lambda gradient, y: torch.ops.aten.threshold_backward(gradient, y, 0.0)),
    nn.Tanh: (torch.tanh, torch.ops.aten.tanh_backward),
    nn.Sigmoid: (torch.sigmoid, torch.ops.aten.sigmoid_backward),
    nn.Identity: (lambda x: x, lambda gradient, y: gradient),
}


@dataclass(frozen=True)
class Destination:
    """Where a backward pass writes the gradients of the parameters, each (users, *shape)."""

    tensors: Sequence[torch.Tensor]
    # None: the tensors become the gradients. A rate: they are the weights, and step by -rate x gradient.
    rate: float | None

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


@dataclass(frozen=True)
class Stack:
    """What `layers_of` finds."""

    layers: list[Layer]
    flatten: bool  # whether the model first makes one vector of each row


# Activations as functions and methods, which are the same as modules.
_FUNCTIONS: dict[object, type[nn.Module]] = {
    **dict.fromkeys((torch.relu, nn.functional.relu, "relu"), nn.ReLU),
    **dict.fromkeys((torch.tanh, nn.functional.tanh, "tanh"), nn.Tanh),
    **dict.fromkeys((torch.sigmoid, nn.functional.sigmoid, "sigmoid"), nn.Sigmoid),
}


def layers_of(model: nn.Module, names: tuple[str, ...]) -> Stack | str:
    """Read the layers of `model` from its `forward`: linear layers and activations, one after another.

    Args:
        model: any model, an `nn.Sequential` or a class. A `Flatten` may come first.
        names: its parameters in the order of the schema.

    Returns:
        The layers, or the reason why the model is not a stack of them.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    if any(not p.requires_grad for p in model.parameters()) or len(names) != len(list(model.parameters())):
        return "has frozen weights"
    # Sought first: tracing a large model takes its time, and most of them end here.
    for name, module in modules.items():
        leaf = not list(module.children())
        if leaf and type(module) not in (*ACTIVATIONS, nn.Linear, nn.Flatten):
            return f"has a layer {module}"
        if "forward" in vars(module) or any(getattr(module, hooks) for hooks in _HOOKS):
            return f"has hooks at {name or 'the model'}"
        if not leaf and (module._parameters or module._buffers):
            return f"has weights of its own in {type(module).__name__}"
    try:
        (given, *steps), last = _trace(model)
    except Exception:  # a branch on values, or any other Python that is no list of operations
        return "cannot be traced"
    places = {name: place for place, name in enumerate(names)}
    flatten, layers, value = False, list[Layer](), given
    for step in steps:
        if step.op in ("call_function", "call_method") and _reads_rows(step, given):
            continue  # the number of rows, for `view`
        if not step.args or step.args[0] is not value or (step.op == "call_module" and len(step.args) != 1):
            return "is no chain of layers"
        value, module = step, modules.get(str(step.target)) if step.op == "call_module" else None
        kind = type(module) if module is not None else _FUNCTIONS.get(step.target)
        if isinstance(module, nn.Linear):
            found = Linear(places.pop(f"{step.target}.weight", -1), places.pop(f"{step.target}.bias", None))
            if found.weight < 0:
                return "has shared weights"
            layers.append(found)
        elif kind in ACTIVATIONS and (module is not None or (len(step.args) == 1 and not any(step.kwargs.values()))):
            layers.append(Activation(kind))
        elif not layers and not flatten and _flattens(step, module, given):
            flatten = True
        else:
            return f"has a layer {module or step.target}"
    if last is not value or places or not any(isinstance(layer, Linear) for layer in layers):
        return "is no chain of layers"
    return Stack(layers, flatten)


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class _Noting(torch.fx.Tracer):
    """Notes steps, and fails where the model turns gradients off or autocast on: no step says so."""

    def create_node(self, *args: Any, **kwargs: Any) -> torch.fx.Node:
        modes = torch.is_grad_enabled(), *map(torch.is_autocast_enabled, ("cpu", "cuda"))
        if modes != self.__dict__.setdefault("modes", modes):
            raise RuntimeError("the model turns gradients off, or autocast on")
        return super().create_node(*args, **kwargs)


def _trace(model: nn.Module) -> tuple[list[torch.fx.Node], torch.fx.Node | None]:
    """Return the steps of `model`, its input first, and the one that it returns, or None.

    They are noted on a copy, by its layers and by stand-ins for their parameters. `torch.fx.Tracer.trace`
    exchanges `nn.Module.__call__` for all threads: models that others call raise meanwhile, and of two traces
    at once one fails.
    """
    tracer = _Noting()
    tracer.root, tracer.graph = model, torch.fx.Graph()
    given = tracer.create_proxy("placeholder", "inputs", (), {})
    # What the model does with its parameters itself, a change in place or a branch, is a step too, or no trace at all.
    own = {id(p): tracer.create_proxy("get_attr", name, (), {}) for name, p in model.named_parameters()}

    def noting(name: str, module: nn.Module) -> nn.Module:
        noted = copy.copy(module)  # of the same class, which the model may ask for
        noted.forward = lambda *args, **kwargs: tracer.create_proxy("call_module", name, args, kwargs)
        noted._parameters = {key: own.get(id(p)) for key, p in module._parameters.items()}  # type: ignore[misc]
        return noted

    layers = {id(m): noting(name, m) for name, m in model.named_modules() if not list(m.children())}
    returned = copy.deepcopy(model, {**own, **layers})(given)
    steps = [node for node in tracer.graph.nodes if node.op != "get_attr"]
    return steps, returned.node if isinstance(returned, torch.fx.Proxy) else None


def _reads_rows(step: torch.fx.Node, given: torch.fx.Node) -> bool:
    """Return whether `step` is `given.shape`, `given.size()`, or the number of rows in it."""
    if step.target in (getattr, "size"):
        return step.args in ((given, "shape"), (given,), (given, 0))
    sizes = step.args[0] if step.target is operator.getitem else None
    return isinstance(sizes, torch.fx.Node) and _reads_rows(sizes, given) and step.args[1:] == (0,)


def _flattens(step: torch.fx.Node, module: nn.Module | None, given: torch.fx.Node) -> bool:
    """Return whether `step` makes one vector of each row."""
    if isinstance(module, nn.Flatten):
        return (module.start_dim, module.end_dim) == (1, -1)
    if step.target in (torch.flatten, "flatten"):
        return {**dict(zip(("start_dim", "end_dim"), step.args[1:], strict=False)), **step.kwargs} == {"start_dim": 1}
    if step.target not in ("view", "reshape") or step.kwargs or len(step.args) != 3:
        return False
    _, rows, numbers = step.args
    return isinstance(rows, torch.fx.Node) and _reads_rows(rows, given) and numbers is not None and bool(numbers == -1)


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
