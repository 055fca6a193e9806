"""Metrics of users on a node: each from that user's rows alone, before training."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import fieldfare as ff
from fieldfare.errors import BadInput
from fieldfare.metrics import MetricsSpec
from fieldfare.plan_tables import ClientSpec
from fieldfare.schema import Schema
from fieldfare.task import seeded
from fieldfare_client.training.measures import Measures
from fieldfare_client.training.trainer import Trainer
from support.refusals import coded

SIZES = (3, 3, 0, 5, 1, 3, 9)
BAD = 5
"""The user whose rows raise, or are no numbers."""


class Lines(ff.Task):
    """A line through the origin. User 2 has no row; of user 5 the measure `odd` raises."""

    name = "lines"
    score_name = "loss"
    held_out = "nobody"
    measures = ("loss", "correct", "odd", "nan")

    def build_model(self) -> torch.nn.Module:
        model = torch.nn.Linear(2, 1, bias=False)
        torch.nn.init.constant_(model.weight, 0.5)
        return model

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (outputs[:, 0] - targets) ** 2

    def measure(self, name: str, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if name == "odd":
            weights = torch.tensor([[0.25], [0.75], [1.0]])
            return torch.nn.functional.embedding(targets.long(), weights)[:, 0]  # raises for a target of 7
        return targets / 0 * 0 if name == "nan" else super().measure(name, outputs, targets)

    def users(self) -> ff.UserTable:
        draw = np.random.default_rng(3)
        x = draw.normal(size=(sum(SIZES), 2)).astype(np.float32)
        y = draw.integers(0, 2, size=sum(SIZES)).astype(np.float32)
        offsets = np.concatenate([[0], np.cumsum(SIZES)])
        y[offsets[BAD]] = 7
        return ff.UserTable([f"u{i}" for i in range(len(SIZES))], offsets, {"x": x, "y": y})

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        return {"loss": 0.0}


def spec(rows: int | None = None, **show: Any) -> MetricsSpec:
    return MetricsSpec.model_validate({"show": show, "rows": rows})


def by_hand(rows: int) -> np.ndarray:
    """(users, 2): mean loss in [0, 2] and correctness in [0, 1] of the first rows, centred; users without rows zero."""
    table = Lines().users()
    x, y = np.asarray(table.columns["x"], np.float64), np.asarray(table.columns["y"], np.float64)
    found = []
    for start, size in zip(table.offsets[:-1], SIZES, strict=True):
        part = slice(start, start + min(size, rows))
        score = x[part] @ [0.5, 0.5]
        loss, correct = ((score - y[part]) ** 2), ((score > 0) == y[part])
        found.append([np.clip(loss.mean() - 1, -1, 1), correct.mean() * 2 - 1] if size else [0.0, 0.0])
    return np.array(found)


@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 64])
def test_the_sums_are_those_by_hand(rows: int, isolated: bool) -> None:
    measure = Measures(Lines(), spec(rows, loss=[0, 2], correct=[0, 1]), torch.device("cpu"), isolated=isolated)
    expected = by_hand(rows)[:, ::-1]  # in the order of their names
    point, table = torch.full((2,), 0.5), Lines().users()
    for users in ([0], [1, 0], [2], [3, 6, 0, 1], list(range(7))):
        found = measure(point, table, np.array(users))
        assert found == pytest.approx(expected[users].sum(axis=0).tolist(), abs=1e-6)


class Drawing(Lines):
    """Draws numbers where it prepares rows, and where it measures them."""

    def prepare(self, columns: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return columns["x"] + 0.1 * torch.randn_like(columns["x"]), columns["y"]

    def measure(self, name: str, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().measure(name, outputs * np.random.rand(), targets)


@pytest.mark.parametrize("isolated", [False, True])
def test_what_is_drawn_for_a_user_is_drawn_for_that_user_alone(isolated: bool) -> None:
    """With generators that anybody may have seeded, who else is measured would decide what comes next."""
    measure = Measures(Drawing(), spec(loss=[0, 2]), torch.device("cpu"), isolated=isolated)
    point, table = torch.full((2,), 0.5), Drawing().users()
    alone = [measure(point, table, np.array([user]))[0] for user in range(7)]
    assert len({round(each, 6) for each in alone}) >= 5
    assert measure(point, table, np.arange(7))[0] == pytest.approx(sum(alone), abs=1e-6)


class Reusing(Lines):
    """`prepare` writes every user's rows to the same memory."""

    kept = torch.empty(16, 2)

    def prepare(self, columns: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return self.kept[: len(columns["x"])].copy_(columns["x"]), columns["y"]


class Narrow(Lines):
    """Labels are as small as a user's own allow, and the loss counts down from them, which may wrap."""

    def prepare(self, columns: Any) -> tuple[torch.Tensor, torch.Tensor]:
        labels = columns["y"].long()
        return columns["x"], labels if (labels == 7).any() else labels.to(torch.uint8)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().loss(outputs, (targets - 1) % 5)


@pytest.mark.parametrize("task", [Reusing(), Narrow()], ids=lambda task: type(task).__name__)
def test_what_prepare_does_with_one_users_rows_moves_no_other_number(task: Lines) -> None:
    measure = Measures(task, spec(loss=[0, 2]), torch.device("cpu"), isolated=False)
    point, table = torch.full((2,), 0.5), task.users()
    alone = [measure(point, table, np.array([user]))[0] for user in range(7)]
    assert measure(point, table, np.arange(7))[0] == pytest.approx(math.fsum(alone), abs=1e-6)


class Deep(Lines):
    """Two layers over the user's pixels, and `correct` as every task has it."""

    def build_model(self) -> torch.nn.Module:
        with seeded(3):
            return torch.nn.Sequential(
                torch.nn.Flatten(), torch.nn.Linear(2, 9), torch.nn.ReLU(), torch.nn.Linear(9, 3)
            )

    def measure(self, name: str, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        raise AssertionError("is not asked")


Deep.measure = ff.Task.measure  # type: ignore[method-assign]


class Mixing(Deep):
    """Its model takes from each row the mean over all of them."""

    def build_model(self) -> torch.nn.Module:
        class Centred(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.last = torch.nn.Linear(2, 3)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.last(x - x.mean(0))

        with seeded(4):
            return Centred()


@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize(("kind", "written"), [(Deep, True), (Mixing, False)])
def test_layers_that_take_rows_one_by_one_are_measured_in_one_product_and_no_others(
    kind: type[Lines], written: bool, isolated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, table, usual, seen = kind(), kind().users(), ff.Task.measure, list[torch.Tensor]()

    def measure(self: ff.Task, name: str, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        seen.append(outputs)
        return usual(self, name, outputs, targets)

    monkeypatch.setattr(ff.Task, "measure", measure)
    monkeypatch.setattr(Deep, "measure", measure)
    measures = Measures(task, spec(4, correct=[0, 1]), torch.device("cpu"), isolated=isolated)
    point = Schema.of(task.build_model()).flatten(dict(task.build_model().named_parameters())).detach()
    assert measures.without_task is written

    def found(users: list[int]) -> tuple[float, list[torch.Tensor]]:
        seen.clear()
        rows = table.rows(np.array(users), torch.device("cpu"))
        ready = rows.columns["x"], rows.columns["y"]
        (value,) = measures(point, table, np.array(users), ready)
        assert not written or measures(point, table, np.array(users)) == pytest.approx((value,), abs=1e-12)
        return value, [each.clone() for each in seen[:1]] if written else []

    alone = {user: found([user]) for user in range(len(SIZES))}
    for users in ([0, 3, 6], [6, 2, 1, 0], list(range(7))):
        value, outputs = found(users)
        assert value == pytest.approx(math.fsum(alone[user][0] for user in users), abs=1e-12)
        if written:
            assert len(outputs[0]) == sum(min(SIZES[user], 4) for user in users), "all users at once"
            assert torch.equal(torch.cat(seen[1:]), outputs[0]) or not isolated, "whether rows were ready or not"
            expected = torch.cat([each for user in users for each in alone[user][1]])
            assert torch.equal(outputs[0], expected) or not isolated
            torch.testing.assert_close(outputs[0], expected)


def test_the_model_that_is_measured_is_the_one_that_was_sent() -> None:
    measure = Measures(Lines(), spec(loss=[0, 2]), torch.device("cpu"), isolated=False)
    table, y = Lines().users(), np.asarray(Lines().users().columns["y"])
    found = measure(torch.zeros(2), table, np.array([0]))
    assert found == pytest.approx([float(np.clip((y[:3] ** 2).mean() - 1, -1, 1))])


class Flipping(Lines):
    """`prepare` changes its columns in place, twice to what they were."""

    def prepare(self, columns: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return columns["x"], columns["y"].sub_(1).abs_()


class Shifting(torch.nn.Linear):
    """Changes its inputs in place."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.mul_(2).add_(1))


class Shifted(Lines):
    def build_model(self) -> torch.nn.Module:
        model = Shifting(2, 1, bias=False)
        torch.nn.init.constant_(model.weight, 0.5)
        return model


def test_a_model_that_changes_its_inputs_in_place_trains_on_the_same_rows_with_metrics_and_without() -> None:
    point, table, updates = torch.full((2,), 0.5), Shifted().users(), []
    for metrics in (None, spec(loss=[0, 2])):
        trainer = Trainer(Shifted(), ClientSpec(batch_size=4), lambda updates: None, metrics=metrics)
        updates.append(trainer.train([point], [1.0], table, np.arange(7), at_round=0).update)
    assert torch.equal(*updates)


@pytest.mark.parametrize("task", [Lines(), Flipping()], ids=lambda task: type(task).__name__)
def test_a_user_who_fails_contributes_zero_and_moves_no_bit_of_another(task: Lines) -> None:
    measure = Measures(task, spec(odd=[0, 1]), torch.device("cpu"), isolated=False)
    table, point = Lines().users(), torch.full((2,), 0.5)
    alone = [measure(point, table, np.array([user]))[0] for user in range(7)]
    assert alone[BAD] == 0.0
    assert measure(point, table, np.arange(7))[0] == pytest.approx(math.fsum(alone), abs=1e-12)
    assert not measure._alone, "the others are still measured together"


def test_what_is_no_number_is_zero() -> None:
    measure = Measures(Lines(), spec(nan=[0, 1]), torch.device("cpu"), isolated=False)
    assert measure(torch.zeros(2), Lines().users(), np.arange(7)) == (0.0,)


def test_one_user_moves_the_sum_by_at_most_one() -> None:
    """Whatever the measure says: bounds are applied to each user's mean."""
    measure = Measures(Lines(), spec(loss=[0, 1e-9]), torch.device("cpu"), isolated=False)
    for user in range(7):
        assert abs(measure(torch.full((2,), 1e20), Lines().users(), np.array([user]))[0]) <= 1.0


@pytest.mark.parametrize("rows", [1, 3, 64])
@pytest.mark.parametrize("name", ["loss", "odd"])
def test_rows_that_are_ready_give_the_same_numbers(rows: int, name: str) -> None:
    measure = Measures(Lines(), spec(rows, **{name: [0, 2]}), torch.device("cpu"), isolated=False)
    table, point = Lines().users(), torch.full((2,), 0.5)
    for users in ([0], [2], [1, 3, 2, 6], list(range(7))):
        own = table.rows(np.array(users), torch.device("cpu"))
        ready = own.columns["x"], own.columns["y"]
        assert measure(point, table, np.array(users), ready) == measure(point, table, np.array(users))


def test_a_trainer_measures_the_rows_that_the_plan_says_before_it_trains() -> None:
    table, users = Lines().users(), np.arange(7)
    trainer = Trainer(Lines(), ClientSpec(), lambda updates: None, metrics=spec(1, loss=[0, 2]))
    found = trainer.train([torch.full((2,), 0.5)], [1.0], table, users, at_round=0)
    assert found.counts == pytest.approx([by_hand(1)[:, 0].sum()], abs=1e-6)


def test_a_measure_that_the_task_lacks_is_refused_by_name() -> None:
    with pytest.raises(BadInput, check=coded("unknown", "metrics.show.f1")):
        Measures(Lines(), spec(f1=[0, 1]), torch.device("cpu"), isolated=False)


def test_the_trainer_sends_indicator_then_metrics_and_the_same_update() -> None:
    table, users, start = Lines().users(), np.arange(7), [torch.full((2,), 0.5)]
    client = ClientSpec(epochs=1, batch_size=16)
    made = [
        Trainer(Lines(), client, lambda updates: (2.0,), metrics=metrics).train(start, [1.0], table, users, at_round=0)
        for metrics in (None, spec(loss=[0, 2], correct=[0, 1]))
    ]
    assert torch.equal(made[0].update, made[1].update)
    assert made[1].counts == pytest.approx((*made[0].counts, *by_hand(64)[:, ::-1].sum(axis=0).tolist()), abs=1e-6)
