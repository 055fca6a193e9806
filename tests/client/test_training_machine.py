"""What training does to its process: denormals while it computes, memory that stays, and nothing on the terminal."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

from fieldfare.plan_tables import ClientSpec
from fieldfare.schema import Schema
from fieldfare.task import Task
from fieldfare_client.training import machine
from fieldfare_client.training.choice import KNOWN, TRIALS, Candidate, EngineChoice
from fieldfare_client.training.machine import flushed_denormals, keep_freed_memory
from fieldfare_client.training.trainer import Trainer
from fieldfare_client.users import UserTable

TINY = 5e-324


class Recurrent(nn.Module):
    """An LSTM of two directions, for which torch has no batching rule on a CPU: it warns at every use."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTM(2, 3, batch_first=True, bidirectional=True), nn.Linear(6, 2)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(self.cell(values)[0][:, -1])
        return outputs


class Watching(Task):
    """Notes whether the thread that trains it flushes denormals; warns once a loss, if it is told to."""

    name = "watching"
    score_name = "none"
    held_out = "Nothing is evaluated."

    def __init__(self, model: nn.Module, warns: bool = False) -> None:
        self.made, self.warns = model, warns
        self.flushed: set[bool] = set()

    def build_model(self) -> nn.Module:
        return self.made

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        self.flushed.add(TINY * float(len(outputs) > 0) == 0.0)
        if self.warns:
            warnings.warn("the task's own", UserWarning, stacklevel=1)
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    def users(self) -> UserTable:
        rows = np.random.default_rng(0).normal(size=(24, 3, 2)).astype(np.float32)
        return UserTable([str(u) for u in range(8)], np.arange(9) * 3, {"x": rows, "y": np.arange(24) % 2})

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"none": 0.0}


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    KNOWN.clear()
    yield
    torch.set_flush_denormal(False)


def train(task: Watching, engine: str = "auto") -> None:
    schema = Schema.of(task.made)
    trainer = Trainer(task, ClientSpec(batch_size=3, engine=engine), lambda updates: None)  # type: ignore[arg-type]
    start = schema.flatten(dict(task.made.named_parameters())).detach()
    trainer.train([start], [1.0], task.users(), np.arange(8), at_round=0)


flushes = pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this CPU cannot flush denormals")


@flushes
@pytest.mark.parametrize("before", [False, True])
def test_denormals_count_as_zero_inside_and_as_before_outside(before: bool) -> None:
    torch.set_flush_denormal(before)
    for raising in (False, True):
        try:
            with flushed_denormals():
                assert float(torch.tensor(1e-40) * 1.0) == 0.0
                if raising:
                    raise KeyError
        except KeyError:
            pass
        assert (float(torch.tensor(1e-40) * 1.0) == 0.0) == before


@flushes
@pytest.mark.parametrize("model", [lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 2)), Recurrent])
@pytest.mark.parametrize("engine", ["loop", "batched"])
def test_every_engine_trains_with_denormals_flushed(engine: str, model: type[nn.Module]) -> None:
    task = Watching(model())
    train(task, engine)
    assert task.flushed == {True}
    assert TINY * float(len(task.flushed)) != 0.0


def test_the_choice_of_an_engine_prints_no_warning_of_torch_and_hides_none_of_the_task() -> None:
    for warns in (False, True):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            train(Watching(Recurrent(), warns), "batched")
            train(Watching(Recurrent(), warns))
        assert {str(warning.message) for warning in seen} == ({"the task's own"} if warns else set())


def test_a_cold_start_is_not_measured() -> None:
    candidates = [Candidate(None, 1, "loop"), Candidate(None, 9, "batched")]  # type: ignore[arg-type]
    # The first chunk of each is timed wrongly: the loop's looks slow, the batched engine's fast.
    times = {0: [90.0, 1.0, 1.0], 1: [0.01, 2.0, 2.0]}
    choice = EngineChoice(candidates, "")
    for _ in range(2 * TRIALS):
        place = choice.next()
        choice.record(place, times[place].pop(0), 1)
    assert candidates[choice.next()].label == "loop"
    assert "loop 1e+03 ms, batched 2e+03 ms" in str(choice)


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_the_allocator_is_left_alone_where_the_environment_sets_it(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda name: pytest.fail("asked"))
    monkeypatch.setenv(name, "glibc.malloc.trim_threshold=1")
    assert not keep_freed_memory.__wrapped__()


def test_the_allocator_is_left_alone_where_it_is_not_glibcs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(machine.os, "confstr", lambda name: (_ for _ in ()).throw(ValueError(name)))
    assert not keep_freed_memory.__wrapped__()
