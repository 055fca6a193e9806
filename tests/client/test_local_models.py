"""Buffers, dropout, BatchNorm, other dtypes: which engine trains them, and that users do not touch each other."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fieldfare.errors import BadInput
from fieldfare.plan_tables import ClientSpec
from fieldfare.schema import Schema
from fieldfare.task import Task, seeded
from fieldfare_client.training.dropout import KeyedDropout, key_dropout, set_keys
from fieldfare_client.training.local_model import Buffers
from fieldfare_client.training.trainer import Trainer
from fieldfare_client.users import UserTable
from support.refusals import coded

SIZES = [7, 0, 1, 16, 3, 12]


class Made(Task):
    """Six users' rows of six numbers, three classes, and any model."""

    name, score_name, held_out = "made", "loss", "Nothing is evaluated."

    def __init__(self, make: Any) -> None:
        self.make = make

    def build_model(self) -> nn.Module:
        with seeded(1):
            model: nn.Module = self.make()
        return model

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs.float(), targets, reduction="none")

    def users(self) -> UserTable:
        generator = np.random.default_rng(0)
        columns = {
            "x": generator.normal(size=(sum(SIZES), 6)).astype(np.float32),
            "y": generator.integers(0, 3, sum(SIZES)),
        }
        return UserTable([f"u{i}" for i in range(len(SIZES))], np.concatenate(([0], np.cumsum(SIZES))), columns)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"loss": 0.0}


def trainer(make: Any, **client: Any) -> Trainer:
    return Trainer(Made(make), ClientSpec(batch_size=4, **client), lambda updates: None)


def summed(make: Any, users: list[int], **client: Any) -> torch.Tensor:
    task = Made(make)
    model = task.build_model()
    start = Schema.of(model).flatten(dict(model.named_parameters()))
    cohort = trainer(make, **client).train([start], [1.0], task.users(), np.array(users), at_round=2)
    assert not cohort.failures
    return cohort.update


class Statistics(nn.Module):
    """Counts its batches in a buffer and trains accordingly: what passes from user to user unless it is put back."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("batches", torch.zeros(()))
        self.batches: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.batches += 1
        out: torch.Tensor = self.layer(x) * (1 + self.batches)
        return out


class Recurrent(nn.Module):
    """Dropout inside of an LSTM, which no module and no key reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(2, 5, num_layers=2, dropout=0.5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.lstm(x.view(len(x), 3, 2))[0][:, -1])
        return out


class Functional(nn.Module):
    """Dropout that is a function: nothing but torch's own generator knows of it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(nn.functional.dropout(x, 0.5, self.training))
        return out


class LookUps(nn.Module):
    """Shortens the rows of a frozen embedding that it looks up, and then reads all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.layer = nn.Embedding(40, 6, max_norm=0.5), nn.Linear(40, 3)
        self.words.weight.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.words((10 * x.abs()).long().clamp(max=39)).mean(1)
        out: torch.Tensor = self.layer(found @ self.words.weight.T)
        return out


class Shortening(nn.Module):
    """Shortens the rows of a trained embedding that it looks up."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.layer = nn.Embedding(40, 6, max_norm=0.5), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(self.words((10 * x.abs()).long().clamp(max=39)).mean(1))
        return out


class Cutting(nn.Module):
    """Cuts its own weights before it reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.layer.weight.clamp_(-0.1, 0.1)
        out: torch.Tensor = self.layer(x)
        return out


def norm() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def stateful_norm() -> nn.Module:
    """Its BatchNorm reads the running statistics that it changes."""
    model = norm()
    model[1].register_forward_pre_hook(lambda module, inputs: (inputs[0] + module.running_mean,))
    return model


ALONE = {
    "batchnorm": stateful_norm,
    "buffer": Statistics,
    "lstm dropout": Recurrent,
    "functional dropout": Functional,
    "look-ups": LookUps,
    "shortened rows": Shortening,
    "cut weights": Cutting,
}


@pytest.mark.parametrize("kind", ALONE)
@pytest.mark.parametrize("engine", ["auto", "loop"])
def test_a_users_update_is_the_same_bit_for_bit_whoever_else_trains(kind: str, engine: str) -> None:
    users = [0, 3, 4, 5]
    alone = {user: summed(ALONE[kind], [user], engine=engine) for user in users}
    pair = summed(ALONE[kind], [0, 3], engine=engine)
    torch.testing.assert_close(pair, alone[0] + alone[3], rtol=0, atol=0)
    torch.testing.assert_close(
        summed(ALONE[kind], users, engine=engine), sum(alone.values(), torch.zeros_like(pair)), rtol=1e-12, atol=1e-12
    )
    assert all(bool(update.any()) for update in alone.values())


@pytest.mark.parametrize("make", [Shortening, Cutting])
def test_a_model_that_changes_its_parameters_where_it_reads_them_trains_alone(make: Any) -> None:
    task = Made(make)
    start = Schema.of(model := task.build_model()).flatten(dict(model.named_parameters())).detach()

    def update(users: list[int]) -> torch.Tensor:
        apart = Trainer(task, ClientSpec(batch_size=4), lambda updates: None, isolated=True)
        return apart.train([start], [1.0], task.users(), np.array(users), at_round=2).update

    # Of users with other numbers of rows, whose last batches are shorter.
    torch.testing.assert_close(update([0, 3, 5]), update([0]) + update([3]) + update([5]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("make", [norm, Recurrent, lambda: nn.Linear(6, 3, dtype=torch.bfloat16)])
def test_only_batched_training_refuses_what_must_train_alone(make: Any) -> None:
    with pytest.raises(BadInput, check=coded("unsupported", "client.engine")) as refused:
        trainer(make, engine="batched")
    assert any(why in str(refused.value) for why in ("running statistics", "LSTM", "bfloat16"))
    assert summed(make, [0]).any()


def test_a_norm_in_eval_mode_stays_there_and_trains_in_batches() -> None:
    def frozen() -> nn.Module:
        model = norm()
        model[1].eval()
        return model

    made = trainer(frozen, engine="batched")
    assert not made._model[1].training  # type: ignore[index]
    torch.testing.assert_close(
        summed(frozen, [0, 3], engine="batched"), summed(frozen, [0, 3], engine="loop"), rtol=1e-4, atol=1e-6
    )
    # A model that comes in eval mode as a whole, as pretrained ones do, is set to training.
    assert trainer(lambda: norm().eval())._model.training


def test_constant_buffers_are_no_reason_to_refuse() -> None:
    def constant() -> nn.Module:
        model = nn.Sequential(nn.Linear(6, 8), nn.GroupNorm(2, 8), nn.Linear(8, 3))
        model.register_buffer("position_ids", torch.arange(4))
        model.register_buffer("inv_freq", torch.ones(2), persistent=False)
        return model

    torch.testing.assert_close(
        summed(constant, [0, 3, 5], engine="batched"), summed(constant, [0, 3, 5], engine="loop"), rtol=1e-4, atol=1e-6
    )


def test_batches_that_change_a_buffer_are_given_to_the_loop() -> None:
    """A scalar that is no function of the users passes vmap unnoticed; only comparing it shows the change."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 3)
            self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
            self.seen: torch.Tensor

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen += 1
            out: torch.Tensor = self.layer(x) / self.seen
            return out

    torch.testing.assert_close(
        summed(Counting, [0, 2, 3], engine="batched"), summed(Counting, [0, 2, 3], engine="loop"), rtol=0, atol=0
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_a_model_trains_in_its_own_dtype(dtype: torch.dtype) -> None:
    """Against torch.optim in that dtype; the update is the difference from what was loaded, not from float32."""

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).to(dtype)

    task = Made(make)
    model = task.build_model()
    point = Schema.of(model).flatten(dict(model.named_parameters())) + 1e-5
    made = trainer(make, learning_rate=0.5, epochs=1)
    mine = made.train([point], [1.0], task.users(), np.array([2]), at_round=2).update
    rows = task.users().rows(np.array([2]))
    before, sent = [], Schema.of(model).split(point)
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(sent[name])
            before.append(value.detach().clone())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    task.loss(model(rows.columns["x"].to(dtype)), rows.columns["y"]).mean().backward()
    optimizer.step()
    expected = torch.cat(
        [(p.detach().double() - b.double()).flatten() for p, b in zip(model.parameters(), before, strict=True)]
    )
    torch.testing.assert_close(mine, expected, rtol=1e-6, atol=1e-9)
    # A learning rate of nearly nothing changes no half-precision weight: the update is exactly zero, not round-off.
    if dtype != torch.float64:
        idle = trainer(make, learning_rate=1e-12, epochs=1)
        assert not idle.train([point], [1.0], task.users(), np.array([2]), at_round=2).update.any()


def test_float64_and_batchnorm_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "fieldfare.client"):
        trainer(norm)
        trainer(lambda: nn.Linear(6, 3, dtype=torch.float64))
    assert "1 (BatchNorm1d) keeps its initial running statistics" in caplog.text
    assert "GroupNorm" in caplog.text
    assert "trains in float64; updates are summed and released in float32" in caplog.text


@pytest.mark.parametrize("engine", ["batched", "loop"])
def test_plain_dropout_is_keyed(engine: str) -> None:
    def dropping() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.5), nn.Linear(16, 3))

    torch.manual_seed(1)
    one = summed(dropping, [0, 3], engine=engine)
    torch.manual_seed(2)
    np.testing.assert_allclose(summed(dropping, [0, 3], engine="loop"), one, rtol=1e-4, atol=1e-6)
    plain = summed(lambda: nn.Sequential(nn.Linear(6, 16), nn.Identity(), nn.Linear(16, 3)), [0, 3], engine="loop")
    assert not torch.allclose(one, plain, rtol=1e-2)


def keyed(kind: nn.Module) -> KeyedDropout:
    holder = nn.Sequential(kind)
    key_dropout(holder)
    set_keys(holder, torch.tensor(5))
    found = holder[0]
    assert isinstance(found, KeyedDropout)
    return found


@pytest.mark.parametrize(
    ("kind", "shape", "whole"),
    [
        (nn.Dropout(0.5), (40, 3, 5), ()),
        (nn.Dropout1d(0.5), (40, 9, 5), (2,)),
        (nn.Dropout1d(0.5), (300, 5), (1,)),
        (nn.Dropout2d(0.5), (40, 9, 2, 3), (2, 3)),
        (nn.Dropout2d(0.5), (40, 9, 6), (2,)),
        (nn.Dropout3d(0.5), (40, 9, 2, 3, 2), (2, 3, 4)),
        (nn.Dropout3d(0.5), (300, 2, 3, 2), (1, 2, 3)),
    ],
)
def test_channels_are_dropped_whole_as_torch_does(kind: nn.Module, shape: tuple[int, ...], whole: Any) -> None:
    ones = torch.ones(shape)
    for out in (keyed(kind)(ones), kind(ones)):
        assert set(out.unique().tolist()) == {0.0, 2.0}
        if whole:
            assert torch.equal(out.amin(whole), out.amax(whole))
        # 300 or more independent coins: six standard deviations.
        coins = out.amax(whole) if whole else out
        assert abs(float(coins.mean()) - 1) < 6 / coins.numel() ** 0.5


def test_each_use_of_one_dropout_in_a_step_has_its_own_mask() -> None:
    layer, ones = keyed(nn.Dropout(0.5)), torch.ones(64)
    first, second = layer(ones), layer(ones)
    assert not torch.equal(first, second)
    set_keys(nn.Sequential(layer), torch.tensor(5))
    assert torch.equal(layer(ones), first)


def test_checkpointing_cannot_draw_a_mask_again() -> None:
    layer = keyed(nn.Dropout(0.5))
    x = torch.ones(8, requires_grad=True)
    out = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
    with pytest.raises(RuntimeError, match="checkpointing"):
        (out**2).sum().backward()


def test_dropout_that_is_shared_or_impossible_is_swapped_everywhere_or_left() -> None:
    drop = nn.Dropout(0.5)
    model = nn.ModuleDict({"a": drop, "b": drop, "all": nn.Dropout(1.0), "alpha": nn.AlphaDropout(0.5)})
    key_dropout(model)
    assert isinstance(model["a"], KeyedDropout)
    assert isinstance(model["b"], KeyedDropout)
    assert type(model["all"]) is nn.Dropout
    assert type(model["alpha"]) is nn.AlphaDropout


def test_buffers_are_put_back_however_they_changed() -> None:
    model = norm()
    kept = Buffers(model)
    assert not kept.changed()
    before = model[1].running_mean  # type: ignore[index]
    model[1].running_mean = torch.full((8,), 3.0)  # type: ignore[index]
    model[1].running_var.data.mul_(2)  # type: ignore[index,union-attr,operator]
    model[0].register_buffer("left", torch.ones(1))  # type: ignore[index,operator]
    assert kept.changed()
    kept.restore()
    assert not kept.changed()
    assert model[1].running_mean is before  # type: ignore[index]
    assert model[1].running_var.eq(1).all()  # type: ignore[index,union-attr,operator]
    assert not hasattr(model[0], "left")  # type: ignore[index]
