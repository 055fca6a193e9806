"""Several single-threaded processes that train one cohort together.

One thread each, because threads that share a core wait for each other: on a busy machine two OpenMP threads take ten
times as long as one. Models and sums travel through memory-mapped files (in memory, where the system has a file system
for that), and every worker maps the users' rows for itself.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from fieldfare_client.storage import open_table, write
from fieldfare_client.training.clip import clip_with
from fieldfare_client.training.schedule import steps_of
from fieldfare_client.training.trainer import CohortUpdate, Trainer
from fieldfare_client.users import UserTable

SHARED = Path("/dev/shm")  # noqa: S108 (in it, a new folder that only this user can enter)


@dataclass(frozen=True)
class _Job:
    """What a worker needs to know once."""

    task: str
    client: str
    clipping: ClippingSpec
    seed: int
    table: str
    points: str
    sum: str
    shape: tuple[int, int]
    sums: tuple[int, int]


class WorkerTrainer:
    """As `Trainer`, in `workers` processes. A context manager: leaving it ends them.

    `task`: what `fieldfare.task.load_task` finds, for every worker loads it. `table`: whose users are trained; unless
    it is a mapped file, its rows are written to shared memory once. `points`: the most points a round trains from;
    `queries`: how many it asks.
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
        points: int = 1,
        queries: int = 1,
    ) -> None:
        if workers < 1:
            raise BadInput(f"workers = {workers}", "must be at least 1.", "1")
        self.client, self.table = client, table
        loaded = load_task(task)
        self.schema = Trainer(loaded, client, lambda updates: None).schema  # refuses here what workers would refuse
        self._folder = tempfile.TemporaryDirectory(prefix="fieldfare-", dir=SHARED if SHARED.is_dir() else None)
        self._pipes: list[Connection] = []
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
                job = _Job(task, client.model_dump_json(), spec, seed, *paths, self._points.shape, self._sums[0].shape)
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(theirs, job), daemon=True)
                with _one_thread():
                    process.start()
                theirs.close()
                self._pipes.append(ours)
                self._processes.append(process)
        except BaseException:
            self.close()
            raise

    def _path(self, name: str) -> Path:
        return Path(self._folder.name) / name

    def _map(self, name: str, shape: tuple[int, int], dtype: np.dtype[Any]) -> NDArray[Any]:
        # Written and not just made large: a full file system must raise here, not kill whoever touches the map.
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
        """As `Trainer.train`, to round-off: every worker trains a share of `users` with about as many batches.

        `spec`: clipping from this round on, where it is no longer the one that the pool began with.
        Raises `BadInput` as that does, and RuntimeError where a worker failed or died; then the pool is closed.
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
        order = np.argsort(-steps_of(self.table.sizes_of(users), self.client), kind="stable")
        inside = users if self.table.source is None else self.table.positions(users)
        counts: list[float] = []
        try:
            for first, pipe in enumerate(self._pipes):
                pipe.send((at_round, tuple(weights), inside[order[first :: len(self._pipes)]], spec))
            for number, pipe in enumerate(self._pipes):
                error, told = pipe.recv()
                if error:
                    raise RuntimeError(f"training worker {number} failed: {error}")
                counts = [a + b for a, b in itertools.zip_longest(counts, told, fillvalue=0.0)]
        except (EOFError, ConnectionError):
            self.close()
            raise RuntimeError("a training worker died") from None
        except BaseException:
            # Also where Ctrl-C came in between: what the pipes hold then belongs to no later round.
            self.close()
            raise
        total = torch.from_numpy(np.sum(np.stack(self._sums), axis=0).reshape(-1))
        return CohortUpdate(total, len(users), tuple(counts))

    @property
    def alive(self) -> bool:
        """Whether it can still train."""
        return bool(self._processes) and all(process.is_alive() for process in self._processes)

    def close(self) -> None:
        """End the workers and free what they shared. More than once is fine."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(timeout=5)
            if process.is_alive():
                process.terminate()
                process.join()
        self._pipes, self._processes = [], []
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Processes started inside have one OpenMP thread from their first import on."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def _serve(pipe: Connection, job: _Job) -> None:
    """A worker's life: trains shares until the other end closes."""
    torch.set_num_threads(1)
    # A terminal sends Ctrl-C to every process; the one at the other end of the pipe decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    table = open_table(Path(job.table))
    points = np.memmap(job.points, np.float32, "r", shape=job.shape)
    total = np.memmap(job.sum, np.float64, "r+", shape=job.sums)
    task, client = load_task(job.task), ClientSpec.model_validate_json(job.client)
    trainer = Trainer(task, client, lambda updates: None, seed=job.seed)
    trainer.clip = clip_with(job.clipping, trainer.schema)
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
            pipe.send(("", cohort.counts))
        except Exception as error:  # the parent raises it
            pipe.send((f"{type(error).__name__}: {error}", ()))
