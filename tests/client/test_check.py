"""Every mistake in a task is named before a run pays for it: where it is, what it is, what would help."""

from __future__ import annotations

import errno
import re
import sys
import time
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from flwr.app import Message, RecordDict
from torch import nn

from fieldfare.errors import BadInput
from fieldfare.plan_tables import ClientSpec
from fieldfare.task import OBJECT, load_task
from fieldfare_client.app import app
from fieldfare_client.check import check, check_task
from fieldfare_client.simulation import LocalGrid
from fieldfare_client.task_faults import KINDS, Faulty, explain_error
from fieldfare_client.users import UserTable
from fieldfare_flower.messages import QUERY_USERS, write_users_query
from support import faulty_tasks
from support.faulty_tasks import FAULTY, ReadFirst, Right, cross, data, loss, model, network, score, some_nan
from support.refusals import coded


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> str:
    """A name under which a test puts its task."""
    return "support.faulty_tasks:HERE"


@pytest.mark.parametrize("mistake", FAULTY)
def test_a_mistake_is_named(mistake: str, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task, kind, words = FAULTY[mistake]
    monkeypatch.setattr(faulty_tasks, "HERE", task, raising=False)
    with pytest.raises(Faulty) as fault:
        check_task(named)
    assert words in str(fault.value)
    assert fault.value.kind == kind
    assert kind in KINDS


RIGHT = {
    "plain": (Right, "67 trained parameters in 4 tensors"),
    "dropout": (model(lambda: network(nn.ReLU(), nn.Dropout(0.5))), "67 trained parameters"),
    "double": (model(lambda: network(nn.ReLU()).double()), "trained in float64, noised in float32"),
    "bfloat16": (model(lambda: network(nn.ReLU()).bfloat16()), "trained in bfloat16, noised in float32"),
    "BatchNorm": (
        model(lambda: nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))),
        "75 trained parameters",
    ),
    "float64 features": (data(x=lambda x: x.astype(np.float64)), "inputs are float64 and are trained as float32"),
    "int32 labels": (data(y=lambda y: y.astype(np.int32)), "targets are int32 and are trained as int64"),
    "mean loss": (loss(lambda o, t: cross(o, t, "mean")), "takes the mean over a user's rows by itself"),
    "frozen": (model(lambda: nn.Sequential(nn.Linear(4, 8).requires_grad_(False), nn.Linear(8, 3))), "40 frozen ones"),
}


@pytest.mark.parametrize("what", RIGHT)
def test_what_is_right_passes_and_says_so(what: str) -> None:
    task, words = RIGHT[what]
    report = check(task(), what, client=ClientSpec())
    assert any(words in line for line in report.lines), report.lines
    alone = [line for line in report.warnings if "one after another" in line]
    assert bool(alone) == (what in ("double", "bfloat16", "BatchNorm"))
    assert report.warnings == alone


def test_the_most_rows_of_a_user_are_told() -> None:
    """Neither one row a user nor one id for a third of all rows, as a missing one's text is, was to be seen."""
    report = check(Right(), "right", client=ClientSpec())
    sizes = Right().users().sizes
    assert f"{int(np.median(sizes))} a user in the middle, {sizes.max()} at most" in report.lines[0]


def test_some_bad_rows_are_counted_and_cost_their_users_only() -> None:
    report = check(data(x=some_nan(slice(3, 12)))(), "nan", client=ClientSpec())
    assert "9 rows of column 'x' hold NaN or infinity; 3 of 12 users contribute zero" in report.warnings


def test_a_part_that_no_gradient_reaches_is_a_warning() -> None:
    class Forked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return self.used(values)

    report = check(model(Forked)(), "forked", client=ClientSpec())
    assert any("no gradient reached unused.weight, unused.bias" in line for line in report.warnings)


def test_a_diverging_rate_is_found() -> None:
    with pytest.raises(Faulty, check=coded("faulty", "run.task")):
        check(model(lambda: network(nn.ReLU()))(), "hot", client=ClientSpec(learning_rate=1e38, epochs=4, batch_size=1))


def test_the_cause_can_be_traced_to_its_line_in_the_task() -> None:
    with pytest.raises(Faulty) as fault:
        check(score(faulty_tasks.failing(RuntimeError("no test file")))(), "t", client=ClientSpec())
    assert "faulty_tasks.py" in fault.value.trace()
    assert "RuntimeError: no test file" in fault.value.trace()


@pytest.mark.parametrize(
    ("task", "first"),
    [(loss(lambda o, t: o @ torch.zeros(7)), "test_check.py"), (model(lambda: network(nn.Linear(7, 7))), "")],
)
def test_a_trace_begins_with_the_authors_own_line(task: type[Right], first: str) -> None:
    """Our frames stood above it. What PyTorch says of a layer has no line of the author's: the sentence is enough."""
    with pytest.raises(Faulty) as fault:
        check(task(), "t", client=ClientSpec())
    lines = fault.value.trace().splitlines()
    assert fault.value.cause is not None
    assert not [line for line in lines if "fieldfare" in line], lines
    assert first in "".join(lines), lines
    assert bool(lines) == bool(first)


def test_all_words_that_are_missing_are_named_at_once() -> None:
    nameless = type("Nameless", (Right,), {"name": "", "held_out": None})
    with pytest.raises(Faulty, match=r'no name and no held_out\..*name = "clinic"; held_out = "Patients of 2024\."'):
        check(nameless(), "t", client=ClientSpec())


@pytest.mark.parametrize(("users", "refused"), [(7, False), (8, True)])
def test_on_a_node_a_few_users_data_decide_nothing(users: int, refused: bool) -> None:
    """Whether a node answers would otherwise be an un-noised function of one user's data."""

    class Few(Right):
        def users(self):  # type: ignore[no-untyped-def]
            return data(x=some_nan(slice(None)))().users().select(np.arange(users))

    if refused:
        with pytest.raises(Faulty, check=coded("faulty", "run.task")):
            check(Few(), "few", client=ClientSpec(), on_node=True)
    else:
        check(Few(), "few", client=ClientSpec(), on_node=True)


@pytest.mark.parametrize("part", ["prepare", "loss"])
@pytest.mark.parametrize("first_only", [True, False])
def test_on_a_node_one_users_rows_cost_no_other_user_their_place(part: str, first_only: bool) -> None:
    """The first user's data make the task's code raise; a node that refused would leave out all of its users."""
    first = float(Right().users().rows(np.array([0])).columns["x"].flatten()[0])

    class Picky(Right):
        def prepare(self, columns):  # type: ignore[no-untyped-def]
            if part == "prepare" and (not first_only or bool((columns["x"] == first).any())):
                raise RuntimeError("an odd row")
            return super().prepare(columns)

        def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            losses = super().loss(outputs, targets)
            if part == "loss" and (
                not first_only or float(losses[0].detach()) == pytest.approx(losses_of_first, abs=1e-6)
            ):
                raise RuntimeError("an odd row")
            return losses

    with torch.no_grad():
        inputs, targets = Right().prepare(Right().users().rows(np.array([0])).columns)
        losses_of_first = float(Right().loss(Right().build_model()(inputs.float()), targets.long())[0])
    if first_only:
        check(Picky(), "picky", client=ClientSpec(), on_node=True)
        with pytest.raises(Faulty, check=coded("faulty", "run.task")):  # its author, on a desk, shall see it
            check(Picky(), "picky", client=ClientSpec())
    else:
        with pytest.raises(Faulty, check=coded("faulty", "run.task")):
            check(Picky(), "picky", client=ClientSpec(), on_node=True)


def test_on_a_node_no_score_is_computed() -> None:
    check(
        score(faulty_tasks.failing(RuntimeError("the test file is on the server")))(),
        "t",
        client=ClientSpec(),
        on_node=True,
    )


@pytest.mark.parametrize("name", ["digits", "flights", "regression", "mnist"])
def test_bundled_tasks_pass_within_three_seconds(name: str) -> None:
    load_task(name).users()  # a first read may have to unpack data
    began = time.process_time()  # the machine's other work is not the task's
    report = check_task(name)
    assert report.warnings == []
    assert time.process_time() - began < 3.0


class Secret(Right):
    """Its training quotes a user's data in its error."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        raise ValueError("patient 4711 has y = 3")


def answer_of(task: str, content: RecordDict, kind: str) -> Message:
    grid = LocalGrid(app, 1, {"task": task})
    (node,) = grid.get_node_ids()
    (reply,) = grid.send_and_receive([grid.create_message(content, kind, node, "g")])
    return reply


def test_a_node_with_a_faulty_task_answers_with_the_kind_of_fault_alone(caplog: pytest.LogCaptureFixture) -> None:
    reply = answer_of(f"{__name__}:Secret", write_users_query("run"), QUERY_USERS)
    assert reply.error.reason == "<class 'TaskFault_loss'>"
    assert "patient 4711" in caplog.text  # the node's operator reads it


def test_an_error_of_a_task_never_travels_with_its_text() -> None:
    """Flower sends the text of an exception to the server; it may quote users' data (I1)."""
    reply = answer_of("support.federation:TinyTask", RecordDict(), "train")
    assert reply.error.reason == "<class 'BadReply'>"
    right = answer_of("support.federation:TinyTask", write_users_query("run"), QUERY_USERS)
    assert not right.has_error()


class RunningStatistics(Right):
    """Its features are scaled by what it has seen so far, as a scaler with `partial_fit` does."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def prepare(self, columns: dict[str, np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = super().prepare(columns)
        self.seen.append(float(x.abs().mean()))
        return x / np.mean(self.seen), y


class FirstUsersScale(RunningStatistics):
    """The scale of the first user, whoever that is, for everybody."""

    def prepare(self, columns: dict[str, np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = Right.prepare(self, columns)
        self.seen.append(float(x.abs().mean()))
        return x / self.seen[0], y


@pytest.mark.parametrize("engine", ["auto", "loop"])
@pytest.mark.parametrize("task", [RunningStatistics, FirstUsersScale])
def test_a_task_that_carries_one_users_data_to_the_next_is_found(
    task: type[Right], engine: Literal["auto", "loop"]
) -> None:
    with pytest.raises(Faulty, match="the training of user", check=coded("faulty", "run.task")):
        check(task(), task.__name__, client=ClientSpec(engine=engine))


class KeptMeasure(Right):
    """What it measures of the first user, whoever that is, for everybody; training is as it should be."""

    def __init__(self) -> None:
        self.seen: list[torch.Tensor] = []

    def measure(self, name: str, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        self.seen.append(Right.measure(self, name, outputs, targets).mean())
        return self.seen[0].expand(len(targets))


@pytest.mark.parametrize("name", [f"{OBJECT}notebook.Task", "notebook:Task"])
def test_a_task_of_a_notebook_is_tried_again_where_another_had_its_name(name: str) -> None:
    """A cell that is run again makes a class and an object of the same names."""
    check(Right(), name, client=ClientSpec())
    with pytest.raises(Faulty, check=coded("faulty", "run.task")):
        check(RunningStatistics(), name, client=ClientSpec())


class Counting(Right):
    """Trains each batch more than the one before, whoever's that was; measures nothing of that."""

    count = 0

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return super().loss(outputs, targets) * self.count

    def measure(self, name: str, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(targets))


def test_what_was_tried_in_children_alone_is_tried_again_for_a_plan_without_them() -> None:
    """Children hide what memory carries from user to user. A plan whose users train in one process does not."""
    task, name = Counting(), "apart:Task"
    check(task, name, client=ClientSpec(isolation="process"))
    with pytest.raises(Faulty, check=coded("faulty", "run.task")):
        check(task, name, client=ClientSpec())


def test_without_room_for_a_process_the_check_is_made_in_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(work: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr("fieldfare_client.check.ask", full)
    assert any("twice the same" in line for line in check(Right(), "full", client=ClientSpec()).lines)


class Remembering(Right):
    """What its code meets of users stays in the class, for whoever trains next in this process."""

    met: ClassVar[list[int]] = []

    def prepare(self, columns: dict[str, np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
        self.met.append(len(columns))
        return super().prepare(columns)


@pytest.mark.parametrize("on_node", [False, True])
def test_what_a_check_shows_the_tasks_code_of_users_does_not_stay_in_the_process(on_node: bool) -> None:
    """A user's child begins at memory in which no Python of the task has seen a user; a node is checked before."""
    check(Remembering(), "remembering", client=ClientSpec(), on_node=on_node)
    assert not Remembering.met


class Needy(ReadFirst, Right):
    """One more method needs what its users() sets."""

    needy: ClassVar[str] = ""

    def build_model(self) -> nn.Module:
        return super().build_model() if self.needy != "model" or self.scale else nn.Linear(1, 1)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {self.score_name: self.scale} if self.needy == "score" else super().evaluate(model)


@pytest.mark.parametrize("needy", ["", "model", "score"])
def test_what_the_server_does_without_users_must_not_need_them(
    needy: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check used the object that had read the users. The server's has not: a charged first round failed."""
    monkeypatch.setattr(faulty_tasks, "HERE", Needy, raising=False)
    monkeypatch.setattr(Needy, "needy", needy)
    if not needy:
        check_task(named)
        return
    with pytest.raises(Faulty, match="no attribute 'scale'") as fault:
        check_task(named)
    assert fault.value.kind == needy
    assert "test_check.py" in fault.value.trace()


class Drawing(Right):
    """Changes rows by chance, in place, and drops outputs: each user has generators of their own."""

    def prepare(self, columns: dict[str, np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = super().prepare(columns)
        return x.mul_(2 + 0.1 * torch.randn_like(x)) + np.random.rand(), y

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().loss(torch.nn.functional.dropout(outputs, 0.1), targets)


def test_a_task_that_draws_numbers_carries_nothing() -> None:
    report = check(Drawing(), "Drawing", client=ClientSpec())
    assert "two users train the same alone and after one another" in report.lines


def test_a_measure_that_carries_one_users_data_to_the_next_is_found() -> None:
    """It would ride beside the updates of a run, and be asked, at the price of one user."""
    with pytest.raises(Faulty, match="the measuring of user", check=coded("faulty", "run.task")):
        check(KeptMeasure(), "KeptMeasure", client=ClientSpec())


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("import sys\nsys.exit(3)\n", "task-exits", "exit code 3"),
        ("exit()\n", "task-exits", "exit code None"),
        ("x = 1\ndef f(:\n", "task-unimportable", "line 2"),
    ],
)
def test_a_task_that_fails_when_it_is_imported_is_told_in_one_sentence(
    text: str, code: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sys.exit(3)` ended the command with the code of a budget that is refused, and without a word."""
    name = f"task_{abs(hash(text))}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadInput) as refused:
        load_task(f"{name}:Mine")
    assert (refused.value.code, says in refused.value.why) == (code, True)
    with pytest.raises(Faulty, match=re.escape(says)):
        check_task(f"{name}:Mine")


@pytest.mark.parametrize("method", ["build_model", "loss", "users", "evaluate"])
def test_a_task_that_ends_the_program_is_told_in_one_sentence(method: str) -> None:
    """Its code was taken for the command's: 3 says that a budget is refused."""
    with pytest.raises(Faulty, match="SystemExit: 3"):
        check(type("Leaves", (Right,), {method: lambda *_: sys.exit(3)})(), "Leaves", client=ClientSpec())


class Torn:
    """A column that another package reads, and cannot."""

    dtype = np.dtype(np.float32)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, rows: Any) -> Any:
        raise OSError("shard-7.bin: short read")


def test_a_column_that_cannot_be_read_is_a_fault_in_its_own_words(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was "(training): the training ended its process, without a word"."""

    class OnShards(Right):
        def users(self) -> UserTable:
            return UserTable(["ann", "bob"], np.array([0, 4, 8]), {"x": Torn(), "y": Torn()})

    monkeypatch.setattr(faulty_tasks, "HERE", OnShards, raising=False)
    with pytest.raises(Faulty, match=r"shard-7\.bin: short read") as fault:
        check_task(named)
    assert fault.value.kind == "data"


class Broadcast(Right):
    """Each output meets all targets: (rows, 1) against (rows,) is (rows, rows)."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return ((outputs[:, :1] - targets.float()) ** 2).mean(1)


def test_a_loss_that_pairs_each_row_with_all_is_a_warning(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was "right", and trained each row towards the mean of its batch."""
    monkeypatch.setattr(faulty_tasks, "HERE", Broadcast, raising=False)
    (told,) = [line for line in check_task(named).warnings if "other rows" in line]
    assert "outputs of shape" in told
    monkeypatch.setattr(faulty_tasks, "HERE", Right, raising=False)
    assert not [line for line in check_task(named).warnings if "other rows" in line]


@pytest.mark.parametrize(
    ("outputs", "targets", "loss", "remedy"),
    [
        (torch.zeros(2, 1), torch.zeros(2, 1, dtype=torch.int64), nn.BCEWithLogitsLoss(), "float32"),
        (torch.zeros(2, dtype=torch.uint8), None, lambda ids, _: nn.Embedding(3, 2)(ids), "int64"),
    ],
)
def test_a_dtype_that_torch_cannot_take_has_its_remedy(outputs: Any, targets: Any, loss: Any, remedy: str) -> None:
    with pytest.raises(RuntimeError) as raised:
        loss(outputs, targets)
    assert remedy in explain_error(raised.value)[1]
