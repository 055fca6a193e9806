"""A user's training in a child of its own: nothing that a loop or a task keeps in memory reaches another user."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context
from numpy.typing import NDArray
from torch import nn

from fieldfare.errors import BadInput
from fieldfare.metrics import MetricsSpec
from fieldfare.plan_tables import ClientSpec
from fieldfare.questions import parse
from fieldfare.schema import pseudonym
from fieldfare.task import Task, load_task, seeded
from fieldfare_client import forked, private
from fieldfare_client.private.node import Instruction
from fieldfare_client.training.measures import Measures
from fieldfare_client.training.trainer import Trainer
from fieldfare_client.users import UserTable
from support.refusals import coded

# Another file of this process may have loaded JAX, which warns at each fork.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork")


IDS = ["anna", "ben", "cleo"]
KEPT: dict[str, Any] = {}
"""Where the loops and tasks below keep what they should not."""


_number, _tensor = multiprocessing.Value("d", 0.0), torch.zeros(1).share_memory_()
_mapped = np.frombuffer(mmap.mmap(-1, 8), np.float64)


def clear() -> None:
    KEPT.clear()
    _number.value = _mapped[0] = _tensor[0] = 0.0


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    clear()
    yield
    clear()


def net() -> nn.Module:
    with seeded(0):
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def rows(user: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = np.random.default_rng(pseudonym(user) % 2**32)
    x = generator.normal(size=(6, 3)).astype(np.float32) + len(user)
    return torch.from_numpy(x), torch.from_numpy(generator.integers(0, 2, 6))


def step(model: nn.Module, user: str, rate: float = 0.1, shift: Any = 0.0) -> None:
    x, y = rows(user)
    loss = nn.functional.cross_entropy(model(x + shift), y)
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for value in model.parameters():
            if value.grad is not None:
                value -= rate * value.grad


def mean(user: str) -> float:
    return float(rows(user)[0].mean())


def counted() -> int:
    KEPT["steps"] = KEPT.get("steps", 0) + 1
    return int(KEPT["steps"])


def with_optimizer(model: nn.Module, user: str) -> None:
    optimizer = KEPT.setdefault("adam", torch.optim.Adam(model.parameters(), 0.1))
    step(model, user, 0.0)
    optimizer.step()


def with_average(model: nn.Module, user: str) -> None:
    step(model, user)
    for name, value in model.named_parameters():
        KEPT[name] = value.detach().clone().lerp(KEPT.get(name, value.detach()), 0.9)
        value.data.copy_(KEPT[name])


def with_scheduler(model: nn.Module, user: str) -> None:
    if "scheduler" not in KEPT:
        KEPT["of"] = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
        KEPT["scheduler"] = torch.optim.lr_scheduler.ExponentialLR(KEPT["of"], 0.5)
    step(model, user, KEPT["scheduler"].get_last_lr()[0])
    KEPT["of"].step()
    KEPT["scheduler"].step()


def with_environment(model: nn.Module, user: str) -> None:
    step(model, user, shift=float(os.environ.get("LAST_MEAN", "0")))
    os.environ["LAST_MEAN"] = str(mean(user))


def with_a_hook(model: nn.Module, user: str) -> None:
    step(model, user)
    layer: Any = model[0]  # type: ignore[index]
    layer.register_forward_hook(lambda module, given, output: output + mean(user))


def with_a_patch(model: nn.Module, user: str) -> None:
    step(model, user)
    shift = mean(user)
    nn.functional.cross_entropy = lambda a, b: CROSS(a, b) * (1 + shift)


CROSS = nn.functional.cross_entropy


def draws(draw: Callable[[], float], seed: Callable[[int], object]) -> Callable[[nn.Module, str], None]:
    """A loop that draws, and seeds by its user's data for whoever comes next."""

    def loop(model: nn.Module, user: str) -> None:
        step(model, user, shift=draw())
        seed(int(abs(mean(user)) * 1e6))

    return loop


def setting(write: Callable[[], object]) -> Callable[[nn.Module, str], None]:
    def loop(model: nn.Module, user: str) -> None:
        step(model, user)
        if mean(user) > 0:
            write()

    return loop


def told(model: nn.Module, user: str) -> None:
    step(model, user, shift=KEPT.get("before", 0.0))
    KEPT["before"] = mean(user)


def attribute(name: str, make: Callable[[str], Any], read: Callable[[Any], float]) -> Callable[[nn.Module, str], None]:
    def loop(model: nn.Module, user: str) -> None:
        step(model, user, shift=read(getattr(model, name)) if hasattr(model, name) else 0.0)
        setattr(model, name, make(user))

    return loop


def frozen_data(model: nn.Module, user: str) -> None:
    layer: Any = model[0]  # type: ignore[index]
    layer.weight.data.mul_(1 + mean(user))
    step(model, user)


def module_of_a_package(model: nn.Module, user: str) -> None:
    step(model, user, shift=getattr(sys.modules["json"], "seen", 0.0))
    sys.modules["json"].seen = mean(user)  # type: ignore[attr-defined]


def default_of_a_function(model: nn.Module, user: str, seen: list[float] = []) -> None:  # noqa: B006  (the point)
    step(model, user, shift=sum(seen))
    seen.append(mean(user))


def shared_number(model: nn.Module, user: str) -> None:
    """As loops count epochs for the workers of a `DataLoader`."""
    _number.value = _number.value or mean(user)
    step(model, user, shift=_number.value)


def first_in(values: Any) -> Callable[[nn.Module, str], None]:
    """A loop that keeps the first user's mean in memory that processes share."""

    def loop(model: nn.Module, user: str) -> None:
        values[0] = float(values[0]) or mean(user)
        step(model, user, shift=float(values[0]))

    return loop


_generator, _numpy = torch.Generator().manual_seed(1), np.random.default_rng(1)


def own_torch_generator(model: nn.Module, user: str) -> None:
    for _ in range(int(rows(user)[1].sum()) + 1):
        shift = torch.randn(1, generator=_generator)
    step(model, user, shift=shift)


def own_numpy_generator(model: nn.Module, user: str) -> None:
    for _ in range(int(rows(user)[1].sum()) + 1):
        shift = float(_numpy.normal())
    step(model, user, shift=shift)


LOOPS: dict[str, Callable[[nn.Module, str], None]] = {
    "optimizer": with_optimizer,
    "scheduler": with_scheduler,
    "average of weights": with_average,
    "torch's generator": draws(lambda: float(torch.randn(1)), torch.manual_seed),
    "numpy's generator": draws(lambda: float(np.random.normal()), lambda seed: np.random.seed(seed % 2**32)),
    "random": draws(random.random, random.seed),
    "torch generator of its own": own_torch_generator,
    "numpy generator of its own": own_numpy_generator,
    "BatchNorm's statistics": lambda model, user: step(model, user),
    "first user's cache": lambda model, user: step(model, user, shift=-KEPT.setdefault("mean", mean(user))),
    "a global number": told,
    "a counter": lambda model, user: step(model, user, rate=0.1 / counted()),
    "a default argument": default_of_a_function,
    "list on the model": attribute("seen", lambda user: [mean(user)], lambda seen: float(seen[0])),
    "tensor on the model": attribute("centre", lambda user: rows(user)[0].mean(0), lambda seen: float(seen.sum())),
    "number on the model": attribute("level", mean, float),
    "gradients": lambda model, user: (step(model, user), model[0].weight.requires_grad_(mean(user) > 9))[0],  # type: ignore
    "hook": with_a_hook,
    "a frozen layer, by .data": frozen_data,
    "environment": with_environment,
    "torch's threads": setting(lambda: torch.set_num_threads(1)),
    "torch's default dtype": setting(lambda: torch.set_default_dtype(torch.float64)),
    "precision of products": setting(lambda: setattr(torch.backends.mkldnn.matmul, "fp32_precision", "bf16")),
    "a patched function": with_a_patch,
    "attribute of another module": module_of_a_package,
    "a shared number": shared_number,
    "a shared tensor": first_in(_tensor),
    "shared pages": first_in(_mapped),
}


def frozen() -> nn.Module:
    model = net()
    model[0].requires_grad_(False)  # type: ignore[index,operator]
    return model


def build_of(name: str) -> Callable[[], nn.Module]:
    return frozen if name == "a frozen layer, by .data" else net


@pytest.mark.parametrize("name", LOOPS)
def test_no_state_of_a_loop_moves_another_users_update(name: str) -> None:
    """Bit for bit: alone, after the others in both orders, and in a second round."""
    loop = LOOPS[name]

    def train(model: Any, user: str, context: Context, config: dict[str, Any]) -> None:
        loop(model, user)

    node: Any = private.train(build_of(name), isolation="process")(train).node  # type: ignore[attr-defined]
    point = node.model.initial()
    instruction, context = Instruction([point], [1.0], 0, 0, {}), Context(0, 0, {}, None, {})  # type: ignore[arg-type]

    def updates(ids: list[str]) -> dict[str, np.ndarray[Any, Any]]:
        failures: Counter[str] = Counter()
        found = {user: node.updates(instruction, pseudonym(user), user, context, failures)[0] for user in ids}
        assert not failures
        return found

    alone = {user: updates([user])[user] for user in IDS}
    assert all(np.any(update) for update in alone.values())
    for order in (IDS, IDS[::-1], IDS):
        for user, update in updates(order).items():
            assert float(np.abs(update - alone[user]).max()) == 0.0
    assert not node.has_trained
    assert not KEPT
    assert not any((_number.value, float(_tensor), float(_mapped[0])))


PUT_BACK = {
    "torch's generator",
    "numpy's generator",
    "random",
    "BatchNorm's statistics",
    "list on the model",
    "tensor on the model",
    "number on the model",
    "gradients",
    "hook",
    "torch's threads",
    "torch's default dtype",
    "precision of products",
}
"""What `ff.private` puts back between users of one process."""


def test_in_one_process_all_others_do_move_it() -> None:
    """So the test above sees what it is to see."""

    def moves(name: str) -> forked.Answer:
        def train(model: Any, user: str, context: Context, config: dict[str, Any]) -> None:
            LOOPS[name](model, user)

        node: Any = private.train(build_of(name), isolation="none")(train).node  # type: ignore[attr-defined]
        instruction = Instruction([node.model.initial()], [1.0], 0, 0, {})
        context = Context(0, 0, {}, None, {})  # type: ignore[arg-type]
        failures: Counter[str] = Counter()
        (alone,) = node.updates(instruction, pseudonym("cleo"), "cleo", context, failures)
        clear()
        for user in ("anna", "ben", "cleo"):
            (after,) = node.updates(instruction, pseudonym(user), user, context, failures)
        return {"moved": not np.array_equal(alone, after)}

    assert {name for name in LOOPS if not forked.ask(lambda name=name: moves(name))["moved"]} == PUT_BACK  # type: ignore[misc]


def test_an_answer_of_one_user_reaches_no_other(tmp_path: Path) -> None:
    node: Any = private.train(net, isolation="process")(lambda model, user, context, config: None).node  # type: ignore[attr-defined]

    def measure(user: str, name: str, context: Context) -> float:
        KEPT["sum"] = KEPT.get("sum", 0.0) + len(user)
        return float(KEPT["sum"])

    node.measure = measure
    question = parse({"kind": "mean", "measure": "size", "low": 0.0, "high": 10.0})
    context, failures = Context(0, 0, {}, None, {}), Counter[str]()  # type: ignore[arg-type]
    first = [node.contribution(question, user, context, failures) for user in IDS]
    again = [node.contribution(question, user, context, failures) for user in IDS[::-1]][::-1]
    assert not failures
    assert not KEPT
    assert np.array_equal(first, again)


class Plain(Task):
    """A task with Python of its own."""

    name, score_name, held_out = "plain", "loss", "none"
    shift = 0.0

    def build_model(self) -> nn.Module:
        with seeded(0):
            return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    def users(self) -> UserTable:
        x, y = zip(*(rows(user) for user in IDS), strict=True)
        columns = {"x": torch.cat(x).numpy(), "y": torch.cat(y).numpy()}
        return UserTable.grouped(np.repeat(np.array(IDS), 6), columns)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"loss": 0.0}


class NumpyPrepare(Plain):
    def prepare(self, columns: Any) -> Any:
        return columns["x"] + float(np.random.normal()), columns["y"]


class RandomLoss(Plain):
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().loss(outputs, targets) * (1 + random.random())


class NumpyLoss(Plain):
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().loss(outputs, targets) * (1 + float(np.random.random()))


class TorchPrepare(Plain):
    def prepare(self, columns: Any) -> Any:
        return columns["x"] + torch.randn(1), columns["y"]


class RunningStatistics(Plain):
    def prepare(self, columns: Any) -> Any:
        self.shift = 0.9 * self.shift + 0.1 * float(columns["x"].mean())
        return columns["x"] - self.shift, columns["y"]


class FirstUsersCache(Plain):
    def prepare(self, columns: Any) -> Any:
        return columns["x"] - KEPT.setdefault("mean", columns["x"].mean()), columns["y"]


class CountedLoss(Plain):
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().loss(outputs, targets) / counted()


class RarelyCountedLoss(Plain):
    """Changes after more calls than anybody compares."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().loss(outputs, targets) * (2.0 if counted() > 10_000 else 1.0)


class KeepingLoss(Plain):
    """Keeps what it is given."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        KEPT.setdefault("targets", []).append(torch.func.debug_unwrap(targets).clone())
        return super().loss(outputs, targets)


class CountingTensor(Plain):
    """Counts its calls in a tensor, by an operation of torch."""

    def __init__(self) -> None:
        self.calls = torch.zeros(1)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        self.calls.view(()).add_(1.0)
        return super().loss(outputs, targets) * (1 + (self.calls > 10_000))


class LazyColumn:
    """A column with Python of its own, which shifts rows by what was read before."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.values, self.dtype = values, values.dtype

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, places: Any) -> np.ndarray[Any, Any]:
        before = KEPT.get("read", 0.0)
        KEPT["read"] = float(self.values[places].mean())
        found: np.ndarray[Any, Any] = self.values[places] + np.float32(before)
        return found


class LazyRows(Plain):
    def users(self) -> UserTable:
        table = super().users()
        return UserTable(table.pseudonyms, table.offsets, {**table.columns, "x": LazyColumn(table.columns["x"])})  # type: ignore[arg-type, dict-item]


SEEDED = [NumpyPrepare, RandomLoss, NumpyLoss, TorchPrepare]
TASKS = [*SEEDED, RunningStatistics, FirstUsersCache, CountedLoss, RarelyCountedLoss, CountingTensor, LazyRows]


def of_task(kind: type[Task], apart: bool, isolated: bool = True) -> Callable[[list[int]], torch.Tensor]:
    """The sum of the updates of the users at these places."""
    task = kind()
    trainer = Trainer(task, ClientSpec(steps=2), lambda updates: None, isolated=isolated, apart=apart)
    table = task.users()
    assert isinstance(table, UserTable)
    start = trainer.schema.flatten(dict(task.build_model().named_parameters())).detach()

    def train(places: list[int]) -> torch.Tensor:
        result = trainer.train([start], [1.0], table, np.array(places), at_round=0)
        assert not result.failures
        return result.update

    return train


@pytest.mark.parametrize(("kind", "apart"), [*((kind, True) for kind in TASKS), *((kind, False) for kind in SEEDED)])
def test_no_state_of_a_task_moves_another_users_update(kind: type[Task], apart: bool) -> None:
    train = of_task(kind, apart)
    alone = [train([place]) for place in range(3)]
    assert all(bool(update.any()) for update in alone)
    assert not torch.equal(alone[0], alone[1])
    for places in ([0, 1, 2], [1, 2], [2, 0]):
        whole = torch.stack([alone[place] for place in places]).sum(0)
        assert float((train(places) - whole).abs().max()) <= 2**-50 * float(whole.abs().max())  # of the sum's order
    assert torch.equal(train([1]), alone[1])


CORRECT = MetricsSpec.model_validate({"show": {"correct": (0.0, 1.0)}})


@pytest.mark.parametrize(
    ("kind", "settings", "metrics", "expected"),
    [
        (Plain, {}, None, True),
        (KeepingLoss, {}, None, True),
        (RarelyCountedLoss, {}, None, True),
        (CountedLoss, {}, None, False),
        (CountingTensor, {}, None, False),
        (NumpyLoss, {}, None, False),
        (FirstUsersCache, {}, None, False),
        (LazyRows, {}, None, False),
        (Plain, {"isolation": "process"}, None, False),
        (Plain, {"engine": "loop"}, None, False),
        (Plain, {}, MetricsSpec.model_validate({"show": {"loss": (0.0, 1.0)}}), False),
        (Plain, {}, CORRECT, True),
        (KeepingLoss, {}, CORRECT, True),
        (CountedLoss, {}, CORRECT, False),
    ],
)
def test_who_needs_no_child(
    kind: type[Task], settings: dict[str, Any], metrics: Any, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss that is torch's operations alone is recorded on made-up rows, and is asked nothing about users."""
    task, asked = kind(), list[int]()
    client = ClientSpec(**settings, batch_size=4)
    trainer = Trainer(task, client, lambda updates: None, isolated=True, apart=True, metrics=metrics)
    table, ask = task.users(), forked.ask
    assert isinstance(table, UserTable)
    start = trainer.schema.flatten(dict(task.build_model().named_parameters())).detach()
    monkeypatch.setattr(forked, "ask", lambda work, **rest: (asked.append(1), ask(work, **rest))[1])
    result = trainer.train([start], [1.0], table, np.arange(3), at_round=0)
    assert result.users == 3
    assert not result.failures
    assert len(asked) == (0 if expected else 3)
    calls = len(KEPT.get("targets", [])), KEPT.get("steps")
    again = trainer.train([start], [1.0], table, np.arange(2), at_round=1)
    assert bool(again.update.any())
    if expected:
        assert (len(KEPT.get("targets", [])), KEPT.get("steps")) == calls
        assert all(bool((targets == 1).all()) for targets in KEPT.get("targets", []))
        loop = Trainer(task, ClientSpec(engine="loop", batch_size=4), lambda updates: None, isolated=True)
        torch.testing.assert_close(
            loop.train([start], [1.0], table, np.arange(3), at_round=0).update, result.update, rtol=1e-4, atol=1e-7
        )


def test_a_user_whom_recorded_operations_fail_trains_in_a_child_and_moves_nobody() -> None:
    class Wrong(Plain):
        def users(self) -> UserTable:
            table = super().users()
            labels = np.array(table.columns["y"])
            labels[table.offsets[1]] = 7  # there is no such class
            return UserTable(table.pseudonyms, table.offsets, {**table.columns, "y": labels})

    task = Wrong()
    client, clip = ClientSpec(batch_size=4), lambda updates: [len(updates)]
    trainer = Trainer(task, client, clip, isolated=True, apart=True, metrics=CORRECT)
    table = task.users()
    start = trainer.schema.flatten(dict(task.build_model().named_parameters())).detach()
    whole = trainer.train([start], [1.0], table, np.arange(3), at_round=0)
    rest = trainer.train([start], [1.0], table, np.array([0, 2]), at_round=0)
    assert whole.users == 3
    (clipped, metric), (_, others) = whole.counts, rest.counts
    (own,) = Measures(task, CORRECT, torch.device("cpu"), isolated=True)(start, table, np.array([1]))
    assert clipped == 3.0
    assert own != 0.0
    assert metric == pytest.approx(others + own, abs=1e-12)  # measured once
    assert dict(whole.failures) == {"IndexError": 1}
    assert torch.equal(whole.update, rest.update)


@pytest.mark.parametrize("kind", [RandomLoss, NumpyLoss])
def test_a_batch_of_users_has_no_common_draws(kind: type[Task]) -> None:
    train = of_task(kind, False, isolated=False)
    alone = torch.stack([train([place]) for place in range(3)])
    torch.testing.assert_close(train([0, 1, 2]), alone.sum(0), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", [RunningStatistics, FirstUsersCache, CountedLoss])
def test_without_a_child_such_a_task_does_move_them(kind: type[Task]) -> None:
    train = of_task(kind, False)
    first = train([1])
    train([0])
    KEPT.setdefault("mean", 0.0)
    assert kind is FirstUsersCache or not torch.equal(train([1]), first)
    assert kind is not FirstUsersCache or not torch.equal(of_task(kind, True)([0]), train([0]))


@pytest.mark.parametrize(
    ("kind", "settings", "isolated", "device", "expected"),
    [
        (Plain, {}, True, "cpu", True),
        (Plain, {}, False, "cpu", False),
        (Plain, {"isolation": "process"}, False, "cpu", True),
        (Plain, {"isolation": "none"}, True, "cpu", False),
        (Plain, {"engine": "batched"}, True, "cpu", False),
        (Plain, {}, True, "cuda", False),
        (None, {}, True, "cpu", False),
    ],
)
def test_whose_users_train_apart(
    kind: Any, settings: dict[str, Any], isolated: bool, device: str, expected: bool
) -> None:
    task = load_task("digits") if kind is None else kind()
    assert forked.trains_apart(task, ClientSpec(**settings), isolated, device) is expected


@pytest.mark.parametrize("module", ["abc_clinic", "builtins2", "fieldfare_clinic", "fieldfare_client_of_ours.tasks"])
def test_a_task_in_a_module_whose_name_begins_as_another_is_somebodys_own(module: str) -> None:
    """Its users trained in one process, without a word, for the first letters of the module's name."""
    assert forked.has_own_python(type("Clinic", (type(load_task("digits")),), {"__module__": module})())


def test_what_cannot_be_kept_apart_is_refused_or_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, check=coded("unsupported", "client.isolation")):
        forked.trains_apart(Plain(), ClientSpec(isolation="process"), True, "cuda")
    monkeypatch.setitem(sys.modules, "jax", sys)
    with pytest.raises(BadInput, check=coded("unsupported", "isolation")):
        forked.is_apart("process", wanted=True)
    assert forked.is_apart("auto", wanted=True) == (False, forked.why_not())
    monkeypatch.delitem(sys.modules, "jax")
    monkeypatch.setattr(forked.sys, "platform", "darwin")
    assert "darwin" in forked.is_apart("auto", wanted=True)[1]
    with pytest.raises(BadInput, check=coded("unknown", "isolation")):
        private.train(net, isolation="thread")  # type: ignore[arg-type]


def test_a_child_that_dies_is_one_failing_user(tmp_path: Path) -> None:
    class Dies(Plain):
        def prepare(self, columns: Any) -> Any:
            if float(columns["x"].mean()) == mean_of_first:
                os.kill(os.getpid(), signal.SIGKILL)  # SIGSEGV would fill the report with a dump
            return columns["x"], columns["y"]

    mean_of_first = float(rows(IDS[0])[0].mean())
    trainer = Trainer(Dies(), ClientSpec(), lambda updates: None, apart=True)
    table = Dies().users()
    start = trainer.schema.flatten(dict(Dies().build_model().named_parameters())).detach()
    result = trainer.train([start], [1.0], table, np.array([0, 1, 2]), at_round=0)
    rest = trainer.train([start], [1.0], table, np.array([1, 2]), at_round=0)
    place = [int(np.flatnonzero(table.pseudonyms == pseudonym(user))[0]) for user in IDS]
    assert result.users == 3
    assert dict(result.failures) == {"the training ended its process": 1}
    assert place[0] != 0 or torch.equal(result.update, rest.update)


def test_a_child_that_hangs_ends_with_its_round() -> None:
    began = time.monotonic()
    with pytest.raises(forked.Ended, match="outlasted its round"):
        forked.ask(lambda: time.sleep(60) or {}, began + 0.5)
    with pytest.raises(forked.Ended, match="outlasted"):
        forked.ask(lambda: time.sleep(60) or {}, began)
    assert time.monotonic() - began < 30


def test_a_child_can_use_all_threads_though_this_process_has_used_its_own() -> None:
    """A fork of a thread that has OpenMP threads would wait for them for ever."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        torch.exp(torch.randn(1000, 1000))
        began = time.monotonic()
        signal.alarm(60)
        answer = forked.ask(lambda: {"sum": float(torch.exp(torch.randn(1000, 1000)).sum())})
        signal.alarm(0)
    finally:
        torch.set_num_threads(before)
    assert answer["sum"] > 0
    assert time.monotonic() - began < 60


def test_a_process_that_a_loop_leaves_behind_holds_nobody_up() -> None:
    began = time.monotonic()

    def leaves() -> forked.Answer:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if os.fork() == 0:
                time.sleep(20)
                os._exit(0)
        return {"done": True}

    assert forked.ask(leaves) == {"done": True}
    assert time.monotonic() - began < 15


def huge() -> int:
    """Bytes of this process that lie in huge pages."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages:"))


def test_memory_is_gathered_before_many_children_and_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    held, before = b"\x01\x02\x03" * (16 << 20), huge()
    asked = iter([forked._MANY - 1, forked._MANY])
    monkeypatch.setattr(forked, "_asked", asked)
    assert forked.ask(lambda: {"huge": huge()})["huge"] <= before + (8 << 20)
    found = forked.ask(lambda: {"huge": huge(), "same": held == b"\x01\x02\x03" * (16 << 20)})
    assert found["same"]
    assert held == b"\x01\x02\x03" * (16 << 20)
    if huge() <= before:
        pytest.skip("this kernel gathers no huge pages")
    assert found["huge"] > before + (24 << 20)


def test_a_child_copies_no_page_for_each_module() -> None:
    """The names of modules lie on as many pages, and a reference to each copies them all."""
    pages: list[int] = []
    for look in (lambda: {}, lambda: {"names": len(set(sys.modules))}):
        forked.ask(look)
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
        forked.ask(look)
        pages.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before)
    assert pages[0] < pages[1] - 300


@pytest.mark.parametrize("ask", [forked.ask, lambda work: forked.ask_once(lambda tell: tell(work()))])
def test_what_a_child_imports_late_is_imported_once(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the check's children imported what PyTorch loads at its first gradient: half of the check."""
    late = "numpy.polynomial.hermite_e"
    for name in [each for each in sys.modules if each.startswith("numpy.polynomial")]:
        monkeypatch.delitem(sys.modules, name)
    ask(lambda: {"found": __import__(late) is not None})
    assert late not in sys.modules, "of no use where no other child follows, as on a node of one user"
    assert ask(lambda: {"found": late in sys.modules})["found"]


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no /dev/shm on this machine")
def test_the_store_of_a_ray_simulation_is_not_copied_for_each_user() -> None:
    """Its gigabytes are mapped by every actor; other memory of that kind is copied."""
    for prefix, seen in (("plasma", 7.0), ("other", 0.0)):
        with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix=prefix) as file:
            file.truncate(mmap.PAGESIZE)
            values = np.frombuffer(mmap.mmap(file.fileno(), 0), np.float64)

            def write(values: NDArray[np.float64] = values) -> dict[str, Any]:
                values[0] = 7.0
                return {}

            forked.ask(write)
            assert values[0] == seen
