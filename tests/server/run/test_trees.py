"""Trees are refused by that word wherever a model is given, before anything is charged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedXgbBagging, FedXgbCyclic
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import fieldfare as ff
from fieldfare.errors import BadInput
from fieldfare.trees import refuse_trees
from support.refusals import coded


class XGBClassifier:
    """Of a module that is named as XGBoost's is; LightGBM and CatBoost are alike."""


class Boosted(XGBClassifier):
    """A user's own class over it."""


XGBClassifier.__module__ = "xgboost.sklearn"
TREES = [DecisionTreeClassifier, RandomForestClassifier, HistGradientBoostingClassifier, XGBClassifier, Boosted]
NAMES = [f"{kind.__name__}{made}" for made in ("", "()") for kind in TREES]
trees = pytest.mark.parametrize("tree", [*TREES, *(kind() for kind in TREES)], ids=NAMES)


class Forests(ff.Task):
    """A task whose model is a forest."""

    name = "forests"

    def build_model(self) -> Any:
        return RandomForestClassifier()

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        raise AssertionError("forests are refused before they train")

    def users(self) -> ff.UserTable:
        return ff.UserTable.grouped(["a", "b"], {"x": np.zeros((2, 3), np.float32), "y": np.zeros(2, np.int64)})

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        raise AssertionError("forests are refused before they are scored")


def start(home: Path, arrays: Any, **keywords: Any) -> None:
    strategy = ff.PrivateStrategy(
        epsilon=8, delta=1e-5, cohort=2, population="readers", budget=16, home=home, **keywords
    )
    strategy.start(ff.LocalGrid(ClientApp(), 4, {}), arrays)


@trees
def test_an_object_or_a_class_of_trees(tree: object, tmp_path: Path) -> None:
    numbers = ArrayRecord([np.zeros(3, np.float32)])
    for give in (
        lambda: start(tmp_path, tree),
        lambda: start(tmp_path, numbers, model=tree),
        lambda: start(tmp_path, numbers, model=lambda: tree),
        lambda: ff.private.train(tree),  # type: ignore[arg-type]
        lambda: ff.Plan(task=tree, epsilon=8, delta=1e-5, rounds=2, cohort=2),
    ):
        with pytest.raises(BadInput, check=coded("trees")):
            give()
    assert not any(tmp_path.rglob("ledger.sqlite3")), "nothing was begun"


@pytest.mark.parametrize("content", [b"", b'{"learner": {}}'], ids=["of the first round", "of later ones"])
def test_bytes_as_flowers_quickstart_of_xgboost_sends_them(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(BadInput, check=coded("trees")):
        start(tmp_path, ArrayRecord([np.frombuffer(content, dtype=np.uint8)]))


@pytest.mark.parametrize("base", [FedXgbBagging, FedXgbCyclic])
def test_a_strategy_for_trees(base: Any) -> None:
    with pytest.raises(BadInput, check=coded("trees")):
        ff.PrivateStrategy(epsilon=8, delta=1e-5, cohort=2, population="readers", base=base())


def test_a_task_whose_model_is_a_forest_costs_nothing(tmp_path: Path) -> None:
    plan = ff.Plan(task=Forests(), epsilon=8, delta=1e-5, rounds=1, cohort=1)
    with pytest.raises(BadInput, check=coded("faulty", "run.task")):
        ff.simulate(plan, budget=10, ledger=tmp_path, progress=False)
    assert not any(tmp_path.rglob("ledger.sqlite3"))


@pytest.mark.parametrize("other", [LogisticRegression, LogisticRegression(), torch.nn.Linear(2, 1), 5, "forest"])
def test_what_is_no_tree_goes_on(other: object) -> None:
    refuse_trees("model", other)


@pytest.mark.parametrize("odd", [None, [np.zeros(3)], {"w": np.zeros(3)}])
def test_initial_arrays_that_are_no_record_are_named(odd: object, tmp_path: Path) -> None:
    with pytest.raises(BadInput, check=coded("array-unusable")):
        start(tmp_path, odd)
