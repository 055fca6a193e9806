"""Several single-threaded processes that train one cohort together.

One thread each, because threads that share a core wait for each other: on a busy machine two OpenMP threads take ten
times as long as one. Models and sums travel through memory-mapped files (on a RAM disk, where the system has one), and
every worker maps the users' rows itself.
"""

from __future__ import annotations

import itertools
import multiprocessing
import signal
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from fieldfare.clipping import ClippingSpec
from fieldfare.errors import BadInput
from fieldfare.plan import ClientSpec
from fieldfare.task import load_task
from fieldfare_client.main_guard import GUARD, one_thread
from fieldfare_client.storage import open_table, write
from fieldfare_client.training.clip import clip_with
from fieldfare_client.training.schedule import steps_of
from fieldfare_client.training.trainer import CohortUpdate, Trainer
from fieldfare_client.users import UserTable

SHARED = Path("/dev/shm")  # noqa: S108 (a new folder is made in it, which only this user can enter)


@dataclass(frozen=True)
class _Job:
    """The constants of a worker's life."""

    task: str
    client: str
    clipping: ClippingSpec
    seed: int
    isolated: bool
    table: str
    points: str
    sum: str
    shape: tuple[int, int]
    sums: tuple[int, int]


class WorkerTrainer:
    """A `Trainer` in several processes. A context manager: leaving it ends them.

    Args:
        task: a name that `fieldfare.task.load_task` finds; every worker loads it.
        client: the local training of the plan.
        spec: the clipping of the first round.
        table: whose users are trained; unless it is a mapped file, its rows are written to shared memory once.
        workers: how many processes.
        seed: as for `Trainer`.
        isolated: as for `Trainer`.
        points: the most points that a round trains from.
        queries: how many queries a round asks.

    Raises:
        BadInput: there are no workers, or the task's model is one that `Trainer` refuses.
    """

    def __init__(
        self,
        task: str,
        client: ClientSpec,
        spec: ClippingSpec,
        table: UserTable,
        *,
        workers: int,
        seed: int = 0,
        isolated: bool = False,
        points: int = 1,
        queries: int = 1,
    ) -> None:
        if workers < 1:
            raise BadInput(f"workers = {workers}", "must be at least 1.", "1")
        self.client, self.table = client, table
        loaded = load_task(task)
        # Refuses here the models that the workers would refuse.
        self.schema = Trainer(loaded, client, lambda updates: None).schema
        self._folder = tempfile.TemporaryDirectory(prefix="fieldfare-", dir=SHARED if SHARED.is_dir() else None)
        self._pipes: list[Connection] = []
        self._starting: list[Connection] = []
        """The pipes of workers that have not yet said that they are ready."""
        self._processes: list[Any] = []
        try:
            source = table.source
            if source is None:
                source = self._path("users.arrow")
                write(source, [table])
            self._points = self._map("points", (points, self.schema.numel), np.dtype(np.float32))
            shape = (queries, self.schema.numel)
            self._sums = [self._map(f"sum-{worker}", shape, np.dtype(np.float64)) for worker in range(workers)]
            context = multiprocessing.get_context("spawn")
            for worker in range(workers):
                paths = str(source), str(self._path("points")), str(self._path(f"sum-{worker}"))
                shapes = self._points.shape, self._sums[0].shape
                job = _Job(task, client.model_dump_json(), spec, seed, isolated, *paths, *shapes)
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(theirs, job), daemon=True)
                with one_thread():
                    process.start()
                theirs.close()
                self._pipes.append(ours)
                self._starting.append(ours)
                self._processes.append(process)
        except BaseException:
            self.close()
            raise

    def _path(self, name: str) -> Path:
        return Path(self._folder.name) / name

    def _map(self, name: str, shape: tuple[int, int], dtype: np.dtype[Any]) -> NDArray[Any]:
        # The bytes are really written: a full file system must raise here, not kill the process that touches the map.
        self._path(name).write_bytes(bytes(dtype.itemsize * shape[0] * shape[1]))
        return np.memmap(self._path(name), dtype, "r+", shape=shape)

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
            points: as for `Trainer.train`.
            weights: as for `Trainer.train`.
            users: as for `Trainer.train`, indices into the pool's table.
            at_round: as for `Trainer.train`.
            spec: the clipping from this round on, where it has changed.
            queries: as for `Trainer.train`; the number that the pool was made for.

        Raises:
            BadInput: as `Trainer.train`.
            RuntimeError: a worker failed or died, or the pool is closed; afterwards it is.
        """
        users = np.asarray(users, np.int64)
        if not self._pipes:
            raise RuntimeError("the training workers have ended")
        if np.unique(users).size != users.size:
            raise BadInput("cohort", "names a user twice.")
        if len(points) > len(self._points) or len(points) * queries != len(weights) or queries != len(self._sums[0]):
            raise BadInput(f"{len(points)} points, {len(weights)} weights", "do not fit.", f"{len(self._points)} each")
        for place, point in enumerate(points):
            self._points[place] = point.detach().cpu().numpy()
        self._await_ready()
        order = np.argsort(-steps_of(self.table.sizes_of(users), self.client), kind="stable")
        inside = users if self.table.source is None else self.table.positions(users)
        counts: list[float] = []
        failures: Counter[str] = Counter()
        try:
            for first, pipe in enumerate(self._pipes):
                pipe.send((at_round, tuple(weights), inside[order[first :: len(self._pipes)]], spec))
            for number, pipe in enumerate(self._pipes):
                error, partial, failed = pipe.recv()
                if error:
                    raise RuntimeError(f"training worker {number} failed: {error}")
                counts = [a + b for a, b in itertools.zip_longest(counts, partial, fillvalue=0.0)]
                failures.update(failed)
        except (EOFError, ConnectionError):
            self.close()
            raise RuntimeError("a training worker died") from None
        except BaseException:
            # Ctrl-C between two replies as well: a reply left in a pipe must not be read in a later round.
            self.close()
            raise
        total = torch.from_numpy(np.sum(np.stack(self._sums), axis=0).reshape(-1))
        return CohortUpdate(total, len(users), tuple(counts), failures)

    def ready(self) -> bool:
        """Whether all workers have loaded the task. Does not wait. Raises as `train` where one failed at that."""
        while self._starting and self._starting[0].poll():
            self._greet()
        return not self._starting

    def _await_ready(self) -> None:
        while self._starting:
            self._greet()

    def _greet(self) -> None:
        """Receive a worker's first message: an error's text, or nothing."""
        try:
            error = self._starting[0].recv()
        except (EOFError, ConnectionError):
            self.close()
            raise RuntimeError(f"a training worker died before it began. {GUARD}") from None
        if error:
            self.close()
            raise RuntimeError(f"a training worker could not begin: {error}")
        del self._starting[0]

    @property
    def alive(self) -> bool:
        """Whether the pool can still train."""
        return bool(self._processes) and all(process.is_alive() for process in self._processes)

    def close(self) -> None:
        """End the workers and free their shared memory. Closing twice is fine."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(timeout=5)
            if process.is_alive():
                process.terminate()
                process.join()
        self._pipes, self._starting, self._processes = [], [], []
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _serve(pipe: Connection, job: _Job) -> None:
    """Train shares in a worker process until the other end of the pipe closes."""
    torch.set_num_threads(1)
    # A terminal sends Ctrl-C to every process; the one at the other end of the pipe decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        table = open_table(Path(job.table))
        points = np.memmap(job.points, np.float32, "r", shape=job.shape)
        total = np.memmap(job.sum, np.float64, "r+", shape=job.sums)
        task, client = load_task(job.task), ClientSpec.model_validate_json(job.client)
        trainer = Trainer(task, client, lambda updates: None, seed=job.seed, isolated=job.isolated)
        trainer.clip = clip_with(job.clipping, trainer.schema)
    except Exception as error:  # the parent raises it
        pipe.send(f"{type(error).__name__}: {error}")
        return
    pipe.send("")
    while True:
        try:
            at_round, weights, users, spec = pipe.recv()
        except (EOFError, ConnectionError):
            return
        try:
            if spec is not None:
                trainer.clip = clip_with(spec, trainer.schema)
            queries = job.sums[0]
            sources = [torch.from_numpy(points[place].copy()) for place in range(len(weights) // queries)]
            cohort = trainer.train(sources, weights, table, users, at_round=at_round, queries=queries)
            total[:] = cohort.update.numpy().reshape(job.sums)
            pipe.send(("", cohort.counts, cohort.failures))
        except Exception as error:  # the parent raises it
            pipe.send((f"{type(error).__name__}: {error}", (), {}))
