"""What a task measures of users on a model before they train: the metrics that ride beside their updates.

A user's number is the mean of the measure over the user's own first rows, cut to its bounds and centred; no
other user's rows decide it. Users are measured together, each row in a batch of its own (`torch.func.vmap`),
unless presence is secret, or the model or the measure cannot be mapped: then one user after another. A user
without rows, or whose measure fails or is not finite, contributes zero, which is the middle of the range.

Where the model is a stack of linear layers, `correct` needs no Python of the task. Its rows are one batch, or one
a user where presence is secret; the comparison and the mean, which round nothing, are done for all at once.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from fieldfare.arrays import Floats
from fieldfare.metrics import MetricsSpec
from fieldfare.schema import Schema
from fieldfare.task import Task
from fieldfare_client.own_randomness import own_randomness, python_generators
from fieldfare_client.training.layers import Stack, layers_of
from fieldfare_client.training.local_model import Buffers
from fieldfare_client.training.rows import prepare_each, prepares_nothing, standard_dtypes
from fieldfare_client.users import UserTable

log = logging.getLogger("fieldfare.client")

_TOGETHER = 1 << 14  # rows that are measured at once


class Measures:
    """Measures users of one task by what the plan lists.

    Args:
        task: its `measure` gives the numbers of rows.
        spec: the plan's `[metrics]`.
        device: where the model is evaluated.
        isolated: measure every user alone, so that no bit depends on who else there is.

    Raises:
        BadInput: the task has no such measure.
    """

    def __init__(self, task: Task, spec: MetricsSpec, device: torch.device, *, isolated: bool) -> None:
        spec.require(task.name, task.measures)
        self._task, self._spec, self._device = task, spec, device
        self._model = task.build_model().to(device).eval()
        self._buffers, self._schema = Buffers(self._model), Schema.of(self._model)
        named = dict(self._model.named_parameters())
        self._trained: list[torch.Tensor] = [named[name] for name in self._schema.names]
        self._sent: list[torch.Tensor] = []
        self._loaded = False  # whether the model has the parameters that were sent
        stack = layers_of(self._model, self._schema.names)
        usual = spec.names == ("correct",) and getattr(task.measure, "__func__", None) is Task.measure
        self._stack = stack if isinstance(stack, Stack) and usual else None
        self._alone = isolated
        self.none = (0.0,) * len(spec.names)  # the sums over nobody

    @property
    def without_task(self) -> bool:
        """Whether no Python of the task sees a user."""
        return self._stack is not None and prepares_nothing(self._task)

    def __call__(
        self,
        point: torch.Tensor,
        table: UserTable,
        users: NDArray[np.int64],
        ready: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> tuple[float, ...]:
        """Return the sums over `users` of each metric in [-1, 1], in the order of `MetricsSpec.names`.

        Args:
            point: the model's trained parameters, flat float32 (d,).
            users: indices into `table`.
            ready: the inputs and targets of all rows of `users`, in their order, where they are prepared.
        """
        self._sent, self._loaded = list(self._schema.split(point).values()), False
        whole = table.sizes_of(users)
        sizes = np.minimum(whole, self._spec.most_rows)
        means = np.full((len(users), len(self._spec.names)), np.nan)
        filled = np.flatnonzero(sizes)
        found = None
        if ready is not None and len(filled) and (self._stack or not self._alone):
            inputs, targets = ready
            if not np.array_equal(sizes, whole):
                measured = np.arange(whole.sum()) - np.repeat(np.cumsum(whole) - whole, whole) < self._spec.most_rows
                kept = torch.from_numpy(np.flatnonzero(measured)).to(inputs.device)
                inputs, targets = inputs[kept], targets[kept]
            with contextlib.suppress(Exception):  # of one user's data, or of all: below is found out of whom
                found = self._by_row(inputs, targets, sizes[filled])
        if len(filled):
            means[filled] = self._of(table, users[filled], sizes[filled]) if found is None else found
        return tuple(self._spec.centred(means).sum(axis=0).tolist())

    def _of(self, table: UserTable, users: NDArray[np.int64], sizes: NDArray[np.int64]) -> Floats:
        """Return the means of `users` over their first rows, as many as `sizes` says, shape (users, k)."""
        rows = table.rows(users, self._device)
        starts = np.cumsum(rows.sizes) - rows.sizes
        batches = [
            {name: column[start : start + size] for name, column in rows.columns.items()}
            for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
        ]
        keys = rows.users.tolist()
        if len(batches) > 1 and not self._alone:
            with contextlib.suppress(Exception):  # as above
                return self._together(batches, sizes, keys)
        found = np.stack([self._one(batch, key) for batch, key in zip(batches, keys, strict=True)])
        failing: NDArray[np.bool_] = np.asarray(np.isnan(found).all(axis=1))
        if len(batches) > 1 and not self._alone and not failing.all():
            # In the same shape as without a failure, so that it moves no bit of the others' numbers.
            other = batches[int(np.argmin(failing))]
            for place in np.flatnonzero(failing).tolist():
                size = int(sizes[place])
                batches[place] = {name: column[:1].expand(size, *column.shape[1:]) for name, column in other.items()}
            try:
                found = np.where(failing[:, None], np.nan, self._together(batches, sizes, keys))
            except Exception as error:
                log.info("users are measured one after another (%s)", type(error).__name__)
                self._alone = True
        return found

    def _together(
        self, batches: list[dict[str, torch.Tensor]], sizes: NDArray[np.int64], keys: Sequence[int]
    ) -> Floats:
        prepared = prepare_each(self._task, list(map(_copied, batches)), keys)
        inputs, targets = (torch.cat(part) for part in zip(*prepared, strict=True))
        return self._by_row(inputs, targets, sizes)

    def _by_row(self, inputs: torch.Tensor, targets: torch.Tensor, sizes: NDArray[np.int64]) -> Floats:
        """Return the means of users whose rows follow each other and see no other row, shape (users, k)."""
        if len(inputs) != sizes.sum():
            raise ValueError("prepare() drops or adds rows")
        with torch.no_grad():
            if self._stack is not None and targets.ndim == 1:
                each = self._correct(self._stack, inputs, targets, sizes)[:, None]
            elif self._alone:
                raise ValueError("users are measured one after another")
            else:
                self._load()
                drawn = python_generators()
                copies = inputs[:, None].clone(), targets[:, None].clone()  # a model may change what it is given
                each = torch.func.vmap(self._measure, chunk_size=_TOGETHER)(*copies)
                if python_generators() != drawn:
                    raise ValueError("the measure draws numbers from numpy or random for several users at once")
        sums = np.add.reduceat(each.cpu().numpy(), np.cumsum(sizes) - sizes, axis=0, dtype=np.float64)
        means: Floats = sums / sizes[:, None]
        return means

    def _correct(
        self, stack: Stack, inputs: torch.Tensor, targets: torch.Tensor, sizes: NDArray[np.int64]
    ) -> torch.Tensor:
        """Return whether each row is correct, shape (rows,)."""
        if inputs.is_floating_point():
            inputs = inputs.to(self._sent[0].dtype)
        # Alone, a user's rows begin where memory is aligned, as any other's do.
        pieces = torch.split(inputs, sizes.tolist() if self._alone else _TOGETHER)
        weights, found = [weight[None] for weight in self._sent], []
        for piece in map(torch.clone, pieces) if self._alone else pieces:
            value = (piece.flatten(1) if stack.flatten else piece)[None]
            for layer in stack.layers:
                value = layer.forward(weights, value)
            found.append(value[0])
        outputs = found[0] if len(found) == 1 else torch.cat(found)
        return Task.measure(self._task, "correct", outputs, targets)

    def _load(self) -> None:
        """Give the model the parameters that were sent, and the buffers that it began with."""
        if not self._loaded:
            with torch.no_grad():
                torch._foreach_copy_(self._trained, self._sent)
            self._loaded = True
        self._buffers.restore()

    def _one(self, batch: Mapping[str, torch.Tensor], key: int) -> Floats:
        try:
            with own_randomness(key), torch.no_grad():
                inputs, targets = standard_dtypes(self._task.prepare(_copied(batch)))
                if self._stack is not None and targets.ndim == 1:
                    found: Floats = self._by_row(inputs, targets, np.array([len(inputs)]))[0]  # as with others
                    return found
                self._load()
                found = self._measure(inputs, targets).double().cpu().numpy()
        except Exception as error:  # any: it is the task's code and the user's data, and the text may quote it
            log.debug("a user's metrics are not known (%s)", type(error).__name__)
            return np.full(len(self._spec.names), np.nan)
        return found

    def _measure(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean of each measure over one user's rows, shape (k,)."""
        floating = next((value.dtype for value in self._model.parameters() if value.is_floating_point()), None)
        if floating is not None and inputs.is_floating_point():
            inputs = inputs.to(floating)
        outputs = self._model(inputs)
        return torch.stack([self._task.measure(name, outputs, targets).double().mean() for name in self._spec.names])


def _copied(batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return a copy for one call of `prepare`, which may change it: after another's failure there is a second call."""
    return {name: column.clone() for name, column in batch.items()}
