"""What a task measures of users on a model, before they train on it: the metrics that ride beside their
updates.

A user's number is the mean of the measure over the user's own first rows, cut to its bounds and centred; no
other user's rows decide it. Users are measured together, each row in a batch of its own (`torch.func.vmap`),
unless presence is secret, or the model or the measure cannot be mapped: then one user after another. A user
without rows, or whose measure fails or is not finite, contributes zero, which is the middle of the range.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from fieldfare.arrays import Floats
from fieldfare.metrics import MetricsSpec
from fieldfare.schema import Schema
from fieldfare.task import Task
from fieldfare_client.training.local_model import Buffers
from fieldfare_client.training.rows import standard_dtypes
from fieldfare_client.users import UserTable

log = logging.getLogger("fieldfare.client")

_TOGETHER = 1 << 14
"""Rows that are measured at once."""


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
        self._alone = isolated
        self.none = (0.0,) * len(spec.names)
        """The sums over nobody."""

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
            ready: the inputs and targets of all rows of `users`, in their order, where they are prepared
                already.
        """
        named = self._schema.split(point)
        with torch.no_grad():
            for name, parameter in self._model.named_parameters():
                if parameter.requires_grad:
                    parameter.copy_(named[name])
        whole = table.sizes_of(users)
        sizes = np.minimum(whole, self._spec.most_rows)
        means = np.full((len(users), len(self._spec.names)), np.nan)
        filled = np.flatnonzero(sizes)
        found = None
        if ready is not None and len(filled) and not self._alone:
            measured = np.arange(whole.sum()) - np.repeat(np.cumsum(whole) - whole, whole) < self._spec.most_rows
            kept = slice(None) if measured.all() else torch.from_numpy(measured).to(ready[0].device)
            with contextlib.suppress(Exception):  # of one user's data, or of all: below is found out of whom
                found = self._by_row(ready[0][kept], ready[1][kept], sizes[filled])
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
        if len(batches) > 1 and not self._alone:
            with contextlib.suppress(Exception):  # as above
                return self._together(batches, sizes)
        found = np.stack([self._one(batch) for batch in batches])
        failing: NDArray[np.bool_] = np.asarray(np.isnan(found).all(axis=1))
        if len(batches) > 1 and not self._alone and not failing.all():
            # In the same shape as without a failure, so that it moves no bit of the others' numbers.
            other = batches[int(np.argmin(failing))]
            for place in np.flatnonzero(failing).tolist():
                size = int(sizes[place])
                batches[place] = {name: column[:1].expand(size, *column.shape[1:]) for name, column in other.items()}
            try:
                found = np.where(failing[:, None], np.nan, self._together(batches, sizes))
            except Exception as error:
                log.info("users are measured one after another (%s)", type(error).__name__)
                self._alone = True
        return found

    def _together(self, batches: list[dict[str, torch.Tensor]], sizes: NDArray[np.int64]) -> Floats:
        prepared = [standard_dtypes(self._task.prepare(batch)) for batch in batches]
        inputs, targets = (torch.cat(part) for part in zip(*prepared, strict=True))
        return self._by_row(inputs, targets, sizes)

    def _by_row(self, inputs: torch.Tensor, targets: torch.Tensor, sizes: NDArray[np.int64]) -> Floats:
        """Return the means of users whose rows follow each other, each row a batch of its own, shape (users, k)."""
        if len(inputs) != sizes.sum():
            raise ValueError("prepare() drops or adds rows")
        self._buffers.restore()
        with torch.no_grad():
            each = torch.func.vmap(self._measure, chunk_size=_TOGETHER)(inputs[:, None], targets[:, None])
        sums = np.add.reduceat(each.double().cpu().numpy(), np.cumsum(sizes) - sizes, axis=0)
        means: Floats = sums / sizes[:, None]
        return means

    def _one(self, batch: Mapping[str, torch.Tensor]) -> Floats:
        self._buffers.restore()
        try:
            with torch.no_grad():
                found: Floats = self._measure(*standard_dtypes(self._task.prepare(batch))).double().cpu().numpy()
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
