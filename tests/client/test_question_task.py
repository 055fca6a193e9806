"""What a question measures on a node: one user at a time, from that user's rows alone."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import fieldfare as ff
from fieldfare.errors import BadInput
from fieldfare.names import QUESTION, task_reference
from fieldfare.plan_tables import ClientSpec
from fieldfare_client import app, shared_users
from fieldfare_client.questions import Contributions, QuestionTask, provide
from fieldfare_client.training.trainer import Trainer
from support.refusals import Coded, coded


class Lines(ff.Task):
    """A line through the origin; one user has no row, one a row that is not a number."""

    name = "lines"
    score_name = "loss"
    held_out = "nobody"

    def build_model(self) -> torch.nn.Module:
        model = torch.nn.Linear(2, 1, bias=False)
        torch.nn.init.constant_(model.weight, 0.5)
        return model

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (outputs[:, 0] - targets) ** 2

    def users(self) -> ff.UserTable:
        draw = np.random.default_rng(3)
        offsets = np.array([0, 2, 2, 5, 9, 10])
        x, y = draw.normal(size=(10, 2)).astype(np.float32), draw.normal(size=10).astype(np.float32)
        x[9] = np.nan
        return ff.UserTable([f"u{i}" for i in range(5)], offsets, {"x": x, "y": y})

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        return {"loss": 0.0}


NAME = f"{__name__}:Lines"
TRAINING = {"epochs": 1, "batch_size": 16, "learning_rate": 0.25}


def contributions(question: dict[str, Any], **more: Any) -> np.ndarray:
    task = QuestionTask(NAME, question, **more)
    table = task.users()
    assert (table.sizes == 1).all()
    np.testing.assert_array_equal(table.pseudonyms, Lines().users().pseudonyms)
    return np.asarray(table.columns["x"][np.arange(len(table))])


def test_the_norm_of_an_update_is_that_of_one_step_by_hand() -> None:
    table = Lines().users()
    x, y = np.asarray(table.columns["x"], np.float64), np.asarray(table.columns["y"], np.float64)
    question = {"kind": "mean", "measure": "update-norm", "low": 0, "high": 4, "some": True}
    found = contributions(question, client=ClientSpec.model_validate(TRAINING))
    for user, (a, b) in enumerate(zip(table.offsets[:-1], table.offsets[1:], strict=True)):
        if user in (1, 4):  # no row, and a row that is none: no value, and a contribution of zero
            assert not found[user].any()
            continue
        step = 0.25 * 2 * ((x[a:b] @ [0.5, 0.5] - y[a:b])[:, None] * x[a:b]).mean(axis=0)
        norm = float(np.linalg.norm(step))
        assert 0 < norm < 4
        np.testing.assert_allclose(found[user], np.sqrt(0.5) * np.array([(norm - 2) / 2, 1]), rtol=1e-5)


def measured(task: QuestionTask) -> int:
    """Of how many users the measure was computed."""
    return int(task.users().columns["x"]._known.sum())  # type: ignore[attr-defined]


@pytest.mark.parametrize("model", [False, True])
def test_who_is_not_asked_is_neither_trained_nor_measured(model: bool, tmp_path: Path) -> None:
    """Users 2 and 3 are asked, first one and then both; what they give is what they give when all are asked."""
    question = {"kind": "mean", "measure": "update-norm", "low": 0, "high": 4, "some": True}
    if model:
        save_file({"weight": torch.full((1, 2), 0.5)}, tmp_path / "model.safetensors")
        provide("some-run", tmp_path / "model.safetensors")
        question |= {"measure": "loss", "model": "some-run"}
    task = QuestionTask(NAME, question, client=ClientSpec.model_validate(TRAINING))
    column = task.users().columns["x"]
    assert measured(task) == 0
    some = [column[np.array([3])], column[np.array([3, 2, 3])]]
    assert measured(task) == 2
    everybody = contributions(question, client=ClientSpec.model_validate(TRAINING))
    assert everybody[2:4].any(axis=1).all()
    np.testing.assert_array_equal(some[0], everybody[[3]])
    np.testing.assert_array_equal(some[1], everybody[[3, 2, 3]])


class InPlace(Lines):
    """Scales rows where they are, and by a number that it draws."""

    def prepare(self, columns: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return columns["x"].mul_(0.5 + torch.rand(())), columns["y"]


def test_models_that_are_compared_are_measured_on_the_same_rows(tmp_path: Path) -> None:
    for run in ("one", "again"):
        save_file({"weight": torch.full((1, 2), 0.5)}, tmp_path / f"{run}.safetensors")
        provide(run, tmp_path / f"{run}.safetensors")
    question = {"kind": "choose", "measure": "loss", "models": ["one", "again"], "low": 0, "high": 4}

    def found(order: list[int]) -> np.ndarray:
        column = QuestionTask(f"{__name__}:InPlace", question).users().columns["x"]
        rows = [column[np.array([place])][0] for place in order]
        return np.array([rows[order.index(place)] for place in range(5)])

    first = found([0, 1, 2, 3, 4])
    assert first[[0, 2, 3]].all()
    np.testing.assert_array_equal(first[:, 0], first[:, 1])
    np.testing.assert_array_equal(found([3, 2, 0, 4, 1]), first)  # whoever was measured before


def test_where_processes_share_users_nobody_is_measured_before_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_users, "ray_job", lambda: f"a job of {__name__}")
    question = {"kind": "mean", "measure": "update-norm", "low": 0, "high": 4, "some": True}
    reference = task_reference(QUESTION, {"of": NAME, "question": question, "client": TRAINING})
    try:
        node = app._hosted(reference, 0, 1)
        assert isinstance(node.task, QuestionTask)
        assert measured(node.task) == 0
        assert node.table.rows(np.array([2])).columns["x"].any()
        assert measured(node.task) == 1
    finally:
        app.forget_users()


def test_rows_and_columns_are_those_of_the_table() -> None:
    sizes = contributions({"kind": "mean", "measure": "rows", "low": 0, "high": 4})
    np.testing.assert_allclose(sizes[:, 0], (np.array([2, 0, 3, 4, 1]) - 2) / 2)
    y, offsets = Lines().users().columns["y"], Lines().users().offsets
    means = contributions({"kind": "mean", "measure": "y", "low": -9, "high": 9})
    own = [np.asarray(y[a:b]).mean() / 9 if b > a else 0.0 for a, b in itertools.pairwise(offsets)]
    np.testing.assert_allclose(means[:, 0], own, rtol=1e-5)


@pytest.mark.parametrize(
    ("measure", "word"), [("x", coded("wrong-form", "question.measure")), ("z", coded("not-found", "question.measure"))]
)
def test_a_measure_that_is_none_is_refused_with_those_that_are(measure: str, word: Coded) -> None:
    with pytest.raises(BadInput, check=word) as refused:
        contributions({"kind": "mean", "measure": measure, "low": 0, "high": 1})
    assert str(refused.value).endswith("Nearest allowed: rows, y.")  # and not x, of which no number is one row's


def test_a_table_without_words_names_what_makes_them() -> None:
    with pytest.raises(BadInput, check=coded("wrong-form", "fieldfare.questions.items.letters_of")):
        contributions({"kind": "items", "measure": "y", "words": True, "leak": 1e-7})


def test_a_model_that_is_not_here_is_refused() -> None:
    with pytest.raises(BadInput, check=coded("not-found", "the model of run")):
        contributions({"kind": "mean", "measure": "loss", "low": 0, "high": 1, "model": "elsewhere"})


def test_the_known_updates_are_those_of_every_engine_that_takes_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, in any order of any users, so an answer is the one that training would give."""
    task = QuestionTask(NAME, {"kind": "histogram", "measure": "y", "low": -9, "high": 9, "bins": 4})
    client = ClientSpec(epochs=1, batch_size=1, learning_rate=1.0)

    def summed(users: list[int], engine: str, known: Any = None) -> torch.Tensor:
        settings = client.model_copy(update={"engine": engine})
        with monkeypatch.context() as patch:
            patch.setattr(QuestionTask, "known_updates", known)
            trainer = Trainer(task, settings, lambda updates: None)
            start = torch.zeros(trainer.schema.numel)
            result = trainer.train([start], [1.0], task.users(), np.array(users), at_round=0)
        assert not result.failures
        return result.update

    for users in ([0], [4, 2, 0, 1], [0, 1, 2, 3, 4]):
        known = summed(users, "auto", Contributions)
        assert users == [4] or bool(known.any())
        assert all(torch.equal(known, summed(users, engine)) for engine in ("loop", "batched"))
