"""Whichever engine, chunk size or order of users: the same sum."""

from __future__ import annotations

import importlib
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fieldfare import clipping
from fieldfare.errors import BadInput
from fieldfare.plan_tables import ClientSpec
from fieldfare.schema import Schema
from fieldfare.task import Task, seeded
from fieldfare_client.tasks.digits import DigitsTask
from fieldfare_client.training.choice import KNOWN, TRIALS, Candidate, EngineChoice
from fieldfare_client.training.clip import clip_with
from fieldfare_client.training.dropout import KeyedDropout, set_keys
from fieldfare_client.training.layers import layers_of
from fieldfare_client.training.trainer import Trainer
from fieldfare_client.training.wide_input import pays
from fieldfare_client.users import UserTable
from support.refusals import Coded, coded

SETTINGS: list[dict[str, Any]] = [
    {},
    {"epochs": 3, "batch_size": 4},
    {"steps": 5, "batch_size": 3},
    {"batch_size": 1000},
    {"momentum": 0.9, "epochs": 2},
    {"weight_decay": 0.1},
    {"gradient_clip": 0.2},
    {"proximal": 0.5, "epochs": 2},
    {"momentum": 0.5, "weight_decay": 0.05, "gradient_clip": 0.5, "proximal": 0.3, "epochs": 2, "batch_size": 5},
]


class Recurrent(nn.Module):
    """Six numbers as a sequence of three."""

    def __init__(self, kind: type[nn.GRU | nn.LSTM] = nn.GRU) -> None:
        super().__init__()
        self.cell, self.head = kind(2, 4, batch_first=True), nn.Linear(4, 3)
        self.fixed = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        seen, _ = self.cell(values.view(-1, 3, 2))
        outputs: torch.Tensor = self.head(seen[:, -1]) * self.fixed
        return outputs


class Tied(nn.Module):
    """One matrix, used twice, and a parameter that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head, self.unused = nn.Linear(6, 6), nn.Linear(6, 3), nn.Parameter(torch.ones(2))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(torch.tanh(self.inner(torch.tanh(self.inner(values)))))
        return outputs


class Shared(nn.Module):
    """Autograd gives `a` and `b` one gradient, and the elements of `total` one number."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.a, self.b = nn.Linear(6, 3), nn.Parameter(torch.zeros(3)), nn.Parameter(torch.ones(3))
        self.total = nn.Parameter(torch.ones(4))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = torch.tanh(self.inner(values) + (self.a + self.b) + self.total.sum())
        return outputs


def convolutional() -> nn.Module:
    layers = [nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(8, 3))


MODELS = {
    "linear": lambda: nn.Sequential(nn.Linear(6, 3)),
    "wide": lambda: nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 3)),
    "wide without bias": lambda: nn.Sequential(nn.Linear(6, 40, bias=False)),
    "no bias": lambda: nn.Sequential(nn.Linear(6, 3, bias=False)),
    "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)),
    "activation last": lambda: nn.Sequential(nn.Linear(6, 5), nn.Sigmoid(), nn.Linear(5, 3), nn.Tanh()),
    "activation first": lambda: nn.Sequential(nn.Tanh(), nn.Linear(6, 3), nn.Identity()),
    "convolutional": convolutional,
    "recurrent": Recurrent,
    "lstm": lambda: Recurrent(nn.LSTM),
    "tied": Tied,
    "shared": Shared,
}


IMAGES = {
    "pooled": lambda: nn.Sequential(
        *(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 6, 2, bias=False), nn.Tanh(), nn.MaxPool2d(2, stride=2), nn.Flatten(), nn.Linear(6, 3)),
    ),
    "strided": lambda: nn.Sequential(
        *(nn.Tanh(), nn.Conv2d(1, 4, 3, stride=2, padding=(1, 0)), nn.Sigmoid(), nn.Conv2d(4, 4, 2, groups=2)),
        *(nn.Flatten(), nn.Linear(24, 5, bias=False), nn.ReLU(), nn.Linear(5, 3)),
    ),
}
"""For images 7 x 7, of an odd side: pooling leaves the last row and column out."""

MODELS["dropout"] = lambda: nn.Sequential(
    nn.Linear(6, 8), nn.ReLU(), KeyedDropout(0.5), nn.Linear(8, 3), KeyedDropout(0.1)
)
MODELS["dropout off"] = lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


class Toy(Task):
    name = "toy"
    score_name = "loss"
    held_out = "Nothing is evaluated."

    def __init__(self, model: str = "mlp") -> None:
        self.model = model

    def build_model(self) -> nn.Module:
        with seeded(1):
            return MODELS[self.model]()

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    def users(self) -> UserTable:
        generator = np.random.default_rng(0)
        sizes = np.array([7, 0, 1, 16, 3, 33, 8, 0, 12])
        rows = int(sizes.sum())
        columns: dict[str, np.ndarray[Any, Any]] = {
            "x": generator.normal(size=(rows, 6)).astype(np.float32),
            "y": generator.integers(0, 3, rows),
        }
        return UserTable([f"u{i}" for i in range(len(sizes))], np.concatenate(([0], np.cumsum(sizes))), columns)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"loss": 0.0}


class Made(Toy):
    """Any model."""

    def __init__(self, make: Any) -> None:
        self.make = make

    def build_model(self) -> nn.Module:
        with seeded(1):
            model: nn.Module = self.make()
        return model


class Images(Toy):
    """Images in few colours: equal neighbours are what pooling has to break ties between."""

    def build_model(self) -> nn.Module:
        with seeded(1):
            return IMAGES[self.model]()

    def users(self) -> UserTable:
        table = super().users()
        x = np.random.default_rng(2).integers(0, 2, (int(table.offsets[-1]), 1, 7, 7)).astype(np.float32)
        return UserTable(table.pseudonyms, table.offsets, {**table.columns, "x": x})


class Sequences(Toy):
    """Each row is three pairs, and a linear layer is applied to every pair."""

    def build_model(self) -> nn.Module:
        with seeded(1):
            return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3))

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().loss(outputs.mean(dim=1), targets)

    def users(self) -> UserTable:
        table = super().users()
        x = table.columns["x"][np.arange(int(table.offsets[-1]))].reshape(-1, 3, 2)
        return UserTable(table.pseudonyms, table.offsets, {**table.columns, "x": x})


def clip(updates: torch.Tensor) -> None:
    norms = torch.linalg.vector_norm(updates, dim=1, keepdim=True)
    updates.mul_((0.3 / norms).clamp_(max=1.0))


def start(task: Task) -> torch.Tensor:
    model = task.build_model()
    return Schema.of(model).flatten(dict(model.named_parameters()))


def summed(
    task: Task, users: list[int], at_round: int = 3, seed: int = 0, chunk: int | None = None, **client: Any
) -> torch.Tensor:
    trainer = Trainer(task, ClientSpec(**client), clip, seed=seed)
    if chunk is not None:
        trainer.chunk_size = lambda users: chunk  # type: ignore[method-assign]
    cohort = trainer.train([start(task)], [1.0], task.users(), np.array(users), at_round=at_round)
    assert cohort.users == len(users)
    return cohort.update


def one_by_one(task: Task, users: list[int], client: ClientSpec) -> torch.Tensor:
    """The same with torch.optim, in float64, independent of the engines but for the order of rows."""
    from fieldfare_client.training.schedule import schedule, user_keys

    table, total = task.users(), torch.zeros_like(start(task), dtype=torch.float64)
    for user in users:
        rows = table.rows(np.array([user]))
        plan = schedule(rows.sizes, user_keys(rows.users, 0, 3), client)
        model = task.build_model().double()
        trained = [p for p in model.parameters() if p.requires_grad]
        before = [p.detach().clone() for p in trained]
        optimizer = torch.optim.SGD(
            trained, lr=client.learning_rate, momentum=client.momentum, weight_decay=client.weight_decay
        )
        for at, count in zip(plan.rows[0], plan.counts[0], strict=True):
            optimizer.zero_grad()
            x, y = rows.columns["x"][at[:count]].double(), rows.columns["y"][at[:count]]
            task.loss(model(x), y).mean().backward()
            if client.gradient_clip is not None:
                nn.utils.clip_grad_norm_(trained, client.gradient_clip)
            for p, b in zip(trained, before, strict=True):
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
                p.grad += client.proximal * (p.detach() - b)
            optimizer.step()
        update = torch.cat([(p.detach() - b).flatten() for p, b in zip(trained, before, strict=True)])
        total += update * min(1.0, 0.3 / max(float(update.norm()), 1e-30))
    return total


CASES = [
    (model, settings)
    for model in MODELS
    for settings in (SETTINGS if model in ("linear", "mlp", "wide") else [SETTINGS[0], SETTINGS[2], SETTINGS[-1]])
    if not model.startswith("dropout")
]


@pytest.mark.parametrize(("model", "settings"), CASES, ids=str)
def test_every_engine_gives_what_torch_optim_gives(model: str, settings: dict[str, Any]) -> None:
    task, users = Toy(model), list(range(9))
    expected = one_by_one(task, users, ClientSpec(**settings))
    for engine in ("batched", "loop", "auto"):
        torch.testing.assert_close(summed(task, users, engine=engine, **settings), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", IMAGES)
@pytest.mark.parametrize("settings", [SETTINGS[0], SETTINGS[2], SETTINGS[-1]], ids=str)
def test_images_give_what_torch_optim_gives(model: str, settings: dict[str, Any]) -> None:
    task, users = Images(model), list(range(9))
    expected = one_by_one(task, users, ClientSpec(**settings))
    for engine in ("loop", "batched"):
        torch.testing.assert_close(summed(task, users, engine=engine, **settings), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("engine", ["auto", "batched", "loop"])
def test_linear_layers_over_sequences_are_not_one_vector_a_row(engine: str) -> None:
    task, users = Sequences(), list(range(9))
    expected = one_by_one(task, users, ClientSpec())
    torch.testing.assert_close(summed(task, users, engine=engine), expected, rtol=1e-4, atol=1e-5)
    empty = summed(task, [], engine=engine)
    assert not empty.any()


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (Recurrent, "frozen"),
        (lambda: nn.Sequential(nn.Conv2d(1, 2, 3)), "has a layer Conv2d"),
        (lambda: nn.Sequential(nn.Linear(6, 6), nn.Flatten()), "has a layer Flatten"),
        (lambda: nn.Sequential(nn.Flatten(2), nn.Linear(6, 6)), "has a layer Flatten"),
        (lambda: nn.Sequential(nn.Linear(6, 6).requires_grad_(False), nn.Linear(6, 3)), "frozen"),
    ],
)
def test_layers_that_are_not_written_out_are_left_to_autograd(model: Any, says: str) -> None:
    made = model()
    assert says in layers_of(made, Schema.of(made).names)  # type: ignore[operator]


class Written(nn.Module):
    """A stack of layers as people write it. The layers stand in another order than they are used in."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.last, self.first, self.how = nn.Linear(40, 3), nn.Linear(6, 40), how

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        flat = {
            "flatten": lambda: torch.flatten(values, 1),
            "method": lambda: values.flatten(1),
            "view": lambda: values.view(values.size(0), -1),
            "reshape": lambda: values.reshape(values.shape[0], -1),
            "as it is": lambda: values,
        }[self.how]()
        outputs: torch.Tensor = self.last(torch.tanh(nn.functional.relu(self.first(flat)).sigmoid()))
        return outputs


@pytest.mark.parametrize("settings", [{}, {"momentum": 0.9, "epochs": 2}], ids=str)
@pytest.mark.parametrize("how", ["flatten", "method", "view", "reshape", "as it is"])
def test_a_stack_in_a_class_is_written_out_as_a_sequence_is(how: str, settings: dict[str, Any]) -> None:
    """So the class costs what the sequence costs."""
    task, users = Made(lambda: Written(how)), list(range(9))
    trainer = Trainer(task, ClientSpec(), clip)
    trainer.train([start(task)], [1.0], task.users(), np.array(users), at_round=3)
    assert "a stack of linear layers" in trainer.explain()[0]
    torch.testing.assert_close(
        summed(task, users, **settings), one_by_one(task, users, ClientSpec(**settings)), rtol=1e-4, atol=1e-5
    )


class Other(Written):
    """Forward passes that look like a stack, and are none."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        hidden = self.first(values)
        outputs: torch.Tensor = {
            "skips": lambda: self.last(hidden + torch.relu(hidden)),
            "scales": lambda: self.last(2.0 * hidden),
            "mixes": lambda: self.last(hidden - hidden.mean(0)),
            "twice": lambda: self.last(torch.relu(self.first(values)) + hidden),
            "drops": lambda: self.last(nn.functional.dropout(hidden, 0.0, self.training)),
            "weighs": lambda: nn.functional.linear(hidden, self.last.weight, self.last.bias),
            "branches": lambda: self.last(hidden if float(values.detach().sum()) > -1e9 else -hidden),
        }[self.how]()
        return outputs


class Beside(nn.Module):
    """While it is called, another thread calls another model and reads the layers of a third."""

    def __init__(self) -> None:
        super().__init__()
        self.only = nn.Linear(6, 3)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        with ThreadPoolExecutor(1) as another:
            assert another.submit(nn.Linear(2, 1), torch.ones(4, 2)).result().shape == (4, 1)
            model = Written("view")
            assert not isinstance(another.submit(layers_of, model, Schema.of(model).names).result(), str)
        outputs: torch.Tensor = self.only(values)
        return outputs


def test_layers_are_read_beside_other_threads() -> None:
    """A program may call models of its own meanwhile, or read the layers of another one."""
    call, model = nn.Module.__call__, Beside()
    assert not isinstance(layers_of(model, Schema.of(model).names), str)
    assert nn.Module.__call__ is call


class Asking(nn.Sequential):
    """A forward pass that asks what kind its layers are of."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        for layer in self:
            values = torch.relu(layer(values)) if isinstance(layer, nn.Linear) else layer(values)
        return values


def test_a_model_may_ask_for_the_kinds_of_its_layers() -> None:
    model = Asking(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    stack = layers_of(model, Schema.of(model).names)
    assert not isinstance(stack, str)
    assert [getattr(layer, "kind", None) for layer in stack.layers] == [None, nn.ReLU, nn.Tanh, None, nn.ReLU]


@pytest.mark.parametrize("how", ["skips", "scales", "mixes", "twice", "drops", "weighs", "branches"])
def test_what_is_no_stack_is_not_written_out(how: str) -> None:
    task, users = Made(lambda: Other(how)), list(range(9))
    model = task.build_model()
    assert isinstance(layers_of(model, Schema.of(model).names), str)
    expected = one_by_one(task, users, ClientSpec()) if how != "branches" else summed(task, users, engine="loop")
    torch.testing.assert_close(summed(task, users, engine="batched"), expected, rtol=1e-4, atol=1e-5)


class Steps(Written):
    """Forward passes whose layers are a stack, and whose training is not that of one."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.kept = [self.first.weight]

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        off = torch.autocast("cpu") if self.how == "narrow" else torch.set_grad_enabled(self.how != "freezes")
        with off:
            hidden = self.first(values)
        with torch.set_grad_enabled(self.how != "stops"):
            hidden = torch.relu(hidden)
        with torch.no_grad():
            if self.how == "all":
                for weight in self.parameters():
                    weight.clamp_(-0.1, 0.1)
            elif self.how in ("clamps", "keeps"):
                (self.kept[0] if self.how == "keeps" else self.first.weight).data.clamp_(-0.1, 0.1)
        if self.how == "asks its weights" and self.first.weight.detach().norm() > 0:
            hidden = hidden.tanh()
        outputs: torch.Tensor = self.last(hidden)
        return outputs


@pytest.mark.parametrize("how", ["freezes", "stops", "narrow", "clamps", "keeps", "all", "asks its weights"])
def test_what_a_model_does_beside_its_layers_is_not_left_out(how: str) -> None:
    """Neither gradients that it turns off, another precision, nor what it does with its parameters itself."""
    task, users = Made(lambda: Steps(how)), list(range(9))
    model = task.build_model()
    assert isinstance(layers_of(model, Schema.of(model).names), str)
    unread = Schema.of(model).flatten(dict(task.build_model().named_parameters()))
    torch.testing.assert_close(Schema.of(model).flatten(dict(model.named_parameters())), unread, rtol=0, atol=0)
    alone, close = summed(task, users, engine="loop"), 1e-3 if how == "narrow" else 1e-5
    torch.testing.assert_close(summed(task, users), alone, rtol=10 * close, atol=close)
    assert (summed(Made(lambda: Steps("")), users) - alone).abs().max() > 10 * close


def test_layers_with_hooks_are_not_written_out() -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    assert not isinstance(layers_of(model, Schema.of(model).names), str)
    model[1].register_forward_hook(lambda module, inputs, output: 2.0 * output)
    assert "hooks" in layers_of(model, Schema.of(model).names)  # type: ignore[operator]
    weighed = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 3)))
    assert isinstance(layers_of(weighed, Schema.of(weighed).names), str)


@pytest.fixture(autouse=True)
def _wide_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of wide first layers, for the layers that are called wide here: the real ones are too slow for tests."""
    monkeypatch.setattr("fieldfare_client.training.batched.pays", lambda rows, inputs, outputs: outputs == 40)


@pytest.mark.parametrize("model", ["mlp", "dropout", "wide"])
@pytest.mark.parametrize("engine", ["batched", "loop"])
def test_chunks_and_the_order_of_users_do_not_matter(engine: str, model: str) -> None:
    task, settings = Toy(model), {"engine": engine, "epochs": 2, "batch_size": 4}
    whole = summed(task, list(range(9)), **settings)
    for chunk in (1, 2, 5):
        torch.testing.assert_close(summed(task, list(range(9)), chunk=chunk, **settings), whole, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(summed(task, [8, 3, 5, 0, 1, 7, 2, 4, 6], **settings), whole, rtol=1e-5, atol=1e-6)
    parts = summed(task, [0, 1, 2, 3], **settings) + summed(task, [4, 5, 6, 7, 8], **settings)
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("engine", ["batched", "loop"])
def test_the_order_of_batches_is_keyed_by_round_and_seed(engine: str) -> None:
    settings = {"engine": engine, "batch_size": 4}
    base = summed(Toy(), [5], **settings)
    assert torch.equal(base, summed(Toy(), [5], **settings))
    assert not torch.equal(base, summed(Toy(), [5], at_round=4, **settings))
    assert not torch.equal(base, summed(Toy(), [5], seed=1, **settings))


@pytest.mark.parametrize("engine", ["batched", "loop"])
def test_users_without_rows_count_and_add_nothing(engine: str) -> None:
    assert not summed(Toy(), [1, 7], engine=engine).any()
    assert not summed(Toy(), [], engine=engine).any()


@pytest.mark.parametrize("model", ["mlp", "wide", "tied"])
@pytest.mark.parametrize("engine", ["batched", "loop"])
def test_one_users_poison_does_not_touch_another(engine: str, model: str) -> None:
    """NaN rows of user 3 must not reach the updates of the others; its own update is zero."""
    task = Toy(model)
    table = task.users()
    poisoned = dict(table.columns)
    poisoned["x"] = table.columns["x"].copy()
    poisoned["x"][table.offsets[3] : table.offsets[4]] = np.nan
    seen: list[torch.Tensor] = []
    trainer = Trainer(task, ClientSpec(engine=engine, batch_size=4), lambda updates: seen.append(updates.clone()))
    for data in (table.columns, poisoned):
        hostile = UserTable(table.pseudonyms, table.offsets, data)
        trainer.train([start(task)], [1.0], hostile, np.arange(9), at_round=0)
    clean, hostile_seen = torch.cat(seen[: len(seen) // 2]), torch.cat(seen[len(seen) // 2 :])
    others = np.argsort(-table.sizes, kind="stable") != 3
    assert clean[~others].any()
    assert not hostile_seen[~others].any()
    assert torch.equal(clean[others], hostile_seen[others])


@pytest.mark.parametrize("engine", ["batched", "loop"])
def test_several_points_are_combined_before_clipping(engine: str) -> None:
    task = Toy()
    trainer = Trainer(task, ClientSpec(engine=engine), lambda updates: None)
    first, second = start(task), start(task) + 0.1
    one = trainer.train([first], [1.0], task.users(), np.arange(9), at_round=0).update
    two = trainer.train([second], [1.0], task.users(), np.arange(9), at_round=0).update
    both = trainer.train([first, second], [-0.5, 2.0], task.users(), np.arange(9), at_round=0).update
    torch.testing.assert_close(both, -0.5 * one + 2.0 * two, rtol=1e-4, atol=1e-5)
    norms: list[torch.Tensor] = []

    def watch(updates: torch.Tensor) -> None:
        clip(updates)
        norms.append(torch.linalg.vector_norm(updates, dim=1))

    watched = Trainer(task, ClientSpec(engine=engine), watch)
    watched.train([first, second], [-50.0, 60.0], task.users(), np.arange(9), at_round=0)
    assert float(torch.cat(norms).max()) <= 0.3 * (1 + 1e-5)


def test_counts_of_the_clipping_are_summed_over_chunks() -> None:
    trainer = Trainer(Toy(), ClientSpec(), lambda updates: (float((updates.norm(dim=1) > 0).sum()),))
    trainer.chunk_size = lambda users: 2  # type: ignore[method-assign]
    cohort = trainer.train([start(Toy())], [1.0], Toy().users(), np.arange(9), at_round=0)
    assert cohort.counts == (7.0,)


@pytest.mark.parametrize("settings", [{"epochs": 2, "batch_size": 4}, {"momentum": 0.9}], ids=str)
def test_dropout_is_the_same_in_every_engine_and_another_every_round(settings: dict[str, Any]) -> None:
    task, users = Toy("dropout"), list(range(9))
    looped = summed(task, users, engine="loop", **settings)
    torch.testing.assert_close(summed(task, users, engine="batched", **settings), looped, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(looped, summed(Toy("dropout off"), users, engine="loop", **settings))


def test_dropout_keeps_the_share_and_the_mean() -> None:
    layer = KeyedDropout(0.3)
    set_keys(layer, torch.tensor(5))
    values = layer(torch.ones(200, 500))
    assert float((values == 0).double().mean()) == pytest.approx(0.3, abs=0.01)
    assert float(values.mean()) == pytest.approx(1.0, abs=0.01)
    set_keys(layer, torch.tensor(6))
    same = ((layer(torch.ones(200, 500)) == 0) == (values == 0)).double().mean()
    assert float(same) == pytest.approx(0.3**2 + 0.7**2, abs=0.01)
    assert torch.equal(layer.eval()(torch.ones(3)), torch.ones(3))
    with pytest.raises(RuntimeError, match="key"):
        KeyedDropout()(torch.ones(3))
    with pytest.raises(ValueError, match="must be in"):
        KeyedDropout(1.0)


def test_a_model_without_parameters_is_refused() -> None:
    with pytest.raises(BadInput, check=coded("wrong-form", "run.task")):
        Trainer(Made(lambda: nn.Sequential(nn.Tanh())), ClientSpec(), clip)


@pytest.mark.parametrize("engine", ["loop", "batched"])
@pytest.mark.parametrize("model", ["mlp", "dropout"])
def test_queries_are_combined_and_clipped_one_by_one(engine: str, model: str) -> None:
    """Each is what it would be alone: same batches, same dropout. No user moves any by more than the norm."""
    task, spec = Toy(model), clipping.parse({"kind": "flat", "norm": 0.05})
    clipped = clip_with(spec, Schema.of(task.build_model()))
    trainer = Trainer(task, ClientSpec(engine=engine, epochs=2, batch_size=4), clipped)
    first = start(task)
    points = [first, first * 0.5, first * 0.9]
    rows = [(0.0, 1.0, 0.0), (10.0, -10.0, 0.0), (0.0, 0.0, 0.0), (3.0, 0.0, -2.0)]
    flat = [weight for row in rows for weight in row]
    together = trainer.train(points, flat, task.users(), np.arange(9), at_round=3, queries=4).update.view(4, -1)
    for found, row in zip(together, rows, strict=True):
        alone = trainer.train(points, row, task.users(), np.arange(9), at_round=3).update
        torch.testing.assert_close(found, alone, rtol=1e-5, atol=1e-7)
    assert together[2].abs().max() == 0
    one = trainer.train(points, flat, task.users(), np.array([5]), at_round=3, queries=4).update.view(4, -1)
    assert float(one.double().norm(dim=1).max()) <= 0.05
    assert float(one.double().norm(dim=1)[1]) > 0.0499


def test_several_queries_have_no_one_norm_to_count_by() -> None:
    task = Toy()
    counting = clip_with(clipping.parse({"kind": "adaptive-quantile"}), Schema.of(task.build_model()))
    with pytest.raises(BadInput, check=coded("unsupported", "several queries")):
        Trainer(task, ClientSpec(), counting).train(
            [start(task)], [1.0, 1.0], task.users(), np.arange(9), at_round=0, queries=2
        )


@pytest.mark.parametrize(
    ("users", "points", "weights", "says"),
    [
        ([1, 1], 1, [1.0], coded("wrong-form", "cohort")),
        ([1], 1, [1.0, 2.0], coded("wrong-form", "2 weights")),
        ([1], 0, [], coded("wrong-form", "0 weights")),
    ],
)
def test_what_no_round_asks_is_refused(users: list[int], points: int, weights: list[float], says: Coded) -> None:
    trainer = Trainer(Toy(), ClientSpec(), clip)
    with pytest.raises(BadInput, check=says):
        trainer.train([start(Toy())] * points, weights, Toy().users(), np.array(users), at_round=0)


def test_a_point_of_another_model_is_refused() -> None:
    with pytest.raises(BadInput, check=coded("wrong-form", "points of shape")):
        Trainer(Toy(), ClientSpec(), clip).train([torch.zeros(3)], [1.0], Toy().users(), np.arange(2), at_round=0)


class Branching(nn.Module):
    """vmap cannot follow a branch on values."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(values) if float(values.detach().sum()) > -1e9 else values[:, :3]
        return outputs


def test_auto_falls_back_where_vmap_cannot_follow() -> None:
    KNOWN.clear()
    task = Made(Branching)
    trainer = Trainer(task, ClientSpec(), clip)
    users = np.arange(9)
    expected = Trainer(task, ClientSpec(engine="loop"), clip).train(
        [start(task)], [1.0], task.users(), users, at_round=0
    )
    for _ in range(4):
        cohort = trainer.train([start(task)], [1.0], task.users(), users, at_round=0)
        torch.testing.assert_close(cohort.update, expected.update, rtol=1e-5, atol=1e-6)
    assert trainer.explain() == ["one user at a time: batched training fails for this model or loss"]
    batched = Trainer(task, ClientSpec(engine="batched"), clip)
    cohort = batched.train([start(task)], [1.0], task.users(), users, at_round=0)
    torch.testing.assert_close(cohort.update, expected.update, rtol=1e-5, atol=1e-6)
    assert not cohort.failures


class Penalised(Toy):
    """A penalty on all parameters of the model, which the task keeps; `by_value`: one without a gradient."""

    def __init__(self, model: str, by_value: bool = False) -> None:
        super().__init__(model)
        self.by_value = by_value

    def build_model(self) -> nn.Module:
        self.kept = super().build_model()
        return self.kept

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        size = sum(value.square().sum() for value in self.kept.parameters())
        losses = super().loss(outputs, targets)
        return losses * size.detach() if self.by_value else losses + size


@pytest.mark.parametrize("engine", ["auto", "batched"])
@pytest.mark.parametrize("by_value", [False, True])
@pytest.mark.parametrize("model", ["mlp", "convolutional", "lstm", "dropout"])
def test_a_loss_that_keeps_the_model_trains_each_users_own_weights(
    model: str, by_value: bool, engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    KNOWN.clear()
    task = Penalised(model, by_value)
    point, table, users = start(task), task.users(), np.arange(9)
    train = Trainer(task, ClientSpec(engine=engine, epochs=2, learning_rate=0.01), clip).train
    found = [train([point], [1.0], table, users, at_round=0).update for _ in range(2)]
    task = Penalised(model, by_value)
    train = Trainer(task, ClientSpec(engine="loop", epochs=2, learning_rate=0.01), clip).train
    expected = train([point], [1.0], table, users, at_round=0).update
    for update in found:
        torch.testing.assert_close(update, expected, rtol=1e-5, atol=1e-6)
    assert "users train one at a time: the task reads its model's weights" in caplog.text


class LeftOut(Toy):
    """Rows of one class have no loss. A batch may have no other rows."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().loss(outputs, targets)[targets > 0]


def test_a_batch_without_a_loss_moves_nothing_and_the_user_keeps_the_others() -> None:
    task, client = LeftOut(), ClientSpec(engine="loop", batch_size=2)
    cohort = Trainer(task, client, clip).train([start(task)], [1.0], task.users(), np.arange(9), at_round=3)
    assert not cohort.failures
    expected = one_by_one(task, list(range(9)), client)
    torch.testing.assert_close(cohort.update, expected, rtol=1e-5, atol=1e-6)


def test_auto_says_what_it_chose_and_remembers_it() -> None:
    KNOWN.clear()
    task = Toy("recurrent")
    trainer = Trainer(task, ClientSpec(), clip)
    for at_round in range(4):
        trainer.train([start(task)], [1.0], task.users(), np.arange(9), at_round=at_round)
    (said,) = trainer.explain()
    assert "fastest of the first chunks" in said
    again = Trainer(task, ClientSpec(), clip)
    again.train([start(task)], [1.0], task.users(), np.arange(9), at_round=0)
    assert again.explain() == [said]
    stacked = Trainer(Toy(), ClientSpec(), clip)
    stacked.train([start(Toy())], [1.0], Toy().users(), np.arange(9), at_round=0)
    assert stacked.explain() == [
        "9 users at once: a stack of linear layers, for which one batched product serves all users"
    ]


def test_wide_first_layers_are_told_from_narrow_ones() -> None:
    assert pays(50, 3072, 64)
    assert not pays(50, 89, 16), "as many inputs as rows"
    assert not pays(50, 3072, 1), "few outputs"


def test_the_loop_is_left_only_for_what_is_clearly_faster() -> None:
    candidates = [Candidate(None, 1, "loop"), Candidate(None, 9, "batched")]  # type: ignore[arg-type]
    for batched, chosen in ((0.95, "loop"), (0.5, "batched")):
        choice = EngineChoice(candidates, "")
        for _ in range(2 * TRIALS):
            place = choice.next()
            choice.record(place, (1.0, batched)[place], 1)
        assert candidates[choice.next()].label == chosen
        assert str(choice).startswith(f"{chosen}: fastest of the first chunks")


def test_a_chunk_that_is_timed_may_be_smaller() -> None:
    candidates = [Candidate(None, 16, "loop", 4), Candidate(None, 9, "batched")]  # type: ignore[arg-type]
    choice = EngineChoice(candidates, "")
    assert [choice.users(0), choice.users(1)] == [4, 9]
    for _ in range(2 * TRIALS):
        choice.record(choice.next(), 1.0, 1)
    assert choice.next() == 0
    assert choice.users(0) == 16
    assert EngineChoice(candidates[:1], "").users(0) == 16, "nothing is timed where there is one candidate"
    assert EngineChoice([Candidate(None, 2, "few", 4), candidates[1]], "").users(0) == 2  # type: ignore[arg-type]


def test_one_trainer_serves_every_clip_norm_of_a_run() -> None:
    """Adaptive clipping tells another norm each round: the model is built and traced once all the same."""
    task, client = DigitsTask(), ClientSpec(batch_size=5)
    table, users, app = task.users(), np.arange(0, 30, 3), importlib.import_module("fieldfare_client.app")
    schema = Schema.of(model := task.build_model())
    start, seen = schema.flatten(dict(model.named_parameters())), []
    for norm in (0.5, 0.01, 0.5):
        told = {"kind": "adaptive-quantile", "norm": norm}
        settings = {"client": client.model_dump(mode="json"), "clipping": told, "seed": 4, "isolated": False}
        one = app._trainer("digits", json.dumps(settings), "cpu")
        afresh = Trainer(task, client, clip_with(clipping.parse(told), schema), seed=4)
        cohort, expected = (each.train([start], [1.0], table, users, at_round=2) for each in (one, afresh))
        assert torch.equal(cohort.update, expected.update)
        assert cohort.counts == expected.counts
        seen.append(one)
    assert seen == [one] * 3
