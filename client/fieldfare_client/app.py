"""The Flower ClientApp: the same one in process, under Ray, and in a SuperNode's ClientApp process.

Where a node's configuration comes from; the first that is set counts:

* `task`: the node's own configuration (`--node-config 'task="flights"'`), FIELDFARE_TASK, the run's
  configuration. Never from a message: the server does not choose what code a node imports.
* which users it hosts: `partition-id` and `num-partitions` of the node's configuration; without them, all.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np
import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from fieldfare.errors import BadInput, NotGiven, WrongForm
from fieldfare.names import QUESTION
from fieldfare.schema import Schema
from fieldfare.signed_terms import NodeBudgetRefused
from fieldfare.task import Task, load_task
from fieldfare_client import budget, witness
from fieldfare_client.check import check_task
from fieldfare_client.masking import mask_reply, masking_of
from fieldfare_client.questions import QuestionTask, asked_reference, asked_schema
from fieldfare_client.settings import TrainingSettings
from fieldfare_client.shared_users import users_of
from fieldfare_client.task_faults import Faulty
from fieldfare_client.told import refusal, without_text
from fieldfare_client.training.clip import clip_with, trainer_of
from fieldfare_client.training.cores import CoreChoice, processes
from fieldfare_client.training.schedule import steps_of
from fieldfare_client.training.trainer import CohortUpdate, Trainer
from fieldfare_client.training.workers import WorkersLost, WorkerTrainer
from fieldfare_client.users import UserTable
from fieldfare_flower import logs, own_data
from fieldfare_flower.messages import TrainInstruction, TrainReply, write_users, write_witness

log = logging.getLogger("fieldfare.client")

app = ClientApp()
# Held by a node of this process that uses what all of them share: tasks and their users, the trainer, its model.
_shared = threading.RLock()
ANY_CLIPPING = {"kind": "flat", "norm": 1.0}
"""Stands for the clipping in the key of a trainer. Each instruction sets its own: adaptive clipping changes the norm
every round."""


@dataclass(frozen=True)
class Hosted:
    """What a node hosts: a task and its users."""

    name: str  # what `load_task` knows the task by
    task: Task
    all_users: UserTable
    table: UserTable  # those of `all_users` whom this node hosts
    schema: Schema
    order: NDArray[np.int64]  # indices into the table by increasing pseudonym
    names: NDArray[np.uint64]  # the pseudonyms, increasing

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """Where the table's users are in `all_users`, which may be selected from a larger table, too."""
        return np.flatnonzero(np.isin(self.all_users.pseudonyms, self.table.pseudonyms))

    def find(self, names: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Find the table indices of those of `names` whom this node hosts. Costs as much as there are `names`."""
        if not len(self.names):
            return np.zeros(0, np.int64)
        places = np.searchsorted(self.names, names)
        # A name behind the last is sought at the first place, whose name it is not.
        places[places == len(self.names)] = 0
        found: NDArray[np.int64] = self.order[places[self.names[places] == names]]
        return found


@lru_cache(maxsize=128)
def task_of(name: str) -> Task:
    """Return the task of all nodes that this process simulates."""
    return load_task(name)


@lru_cache(maxsize=128)
def _hosted(name: str, index: int, count: int) -> Hosted:
    task = task_of(name)
    # What is measured of users when they are asked is no copy that processes could share.
    asks = isinstance(task, QuestionTask) and task.question.is_of_task
    users = task.users() if asks else users_of(name, task)
    if not isinstance(users, UserTable):
        raise WrongForm(f"run.task = {name!r}", "its users() is not a fieldfare_client.users.UserTable.")
    table = users if count == 1 else users.partition(index, count)
    order = np.argsort(table.pseudonyms, kind="stable").astype(np.int64)
    return Hosted(name, task, users, table, Schema.of(task.build_model()), order, table.pseudonyms[order])


def user_names(name: str) -> NDArray[np.uint64]:
    """Return the pseudonyms of all users of the task `name`. Reads its data, which nodes of this process then share."""
    return _hosted(name, 0, 1).table.pseudonyms


def require_measurable(reference: str) -> None:
    """Try the measure of a question's task on a made-up row, where one person has node, server and data.

    For whom of the users it fails is not looked at, and never said: that would be a second, uncharged answer. Raises
    `BadInput` for an unknown measure, and where it fails: on a node of its own that would count, and cost, as any
    other answer.
    """
    task = _hosted(reference, 0, 1).task  # which answers
    if isinstance(task, QuestionTask) and task.question.is_of_task:
        task.says_failures = False
        if failed := task.failures_on_made_up():
            what = f"question.measure = {task.question.measure!r}"
            raise BadInput(what, f"it fails on made-up rows: {', '.join(failed)}.", code="measure-fails")


def forget_users() -> None:
    """Let go of the tasks that this process has loaded, and of their users; the next message reads them again."""
    for cache in (task_of, _hosted, _unclipped, _checked):
        cache.cache_clear()
    _POOL.forget()


def preload() -> None:
    """Read the users of the task that FIELDFARE_WARM_TASK names once, in a warm parent: all later tasks share them.
    Where it names none, import what PyTorch's optimizers need at their first step: a Flower app trains with them.

    Set it only where the data do not change while the executor runs, and where importing the task's module
    draws no random numbers, which all tasks would then share. Raises `BadInput` for an unknown task.
    """
    if task := os.environ.get("FIELDFARE_WARM_TASK"):
        user_names(task)
    else:  # PyTorch's optimizers import this at their first step: seconds, for each message
        import torch._dynamo  # noqa: F401


def task_name(context: Context) -> str:
    """Return the task that this node trains. Raises `BadInput` where no configuration names one, and
    `NodeBudgetRefused` for a run's where the node keeps a budget: the task says who its users are.
    """
    own, near = context.node_config.get("task") or os.environ.get("FIELDFARE_TASK"), 'node-config task="flights"'
    if not (name := own or context.run_config.get("task")):
        raise NotGiven("task", "neither the node nor the run says which task to train.", near)
    if not own and budget.is_kept() and own_data.tally_here() is None:
        raise NodeBudgetRefused(f"task {str(name)[:80]!r} of the run", nearest=near, reason="no-task")
    return str(name)


def hosted(context: Context, content: RecordDict | None = None) -> Hosted:
    """Load what this node hosts. Raises as `task_name`.

    content: of an instruction, which may ask a question of the users of this node's task (`asked_reference`).
    """
    node = context.node_config
    with _shared:
        name = task_name(context)
        if content is not None:
            name = asked_reference(name, content)
        return _hosted(name, int(node.get("partition-id", 0)), int(node.get("num-partitions", 1)))


@lru_cache(maxsize=8)
def _settings(told: str) -> tuple[TrainingSettings, str]:
    """Read the settings of an instruction, in JSON, and what of it is the same for all clip norms of a run."""
    settings = json.loads(told)
    return TrainingSettings.parse(settings), json.dumps({**settings, "clipping": ANY_CLIPPING})


def _trainer(name: str, settings_json: str, device: str) -> Trainer:
    """Return the trainer of these settings: one, and what it has traced, for all clip norms of a run."""
    settings, told = _settings(settings_json)
    trainer = _unclipped(name, told, device)
    trainer.clip = clip_with(settings.clipping, trainer.schema)
    return trainer


@lru_cache(maxsize=8)
def _unclipped(name: str, settings_json: str, device: str) -> Trainer:  # a task itself may have no hash: a dataclass
    return trainer_of(task_of(name), TrainingSettings.parse(json.loads(settings_json)), device)


class _Pool:
    """The process's training workers: one pool, kept from round to round, replaced when another one is needed."""

    def __init__(self) -> None:
        self._key: tuple[object, ...] = ()
        self._workers: WorkerTrainer | None = None
        self._choices: dict[tuple[object, ...], CoreChoice] = {}

    def choice(self, node: Hosted, settings: TrainingSettings, workers: int) -> CoreChoice:
        """Return how this process trains work of this kind where the plan leaves that open."""
        return self._choices.setdefault((node.name, settings.client.model_dump_json(), workers), CoreChoice())

    def get(self, node: Hosted, settings: TrainingSettings, workers: int, points: int, queries: int) -> WorkerTrainer:
        """Return a pool for these settings. The clipping may differ: it is given round by round."""
        # All that workers are told when they start: with another value they would train something else.
        own = settings.client, settings.seed, settings.isolated, settings.metrics
        key = node.name, workers, points, queries, *own
        if self._workers is None or self._key != key or not self._workers.alive:
            self.close()
            # For all users of the task, so that all nodes that this process simulates share it.
            self._workers = WorkerTrainer(
                node.name, settings, node.all_users, workers=workers, points=points, queries=queries, reader=node.task
            )
            self._key = key
        return self._workers

    def close(self) -> None:
        """End the workers, if there are any."""
        if self._workers is not None:
            self._workers.close()
        self._workers = None

    def forget(self) -> None:
        """End the workers, and choose again whether there are any."""
        self.close()
        self._choices.clear()


_POOL = _Pool()
atexit.register(_POOL.close)


def _train(node: Hosted, instruction: TrainInstruction, settings: TrainingSettings) -> CohortUpdate:
    """Train the users of the instruction whom this node hosts, in workers where the plan and the machine allow it."""
    # Copies: arrays read from the wire are read-only views of the message; torch wants writable memory.
    flat = ([point[name].reshape(-1) for name in node.schema.names] for point in instruction.points)
    points = [torch.from_numpy(np.concatenate(parts)) for parts in flat]
    users, weights, queries = node.find(instruction.users), instruction.weights, instruction.queries

    def alone() -> CohortUpdate:
        with _shared:
            trainer = _trainer(node.name, json.dumps(instruction.settings, sort_keys=True), _device())
            return trainer.train(points, weights, node.table, users, at_round=instruction.batches, queries=queries)

    def start() -> WorkerTrainer:
        with _shared:
            return _POOL.get(node, settings, workers, len(points), queries)

    def together(pool: WorkerTrainer) -> CohortUpdate:
        places, spec = node.places[users], settings.clipping  # the pool's users are all
        return pool.train(points, weights, places, at_round=instruction.batches, spec=spec, queries=queries)

    # The server may ask for workers; the machine limits how many. A GPU is not shared between processes.
    workers = processes(settings.client, node.name, queries * node.schema.numel)
    if workers == 1 or _device() != "cpu":
        return alone()
    if settings.client.workers == "auto":
        batches = int(steps_of(node.table.sizes_of(users), settings.client).sum())
        with _shared:
            choice = _POOL.choice(node, settings, workers)
        return _train_as_chosen(choice, batches, alone, start, together)
    while True:
        try:
            return together(start())
        except WorkersLost:  # with another node's users: these have not failed, and train again
            continue


def _train_as_chosen(
    choice: CoreChoice,
    batches: int,
    alone: Callable[[], CohortUpdate],
    start: Callable[[], WorkerTrainer],
    together: Callable[[WorkerTrainer], CohortUpdate],
) -> CohortUpdate:
    """Train a round in workers or alone, as `choice` has it, and tell it how long that took."""
    if choice.wants_workers:
        try:
            pool = start()
            if pool.ready():
                trained = 0
                choice.begin(time.perf_counter())
                try:
                    result = together(pool)
                    trained = batches
                finally:
                    choice.end(time.perf_counter(), trained)
                if choice.workers is False:  # alone was faster: their memory goes back
                    _POOL.close()
                return result
        except BadInput:
            raise
        except WorkersLost:
            pass  # with another node's users, or because they were not faster
        except Exception as error:
            # One process can do what the workers could not: they cost no round.
            _POOL.close()
            choice.give_up(f"the workers failed ({type(error).__name__})")
            log.warning("training goes on in one process, because the workers failed: %s", error)
    began = time.perf_counter()
    result = alone()
    choice.record(False, time.perf_counter() - began, batches)
    return result


@lru_cache(maxsize=8)
def _checked(name: str) -> tuple[str, UserTable | None]:
    """Return the kind of fault that the task has here, or "", and its users, who stay in memory for `hosted`."""
    try:
        report = check_task(name, on_node=True, load=task_of)
    except Faulty as fault:
        log.error("%s", fault)
        return fault.kind, None
    for warning in report.warnings:
        log.warning("task %s: %s", name, warning)
    return "", report.table


@app.query("users")
@without_text
def users(message: Message, context: Context) -> Message:
    """Reply with the pseudonyms of the users whom this node hosts, and with the schema of their model.

    The task is checked first. A node with a faulty task answers with the kind of the fault and hosts no user. A
    question in its place (`require_measurable`) would be answered twice.
    """
    logs.configure_app()
    with _shared:
        name = task_name(context)
        kind = "" if name.startswith(QUESTION) else _checked(name)[0]
    if kind:
        return refusal(f"TaskFault_{kind}", message)
    node = hosted(context)
    schema = asked_schema(message.content) or node.schema
    content = budget.list_payable(message, write_users(node.table.pseudonyms, schema))
    content.update(write_witness(witness.remembered(context)))
    return Message(content, reply_to=message)


@app.train()
@without_text
def train(message: Message, context: Context) -> Message:
    """Train the users of the cohort whom this node hosts; reply with the sum of their clipped updates."""
    logs.configure_app()
    masking = masking_of(context, message.content)  # before anything is done for a server that it does not answer
    witness.watch(context, message.content)
    cost = budget.charge(message)  # before anybody trains, or is asked
    masked = None if masking is None else partial(mask_reply, masking, context, cost)
    node = hosted(context, message.content)
    instruction = TrainInstruction.read(message.content, node.schema)
    with logs.about(instruction.occasion.run, instruction.occasion.round):
        return _answer(node, instruction, message, masked)


def _answer(
    node: Hosted, instruction: TrainInstruction, message: Message, masked: Callable[..., RecordDict] | None
) -> Message:
    settings, _ = _settings(json.dumps(instruction.settings, sort_keys=True))
    if isinstance(node.task, QuestionTask):
        places = node.table.positions(node.find(instruction.users))
        if masked is None and (told := node.task.told(instruction.occasion, places)) is not None:
            return Message(told, reply_to=message)
    result = _train(node, instruction, settings)
    if result.failures:
        # For the node's operator. The server learns nothing of it: a failing user counts, and contributes zero.
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(result.failures.items()))
        log.warning("%d of %d users contribute zero: %s", result.failures.total(), result.users, kinds)
    update = result.update.cpu().float()
    # Their sum first: looking at each takes several times as long.
    if not (bool(update.sum().isfinite()) or bool(torch.isfinite(update).all())):
        # Cannot happen after clipping; if it did, the server would have to drop this node's users.
        update = torch.zeros_like(update)
    counts = result.counts or (0.0,) * len(settings.riders.weights)
    if masked is None:
        sums = node.schema.stacked(instruction.queries).arrays(update)
        content = TrainReply(instruction.occasion, sums, result.users, counts).write()
    else:
        content = masked(instruction.occasion, update.numpy(), result.users, counts)
    own_data.note(result.users, result.failures, content)
    return Message(content, reply_to=message)


def _device() -> str:
    return os.environ.get("FIELDFARE_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")
