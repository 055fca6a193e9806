"""The batched engine for every other model: `torch.func.vmap` of `grad` over the users of a chunk."""

from __future__ import annotations

import warnings

import torch
from torch.func import functional_call, grad, vmap

from fieldfare.plan_tables import ClientSpec
from fieldfare.task import Task
from fieldfare_client.training.dropout import set_keys
from fieldfare_client.training.engines import Batches, Chunk, Engine, is_plain, own_memory, spread, step_each
from fieldfare_client.training.local_model import Buffers
from fieldfare_client.training.recurrent import mapped_recurrence
from fieldfare_client.training.schedule import step_keys


class VmapEngine(Engine):
    """For models and losses that do not branch on values; others fail in torch, with torch's message."""

    def __init__(self, model: torch.nn.Module, task: Task, client: ClientSpec) -> None:
        super().__init__(model, task, client)
        # Torch's hint to its own authors, every time that an operation is not batched: the engine is timed instead.
        # Set once and for good: `catch_warnings` would let the task's own warnings, shown once, appear again.
        warnings.filterwarnings("ignore", "There is a performance drop because we have not yet", UserWarning)
        self._buffers = Buffers(model)
        self._gradients = vmap(grad(self._mean_loss))

    def _mean_loss(
        self, weights: dict[str, torch.Tensor], inputs: torch.Tensor, targets: torch.Tensor, key: torch.Tensor
    ) -> torch.Tensor:
        """The mean loss of one user's batch."""
        set_keys(self.model, key)
        outputs = functional_call(self.model, weights, (inputs,))
        return self.task.loss(outputs, targets).mean()

    def updates(self, start: torch.Tensor, chunk: Chunk, out: torch.Tensor) -> None:
        try:
            with mapped_recurrence(self.model):
                self._train(start, chunk, out)
            changed = self._buffers.changed()
        except BaseException:
            self._buffers.restore()
            raise
        if changed:
            self._buffers.restore()
            raise ValueError("training changes a buffer of the model, which the users of a batch share")

    def _train(self, start: torch.Tensor, chunk: Chunk, out: torch.Tensor) -> None:
        client, batches = self.client, Batches(chunk)
        starts = self.schema.split(start)
        weights = {name: spread(value, batches.training) for name, value in starts.items()}
        velocities = [torch.zeros_like(weight) for weight in weights.values()] if client.momentum else None
        for step, active in enumerate(batches.active):
            moving = {name: weight[:active] for name, weight in weights.items()}
            keys = torch.from_numpy(step_keys(chunk.schedule.keys[:active], step)).to(start.device)
            gradients: list[torch.Tensor] = []
            # Users with equally long batches are mapped together: model and loss never see padding, and may mix rows.
            for users, count in batches.groups[step]:
                rows = batches.rows[step, users, :count]
                local = {name: weight[users] for name, weight in moving.items()}
                mapped = self._gradients(local, chunk.inputs[rows], chunk.targets[rows], keys[users])
                if len(batches.groups[step]) == 1:
                    gradients = [mapped[name] for name in moving]
                    break
                gradients = gradients or [torch.empty_like(weight) for weight in moving.values()]
                for name, gradient in zip(moving, gradients, strict=True):
                    gradient[users] = mapped[name]
            if is_plain(client):
                torch._foreach_sub_(list(moving.values()), gradients, alpha=client.learning_rate)
                continue
            rolling = None if velocities is None else [velocity[:active] for velocity in velocities]
            step_each(list(moving.values()), own_memory(gradients), rolling, list(starts.values()), client)
        for name, columns in zip(self.schema.names, self.schema.slices(), strict=True):
            torch.sub(weights[name].flatten(1), starts[name].flatten(), out=out[: batches.training, columns])
        out[batches.training :] = 0.0
