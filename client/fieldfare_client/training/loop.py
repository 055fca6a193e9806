"""The plain engine: one user after another, as lean as sequential PyTorch gets."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import torch

from fieldfare.plan_tables import ClientSpec
from fieldfare.task import Task
from fieldfare_client.forked import has_own_python
from fieldfare_client.own_randomness import own_randomness, reseed
from fieldfare_client.training.dropout import has_keyed, set_keys
from fieldfare_client.training.engines import Chunk, Engine, is_plain, own_memory
from fieldfare_client.training.local_model import Buffers
from fieldfare_client.training.schedule import step_keys

GATHER_BYTES = 2**16
"""Of the batches whose rows are copied out at once, at least one: more would push the model out of the cache."""


class LoopEngine(Engine):
    """For every model, in its own dtype. Three copies of it: weights, gradient, and velocity where there is
    momentum.

    A user starts from the broadcast point, the initial buffers and generators seeded by (user, round), so an
    update is a function of that user's data alone; of what a task's Python keeps elsewhere,
    `fieldfare_client.forked` takes care.
    """

    def __init__(self, model: torch.nn.Module, task: Task, client: ClientSpec) -> None:
        super().__init__(model, task, client)
        self._keyed, self._buffers, self._plain = has_keyed(model), Buffers(model), is_plain(client)
        self._own_python = has_own_python(task)

    def updates(self, start: torch.Tensor, chunk: Chunk, out: torch.Tensor) -> None:
        named = dict(self.model.named_parameters())
        weights: list[torch.Tensor] = [named[name] for name in self.schema.names]
        # In the model's own dtype: an update is the difference from what was loaded, not from the float32 point.
        broadcast = self.schema.split(start).values()
        starts = [value.to(weight.dtype) for value, weight in zip(broadcast, weights, strict=True)]
        devices = [start.device] if start.device.type == "cuda" else []
        try:
            with torch.random.fork_rng(devices), own_randomness(0) if self._own_python else nullcontext():
                self._train_all(weights, starts, chunk, out)
        finally:
            self._buffers.restore()

    def gather(self, inputs: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Copy `rows` (n,) of the inputs of a chunk, as the model receives them."""
        # `index_select` copies whole rows, where brackets copy number by number.
        return inputs.index_select(0, rows)

    def _train_all(
        self, weights: list[torch.Tensor], starts: list[torch.Tensor], chunk: Chunk, out: torch.Tensor
    ) -> None:
        rows = torch.from_numpy(chunk.schedule.rows).to(out.device)
        keys = chunk.schedule.keys.view(np.int64).tolist()
        width = rows.shape[2]
        row_bytes = chunk.inputs[:1].numel() * chunk.inputs.element_size()
        together = max(1, GATHER_BYTES // max(1, width * row_bytes))

        def differentiate(*values: torch.Tensor) -> list[torch.Tensor]:
            inputs, targets, *keys = values[len(weights) :]
            for key in keys:
                set_keys(self.model, key)
            with torch.enable_grad():
                losses = self.task.loss(self.model(inputs), targets)
                # The gradient of their mean, without the mean: its two passes cost as much as a small layer.
                shares = torch.full_like(losses, 1.0 / max(1, losses.numel()))
                return list(torch.autograd.grad(losses, weights, shares, materialize_grads=True))

        for user, counts in enumerate(chunk.schedule.counts.tolist()):
            own_rows = rows[user].view(-1)
            with torch.no_grad():
                torch._foreach_copy_(weights, starts)
            self._buffers.restore()
            # For randomness that no key reaches: dropout in a function or inside of an LSTM.
            (reseed if self._own_python else torch.default_generator.manual_seed)(keys[user])
            if out.device.type == "cuda":
                torch.cuda.manual_seed(keys[user])
            velocity = [torch.zeros_like(weight) for weight in weights] if self.client.momentum else None
            batches = sum(count > 0 for count in counts)
            for first in range(0, batches, together):
                last = min(first + together, batches)
                # One gather for several batches, and views of it: indexing costs as much as a small layer does.
                gathered = own_rows[first * width : last * width]
                inputs, targets = self.gather(chunk.inputs, gathered), chunk.targets.index_select(0, gathered)
                for step, count in enumerate(counts[first:last]):
                    batch = slice(step * width, step * width + count)
                    given = [inputs[batch], targets[batch]]
                    if self._keyed:
                        key = step_keys(chunk.schedule.keys[user : user + 1], first + step)
                        given.append(torch.from_numpy(key)[0].to(out.device))
                    self._step(weights, starts, velocity, self.gradient(differentiate, [*weights, *given], 1, count))
            with torch.no_grad():
                for target, weight, loaded in zip(self.schema.split(out[user]).values(), weights, starts, strict=True):
                    if weight.dtype == out.dtype:
                        torch.sub(weight, loaded, out=target)  # one pass over memory, where a copy would be another
                    else:
                        target.copy_(weight.double() - loaded.double())

    def _step(
        self,
        weights: list[torch.Tensor],
        starts: list[torch.Tensor],
        velocity: list[torch.Tensor] | None,
        gradient: list[torch.Tensor],
    ) -> None:
        """Take one step, in place."""
        client = self.client
        if not self._plain:
            gradient = own_memory(gradient)
        with torch.no_grad():
            if client.gradient_clip is not None:
                norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradient)))
                torch._foreach_mul_(gradient, (client.gradient_clip / norm).clamp_(max=1.0))
            if client.weight_decay:
                torch._foreach_add_(gradient, weights, alpha=client.weight_decay)
            if client.proximal:
                torch._foreach_add_(gradient, weights, alpha=client.proximal)
                torch._foreach_sub_(gradient, starts, alpha=client.proximal)
            if velocity is not None:
                torch._foreach_mul_(velocity, client.momentum)
                torch._foreach_add_(velocity, gradient)
                gradient = velocity
            torch._foreach_sub_(weights, gradient, alpha=client.learning_rate)
