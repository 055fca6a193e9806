"""From a broadcast model and a cohort to the one thing that leaves a node: a sum of clipped updates, and a count.

What invariant I4 needs of a node, and how it holds whatever the task's code does:

* *Isolation.* The task's code sees one user at a time. `prepare` is called with the rows of one user; engines map the
  loss over users; what a model changes besides its parameters is put back between users (`local_model`). No user's
  update is a function of another user's data.
* *Failures.* A user whose training raises, or whose update is not finite, contributes zero and counts. It costs no
  other user their place, and does not change a bit of their updates: the chunk is trained again in the same shape, with
  copies of another user's row in the place of the failing user's.
* *Presence.* The rounding of a batched product may depend on the number of users in the batch. Under `add_remove` that
  number is secret, so `isolated` trains every user alone, from tensors that hold no other user's rows.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from fieldfare.errors import BadInput
from fieldfare.plan_tables import ClientSpec
from fieldfare.schema import Schema
from fieldfare.task import Task
from fieldfare_client.training.channels_last import ChannelsLastLoop
from fieldfare_client.training.choice import Candidate, Choice, recall, remember
from fieldfare_client.training.engines import Chunk, Engine
from fieldfare_client.training.local_model import make_ready, one_dtype, why_alone
from fieldfare_client.training.loop import LoopEngine
from fieldfare_client.training.machine import flushed_denormals, keep_freed_memory
from fieldfare_client.training.rows import add_rows_, join, standard_dtypes
from fieldfare_client.training.schedule import schedule, steps_of, user_keys
from fieldfare_client.training.stacked import StackedEngine
from fieldfare_client.training.vmapped import VmapEngine
from fieldfare_client.users import UserTable

log = logging.getLogger("fieldfare.client")

Clip = Callable[[torch.Tensor], Sequence[float] | None]
"""Clips updates float32 (users, d) in place; may return sums over the users of scalars in [0, 1] to report."""

CHUNK_BYTES = {"cpu": 10 * 2**20, "cuda": 2**30}
"""Of the updates that are held at once. On a CPU: about what its cache holds, measured; beyond it training slows."""
LOOP_USERS, LOOP_TRIAL = 16, 4
"""How many users the loop trains between two clippings, and in a chunk that is timed."""


@dataclass(frozen=True)
class CohortUpdate:
    """The result of a cohort. A node sends the sum, the number of users and the counts: no loss, no norm, nothing
    about one user."""

    update: torch.Tensor
    """Sum of the users' clipped updates, float64 (queries x d,): what rounding lets one user move, noise hides."""
    users: int
    counts: tuple[float, ...] = ()
    failures: Counter[str] = field(default_factory=Counter)
    """How many users contributed zero because their training failed, by kind of error. Stays on the node."""


@dataclass(frozen=True)
class _Work:
    """What one round asks of every user."""

    starts: list[torch.Tensor]
    """The points to train from, float32 (d,) each."""
    weights: list[Sequence[float]]
    """The weight of each point in each query."""
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
        isolated: train every user alone. On a CPU, a user's clipped update is then the same bit for bit whether other
            users train or not; on a GPU, as far as its kernels are deterministic. The float64 sum still rounds:
            `fieldfare.privatise.Grid.charged_clip` charges for that.

    Raises:
        BadInput: the model has nothing to train, or the plan says "batched" and this model trains one user at a time
            (`local_model` says which).
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
    ) -> None:
        self.task, self.client, self.clip, self.seed = task, client, clip, seed
        self.device, self.isolated = torch.device(device), isolated
        self._model = make_ready(task.build_model().to(self.device))
        self.schema = _schema(task, self._model)
        # Of the decisions that other trainers of this process may share; `repr` of a model takes its time.
        self._identity: tuple[Hashable, ...] = (type(task), repr(self._model), client.model_dump_json(), str(device))
        if self.device.type == "cpu":
            keep_freed_memory()
        self._alone, self._dtype = why_alone(self._model), one_dtype(self._model)
        if self._alone and client.engine == "batched":
            raise BadInput(f"client.engine = 'batched' with run.task = {task.name!r}", f"{self._alone}.", "loop")
        _warn(self._model, task)
        self._choices: dict[Hashable, Choice] = {}
        self._engines: dict[type[Engine], Engine] = {}
        self._unfit: set[type[Engine]] = set()
        """Engines that failed for users whom the loop trains."""

    def _engine(self, kind: type[Engine]) -> Engine:
        if kind not in self._engines:
            self._engines[kind] = kind(self._model, self.task, self.client)
        return self._engines[kind]

    def chunk_size(self, users: int) -> int:
        """How many users train at once in a batched engine, at most."""
        room = CHUNK_BYTES["cuda" if self.device.type == "cuda" else "cpu"]
        most = room // (4 * self.schema.numel)
        # A few large models gain nothing from each other, and would only take memory.
        return max(1, min(users, most)) if most >= 4 else 1

    def _candidates(self, users: int) -> Choice:
        most = self.chunk_size(users)
        loop = self._engine(LoopEngine)
        one_by_one = Candidate(loop, min(most, LOOP_USERS), "one user at a time", LOOP_TRIAL)
        if self.isolated:
            return Choice([Candidate(loop, 1, one_by_one.label)], "who else trains must not change a bit")
        if self.client.engine == "loop":
            return Choice([one_by_one], "the plan says so")
        if self._alone:
            return Choice([one_by_one], self._alone)
        if StackedEngine not in self._unfit and not StackedEngine.refuses(self._model):
            stacked = Candidate(self._engine(StackedEngine), most, f"{most} users at once")
            return Choice([stacked], "a stack of linear layers, for which one batched product serves all users")
        alone = [one_by_one]
        if ChannelsLastLoop not in self._unfit and ChannelsLastLoop.suits(self._model, self.device):
            arranged = self._engine(ChannelsLastLoop)
            alone.insert(0, replace(one_by_one, engine=arranged, label=f"{one_by_one.label} (channels last)"))
        if VmapEngine in self._unfit:
            return Choice(alone, "batched training fails for this model or loss")
        vmap = self._engine(VmapEngine)
        batched = [Candidate(vmap, size, f"{size} users at once (vmap)") for size in sorted({most, min(most, 10)})]
        if self.client.engine == "batched":
            return Choice(batched[-1:], "the plan says so")
        return Choice([*alone, *batched], "")

    def explain(self) -> list[str]:
        """Which engine trains, how many users at a time, and why: one line for every shape of work so far."""
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

        With several queries, each has its own weights, is combined, clipped and summed by itself; every point is
        trained from once. Memory: a chunk of users a point, whatever the cohort.

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
            BadInput: a user occurs twice (one contribution a user is what the clip norm bounds), points or weights do
                not fit, or there are several queries behind a clipping that counts.
        """
        if len(points) * queries != len(weights) or not points:
            raise BadInput(f"{len(weights)} weights", f"for {len(points)} points.", str(len(points) * queries))
        starts = [point.detach().to(self.device, torch.float32) for point in points]
        if any(start.shape != (self.schema.numel,) for start in starts):
            raise BadInput(
                f"points of shape {[tuple(start.shape) for start in starts]}",
                "are not the model's.",
                f"({self.schema.numel},)",
            )
        users = np.asarray(users, np.int64)
        if np.unique(users).size != users.size:
            raise BadInput("cohort", "names a user twice.")
        rows = [weights[first : first + len(points)] for first in range(0, len(weights), len(points))]
        work = _Work(starts, rows, table, at_round)
        # Users of about the same size train together: more of their batches have the same length.
        users = users[np.argsort(-table.sizes_of(users), kind="stable")]
        steps = steps_of(table.sizes_of(users), self.client)
        shape = _bucket(len(users)), _bucket(float(steps.mean()) if len(steps) else 0)
        total = torch.zeros(queries, self.schema.numel, dtype=torch.float64, device=self.device)
        counts: list[float] = []
        failures: Counter[str] = Counter()
        first = 0
        while first < len(users):
            if shape not in self._choices:
                self._choices[shape] = recall(self._candidates(len(users)), (*self._identity, *shape))
            choice = self._choices[shape]
            picked = choice.next()
            last = first + choice.users(picked)
            began = self._clock()
            updates = self._train_chunk(choice.candidates[picked].engine, work, users[first:last], failures)
            if choice.best is None:
                if self.device.type == "cuda":
                    torch.cuda.synchronize(self.device)
                choice.record(picked, self._clock() - began, int(steps[first:last].sum()))
            for query, combined in zip(total, updates, strict=True):
                over = self.clip(combined)
                if over and queries > 1:
                    raise BadInput("several queries", "have no one norm to count users by.", "flat")
                add_rows_(query, combined)
                counts = [a + b for a, b in itertools.zip_longest(counts, over or (), fillvalue=0.0)]
            first = last
            del updates, combined  # before the next ones are made, not after
            remember(choice, (*self._identity, *shape))
        return CohortUpdate(total.view(-1), len(users), tuple(counts), failures)

    def _clock(self) -> float:
        # CPU time where it covers all of the work: another process's load must not decide which engine looks faster.
        single = self.device.type == "cpu" and torch.get_num_threads() == 1
        return time.process_time() if single else time.perf_counter()

    def _train_chunk(
        self, engine: Engine, work: _Work, users: NDArray[np.int64], failures: Counter[str]
    ) -> list[torch.Tensor]:
        """Train a chunk of users; count in `failures` those who contribute zero.

        Returns:
            Every query's combination of the users' updates, float32 (users, d) each, all finite.
        """
        try:
            combined = self._updates(engine, work, self._gather(work, users))
        except Exception:  # any: it is the task's code and the user's data
            combined = self._train_again(engine, work, users, failures)
        # One sum over all users first: it is not finite if any element is not, and costs a fraction of looking at each.
        if not all(bool(updates.sum().isfinite()) for updates in combined):
            finite = torch.stack([updates.isfinite().all(dim=1) for updates in combined]).all(dim=0)
            for updates in combined:
                updates[~finite] = 0.0
            failures.update({"update that is not finite": int((~finite).sum())})
        return combined

    def _train_again(
        self, engine: Engine, work: _Work, users: NDArray[np.int64], failures: Counter[str]
    ) -> list[torch.Tensor]:
        """As `_train_chunk`, after `engine` raised: find out for whom, train the others together, and those alone."""
        alone = [users[place : place + 1] for place in range(len(users))]
        filled = np.flatnonzero(work.table.sizes_of(users)).tolist()
        failing = [place for place in filled if not self._trains(engine, work, alone[place])]
        combined = None
        if len(failing) < len(filled):
            try:
                combined = self._updates(engine, work, self._gather(work, users, failing))
            except Exception:  # they train one by one, but not together
                failing = filled
        if combined is None:
            combined = [torch.zeros(len(users), self.schema.numel, device=self.device) for _ in work.weights]
        trained = 0
        for place in failing:
            # A last try: what a batched engine cannot do with a user's data, the loop may be able to.
            try:
                updates = self._updates(self._engine(LoopEngine), work, self._gather(work, alone[place]))
                trained += 1
            except Exception as error:
                # The kind of the error, not its text: an error of a task may quote a user's data.
                failures[type(error).__name__] += 1
                updates = [torch.zeros(1, self.schema.numel, device=self.device) for _ in work.weights]
            for target, update in zip(combined, updates, strict=True):
                target[place] = update[0]
        if trained and len(failing) == len(filled) and type(engine) is not LoopEngine:
            log.warning("%s cannot train this model or loss; other engines do", type(engine).__name__)
            self._unfit.add(type(engine))
            self._choices.clear()
        return combined

    def _trains(self, engine: Engine, work: _Work, users: NDArray[np.int64]) -> bool:
        """Whether `engine` trains these users without an error."""
        try:
            self._updates(engine, work, self._gather(work, users))
        except Exception:
            return False
        return True

    def _gather(self, work: _Work, users: NDArray[np.int64], failing: Collection[int] = ()) -> Chunk:
        """Prepare the rows of `users`, one user at a time.

        In the place of each row of the `failing` users (places in `users`) stands a copy of another user's row: the
        shape of the batch is the same, and with it every bit of the other users' updates.
        """
        rows = work.table.rows(users, self.device)
        plan = schedule(rows.sizes, user_keys(rows.users, self.seed, work.at_round), self.client)
        if not len(failing) and getattr(self.task.prepare, "__func__", None) is Task.prepare:
            # It returns its columns as they are: for all users at once as for one.
            inputs, targets = standard_dtypes(self.task.prepare(rows.columns))
            return Chunk(self._floating(inputs), targets, plan)
        ends = np.cumsum(rows.sizes).tolist()
        parts: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        for place, (size, end) in enumerate(zip(rows.sizes.tolist(), ends, strict=True)):
            if not size or place in failing:
                continue
            inputs, targets = standard_dtypes(
                self.task.prepare({name: column[end - size : end] for name, column in rows.columns.items()})
            )
            if inputs.shape[0] != size or targets.shape[0] != size:
                # Else every later user would train on the rows of the one before.
                raise BadInput(f"run.task = {self.task.name!r}", "its prepare() drops or adds rows.")
            parts[place] = self._floating(inputs), targets
        for place in failing:
            other, size = next(iter(parts.values())), int(rows.sizes[place])
            inputs, targets = (values[:1].expand(size, *values.shape[1:]) for values in other)
            parts[place] = inputs, targets
        chunk = [parts[place] for place in sorted(parts)] or [standard_dtypes(self.task.prepare(rows.columns))]
        return Chunk(join([part[0] for part in chunk]), join([part[1] for part in chunk]), plan)

    def _floating(self, inputs: torch.Tensor) -> torch.Tensor:
        """`inputs` in the model's dtype, if both are floating-point."""
        return inputs if self._dtype is None or not inputs.is_floating_point() else inputs.to(self._dtype)

    def _updates(self, engine: Engine, work: _Work, chunk: Chunk) -> list[torch.Tensor]:
        """Every query's combination of the chunk's updates, float32 (users, d) each."""
        combined: list[torch.Tensor | None] = [None] * len(work.weights)
        for place, start in enumerate(work.starts):
            asking = [query for query, row in enumerate(work.weights) if row[place]]
            if not asking:
                continue
            updates = torch.empty(len(chunk), self.schema.numel, device=self.device)
            with flushed_denormals():
                engine.updates(start, chunk, updates)
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


def _schema(task: Task, model: torch.nn.Module) -> Schema:
    """The schema of `model`; raises `BadInput` for models that cannot be trained privately."""
    what = f"run.task = {task.name!r}"
    try:
        schema = Schema.of(model)
    except ValueError as error:
        raise BadInput(what, str(error)) from None
    if schema.numel == 0:
        raise BadInput(what, "the model has no parameters to train.")
    return schema


def _warn(model: torch.nn.Module, task: Task) -> None:
    """Say once what a user of this model should know."""
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.modules.batchnorm._NormBase) and module.training and module.track_running_stats:
            log.warning(
                "%s: %s (%s) keeps its initial running statistics in every released model, because they are made of "
                "users' data and are not noised; with GroupNorm or LayerNorm there are none",
                task.name,
                name,
                type(module).__name__,
            )
            return
    wide = next((name for name, value in model.named_parameters() if value.dtype == torch.float64), None)
    if wide is not None:
        log.info("%s: %s trains in float64; updates are summed and released in float32", task.name, wide)
