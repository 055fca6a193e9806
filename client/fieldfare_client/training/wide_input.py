"""A wide first layer trained by many users at once, without a copy of its weights for each.

With plain SGD a linear layer stays the broadcast one plus a sum of outer products: after some steps
W = W_0 - rate sum_i g_i x_i^T over the rows i used so far, g_i the loss gradient at the layer's output. So its outputs
need only inner products of inputs, which are known from the start: W x = W_0 x - rate sum_i g_i <x_i, x>.
"""

from __future__ import annotations

import torch


class InputLayer:
    """The first layer of a chunk of users during one round.

    Args:
        inputs: the rows of every user in the order of training, (users, rows, in).
        weight: the broadcast weights, (out, in).
        bias: the broadcast bias, (out,), or None.
        rate: the learning rate.
    """

    def __init__(self, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, rate: float) -> None:
        users, rows, _ = inputs.shape
        self._inputs, self._rate = inputs, rate
        self._outputs = (inputs.flatten(0, 1) @ weight.T).view(users, rows, -1)
        self._inner = torch.bmm(inputs, inputs.transpose(1, 2))
        if bias is not None:
            # A bias is a weight of the constant input 1, which adds 1 to every inner product.
            self._outputs += bias
            self._inner += 1.0
        self._gradients = torch.zeros_like(self._outputs)

    def forward(self, users: int, rows: slice) -> torch.Tensor:
        """Outputs of the first `users` users at `rows`, with the weights that all earlier rows have made."""
        outputs = self._outputs[:users, rows]
        if rows.start == 0:
            return outputs
        inner = self._inner[:users, rows, : rows.start]
        return torch.baddbmm(outputs, inner, self._gradients[:users, : rows.start], alpha=-self._rate)

    def backward(self, users: int, rows: slice, gradient: torch.Tensor) -> None:
        """Take one step: `gradient` (users, rows, out) is the loss gradient at what `forward` gave."""
        self._gradients[:users, rows] = gradient

    def write(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        """Write the updates of all users to `weight` (users, out, in) and `bias` (users, out)."""
        torch.baddbmm(weight, self._gradients.transpose(1, 2), self._inputs, beta=0, alpha=-self._rate, out=weight)
        if bias is not None:
            torch.mul(self._gradients.sum(1), -self._rate, out=bias)


def pays(rows: int, inputs: int, outputs: int) -> bool:
    """Whether inner products of `rows` rows a user cost less than `outputs` x `inputs` weights a user."""
    return 4 * rows <= inputs and rows <= 2 * outputs
