"""Tasks with one mistake each, as a new user makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from fieldfare.task import Task, seeded
from fieldfare_client.users import UserTable

USERS, ROWS, WIDTH, CLASSES = 12, 5, 4, 3


def columns() -> dict[str, np.ndarray]:
    """Rows without a mistake: float32 "x" (rows, WIDTH), int64 "y"."""
    generator = np.random.default_rng(3)
    x = generator.normal(size=(USERS * ROWS, WIDTH)).astype(np.float32)
    return {"x": x, "y": (x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 1)}


def table(made: dict[str, np.ndarray]) -> UserTable:
    return UserTable.grouped(np.repeat([f"user-{u:02d}" for u in range(USERS)], ROWS), made)


class Right(Task):
    """Nothing is wrong with this one."""

    name = "right"
    score_name = "accuracy"
    held_out = "Made-up rows that belong to no user."

    def build_model(self) -> nn.Module:
        with seeded(self.seed):
            return nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, CLASSES))

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    def users(self) -> UserTable:
        return table(columns())

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        made = columns()
        with torch.no_grad():
            x = torch.from_numpy(made["x"]).to(next(model.parameters()).dtype)
            right = model(x).argmax(1).numpy() == made["y"]
        return {"accuracy": float(right.mean())}


class ReadFirst(Task):
    """Before another task: its users() sets what its prepare() needs."""

    def users(self) -> UserTable:
        self.scale = 0.5
        return super().users()

    def prepare(self, columns: dict[str, np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = super().prepare(columns)
        return x * self.scale, y


def task(**parts: Any) -> type[Task]:
    """`Right` with other parts; None removes one."""
    made = type("Faulty", (Right,), {key: value for key, value in parts.items() if value is not None})
    return made


def data(**changes: Callable[[np.ndarray], np.ndarray] | None) -> type[Task]:
    """`Right` with changed columns; None drops one."""

    def users(self: Task) -> UserTable:
        made = columns()
        for key, change in changes.items():
            if change is None:
                del made[key]
            else:
                made[key] = change(made[key])
        return table(made)

    return task(users=users)


def model(build: Callable[[], nn.Module]) -> type[Task]:
    def build_model(self: Task) -> nn.Module:
        with seeded(0):
            return build()

    return task(build_model=build_model)


def loss(function: Callable[[torch.Tensor, torch.Tensor], Any]) -> type[Task]:
    return task(loss=lambda self, outputs, targets: function(outputs, targets))


def score(function: Callable[[nn.Module], Any]) -> type[Task]:
    return task(evaluate=lambda self, model: function(model))


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*arguments: Any) -> Any:
        raise error

    return fail


def some_nan(rows: slice) -> Callable[[np.ndarray], np.ndarray]:
    def change(x: np.ndarray) -> np.ndarray:
        x = x.copy()
        x[rows] = np.nan
        return x

    return change


class Abstract(Task):
    name, score_name, held_out = "abstract", "accuracy", "Nothing."


class NoName(Right):
    name = None  # type: ignore[assignment]


class NoScoreName(Right):
    score_name = ""


def network(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 8), *layers, nn.Linear(8, CLASSES))


def cross(outputs: torch.Tensor, targets: torch.Tensor, reduction: str = "none") -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction=reduction)


def short() -> UserTable:
    made = columns()
    return UserTable(
        [f"u{i}" for i in range(USERS)], np.arange(USERS + 1) * ROWS, {"x": made["x"], "y": made["y"][:-3]}
    )


_draws = iter(range(10**6))


class Unseeded(Right):
    def build_model(self) -> nn.Module:
        torch.manual_seed(next(_draws))
        return network(nn.ReLU())


class Leaky(Right):
    """Its score changes the model."""

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        with torch.no_grad():
            next(model.parameters()).add_(1.0)
        return {"accuracy": 0.5}


class DropsRows(Right):
    def prepare(self, columns: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return columns["x"][1:], columns["y"][1:]


class OneTensor(Right):
    def prepare(self, columns: Any) -> Any:
        return columns["x"]


def with_buffer(value: torch.Tensor) -> type[Task]:
    def build() -> nn.Module:
        module = nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, CLASSES))
        module.register_buffer("kept", value)
        return module

    return model(build)


class WithObject(nn.Linear):
    """A layer with state that is no tensor."""

    def get_extra_state(self) -> dict[str, int]:
        return {"scale": 1}


FAULTY: dict[str, tuple[Any, str, str]] = {
    # name: (task, kind, words that the refusal must say)
    "abstract class": (Abstract, "task", "abstract"),
    "no name": (NoName, "task", "has no name"),
    "no score_name": (NoScoreName, "task", "has no score_name"),
    "constructor raises": (failing(OSError("no such share")), "task", "OSError: no such share"),
    "outputs in a tuple": (
        model(lambda: nn.Sequential(nn.Linear(4, 8), nn.LSTM(8, 3))),
        "model",
        "gives a tuple, not a tensor. Nearest allowed: a forward() that returns one of its tensors",
    ),
    "not a task": (dict, "task", "not a fieldfare.task.Task"),
    "users() raises": (task(users=failing(FileNotFoundError("clinic.csv"))), "users", "FileNotFoundError: clinic.csv"),
    "users() gives a list": (task(users=lambda self: [1, 2]), "users", "gives a list, not a fieldfare_client.users"),
    "no users": (task(users=lambda self: table(columns()).select(np.arange(0))), "users", "gives no user"),
    "no rows": (
        task(
            users=lambda self: UserTable(["a", "b"], np.zeros(3, np.int64), {"x": np.zeros((0, 4)), "y": np.zeros(0)})
        ),
        "users",
        "none of 2 users has a row",
    ),
    "short columns": (task(users=lambda self: short()), "users", "column 'y': has 57 rows, the offsets end at 60"),
    "objects": (data(y=lambda y: y.astype(object)), "users", "holds Python objects"),
    "missing y": (data(y=None), "data", "looks for a column 'y', and users() gives x"),
    "prepare() drops rows": (DropsRows, "data", "4 rows of inputs for 5 rows"),
    "prepare() gives one tensor": (OneTensor, "data", "does not give two tensors"),
    "text": (data(x=lambda x: x.astype(np.str_)), "users", "column 'x': holds text"),
    "all NaN": (data(x=some_nan(slice(None))), "data", "60 rows of column 'x' hold NaN or infinity"),
    "labels from 1": (data(y=lambda y: y + 1), "data", "labels out of range (0 to 3); the model has 3 outputs"),
    "labels out of range": (data(y=lambda y: np.where(np.arange(60) < 2, 7, y)), "data", "2 rows of 1 user "),
    "negative labels": (data(y=lambda y: y - 1), "data", "labels out of range (-1"),
    "float labels": (data(y=lambda y: y.astype(np.float32)), "data", "the labels are float32"),
    "float64 labels": (data(y=lambda y: y.astype(np.float64)), "data", "wants whole numbers"),
    "uint8 features": (
        data(x=lambda x: np.abs(x).astype(np.uint8)),
        "model",
        "does not take inputs of shape (5, 4), uint8",
    ),
    "wrong width": (data(x=lambda x: x[:, :3].copy()), "model", "a first layer as wide as the inputs"),
    "flat features": (data(x=lambda x: x[:, 0].copy()), "model", "does not take inputs of shape (5,)"),
    "build_model raises": (
        task(build_model=failing(ImportError("timm"))),
        "model",
        "build_model() failed: ImportError",
    ),
    "build_model gives a class": (
        task(build_model=lambda self: nn.Linear),
        "model",
        "gives a type, not a torch.nn.Module",
    ),
    "no parameters": (model(nn.Flatten), "model", "no parameters to train"),
    "all frozen": (model(lambda: nn.Linear(WIDTH, CLASSES).requires_grad_(False)), "model", "no parameters to train"),
    "unseeded": (Unseeded, "model", "does not give the same 0.weight twice"),
    "NaN weights": (
        model(lambda: nn.Linear(WIDTH, CLASSES).apply(lambda m: nn.init.constant_(m.weight, float("nan")))),
        "model",
        "not finite from the start",
    ),
    "loss raises": (
        loss(failing(ZeroDivisionError("division by zero"))),
        "loss",
        "ZeroDivisionError: division by zero",
    ),
    "loss gives a float": (loss(lambda o, t: float(cross(o, t).mean())), "loss", "gives a float, not a tensor"),
    "loss a column": (loss(lambda o, t: cross(o, t)[:, None]), "loss", "shape (5, 1) for 5 rows"),
    "loss a class": (loss(lambda o, t: o.log_softmax(1)), "loss", "shape (5, 3) for 5 rows"),
    "sum loss": (loss(lambda o, t: cross(o, t, "sum")), "loss", "one sum for all rows of a batch"),
    "odd scalar loss": (loss(lambda o, t: cross(o, t).max()), "loss", "neither mean nor sum"),
    "infinite loss": (loss(lambda o, t: cross(o, t) / 0), "loss", "not finite on finite rows"),
    "no gradient": (loss(lambda o, t: (o.argmax(1) != t).float()), "training", "does not require grad"),
    "detached loss": (loss(lambda o, t: cross(o.detach(), t)), "training", "does not require grad"),
    "zero gradient": (loss(lambda o, t: cross(o, t) * 0), "training", "moved no parameter"),
    "sparse buffer": (with_buffer(torch.eye(3).to_sparse()), "model", "kept of its state_dict() is no dense tensor"),
    "state of another kind": (
        model(lambda: WithObject(WIDTH, CLASSES)),
        "model",
        "_extra_state of its state_dict()",
    ),
    "evaluate raises": (score(failing(RuntimeError("no test file"))), "score", "RuntimeError: no test file"),
    "evaluate gives None": (score(lambda model: None), "score", "gives None, not a dict"),
    "evaluate gives a tensor": (score(lambda model: torch.ones(())), "score", "gives a Tensor, not a dict"),
    "missing score": (score(lambda model: {"loss": 1.0}), "score", "gives loss, and not score_name = 'accuracy'"),
    "NaN score": (score(lambda model: {"accuracy": float("nan")}), "score", "evaluate()['accuracy'] is nan"),
    "score is text": (score(lambda model: {"accuracy": "good"}), "score", "is a str, not a number"),
    "another score is a list": (score(lambda model: {"accuracy": 0.5, "of": [1, 2]}), "score", "['of'] is a list"),
    "random score": (score(lambda model: {"accuracy": float(np.random.default_rng().random())}), "score", "and then"),
    "evaluate changes the model": (Leaky, "score", "changes 0.weight of the model"),
}
"""Every mistake, the part of the task that it is in, and what the refusal must say."""


class Broken(Right):
    """Its score fails."""

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        raise RuntimeError("no test file")
