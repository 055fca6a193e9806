"""A tiny federation in this process: a task of a few users, a home, and nodes that may lie."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from flwr.app import Message

from fieldfare.participation import Adjacency
from fieldfare.plan import Plan
from fieldfare.schema import pseudonyms
from fieldfare.task import Task, seeded
from fieldfare_client.app import app
from fieldfare_client.simulation import LocalGrid
from fieldfare_client.users import UserTable
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger

USERS = 24


class TinyTask(Task):
    """Linear regression on 24 made-up users with 6 rows each."""

    name: ClassVar[str] = "tiny"
    score_name: ClassVar[str] = "r"
    held_out: ClassVar[str] = "Made-up rows that belong to no user."

    def build_model(self) -> torch.nn.Module:
        with seeded(self.seed):
            return torch.nn.Sequential(torch.nn.Linear(3, 1))

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return 0.5 * (outputs[:, 0] - targets) ** 2

    def users(self) -> UserTable:
        generator = np.random.default_rng(5)
        x = generator.normal(size=(USERS * 6, 3)).astype(np.float32)
        y = (x @ np.array([1.0, -2.0, 0.5], np.float32)).astype(np.float32)
        return UserTable.grouped(np.repeat([f"user-{i:02d}" for i in range(USERS)], 6), {"x": x, "y": y})

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        generator = np.random.default_rng(6)
        x = torch.from_numpy(generator.normal(size=(50, 3)).astype(np.float32))
        with torch.no_grad():
            error = model(x)[:, 0] - x @ torch.tensor([1.0, -2.0, 0.5])
        return {"r": -float(error.square().mean())}


class SelectedTask(TinyTask):
    """The same users but two, selected from their table in another order, as a task that holds users out does."""

    def users(self) -> UserTable:
        return super().users().select(np.arange(USERS - 2)[::-1])


JOINED_ONCE: dict[str, Any] = {
    "participation": {"scheme": "single"},
    "mechanism": {"kind": "independent"},
    "run__noise_seed": None,
    "run__rounds": 2,
}
"""Changes of `plan`: a charged run of two rounds, in which each user takes part once."""


def plan(**changes: Any) -> Plan:
    """The plan of these tests; `section__field=value` changes it, `section={...}` replaces a table."""
    table: dict[str, Any] = {
        "privacy": {"population": "people", "noise_multiplier": 2.0, "delta": 1e-5},
        "run": {
            "task": "support.federation:TinyTask",
            "rounds": 6,
            "cohort": 6,
            "min_reports": 4,
            "noise_seed": 11,
            "round_timeout": 5.0,
        },
        "participation": {"scheme": "min-separation", "separation": 3, "max_participations": 2},
        "mechanism": {"kind": "nu", "nu": 0.1},
        "client": {"epochs": 1, "batch_size": 3, "learning_rate": 0.1},
    }
    for key, value in changes.items():
        section, _, name = key.partition("__")
        if name:
            table.setdefault(section, {})[name] = value
        else:
            table[section] = value
    return Plan.parse(table)


def home(
    root: Path, epsilon: float = 50.0, simulated: bool = True, url: str = "", adjacency: Adjacency = "zero_out"
) -> StateDirectory:
    """A home with the population `people`, in the empty database at `url` or else in a new SQLite file."""
    state = StateDirectory(root / "home", url or f"sqlite:///{root / 'home' / 'ledger.sqlite3'}", lease_patience=5.0)
    state.prepare()
    with Ledger.open(state.ledger, create=True, head_file=state.head_file) as ledger:
        ledger.create_population("people", epsilon, 1e-5, adjacency=adjacency, simulated=simulated, actor="test")
    return state


Lie = Callable[[Message, Message], Message]
"""(instruction, honest reply) -> the reply that the node sends instead."""


class LyingGrid(LocalGrid):
    """Nodes that host the users of `task`; some rewrite their honest train replies. `lies`: node id -> Lie."""

    def __init__(
        self, nodes: int, lies: dict[int, Lie] | None = None, task: str = "support.federation:TinyTask"
    ) -> None:
        super().__init__(app, nodes, {"task": task})
        self.lies = lies or {}
        self.seen: list[Message] = []

    def answer(self, message: Message) -> Message:
        reply = super().answer(message)
        if message.metadata.message_type == "train":
            self.seen.append(message)
            lie = self.lies.get(message.metadata.dst_node_id)
            if lie is not None:
                return lie(message, reply)
        return reply


class DeadlyTask(TinyTask):
    """The rows of its first user end every training worker that reads them, as a crash in a library does."""

    deadly: ClassVar[int] = int(pseudonyms(["user-00"])[0])
    marker: ClassVar[float] = 1e6

    def users(self) -> UserTable:
        generator = np.random.default_rng(5)
        x = generator.normal(size=(USERS * 6, 3)).astype(np.float32)
        y = np.where(np.arange(USERS * 6) < 6, self.marker, x.sum(1)).astype(np.float32)
        return UserTable.grouped(np.repeat([f"user-{i:02d}" for i in range(USERS)], 6), {"x": x, "y": y})

    def prepare(self, columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        if multiprocessing.parent_process() is not None and bool((columns["y"] == self.marker).any()):
            os._exit(3)
        return super().prepare(columns)


class SlowTask(TinyTask):
    """Each round takes SLOW_TASK seconds, from the environment: long enough to press Ctrl-C."""

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        time.sleep(float(os.environ.get("SLOW_TASK", "0")))
        return super().evaluate(model)
