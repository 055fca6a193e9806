"""`ff.private` behind `ff.PrivateStrategy`: a server app and a client app that know nothing of each other's inside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

import fieldfare as ff
from fieldfare.errors import FieldfareError
from fieldfare.task import seeded
from support.refusals import coded

SEEN: list[dict[str, Any]] = []


def net() -> nn.Module:
    """With BatchNorm, a frozen layer and a dropout: what a loop of one's own may use."""
    with seeded(2):
        model = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Dropout(0.2), nn.Linear(6, 1), nn.Linear(1, 1))
        model[4].requires_grad_(False)
    return model


def app(each: int, **options: Any) -> ClientApp:
    made = ClientApp(**options)

    @made.query("users")
    @ff.private.users
    def users(context: Context) -> list[str]:
        return [f"{context.node_config['partition-id']}-{index}" for index in range(each)]

    @made.train()
    @ff.private.train(net, isolation="none")  # what the loop is given is looked at here
    def train(model: Any, user: str, context: Context, config: dict[str, Any]) -> None:
        SEEN.append({"user": user, **config})
        optimizer = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=config["lr"])
        x = torch.randn(8, 3)
        for _ in range(2):
            optimizer.zero_grad()
            (model(x)[:, 0] - x.sum(1)).square().mean().backward()
            optimizer.step()

    return made


def start(tmp_path: Path, grid: ff.LocalGrid, **keywords: Any) -> None:
    """Two rounds; checks that the released model loads, and that nothing moved but what is trained."""
    given: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5, "cohort": 4, "clip": 0.5, "mechanism": "independent"}
    strategy = ff.PrivateStrategy(
        **given, population="patients", budget=20.0, model=net, home=tmp_path / "home", **keywords
    )
    arrays = ArrayRecord(net().state_dict())
    result = strategy.start(grid, arrays, num_rounds=2, train_config=ConfigRecord({"lr": 0.05}))
    model, initial = net(), net().state_dict()
    model.load_state_dict(result.arrays.to_torch_state_dict(), strict=True)
    trained = {name for name, value in net().named_parameters() if value.requires_grad}
    for name, value in model.state_dict().items():
        assert torch.equal(value, initial[name]) == (name not in trained), name


def test_many_users_a_node(tmp_path: Path) -> None:
    SEEN.clear()
    start(tmp_path, ff.LocalGrid(app(4), 2, {}), dialect="cohort")
    assert [(seen["lr"], seen["server-round"]) for seen in SEEN] == [(0.05, 1)] * 4 + [(0.05, 2)] * 4
    assert len({seen["user"] for seen in SEEN}) >= 4


@pytest.mark.parametrize("mods", [False, True])
def test_one_user_a_node_in_flowers_own_words(tmp_path: Path, mods: bool) -> None:
    options = {"mods": [ff.private]} if mods else {}
    start(tmp_path, ff.LocalGrid(app(1, **options), 8, {}), clip_on_nodes=mods)


def test_nodes_of_many_users_asked_in_flowers_words_say_so_at_once(tmp_path: Path) -> None:
    with pytest.raises(FieldfareError, check=coded("nodes-fail", "the nodes' ClientApp", "dialect = 'cohort'")):
        start(tmp_path, ff.LocalGrid(app(2), 8, {}))


def test_the_mod_clips_an_app_that_knows_nothing_of_it(tmp_path: Path) -> None:
    sent: list[float] = []
    made = ClientApp(mods=[ff.private])

    @made.train()
    def train(message: Message, context: Context) -> Message:
        state = message.content.array_records["arrays"].to_torch_state_dict(keep_input=False)
        replied = {name: value + 1 if value.is_floating_point() else value for name, value in state.items()}
        content = RecordDict({"arrays": ArrayRecord(replied), "metrics": MetricRecord({"num-examples": 3})})
        return Message(content, reply_to=message)

    class Watching(ff.LocalGrid):
        def answer(self, message: Message) -> Message:
            # Before: the app empties what it gets.
            before = dict(message.content.array_records["arrays"])
            reply = super().answer(message)
            after = reply.content.array_records["arrays"].to_torch_state_dict()
            change = [after[name].double() - torch.from_numpy(array.numpy()).double() for name, array in before.items()]
            sent.append(float(torch.cat([value.flatten() for value in change]).norm()))
            return reply

    start(tmp_path, Watching(made, 8, {}), clip_on_nodes=True)
    assert len(sent) >= 8
    assert sent == pytest.approx([0.5] * len(sent), rel=1e-5)
