"""Rows of users: the dtypes in which they are trained, chunks of them, and the sum of updates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from fieldfare.errors import WrongForm
from fieldfare.task import Task
from fieldfare_client.own_randomness import own_randomness, reseed
from fieldfare_client.task_faults import show_dtype

_WIDER = {torch.int8: torch.int64, torch.int16: torch.int64, torch.int32: torch.int64, torch.float64: torch.float32}


def standard_dtypes(rows: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (inputs, targets) as models and losses of torch take them: float64 as float32, short signed
    integers as int64.

    numpy and pandas make float64, and int32 on some machines. uint8 and booleans stay: they are pixels and
    masks.
    """
    inputs, targets = rows
    return _standard(inputs), _standard(targets)


def _standard(values: torch.Tensor) -> torch.Tensor:
    wider = _WIDER.get(values.dtype)
    return values if wider is None else values.to(wider)


def prepares_nothing(task: Task) -> bool:
    """Return whether `task` takes its columns as they are: for all users at once as for one."""
    return getattr(task.prepare, "__func__", None) is Task.prepare


def prepare_each(
    task: Task, batches: Sequence[Mapping[str, torch.Tensor]], keys: Sequence[int]
) -> list[tuple[torch.Tensor, ...]]:
    """Return (inputs, targets) of each user's columns, prepared alone, with the user's key as seed.

    What `prepare` may write to again for the next user is copied. Raises `WrongForm` where it drops or adds
    rows, or gives users several dtypes: joined, all would have the widest, so that one user moves the others.
    """
    parts: list[tuple[torch.Tensor, ...]] = []
    with own_randomness(0):
        for columns, key in zip(batches, keys, strict=True):
            reseed(key)
            own = [column.untyped_storage().data_ptr() for column in columns.values()]
            inputs, targets = standard_dtypes(task.prepare(columns))
            size = len(next(iter(columns.values())))
            if inputs.shape[0] != size or targets.shape[0] != size:
                # Else every later user would train on the rows of the one before.
                raise WrongForm(f"run.task = {task.name!r}", "its prepare() drops or adds rows.")
            parts.append(tuple(v if v.untyped_storage().data_ptr() in own else v.clone() for v in (inputs, targets)))
            if any(one.dtype != first.dtype for one, first in zip(parts[-1], parts[0], strict=True)):
                raise WrongForm(f"run.task = {task.name!r}", "its prepare() gives users rows of several dtypes.")
    return parts


def join(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return `torch.cat(parts)`; without a copy where they are adjacent in memory, as `prepare` often leaves them."""
    first = parts[0]
    place, memory = first.data_ptr(), first.untyped_storage().data_ptr()
    for part in parts:
        alike = part.dtype == first.dtype and part.shape[1:] == first.shape[1:] and part.is_contiguous()
        # An empty part has no place.
        apart = part.numel() and part.data_ptr() != place
        if not alike or apart or part.untyped_storage().data_ptr() != memory:
            return torch.cat(list(parts))
        place += part.nbytes
    # Of a single row, the first stride says nothing.
    strides = math.prod(first.shape[1:]), *first.stride()[1:]
    return first.as_strided((sum(len(part) for part in parts), *first.shape[1:]), strides)


def describe_conversion(name: str, before: torch.dtype, after: torch.dtype) -> str:
    """Return one line for a person; empty where nothing is converted."""
    return "" if before == after else f"{name} are {show_dtype(before)} and are trained as {show_dtype(after)}"


def add_rows_(total: torch.Tensor, rows: torch.Tensor) -> None:
    """Add the sum of `rows`, float32 (users, d), to `total` in float64, one after another, in place."""
    if total.device.type != "cpu":
        total += rows.sum(dim=0, dtype=torch.float64)
        return
    # numpy widens a few thousand numbers at a time; torch would first make a float64 copy of all rows.
    sums, values = total.numpy(), rows.numpy()
    if sums.size > 1 and not sums.any():  # the first rows, in the same order; of one column numpy would add up pairs
        np.add.reduce(values, axis=0, dtype=np.float64, initial=0.0, out=sums)
        return
    for row in values:
        np.add(sums, row, out=sums)
