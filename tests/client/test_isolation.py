"""No user's update depends on another user's data, on another user's failure or, isolated, on who else trains."""

from __future__ import annotations

import gzip
import logging
import os
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fieldfare import clipping
from fieldfare.plan_tables import ClientSpec
from fieldfare.schema import Schema
from fieldfare.task import Task, load_task, seeded
from fieldfare_client import app as client_app
from fieldfare_client.settings import TrainingSettings
from fieldfare_client.simulation import LocalGrid
from fieldfare_client.storage import write
from fieldfare_client.tasks.flights import FlightsMLPTask, FlightsTask
from fieldfare_client.training import clip
from fieldfare_client.training.batched import BatchedEngine
from fieldfare_client.training.clip import clip_with
from fieldfare_client.training.loop import LoopEngine
from fieldfare_client.training.trainer import Trainer
from fieldfare_client.training.workers import WorkerTrainer
from fieldfare_client.users import UserTable
from fieldfare_research.changelog import ChangelogTask, ChangelogWordsTask
from fieldfare_research.chess import ChessTask
from fieldfare_research.cifar10 import Cifar10Task
from fieldfare_research.fashion import FashionTask
from fieldfare_research.mnist import MnistTask
from fieldfare_research.poems import PoemsTask
from fieldfare_research.stackoverflow import StackOverflowTask, encode
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, TinyTask, home, plan

USERS = 20
SIZES = np.array([7, 5, 1, 16, 3, 33, 8, 2, 12, 4, 9, 9, 6, 30, 1, 5, 11, 8, 13, 20])
BATCH = 4
"""Most users have a short last batch, and there are short batches of every length."""


def stack() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


class Branchless(nn.Module):
    """A stack in a class."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = stack()

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.inner(values)
        return outputs


class BatchMixing(Branchless):
    """The model itself mixes the rows of its batch."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        outputs = super().forward(values)
        return outputs - outputs.mean(0)


class Toy(Task):
    name, score_name, held_out = "toy", "loss", "Nothing is evaluated."
    model: Any = staticmethod(stack)

    def build_model(self) -> nn.Module:
        with seeded(1):
            model: nn.Module = self.model()
        return model

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    def users(self) -> UserTable:
        generator = np.random.default_rng(0)
        rows = int(SIZES.sum())
        columns: dict[str, np.ndarray[Any, Any]] = {
            "x": generator.normal(size=(rows, 6)).astype(np.float32),
            "y": generator.integers(0, 3, rows),
        }
        return UserTable([f"u{i}" for i in range(USERS)], np.concatenate(([0], np.cumsum(SIZES))), columns)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"loss": 0.0}


class Mixing(Toy):
    """The loss compares every output with the mean of its batch."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().loss(outputs - outputs.mean(0), targets)


class MixingModel(Toy):
    model = BatchMixing


class MixingPrepare(Toy):
    """Inputs are centred on the mean of all rows that `prepare` is called with."""

    def prepare(self, columns: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return columns["x"] - columns["x"].mean(0), columns["y"]


class Reusing(Toy):
    """`prepare` writes every user's rows to the same memory."""

    kept = torch.empty(64, 6)

    def prepare(self, columns: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return self.kept[: len(columns["x"])].copy_(columns["x"]), columns["y"]


class Narrow(Toy):
    """`prepare` keeps labels as small as a user's own allow, and the loss counts down from them, which may wrap."""

    def prepare(self, columns: Any) -> tuple[torch.Tensor, torch.Tensor]:
        labels = columns["y"]
        return columns["x"], labels.to(torch.uint8) if labels.max() < 256 else labels

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().loss(outputs, ((targets - 1) % 3).long())


class Dropping(Toy):
    """`prepare` loses a row of user 5."""

    def prepare(self, columns: Any) -> tuple[torch.Tensor, torch.Tensor]:
        keep = slice(1 if len(columns["x"]) == 33 else 0, None)
        return columns["x"][keep], columns["y"][keep]


class NanLoss(Toy):
    """The loss of label 99 is not a number."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().loss(outputs, targets.clamp(max=2)) * torch.where(targets == 99, torch.nan, 1.0)


class Looped(Mixing):
    """vmap cannot map a loss that branches on values."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().loss(outputs, targets) * (2.0 if float(outputs.detach().sum()) > 1e9 else 1.0)


def start(task: Task) -> torch.Tensor:
    model = task.build_model()
    return Schema.of(model).flatten(dict(model.named_parameters()))


def each(
    task: Task,
    engine: str | None,
    table: UserTable | None = None,
    users: list[int] | None = None,
    isolated: bool = False,
    norm: float = 0.3,
    **client: Any,
) -> tuple[dict[int, torch.Tensor], Any]:
    """Each user's clipped update, by the user's index, and the result of the cohort."""
    table = task.users() if table is None else table  # type: ignore[assignment]
    assert table is not None
    chosen = np.arange(len(table)) if users is None else np.array(users)
    clip = clip_with(clipping.parse({"kind": "flat", "norm": norm}), Schema.of(task.build_model()))
    rows: list[torch.Tensor] = []

    def watch(updates: torch.Tensor) -> None:
        clip(updates)
        rows.append(updates.clone())

    settings = {"batch_size": BATCH, "learning_rate": 0.3, **client}
    settings |= {} if "steps" in client else {"epochs": client.get("epochs", 2)}
    settings["engine"] = "loop" if engine == "loop" else "batched" if engine else "auto"
    trainer = Trainer(task, ClientSpec(**settings), watch, isolated=isolated)
    if engine == "mapped":
        trainer._engine(BatchedEngine).layers = []  # type: ignore[attr-defined]
    result = trainer.train([start(task)], [1.0], table, chosen, at_round=0)
    order = chosen[np.argsort(-table.sizes_of(chosen), kind="stable")]
    if engine is not None and not isolated:
        assert (LoopEngine if engine == "loop" else BatchedEngine) in trainer._engines
        assert engine == "loop" or trainer._works[BatchedEngine]
        assert engine != "written" or trainer._engine(BatchedEngine).layers  # type: ignore[attr-defined]
    return dict(zip(order.tolist(), torch.cat(rows), strict=True)), result


def changed(user: int, column: str, value: float) -> UserTable:
    """The toy's users, of whom one has other data."""
    table = Toy().users()
    columns = dict(table.columns)
    columns[column] = table.columns[column].copy()  # type: ignore[attr-defined]
    columns[column][table.offsets[user] : table.offsets[user + 1]] = value  # type: ignore[index]
    return UserTable(table.pseudonyms, table.offsets, columns)


ENGINES = ["written", "mapped", "loop"]


@pytest.mark.parametrize(
    ("task", "engine"),
    [
        *((Mixing(), engine) for engine in ENGINES),
        *((MixingPrepare(), engine) for engine in ENGINES),
        *((Reusing(), engine) for engine in ENGINES),
        # Only layers are written out, and no layer mixes rows.
        *((MixingModel(), engine) for engine in ("mapped", "loop")),
    ],
    ids=lambda case: case if isinstance(case, str) else type(case).__name__,
)
def test_one_users_data_do_not_move_another_users_update(task: Task, engine: str) -> None:
    before, _ = each(task, engine)
    after, _ = each(task, engine, changed(3, "x", 5.0))
    assert not torch.equal(before[3], after[3])
    assert all(torch.equal(before[user], after[user]) for user in before if user != 3)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_user_whose_rows_have_another_dtype_moves_no_other(engine: str) -> None:
    """Joined, the rows of all would have the widest dtype, in which a loss may tell something else of them."""
    before, _ = each(Narrow(), engine)
    after, result = each(Narrow(), engine, changed(3, "y", 300))
    assert after[3].any()
    assert not result.failures
    assert all(torch.equal(before[user], after[user]) for user in before if user != 3)


@pytest.mark.parametrize("settings", [{}, {"momentum": 0.9, "gradient_clip": 0.5}, {"steps": 5}], ids=str)
@pytest.mark.parametrize("task", [Mixing(), MixingModel()], ids=lambda task: type(task).__name__)
def test_engines_agree_on_a_loss_that_mixes_batches_of_unequal_length(
    task: Task, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = each(task, "loop", **settings)
    # An engine that raises would leave its users to the loop, whose updates are right.
    monkeypatch.setattr(Trainer, "_train_again", lambda *_: pytest.fail("the engine raised"))
    for engine in ("written", "mapped"):
        if engine == "written" and isinstance(task, MixingModel):
            continue
        updates, _ = each(task, engine, **settings)
        for user, update in expected.items():
            torch.testing.assert_close(updates[user], update, rtol=1e-4, atol=1e-6)


def test_a_loss_that_cannot_be_mapped_is_trained_by_the_loop_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    task = Looped()
    expected, _ = each(task, "loop")
    with caplog.at_level(logging.INFO, "fieldfare.client"):
        trainer = Trainer(task, ClientSpec(engine="batched", batch_size=BATCH), lambda updates: None)
        for _ in range(3):
            result = trainer.train([start(task)], [1.0], task.users(), np.arange(USERS), at_round=0)
    assert len(caplog.records) == 1
    assert "BatchedEngine" in caplog.text
    assert not result.failures
    updates, _ = each(task, None)
    assert all(torch.equal(updates[user], expected[user]) for user in expected)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("task", "kinds"),
    [(Toy(), {"IndexError", "RuntimeError"}), (NanLoss(), {"update that is not finite"})],
    ids=["raises", "nan"],
)
def test_a_failing_user_contributes_zero_counts_and_moves_no_other(task: Task, kinds: set[str], engine: str) -> None:
    """One label 99 among 20 users. In the world without its effect, the same user has healthy data."""
    healthy, _ = each(task, engine)
    updates, result = each(task, engine, changed(3, "y", 99))
    assert result.users == USERS
    assert result.failures.total() == 1
    assert set(result.failures) <= kinds
    assert healthy[3].any()
    assert not updates[3].any()
    assert all(torch.equal(updates[user], healthy[user]) for user in healthy if user != 3)
    without = sum(updates[user].double() for user in updates if user != 3)
    torch.testing.assert_close(result.update, without, rtol=0, atol=1e-14)


class Averaging(Branchless):
    """Takes any number of vectors a row."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return super().forward(values.mean(1))


class Longer(Toy):
    """`prepare` gives the user with label 99 longer rows than everybody."""

    model = Averaging

    def prepare(self, columns: Any) -> tuple[torch.Tensor, torch.Tensor]:
        longer = bool((columns["y"] == 99).any())
        return columns["x"][:, None].repeat(1, 2 if longer else 1, 1), columns["y"].clamp(max=2)


@pytest.mark.parametrize("isolated", [False, True])
def test_a_user_whose_rows_have_another_shape_trains_alone_and_moves_no_other(
    isolated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[torch.Size] = set()
    updates_of = BatchedEngine.updates

    def note(engine: BatchedEngine, start: torch.Tensor, chunk: Any, out: torch.Tensor) -> None:
        seen.add(chunk.inputs.shape[1:])
        updates_of(engine, start, chunk, out)

    monkeypatch.setattr(BatchedEngine, "updates", note)
    usual, _ = each(Longer(), "mapped", isolated=isolated)
    updates, result = each(Longer(), "mapped", changed(3, "y", 99), isolated=isolated)
    assert updates[3].any()
    assert not result.failures
    assert all(torch.equal(updates[user], usual[user]) for user in usual if user != 3)
    assert seen == {torch.Size([1, 6])}  # of which it was shown that users leave each other alone


@pytest.mark.parametrize("task", [Toy(), NanLoss()], ids=["raises", "nan"])
def test_isolated_a_failing_user_is_as_if_it_were_absent(task: Task) -> None:
    updates, result = each(task, None, changed(3, "y", 99), isolated=True)
    absent, _ = each(task, None, users=[user for user in range(USERS) if user != 3], isolated=True)
    assert (result.users, result.failures.total()) == (USERS, 1)
    assert not updates[3].any()
    assert all(torch.equal(updates[user], absent[user]) for user in absent)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_prepare_that_loses_a_row_fails_its_user_and_shifts_no_other(engine: str) -> None:
    expected, _ = each(Toy(), engine)
    updates, result = each(Dropping(), engine)
    assert result.failures == {"WrongForm": 1}
    assert not updates[5].any()
    assert all(torch.equal(updates[user], expected[user]) for user in expected if user != 5)


@pytest.mark.parametrize("engine", ENGINES)
def test_users_who_all_fail_count(engine: str) -> None:
    table = changed(0, "y", 99)
    table.columns["y"][:] = 99  # type: ignore[index]
    _, result = each(Toy(), engine, table)
    assert not result.update.any()
    assert (result.users, result.failures.total()) == (USERS, USERS)


def test_a_failing_user_fails_in_every_query_of_a_round() -> None:
    task = NanLoss()
    trainer = Trainer(task, ClientSpec(), lambda updates: None)
    points = [start(task), start(task) * 0.5]
    result = trainer.train(points, [1.0, 0.0, 0.0, 1.0], changed(3, "y", 99), np.array([3]), at_round=0, queries=2)
    assert not result.update.any()
    assert result.failures == {"update that is not finite": 1}


def test_workers_train_alone_and_report_failures_to_their_node() -> None:
    task, spec = load_task("digits"), clipping.parse({"kind": "flat", "norm": 0.3})
    table = task.users()
    assert isinstance(table, UserTable)
    columns = dict(table.columns)
    columns["y"] = table.columns["y"].copy()  # type: ignore[attr-defined]
    columns["y"][table.offsets[3] : table.offsets[4]] = 99  # type: ignore[index]
    hostile = UserTable(table.pseudonyms, table.offsets, columns)
    alone = Trainer(task, ClientSpec(), clip_with(spec, Schema.of(task.build_model())), isolated=True)
    with closing(WorkerTrainer("digits", TrainingSettings(ClientSpec(), spec, 0, True), hostile, workers=1)) as pool:
        result = pool.train([start(task)], [1.0], np.arange(20), at_round=0)
        expected = alone.train([start(task)], [1.0], hostile, np.arange(20), at_round=0)
    assert (result.users, result.failures) == (20, expected.failures)
    assert result.failures.total() == 1
    assert torch.equal(result.update, expected.update)


def bundled(name: str, folder: Path) -> Task:
    """A bundled task, on small files of its schema where its data are not at hand."""
    generator = np.random.default_rng(0)
    offsets = np.array([0, 3, 5, 9, 10])
    ids = [f"u{user}" for user in range(4)]
    if name in ("digits", "regression"):
        return load_task(name)
    if name.startswith("flights"):
        sample = Path(__file__).parents[1] / "data" / "flights_sample.csv"
        return (FlightsMLPTask if name == "flights-mlp" else FlightsTask)(sample, folder, 8)
    if name == "mnist":
        rows = np.c_[generator.integers(0, 256, (60, 784)), np.arange(60) % 10]
        (folder / "mnist.gz").write_bytes(gzip.compress("\n".join(",".join(map(str, row)) for row in rows).encode()))
        return MnistTask(users_count=6, source=folder / "mnist.gz", test_rows=10)
    if name == "cifar10":
        pixels = generator.integers(0, 256, (10, 32, 32, 3)).astype(np.uint8)
        table = UserTable(ids, offsets, {"x": pixels, "y": np.arange(10).astype(np.uint8)})
        write(folder / "cifar10-train.arrow", [table])
        return Cifar10Task(folder=folder)
    if name == "fashion":
        pixels = generator.integers(0, 256, (10, 28, 28)).astype(np.uint8)
        table = UserTable(ids, offsets, {"x": pixels, "y": np.arange(10).astype(np.uint8)})
        write(folder / "fashion-train.arrow", [table])
        return FashionTask(folder=folder)
    if name == "chess":
        rating = generator.integers(1500, 1503, (10, 37)).astype(np.int16)
        table = UserTable(ids, offsets, {"rating": rating, "birth": np.full(10, 1990, np.int16)})
        write(folder / "chess-train.arrow", [table])
        return ChessTask(folder=folder)
    if name == "poems":
        verse = generator.integers(1, 2000, (10, 33)).astype(np.int16)
        table = UserTable(ids, offsets, {"tokens": verse, "rank": np.zeros(10, np.uint8)})
        write(folder / "poems-train.arrow", [table])
        return PoemsTask(width=8, folder=folder)
    if name == "stackoverflow":
        tokens = encode([f"the bug {n}" for n in range(10)], {"the": 1, "bug": 2})
        write(folder / "stackoverflow-train.arrow", [UserTable(ids, offsets, {"tokens": tokens})])
        return StackOverflowTask(folder)
    lines = [
        f"2013-01-{day:02d}  Author{day % 5}  <a{day % 5}@example.org>\n\n\t* f{day}.c: Fix {day}.\n"
        for day in range(1, 25)
    ]
    (folder / "ChangeLog").write_text("\n".join(lines))
    return (ChangelogWordsTask if name == "changelog-words" else ChangelogTask)(folder)


@pytest.mark.parametrize(
    "name",
    [
        *("digits", "regression", "flights", "flights-mlp", "mnist", "cifar10"),
        *("stackoverflow", "changelog", "changelog-words", "fashion", "chess", "poems"),
    ],
)
@pytest.mark.parametrize("engine", ["auto", "batched"])
def test_isolated_no_bit_of_an_update_depends_on_who_else_trains(name: str, engine: str, tmp_path: Path) -> None:
    task = bundled(name, tmp_path)
    table = task.users()
    assert isinstance(table, UserTable)
    # The users with most rows, of whom the first decides the widths of batched training.
    users = np.argsort(-table.sizes, kind="stable")[:6].tolist()
    together, result = each(task, None, table, users, isolated=True, batch_size=3, epochs=1)
    for gone in users[:2]:
        rest = [user for user in users if user != gone]
        apart, partial = each(task, None, table, rest, isolated=True, batch_size=3, epochs=1)
        assert all(torch.equal(together[user], apart[user]) for user in rest)
        # What the sum's own rounding adds is charged (`Grid.charged_clip`): far below a float32 of one coordinate.
        moved = result.update - partial.update
        torch.testing.assert_close(moved, together[gone].double(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out"])
def test_users_train_alone_where_it_is_secret_who_does(
    adjacency: str, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setenv("FIELDFARE_DEVICE", "cpu")
    made: list[bool] = []

    class Recorder(Trainer):
        def __init__(self, *args: Any, isolated: bool = False, **named: Any) -> None:
            made.append(isolated)
            super().__init__(*args, isolated=isolated, **named)

    def record_pool(task: str, settings: TrainingSettings, *args: Any, **named: Any) -> WorkerTrainer:
        made.append(settings.isolated)
        return WorkerTrainer(task, settings, *args, **named)

    monkeypatch.setattr(clip, "Trainer", Recorder)
    monkeypatch.setattr(client_app, "WorkerTrainer", record_pool)
    sampled = {"participation": {"scheme": "poisson", "rate": 0.5}, "run__cohort": 12, "run__min_reports": None}
    described = plan(
        **(sampled if adjacency == "add_remove" else {}),
        privacy={"population": "people", "noise_multiplier": 8.0, "delta": 1e-5, "adjacency": adjacency},
        client={"workers": workers, "learning_rate": 0.1},
    )
    state = StateDirectory(tmp_path, f"sqlite:///{tmp_path / 'ledger.sqlite3'}")
    state.prepare()
    with Ledger.open(state.ledger, create=True, head_file=state.head_file) as ledger:
        ledger.create_population("people", 50.0, 1e-5, adjacency=adjacency, simulated=True, actor="test")
    client_app._unclipped.cache_clear()
    client_app._POOL.close()
    try:
        with Session.begin(state, described, True) as session:
            FieldfareStrategy(session).start(LyingGrid(1))
    finally:
        client_app._POOL.close()
        client_app._unclipped.cache_clear()
    assert made
    assert set(made) == {adjacency == "add_remove"}


def test_the_nodes_log_counts_failures_by_kind_and_the_reply_does_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels of some users raise an error which quotes them: the log has the kind of the error alone.

    Some only, because a run of which every user fails ends.
    """
    secret = "label 99 of patient Smith"

    def loss(task: TinyTask, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if len(targets) == 3 and float(targets.detach().max()) > 3.0:
            raise KeyError(secret)
        return 0.5 * (outputs[:, 0] - targets) ** 2

    monkeypatch.setattr(TinyTask, "loss", loss)
    client_app._unclipped.cache_clear()
    grid = LyingGrid(1)
    with (
        caplog.at_level(logging.WARNING, "fieldfare.client"),
        Session.begin(home(tmp_path), plan(), True) as session,
    ):
        FieldfareStrategy(session).start(grid)
    client_app._unclipped.cache_clear()
    counted = re.findall(r"(\d) of 6 users contribute zero: (.*)", caplog.text)
    assert counted
    assert all(kinds == f"{failed} KeyError" and 0 < int(failed) < 6 for failed, kinds in counted)
    assert secret not in caplog.text
    reply = LocalGrid.answer(grid, grid.seen[-1]).content
    assert reply.metric_records["report"] == {"users": 6, "counts": []}
    assert set(reply.config_records["fieldfare"]) == {"version", "run", "round", "attempt"}
