"""Where it is secret who trains, users of a task with Python of its own train on torch's operations alone, recorded on
made-up users: as fast as where it is not secret, and nothing that the Python keeps reaches another user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fieldfare.plan_tables import ClientSpec
from fieldfare.task import Task, seeded
from fieldfare_client import forked
from fieldfare_client.training import isolation
from fieldfare_client.training.loss_gradient import Recorded, record
from fieldfare_client.training.trainer import Trainer
from fieldfare_client.users import UserTable

# Another file of this process may have loaded JAX, which warns at each fork.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork")

SIZES = (12, 5, 9, 12, 1, 7, 12, 12, 3, 10, 12, 4, 12, 12, 12, 8, 12, 12, 2, 6)
KEPT: dict[str, Any] = {}
"""What the models below keep between users, and should not."""


@pytest.fixture(autouse=True)
def clear() -> None:
    KEPT.clear()


class Net(nn.Module):
    """A model with a skip connection: no stack of layers, whose backward pass would be written out."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(6, 6), nn.Linear(6, 3)

    def hidden(self, values: torch.Tensor) -> torch.Tensor:
        return values + torch.tanh(self.inner(values))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.outer(self.hidden(values))
        return outputs


class Images(Net):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 2, padding=1)

    def hidden(self, values: torch.Tensor) -> torch.Tensor:
        planes = nn.functional.max_pool2d(torch.relu(self.conv(values.reshape(-1, 1, 2, 3))), 2)
        return super().hidden(values + planes.flatten(1).repeat(1, 2)[:, :6])


class Recurrent(Net):
    kind: Any = nn.LSTM

    def __init__(self) -> None:
        super().__init__()
        self.cells = self.kind(2, 6, batch_first=True)

    def hidden(self, values: torch.Tensor) -> torch.Tensor:
        last: torch.Tensor = self.cells(values.reshape(-1, 3, 2))[0][:, -1]
        return super().hidden(last)


class Gated(Recurrent):
    kind = nn.GRU


class Attends(Net):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.TransformerEncoderLayer(2, 1, 4, dropout=0.0, batch_first=True)

    def hidden(self, values: torch.Tensor) -> torch.Tensor:
        return super().hidden(self.block(values.reshape(-1, 3, 2)).flatten(1))


class Parts(Net):
    """Lists of tensors, in place on parts of a whole, and a parameter in two places."""

    def hidden(self, values: torch.Tensor) -> torch.Tensor:
        found = torch.tanh(self.inner(values)) * 1.0
        found[:, 1:4].mul_(2.0)
        first, second = found.chunk(2, dim=1)
        whole = torch.cat([second, first, torch.stack([first, second]).sum(0)], dim=1)[:, :6]
        outputs: torch.Tensor = self.inner(whole)
        return outputs


class KeyedMask(Net):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def hidden(self, values: torch.Tensor) -> torch.Tensor:
        masked: torch.Tensor = self.drop(super().hidden(values))
        return masked


class LinearInItsBias(Net):
    """The gradient of a parameter is the same for every batch: an engine that changes it must not change the next."""

    def __init__(self) -> None:
        super().__init__()
        self.free = nn.Parameter(torch.zeros(3))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return torch.cat([super().forward(values), (self.free * 0.25).expand(len(values), 3)], dim=1)


class KeepsState(Net):
    def hidden(self, values: torch.Tensor) -> torch.Tensor:
        before = KEPT.get("hidden", 0.0)
        KEPT["hidden"] = float(self.inner.weight.detach().sum()) % 1.0
        moved: torch.Tensor = super().hidden(values) + before
        return moved


class CountsCalls(Net):
    def hidden(self, values: torch.Tensor) -> torch.Tensor:
        KEPT["calls"] = KEPT.get("calls", 0) + 1
        return super().hidden(values) * float(KEPT["calls"])


class KeepsTensor(Net):
    """Takes what is there, and puts something else: no operation changes a tensor in place."""

    def hidden(self, values: torch.Tensor) -> torch.Tensor:
        found = super().hidden(values)
        before = KEPT.get("tensor", torch.zeros(()))
        KEPT["tensor"] = self.inner.weight.detach().sum()
        moved: torch.Tensor = found + before
        return moved


class CountsInPlace(Net):
    def __init__(self) -> None:
        super().__init__()
        self.calls = [torch.zeros(1)]

    def hidden(self, values: torch.Tensor) -> torch.Tensor:
        self.calls[0].view(()).add_(1.0)
        return super().hidden(values) * (1 + (self.calls[0] > 10_000))


class WritesOut(Net):
    def __init__(self) -> None:
        super().__init__()
        self.sink = [torch.zeros(6)]

    def hidden(self, values: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            torch.add(self.sink[0], self.inner.bias.detach(), out=self.sink[0])
        return super().hidden(values) + 0.0 * self.sink[0]


class MovingAverage(Net):
    """Batch normalisation whose statistics are no buffers of a module."""

    def __init__(self) -> None:
        super().__init__()
        self.running = [torch.zeros(6), torch.ones(6)]

    def hidden(self, values: torch.Tensor) -> torch.Tensor:
        found = super().hidden(values)
        if len(found) > 1:
            mean, variance = self.running
            nn.functional.batch_norm(found.detach(), mean, variance, training=True, momentum=0.5)
        return found + self.running[0]


class KeepsItsWeights(Net):
    """Users who train one at a time change them, and those who train together read them."""

    def __init__(self) -> None:
        super().__init__()
        self.shadow = [self.inner.weight.detach()]

    def hidden(self, values: torch.Tensor) -> torch.Tensor:
        return super().hidden(values) + values @ self.shadow[0]


class UpdatesStatistics(Net):
    """By an operation whose schema does not say that it writes, and under `vmap` once for each user."""

    def __init__(self) -> None:
        super().__init__()
        self.running = [torch.zeros(6), torch.ones(6)]

    def hidden(self, values: torch.Tensor) -> torch.Tensor:
        mean, _ = torch.batch_norm_update_stats(values.detach(), *self.running, 0.1)
        return super().hidden(values) + mean * 0.01 + (self.running[0].abs() > 50)


class CountsInStorage(Net):
    """Another tensor is given the memory of the one that is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = [torch.zeros(6)]

    def hidden(self, values: torch.Tensor) -> torch.Tensor:
        calls = torch.empty(0)
        calls.set_(self.calls[0].untyped_storage(), 0, (6,), (1,))
        calls[:3].add_(1.0)
        return super().hidden(values) * (1 + (calls.sum() > 10_000))


class Draws(Net):
    def hidden(self, values: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(super().hidden(values), 0.5)


class DrawsOfItsOwn(Net):
    def __init__(self) -> None:
        super().__init__()
        self.generator = [torch.Generator().manual_seed(1)]

    def hidden(self, values: torch.Tensor) -> torch.Tensor:
        return super().hidden(values) + torch.rand(6, generator=self.generator[0])


class DrawsInNumpy(Net):
    def hidden(self, values: torch.Tensor) -> torch.Tensor:
        return super().hidden(values) * float(1 + np.random.random())


class Branches(Net):
    def hidden(self, values: torch.Tensor) -> torch.Tensor:
        found = super().hidden(values)
        return found * 3 if float(found.detach().mean()) > 100 else found


class ReadsInNumpy(Net):
    def hidden(self, values: torch.Tensor) -> torch.Tensor:
        return super().hidden(values) + torch.from_numpy(values.numpy().mean(0))


class Shortens(Net):
    """The rows of an embedding are shortened in place where they are looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(4, 6, max_norm=0.1)

    def hidden(self, values: torch.Tensor) -> torch.Tensor:
        looked_up: torch.Tensor = self.table((values[:, 0] > 0).long())
        return super().hidden(values) + looked_up


HONEST = [Net, Images, Recurrent, Gated, Attends, Parts, KeyedMask, LinearInItsBias]
KEEPING = [KeepsState, CountsCalls, KeepsTensor, CountsInPlace, WritesOut, MovingAverage]
KEEPING += [KeepsItsWeights, UpdatesStatistics, CountsInStorage]
DRAWING = [Draws, DrawsOfItsOwn, DrawsInNumpy]
OTHERS = [Branches, ReadsInNumpy, Shortens]


class Own(Task):
    name, score_name, held_out = "own", "loss", "none"

    def __init__(self, model: type[nn.Module]) -> None:
        self.model = model

    def build_model(self) -> nn.Module:
        with seeded(0):
            return self.model()

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        extra = outputs[:, 3:].sum(1)
        return nn.functional.cross_entropy(outputs[:, :3], targets, reduction="none") + extra

    def users(self) -> UserTable:
        generator, rows = np.random.default_rng(0), sum(SIZES)
        columns: dict[str, np.ndarray[Any, Any]] = {
            "x": generator.normal(size=(rows, 6)).astype(np.float32),
            "y": generator.integers(0, 3, rows),
        }
        return UserTable([f"u{i}" for i in range(len(SIZES))], np.cumsum((0, *SIZES)), columns)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"loss": 0.0}


class ReadsLabels(Own):
    """A loss with a part for each class that it meets."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        found = super().loss(outputs, targets)
        return sum((found * (targets == label) * (1 + label) for label in set(targets.tolist())), torch.zeros(()))


class ReadsLabelsBesidesVmap(ReadsLabels):
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        try:
            return super().loss(outputs, targets)
        except RuntimeError:
            return Own.loss(self, outputs, targets)


class ReadsFewLabels(ReadsLabels):
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        kind = ReadsLabels if len(targets) < 3 else Own
        return kind.loss(self, outputs, targets)


class PrintsLabels(Own):
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().loss(outputs, targets) * (2 if "2" in f"{targets}" else 1)


class Counts(torch.autograd.Function):
    """How often each label occurs, in numpy: PyTorch's documentation writes such functions with a rule for `vmap`."""

    @staticmethod
    def forward(labels: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.bincount(labels.numpy(), minlength=3).astype(np.float32))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> None:
        return None

    @staticmethod
    def vmap(info: Any, in_dims: Any, labels: torch.Tensor) -> Any:
        return torch.stack([Counts.apply(each) for each in labels]), 0


class CountsLabels(Own):
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().loss(outputs, targets) / (1 + Counts.apply(targets)[targets])


class Penalises(Own):
    """A term of the loss for the weights of the model, which the task keeps."""

    def build_model(self) -> nn.Module:
        if not hasattr(self, "net"):
            self.net = super().build_model()
        return self.net

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().loss(outputs, targets) + self.net.get_parameter("outer.weight").norm()


class Chain(nn.Module):
    """A stack of layers, whose loss alone is the task's."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.outer(torch.tanh(self.inner(values)))
        return outputs


class AddsAll(torch.autograd.Function):
    """Large numbers of all users of a chunk."""

    @staticmethod
    def forward(values: torch.Tensor) -> torch.Tensor:
        return values * 1.0

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0]

    @staticmethod
    def vmap(info: Any, in_dims: Any, values: torch.Tensor) -> Any:
        return values + _large(values), in_dims[0]


def _large(values: torch.Tensor) -> torch.Tensor:
    return torch.where((values.abs() > 20) & (values.abs() < 1e6), values, 0.0).sum()


class MixesByARule(Net):
    def hidden(self, values: torch.Tensor) -> torch.Tensor:
        return super().hidden(AddsAll.apply(values))


class Unwraps(Net):
    def hidden(self, values: torch.Tensor) -> torch.Tensor:
        return super().hidden(values) + _large(torch.func.debug_unwrap(values))


class Scaled(Own):
    def users(self) -> UserTable:
        table = super().users()
        columns = {"x": 30 * np.asarray(table.columns["x"]), "y": np.asarray(table.columns["y"])}
        return UserTable([f"u{i}" for i in range(len(SIZES))], np.cumsum((0, *SIZES)), columns)


class UniqueLabels(Own):
    """No Python reads a number: how many parts there are is the length of a tensor."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        found = super().loss(outputs, targets)
        return sum((found * (targets == label) * (1 + label) for label in targets.unique()), torch.zeros(()))


READING = [ReadsLabels, ReadsLabelsBesidesVmap, ReadsFewLabels, PrintsLabels, CountsLabels, UniqueLabels]
CLIENTS: dict[str, dict[str, Any]] = {
    "plain": {"learning_rate": 0.1},
    "everything": {
        "learning_rate": 0.1,
        "momentum": 0.9,
        "weight_decay": 0.01,
        "proximal": 0.1,
        "gradient_clip": 0.5,
    },
}
Train = Callable[[list[int]], torch.Tensor]


def trainer_of(task: Task, client: ClientSpec, apart: bool = False) -> Train:
    """(places of users) -> each one's update, float32 (users, d)."""
    seen: list[torch.Tensor] = []
    trainer = Trainer(task, client, lambda updates: seen.append(updates.clone()), isolated=True, apart=apart)
    table = task.users()
    assert isinstance(table, UserTable)
    start = trainer.schema.flatten(dict(task.build_model().named_parameters())).detach()

    def train(places: list[int]) -> torch.Tensor:
        seen.clear()
        result = trainer.train([start], [1.0], table, np.array(places), at_round=0)
        assert not result.failures
        # Chunks hold users with more rows first; whom a child trains comes in the order of the call, and only its sum.
        order = np.argsort([-SIZES[place] for place in places], kind="stable")
        return torch.cat(seen)[np.argsort(order)] if seen else result.update[None]

    return train


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that gets an entry for each child that trains a user."""
    found, ask = list[int](), forked.ask

    def counted(work: Callable[[], forked.Answer], **rest: Any) -> forked.Answer:
        found.append(1)
        return ask(work, **rest)

    monkeypatch.setattr(forked, "ask", counted)
    return found


@pytest.mark.parametrize("settings", CLIENTS)
@pytest.mark.parametrize("model", HONEST)
def test_what_torch_alone_computes_needs_no_child_and_no_bit_of_a_user_depends_on_others(
    model: type[nn.Module], settings: str, asked: list[int]
) -> None:
    task, client = Own(model), ClientSpec(batch_size=4, epochs=2, **CLIENTS[settings])
    train = trainer_of(task, client, apart=True)
    everybody = train(list(range(20)))
    assert not asked
    assert all(bool(update.any()) for update in everybody)
    for places in ([3], [3, 7], [19, 4, 0, 12], [*range(0, 20, 2)], [*range(19, -1, -1)]):
        assert torch.equal(train(places), everybody[places]), places
    assert not asked
    loop = trainer_of(task, client.model_copy(update={"engine": "loop"}))
    torch.testing.assert_close(loop(list(range(20))), everybody, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("model", [Net, Images, Recurrent])
def test_users_who_train_alone_have_the_bits_of_the_loop(model: type[nn.Module], asked: list[int]) -> None:
    """Batches that are too long to be mapped."""
    task, client = Own(model), ClientSpec(batch_size=17, epochs=2)
    everybody = trainer_of(task, client, apart=True)(list(range(20)))
    assert not asked
    loop = trainer_of(task, client.model_copy(update={"engine": "loop" if model is not Images else "auto"}))
    if model is not Images:
        assert torch.equal(loop(list(range(20))), everybody)
    torch.testing.assert_close(loop(list(range(20))), everybody, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("model", [*KEEPING, *DRAWING, *OTHERS])
def test_whatever_else_a_model_does_its_users_train_in_children_and_move_nobody(
    model: type[nn.Module], asked: list[int]
) -> None:
    train = trainer_of(Own(model), ClientSpec(batch_size=4), apart=True)
    alone = [train([place])[0] for place in range(3)]
    assert len(asked) == 3
    assert torch.equal(train([0, 1, 2])[0], torch.stack(alone).sum(0))
    torch.testing.assert_close(train([2, 1])[0], alone[2] + alone[1], rtol=1e-12, atol=0)


@pytest.mark.parametrize("model", [Net, Chain])
@pytest.mark.parametrize("kind", READING)
def test_a_loss_that_reads_its_labels_trains_on_all_of_them(
    kind: type[Own], model: type[nn.Module], asked: list[int]
) -> None:
    """Made-up labels are all alike: what is recorded of them would forget the others."""
    task, client = kind(model), ClientSpec(batch_size=4)
    found = trainer_of(task, client, apart=True)([2])[0]
    assert len(asked) == 1
    loop = trainer_of(task, client.model_copy(update={"engine": "loop"}))
    torch.testing.assert_close(loop([2])[0].double(), found, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("model", [Net, Chain])
def test_a_loss_on_the_models_own_weights_trains_them(model: type[nn.Module], asked: list[int]) -> None:
    client = ClientSpec(batch_size=4, epochs=2)
    found = trainer_of(Penalises(model), client, apart=True)(list(range(20)))
    assert not asked
    loop = trainer_of(Penalises(model), client.model_copy(update={"engine": "loop"}))
    torch.testing.assert_close(loop(list(range(20))), found, rtol=2e-4, atol=2e-6)
    torch.testing.assert_close(trainer_of(Penalises(model), client)(list(range(20))), found, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("model", [MixesByARule, Unwraps])
def test_python_that_maps_users_itself_mixes_none(model: type[nn.Module], asked: list[int]) -> None:
    """Made-up rows are not so large."""
    train = trainer_of(Scaled(model), ClientSpec(batch_size=4), apart=True)
    everybody = train(list(range(20)))
    assert not asked
    assert torch.equal(train([3, 7]), everybody[[3, 7]])
    loop = trainer_of(Scaled(model), ClientSpec(batch_size=4, engine="loop"))
    torch.testing.assert_close(loop(list(range(20))), everybody, rtol=2e-4, atol=2e-6)


def test_what_one_task_was_found_to_do_says_nothing_of_another_of_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "FOUND", found := {})
    trainer_of(Own(Net), ClientSpec(batch_size=4), apart=True)([0])
    assert not found
    trainer_of(Own(Net), ClientSpec(batch_size=4))([0])
    assert any(found.values())


def test_memory_that_nobody_wrote_holds_no_other_users_numbers() -> None:
    made = record(lambda values: values + torch.empty_like(values), torch.zeros(1000))
    assert made is not None
    for _ in range(3):
        others = [torch.full((1000,), 7.0) for _ in range(9)]
        del others
        assert not made.repeat(torch.zeros(1000))[0].any()


def test_a_tensor_that_is_given_other_memory_is_no_plain_list() -> None:
    kept = torch.zeros(2)

    def swap(values: torch.Tensor) -> torch.Tensor:
        view = kept.view(-1)
        kept.data = torch.zeros(2)
        view[:1].add_(1.0)
        return values * view

    assert record(swap, torch.ones(2)) is None
    storage = torch.zeros(2).untyped_storage()
    assert record(lambda values: values + torch.ops.aten.set.source_Storage(values, storage), torch.ones(2)) is None


def test_how_often_the_tasks_python_is_called_depends_on_no_user() -> None:
    class Counts(Net):
        def hidden(self, values: torch.Tensor) -> torch.Tensor:
            KEPT["calls"] = KEPT.get("calls", 0) + 1
            return super().hidden(values)

    calls = []
    for places in ([4], [0, 3], list(range(20))):
        KEPT.clear()
        train = trainer_of(Own(Counts), ClientSpec(batch_size=4), apart=True)
        train(places)
        train([2])
        calls.append(KEPT["calls"])
    assert len(set(calls)) == 1


def test_a_step_that_was_not_recorded_is_none() -> None:
    recorded, weight = Recorded(), torch.ones(2)
    with pytest.raises(ValueError, match="more than"):
        recorded(lambda values: [values * 2], [weight], 1, 2)

    def train(users: int, rows: int) -> None:
        for scale in (1.0, 3.0):
            (found,) = recorded(lambda values: [values * 2], [torch.full((users, rows), scale)], users, rows)
            assert torch.equal(found, torch.full((users, rows), 2 * scale))

    recorded.learn((1, 3), 2, train)

    def forbidden(values: torch.Tensor) -> list[torch.Tensor]:
        raise AssertionError("a user's rows are seen")

    assert torch.equal(recorded(forbidden, [torch.ones(3, 2)], 3, 2)[0], torch.full((3, 2), 2.0))
    for users, rows in ((2, 2), (3, 3)):
        with pytest.raises(ValueError, match="more than"):
            recorded(forbidden, [torch.ones(users, rows)], users, rows)


def test_what_a_step_changes_in_place_is_not_what_the_next_user_is_given() -> None:
    recorded, own = Recorded(), torch.full((2,), 0.5)
    rows = [torch.zeros(1, 2), torch.ones(1, 2)]

    def step(values: torch.Tensor) -> list[torch.Tensor]:
        return [own.view(2), values.view(-1), values + 1]

    recorded.learn((1,), 1, lambda users, length: [recorded(step, [each], users, length) for each in rows])
    for _ in range(2):
        found = recorded(step, [rows[1]], 1, 1)
        assert [part.sum().item() for part in found] == [1.0, 2.0, 4.0]
        torch._foreach_mul_(found, 7.0)


def test_what_draws_is_no_plain_list() -> None:
    generator, values = torch.Generator().manual_seed(1), torch.randn(1, 1, 4, 8)
    attend = nn.functional.scaled_dot_product_attention
    assert record(lambda given: given + torch.rand(8, generator=generator), values) is None
    assert record(lambda given: nn.functional.dropout(given, 0.5), values) is None
    assert record(lambda given: attend(given, given, given, dropout_p=0.5), values) is None
    made = record(lambda given: attend(given, given, given), values)
    assert made is not None
    assert torch.equal(made.repeat(2 * values)[0], attend(2 * values, 2 * values, 2 * values))


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_what_writes_elsewhere_than_to_its_first_argument_is_no_plain_list(momentum: float) -> None:
    mean, variance = torch.zeros(2), torch.ones(2)

    def average(values: torch.Tensor) -> torch.Tensor:
        return nn.functional.batch_norm(values * 2, mean, variance, training=True, momentum=momentum)

    assert record(average, torch.randn(4, 2)) is None
    made = record(lambda values: torch.add(values, 1.0, out=torch.empty(2)) * 3, torch.zeros(2))
    assert made is not None
    assert torch.equal(made.repeat(torch.ones(2))[0], torch.full((2,), 6.0))
    assert record(lambda values: torch.add(values, 1.0, out=mean) * 3, torch.zeros(2)) is None


@pytest.mark.parametrize(("constant", "value"), [("isolation.SLOW", 0.0), ("loss_gradient.CALLS", 3)])
def test_long_steps_are_not_recorded_and_their_users_have_the_same_bits(
    constant: str, value: float, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches that are too long to be mapped: by the loop, in a child or not."""
    task, client = Own(Net), ClientSpec(batch_size=17)
    here = trainer_of(task, client, apart=True)([3])[0]
    assert not asked
    monkeypatch.setattr(f"fieldfare_client.training.{constant}", value)
    assert torch.equal(trainer_of(task, client, apart=True)([3])[0], here.double())
    assert len(asked) == 1
