"""From a broadcast model and a cohort to the one thing that leaves a node: a sum of clipped updates, and a
count.

What invariant I4 needs of a node, and how it holds whatever the task's code does:

* *Isolation.* The task's code sees one user at a time. `prepare` is called with the rows of one user; engines
  map the loss over users; what a model changes besides its parameters is put back between users
  (`local_model`). No user's update is a function of another user's data.
* *Failures.* A user whose training raises, or whose update is not finite, contributes zero and counts. No bit
  of another's changes: the chunk is trained again in the same shape, with copies of another user's row.
* *Choice.* No user's data decide which engine trains the others: it is one that trains made-up rows. Users whom
  `prepare` gives rows of another shape train in the loop.
* *Presence.* The rounding of a batched product may depend on the number of users in the batch, which may be
  secret. So `isolated` trains users together only in chunks of which this machine was seen to give every user
  the same bits whoever else is in them (`isolation`), and others alone. A user's own rows decide which.
"""

from __future__ import annotations

import itertools
import logging
import math
import mmap
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.modules.conv import _ConvNd

from fieldfare.errors import Unsupported, WrongForm
from fieldfare.hashing import all_differ
from fieldfare.metrics import MetricsSpec
from fieldfare.plan_tables import ClientSpec
from fieldfare.schema import Schema
from fieldfare.task import Task
from fieldfare_client import forked
from fieldfare_client.own_randomness import own_randomness, python_generators, settings
from fieldfare_client.training.batched import BatchedEngine
from fieldfare_client.training.channels_last import ChannelsLastLoop
from fieldfare_client.training.choice import Candidate, EngineChoice, recall
from fieldfare_client.training.engines import Chunk, Engine
from fieldfare_client.training.isolation import BASE, WIDE, Apart, Isolation
from fieldfare_client.training.local_model import make_ready, one_dtype, why_alone
from fieldfare_client.training.loop import LoopEngine
from fieldfare_client.training.machine import clock, flushed_denormals, keep_freed_memory, same_bits_every_time
from fieldfare_client.training.measures import Measures
from fieldfare_client.training.rows import add_rows_, join, prepare_each, prepares_nothing, standard_dtypes
from fieldfare_client.training.schedule import schedule, steps_of, user_keys
from fieldfare_client.users import UserTable
from fieldfare_flower import own_data

log = logging.getLogger("fieldfare.client")

# Clips updates float32 (users, d) in place; may return sums over the users of scalars in [0, 1] to report.
Clip = Callable[[torch.Tensor], Sequence[float] | None]

# Of the updates that are held at once. On a CPU: about what its cache holds, measured; beyond it training slows.
CHUNK_BYTES = {"cpu": 10 * 2**20, "cuda": 2**30}
ALONE, OWN_PROCESS, WRITTEN = (
    "one user at a time",
    "each user trains in a process of its own",
    "a stack of linear layers, for which one batched product serves all users",
)
CONVOLVED = 250_000_000
"""Numbers of a batch x weights of convolutions beyond which, on a CPU, isolated users train one at a time: together
they were 1.1 to 1.4 times faster at 230 million, and had .9 and .76 of that speed at 280 and 590."""
CLIPPED = 64  # users whom a GPU clips at once, where they are isolated: always as many
# How many users the loop trains between two clippings, and in a chunk that is timed.
LOOP_USERS, LOOP_TRIAL = 16, 4


@dataclass(frozen=True)
class CohortUpdate:
    """The result of a cohort. A node sends the sum, the number of users and the counts: no loss, no norm,
    nothing about one user."""

    # Sum of the users' clipped updates, float64 (queries x d,): what rounding lets one user move, noise hides.
    update: torch.Tensor
    users: int
    counts: tuple[float, ...] = ()
    # How many users contributed zero because their training failed, by kind of error. Stays on the node.
    failures: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class _Work:
    """What one round asks of every user."""

    starts: list[torch.Tensor]  # the points to train from, float32 (d,) each
    weights: list[Sequence[float]]  # the weight of each point in each query
    table: UserTable
    at_round: int


class Trainer:
    """Trains cohorts of one task with one `ClientSpec`. Keeps engines between rounds, no results.

    Args:
        task: model, loss and data format.
        client: the local training of the plan.
        clip: clips the updates of a chunk.
        seed: of the order of batches (the run's public seed).
        device: where to train.
        isolated: a user's clipped update is the same bit for bit whether other users train or not. The
            float64 sum still rounds: `fieldfare.privatise.Grid.charged_clip` charges for that.
        metrics: what is measured of each user on the first point; the sums follow those of `clip`.
        apart: no Python of the task sees two users: what it keeps of a user in memory reaches nobody else.
            Each user trains in a copy-on-write child of this process (`fieldfare_client.forked`), or, where
            `client` leaves it open, on operations that were recorded before (`Engine.seal`).

    Raises:
        BadInput: the task lacks a metric, the model has nothing to train, or the plan says "batched" and this
            model trains one user at a time (`local_model` says which).
    """

    def __init__(
        self,
        task: Task,
        client: ClientSpec,
        clip: Clip,
        *,
        seed: int = 0,
        device: str | torch.device = "cpu",
        isolated: bool = False,
        metrics: MetricsSpec | None = None,
        apart: bool = False,
    ) -> None:
        self.task, self.client, self.clip, self.seed, self.apart = task, client, clip, seed, apart
        self.device, self.isolated = torch.device(device), isolated
        self._measures = None if metrics is None else Measures(task, metrics, self.device, isolated=isolated)
        self._model = make_ready(task.build_model().to(self.device))
        self.schema = Schema.of(self._model)
        if self.schema.numel == 0:
            raise WrongForm(f"run.task = {task.name!r}", "the model has no parameters to train.")
        # Of the decisions that other trainers of this process may share; `repr` of a model takes its time.
        self._identity: tuple[Hashable, ...] = (type(task), repr(self._model), client.model_dump_json(), str(device))
        if self.device.type == "cpu":
            keep_freed_memory()
        self._alone, self._dtype = why_alone(self._model), one_dtype(self._model)
        # Most measures are Python of the task that sees users.
        free = self._measures is None or self._measures.without_task
        open_ = isolated and free and client.engine == client.isolation == "auto"
        # Whether users for whom that can be train on recorded operations.
        self._sealed = apart and open_ and not self._alone and not hasattr(task, "known_updates")
        self._left: list[int] = []  # users of this call for whom it could not
        if apart and not self._sealed:
            self._alone = self._alone or OWN_PROCESS
        self._own_python = forked.has_own_python(task)
        if self._alone and client.engine == "batched":
            raise Unsupported(f"client.engine = 'batched' with run.task = {task.name!r}", f"{self._alone}.", "loop")
        _warn(self._model, task)
        self._choices: dict[Hashable, EngineChoice] = {}
        self._engines: dict[type[Engine], Engine] = {}
        self._works: dict[type[Engine], bool] = {}  # whether engines train made-up rows
        self._keeps_weights: bool | None = None  # whether the task reads its model's own weights
        # Inputs and targets of one made-up row, None until it is needed; empty where the task cannot prepare it.
        self._row: tuple[torch.Tensor, ...] | None = None
        self._room = 2**30  # the most users that the device's memory was seen to hold at once
        self._apart: Apart | None = None
        self._settings: tuple[object, ...] = ()  # torch's, for which `_apart` was found
        # The metrics of the newest chunk, where its rows could be prepared.
        self._measured: tuple[float, ...] | None = None

    def _engine(self, kind: type[Engine]) -> Engine:
        if kind not in self._engines:
            self._engines[kind] = kind(self._model, self.task, self.client)
        return self._engines[kind]

    def chunk_size(self, users: int) -> int:
        """Return how many users train at once in a batched engine, at most."""
        room = CHUNK_BYTES["cuda" if self.device.type == "cuda" else "cpu"]
        most = room // (4 * self.schema.numel)
        # A few large models gain nothing from each other, and would only take memory.
        return max(1, min(users, most)) if most >= 4 else 1

    def _made_up(self, table: UserTable) -> tuple[torch.Tensor, ...]:
        """Return inputs and targets of one row, (1, ...) each, with the shapes and dtypes of the rows of `table` but
        not their numbers; nothing where the task cannot prepare such.
        """
        if self._row is None:
            self._row = ()
            try:
                # One row of every column alone tells its shape and dtype; what is in it is not used.
                shapes = {name: column[np.zeros(1, np.int64)] for name, column in table.columns.items()}
                ones = {name: torch.from_numpy(np.ones_like(column)) for name, column in shapes.items()}
                ((inputs, targets),) = prepare_each(self.task, [ones], [0])
                self._row = self._floating(inputs), targets
            except Exception as error:
                kind = type(error).__name__
                log.warning("users train one at a time: the task cannot prepare made-up rows (%s)", kind)
        return self._row

    def _working(self, kind: type[Engine], table: UserTable) -> bool:
        """Return whether an engine trains made-up rows."""
        if kind not in self._works and (row := self._made_up(table)):
            run = partial(self._run, self._engine(kind))
            made_up = Isolation(run, row, self._start(), self.client, 2, None)
            try:
                made_up.train(np.arange(2), width := made_up.width(self.client.batch_size), width)
                self._works[kind] = True
            except Exception:  # whatever torch or the task raises
                log.warning("%s cannot train this model or loss; other engines do", kind.__name__)
                self._works[kind] = False
        return self._works.get(kind, False)

    def _batched(self, table: UserTable) -> BatchedEngine | None:
        """Return the engine that trains users at once, if it trains them as the loop does."""
        batched = self._engine(BatchedEngine)
        assert isinstance(batched, BatchedEngine)
        if self._keeps_weights is None and self._working(BatchedEngine, table):
            why = "the task reads its model's weights, which are not each user's"
            try:
                with own_randomness(0), flushed_denormals():
                    self._keeps_weights = batched.keeps_weights(*self._made_up(table))
            except Exception as error:  # whatever torch or the task raises of one row that is not mapped
                self._keeps_weights, why = True, f"made-up rows train together alone ({type(error).__name__})"
            if self._keeps_weights:
                log.warning("users train one at a time: %s", why)
        return None if self._keeps_weights in (None, True) else batched

    def _start(self) -> torch.Tensor:
        """Return the model as it is made, flat float32 (d,)."""
        return self.schema.flatten(dict(self._model.named_parameters())).detach().to(torch.float32)

    def _candidates(self, users: int, width: int, table: UserTable) -> EngineChoice:
        most = self.chunk_size(users)
        loop = self._engine(LoopEngine)
        one_by_one = Candidate(loop, min(most, LOOP_USERS), ALONE, LOOP_TRIAL)
        if self._apart is not None:
            # Of all cohorts of this shape, of which the first may be the smallest.
            return self._apart.candidates(min(int(2 ** (_bucket(users) + 0.5)), self.chunk_size(2**30)), width)
        if (known := getattr(self.task, "known_updates", None)) is not None:
            return EngineChoice([Candidate(self._engine(known), most, "no step")], "its updates are known")
        if self.client.engine == "loop":
            return EngineChoice([one_by_one], "the plan says so")
        if self._alone:
            return EngineChoice([one_by_one], self._alone)
        batched = self._batched(table)
        if batched is not None and batched.layers:
            return EngineChoice([Candidate(batched, most, f"{most} users at once")], WRITTEN)
        alone = [one_by_one]
        if ChannelsLastLoop.suits(self._model, self.device) and self._working(ChannelsLastLoop, table):
            arranged = self._engine(ChannelsLastLoop)
            alone.insert(0, replace(one_by_one, engine=arranged, label=f"{one_by_one.label} (channels last)"))
        if batched is None:
            return EngineChoice(alone, "batched training fails for this model or loss")
        mapped = [Candidate(batched, size, f"{size} users at once (vmap)") for size in sorted({most, min(most, 10)})]
        if self.client.engine == "batched":
            return EngineChoice(mapped[-1:], "the plan says so")
        return EngineChoice([*alone, *mapped], "")

    def explain(self) -> list[str]:
        """Return which engine trains, how many users at a time, and why: one line for every shape of work so far."""
        return [str(choice) for choice in self._choices.values()]

    def train(
        self,
        points: Sequence[torch.Tensor],
        weights: Sequence[float],
        table: UserTable,
        users: NDArray[np.int64],
        *,
        at_round: int,
        queries: int = 1,
    ) -> CohortUpdate:
        """Sum clip(sum_i weights[i] x update from points[i]) over users.

        With several queries, each has its own weights, is combined, clipped and summed by itself; every point
        is trained from once. Memory: a chunk of users a point, whatever the cohort.

        Args:
            points: flat models, float32 (d,) each; usually one, with weight 1.
            weights: a weight a point, for each query one after another, (queries x points,).
            table: the users that the node hosts.
            users: whom to train, indices into `table`, (users,).
            at_round: the round whose order of batches and other local randomness is used.
            queries: how many sums to make.

        Returns:
            The sums, float64 (queries x d,), and the number of `users`, those included who contributed zero.

        Raises:
            BadInput: a user occurs twice (one contribution a user is what the clip norm bounds), points or
                weights do not fit, or there are several queries behind a clipping that counts.
        """
        if len(points) * queries != len(weights) or not points:
            raise WrongForm(f"{len(weights)} weights", f"for {len(points)} points.", str(len(points) * queries))
        starts = [point.detach().to(self.device, torch.float32) for point in points]
        if any(start.shape != (self.schema.numel,) for start in starts):
            shapes = f"points of shape {[tuple(start.shape) for start in starts]}"
            raise WrongForm(shapes, "are not the model's.", f"({self.schema.numel},)")
        users = np.asarray(users, np.int64)
        if not all_differ(users):
            raise WrongForm("cohort", "names a user twice.")
        rows = [weights[first : first + len(points)] for first in range(0, len(weights), len(points))]
        work = _Work(starts, rows, table, at_round)
        self._left, everybody = [], len(users)
        if self.apart:
            if self._sealed and not table.is_plain:
                self._sealed, self._alone, self._apart = False, OWN_PROCESS, None
            stays = self._of_each(work, users, Apart.here) > 0
            self._left, users = users[~stays].tolist(), users[stays]
        # Users of about the same size train together: more of their batches have the same length.
        users = users[np.argsort(-table.sizes_of(users), kind="stable")]
        steps = steps_of(table.sizes_of(users), self.client)
        shape = _bucket(len(users)), _bucket(float(steps.mean()) if len(steps) else 0)
        widths = self._widths(work, users)
        total = torch.zeros(queries, self.schema.numel, dtype=torch.float64, device=self.device)
        counts: list[float] = []
        riding: list[tuple[float, ...]] = []
        failures: Counter[str] = Counter()
        first = 0
        while first < len(users):
            width = int(widths[first])
            if (*shape, width) not in self._choices:
                self._choices[*shape, width] = recall(
                    self._candidates(len(users), width, table), (*self._identity, self.isolated, *shape, width)
                )
            choice = self._choices[*shape, width]
            picked = choice.next()
            alike = int(np.argmax(np.append(widths[first:], -1) != width))
            last = first + min(choice.users(picked), self._room, alike)
            began = 0.0 if choice.best is not None else clock(self.device)
            failed, taken = Counter[str](), list[tuple[torch.Tensor, Sequence[float] | None]]()
            try:
                taken = self._train_chunk(choice.candidates[picked].engine, work, users[first:last], width, failed)
            except torch.OutOfMemoryError:
                if last - first == 1:
                    raise
            if not taken:  # Nobody has failed: fewer users fit into the memory, which the exception has let go by now.
                self._left = [user for user in self._left if user not in users[first:last]]
                self._room = max(1, (last - first) // 2)
                torch.cuda.empty_cache()
                continue
            failures.update(failed)
            if choice.best is None:
                choice.record(picked, clock(self.device) - began, int(steps[first:last].sum()))
            for query, (combined, over) in zip(total, taken, strict=True):
                if over and queries > 1:
                    raise Unsupported("several queries", "have no one norm to count users by.", "flat")
                add_rows_(query, combined)
                counts = [a + b for a, b in itertools.zip_longest(counts, over or (), fillvalue=0.0)]
            if self._measures is not None:
                here, measured = users[first:last], self._measured
                if self._left and np.isin(here, self._left).any():  # a child measures whom it trains
                    here, measured = here[~np.isin(here, self._left)], None
                riding.append(measured or self._measures(starts[0], table, here))
            first = last
            del taken, combined  # before the next ones are made, not after
        if self._measures is not None and (riding or not self.apart):
            counts = [*counts, *(map(math.fsum, zip(*riding, strict=True)) if riding else self._measures.none)]
        trained = CohortUpdate(total.view(-1), everybody, tuple(counts), failures)

        def train(user: NDArray[np.int64]) -> CohortUpdate:
            return self.train(points, weights, table, user, at_round=at_round, queries=queries)

        return self._train_apart(train, self._left, trained) if self.apart else trained

    def _train_apart(
        self, train: Callable[[NDArray[np.int64]], CohortUpdate], users: list[int], trained: CohortUpdate
    ) -> CohortUpdate:
        """Add to `trained` what `train` returns for each user, called in a child process. One that dies adds zero."""
        shared = np.frombuffer(mmap.mmap(-1, trained.update.nbytes), np.float64)
        total, counts, failures = trained.update.numpy(), list(trained.counts), trained.failures
        for user in users:

            def train_one(user: int = user) -> forked.Answer:
                self.apart = False  # in the child
                own = train(np.array([user]))
                shared[:] = own.update.numpy()
                return {"counts": own.counts, "failures": own.failures}

            try:
                answer = forked.ask(train_one, into=shared)
            except (forked.Ended, OSError) as error:
                failures[str(error) if isinstance(error, forked.Ended) else type(error).__name__] += 1
                continue
            total += shared
            counts = [a + b for a, b in itertools.zip_longest(counts, answer["counts"], fillvalue=0.0)]
            failures.update(answer["failures"])
        return CohortUpdate(trained.update, trained.users, tuple(counts), failures)

    def _clip(self, updates: torch.Tensor) -> Sequence[float] | None:
        """Clip `updates`, float32 (users, d), in place. A GPU adds up a row in an order that their number decides."""
        if not self.isolated or self.device.type != "cuda":
            return self.clip(updates)
        counts: list[float] = []
        for first in range(0, len(updates), CLIPPED):
            part = updates[first : first + CLIPPED]
            whole = updates.new_zeros(CLIPPED, updates.shape[1])  # updates of zero are no longer than any norm
            whole[: len(part)] = part
            counts = [a + b for a, b in itertools.zip_longest(counts, self.clip(whole) or (), fillvalue=0.0)]
            part.copy_(whole[: len(part)])
        return counts

    def _widths(self, work: _Work, users: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where users are isolated: of each, the width of its batches in a chunk with others; 0 for alone."""
        return self._of_each(work, users, Apart.width) if self.isolated else np.zeros(len(users), np.int64)

    def _of_each(self, work: _Work, users: NDArray[np.int64], answer: Callable[[Apart, int], int]) -> NDArray[np.int64]:
        """Return `answer` of each user, by the number of its rows."""
        before, self._settings = self._settings, settings()
        if self._apart is None:
            self._apart = self._keep_apart(work)
        elif before != self._settings:
            log.warning("torch's settings are not those with which training together was tried: users train alone")
            self._apart, self._choices = Apart(self._engine(LoopEngine)), {}
        found, places = np.unique(work.table.sizes_of(users), return_inverse=True)
        return np.array([answer(self._apart, size) for size in found.tolist()], np.int64)[places]

    def _keep_apart(self, work: _Work) -> Apart:
        loop, most, engine = self._engine(LoopEngine), self.chunk_size(2**30), self.client.engine
        start = self._start()  # before the loop trains in this model
        if self._alone or engine == "loop" or not (row := self._made_up(work.table)):
            return Apart(loop)
        if engine == "auto" and ChannelsLastLoop.suits(self._model, self.device):
            loop = self._engine(ChannelsLastLoop) if self._working(ChannelsLastLoop, work.table) else loop
        alone = None
        if self._sealed:
            # What can be mapped reads no values in Python, so that the operations are the same whatever the rows.
            if not (prepares_nothing(self.task) and self._working(BatchedEngine, work.table)):
                return Apart(loop)
            loop = type(loop)(self._model, self.task, self.client)  # another stays as it is, for children
            run = partial(self._run, loop)
            alone = Isolation(run, row, start, self.client, 2, None, wide=True)
        # Counted, not timed: every process must choose alike.
        weights = sum(layer.weight.numel() for layer in self._model.modules() if isinstance(layer, _ConvNd))
        slow = self.device.type == "cpu" and self.client.batch_size * row[0].numel() * weights > CONVOLVED
        batched = self._engine(BatchedEngine)
        assert isinstance(batched, BatchedEngine)
        # Of recorded steps, convolutions and large models are as fast one user at a time.
        little = alone and not batched.layers and (weights or most < BASE["cpu"])
        if most < 2 or little or (slow and engine == "auto") or not (alone or self._batched(work.table)):
            return Apart(loop, alone=alone)
        found_for = None if self._sealed else (*self._identity, self._settings)
        make = partial(Isolation, partial(self._run, batched), row, start, self.client, most, found_for)
        return Apart(loop, batched, make(), make(wide=True), alone=alone)

    def _train_chunk(
        self, engine: Engine, work: _Work, users: NDArray[np.int64], width: int, failures: Counter[str]
    ) -> list[tuple[torch.Tensor, Sequence[float] | None]]:
        """Return each query's combination of updates, float32 (users, d), clipped, and what clipping counted.

        Counts in `failures` who contributes zero. Raises torch.OutOfMemoryError: the device holds fewer users.
        """
        self._measured = None
        try:
            chunk = self._gather(work, users, width=width)
            if self._measures is not None:  # before training
                self._measured = self._measures(work.starts[0], work.table, users, (chunk.inputs, chunk.targets))
            combined = self._updates(engine, work, chunk)
        except Exception as error:  # any: it is the task's code and the user's data
            if isinstance(error, torch.OutOfMemoryError) and len(users) > 1:
                raise
            again = self._train_each if self.isolated else self._train_again
            combined = again(engine, work, users, width, failures)
        # One sum over all users first: it is not finite if any element is not, and costs a fraction of looking at each.
        if not all(bool(updates.sum().isfinite()) for updates in combined):
            finite = torch.stack([updates.isfinite().all(dim=1) for updates in combined]).all(dim=0)
            for updates in combined:
                updates[~finite] = 0.0
            failures.update({"update that is not finite": int((~finite).sum())})
        return [(updates, self._clip(updates)) for updates in combined]

    def _train_each(
        self, engine: Engine, work: _Work, users: NDArray[np.int64], width: int, failures: Counter[str]
    ) -> list[torch.Tensor]:
        """Do as `_train_chunk`, one user after another, since `engine` raised for all."""
        combined = [torch.zeros(len(users), self.schema.numel, device=self.device) for _ in work.weights]
        for place in range(len(users)):
            alone, updates = users[place : place + 1], combined[:0]
            try:
                updates = self._updates(engine, work, self._gather(work, alone, width=width))
            except Exception as error:
                if self.apart:  # its own process may be able to
                    self._left.append(int(users[place]))
                elif engine is not self._engine(LoopEngine):
                    updates = self._train_each(self._engine(LoopEngine), work, alone, 0, failures)
                else:
                    # The kind of the error, not its text: an error of a task may quote a user's data.
                    failures[type(error).__name__] += 1
                    own_data.note_error(error)
            for target, update in zip(combined, updates, strict=False):
                target[place] = update[0]
        here = ~np.isin(users, self._left) if self.apart else slice(None)
        return [updates[here] for updates in combined]

    def _train_again(
        self, engine: Engine, work: _Work, users: NDArray[np.int64], width: int, failures: Counter[str]
    ) -> list[torch.Tensor]:
        """Do as `_train_chunk`, after `engine` raised: find out for whom; train the others together, those alone."""
        filled = np.flatnonzero(work.table.sizes_of(users)).tolist()
        failing = [place for place in filled if not self._trains(engine, work, users[place : place + 1])]
        combined = [torch.zeros(len(users), self.schema.numel, device=self.device) for _ in work.weights]
        if len(failing) < len(filled):
            try:
                combined = self._updates(engine, work, self._gather(work, users, failing))
            except Exception:  # they train one by one, but not together
                failing = filled
        # A last try: what a batched engine cannot do with a user's data, the loop may be able to.
        looped = self._train_each(self._engine(LoopEngine), work, users[failing], 0, failures)
        for target, updates in zip(combined, looped, strict=True):
            target[failing] = updates
        return combined

    def _trains(self, engine: Engine, work: _Work, users: NDArray[np.int64]) -> bool:
        """Return whether `engine` trains these users without an error."""
        try:
            self._updates(engine, work, self._gather(work, users))
        except Exception:
            return False
        return True

    def _gather(self, work: _Work, users: NDArray[np.int64], failing: Collection[int] = (), width: int = 0) -> Chunk:
        """Prepare the rows of `users`, one user at a time; copies of another's for the `failing` (places).

        So the shape of the batch is the same, and with it every bit of the other users' updates.
        """
        rows = work.table.rows(users, self.device)
        keys = user_keys(rows.users, self.seed, work.at_round)
        wide, width = divmod(width, WIDE)
        plan = schedule(rows.sizes, keys, self.client, width or None)
        sizes = None
        if self._apart is not None and width:
            sizes = self._apart.wide if wide else self._apart.sizes
        if not len(failing) and prepares_nothing(self.task):
            inputs, targets = standard_dtypes(self.task.prepare(rows.columns))
            return Chunk(self._floating(inputs), targets, plan, sizes, bool(wide))
        columns = [torch.split(column, rows.sizes.tolist()) for column in rows.columns.values()]
        filled = [place for place, size in enumerate(rows.sizes.tolist()) if size and place not in failing]
        batches = [dict(zip(rows.columns, (column[place] for column in columns), strict=True)) for place in filled]
        parts = dict(zip(filled, prepare_each(self.task, batches, keys[filled].tolist()), strict=True))
        for place in failing:
            other, size = next(iter(parts.values())), int(rows.sizes[place])
            parts[place] = tuple(values[:1].expand(size, *values.shape[1:]) for values in other)
        chunk = [parts[place] for place in sorted(parts)] or [standard_dtypes(self.task.prepare(rows.columns))]
        inputs, targets = (join(part) for part in zip(*chunk, strict=True))
        return Chunk(self._floating(inputs), targets, plan, sizes, bool(wide))

    def _floating(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return `inputs` in the model's dtype, if both are floating-point."""
        return inputs if self._dtype is None or not inputs.is_floating_point() else inputs.to(self._dtype)

    def _run(self, engine: Engine, start: torch.Tensor, chunk: Chunk) -> torch.Tensor:
        """Return the updates of a chunk of users, float32 (users, d)."""
        if type(engine) is not LoopEngine or engine.recorded:
            pairs = zip(self._row or (), (chunk.inputs, chunk.targets), strict=False)
            if any(a.shape[1:] != b.shape[1:] or a.dtype != b.dtype for a, b in pairs):
                raise ValueError("prepare() gives a user rows of another shape or dtype than made-up ones")
        updates = torch.empty(len(chunk), self.schema.numel, device=self.device)
        strict = not isinstance(engine, LoopEngine)
        together = self._own_python and strict
        drawn = python_generators() if together else None
        with flushed_denormals(), same_bits_every_time(self.device, strict) if self.isolated else nullcontext():
            engine.updates(start, chunk, updates)
        if together and python_generators() != drawn:  # the loop trains them, each with a seed
            raise RuntimeError("the task draws numbers from numpy or random for several users at once")
        return updates

    def _updates(self, engine: Engine, work: _Work, chunk: Chunk) -> list[torch.Tensor]:
        """Return every query's combination of the chunk's updates, float32 (users, d) each."""
        combined: list[torch.Tensor | None] = [None] * len(work.weights)
        for place, start in enumerate(work.starts):
            asking = [query for query, row in enumerate(work.weights) if row[place]]
            if not asking:
                continue
            updates = self._run(engine, start, chunk)
            for query in asking:
                partial, weight = combined[query], work.weights[query][place]
                if partial is not None:
                    partial.add_(updates, alpha=weight)
                elif query == asking[-1]:
                    combined[query] = updates.mul_(weight) if weight != 1.0 else updates
                else:
                    combined[query] = updates * weight
        shape = len(chunk), self.schema.numel
        return [torch.zeros(shape, device=self.device) if updates is None else updates for updates in combined]


def _bucket(value: float) -> int:
    return round(math.log2(value)) if value > 0 else -1


def _warn(model: torch.nn.Module, task: Task) -> None:
    """Say once what a user of this model should know."""
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.modules.batchnorm._NormBase) and module.training and module.track_running_stats:
            text = (
                "%s: %s (%s) keeps its initial running statistics in every released model, because they are made of "
                "users' data and are not noised; with GroupNorm or LayerNorm there are none"
            )
            log.warning(text, task.name, name, type(module).__name__)
            return
    wide = next((name for name, value in model.named_parameters() if value.dtype == torch.float64), None)
    if wide is not None:
        log.info("%s: %s trains in float64; updates are summed and released in float32", task.name, wide)
