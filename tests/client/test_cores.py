""" "auto" workers: never slower than one process, whatever fails; and scripts that forget their guard."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import fieldfare as ff
from fieldfare.errors import BadInput
from fieldfare.plan import WORKERS, Plan
from fieldfare_client import app as client_app
from fieldfare_client.main_guard import GUARD
from fieldfare_client.training import cores
from fieldfare_client.training.cores import CoreChoice
from fieldfare_client.training.trainer import CohortUpdate
from fieldfare_client.training.workers import WorkerTrainer
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, home, plan
from support.refusals import coded


def keywords(workers: int | str) -> dict[str, Any]:
    return {"task": "digits", "epsilon": 4, "delta": 1e-5, "rounds": 6, "cohort": 10, "client": {"workers": workers}}


def timed(alone: float, together: list[float], batches: int = 10) -> CoreChoice:
    """A choice that has seen rounds alone of `alone` seconds, and these rounds in workers."""
    choice = CoreChoice()
    while not choice.wants_workers:
        choice.record(False, alone, batches)
    for seconds in together:
        choice.record(True, seconds, batches)
    return choice


def test_workers_are_not_started_for_a_run_that_is_over_before() -> None:
    choice = CoreChoice()
    for _ in range(int(cores.PATIENCE / 0.5) - 1):
        choice.record(False, 0.5, 10)
        assert not choice.wants_workers
    choice.record(False, 0.5, 10)
    assert choice.wants_workers
    assert choice.workers is None


@pytest.mark.parametrize(
    ("together", "stays"),
    [([0.6, 0.6, 0.6], True), ([9.0, 0.6, 0.95], True), ([0.1, 0.95, 0.95], False), ([2.0, 2.0, 2.0], False)],
    ids=["faster", "only its start is slow", "only its start is fast", "slower"],
)
def test_workers_stay_only_where_they_are_clearly_faster(together: list[float], stays: bool) -> None:
    choice = timed(1.0, together)
    assert (choice.workers, choice.wants_workers) == (stays, stays)
    assert "ms a batch in workers, 100 ms alone" in choice.why


def test_rounds_of_different_size_are_compared_by_batch() -> None:
    choice = CoreChoice()
    while not choice.wants_workers:
        choice.record(False, 1.0, 10)
    for _ in range(3):
        choice.record(True, 2.4, 40)
    assert choice.workers


class Pool:
    """Workers that are ready at the third look, and train or fail."""

    def __init__(self, fails: str = "") -> None:
        self.fails, self.looks, self.rounds = fails, 0, 0

    def ready(self) -> bool:
        self.looks += 1
        if self.fails == "at the start":
            raise RuntimeError("a training worker died before it began")
        return self.looks > 2

    def train(self) -> CohortUpdate:
        self.rounds += 1
        if self.fails == "later" and self.rounds > 1:
            raise RuntimeError("a training worker died")
        return CohortUpdate(torch.ones(1, dtype=torch.float64), 1)


@pytest.mark.parametrize("fails", ["", "at the start", "later"])
def test_workers_that_fail_cost_no_round(
    fails: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice, pool = timed(1.0, []), Pool(fails)
    own, now = CohortUpdate(torch.zeros(1, dtype=torch.float64), 1), [0.0]
    monkeypatch.setattr(client_app, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def alone() -> CohortUpdate:
        now[0] += 1.0
        return own

    def together(pool: Pool) -> CohortUpdate:
        now[0] += 0.5
        return pool.train()

    results = [
        client_app._train_as_chosen(choice, 10, alone, lambda: pool, together)  # type: ignore[arg-type, return-value]
        for _ in range(8)
    ]
    assert all(result.users == 1 for result in results)
    if fails:
        assert choice.workers is False
        assert results[-1] is own
        assert pool.rounds == (2 if fails == "later" else 0)
        assert "training goes on in one process" in caplog.text
    else:
        assert results[:2] == [own, own], "one process trains while the workers start"
        assert choice.workers
        assert choice.why == "50 ms a batch in workers, 100 ms alone"
        assert pool.rounds == 6


def test_the_digest_does_not_know_how_many_processes_train() -> None:
    one, many, auto = (ff.Plan(mechanism="nu", **keywords(workers)) for workers in (1, 4, "auto"))
    assert one.digest() == many.digest() == auto.digest()
    for made in (one, many, auto):
        again = Plan.stored(json.loads(made.run_json(0.25)))
        assert again.client.workers == made.client.workers, "a resumed run keeps its number"
        assert again.digest() == made.digest()
        assert again.run_json(0.25) == made.run_json(0.25)
    assert WORKERS not in one.run_json(0.25), "as older versions wrote it"


def test_a_plan_that_an_older_version_stored_with_workers_keeps_its_digest() -> None:
    table = json.loads(ff.Plan(mechanism="nu", **keywords(1)).to_json())
    table["client"]["workers"] = 4
    text = json.dumps(table, sort_keys=True, separators=(",", ":"))
    stored = Plan.stored(table)
    assert stored.client.workers == 4
    assert stored.digest() == hashlib.sha256(text.encode()).hexdigest()
    assert stored.model_copy().run_json(0.0) == text


@pytest.mark.parametrize("workers", [0, 257, "many", 1.5])
def test_workers_are_a_number_or_auto(workers: object) -> None:
    with pytest.raises(BadInput, check=coded("value-wrong", "client.workers")):
        ff.Plan(mechanism="nu", **keywords(workers))  # type: ignore[arg-type]


def trained(root: Path, workers: int | str) -> torch.Tensor:
    root.mkdir()
    a_plan = plan(run__rounds=9, client={"batch_size": 3, "learning_rate": 0.1, "workers": workers})
    with Session.begin(home(root), a_plan, identity_is_stable=True) as session:
        FieldfareStrategy(session).start(LyingGrid(1))
    return session.params


@pytest.mark.slow
def test_a_run_that_finds_its_workers_on_the_way_gives_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "PATIENCE", 0.0)
    monkeypatch.setattr(cores, "cores", lambda: 2)
    monkeypatch.setenv("FIELDFARE_DEVICE", "cpu")

    def wait(pool: WorkerTrainer) -> bool:
        while pool._starting:
            pool._greet()
        return True

    monkeypatch.setattr(WorkerTrainer, "ready", wait)
    client_app.forget_users()
    expected = trained(tmp_path / "one", 1)
    try:
        torch.testing.assert_close(trained(tmp_path / "auto", "auto"), expected, rtol=1e-4, atol=1e-5)
        (choice,) = client_app._POOL._choices.values()
        assert choice.workers is not None
        assert len(choice.together) == 3
        assert (client_app._POOL._workers is not None) == choice.workers
    finally:
        client_app.forget_users()
    assert not client_app._POOL._choices


UNGUARDED = """
import os, sys, types
sys.modules["jax"] = types.ModuleType("jax")  # whose threads a forked process would lack
os.cpu_count = lambda: 2
import fieldfare as ff
plan = ff.Plan(task="digits", epsilon=4, delta=1e-5, rounds=2, cohort=10, mechanism="nu", accept_noise=True,
               client={"workers": 2})
ff.simulate(plan, population="demo", budget=10, progress=False)
"""


@pytest.mark.slow
def test_a_script_without_its_guard_gets_pythons_own_message_and_no_void_round(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode != 0
    assert "before the\n        current process has finished its bootstrapping phase" in done.stderr
    assert f"a training process could not begin; its error is above. {GUARD}" in done.stderr
    assert "void" not in done.stderr + done.stdout
