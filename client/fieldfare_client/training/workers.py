"""Several single-threaded processes that train one cohort together.

They are forked where a process can be (`forked.why_not_by_default`), so that a task may be an object of
this one, and a script needs no guard. Elsewhere each imports the task anew.

One thread each: on a busy machine two OpenMP threads take ten times as long as one. Models and sums travel
through memory-mapped files (`shared_users.shared_file`). Forked workers have the users' rows from this
process, without a copy; others map them from files, which lose their names once all have.
Nodes of one process share the workers: each thread that calls `train` has a cohort there, as long as a worker
would idle without it or only one other cohort is there. So none waits while one node's sum is added.
"""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import signal
import tempfile
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fieldfare.clipping import ClippingSpec
from fieldfare.errors import OutOfRange, WrongForm
from fieldfare.hashing import all_differ
from fieldfare.task import Task, load_task
from fieldfare_client import forked
from fieldfare_client.main_guard import GUARD, one_thread
from fieldfare_client.settings import TrainingSettings
from fieldfare_client.shared_users import SHARED, shared_file
from fieldfare_client.storage import open_table, write_arrays
from fieldfare_client.training.clip import clip_with, trainer_of
from fieldfare_client.training.schedule import steps_of
from fieldfare_client.training.trainer import CohortUpdate, Trainer
from fieldfare_client.users import UserTable


@dataclass(frozen=True)
class _Job:
    """The constants of a worker's life."""

    task: str | Task  # or its name
    settings: TrainingSettings
    table: UserTable | Path  # or its file
    shape: tuple[int, int]
    sums: tuple[int, int]


DIED, LOST = "a training worker died", "the training workers have ended"
_Reply = tuple[str, tuple[float, ...], Counter[str]]  # an error's text, counts, and failures by kind


class WorkersLost(RuntimeError):
    """The workers ended for a reason that is not this cohort, which others can train."""


@dataclass
class _Memory:
    """Arrays of one shape that processes share, each in a file. Those that no cohort uses any more are used again."""

    files: ExitStack
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    free: list[tuple[Path, NDArray[Any]]] = field(default_factory=list)

    def take(self) -> tuple[Path, NDArray[Any]]:
        """Return an array and its file. Raises `OSError` where the file system is full."""
        if self.free:
            return self.free.pop()
        path, file = shared_file(self.files)
        # The bytes are really written: a full file system must raise here, not kill the process that touches the map.
        file.write(bytes(self.dtype.itemsize * self.shape[0] * self.shape[1]))
        file.flush()
        return path, np.memmap(file, self.dtype, "r+", shape=self.shape)


@dataclass(eq=False)
class _Share:
    """The users of one cohort whom one worker trains."""

    worker: int
    batches: int
    memory: tuple[Path, NDArray[Any]]
    reply: _Reply | None = None


class WorkerTrainer:
    """A `Trainer` in several processes, which `close` ends. Several threads may train at once.

    Args:
        task: a name that `fieldfare.task.load_task` finds.
        settings: of the first round.
        table: whose users are trained; where workers are not forked, and unless it is a mapped file, its
            rows are written to shared memory once.
        workers: how many processes.
        points: the most points that a round trains from.
        queries: how many queries a round asks.
        reader: the task that has read `table`, which forked workers train; None: loaded. Others load it.

    Raises:
        BadInput: there are no workers, or the task's model is one that `Trainer` refuses.
    """

    def __init__(
        self,
        task: str,
        settings: TrainingSettings,
        table: UserTable,
        *,
        workers: int,
        points: int = 1,
        queries: int = 1,
        reader: Task | None = None,
    ) -> None:
        if workers < 1:
            raise OutOfRange(f"workers = {workers}", "must be at least 1.", "1")
        self.client, self.table = settings.client, table
        loaded = load_task(task) if reader is None else reader
        # Refuses here the models that the workers would refuse.
        self.schema = Trainer(loaded, settings.client, lambda updates: None).schema
        # What workers open while they start, and what they share with this process.
        self._rows, self._files = ExitStack(), ExitStack()
        self._pipes: list[Connection] = []
        self._starting: list[Connection] = []  # of workers that have not yet said that they are ready
        self._processes: list[Any] = []
        # Of what several threads use. Who holds the first waits for no reply, and who closes holds neither.
        self._changed = threading.Condition()
        self._reading = [threading.Lock() for _ in range(workers)]  # held by who reads a worker's replies
        # What each worker has to do, in this order.
        self._queues: list[deque[_Share]] = [deque() for _ in range(workers)]
        self._cohorts = 0  # how many are being trained
        self._ended = False
        self._ending = threading.Lock()
        try:
            forks = not forked.why_not_by_default()
            rows = table if forks else table.source
            if rows is None:
                folder = tempfile.TemporaryDirectory(prefix="fieldfare-", dir=SHARED)
                rows = Path(self._rows.enter_context(folder)) / "users"
                write_arrays(rows, table)
            self._in_file = rows is table.source
            self._points = _Memory(self._files, (points, self.schema.numel), np.dtype(np.float32))
            self._sums = _Memory(self._files, (queries, self.schema.numel), np.dtype(np.float64))
            for memory in (self._points, self._sums):
                memory.free.append(memory.take())
            context: Any = multiprocessing.get_context("fork" if forks else "spawn")
            for _ in range(workers):
                shapes = self._points.shape, self._sums.shape
                job = _Job(loaded if forks else task, settings, rows, *shapes)
                ours, theirs = context.Pipe()
                inherited = [*self._pipes, ours] if forks else []
                process = context.Process(target=_serve, args=(theirs, job, inherited), daemon=True)
                with one_thread():
                    forked.in_new_thread(process.start)
                theirs.close()
                self._pipes.append(ours)
                self._starting.append(ours)
                self._processes.append(process)
        except BaseException:
            self.close()
            raise

    def train(
        self,
        points: Sequence[torch.Tensor],
        weights: Sequence[float],
        users: NDArray[np.int64],
        *,
        at_round: int,
        spec: ClippingSpec | None = None,
        queries: int = 1,
    ) -> CohortUpdate:
        """Do as `Trainer.train`, to round-off: every worker trains users with about as many batches in all.

        Args:
            points, weights, at_round: as for `Trainer.train`.
            users: as there, indices into the pool's table.
            spec: the clipping from this round on, where it has changed.
            queries: as for `Trainer.train`; the number that the pool was made for.

        Raises:
            BadInput: as `Trainer.train`.
            RuntimeError: a worker failed or died; afterwards the pool is closed.
            WorkersLost: the pool is closed, perhaps by another thread whose cohort a worker failed at.
        """
        users = np.asarray(users, np.int64)
        if not self._pipes:
            raise WorkersLost(LOST)
        if not all_differ(users):
            raise WrongForm("cohort", "names a user twice.")
        most, asked = self._points.shape[0], self._sums.shape[0]
        if len(points) > most or len(points) * queries != len(weights) or queries != asked:
            raise WrongForm(f"{len(points)} points, {len(weights)} weights", "do not fit.", f"{most} each")
        steps = steps_of(self.table.sizes_of(users), self.client)
        order = np.argsort(-steps, kind="stable")
        inside = self.table.positions(users) if self._in_file else users
        count = min(len(self._processes), len(users))
        taken: tuple[Path, NDArray[Any]] | None = None
        shares: list[_Share] = []
        try:
            with self._changed:
                while self._starting:
                    self._greet()
                self._changed.wait_for(lambda: self._cohorts < 2 or not all(self._queues) or self._ended)
                if self._ended:
                    raise WorkersLost(LOST)
                taken = self._points.take()
                self._cohorts += 1
                for place, point in enumerate(points):
                    taken[1][place] = point.detach().cpu().numpy()
                # The largest share to the worker that has least to do.
                idle = sorted(range(len(self._queues)), key=lambda w: sum(share.batches for share in self._queues[w]))
                for first, worker in enumerate(idle[:count]):
                    part = order[first::count]
                    share = _Share(worker, int(steps[part].sum()), self._sums.take())
                    shares.append(share)
                    self._send(share, (at_round, tuple(weights), inside[part], spec, str(taken[0])))
            return self._collect(shares, len(users))
        except BaseException:
            # Ctrl-C between two replies as well: a reply left in a pipe must not be read in a later round.
            self.close()
            raise
        finally:
            with self._changed:
                self._cohorts -= taken is not None
                self._points.free += [] if taken is None else [taken]
                self._sums.free += [share.memory for share in shares]
                self._changed.notify_all()

    def _send(self, share: _Share, work: tuple[object, ...]) -> None:
        queue = self._queues[share.worker]
        queue.append(share)
        try:
            self._pipes[share.worker].send((*work, str(share.memory[0])))
        except ConnectionError:
            raise (RuntimeError(DIED) if queue[0] is share else WorkersLost(LOST)) from None

    def _collect(self, shares: list[_Share], users: int) -> CohortUpdate:
        """Wait for the replies to `shares`, and add them up in this order, not in that of the replies."""
        total = np.zeros(self._sums.shape)
        counts: list[float] = []
        failures: Counter[str] = Counter()
        for share in shares:
            error, partial, failed = self._reply(share)
            if error:
                raise RuntimeError(f"training worker {share.worker} failed: {error}")
            total += share.memory[1]
            counts = [a + b for a, b in itertools.zip_longest(counts, partial, fillvalue=0.0)]
            failures.update(failed)
        return CohortUpdate(torch.from_numpy(total.reshape(-1)), users, tuple(counts), failures)

    def _reply(self, share: _Share) -> _Reply:
        """Return the reply to `share`. Reads those before it too, whichever thread waits for them.

        Where the worker has died, it did so while it trained the first share of its queue: that one has the
        error. Raises `WorkersLost` for every other.
        """
        with self._reading[share.worker]:
            while share.reply is None:
                if self._ended:
                    raise WorkersLost(LOST)
                try:
                    reply: _Reply = self._pipes[share.worker].recv()
                except (EOFError, OSError):
                    with self._changed:
                        if not self._ended:
                            self._queues[share.worker][0].reply = (DIED, (), Counter())
                        self._ended = True
                    continue
                with self._changed:
                    self._queues[share.worker].popleft().reply = reply
                    self._changed.notify_all()
        return share.reply

    def ready(self) -> bool:
        """Return whether all workers have loaded the task. Does not wait. Raises as `train` where one failed to."""
        try:
            with self._changed:
                while self._starting and self._starting[0].poll():
                    self._greet()
                return not self._starting
        except BaseException:
            self.close()
            raise

    def _greet(self) -> None:
        """Receive a worker's first message: an error's text, or nothing."""
        try:
            error = self._starting[0].recv()
        except (EOFError, ConnectionError):
            raise RuntimeError(f"a training worker died before it began. {GUARD}") from None
        if error:
            raise RuntimeError(f"a training worker could not begin: {error}")
        del self._starting[0]
        if not self._starting:
            self._rows.close()  # all have mapped them

    @property
    def alive(self) -> bool:
        """Whether the pool can still train."""
        return not self._ended and bool(self._processes) and all(process.is_alive() for process in self._processes)

    def close(self) -> None:
        """End the workers and free their shared memory; cohorts that train there are lost. Closing twice is fine."""
        with self._ending:
            with self._changed:
                self._ended = True
                self._changed.notify_all()
            if self._cohorts:  # threads that wait for replies get an end of file in their place
                for process in self._processes:
                    process.terminate()
            with ExitStack() as reading:
                for lock in self._reading:
                    reading.enter_context(lock)
                for pipe in self._pipes:
                    with suppress(OSError):
                        pipe.send(None)  # other processes that were forked meanwhile may hold this end open
                    pipe.close()
            for process in self._processes:
                process.join(timeout=5)
                if process.is_alive():
                    process.terminate()
                    process.join()
            self._pipes, self._starting, self._processes = [], [], []
            self._rows.close()
            self._files.close()


def _serve(pipe: Connection, job: _Job, inherited: Sequence[Connection]) -> None:
    """Train shares in a worker process until the other end of the pipe says None, or closes.

    inherited: ends that are not its own.
    """
    for other in inherited:  # while one is open here, no worker sees that the parent has closed it
        other.close()
    gc.freeze()  # a collection would copy every object of the parent
    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the parent's own would finish a round
    # A terminal sends Ctrl-C to every process; the one at the other end of the pipe decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        table = open_table(job.table) if isinstance(job.table, Path) else job.table
        task = load_task(job.task) if isinstance(job.task, str) else job.task
        trainer = trainer_of(task, job.settings)
    except Exception as error:  # the parent raises it
        pipe.send(f"{type(error).__name__}: {error}")
        return
    pipe.send("")
    mapped: Callable[..., NDArray[Any]] = cache(np.memmap)
    with suppress(EOFError, ConnectionError):
        for at_round, weights, users, spec, points, total in iter(pipe.recv, None):
            try:
                if spec is not None:
                    trainer.clip = clip_with(spec, trainer.schema)
                queries = job.sums[0]
                sources = mapped(points, np.float32, "r", shape=job.shape)[: len(weights) // queries].copy()
                cohort = trainer.train(
                    [*torch.from_numpy(sources)], weights, table, users, at_round=at_round, queries=queries
                )
                mapped(total, np.float64, "r+", shape=job.sums)[:] = cohort.update.numpy().reshape(job.sums)
                pipe.send(("", cohort.counts, cohort.failures))
            except Exception as error:  # the parent raises it
                pipe.send((f"{type(error).__name__}: {error}", (), {}))
