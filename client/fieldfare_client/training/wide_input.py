"""A wide first layer trained by many users at once, without a copy of its weights for each.

With plain SGD a linear layer stays the broadcast one plus a sum of outer products: after some steps W = W_0 -
rate sum_i g_i x_i^T over the rows i used so far, g_i the loss gradient at the layer's output. So its outputs
need only inner products of inputs, which are known from the start: W x = W_0 x - rate sum_i g_i <x_i, x>.
"""

from __future__ import annotations

import torch


class InputLayer:
    """The first layer of a chunk of users during one round.

    Args:
        inputs: rows of every user, (users, n, in). Those that are never used must be finite.
        weight: the broadcast weights, (out, in).
        bias: the broadcast bias, (out,), or None.
        rate: the learning rate.
        apart: make one product a user, so that its shape depends on nobody else.
    """

    def __init__(
        self,
        inputs: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        rate: float,
        *,
        apart: bool = False,
    ) -> None:
        users, rows, _ = inputs.shape
        self._inputs, self._rate, self._apart = inputs, rate, apart
        each = torch.bmm(inputs, weight.T.expand(users, -1, -1)) if apart else inputs.flatten(0, 1) @ weight.T
        self._outputs = each.view(users * rows, -1)
        inner = torch.bmm(inputs, inputs.transpose(1, 2))
        if bias is not None:
            # A bias is a weight of the constant input 1, which adds 1 to every inner product.
            self._outputs += bias
            inner += 1.0
        self._inner = inner.flatten(0, 1)
        self._gradients = self._outputs.new_zeros(users, rows, len(weight))
        """Of each row, summed over the batches so far that it was in."""
        self._stepped = False

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the outputs at `rows` (users, width), of the first users, with the weights that all earlier
        steps have made.

        A row is a place among the rows of all users, one user after another.
        """
        users, places = len(rows), rows.flatten()
        outputs = self._outputs.index_select(0, places).view(*rows.shape, -1)
        if not self._stepped:
            return outputs
        inner = self._inner.index_select(0, places).view(*rows.shape, -1)
        return torch.baddbmm(outputs, inner, self._gradients[:users], alpha=-self._rate)

    def backward(self, rows: torch.Tensor, gradient: torch.Tensor) -> None:
        """Take one step of the first users: `gradient` (users, width, out) is the loss gradient at what `forward`
        gave for their `rows`.
        """
        self._gradients.flatten(0, 1).index_add_(0, rows.flatten(), gradient.flatten(0, 1))
        self._stepped = True

    def write(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        """Write the updates of the first users to `weight` (users, out, in) and `bias` (users, out)."""
        users, _, inputs = weight.shape
        gradients = self._gradients.transpose(1, 2)
        if self._apart:  # every slot, in memory that starts alike for each
            torch.mul(torch.bmm(gradients, self._inputs)[:users, :, :inputs], -self._rate, out=weight)
        else:
            torch.baddbmm(weight, gradients, self._inputs, beta=0, alpha=-self._rate, out=weight)
        if bias is not None:
            torch.mul(self._gradients.sum(1)[:users], -self._rate, out=bias)


def pays(rows: int, inputs: int, outputs: int) -> bool:
    """Return whether inner products of `rows` rows a user cost less than `outputs` x `inputs` weights a user."""
    return 4 * rows <= inputs and rows <= 2 * outputs
