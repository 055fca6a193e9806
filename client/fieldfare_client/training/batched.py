"""The batched engine: all users of a chunk at once, for any `nn.Module` that needs no branch on values.

A stack of linear layers, written as a sequence or as a class, has its backward pass written out (`layers`): one
batched matrix product a layer, direction and step. Every parameter of all users is one contiguous block: only
then is such a product one call and not one a user. Without momentum, decay, proximal term and gradient clipping
the step is fused into the last of the products, and a wide first layer is not copied for every user
(`wide_input`). Only the loss is the task's code; it is mapped over users (`loss_gradient`).

Every other model is mapped over users whole: `torch.func.vmap` of `grad`, with LSTMs written out
(`recurrent`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from fieldfare.plan_tables import ClientSpec
from fieldfare.task import Task
from fieldfare_client.training.dropout import has_keyed, set_keys
from fieldfare_client.training.engines import (
    Batches,
    Chunk,
    Engine,
    Group,
    Train,
    is_plain,
    own_memory,
    spread,
    step_each,
)
from fieldfare_client.training.layers import Destination, Layer, Linear, Weights, backpropagate, layers_of
from fieldfare_client.training.local_model import Buffers
from fieldfare_client.training.loss_gradient import FEW, LONGEST, LossGradient, SealedLoss, reads
from fieldfare_client.training.recurrent import mapped_recurrence
from fieldfare_client.training.schedule import BatchSchedule, step_keys, steps_of
from fieldfare_client.training.wide_input import InputLayer, OwnInputLayer, pays

# Bytes of a cache line and of the widest vectors of a CPU, on which torch's own blocks of memory start.
ALIGNED = 64
# Weights of a first layer that is not copied for isolated users either: fewer cost less than products of their own.
WIDE = 50_000
SHORT = 16  # rows of a batch up to which sealed steps are mapped: longer ones gain little
# (step, the weights of the users who have a batch) -> their gradients; None where the step is taken already.
Gradients = Callable[[int, Weights], Sequence[torch.Tensor] | None]


class BatchedEngine(Engine):
    """For models and losses that do not branch on values; others fail in torch, with torch's message.

    Where a chunk says how many users may train at once (`Chunk.sizes`), slots without a user are filled with
    dummies. They and users who have taken their last step are trained on with the others, and what comes of
    it is left out.
    """

    layers: Sequence[Layer]  # whose backward pass is written out; empty where the model is mapped
    unwritten: str  # why the model is mapped; empty where its layers are written out

    def __init__(self, model: nn.Module, task: Task, client: ClientSpec) -> None:
        super().__init__(model, task, client)
        # Torch's hint to its own authors, every time that an operation is not batched: the engine is timed instead. Set
        # once and for good: `catch_warnings` would let the task's own warnings, shown once, appear again.
        warnings.filterwarnings("ignore", "There is a performance drop because we have not yet", UserWarning)
        found = layers_of(model, self.schema.names)
        self.layers, self.unwritten = ([], found) if isinstance(found, str) else (found.layers, "")
        self._flat = not isinstance(found, str) and found.flatten
        self._loss_gradient = LossGradient(task.loss)
        self._buffers, self._keyed = Buffers(model), has_keyed(model)
        self._mapped = vmap(grad(self._mean_loss))
        # Every place of a parameter and its name, each once: of a module with two names torch puts back one.
        names = {id(value): name for name, value in model.named_parameters()}
        self._places = {
            f"{of}.{own}".lstrip("."): names[id(value)]
            for of, module in model.named_modules()
            for own, value in module.named_parameters(recurse=False, remove_duplicate=False)
            if value.requires_grad
        }

    def seal(self, train: Train, sizes: Sequence[int] = (1,), longest: int = SHORT) -> int:
        """Do as `Engine.seal`; of a model that is written out the loss alone is recorded, for any number of users."""
        if not self.layers:
            self._longest = super().seal(train, sizes, longest)
            return self._longest
        self._loss_gradient = sealed = SealedLoss(self.task.loss, min(self.client.batch_size, LONGEST))
        train(1, 1)
        self.refuse_weights(found(FEW) for found in sealed.of_rows.values())
        return sealed.rows

    def keeps_weights(self, inputs: torch.Tensor, targets: torch.Tensor) -> bool:
        """Return whether model or loss reads weights of the model itself, in place of those of each user.

        So does a penalty on all parameters that the loss adds: mapped over users, its gradient would be
        missing.

        Args:
            inputs: of one made-up row, (1, ...).
            targets: likewise.
        """
        own = {name: value for name, value in self.model.named_parameters() if value.requires_grad}
        users, key = (
            {name: value.detach().clone() for name, value in own.items()},
            inputs.new_zeros((), dtype=torch.int64),
        )
        with torch.no_grad(), mapped_recurrence(self.model):
            return reads(lambda: self._mean_loss(users, inputs, targets, key), own.values())

    def gains(self, rows: int) -> bool:
        """Return whether users with `rows` rows gain by others: a short batch that is mapped costs a long one."""
        if isinstance(self._loss_gradient, SealedLoss):
            return min(rows, self.client.batch_size) <= self._loss_gradient.rows
        if self.recorded is not None and self.client.batch_size > self._longest:
            return False
        return bool(self.layers) or rows >= self.client.batch_size

    def is_wide(self, rows: int) -> bool:
        """Return whether an isolated user with `rows` rows trains without a copy of the first layer."""
        if not self.layers or not isinstance(first := self.layers[0], Linear) or not is_plain(self.client):
            return False
        outputs, inputs = self.schema.shapes[first.weight]
        used = int(steps_of(np.array([rows]), self.client)[0]) * self.client.batch_size >= rows
        return used and outputs * inputs >= WIDE and pays(rows, inputs, outputs)

    def updates(self, start: torch.Tensor, chunk: Chunk, out: torch.Tensor) -> None:
        batches, starts = Batches(chunk), list(self.schema.split(start).values())
        if self.layers:
            # Nothing here is differentiated but the task's loss, which turns this off: operations cost a sixth less.
            with torch.inference_mode():
                self._update_layers(starts, chunk, batches, out)
            return
        try:
            with mapped_recurrence(self.model):
                weights = [spread(value, batches.room) for value in starts]
                self._train(starts, weights, batches, out, self._map(chunk, batches))
            changed = self._buffers.changed()
        except BaseException:
            self._buffers.restore()
            raise
        if changed:
            self._buffers.restore()
            raise ValueError("training changes a buffer of the model, which the users of a batch share")

    def _train(
        self, starts: Weights, weights: Weights, batches: Batches, out: torch.Tensor, gradients_of: Gradients
    ) -> None:
        """Take all steps of a chunk, and write what they changed of `weights`, (users, *shape) each, to `out`.

        Rows of both may be longer than the schema's (`_aligned`). Without an axis of users they are not trained.
        """
        client, slices = self.client, self.schema.slices()
        own = [place for place, (weight, value) in enumerate(zip(weights, starts, strict=True)) if weight is not value]
        velocities = [torch.zeros_like(weight) for weight in weights] if client.momentum else None

        def write(first: int, last: int) -> None:
            for place in own:
                difference, end = out[first:last, slices[place]], (self.schema.shapes[place] or (None,))[-1]
                now = weights[place][first:last][..., :end]
                before = torch.atleast_1d(starts[place])[..., :end]  # type: ignore[no-untyped-call]
                torch.sub(now.reshape(difference.shape), before.flatten(), out=difference)

        trained = batches.training
        for step, active in enumerate(batches.active):
            if batches.fixed and active < trained:
                # They have taken their last step, and their slots may now be trained on.
                write(active, trained)
                trained = active
            slots = batches.slots[step]
            moving = weights
            if slots < batches.room:
                moving = [weight if weight is starts[at] else weight[:slots] for at, weight in enumerate(weights)]
            gradients = gradients_of(step, moving)
            if gradients is None:
                continue
            if is_plain(client):
                torch._foreach_sub_(moving, list(gradients), alpha=client.learning_rate)
                continue
            rolling = None if velocities is None else [velocity[:slots] for velocity in velocities]
            step_each(moving, own_memory(gradients), rolling, starts, client)
        write(0, trained)
        out[batches.training :] = 0.0

    # -- Models that are mapped over users.

    def _mean_loss(
        self, weights: dict[str, torch.Tensor], inputs: torch.Tensor, targets: torch.Tensor, key: torch.Tensor
    ) -> torch.Tensor:
        """Return the mean loss of one user's batch."""
        set_keys(self.model, key)
        own = {place: weights[name] for place, name in self._places.items()}
        outputs = functional_call(self.model, own, (inputs,), tie_weights=False)
        return self.task.loss(outputs, targets).mean()

    def _map(self, chunk: Chunk, batches: Batches) -> Gradients:
        """Return the gradients of a model that is mapped."""
        names, device = self.schema.names, chunk.inputs.device
        # Dropout alone reads them; without it, one copy to the device is enough for all steps.
        keys = torch.zeros(batches.room, dtype=torch.int64, device=device)

        def differentiate(*values: torch.Tensor) -> list[torch.Tensor]:
            mapped = self._mapped(dict(zip(names, values, strict=False)), *values[len(names) :])
            return [mapped[name] for name in names]

        def gradients_of(step: int, moving: Weights) -> list[torch.Tensor]:
            nonlocal keys
            if self._keyed:
                keys = torch.from_numpy(step_keys(batches.keys, step)).to(device)
            gradients: list[torch.Tensor] = []
            # Users with equally long batches are mapped together: model and loss never see padding, and may mix rows.
            for group in batches.groups[step]:
                users, rows = group.slots, batches.rows[step, group.slots, : group.count]
                local = [weight[users] for weight in moving]
                versions = [weight._version for weight in local]
                given = *local, _take(chunk.inputs, rows), _take(chunk.targets, rows), keys[users]
                mapped = self.gradient(differentiate, given, len(local[0]), group.count)
                # As an embedding with `max_norm` does. Some are copies: who else trains would decide whether it stays.
                if versions != [weight._version for weight in local]:
                    raise ValueError("the model changes its parameters where it reads them")
                # One group of everybody: its gradients are the step's, without a copy.
                if len(batches.groups[step]) == 1 and group.owners is users:
                    return mapped
                gradients = gradients or [torch.zeros_like(weight) for weight in moving]
                for ours, gradient in zip(mapped, gradients, strict=True):
                    gradient[group.owners] = ours[: group.real]
            return gradients

        return gradients_of

    # -- Stacks of linear layers.

    def _update_layers(self, starts: Weights, chunk: Chunk, batches: Batches, out: torch.Tensor) -> None:
        inputs, plain, client = chunk.inputs, is_plain(self.client), self.client
        if self._flat:
            inputs = inputs.flatten(1)
        if inputs.ndim < 2:
            raise ValueError("a row is one number, and no vector")
        # A linear layer also takes sequences: as many more rows of each user.
        inner, features = inputs.shape[1:-1], inputs.shape[-1]
        self._loss_gradient.begin()
        # The users are ordered so that those who train come first; the others' updates are set to 0 at the end.
        first, trained = self.layers[0], out[: batches.training]
        if batches.fixed and isinstance(first, Linear):
            inputs, starts[first.weight] = _aligned(inputs), _aligned(starts[first.weight])
            features = inputs.shape[-1]
        wide: InputLayer | OwnInputLayer | None = None
        places = batches.rows
        if plain and not inner and isinstance(first, Linear):
            if chunk.wide:
                bias, sizes = None if first.bias is None else starts[first.bias], chunk.schedule.sizes[: len(trained)]
                own, rate = inputs[: sizes.sum()], client.learning_rate
                wide = OwnInputLayer(own, sizes.tolist(), starts[first.weight], bias, rate)
                begins = torch.from_numpy(np.cumsum(sizes) - sizes).to(inputs.device)
                places = batches.rows[:, : len(trained)] - begins[:, None]
            elif chunk.sizes is None:
                wide, places = self._wide_input(first, starts, inputs, chunk.schedule, batches)
        # Where the first layer goes its own way, its weights are never copied.
        shared = {first.weight, first.bias} if wide is not None and isinstance(first, Linear) else set()
        weights = [value if at in shared else spread(value, batches.room) for at, value in enumerate(starts)]
        buffers = [] if plain else [torch.empty_like(weight) for weight in weights]

        def gradients_of(step: int, moving: Weights) -> list[torch.Tensor] | None:
            slots, groups = batches.slots[step], batches.groups[step]
            gradients = [buffer[:slots] for buffer in buffers]
            destination = Destination(moving if plain else gradients, client.learning_rate if plain else None)
            rows = batches.rows[step, :slots].flatten()
            targets = chunk.targets.index_select(0, rows).view(slots, batches.width, *chunk.targets.shape[1:])
            loss_gradient = partial(self._at_outputs, targets=targets, groups=groups, inner=inner, fixed=batches.fixed)
            if wide is None:
                values = inputs.index_select(0, rows).view(slots, -1, features)
                backpropagate(self.layers, moving, values, loss_gradient, destination)
            else:
                active = batches.active[step]
                values = wide.forward(places[step, :active])
                if slots > active:
                    values = nn.functional.pad(values, (0, 0, 0, 0, 0, slots - active))
                gradient = backpropagate(self.layers[1:], moving, values, loss_gradient, destination, below=True)
                wide.backward(places[step, :active], gradient[:active])
            return None if plain else gradients

        self._train(starts, weights, batches, out, gradients_of)
        if wide is not None and isinstance(first, Linear):
            slices = self.schema.slices()
            weight = trained[:, slices[first.weight]].view(-1, *self.schema.shapes[first.weight])
            wide.write(weight, None if first.bias is None else trained[:, slices[first.bias]])

    def _at_outputs(
        self, outputs: torch.Tensor, targets: torch.Tensor, groups: list[Group], inner: torch.Size, fixed: bool
    ) -> torch.Tensor:
        """Return the gradient of every user's mean loss at `outputs` (users, rows, out); 0 on padding.

        Users with equally long batches are mapped together. The loss never sees padding, because it may mix
        rows.
        """
        whole = outputs.view(*targets.shape[:2], *inner, outputs.shape[-1]) if inner else outputs
        if len(groups) == 1 and groups[0].covers(*targets.shape[:2]):  # no padding, and slices cost as much as a layer
            found = self._loss_gradient(whole, targets)
            return found.reshape(outputs.shape) if inner else found
        gradient = torch.zeros_like(whole)
        for group in groups:
            users, count = group.slots, group.count
            batch = whole[users, :count], targets[users, :count]
            # A slice is a view and a choice of users a copy: the loss may add in another order for each.
            found = self._loss_gradient(*(values.contiguous() if fixed else values for values in batch))
            gradient[group.owners, :count] = found[: group.real]
        return gradient.view(outputs.shape)

    def _wide_input(
        self, first: Linear, starts: list[torch.Tensor], inputs: torch.Tensor, schedule: BatchSchedule, batches: Batches
    ) -> tuple[InputLayer | None, torch.Tensor]:
        """Return the first layer in its own way, where that pays, else None; and every batch's rows in its inputs."""
        weight, bias = starts[first.weight], None if first.bias is None else starts[first.bias]
        users, rows, rate = batches.training, batches.rows, self.client.learning_rate
        sizes, used = schedule.sizes[:users], schedule.counts[:users].sum(1)
        if users and (sizes == sizes[0]).all() and (used >= sizes).all():
            # Each row is used, and users lie as far apart: their rows stay where they are, whatever the epochs.
            pay = pays(int(sizes[0]), weight.shape[1], weight.shape[0])
            return (InputLayer(inputs.reshape(users, int(sizes[0]), -1), weight, bias, rate) if pay else None), rows
        slots = len(batches.active) * batches.width
        if not pays(slots, weight.shape[1], weight.shape[0]):
            return None, rows
        ordered = inputs[rows[:, :users].transpose(0, 1).flatten(1)]
        in_order = torch.arange(users * slots, device=inputs.device).view(users, len(batches.active), -1)
        return InputLayer(ordered, weight, bias, rate), in_order.transpose(0, 1)


def _take(values: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return values[rows] for `rows` (users, count). `index_select` copies whole rows, brackets number by number."""
    return values.index_select(0, rows.flatten()).view(*rows.shape, *values.shape[1:])


def _aligned(values: torch.Tensor) -> torch.Tensor:
    """Append columns of 0 to `values` (..., columns), so that every row starts on `ALIGNED` bytes.

    Where a row starts within a vector decides the order in which some products add up, and with it bits: then
    a user's would depend on the slot.
    """
    missing = -values.shape[-1] % (ALIGNED // values.element_size())
    return nn.functional.pad(values, (0, missing)) if missing else values
