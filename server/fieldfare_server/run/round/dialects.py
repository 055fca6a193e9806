"""How the strategy talks to nodes: who is there, how an instruction is written, how a reply is read.

* `CohortDialect`: Fieldfare's own messages. A node hosts many users, clips each one's update and sends their
  sum.
* `PlainDialect`: Flower's own messages, exactly those of FedAvg, to a ClientApp that knows nothing of
  Fieldfare. A node is one user; the server clips its update.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Protocol, TypeAlias

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from numpy.typing import NDArray

from fieldfare import clipping
from fieldfare.clipping import ClippingSpec, Flat
from fieldfare.errors import Unsupported
from fieldfare.lazily import torch
from fieldfare.metrics import MetricsSpec
from fieldfare.schema import Arrays, Schema
from fieldfare_flower import own_data
from fieldfare_flower.messages import (
    EVALUATE,
    HEADER,
    TRAIN,
    Occasion,
    PlainInstruction,
    TrainInstruction,
    read_metrics,
    records_of,
    write_points,
    write_question,
    write_question_models,
)
from fieldfare_flower.npy import BadReply, read_array
from fieldfare_server.optimizers import Points
from fieldfare_server.run.presence.identity import KeyRoster
from fieldfare_server.run.presence.replies import fresh_group
from fieldfare_server.run.presence.roster import Roster
from fieldfare_server.run.presence.selection import Users
from fieldfare_server.run.round.aggregation import Contribution, Reader, split_chunks, squared_norm
from fieldfare_server.run.round.own_model import OwnModel
from fieldfare_server.run.round.roles import FLOATS

# How much longer than a round an instruction is valid.
SPARE_SECONDS = 60.0
# The key under which Flower's own `fixedclipping_mod` looks for the norm.
CLIPPING_NORM = "clipping_norm"


@dataclass(frozen=True)
class PublicRound:
    """What is public about one attempt at a round, before anything is sent."""

    occasion: Occasion
    points: Points
    settings: Mapping[str, object]  # what the plan says to clients, as JSON can hold it
    clipping: ClippingSpec  # with this round's norm
    timeout: float  # seconds
    metrics: MetricsSpec | None = None  # what rides beside each user's update


# What the app sends to training loops with a round's index and its point, flat float32 (d,): with `server-round`.
Configure: TypeAlias = "Callable[[int, torch.Tensor], ConfigRecord]"


def same_config(config: ConfigRecord) -> Configure:
    """Return the user's `train_config` in every round, with Flower's `server-round`, counted from 1."""
    return lambda index, _: ConfigRecord({**config, "server-round": index + 1})


# Pseudonyms -> indices in the population.
Register = Callable[[NDArray[np.uint64]], Users]


class Dialect(Protocol):
    """One way to talk to nodes."""

    name: str
    # Whether instructions have records of Fieldfare's: the run's terms, and how replies are masked.
    tells: bool

    def roster(self, schema: Schema, run_id: str, register_users: Register) -> Roster:
        """Return the roster of who is there."""

    def write(
        self, round: PublicRound, schema: Schema, by_node: Mapping[int, NDArray[np.uint64]]
    ) -> tuple[list[Message], Reader | None]:
        """Return the instructions of a round, and how their replies are read (None: as sums of a cohort).

        One a node, in the order of `by_node`; where metrics are those of evaluations, as many for these come
        first.

        by_node: pseudonyms of the users whom each node is asked to train.
        """


class CohortDialect:
    """Fieldfare's own messages: many users a node.

    Args:
        configure: what the app sends to the training loop; None: nothing.
        asked: the `[task]` table of a run that asks a question; None: the run trains.
        models: the released models that the question is about, by their runs.
    """

    name, tells = "cohort", True

    def __init__(
        self,
        configure: Configure | None = None,
        asked: Mapping[str, object] | None = None,
        models: Mapping[str, Arrays] | None = None,
    ) -> None:
        self._configure = configure
        self._query = None if asked is None else write_question(asked)
        self._more: dict[str, ArrayRecord | ConfigRecord] = dict(self._query or {})
        self._more.update(write_question_models(models or {}))

    def roster(self, schema: Schema, run_id: str, register_users: Register) -> Roster:
        return Roster(schema, run_id, register_users, query=self._query)

    def write(
        self, round: PublicRound, schema: Schema, by_node: Mapping[int, NDArray[np.uint64]]
    ) -> tuple[list[Message], Reader | None]:
        points, weights, shares, batches = round.points
        arrays = tuple(schema.arrays(point) for point in points)
        # Encoded once and shared: a message costs one reference, not one model.
        encoded: dict[str, ArrayRecord | ConfigRecord] = {**write_points(arrays), **self._more}
        index = round.occasion.round
        config = None if self._configure is None else self._configure(index, points[0])
        messages = []
        for node, names in by_node.items():
            instruction = TrainInstruction(
                round.occasion,
                arrays,
                weights,
                names,
                dict(round.settings),
                len(shares),
                index if batches is None else batches,
                config,
            )
            messages.append(addressed(round, instruction.write(encoded), node))
        return messages, None


@dataclass(eq=False)
class PlainDialect:
    """Flower's own messages: one user a node, and a ClientApp that stays as it is.

    Args:
        model: the app's arrays.
        configure: what the app sends beside the arrays.
        simulated: nodes of Flower's simulation, whose identities last one run.
        record_keys: the names of the two records, arrays first, as FedAvg's.
        deltas: clients reply with the change of each array, not with its new value.
        clip_on_nodes: also send the norm under Flower's own key, for a mod that clips before anything leaves
            the node.
        evaluate_config: what evaluations get beside the arrays, with "server-round".
        tells: also send what `mods=[ff.masked]` and `mods=[ff.budget]` read, and take out.
        asks: ask each node first whether it is the blinder.
    """

    name = "plain"

    model: OwnModel
    configure: Configure
    _: KW_ONLY
    simulated: bool = False
    record_keys: tuple[str, str] = ("arrays", "config")
    deltas: bool = False
    clip_on_nodes: bool = False
    evaluate_config: Configure | None = None
    tells: bool = False
    asks: bool = False

    def roster(self, schema: Schema, run_id: str, register_users: Register) -> Roster:
        return KeyRoster(schema, run_id, register_users, simulated=self.simulated, asks=self.asks)

    def write(
        self, round: PublicRound, schema: Schema, by_node: Mapping[int, NDArray[np.uint64]]
    ) -> tuple[list[Message], Reader | None]:
        (point, *others), (weight, *more), (share, *queries), _ = round.points
        if others or more or queries or (weight, share) != (1.0, 1.0):
            why = "it asks clients to train from several points, which Flower's own messages cannot say."
            raise Unsupported("server_optimizer", why, "kind = 'sgd' or 'fedadam'; or dialect = 'cohort'")
        sent = self.model.sent(point)
        encoded = self.model.encoded(point)
        config = self.configure(round.occasion.round, point)
        if self.clip_on_nodes:
            config[CLIPPING_NORM] = round.clipping.norm
        sends = [(TRAIN, config)]
        if round.metrics is not None and round.metrics.evaluate:
            configure = self.evaluate_config or same_config(ConfigRecord())
            sends.insert(0, (EVALUATE, configure(round.occasion.round, point)))
        weights = tuple(self.model.weights[name] for name in schema.names)
        told_mods = PlainInstruction(round.occasion, dict(round.settings), schema.names, weights, self.deltas)
        arrays_as, config_as = self.record_keys
        messages = []
        for kind, told in sends:
            for node in by_node:
                # Each message has its own records: a ClientApp may empty the ones that it gets.
                content = RecordDict({arrays_as: ArrayRecord(encoded), config_as: ConfigRecord(dict(told))})
                if self.tells:
                    content[HEADER] = told_mods.write()
                messages.append(addressed(round, content, node, kind))
        base = {name: np.zeros_like(value) for name, value in sent.items()} if self.deltas else sent
        reader = functools.partial(read_plain_reply, self.model, schema, base, round.clipping, round.metrics)
        return messages, reader


def addressed(round: PublicRound, content: RecordDict, node: int, kind: str = TRAIN) -> Message:
    """Return one message of a round, in a group that nobody can guess."""
    group = fresh_group(round.occasion.run, round.occasion.round)
    return Message(content, node, kind, ttl=round.timeout + SPARE_SECONDS, group_id=group)


def read_plain_reply(
    model: OwnModel,
    schema: Schema,
    base: Arrays,
    spec: ClippingSpec,
    metrics: MetricsSpec | None,
    content: RecordDict,
    sent: int,
) -> Contribution:
    """Read one user's update from a reply of any ClientApp: arrays less what was sent, clipped here by the
    plan's clipping.

    An update that is not finite is zero, and counts: whether a user takes part must not follow from what the
    user trained (C2 of `fieldfare.accounting.individual`). Arrays that are not trained are not even decoded,
    and of metrics only those that the plan lists are read.

    Raises:
        BadReply: with reason `schema`, `dtype` or `shape`.
    """
    records = list(records_of(content, ArrayRecord).values())
    if len(records) != 1:
        raise BadReply("schema", "not one ArrayRecord")
    record = records[0]
    if not set(schema.names) <= set(record) <= set(model.values):
        raise BadReply("schema", "a trained array is missing, or an array was not sent")
    arrays = [
        (read_array(record[name], FLOATS, shape), base[name], model.weights[name])
        for name, shape in zip(schema.names, schema.shapes, strict=True)
    ]

    def changes(position: int) -> Iterator[NDArray[np.float64]]:
        values, start, weight = arrays[position]
        with np.errstate(over="ignore", invalid="ignore"):
            for after, before in zip(split_chunks(values), split_chunks(start), strict=True):
                change = np.subtract(after, before, dtype=np.float64)
                if weight != 1.0:
                    change *= weight
                yield change

    def nothing(position: int) -> Iterator[NDArray[np.float64]]:
        return split_chunks(np.zeros(arrays[position][0].size))

    finite = math.isfinite(sum(squared_norm(changes(position)) for position in range(len(arrays))))
    own_data.note(1, Counter() if finite else Counter({"update that is not finite": 1}), content)
    update = changes if finite else nothing
    # Metrics of an evaluation join the sum later (`Aggregate.ride`); until then they stand in the middle.
    riding = () if metrics is None else read_metrics(metrics, RecordDict() if metrics.evaluate else content)
    if isinstance(spec, Flat) and spec.linf_filter is None:
        return Contribution(1, riding, update, clipped_by_node=False)
    return _clip_whole(schema, spec, riding, update)


def _clip_whole(
    schema: Schema,
    spec: ClippingSpec,
    riding: tuple[float, ...],
    changes: Callable[[int], Iterator[NDArray[np.float64]]],
) -> Contribution:
    """Return the update clipped as a node of the cohort dialect clips it, which needs all of it at once."""
    update = torch.empty((1, schema.numel))
    for position, location in enumerate(schema.slices()):
        start = location.start
        for chunk in changes(position):
            update[0, start : start + chunk.size] = torch.from_numpy(chunk)
            start += chunk.size
    counts = (float(clipping.count_over(update, spec)),) if spec.counts else ()
    clipping.clip_(update, spec, schema.slices())
    flat, places = update[0].numpy(), schema.slices()
    return Contribution(
        1, counts + riding, lambda position: (c.astype(np.float64) for c in split_chunks(flat[places[position]])), False
    )
