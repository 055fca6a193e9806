"""What server and node say to each other: record names, version, validation.

Three conversations, all initiated by the server:

* `query.users`  -> the pseudonyms of the users that a node hosts;
* `train`        -> model (one or several points), cohort, settings; answered by the **sum of the cohort's clipped
  updates and how many users it sums**, and by nothing else: no loss, no norm, no metric. A round may ask several
  queries; the reply then has one sum for each, clipped by itself.

Nothing here imports Flower. Writing takes Flower's record classes as an argument (`flwr.app`), reading is by the few
attributes that Flower's records have, so that both sides share one definition of the format.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fieldfare.schema import Arrays, Schema

VERSION = 2
TRAIN = "train"
QUERY_USERS = "query.users"

HEADER = "fieldfare"
POINT = "model.{}"
COHORT = "cohort"
UPDATE = "update"
REPORT = "report"
USERS = "users"


class BadReply(ValueError):
    """A reply that breaks the contract. `reason` is one of a fixed set of words, safe to count and to show."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason = reason
        super().__init__(f"{reason}: {detail}" if detail else reason)


class _WireArray(Protocol):
    dtype: str
    shape: tuple[int, ...]
    stype: str
    data: bytes


class _Content(Protocol):
    @property
    def array_records(self) -> Mapping[str, Mapping[str, _WireArray]]: ...
    @property
    def metric_records(self) -> Mapping[str, Mapping[str, Any]]: ...
    @property
    def config_records(self) -> Mapping[str, Mapping[str, Any]]: ...


def _decode(array: _WireArray, dtype: str, shape: tuple[int, ...] | None) -> NDArray[Any]:
    """The array's values without trusting its header: nothing is allocated before sizes have been compared."""
    if array.stype != "numpy.ndarray":
        raise BadReply("dtype", "unknown serialisation")
    try:
        stream = io.BytesIO(array.data)
        version = np.lib.format.read_magic(stream)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        stored_shape, fortran, stored_dtype = read(stream)
    except (ValueError, KeyError, EOFError, SyntaxError, TypeError, AttributeError):
        raise BadReply("schema", "not an array") from None
    if stored_dtype != np.dtype(dtype) or array.dtype != dtype:
        raise BadReply("dtype", f"expected {dtype}")
    if (shape is not None and stored_shape != shape) or (fortran and len(stored_shape) > 1):
        raise BadReply("shape", "not the model's")
    if len(array.data) - stream.tell() != math.prod(stored_shape) * stored_dtype.itemsize:
        raise BadReply("shape", "not as many bytes as announced")
    return np.frombuffer(array.data, stored_dtype, offset=stream.tell()).reshape(stored_shape)


def _record(records: Mapping[str, Any], name: str) -> Any:
    try:
        return records[name]
    except KeyError:
        raise BadReply("schema", f"no record {name!r}") from None


def _header(content: _Content) -> Mapping[str, Any]:
    header: Mapping[str, Any] = _record(content.config_records, HEADER)
    if header.get("version") != VERSION:
        raise BadReply("version", f"expected wire version {VERSION}")
    return header


@dataclass(frozen=True)
class Occasion:
    """Which attempt at which round of which run a message belongs to. A reply must repeat it exactly."""

    run: str
    round: int
    attempt: int

    def to_config(self) -> dict[str, Any]:
        return {"version": VERSION, "run": self.run, "round": self.round, "attempt": self.attempt}

    @classmethod
    def read(cls, content: _Content) -> Occasion:
        header = _header(content)
        try:
            run, at, attempt = header["run"], header["round"], header["attempt"]
        except KeyError:
            raise BadReply("schema", "incomplete header") from None
        if not isinstance(run, str) or type(at) is not int or type(attempt) is not int:
            raise BadReply("schema", "ill-typed header")
        return cls(run, at, attempt)


@dataclass(frozen=True)
class TrainInstruction:
    """What a node needs for one round. `settings` is the JSON of what the plan says to clients.

    `weights`: for each of `queries` queries, one after another, a weight a point. `batches`: the round whose order of
    batches and other local randomness is used.
    """

    occasion: Occasion
    points: tuple[Arrays, ...]
    weights: tuple[float, ...]
    users: NDArray[np.uint64]
    settings: dict[str, Any]
    queries: int = 1
    batches: int = 0

    def write(self, flower: Any, points: Mapping[str, Any] | None = None) -> Any:
        """A `flwr.app.RecordDict`; `flower` is the module `flwr.app`.

        points: what `write_points` made of the same points, so that many messages share one encoding of the model.
        """
        asked = {"weights": list(self.weights), "queries": self.queries, "batches": self.batches}
        header = {**self.occasion.to_config(), **asked, "settings": json.dumps(self.settings)}
        records = {HEADER: flower.ConfigRecord(header), COHORT: _array_record(flower, {USERS: self.users})}
        return flower.RecordDict({**records, **(points or write_points(flower, self.points))})

    @classmethod
    def read(cls, content: _Content, schema: Schema) -> TrainInstruction:
        """Raises `BadReply` (a ValueError) on anything but a well-formed instruction for `schema`."""
        occasion, header = Occasion.read(content), _header(content)
        weights = tuple(float(w) for w in header.get("weights", ()))
        queries, batches = header.get("queries"), header.get("batches")
        if type(queries) is not int or type(batches) is not int or queries < 1 or len(weights) % queries:
            raise BadReply("schema", "ill-typed queries")
        points = tuple(_model(content, POINT.format(i), schema) for i in range(len(weights) // queries))
        users = _decode(_record(_record(content.array_records, COHORT), USERS), "uint64", None)
        settings = json.loads(str(header.get("settings", "{}")))
        return cls(occasion, points, weights, users, settings, queries, batches)


def write_points(flower: Any, points: Sequence[Arrays]) -> dict[str, Any]:
    """The records that carry the model, encoded once."""
    return {POINT.format(index): _array_record(flower, point) for index, point in enumerate(points)}


@dataclass(frozen=True)
class TrainReply:
    """The sum of `users` users' clipped updates, by the names of `Schema.stacked` where there are several queries.

    `counts` are sums of clipped per-user scalars that the plan asked for (the adaptive clip norm's indicator) and
    nothing that it did not ask for.
    """

    occasion: Occasion
    update: Arrays
    users: int
    counts: tuple[float, ...] = ()

    def write(self, flower: Any) -> Any:
        """A `flwr.app.RecordDict`; `flower` is the module `flwr.app`."""
        return flower.RecordDict(
            {
                HEADER: flower.ConfigRecord(self.occasion.to_config()),
                UPDATE: _array_record(flower, self.update),
                REPORT: flower.MetricRecord({"users": self.users, "counts": list(self.counts)}),
            }
        )

    @classmethod
    def read(cls, content: _Content, schema: Schema, occasion: Occasion, sent: int, counts: int = 0) -> TrainReply:
        """Read what a node claims, trusting nothing. `sent` is how many users it was asked to train.

        Raises `BadReply` with reason `schema`, `version`, `round`, `shape`, `dtype` or `users`.
        """
        if Occasion.read(content) != occasion:
            raise BadReply("round", "a reply to another round, attempt or run")
        if set(content.array_records) != {UPDATE} or set(content.metric_records) != {REPORT}:
            raise BadReply("schema", "other records than an update and a report")
        report = content.metric_records[REPORT]
        if set(report) != {"users", "counts"}:
            raise BadReply("schema", "another report than users and counts")
        users = report.get("users")
        if type(users) is not int or not 0 <= users <= sent:
            raise BadReply("users", "claims other users than it was asked for")
        claimed = report.get("counts")
        if not isinstance(claimed, list) or len(claimed) != counts:
            raise BadReply("schema", "other counts than were asked for")
        values = tuple(float(value) for value in claimed)
        if not all(0.0 <= value <= users for value in values):
            raise BadReply("users", "a count outside of what its users can add up to")
        return cls(occasion, _model(content, UPDATE, schema), users, values)


def write_users_query(flower: Any, run: str) -> Any:
    """Ask a node for its users."""
    return flower.RecordDict({HEADER: flower.ConfigRecord({"version": VERSION, "run": run})})


def write_users(flower: Any, users: NDArray[np.uint64], schema: Schema) -> Any:
    """A node's answer: whom it hosts (pseudonyms, shape (n,)), and the digest of the model it would train."""
    return flower.RecordDict(
        {
            HEADER: flower.ConfigRecord({"version": VERSION, "schema": schema.digest()}),
            COHORT: _array_record(flower, {USERS: users}),
        }
    )


def read_users(content: _Content, schema: Schema, most: int) -> NDArray[np.uint64]:
    """Whom a node hosts, shape (n,), n <= `most`, distinct. Raises `BadReply`."""
    if _header(content).get("schema") != schema.digest():
        raise BadReply("schema", "the node would train another model")
    users = _decode(_record(_record(content.array_records, COHORT), USERS), "uint64", None)
    if users.ndim != 1 or users.size > most or np.unique(users).size != users.size:
        raise BadReply("users", "too many users, or a user twice")
    return users


def _model(content: _Content, record: str, schema: Schema) -> Arrays:
    arrays = _record(content.array_records, record)
    if set(arrays) != set(schema.names):
        raise BadReply("schema", "not the model's parameter names")
    return {
        name: _decode(arrays[name], "float32", shape) for name, shape in zip(schema.names, schema.shapes, strict=True)
    }


def _array_record(flower: Any, arrays: Arrays) -> Any:
    return flower.ArrayRecord({name: flower.Array(np.ascontiguousarray(value)) for name, value in arrays.items()})
