"""Images whose channels lie next to each other: the same updates to round-off, and never at another engine's cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fieldfare.plan_tables import ClientSpec
from fieldfare.task import Task, seeded
from fieldfare_client.training.channels_last import ChannelsLastLoop
from fieldfare_client.training.choice import KNOWN
from fieldfare_client.training.loop import LoopEngine
from fieldfare_client.training.trainer import Trainer
from fieldfare_client.users import UserTable

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this PyTorch has no oneDNN")
CHUNKS = 16
"""Of users, until every candidate has been timed."""


def network() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 6, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(6, 3)),
    )


class Viewed(nn.Module):
    """Asks for planes one after another, as many models do."""

    def __init__(self) -> None:
        super().__init__()
        self.features, self.head = network()[:7], nn.Linear(6 * 4, 3)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(self.features(values).view(len(values), -1))
        return outputs


class Numbers(nn.Module):
    """Makes its images itself."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.inner(values.view(-1, 3, 8, 8))
        return outputs


class Pictures(Task):
    """Images in few colours: equal neighbours are what a maximum has to break ties between."""

    name = "pictures"
    score_name = "none"
    held_out = "Nothing is evaluated."

    def __init__(self, make: Callable[[], nn.Module] = network, shape: tuple[int, ...] = (3, 8, 8)) -> None:
        self.make, self.shape = make, shape

    def build_model(self) -> nn.Module:
        with seeded(1):
            return self.make()

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    def users(self) -> UserTable:
        draw, sizes = np.random.default_rng(0), np.array([7, 0, 1, 5, 3, 6, 4])
        x = draw.integers(0, 3, (int(sizes.sum()), *self.shape)).astype(np.float32)
        columns: dict[str, Any] = {"x": x, "y": draw.integers(0, 3, len(x))}
        return UserTable([str(u) for u in range(len(sizes))], np.concatenate(([0], np.cumsum(sizes))), columns)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"none": 0.0}


def trainer(task: Task, **settings: Any) -> Trainer:
    isolated = settings.pop("isolated", False)
    return Trainer(task, ClientSpec(batch_size=3, **settings), lambda updates: None, isolated=isolated)


def train(trained: Trainer) -> torch.Tensor:
    table, point = (
        trained.task.users(),
        torch.cat([p.detach().flatten() for p in trained.task.build_model().parameters()]),
    )
    cohort = trained.train([point], [1.0], table, np.arange(len(table)), at_round=0)
    assert not cohort.failures
    return cohort.update


def only(trained: Trainer, kind: type[LoopEngine], monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """The update with `kind` in the place of the loop."""
    monkeypatch.setattr(trained, "_engines", {LoopEngine: kind(trained._model, trained.task, trained.client)})
    return train(trained)


@pytest.mark.parametrize(
    "settings",
    [{}, {"epochs": 3, "momentum": 0.5, "gradient_clip": 0.2}, {"steps": 4, "weight_decay": 0.1, "proximal": 0.3}],
    ids=str,
)
@pytest.mark.parametrize(("make", "shape"), [(network, (3, 8, 8)), (Numbers, (192,))], ids=["images", "numbers"])
def test_it_gives_what_the_loop_gives(
    make: Callable[[], nn.Module], shape: tuple[int, ...], settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Pictures(make, shape)
    expected = train(trainer(task, engine="loop", **settings))
    assert expected.norm() > 0.1
    update = only(trainer(task, engine="loop", **settings), ChannelsLastLoop, monkeypatch)
    torch.testing.assert_close(update, expected, rtol=1e-4, atol=1e-6)


def test_values_and_gradients_have_the_channels_of_a_pixel_together(monkeypatch: pytest.MonkeyPatch) -> None:
    arranged: list[bool] = []

    def look(gradient: torch.Tensor) -> None:
        arranged.append(gradient.is_contiguous(memory_format=torch.channels_last))

    class Watched(nn.Conv2d):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            look(input)
            output = super().forward(input)
            output.register_hook(look)
            return output

    class Pool(nn.MaxPool2d):
        """As `nn.MaxPool2d`; its outputs are looked at after the engine's own hook."""

        def __call__(self, *args: Any, **keywords: Any) -> Any:
            output = super().__call__(*args, **keywords)
            output.register_hook(look)
            return output

    layers = [Watched(3, 8, 3), nn.ReLU(), Pool(2), nn.Flatten(), nn.Linear(72, 3)]
    only(trainer(Pictures(lambda: nn.Sequential(*layers)), engine="loop"), ChannelsLastLoop, monkeypatch)
    batches = 3 + 1 + 2 + 1 + 2 + 2
    assert arranged == [True] * 3 * batches


def test_a_user_alone_and_among_others_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Pictures()
    trained = trainer(task, engine="loop")
    monkeypatch.setattr(trained, "_engines", {LoopEngine: ChannelsLastLoop(trained._model, task, trained.client)})
    seen: list[torch.Tensor] = []
    trained.clip = lambda updates: seen.extend(updates.clone())  # type: ignore[func-returns-value]
    train(trained)
    together = torch.stack(sorted(seen, key=lambda update: float(update.norm())))
    seen.clear()
    table, point = task.users(), torch.cat([p.detach().flatten() for p in task.build_model().parameters()])
    for user in range(len(table)):
        trained.train([point], [1.0], table, np.array([user]), at_round=0)
    assert torch.equal(torch.stack(sorted(seen, key=lambda update: float(update.norm()))), together)


def test_auto_begins_with_it_and_leaves_it_only_for_what_is_clearly_faster() -> None:
    KNOWN.clear()
    trained = trainer(Pictures())
    expected = train(trainer(Pictures(), engine="loop"))
    for _ in range(CHUNKS):
        torch.testing.assert_close(train(trained), expected, rtol=1e-4, atol=1e-6)
    labels = [candidate.label for choice in trained._choices.values() for candidate in choice.candidates]
    assert labels[:2] == ["one user at a time (channels last)", "one user at a time"]
    assert "one user at a time (channels last) " in trained.explain()[0]


@pytest.mark.parametrize("settings", [{"engine": "loop"}, {"engine": "batched"}], ids=str)
def test_it_is_not_tried_where_one_engine_was_asked_for(settings: dict[str, Any]) -> None:
    trained = trainer(Pictures(), **settings)
    train(trained)
    assert ChannelsLastLoop not in {type(c.engine) for choice in trained._choices.values() for c in choice.candidates}


def test_isolated_users_meet_one_engine_whatever_the_clock_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """A choice by time would let who else trains decide a user's last bits."""
    monkeypatch.setattr("fieldfare_client.training.trainer.CONVOLVED", 0)
    trained = trainer(Pictures(), isolated=True)
    train(trained)
    assert all(len(choice.candidates) == 1 for choice in trained._choices.values())


def test_a_model_that_wants_planes_trains_without_it(caplog: pytest.LogCaptureFixture) -> None:
    KNOWN.clear()
    task = Pictures(Viewed, (3, 12, 12))
    trained = trainer(task)
    expected = train(trainer(task, engine="loop"))
    for _ in range(CHUNKS):
        torch.testing.assert_close(train(trained), expected, rtol=1e-4, atol=1e-6)
    assert "channels last" not in trained.explain()[0]
    assert "fastest of the first chunks" in trained.explain()[0]
    assert not any(module._forward_hooks for module in trained._model.modules())
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "ChannelsLastLoop cannot train this model or loss; other engines do"
    ]


def test_it_suits_models_with_convolutions_over_images_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    assert ChannelsLastLoop.suits(network(), cpu)
    assert not ChannelsLastLoop.suits(network(), torch.device("cuda"))
    assert not ChannelsLastLoop.suits(nn.Sequential(nn.Conv1d(3, 8, 3)), cpu)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not ChannelsLastLoop.suits(network(), cpu)


class Repeated(nn.Module):
    """One maximum in two places: below a convolution, and before the images are flattened."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 6, 2), nn.Linear(24, 3)
        self.pool = nn.MaxPool2d(2)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        seen = self.pool(torch.relu(self.second(self.pool(torch.relu(self.first(values))))))
        outputs: torch.Tensor = self.head(seen.flatten(1))
        return outputs


def two_pools() -> nn.Sequential:
    return nn.Sequential(*network()[:8], nn.Linear(24, 3))


@pytest.mark.parametrize("make", [two_pools, Repeated])
def test_only_a_maximum_whose_gradient_comes_in_planes_is_watched(
    make: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    task, watched = Pictures(make, (3, 12, 12)), list[int]()
    trained = trainer(task, engine="loop")

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        watched.append(sum(len(m._forward_hooks) for m in trained._model.modules() if isinstance(m, nn.MaxPool2d)))
        return Pictures.loss(task, outputs, targets)

    expected = train(trainer(task, engine="loop"))
    monkeypatch.setattr(task, "loss", loss)
    update = only(trained, ChannelsLastLoop, monkeypatch)
    torch.testing.assert_close(update, expected, rtol=1e-4, atol=1e-6)
    assert set(watched[1:]) == {1}
    assert not any(m._forward_hooks for m in trained._model.modules())
