"""One app with its own training loop: who its users are, and how a message becomes a sum of clipped updates.

The sum of a node changes by at most the clip norm with one user because each user's update is a function of
that user's data, the instruction and the user's seed alone. So every user finds the model, the generators,
the Context and the config as if they were the first.
"""

from __future__ import annotations

import copy
import logging
import math
import mmap
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from fieldfare.clipping import Flat, clip_one
from fieldfare.errors import FieldfareError, NotFound, NotGiven, NotNow, OutOfRange, Unsupported, WrongForm
from fieldfare.lazily import has_torch, torch
from fieldfare.questions import Question, parse
from fieldfare.schema import Arrays, pseudonyms
from fieldfare_client import budget, forked, witness
from fieldfare_client.masking import mask_reply, masking_of
from fieldfare_client.mods import answered
from fieldfare_client.own_randomness import own_randomness, uses_cuda
from fieldfare_client.private.local_arrays import LocalArrays
from fieldfare_client.private.progress import Progress
from fieldfare_client.settings import TrainingSettings
from fieldfare_client.training.schedule import user_keys
from fieldfare_flower import logs, own_data
from fieldfare_flower.messages import (
    HEADER,
    TrainInstruction,
    TrainReply,
    read_question,
    records_of,
    write_users,
    write_witness,
)

if TYPE_CHECKING:
    from fieldfare_client.private.local_model import LocalModel

log = logging.getLogger("fieldfare.client")

Build = Callable[[], Any]
Measure = Callable[[str, str, Context], Any]
Loop = Callable[[Any, str, Context, dict[str, Any]], Any]
ListUsers = Callable[[Context], Iterable[str]]
Isolation = Literal["auto", "process", "none"]
ROUND = "server-round"
CLIPPING_NORM = "clipping_norm"  # the key under which Flower sends a clip norm to clients


class WrongDialect(FieldfareError):
    """A plain instruction came to a node of several users, to which one model is no answer."""


class LostDevice(FieldfareError):
    """The GPU does not answer any more: no later user of this process can train."""


@dataclass(frozen=True)
class Instruction:
    """What one round asks of every user of a node."""

    points: Sequence[Arrays]  # trained parameters by name, float32, writable
    weights: Sequence[float]  # a weight a point for each query, one query after another, (queries x points,)
    seed: int
    batches: int
    config: Mapping[str, object]


class UserList:
    """The users of a node, as its app lists them."""

    def __init__(self, function: ListUsers) -> None:
        self._function = function
        self.node: AppNode | None = None  # whose loop trains them

    def read(self, context: Context) -> dict[int, str]:
        """Return the ids of the users that this node hosts, by pseudonym. Raises `BadInput`, which quotes no id."""
        ids = self._function(copied(context))
        if isinstance(ids, str):  # its letters would be users
            raise WrongForm("@ff.private.users", "one string is no list of ids.", "[id]")
        ids = list(ids)
        if odd := sum(not isinstance(user, str) for user in ids):
            raise WrongForm("@ff.private.users", f"{odd} of {len(ids)} ids are not strings.", "str(id)")
        if repeated := len(ids) - len(set(ids)):
            raise WrongForm("@ff.private.users", f"{repeated} of {len(ids)} ids occur before in the list.", "each once")
        named = dict(zip(pseudonyms(ids).tolist(), ids, strict=True))
        if len(named) < len(ids):
            raise WrongForm("@ff.private.users", "two ids have the same 64-bit pseudonym.", "longer ids")
        return named

    def answer(self, message: Message, context: Context) -> Message:
        """Reply with the pseudonyms of the users, and the digest of the model that they train."""
        logs.configure_app()
        if self.node is None:
            near = "@app.train() above @ff.private.train(build), in the same module"
            raise NotGiven("@ff.private.users", "there is no training loop in its module.", near)
        names = np.fromiter(self.read(context), np.uint64)
        question = self.node.question_of(message)
        schema = self.node.model.schema if question is None else question.answer_schema
        content = budget.list_payable(message, write_users(names, schema))
        content.update(write_witness(witness.remembered(context)))
        return Message(content, reply_to=message)


class AppNode:
    """The model and the loop of one app. Keeps the model between messages, no results."""

    def __init__(
        self, loop: Loop, build: Build, rebuild: bool, user_list: UserList | None, isolation: Isolation = "auto"
    ) -> None:
        self._loop, self._build, self._rebuild, self.isolation = loop, build, rebuild, isolation
        self.user_list = user_list
        self.measure: Measure | None = None  # answers questions about a user
        # Where a forked child leaves the updates of its user, (queries, d).
        self._shared: NDArray[np.float32] | None = None
        self._said = ""
        self._until = math.inf  # when children of the newest message end at the latest, of `time.monotonic`
        self._model: LocalModel | LocalArrays | None = None
        self.reported: dict[str, float] = {}  # what the loop has told `ff.private.metric` of the newest user
        self.has_trained = False  # whether the loop was called in this process: it may have left something

    @property
    def model(self) -> LocalModel | LocalArrays:
        """The model, built at its first use. Raises `BadInput` where `build` makes something else."""
        if self._model is None:
            with own_randomness(0):
                built = self._build()
            if has_torch() and isinstance(built, torch.nn.Module):
                from fieldfare_client.private.local_model import LocalModel  # imports PyTorch

                self._model = LocalModel(self._build, self._rebuild, built)
            else:
                self._model = LocalArrays(built, self._rebuild)
        return self._model

    # -- messages --------------------------------------------------------------------------------------------

    def answer(self, message: Message, context: Context) -> Message:
        """Reply with the sum of the users' clipped updates, or to a plain instruction with the one user's model."""
        logs.configure_app()
        if self.user_list is None:
            near = '@app.query("users") above @ff.private.users, in the same module'
            raise NotGiven("@ff.private.train", "there is no list of users in its module.", near)
        self._until = time.monotonic() + message.metadata.ttl  # from when on nobody wants the reply
        masking = masking_of(context, message.content)  # before anything is done for a server that it does not answer
        users = self.user_list.read(context)
        if HEADER not in records_of(message.content, ConfigRecord):
            return self._answer_plainly(message, context, users)
        witness.watch(context, message.content)
        question = self.question_of(message)
        schema = self.model.schema if question is None else question.answer_schema
        read = TrainInstruction.read(message.content, schema)
        with logs.about(read.occasion.run, read.occasion.round):
            settings = TrainingSettings.parse(read.settings)
            if settings.riders.weights and read.queries > 1:
                raise Unsupported("several queries", "have no one norm to count users by.", "flat")
            asked = read.users.tolist()
            if len(set(asked)) < len(asked):
                raise WrongForm("cohort", "names a user twice.")
            if missing := sum(name not in users for name in asked):
                raise NotFound("cohort", f"{missing} of {len(asked)} asked users are not hosted here.")
            cost = budget.charge(message)  # before anybody trains
            # Copies: arrays read from the wire are read-only views of the message.
            points = [{name: np.array(value) for name, value in point.items()} for point in read.points]
            config = {**(read.config or {}), ROUND: read.occasion.round + 1}
            instruction = Instruction(points, read.weights, settings.seed, read.batches, config)
            total, layout = np.zeros((read.queries, schema.numel)), schema.slices()
            counts, metrics = np.zeros(len(settings.riders.weights)), settings.metrics
            failures: Counter[str] = Counter()
            progress = Progress(len(asked))
            for name in asked:
                if question is None:
                    updates = self.updates(instruction, name, users[name], context, failures)
                else:
                    updates = [self.contribution(question, users[name], context, failures)]
                riding = () if metrics is None else metrics.centred(self._listed(metrics.names)).tolist()
                for query, update in zip(total, updates, strict=True):
                    counts += (*clip_one(update, settings.clipping, layout), *riding)
                    query += update
                progress.count()
            if question is not None and own_data.tally_here():
                failures.clear()  # who asks would read them beside the answer, uncharged
            _report(failures, len(asked))
            riders, flat = tuple(counts.tolist()), total.reshape(-1).astype(np.float32)
            if masking is None:
                sums = schema.stacked(read.queries).split(flat)
                content = TrainReply(read.occasion, sums, len(asked), riders).write()
            else:
                if time.monotonic() >= self._until:
                    # The server chose the time, for each node: a sum would have zeros of all but one of them.
                    why = "its time is over, and who trained no longer would count as zero."
                    raise NotNow("a masked reply", why, "a longer run.round_timeout")
                content = mask_reply(masking, context, cost, read.occasion, flat, len(asked), riders)
            own_data.note(len(asked), failures, content)
        answered.set(True)
        return Message(content, reply_to=message)

    def _answer_plainly(self, message: Message, context: Context, users: Mapping[int, str]) -> Message:
        """Reply to Flower's own instruction: the model after its user's training, a count of 1, and what it told."""
        budget.refuse_plain()
        if len(users) != 1:
            raise WrongDialect(
                f"this node trains {len(users)} users with ff.private, and a plain instruction is for one: set "
                'dialect = "cohort"'
            )
        records, settings = records_of(message.content, ArrayRecord), records_of(message.content, ConfigRecord)
        if len(records) != 1 or len(settings) > 1:
            raise WrongForm("the instruction", f"has {len(records)} ArrayRecords and {len(settings)} ConfigRecords.")
        ((record_name, record),) = records.items()
        sent = {name: np.array(array.numpy()) for name, array in record.items()}
        model = self.model
        self._check_names(sent)
        model.set_public({name: value for name, value in sent.items() if name not in model.schema.names})
        config = dict(next(iter(settings.values()), {}))
        point = {name: sent[name].astype(np.float32) for name in model.schema.names}
        ((name, user),) = users.items()
        turn = config.get(ROUND)
        instruction = Instruction([point], [1.0], context.run_id, turn if type(turn) is int else 0, config)
        failures: Counter[str] = Counter()
        (update,) = self.updates(instruction, name, user, context, failures)
        _report(failures, 1)
        if CLIPPING_NORM in config:
            clip_one(update, Flat(norm=norm_of(config)), model.schema.slices())
        arrays = dict(record)
        for trained, change in model.schema.split(update).items():
            after = sent[trained].astype(np.float64) + change.astype(np.float64)
            arrays[trained] = Array(after.astype(sent[trained].dtype))
        told = {name: value for name, value in self.reported.items() if math.isfinite(value)}
        metrics = MetricRecord({**told, "num-examples": 1})
        content = RecordDict({record_name: ArrayRecord(arrays), "metrics": metrics})
        own_data.note(1, failures, content)
        return Message(content, reply_to=message)

    def _check_names(self, sent: Arrays) -> None:
        expected = dict(zip(self.model.schema.names, self.model.schema.shapes, strict=True))
        if missing := sorted(expected.keys() - sent.keys()):
            raise WrongForm("the instruction", f"lacks {len(missing)} arrays that the model trains: {missing[0]!r}.")
        odd = next((name for name, shape in expected.items() if sent[name].shape != shape), None)
        if odd is not None:
            raise WrongForm(f"array {odd!r}", f"has shape {tuple(sent[odd].shape)}.", str(expected[odd]))

    def question_of(self, message: Message) -> Question | None:
        """Return what is asked of users in place of training. Raises `BadInput` where this app does not measure it."""
        asked = read_question(message.content)
        if asked is None:
            return None
        question = parse(asked["question"])
        if self.measure is None or question.is_of_task:
            why = f"does not answer a question of {question.measure!r} here."
            raise WrongForm("@ff.private.measure", why, "a measure(user, name, context) below the training loop")
        return question

    def contribution(
        self, question: Question, user: str, context: Context, failures: Counter[str]
    ) -> NDArray[np.float32]:
        """Return one user's contribution to an answer, float32 (width,); zero, and counted in `failures`,
        where it fails.

        In a child of its own, as `updates`.
        """
        if not self._trains_apart():
            return self._contribution_here(question, user, context, failures)

        def measure() -> dict[str, object]:
            failed: Counter[str] = Counter()
            return {"told": self._contribution_here(question, user, context, failed).tolist(), "failed": failed}

        answer = self._ask(measure, failures)
        return np.array(answer["told"] if answer else np.zeros(question.width), np.float32)

    def _contribution_here(
        self, question: Question, user: str, context: Context, failures: Counter[str]
    ) -> NDArray[np.float32]:
        """Do as `contribution`, in this process."""
        assert self.measure is not None  # `question_of`
        told: dict[str, list[float]] = {}
        try:
            for name in question.named:
                with own_randomness(0):
                    told[name] = np.atleast_1d(np.asarray(self.measure(user, name, copied(context)), float)).tolist()
            found = question.contributions(question.of_one(told))[0]
        except Exception as error:  # any: it is the app's code and the user's data
            failures[f"{type(error).__name__} at {_place(error, self.measure)}"] += 1
            log.debug("a user's measure failed", exc_info=True)
            return np.zeros(question.width, np.float32)
        return np.asarray(found, np.float32)

    # -- one user --------------------------------------------------------------------------------------------

    def _listed(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Return what the loop told of the newest user, shape (k,); NaN for what it did not."""
        return np.array([self.reported.get(name, math.nan) for name in names])

    def updates(
        self, instruction: Instruction, name: int, user: str, context: Context, failures: Counter[str]
    ) -> list[NDArray[np.float32]]:
        """Return one user's update for each query, float32 (d,), not clipped; zero, and counted in
        `failures`, where it fails.

        In a child of its own where `isolation` has it so. Raises only what ends the node's task:
        KeyboardInterrupt, `LostDevice` and, in this process, SystemExit.
        """
        if not self._trains_apart():
            return self._updates_here(instruction, name, user, context, failures)
        shape = len(instruction.weights) // len(instruction.points), self.model.schema.numel
        if self._shared is None or self._shared.shape != shape:
            self._shared = np.frombuffer(mmap.mmap(-1, 4 * shape[0] * shape[1]), np.float32).reshape(shape)
        shared = self._shared

        def train() -> dict[str, object]:
            failed: Counter[str] = Counter()
            shared[:] = self._updates_here(instruction, name, user, context, failed)
            return {"failed": failed, "reported": self.reported}

        answer = self._ask(train, failures, shared)
        if answer is None:
            self.reported = {}
            return list(np.zeros(shape, np.float32))
        self.reported = answer["reported"]
        return list(shared.copy())

    def _trains_apart(self) -> bool:
        """Return whether users have children of their own; says once why not, where they should. Raises as
        `is_apart`.
        """
        apart, why = forked.is_apart(self.isolation, wanted=True)
        if why and why != self._said:
            log.warning("every user trains in this process, and what a loop keeps there reaches the next one: %s", why)
        self._said = why
        return apart

    def _ask(
        self, work: Callable[[], dict[str, Any]], failures: Counter[str], into: NDArray[np.float32] | None = None
    ) -> dict[str, Any] | None:
        """Return what `work` says in a child, its `failed` added to `failures`; None where it ended without a word."""
        try:
            answer = forked.ask(work, self._until, into)
        except (forked.Ended, OSError) as error:
            failures[str(error) if isinstance(error, forked.Ended) else type(error).__name__] += 1
            return None
        failures.update(answer["failed"])
        return answer

    def _updates_here(
        self, instruction: Instruction, name: int, user: str, context: Context, failures: Counter[str]
    ) -> list[NDArray[np.float32]]:
        """Do as `updates`, in this process."""
        points, weights = instruction.points, instruction.weights
        queries = len(weights) // len(points)
        numel = self.model.schema.numel
        self.reported = {}
        try:
            combined = np.zeros((queries, numel), np.float32)
            for place, point in enumerate(points):
                shares = weights[place :: len(points)]
                if not any(shares):
                    continue
                update = self.train_once(instruction, point, name, user, context)
                if len(weights) == 1:
                    update *= np.float32(shares[0])
                    combined = update[None]
                    break
                for query, share in zip(combined, shares, strict=True):
                    query += np.float32(share) * update
            if not np.isfinite(combined).all():
                failures["update that is not finite"] += 1
                combined = np.zeros((queries, numel), np.float32)
        except Exception as error:  # any: it is the app's code and the user's data
            _require_device(error)
            combined, self.reported = np.zeros((queries, numel), np.float32), {}
            # For the node's operator. The text may quote a user's data, so it is shown only where it is asked for.
            failures[f"{type(error).__name__} at {_place(error, self._loop)}"] += 1
            own_data.note_error(error)
            log.debug("a user's training failed", exc_info=True)
        return list(combined)

    def train_once(
        self, instruction: Instruction, point: Arrays, name: int, user: str, context: Context
    ) -> NDArray[np.float32]:
        """Train one user from `point`; the update, float32 (d,). Raises what the loop raises, or `Altered`.

        Args:
            instruction: of the round.
            point: the arrays from which the user trains.
            name: the user's pseudonym, from which the generators are seeded.
            user: the user's id, as the app's own list has it.
            context: the node's, of which the loop gets a copy.
        """
        model, self.has_trained = self.model.load(point), True
        key = int(user_keys(np.array([name], np.uint64), instruction.seed, instruction.batches)[0])
        with own_randomness(key), _told() as told:
            returned = self._loop(model, user, copied(context), copy.deepcopy(dict(instruction.config)))
        self.reported = {**told, **self.reported}  # of several points the first counts
        update = np.empty(self.model.schema.numel, np.float32)
        self.model.read(point, update, returned)
        return update


# What the loop that runs just now has told `metric`; one node of a process trains at a time.
_telling: list[dict[str, float]] = []


def metric(name: str, value: float) -> None:
    """Tell a number of the user who trains: call it in the function under `@ff.private.train`.

    Where the server's plan lists `name` in `[metrics]`, the number is cut to its public bounds, noised
    together with the user's update, and shown as a mean over users. What is not listed goes nowhere; of a
    node with one user under the plain dialect, it goes to the server, as Flower's own metrics do. Told twice,
    the last one counts. To say how good the model was that came from the server, measure before training.

    Raises:
        BadInput: outside of a training loop.
    """
    if not _telling:
        raise NotNow(f"ff.private.metric({name!r})", "is called outside of a training loop.", "in it")
    _telling[-1][str(name)] = float(value)


@contextmanager
def _told() -> Iterator[dict[str, float]]:
    """Collect what the loop tells `metric` inside the block."""
    _telling.append({})
    try:
        yield _telling[-1]
    finally:
        _telling.pop()


def copied(context: Context) -> Context:
    """Return a Context of one user's own, with an empty state: what a loop writes there must not reach the
    next user's.
    """
    own = copy.copy(context)
    own.node_config, own.run_config = dict(context.node_config), dict(context.run_config)
    own.state = RecordDict()
    return own


def norm_of(config: Mapping[str, object]) -> float:
    """Return the clip norm of an instruction. Raises `BadInput` unless it is a positive number."""
    norm = config[CLIPPING_NORM]
    if isinstance(norm, bool) or not isinstance(norm, int | float) or not 0 < norm < math.inf:
        raise OutOfRange(f"{CLIPPING_NORM} = {norm!r}", "is not a clip norm.", "1.0")
    return float(norm)


def _report(failures: Counter[str], users: int) -> None:
    """Say to the node's operator how many users contribute zero, and why. The server learns nothing of it."""
    if failures:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(failures.items()))
        told = failures.total(), users, kinds
        log.warning("%d of %d users contribute zero: %s (FIELDFARE_LOG_LEVEL=debug shows the texts)", *told)


def _require_device(error: Exception) -> None:
    """Raise `LostDevice` where `error` has left CUDA unusable for this process."""
    if not uses_cuda() or not isinstance(error, RuntimeError):
        return
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        raise LostDevice("CUDA does not work any more in this process; the node's log has the first error") from error


def _place(error: Exception, loop: Loop | Measure) -> str:
    """Return where it happened: the innermost line of the loop's own file, else the innermost of all."""
    frames = traceback.extract_tb(error.__traceback__)
    code = getattr(loop, "__code__", None)
    own = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
    frame = (own or frames)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"
