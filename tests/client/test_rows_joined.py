"""Rows of users that lie one after another in memory are joined without a copy, others as `torch.cat` joins them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
import torch
from test_training_engines import Toy, clip, start

from fieldfare.plan_tables import ClientSpec
from fieldfare_client.training.rows import add_rows_, join
from fieldfare_client.training.trainer import Trainer

WHOLE = torch.arange(60.0).reshape(10, 3, 2)
Parts = Sequence[torch.Tensor]


@pytest.mark.parametrize(
    "parts",
    [
        [WHOLE],
        [WHOLE[:4], WHOLE[4:]],
        [WHOLE[2:3], WHOLE[3:7], WHOLE[7:9]],
        [WHOLE[2:3].as_strided((1, 3, 2), (1, 2, 1)), WHOLE[3:7]],
    ],
    ids=["one", "two", "three", "a single row's stride"],
)
def test_adjacent_parts_are_not_copied(parts: Parts) -> None:
    joined = join(parts)
    assert torch.equal(joined, torch.cat(list(parts)))
    assert joined.data_ptr() == parts[0].data_ptr()


@pytest.mark.parametrize(
    "make",
    [
        lambda: [WHOLE[4:], WHOLE[:4]],
        lambda: [WHOLE[:4], WHOLE[5:]],
        lambda: [WHOLE[:4], WHOLE[:4]],
        lambda: [WHOLE[:4].clone(), WHOLE[4:].clone()],
        lambda: [WHOLE[:, :, 0], WHOLE[:, :, 1]],
        lambda: [WHOLE.transpose(1, 2)[:4], WHOLE.transpose(1, 2)[4:]],
        lambda: [WHOLE[:1].expand(4, 3, 2), WHOLE[4:]],
        lambda: [WHOLE[:4], WHOLE.view(torch.int32)[4:]],
    ],
    ids=["order", "gap", "again", "apart", "columns", "transposed", "repeated", "dtype"],
)
def test_other_parts_are_copied(make: Callable[[], Parts]) -> None:
    parts = make()
    joined = join(parts)
    assert torch.equal(joined, torch.cat(list(parts)))
    assert joined.dtype == torch.cat(list(parts)).dtype
    assert joined.untyped_storage().data_ptr() != WHOLE.untyped_storage().data_ptr()


class Prepared(Toy):
    """Says in its own words what `Task.prepare` does, and with how many rows it was called."""

    calls: list[int]

    def prepare(self, columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls.append(len(columns["x"]))
        return columns["x"], columns["y"]


def test_columns_that_are_trained_as_they_are_give_the_bits_of_columns_that_are_prepared() -> None:
    table, users = Toy().users(), np.arange(9)
    plain, prepared, patched = Toy(), Prepared(), Toy()
    prepared.calls, calls = [], []

    def prepare(columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        calls.append(len(columns["x"]))
        return columns["x"], columns["y"]

    patched.prepare = prepare  # type: ignore[method-assign]
    updates = [
        Trainer(task, ClientSpec(batch_size=4), clip).train([start(task)], [1.0], table, users, at_round=0).update
        for task in (plain, prepared, patched)
    ]
    assert torch.equal(updates[0], updates[1])
    assert torch.equal(updates[0], updates[2])
    each = [1, 33, 16, 12, 8, 7, 3, 1]
    assert prepared.calls == calls == each, "a made-up row, then every user's rows alone"


@pytest.mark.parametrize("shape", [(1, 5), (9, 1), (50, 300), (7, 20_000)])
def test_the_first_rows_are_added_up_one_after_another_as_the_others_are(shape: tuple[int, int]) -> None:
    rows = torch.from_numpy(np.random.default_rng(0).standard_normal((2, *shape)).astype(np.float32))
    rows[0, :, 0] = -0.0
    total, expected = torch.zeros(shape[1], dtype=torch.float64), np.zeros(shape[1])
    for chunk in rows:
        add_rows_(total, chunk)
        for row in chunk.numpy():
            expected += row
    assert np.array_equal(total.numpy().view(np.int64), expected.view(np.int64))
