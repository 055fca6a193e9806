"""Worker processes give what one process gives, and end with their pool."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from fieldfare import clipping
from fieldfare.errors import BadInput
from fieldfare.plan_tables import ClientSpec
from fieldfare.schema import Schema
from fieldfare_client.settings import TrainingSettings
from fieldfare_client.storage import open_table, write
from fieldfare_client.tasks.digits import DigitsTask
from fieldfare_client.training.clip import clip_with
from fieldfare_client.training.trainer import Trainer
from fieldfare_client.training.workers import WorkerTrainer
from support.refusals import coded

FLAT = clipping.parse({"kind": "flat", "norm": 0.5})
QUANTILE = clipping.parse({"kind": "adaptive-quantile", "norm": 0.5})
CLIENT = ClientSpec(batch_size=5, epochs=2)


def start(scale: float = 1.0) -> torch.Tensor:
    model = DigitsTask().build_model()
    return Schema.of(model).flatten(dict(model.named_parameters())) * scale


def test_workers_give_what_one_process_gives() -> None:
    task = DigitsTask()
    table, users = task.users(), np.arange(0, 100, 3)
    one = Trainer(task, CLIENT, clip_with(QUANTILE, Schema.of(task.build_model())), seed=4)
    with WorkerTrainer("digits", TrainingSettings(CLIENT, QUANTILE, 4, False), table, workers=2, points=2) as pool:
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
    with WorkerTrainer(
        "digits", TrainingSettings(CLIENT, FLAT, 4, False), table, workers=2, points=2, queries=3
    ) as pool:
        points, weights = [start(), start(0.9)], [1.0, 0.0, -4.0, 4.0, 0.0, 0.0]
        expected = one.train(points, weights, table, users, at_round=7, queries=3)
        cohort = pool.train(points, weights, users, at_round=7, queries=3)
        torch.testing.assert_close(cohort.update, expected.update, rtol=1e-4, atol=1e-5)
        with pytest.raises(BadInput, check=coded("wrong-form", "2 points, 2 weights")):
            pool.train(points, weights[:2], users, at_round=7)


@pytest.mark.slow
def test_workers_map_a_file_of_which_their_node_hosts_some_users(tmp_path: Path) -> None:
    task = DigitsTask()
    write(tmp_path / "digits.arrow", [task.users()])
    mine = open_table(tmp_path / "digits.arrow").partition(0, 2)
    some = np.arange(len(mine))
    one = Trainer(task, CLIENT, clip_with(FLAT, Schema.of(task.build_model())), seed=4)
    with WorkerTrainer("digits", TrainingSettings(CLIENT, FLAT, 4, False), mine, workers=1) as pool:
        expected = one.train([start()], [1.0], mine, some, at_round=0)
        cohort = pool.train([start()], [1.0], some, at_round=0)
        torch.testing.assert_close(cohort.update, expected.update, rtol=1e-4, atol=1e-5)


def test_a_dead_worker_is_an_error_and_leaves_nothing_behind() -> None:
    pool = WorkerTrainer("digits", TrainingSettings(CLIENT, FLAT, 0, False), DigitsTask().users(), workers=1)
    folder, process = Path(pool._folder.name), pool._processes[0]
    os.kill(process.pid, signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"died|have ended"):
            pool.train([start()], [1.0], np.arange(3), at_round=0)
    assert not folder.exists()
    assert not process.is_alive()
    pool.close()


def test_no_workers_are_refused() -> None:
    with pytest.raises(BadInput, check=coded("out-of-range", "workers = 0")):
        WorkerTrainer("digits", TrainingSettings(CLIENT, FLAT, 0, False), DigitsTask().users(), workers=0)
