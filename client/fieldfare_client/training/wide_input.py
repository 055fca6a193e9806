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
    """

    def __init__(self, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, rate: float) -> None:
        users, rows, _ = inputs.shape
        self._inputs, self._rate = inputs, rate
        self._outputs = inputs.flatten(0, 1) @ weight.T
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
        """Return the outputs at `rows` (users, width), of the first users, with the weights of all earlier steps.

        A row is a place among the rows of all users, one user after another.
        """
        users, places = len(rows), rows.flatten()
        outputs = self._outputs.index_select(0, places).view(*rows.shape, -1)
        if not self._stepped:
            return outputs
        inner = self._inner.index_select(0, places).view(*rows.shape, -1)
        return torch.baddbmm(outputs, inner, self._gradients[:users], alpha=-self._rate)

    def backward(self, rows: torch.Tensor, gradient: torch.Tensor) -> None:
        """Take one step: `gradient` (users, width, out) is the loss gradient at what `forward` gave for `rows`."""
        self._gradients.flatten(0, 1).index_add_(0, rows.flatten(), gradient.flatten(0, 1))
        self._stepped = True

    def write(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        """Write the updates of all users to `weight` (users, out, in) and `bias` (users, out)."""
        # beta = 0: what `weight` holds is not read, and may be anything.
        torch.baddbmm(weight, self._gradients.transpose(1, 2), self._inputs, beta=0, alpha=-self._rate, out=weight)
        if bias is not None:
            torch.mul(self._gradients.sum(1), -self._rate, out=bias)


class OwnInputLayer:
    """Does as `InputLayer` where no bit of a user may depend on the others: each has products of its own, in shapes
    that follow from its own rows, in memory that starts alike for each.

    Args:
        inputs: rows of one user after another, (rows, in), each of whole vectors of the CPU.
        sizes: how many rows each user has.
        weight: as in `InputLayer`, and so on.
    """

    def __init__(
        self, inputs: torch.Tensor, sizes: list[int], weight: torch.Tensor, bias: torch.Tensor | None, rate: float
    ) -> None:
        self._inputs, self._rate, self._stepped = torch.split(inputs, sizes), rate, False
        self._outputs = [torch.mm(own, weight.T) for own in self._inputs]
        self._inner = [torch.mm(own, own.T) for own in self._inputs]
        if bias is not None:
            for outputs, inner in zip(self._outputs, self._inner, strict=True):
                outputs += bias
                inner += 1.0
        self._gradients = [torch.zeros_like(outputs) for outputs in self._outputs]

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Do as `InputLayer.forward`; a row is a place among those of its user."""
        values = rows.new_empty((*rows.shape, self._outputs[0].shape[1]), dtype=self._outputs[0].dtype)
        for user, places in enumerate(rows):
            outputs = self._outputs[user].index_select(0, places)
            if self._stepped:
                inner = self._inner[user].index_select(0, places)
                outputs = torch.addmm(outputs, inner, self._gradients[user], alpha=-self._rate)
            values[user] = outputs
        return values

    def backward(self, rows: torch.Tensor, gradient: torch.Tensor) -> None:
        """Do as `InputLayer.backward`."""
        for user, places in enumerate(rows):
            self._gradients[user].index_add_(0, places, gradient[user])
        self._stepped = True

    def write(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        """Do as `InputLayer.write`; `weight` may have fewer columns than `inputs`."""
        for user, (gradients, own) in enumerate(zip(self._gradients, self._inputs, strict=True)):
            torch.mul(torch.mm(gradients.T, own)[:, : weight.shape[2]], -self._rate, out=weight[user])
            if bias is not None:
                torch.mul(gradients.sum(0), -self._rate, out=bias[user])


def pays(rows: int, inputs: int, outputs: int) -> bool:
    """Return whether inner products of `rows` rows a user cost less than `outputs` x `inputs` weights a user."""
    return 4 * rows <= inputs and rows <= 2 * outputs
