"""What a node may send, made from bytes, and read as the coordinator reads it. For fuzzers: see `fuzz.py`.

`read_all` begins with an honest reply and edits it as the bytes say: records, entries, types, array headers. Reading it
may refuse (`BadReply`) and nothing else, and whatever is accepted moves the sum by no more than it may.
"""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fieldfare.clipping import Flat
from fieldfare.metrics import MetricsSpec, Riders
from fieldfare.schema import Schema
from fieldfare_flower.messages import (
    COHORT,
    HEAD,
    HEADER,
    REPORT,
    UPDATE,
    USERS,
    WITNESS,
    Occasion,
    TrainReply,
    read_users,
    read_witness,
    write_users,
)
from fieldfare_flower.npy import BadReply, read_array
from fieldfare_server.run.round.aggregation import Aggregate
from fieldfare_server.run.round.dialects import read_plain_reply
from fieldfare_server.run.round.own_model import OwnModel
from fieldfare_server.run.round.roles import assign_roles

SCHEMA = Schema.of(torch.nn.Sequential(torch.nn.Linear(3, 2)))
OCCASION = Occasion("run", 3, 1)
MODEL = OwnModel.read(ArrayRecord({"w": Array(np.ones((2, 3), np.float32)), "b": Array(np.ones(2, np.float32))}))
PLAIN = OwnModel(MODEL, assign_roles(MODEL))
SENT = 5
CLIP = 1.0
METRICS = MetricsSpec(show={"count": (0.0, 2.0)})
RIDERS = Riders.of(Flat(kind="flat", norm=CLIP), METRICS)
RECORDS = (UPDATE, REPORT, HEADER, COHORT, WITNESS, HEAD, "arrays", "metrics")
ENTRIES = (*SCHEMA.names, "w", "b", "users", "counts", "run", "round", "attempt", "version", "schema", USERS, "count")
TYPES = ("float32", "float64", "float16", "uint64", "int64", "bool", "object", "", "bfloat16", "V8")
SHAPES: tuple[tuple[Any, ...], ...] = ((2, 3), (2,), (), (0,), (-1,), (2**62, 4), (1,) * 70, (3, 2), (True,), (2.0,))
VALUES: tuple[Any, ...] = (0, 1, -1, 5, 6, 2**63, -(2**70), 0.5, math.nan, math.inf, "run", "", b"", [], [1.0], [1, 2])
HEADERS = (
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
    b"{'descr': '<f4', 'fortran_order': True, 'shape': (2,), }",
    b"{'descr': '|O', 'fortran_order': False, 'shape': (), }",
    b"{'descr': (",
    b"-" * 50,
)


class Stream:
    """Numbers from bytes; zeros where there are no more."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        self._at += count
        return taken

    def number(self, below: int) -> int:
        return int.from_bytes(self.take(1), "little") % below

    def choice(self, among: tuple[Any, ...]) -> Any:
        return among[self.number(len(among))]


def honest(kind: int) -> RecordDict:
    """An instruction's reply, an answer to the question for users, or a reply of any ClientApp."""
    if kind == 0:
        update = {name: np.ones(shape, np.float32) for name, shape in zip(SCHEMA.names, SCHEMA.shapes, strict=True)}
        return TrainReply(OCCASION, update, SENT, (-0.5 * SENT,)).write()
    if kind == 1:
        return write_users(np.arange(4, dtype=np.uint64), SCHEMA)
    values = {name: Array(array.numpy()) for name, array in PLAIN.record(PLAIN.initial).items()}
    return RecordDict({"arrays": ArrayRecord(values), "metrics": MetricRecord({"count": 2})})


def npy(stream: Stream) -> bytes:
    """Bytes of an array: honest ones with a few changed, a header of the list with any data, or anything."""
    way = stream.number(4)
    if way == 0:
        return stream.take(stream.number(200))
    if way == 1:
        header = stream.choice(HEADERS) + b" " * stream.number(20) + b"\n" * stream.number(2)
        length = len(header) + (stream.number(5) - 2 if stream.number(4) == 0 else 0)
        return b"\x93NUMPY\x01\x00" + max(length, 0).to_bytes(2, "little") + header + stream.take(24)
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((2, 3) if stream.number(2) else (2,), stream.choice(("<f4", "<f8", "<u8", "<f2", ">f4"))))
    data = bytearray(buffer.getvalue())
    for _ in range(stream.number(6)):
        data[int.from_bytes(stream.take(2), "little") % len(data)] = stream.number(256)
    return bytes(data[: len(data) - stream.number(9)] if way == 3 else data)


def edit(
    content: RecordDict, stream: Stream, records: tuple[str, ...] = RECORDS, entries: tuple[str, ...] = ENTRIES
) -> None:
    """One change. What Flower's own records refuse is no change."""
    record, entry, way = stream.choice(records), stream.choice(entries), stream.number(7)
    known: Any = content.get(record)
    try:
        if way == 0:
            content.pop(record, None)
        elif way == 1:
            content.pop(record, None)
            content[record] = stream.choice((ArrayRecord, MetricRecord, ConfigRecord))()
        elif way == 2 and known is not None:
            known.pop(entry, None)
        elif way == 3 and isinstance(known, MetricRecord | ConfigRecord):
            known[entry] = stream.choice(VALUES)
        elif way == 4 and isinstance(known, MetricRecord | ConfigRecord):
            dict.__setitem__(known._data if hasattr(known, "_data") else known, entry, stream.choice(VALUES))
        elif isinstance(known, ArrayRecord):
            made = Array("float32", (1,), "numpy.ndarray", b"")
            made.dtype, made.shape = stream.choice(TYPES), stream.choice(SHAPES)
            made.stype = stream.choice(("numpy.ndarray", "numpy.ndarray", "pickle", ""))
            made.data = npy(stream)
            known[entry] = made
    except (TypeError, ValueError, KeyError, AttributeError):
        return


def read_all(data: bytes) -> str:
    """Make a reply from `data` and read it; returns how it went. Raises what no reply may make the reader raise."""
    stream = Stream(data)
    kind = stream.number(4)
    if kind == 3:
        array = Array("float32", (2,), "numpy.ndarray", b"")
        array.dtype, array.shape, array.data = stream.choice(TYPES), stream.choice(SHAPES), npy(stream)
        try:
            read = read_array(array, ("float32", "float64", "uint64"), stream.choice((None, (2,), (2, 3))))
        except BadReply as refusal:
            return refusal.reason
        assert read.nbytes <= len(array.data)
        return "read"
    content = honest(kind)
    while stream:
        edit(content, stream)
    if kind == 1:
        count, _ = read_witness(content)
        assert count is None or 0 < count < 2**62
        try:
            users = read_users(content, SCHEMA, 4)
        except BadReply as refusal:
            return refusal.reason
        assert users.dtype == np.uint64
        assert users.size <= 4
        return "users"
    reader = None
    schema = SCHEMA
    if kind == 2:
        schema = PLAIN.schema
        base = {name: np.zeros(shape, np.float32) for name, shape in zip(schema.names, schema.shapes, strict=True)}

        def reader(content: RecordDict, sent: int) -> Any:
            return read_plain_reply(PLAIN, schema, base, Flat(kind="flat", norm=CLIP), METRICS, content, sent)

    total = Aggregate(schema, OCCASION, CLIP, RIDERS, reader=reader)
    used = total.add(content, SENT)
    assert np.isfinite(total.total).all()
    assert float(np.linalg.norm(total.total)) <= SENT * RIDERS.joint_bound * (1 + 1e-12)
    assert 0 <= total.users <= SENT
    assert used or not total.total.any()
    return "summed" if used else ", ".join(total.rejects)
