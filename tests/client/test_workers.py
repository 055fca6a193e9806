"""Worker processes give what one process gives, and end with their pool."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

from fieldfare import clipping
from fieldfare.errors import BadInput
from fieldfare.plan_tables import ClientSpec
from fieldfare.schema import Schema
from fieldfare.task import hold
from fieldfare_client import forked
from fieldfare_client.settings import TrainingSettings
from fieldfare_client.storage import open_table, write
from fieldfare_client.tasks.digits import DigitsTask
from fieldfare_client.training import workers
from fieldfare_client.training.clip import clip_with
from fieldfare_client.training.cores import cores, processes
from fieldfare_client.training.trainer import Trainer
from fieldfare_client.training.workers import WorkerTrainer
from support.faulty_tasks import ReadFirst
from support.refusals import coded

FLAT = clipping.parse({"kind": "flat", "norm": 0.5})
QUANTILE = clipping.parse({"kind": "adaptive-quantile", "norm": 0.5})
CLIENT = ClientSpec(batch_size=5, epochs=2)


def start(scale: float = 1.0) -> torch.Tensor:
    model = DigitsTask().build_model()
    return Schema.of(model).flatten(dict(model.named_parameters())) * scale


@pytest.fixture(params=["forked", "started anew"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How workers begin: as on Linux, and as where a process cannot be forked."""
    if request.param != "forked":
        monkeypatch.setattr(forked, "why_not_by_default", lambda: "not here")
    return str(request.param)


class Counting(DigitsTask):
    """An object, as a notebook makes it: no other process can import it. Notes where its loss was called."""

    called_in: ClassVar[set[int]] = set()

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        self.called_in.add(os.getpid())
        return super().loss(outputs, targets)


def test_workers_train_a_task_that_is_an_object_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[object] = []
    monkeypatch.setattr(workers, "write_arrays", lambda *written: copied.append(written))
    task = Counting()
    name = hold(task)
    assert processes(ClientSpec(workers="auto"), name) == cores()
    table, users = task.users(), np.arange(0, 100, 3)
    with closing(WorkerTrainer(name, TrainingSettings(CLIENT, FLAT, 4, False), table, workers=2)) as pool:
        cohort = pool.train([start()], [1.0], users, at_round=7)
        assert not task.called_in
        assert not copied  # nor are rows
    one = Trainer(task, CLIENT, clip_with(FLAT, Schema.of(task.build_model())), seed=4)
    expected = one.train([start()], [1.0], table, users, at_round=7)
    assert task.called_in == {os.getpid()}
    torch.testing.assert_close(cohort.update, expected.update, rtol=1e-4, atol=1e-5)


def test_where_no_process_can_be_forked_objects_and_auto_train_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "why_not_by_default", lambda: "not here")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    task = Counting()
    assert processes(ClientSpec(workers=4), hold(task)) == 1
    assert processes(ClientSpec(workers="auto"), "digits") == 1
    assert processes(ClientSpec(workers=4), "digits") == 4


def test_a_large_model_has_fewer_processes_unless_its_plan_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fieldfare_client.training.cores.cores", lambda: 32)
    monkeypatch.setattr(os, "cpu_count", lambda: 32)
    found = [processes(ClientSpec(), "digits", numbers) for numbers in (10**6, 10**7, 10**8, 10**9)]
    assert found == [32, 13, 1, 1]
    assert processes(ClientSpec(workers=4), "digits", 10**9) == 4


@pytest.mark.parametrize("forks", [True, False])
def test_a_killed_parent_leaves_no_worker_and_no_file(tmp_path: Path, forks: bool) -> None:
    """Forked workers inherit what those before them hear their parent by: they let go of it.

    Sums that no noise has been added to, and the rows of users, were left on the RAM disk.
    """
    script = """
import sys, time
from pathlib import Path
import numpy as np
from fieldfare_client import forked, shared_users
from fieldfare_client.training import workers
shared_users.SHARED = workers.SHARED = Path(sys.argv[1])
if sys.argv[2] == "False":
    forked.why_not_by_default = lambda: "not here"
from test_workers import CLIENT, FLAT, start
from fieldfare_client.settings import TrainingSettings
from fieldfare_client.tasks.digits import DigitsTask
from fieldfare_client.training.workers import WorkerTrainer

pool = WorkerTrainer("digits", TrainingSettings(CLIENT, FLAT, 4, False), DigitsTask().users(), workers=3)
pool.train([start()], [1.0], np.arange(9), at_round=0)
print(*(process.pid for process in pool._processes), flush=True)
time.sleep(60)
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    command = [sys.executable, "-c", script, str(tmp_path), str(forks)]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
    assert len(workers) == 3
    ends = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < ends:
        time.sleep(0.05)
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]
    assert not list(tmp_path.rglob("*"))


def test_workers_give_what_one_process_gives(way: str) -> None:
    task = DigitsTask()
    table, users = task.users(), np.arange(0, 100, 3)
    one = Trainer(task, CLIENT, clip_with(QUANTILE, Schema.of(task.build_model())), seed=4)
    with closing(
        WorkerTrainer("digits", TrainingSettings(CLIENT, QUANTILE, 4, False), table, workers=2, points=2)
    ) as pool:
        for at_round, (points, weights) in enumerate([([start()], [1.0]), ([start(), start(0.9)], [0.5, 0.5])]):
            expected = one.train(points, weights, table, users, at_round=at_round)
            cohort = pool.train(points, weights, users, at_round=at_round)
            torch.testing.assert_close(cohort.update, expected.update, rtol=1e-4, atol=1e-5)
            assert (cohort.users, cohort.counts) == (expected.users, expected.counts)
        assert not pool.train([start()], [1.0], np.array([], np.int64), at_round=9).update.any()
        with pytest.raises(BadInput, check=coded("wrong-form", "cohort")):
            pool.train([start()], [1.0], np.array([1, 1]), at_round=9)
        with pytest.raises(BadInput, check=coded("wrong-form", "3 points, 3 weights")):
            pool.train([start()] * 3, [1.0] * 3, users, at_round=9)


def test_workers_answer_several_queries() -> None:
    task = DigitsTask()
    table, users = task.users(), np.arange(0, 100, 3)
    one = Trainer(task, CLIENT, clip_with(FLAT, Schema.of(task.build_model())), seed=4)
    settings = TrainingSettings(CLIENT, FLAT, 4, False)
    with closing(WorkerTrainer("digits", settings, table, workers=2, points=2, queries=3)) as pool:
        points, weights = [start(), start(0.9)], [1.0, 0.0, -4.0, 4.0, 0.0, 0.0]
        expected = one.train(points, weights, table, users, at_round=7, queries=3)
        cohort = pool.train(points, weights, users, at_round=7, queries=3)
        torch.testing.assert_close(cohort.update, expected.update, rtol=1e-4, atol=1e-5)
        with pytest.raises(BadInput, check=coded("wrong-form", "2 points, 2 weights")):
            pool.train(points, weights[:2], users, at_round=7)


@pytest.mark.slow
def test_workers_map_a_file_of_which_their_node_hosts_some_users(tmp_path: Path, way: str) -> None:
    task = DigitsTask()
    write(tmp_path / "digits.arrow", [task.users()])
    mine = open_table(tmp_path / "digits.arrow").partition(0, 2)
    some = np.arange(len(mine))
    one = Trainer(task, CLIENT, clip_with(FLAT, Schema.of(task.build_model())), seed=4)
    with closing(WorkerTrainer("digits", TrainingSettings(CLIENT, FLAT, 4, False), mine, workers=1)) as pool:
        expected = one.train([start()], [1.0], mine, some, at_round=0)
        cohort = pool.train([start()], [1.0], some, at_round=0)
        torch.testing.assert_close(cohort.update, expected.update, rtol=1e-4, atol=1e-5)


def test_a_dead_worker_is_an_error_and_leaves_nothing_behind() -> None:
    pool = WorkerTrainer("digits", TrainingSettings(CLIENT, FLAT, 0, False), DigitsTask().users(), workers=1)
    sums, process = pool._sums.free[0][0], pool._processes[0]
    held = sums.stat()
    os.kill(process.pid, signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"died|have ended"):
            pool.train([start()], [1.0], np.arange(3), at_round=0)
    assert not sums.exists() or not os.path.samestat(held, sums.stat())
    assert not process.is_alive()
    pool.close()


class ReadFirstDigits(ReadFirst, DigitsTask):
    """The digits, for users whom this very object has read."""


def test_forked_workers_train_the_very_task_that_read_the_users() -> None:
    """They loaded it anew: every user of such a task failed once a node had tried its other cores."""
    task = ReadFirstDigits()
    table, settings = task.users(), TrainingSettings(CLIENT, FLAT, 0, False)
    with closing(WorkerTrainer("test_workers:ReadFirstDigits", settings, table, workers=2, reader=task)) as pool:
        assert not pool.train([start()], [1.0], np.arange(6), at_round=0).failures


def test_a_pool_ends_though_another_process_holds_its_pipes() -> None:
    """Whatever was forked meanwhile has this end of each pipe, so that no worker sees it closed."""
    pool = WorkerTrainer("digits", TrainingSettings(CLIENT, FLAT, 0, False), DigitsTask().users(), workers=2)
    pool.train([start()], [1.0], np.arange(4), at_round=0)
    workers = list(pool._processes)
    if not (other := os.fork()):
        time.sleep(60)
        os._exit(0)
    try:
        pool.close()
        assert [process.exitcode for process in workers] == [0, 0]  # and not by a signal, five seconds later
    finally:
        os.kill(other, signal.SIGKILL)
        os.waitpid(other, 0)


def test_no_workers_are_refused() -> None:
    with pytest.raises(BadInput, check=coded("out-of-range", "workers = 0")):
        WorkerTrainer("digits", TrainingSettings(CLIENT, FLAT, 0, False), DigitsTask().users(), workers=0)
