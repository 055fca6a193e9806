"""`nn.LSTM` of many users at once, with the backward pass written out.

`torch.func.vmap` takes an LSTM apart into the operations of every time step, each with a gradient as large as the
recurrent weights. Here that is one product over all steps. The arithmetic is `nn.LSTM`'s (its gates in the order
i, f, g, o), to round-off. Every tensor below has an axis of users, and no operation mixes two users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

Tensors = tuple[torch.Tensor, ...]


def _forward(inputs: torch.Tensor, into: torch.Tensor, across: torch.Tensor, bias: torch.Tensor) -> Tensors:
    """Run a layer from zeros: `inputs` (steps, users, rows, in), weights (users, 4 hidden, in or hidden).

    Returns outputs (steps, users, rows, hidden), the last cell (users, rows, hidden), cells like outputs, and
    the activated gates (steps, users, rows, 4 hidden).
    """
    steps, users, rows, _ = inputs.shape
    hidden = across.shape[2]
    # A product of all steps at once, and then steps that lie one after another in memory: both are what BLAS likes.
    ahead = torch.baddbmm(bias.unsqueeze(1), _by_user(inputs), into.transpose(1, 2)).view(users, steps, rows, -1)
    gates = inputs.new_empty(steps, users, rows, 4 * hidden)
    outputs, cells = (inputs.new_empty(steps, users, rows, hidden) for _ in range(2))
    recurrent = across.transpose(1, 2).contiguous()
    for step in range(steps):
        now, cell = gates[step], cells[step]
        if step:
            torch.baddbmm(ahead[:, step], outputs[step - 1], recurrent, out=now)
        else:
            now.copy_(ahead[:, step])
        now[..., : 2 * hidden].sigmoid_()
        now[..., 2 * hidden : 3 * hidden].tanh_()
        now[..., 3 * hidden :].sigmoid_()
        i, f, g, o = now.chunk(4, -1)
        torch.mul(i, g, out=cell)
        if step:
            cell.addcmul_(f, cells[step - 1])
        torch.tanh(cell, out=outputs[step]).mul_(o)
    return outputs, cells[-1].clone(), cells, gates


def _backward(
    inputs: torch.Tensor,
    into: torch.Tensor,
    across: torch.Tensor,
    outputs: torch.Tensor,
    cells: torch.Tensor,
    gates: torch.Tensor,
    at_outputs: torch.Tensor,
    at_cell: torch.Tensor,
) -> Tensors:
    """Return the gradients at inputs, both weights and the bias, from those at the outputs and the last cell."""
    steps, users, rows, hidden = outputs.shape
    changes = torch.empty_like(gates)
    sigmoid_backward, tanh_backward = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward
    at_output = torch.zeros_like(outputs[0])
    for step in range(steps - 1, -1, -1):
        i, f, g, o = gates[step].chunk(4, -1)
        # Views: what is written into them are the gradients at the gates, before their sigmoid or tanh in the end.
        at_i, at_f, at_g, at_o = changes[step].chunk(4, -1)
        # From the last step back: what the loss asks of this step's output, and what later steps ask of it.
        at_output = at_output + at_outputs[step]
        squashed = torch.tanh(cells[step])
        at_cell = tanh_backward(at_output * o, squashed).add_(at_cell)
        torch.mul(at_output, squashed, out=at_o)
        torch.mul(at_cell, g, out=at_i)
        tanh_backward.grad_input(at_cell * i, g, grad_input=at_g)
        if step:
            torch.mul(at_cell, cells[step - 1], out=at_f)
        else:
            at_f.zero_()
        both = changes[step][..., : 2 * hidden]
        sigmoid_backward.grad_input(both, gates[step][..., : 2 * hidden], grad_input=both)
        sigmoid_backward.grad_input(at_o, o, grad_input=at_o)
        if step:
            # Back to the step before: through the cell by the forget gate, through the output by the recurrent weights.
            at_cell = at_cell.mul_(f)
            at_output = torch.bmm(changes[step], across)
    whole = _by_user(changes)
    at_inputs = torch.bmm(whole, into).view(users, steps, rows, -1).transpose(0, 1)
    # The gradients of the inputs' weights, the bias and the recurrent weights, side by side.
    seen = inputs.new_zeros(users, steps, rows, inputs.shape[3] + 1 + hidden)
    seen[..., : -hidden - 1] = inputs.transpose(0, 1)
    seen[..., -hidden - 1] = 1.0
    seen[:, 1:, :, -hidden:] = outputs[:-1].transpose(0, 1)
    at_weights = torch.bmm(whole.transpose(1, 2), seen.flatten(1, 2))
    return at_inputs, at_weights[..., : -hidden - 1], at_weights[..., -hidden:], at_weights[..., -hidden - 1]


def _by_user(values: torch.Tensor) -> torch.Tensor:
    """Return (steps, users, rows, n) as (users, steps x rows, n), copied."""
    steps, users, rows, count = values.shape
    return values.transpose(0, 1).reshape(users, steps * rows, count)


_WEIGHTS = {"forward": (1, 2, 3), "backward": (1, 2, 7)}
"""Places among the arguments that have users first: weights and the last cell. Sequences have steps first."""


def _mapped(name: str, info: Any, in_dims: tuple[int | None, ...], tensors: Tensors) -> tuple[Tensors, Tensors]:
    """Return one of the passes for the users of a `vmap`, who have an axis that may be anywhere, or nowhere."""
    weights, arranged = _WEIGHTS[name], []
    for place, (tensor, axis) in enumerate(zip(tensors, in_dims, strict=True)):
        wanted = 0 if place in weights else 1
        if axis is None:
            sizes = [*tensor.shape]
            sizes.insert(wanted, info.batch_size)
            arranged.append(tensor.unsqueeze(wanted).expand(sizes))
        else:
            arranged.append(tensor.movedim(axis, wanted))
    if name == "forward":
        return _forward(*arranged), (1, 0, 1, 1)  # type: ignore[return-value]
    return _backward(*arranged), (1, 0, 0, 0)  # type: ignore[return-value]


class _One:
    """A `vmap` of one user, for a layer that no `vmap` maps."""

    batch_size = 1


def _alone(name: str, tensors: Tensors) -> Tensors:
    results, axes = _mapped(name, _One, (None,) * len(tensors), tensors)
    return tuple(result.squeeze(axis) for result, axis in zip(results, axes, strict=True))  # type: ignore[call-overload]


class _Layer(torch.autograd.Function):
    """A layer for one user; under `vmap`, for many."""

    @staticmethod
    def forward(*tensors: torch.Tensor) -> Tensors:
        return _alone("forward", tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: Tensors, output: Tensors) -> None:
        outputs, _, cells, gates = output
        ctx.mark_non_differentiable(cells, gates)
        ctx.save_for_backward(*inputs[:3], outputs, cells, gates)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return _LayerBackward.apply(*ctx.saved_tensors, *gradients[:2])  # type: ignore[no-untyped-call]

    @staticmethod
    def vmap(info: object, in_dims: tuple[int | None, ...], *tensors: torch.Tensor) -> object:
        return _mapped("forward", info, in_dims, tensors)


class _LayerBackward(torch.autograd.Function):
    """The backward pass of `_Layer`."""

    @staticmethod
    def forward(*tensors: torch.Tensor) -> Tensors:
        return _alone("backward", tensors)

    @staticmethod
    def setup_context(ctx: object, inputs: Tensors, output: Tensors) -> None:
        pass

    @staticmethod
    def backward(ctx: object, *gradients: torch.Tensor) -> object:
        raise RuntimeError("an LSTM that is mapped over users has no second derivative")

    @staticmethod
    def vmap(info: object, in_dims: tuple[int | None, ...], *tensors: torch.Tensor) -> object:
        return _mapped("backward", info, in_dims, tensors)


RULES = {_Layer, _LayerBackward}  # their `vmap` mixes no users


def _run(module: nn.LSTM, whole: Callable[..., object], inputs: torch.Tensor, hx: object = None) -> object:
    """Return what `module` gives for `inputs` (rows, steps, in) or (steps, rows, in); `whole` gives the rest."""
    if hx is not None or not isinstance(inputs, torch.Tensor) or inputs.ndim != 3 or inputs.dtype != torch.float32:
        return whole(inputs, hx)
    values = inputs.transpose(0, 1) if module.batch_first else inputs
    states, cells = [], []
    for layer in range(module.num_layers):
        into, across = getattr(module, f"weight_ih_l{layer}"), getattr(module, f"weight_hh_l{layer}")
        if module.bias:
            bias = getattr(module, f"bias_ih_l{layer}") + getattr(module, f"bias_hh_l{layer}")
        else:
            bias = into.new_zeros(into.shape[0])
        values, cell, _, _ = _Layer.apply(values, into, across, bias)  # type: ignore[no-untyped-call]
        states.append(values[-1])
        cells.append(cell)
    outputs = values.transpose(0, 1) if module.batch_first else values
    return outputs, (torch.stack(states), torch.stack(cells))


@contextmanager
def mapped_recurrence(model: nn.Module) -> Iterator[None]:
    """Run the LSTMs of `model` as written above inside the block, if plain: one direction, no projection."""
    ours = [m for m in model.modules() if type(m) is nn.LSTM and not (m.bidirectional or m.proj_size or m.dropout)]
    ours = [module for module in ours if "forward" not in vars(module)]
    try:
        for module in ours:
            vars(module)["forward"] = lambda *args, _m=module, _w=module.forward, **kw: _run(_m, _w, *args, **kw)
        yield
    finally:
        for module in ours:
            vars(module).pop("forward", None)
