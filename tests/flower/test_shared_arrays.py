"""Arrays that are handed over within a process, and serialised as Flower's own where they travel."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from fieldfare_client.simulation import LocalGrid
from fieldfare_flower.local_grid import assume_task_identity
from fieldfare_flower.npy import BadReply, SharedArray, data_size, read_array
from fieldfare_server.run.presence.replies import limit_for

VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("values", [VALUES, VALUES.T, VALUES[:, :2], np.full((), 3, np.float32), VALUES[:0]], ids=repr)
def test_where_it_travels_it_is_flowers_own(values: np.ndarray) -> None:
    shared, own = SharedArray(values), Array(np.ascontiguousarray(values).reshape(values.shape))
    assert (shared.dtype, shared.shape, shared.stype, shared.data) == (own.dtype, own.shape, own.stype, own.data)
    np.testing.assert_array_equal(shared.numpy(), values)
    # What Flower's network sends and makes of it again.
    record = ArrayRecord()
    record["a"] = shared
    again = ArrayRecord.inflate(record.deflate(), {child.object_id: child for child in record.children.values()})
    np.testing.assert_array_equal(again["a"].numpy(), values)
    # The class's name travels too, and a SuperNode or SuperLink takes no other than Flower's own.
    assert [child.deflate() for child in record.children.values()] == [own.deflate()]
    assert {type(child).__qualname__ for child in record.children.values()} == {"Array"}


@pytest.mark.parametrize(
    "values", [VALUES, VALUES[:0], np.zeros((300, 7, 2, 1, 5)), np.uint64(3)], ids=["2d", "0", "5d", "1"]
)
def test_its_size_is_known_before_it_travels(values: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    own, shared = Array(np.asarray(values)), SharedArray(np.asarray(values))
    assume_task_identity()  # else Flower makes no message
    sizes, limits = [], []
    for array in (own, shared):
        record = ArrayRecord()
        record["a"] = array
        limits.append(limit_for(Message(RecordDict({"model": record}), 1, "train"), copies=3))
        sizes.append(data_size(array))
        monkeypatch.setattr(SharedArray, "data", property(lambda self: pytest.fail("it was serialised")))
    assert sizes[0] == sizes[1] == len(own.data)
    assert limits[0] == limits[1]


def test_within_a_process_it_is_never_serialised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharedArray, "data", property(lambda self: pytest.fail("it was serialised")))
    app, got = ClientApp(), []

    @app.train()
    def train(message: Message, context: object) -> Message:
        got.append(read_array(message.content.array_records["arrays"]["a"], ("float32",), (2, 3)))
        return Message(message.content, reply_to=message)

    grid = LocalGrid(app, 1)
    record = ArrayRecord()
    record["a"] = SharedArray(VALUES)
    content = RecordDict({"arrays": record})
    (node,) = grid.get_node_ids()
    (reply,) = grid.send_and_receive([Message(content, node, "train")])
    back = read_array(reply.content.array_records["arrays"]["a"], ("float32",), (2, 3))
    assert np.shares_memory(got[0], VALUES)
    assert np.shares_memory(back, VALUES)
    assert not back.flags.writeable
    assert VALUES.flags.writeable


@pytest.mark.parametrize(
    ("dtypes", "shape", "reason"), [(("float64",), None, "dtype"), (("float32",), (3, 2), "shape")], ids=str
)
def test_it_is_checked_like_any_other(dtypes: tuple[str, ...], shape: tuple[int, ...] | None, reason: str) -> None:
    with pytest.raises(BadReply) as refused:
        read_array(SharedArray(VALUES), dtypes, shape)
    assert refused.value.reason == reason
    swapped = SharedArray(VALUES.astype(VALUES.dtype.newbyteorder()))
    with pytest.raises(BadReply):
        read_array(swapped, ("float32",), (2, 3))
