"""Products of float32 in a lower precision: torch's own setting, by its older name or by its newer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import nn

from fieldfare.plan_tables import ClientSpec
from fieldfare.schema import Schema
from fieldfare.task import Task
from fieldfare_client import own_randomness
from fieldfare_client.training import isolation
from fieldfare_client.training.trainer import Trainer
from fieldfare_client.users import UserTable

pytestmark = pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="older than torch 2.9")
SIZES = [9, 8, 12, 8]


def write(place: object, value: object, name: str = "fp32_precision") -> Callable[[], None]:
    return lambda: setattr(place, name, value)


SETTINGS = {
    "everything": write(torch.backends, "tf32"),
    "products on a GPU": write(torch.backends.cuda.matmul, "tf32"),
    "convolutions on a GPU": write(torch.backends.cudnn.conv, "ieee"),
    "products on a CPU": write(torch.backends.mkldnn.matmul, "bf16"),
    "all of a CPU": write(torch.backends.mkldnn, "bf16"),
    "older name": lambda: torch.set_float32_matmul_precision("medium"),
    "older switch": write(torch.backends.cuda.matmul, True, "allow_tf32"),
}


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(isolation, "FOUND", {})
    before = [(read, write, read()) for read, write in own_randomness._settings()]
    yield
    for read, write, value in before:
        if value is not None and read() != value:
            write(value)


class Linear(Task):
    name, score_name, held_out = "linear", "loss", "Nothing is evaluated."

    def build_model(self) -> nn.Module:
        model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
        with torch.no_grad():
            for value in model.parameters():
                value.copy_(torch.linspace(-0.1, 0.1, value.numel()).view_as(value))
        return model

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    def users(self) -> UserTable:
        chance, rows = np.random.default_rng(1), sum(SIZES)
        columns = {"x": chance.standard_normal((rows, 64)).astype(np.float32), "y": chance.integers(0, 10, rows)}
        return UserTable([f"u{place}" for place in range(len(SIZES))], np.cumsum([0, *SIZES]), columns)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"loss": math.nan}


def trainer() -> tuple[Trainer, Callable[..., torch.Tensor]]:
    task = Linear()
    made = Trainer(task, ClientSpec(batch_size=4, learning_rate=0.1), lambda updates: None, isolated=True)
    start = Schema.of(model := task.build_model()).flatten(dict(model.named_parameters())).detach()

    def train(*users: int) -> torch.Tensor:
        result = made.train([start], [1.0], task.users(), np.array(users), at_round=0)
        assert not result.failures
        return result.update

    return made, train


@pytest.mark.parametrize("before", ["", *SETTINGS])
@pytest.mark.parametrize("inside", SETTINGS)
def test_a_loop_leaves_the_precision_as_it_found_it(before: str, inside: str) -> None:
    """The first name in the list apart: torch does not tell it once the newer one has been used."""
    if before:
        SETTINGS[before]()
    found = own_randomness.settings()
    with own_randomness.own_randomness(1):
        SETTINGS[inside]()
    left = own_randomness.settings()
    differing = [place for place, (a, b) in enumerate(zip(found, left, strict=True)) if a != b]
    assert [found[place] for place in differing] in ([], [None])


@pytest.mark.parametrize("name", SETTINGS)
def test_users_train_and_move_nobody(name: str) -> None:
    SETTINGS[name]()
    made, train = trainer()
    together = train(0, 1, 2, 3)
    assert any(width for *_, width in made._choices)
    torch.testing.assert_close(sum(train(user) for user in range(4)), together, rtol=0, atol=1e-12)


def test_what_one_precision_was_found_to_do_says_nothing_of_another() -> None:
    trainer()[1](0, 1)
    first = set(isolation.FOUND)
    SETTINGS["products on a CPU"]()
    trainer()[1](0, 1)
    assert first
    assert set(isolation.FOUND) - first


def test_where_settings_change_in_a_run_users_train_alone(caplog: pytest.LogCaptureFixture) -> None:
    made, train = trainer()
    before = train(0, 1, 2, 3)
    SETTINGS["products on a GPU"]()  # on a CPU the numbers stay what they are
    after = train(0, 1, 2, 3)
    assert not any(width for *_, width in made._choices)
    assert "users train alone" in caplog.text
    torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-7)
    made, train = trainer()
    train(0, 1)
    train(2, 3)
    assert any(width for *_, width in made._choices)
