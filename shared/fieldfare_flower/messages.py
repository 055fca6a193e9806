"""The messages between server and node: record names, version, validation.

The server starts each of the two conversations:

* `query.users`: the node answers with the pseudonyms of the users that it hosts;
* `train`: carries the model (one or several points), the cohort and the settings. The node answers with the
  **sum of the cohort's clipped updates, the number of users in it, and the sums of the numbers that the plan
  lists** (clipped users, metrics in [-1, 1]), which are noised with the update; and with nothing else. A
  round may ask several queries; the reply then holds one sum for each, clipped separately.

The server trusts no reply: reading one allocates nothing before its sizes were compared with the model's
(`npy`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, ConfigRecordValues, MetricRecord, RecordDict
from numpy.typing import NDArray

from fieldfare.hashing import all_differ
from fieldfare.metrics import MetricsSpec
from fieldfare.schema import Arrays, Schema
from fieldfare.signed_head import MOST_HEAD, SignedHead
from fieldfare.signed_terms import NodeBudgetRefused, SignedTerms
from fieldfare_flower.npy import BadReply, SharedArray, read_array

VERSION = 2
# Of messages with masks, so that a node that knows no masks does not answer in clear.
MASKED_VERSION = 3
TRAIN = "train"
EVALUATE = "evaluate"
QUERY_USERS = "query.users"

HEADER = "fieldfare"
POINT = "model.{}"
COHORT = "cohort"
CONFIG = "config"
UPDATE = "update"
REPORT = "report"
USERS = "users"
# What a run asks of users, in its instructions and in its query for users.
QUESTION = "question"
# A released model that the question is about, by the run that released it.
QUESTION_MODEL = "question.model.{}"
# The signed head of the server's journal, in instructions and in a node's state. Older nodes ignore it.
HEAD = "journal.head"
# Which row of the journal a node remembers, in its answer to `query.users`. Older servers ignore it.
WITNESS = "journal.witness"
# A record of an instruction: how its reply is masked. A key of such a reply's header: its seed, for the blinder.
MASKING, SEAL = "masking", "seal"
# What the run costs its users, signed, in instructions and in `query.users`. Nodes without a budget ignore it.
TERMS = "budget.terms"
# What may differ from node to node in an instruction with masks: whom it asks, and what the ledger shows.
UNBOUND = frozenset({COHORT, HEAD, TERMS})
# In a reply to a question of unknown values: which value each number of the update, from the first on, is about.
NAMES = "names"


_Record = TypeVar("_Record")
_Checked = TypeVar("_Checked", ArrayRecord, ConfigRecord, MetricRecord, RecordDict)


def records_of(content: RecordDict, kind: type[_Record]) -> dict[str, _Record]:
    """Return the records of one kind. What Flower's own properties return keeps `content` alive until Python's next
    full collection, as it refers to itself.
    """
    # By the class's bases: a record is a `MutableMapping`, whose `isinstance` asks Python code.
    records: dict[str, Any] = {name: one for name, one in content.items() if kind in type(one).__mro__}
    return records


def record_of(kind: type[_Checked], entries: Mapping[str, Any]) -> _Checked:
    """Return a record of `entries` that need no check: a record checks every entry that it gets, which takes longer
    than the rest of a small message. They go to where Flower keeps them (`TypedDict._data`), if it still does.
    """
    record = kind()
    if isinstance(kept := record.__dict__.get("_data"), dict):
        kept.update(entries)
    if len(record) != len(entries):
        record.update(entries)
    return record


def _record(records: Mapping[str, _Record], name: str) -> _Record:
    try:
        return records[name]
    except KeyError:
        raise BadReply("schema", f"no record {name!r}") from None


def _header(content: RecordDict) -> ConfigRecord:
    records = records_of(content, ConfigRecord)
    header = _record(records, HEADER)
    expected = MASKED_VERSION if MASKING in records or SEAL in header else VERSION
    if header.get("version") != expected:
        raise BadReply("version", f"expected wire version {expected}")
    return header


@dataclass(frozen=True)
class Occasion:
    """Which attempt at which round of which run a message belongs to. A reply must repeat it exactly."""

    run: str
    round: int
    attempt: int

    def to_config(self) -> dict[str, ConfigRecordValues]:
        return {"version": VERSION, "run": self.run, "round": self.round, "attempt": self.attempt}

    @classmethod
    def read(cls, content: RecordDict) -> Occasion:
        header = _header(content)
        try:
            run, round_, attempt = header["run"], header["round"], header["attempt"]
        except KeyError:
            raise BadReply("schema", "incomplete header") from None
        if not isinstance(run, str) or type(round_) is not int or type(attempt) is not int or abs(attempt) >> 62:
            raise BadReply("schema", "ill-typed header")
        return cls(run, round_, attempt)


@dataclass(frozen=True)
class TrainInstruction:
    """What a node needs for one round.

    Args:
        points: the models, each by parameter name, float32.
        weights: for each query in turn one weight a point, queries * len(points) in all.
        users: pseudonyms of the cohort's users that the node hosts, shape (n,).
        settings: what the plan says to clients, as JSON can hold it.
        queries: how many sums the reply holds.
        batches: the round whose order of batches, and other local randomness, is used.
        config: what the server's app sends to the training loop, as Flower's `train_config`; None: nothing.
    """

    occasion: Occasion
    points: tuple[Arrays, ...]
    weights: tuple[float, ...]
    users: NDArray[np.uint64]
    settings: dict[str, object]
    queries: int = 1
    batches: int = 0
    config: ConfigRecord | None = None

    def write(self, points: Mapping[str, ArrayRecord | ConfigRecord] | None = None) -> RecordDict:
        """Return the message's content. `points`: what `write_points` made of the same points, which messages
        then share.

        More records that all messages share may be among them: the journal's head.
        """
        work: dict[str, ConfigRecordValues] = {
            "weights": [float(weight) for weight in self.weights],
            "queries": self.queries,
            "batches": self.batches,
            "settings": json.dumps(self.settings),
        }
        header = record_of(ConfigRecord, {**self.occasion.to_config(), **work})
        records: dict[str, ArrayRecord | ConfigRecord] = {HEADER: header, COHORT: to_record({USERS: self.users})}
        if self.config is not None:
            records[CONFIG] = self.config
        return record_of(RecordDict, {**records, **(points or write_points(self.points))})

    @classmethod
    def read(cls, content: RecordDict, schema: Schema) -> TrainInstruction:
        """Raise `BadReply` (a ValueError) on anything but a well-formed instruction for `schema`."""
        occasion, header = Occasion.read(content), _header(content)
        listed, queries, batches = header.get("weights"), header.get("queries"), header.get("batches")
        if not isinstance(listed, list) or type(queries) is not int or type(batches) is not int:
            raise BadReply("schema", "ill-typed queries")
        weights = tuple(float(weight) for weight in listed)
        if queries < 1 or len(weights) % queries:
            raise BadReply("schema", "not one weight for each query and point")
        points = tuple(_model(content, POINT.format(i), schema) for i in range(len(weights) // queries))
        users = asked_users(content)
        config = records_of(content, ConfigRecord).get(CONFIG)
        return cls(occasion, points, weights, users, read_settings(content), queries, batches, config)


def read_table(content: RecordDict, record: str, key: str) -> dict[str, Any]:
    """Return the table that a key of a record says in JSON. Raises `BadReply` where there is none."""
    try:
        table = json.loads(str(_record(records_of(content, ConfigRecord), record).get(key)))
    except (ValueError, RecursionError):
        table = None
    if not isinstance(table, dict):
        raise BadReply("schema", "no table where there must be one")
    return table


def read_settings(content: RecordDict) -> dict[str, Any]:
    """Return what an instruction's header says of how to train. Raises `BadReply` where it says nothing."""
    return read_table(content, HEADER, "settings")


def write_points(points: Sequence[Arrays]) -> dict[str, ArrayRecord]:
    """Return the records that carry the model, encoded once for all messages of a round."""
    return {POINT.format(index): to_record(point) for index, point in enumerate(points)}


@dataclass(frozen=True)
class PlainInstruction:
    """What an instruction of Flower's own says beside its two records, to nodes whose app has a mod that reads it.

    Args:
        settings: as in `TrainInstruction`.
        trained: the arrays of the update, in its order.
        weights: of each, what multiplies its change.
        deltas: clients reply with changes, and not with new values.
    """

    occasion: Occasion
    settings: dict[str, object]
    trained: tuple[str, ...]
    weights: tuple[float, ...]
    deltas: bool = False

    def write(self) -> ConfigRecord:
        """Return its record, `HEADER`."""
        told: dict[str, ConfigRecordValues] = {"settings": json.dumps(self.settings), "deltas": self.deltas}
        told |= {"trained": list(self.trained), "weights": list(self.weights)}
        return ConfigRecord({**self.occasion.to_config(), **told})

    @classmethod
    def read(cls, content: RecordDict) -> PlainInstruction:
        """Raises `BadReply` where the instruction says nothing of it, or nonsense."""
        occasion, header = Occasion.read(content), _header(content)
        trained, weights, deltas = header.get("trained"), header.get("weights"), header.get("deltas")
        if not isinstance(trained, list) or not isinstance(weights, list) or not isinstance(deltas, bool):
            raise BadReply("schema", "it does not say which arrays are trained")
        if {*map(type, weights)} - {float}:
            raise BadReply("schema", "ill-typed weights")
        factors = tuple(map(float, weights))
        return cls(occasion, read_settings(content), tuple(map(str, trained)), factors, deltas)


@dataclass(frozen=True)
class TrainReply:
    """A node's part of a round's sum.

    Args:
        update: the sum of the users' clipped updates, float32, by the names of `Schema.stacked` with several
            queries.
        users: how many users it sums.
        counts: sums of the users' numbers that the plan asked for: adaptive clipping's indicator, then the
            metrics.
    """

    occasion: Occasion
    update: Arrays
    users: int
    counts: tuple[float, ...] = ()

    def write(self) -> RecordDict:
        """Return the message's content."""
        report = record_of(MetricRecord, {"users": self.users, "counts": [float(count) for count in self.counts]})
        header = record_of(ConfigRecord, self.occasion.to_config())
        return record_of(RecordDict, {HEADER: header, UPDATE: to_record(self.update), REPORT: report})

    @classmethod
    def read(
        cls, content: RecordDict, schema: Schema, occasion: Occasion, sent: int, counts: int = 0, metrics: int = 0
    ) -> TrainReply:
        """Check and read a node's reply.

        Args:
            content: the message's content.
            schema: the names and shapes that the update must have.
            occasion: the attempt that it must answer.
            sent: how many users the node was asked to train, the most that it may report.
            counts: how many indicators the plan asked for: each user's in [0, 1].
            metrics: how many metrics, after them: each user's in [-1, 1].

        Raises:
            BadReply: with reason `schema`, `version`, `round`, `shape`, `dtype` or `users`.
        """
        report, users = read_report(content, occasion, sent, UPDATE, {"users", "counts"})
        claimed = report.get("counts")
        if not isinstance(claimed, list) or len(claimed) != counts + metrics:
            raise BadReply("schema", "not the counts that were asked for")
        values = tuple(float(value) for value in claimed)
        # Sums of numbers of which each lies in [0, 1], or in [-1, 1]: more than the users can add up to is a lie.
        least = [0.0] * counts + [-1.0 * users] * metrics
        if not all(low <= value <= users for low, value in zip(least, values, strict=True)):
            raise BadReply("users", "a count that its users cannot add up to")
        return cls(occasion, _model(content, UPDATE, schema), users, values)


def read_report(
    content: RecordDict, occasion: Occasion, sent: int, arrays: str, numbers: set[str]
) -> tuple[MetricRecord, int]:
    """Return (the report of a reply to `occasion`, how many users it claims), where it has the records that
    it must have.

    Args:
        sent: how many users the node was asked to train.
        arrays: the name of its one record of arrays.
        numbers: the names of its report's numbers.

    Raises:
        BadReply: with reason `round`, `schema`, `version` or `users`.
    """
    if Occasion.read(content) != occasion:
        raise BadReply("round", "a reply to another round, attempt or run")
    reports = records_of(content, MetricRecord)
    if set(records_of(content, ArrayRecord)) != {arrays} or set(reports) != {REPORT}:
        raise BadReply("schema", f"records other than {arrays} and a report")
    report = reports[REPORT]
    if set(report) != numbers:
        raise BadReply("schema", "a report of other numbers")
    users = report.get("users")
    if type(users) is not int or not 0 <= users <= sent:
        raise BadReply("users", "claims users that it was not asked for")
    return report, users


def as_float(told: float) -> float:
    """Return a number that a node told; NaN for a bool, and for a whole number that no float holds."""
    try:
        return math.nan if isinstance(told, bool) else float(told)
    except OverflowError:
        return math.nan


def read_metrics(spec: MetricsSpec, content: RecordDict) -> tuple[float, ...]:
    """Return one user's metrics in [-1, 1], from a reply's MetricRecords; 0 for a missing one, and for what
    is not a number.
    """
    records = [*records_of(content, MetricRecord).values()]

    def value(name: str) -> float:
        found = [record[name] for record in records if name in record]
        return as_float(found[0]) if len(found) == 1 and isinstance(found[0], int | float) else math.nan

    return tuple(spec.centred(np.array([value(name) for name in spec.names])).tolist())


def write_users_query(run: str, more: Mapping[str, ConfigRecord] | None = None) -> RecordDict:
    """Return the question which users a node hosts. more: what else goes with it (`write_question`)."""
    return RecordDict({HEADER: ConfigRecord({"version": VERSION, "run": run}), **(more or {})})


def read_users_query(content: RecordDict) -> str:
    """The run that asks which users a node hosts. Raises `BadReply`."""
    return str(_header(content).get("run", ""))


def write_question(asked: Mapping[str, object]) -> dict[str, ConfigRecord]:
    """Return what a run asks of users, the `[task]` table of its plan, as a named record: data, never code."""
    return {QUESTION: ConfigRecord({"asked": json.dumps(asked, sort_keys=True)})}


def read_question(content: RecordDict) -> dict[str, Any] | None:
    """Return what `write_question` wrote; None in messages of runs that train. Raises `BadReply` for anything else."""
    return read_table(content, QUESTION, "asked") if QUESTION in content else None


def write_names(names: Sequence[int | str]) -> dict[str, ConfigRecord]:
    """What a reply to a question of unknown values has beside its numbers: whole numbers, or words."""
    return {NAMES: ConfigRecord({NAMES: names})}  # type: ignore[dict-item]


def read_names(content: RecordDict, most: int) -> list[int | str]:
    """The values of a reply, distinct and at most `most`. Raises `BadReply` with reason `schema`."""
    found = _record(records_of(content, ConfigRecord), NAMES).get(NAMES)
    if not isinstance(found, list) or len(found) > most:
        raise BadReply("schema", "not so many values as were asked for")
    names = [each for each in found if isinstance(each, int | str) and not isinstance(each, bool)]
    if not len(found) == len(names) == len(set(names)):
        raise BadReply("schema", "a value is neither a whole number nor a word, or is told twice")
    return names


def write_question_models(models: Mapping[str, Arrays]) -> dict[str, ArrayRecord]:
    """Return the records of the released models that a question is about, by their runs."""
    return {QUESTION_MODEL.format(run): to_record(arrays) for run, arrays in models.items()}


def read_question_model(content: RecordDict, run: str) -> dict[str, NDArray[np.generic]]:
    """Return the released arrays of `run`, by name. Raises `BadReply` where the message has none."""
    record = _record(records_of(content, ArrayRecord), QUESTION_MODEL.format(run))
    return {name: np.array(array.numpy()) for name, array in record.items()}


def write_users(users: NDArray[np.uint64], schema: Schema) -> RecordDict:
    """Return a node's answer: the pseudonyms of its users, shape (n,), and the digest of the model that it
    would train.
    """
    header = ConfigRecord({"version": VERSION, "schema": schema.digest()})
    return RecordDict({HEADER: header, COHORT: to_record({USERS: users})})


def read_users(content: RecordDict, schema: Schema, most: int) -> NDArray[np.uint64]:
    """Return the pseudonyms of a node's users, shape (n,), distinct, n <= `most`. Raises `BadReply`."""
    if _header(content).get("schema") != schema.digest():
        raise BadReply("schema", "the node would train another model")
    users = asked_users(content)
    if users.ndim != 1 or users.size > most or not all_differ(users):
        raise BadReply("users", "too many users, or a user twice")
    return users


def write_head(
    head: SignedHead, rows: Mapping[int, str], keys: Sequence[str] = (), people: bool = False
) -> ConfigRecord:
    """Return the record of a signed head, with hashes of earlier journal rows by number, by which a node sees
    a fork.

    Args:
        keys: the lines by which the head's key changed.
        people: whether the run is for real people on nodes of their own.
    """
    ordered = sorted(rows)
    hashes = [rows[number] for number in ordered]
    return ConfigRecord({"head": str(head), "rows": ordered, "hashes": hashes, "keys": list(keys), "people": people})


def is_of_people(content: RecordDict) -> bool:
    """Return whether an instruction's head says that the run is for real people on nodes of their own."""
    return records_of(content, ConfigRecord).get(HEAD, ConfigRecord()).get("people") is True


def read_head(content: RecordDict) -> tuple[SignedHead | None, dict[int, str]]:
    """Return (the head that an instruction shows, hashes of earlier rows); (None, {}) from a server that
    shows none.

    Raises `HeadRefused` on a head that its key did not sign, `BadReply` on a record of another form.
    """
    record = records_of(content, ConfigRecord).get(HEAD)
    if record is None:
        return None, {}
    text, numbers, hashes = record.get("head"), record.get("rows"), record.get("hashes")
    if not isinstance(text, str) or not isinstance(numbers, list) or not isinstance(hashes, list):
        raise BadReply("schema", "ill-typed head")
    rows = {n: h for n, h in zip(numbers, hashes, strict=False) if type(n) is int and isinstance(h, str)}
    return SignedHead.parse(text), rows


def read_keys(content: RecordDict) -> list[str]:
    """Return the lines by which the head's key changed; [] where there is none, or no list of text."""
    record = records_of(content, ConfigRecord).get(HEAD)
    keys = None if record is None else record.get("keys")
    return [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else []


def write_witness(head: SignedHead | None) -> dict[str, ConfigRecord]:
    """Return the record, by its name, of the newest head that a node remembers; {} for none."""
    return {} if head is None else {WITNESS: ConfigRecord({"count": head.count, "head": str(head)})}


def read_witness(content: RecordDict) -> tuple[int | None, str]:
    """Return (the number of the journal row that a node remembers, its head, unread); None, "" where it names none."""
    record = records_of(content, ConfigRecord).get(WITNESS, ConfigRecord())
    count, head = record.get("count"), str(record.get("head", ""))
    return count if type(count) is int and 0 < count < 2**62 else None, head[:MOST_HEAD]


def write_terms(signed: SignedTerms) -> dict[str, ConfigRecord]:
    """Return the record, by its name, of a run's signed terms."""
    values: dict[str, ConfigRecordValues] = {
        "terms": signed.text,
        "key": signed.key,
        "signature": signed.signature,
        "keys": list(signed.keys),
    }
    return {TERMS: ConfigRecord(values)}


def read_terms(content: RecordDict) -> SignedTerms:
    """The signed terms that a message shows, not checked. Raises `NodeBudgetRefused` where it shows none, or others."""
    record = records_of(content, ConfigRecord).get(TERMS, ConfigRecord())
    text, key, signature, keys = (record.get(name) for name in ("terms", "key", "signature", "keys"))
    if not (isinstance(text, str) and isinstance(key, str) and isinstance(signature, str) and isinstance(keys, list)):
        near = "dialect = 'cohort', or charge_on_nodes = True, of a run that is charged to a ledger, by today's server"
        raise NodeBudgetRefused("an instruction", "", near, reason="no-terms")
    return SignedTerms(text, key, signature, tuple(line for line in keys if isinstance(line, str)))


def only(users: NDArray[np.uint64], content: RecordDict) -> RecordDict:
    """Return a node's answer `content` to `query.users` with no users but `users`, shape (n,)."""
    content[COHORT] = to_record({USERS: users})
    return content


def asked_users(content: RecordDict) -> NDArray[np.uint64]:
    """Return the pseudonyms that an instruction asks for, or that an answer to `query.users` names. Raises
    `BadReply`.
    """
    return read_array(_record(_record(records_of(content, ArrayRecord), COHORT), USERS), ("uint64",), None)


def _model(content: RecordDict, record: str, schema: Schema) -> Arrays:
    arrays = _record(records_of(content, ArrayRecord), record)
    if set(arrays) != set(schema.names):
        raise BadReply("schema", "not the model's parameter names")
    return {
        name: read_array(arrays[name], ("float32",), shape)
        for name, shape in zip(schema.names, schema.shapes, strict=True)
    }


def to_record(arrays: Mapping[str, NDArray[np.generic]]) -> ArrayRecord:
    """Return a record of `arrays`, which nobody may change any more: they are serialised only where they travel."""
    return record_of(ArrayRecord, {name: SharedArray(value) for name, value in arrays.items()})
