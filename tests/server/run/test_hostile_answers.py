"""Hostile answers to questions of every kind: one counted reply each, and none moves the sum by more than its users.

In each test every node but three or four lies, each in its own way, about the same question.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import fieldfare as ff
from fieldfare_client import private
from fieldfare_client import questions as node_questions
from fieldfare_client.simulation import LocalGrid
from fieldfare_client.users import UserTable
from fieldfare_flower.messages import UPDATE
from fieldfare_server.evidence.looks import Look, look
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.planning.questions import Asked
from fieldfare_server.run.round.aggregation import Aggregate
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from server.run.test_items import home
from support.federation import JOINED_ONCE, Lie, LyingGrid, TinyTask, plan
from support.liars import bytes_of, drop, error, header, records, report, values
from support.questions import put

USERS = 200
TASK = "server.run.test_hostile_answers:Many"


class Many(TinyTask):
    """So many users that each node has some."""

    def users(self) -> UserTable:
        generator = np.random.default_rng(5)
        x = generator.normal(size=(2 * USERS, 3)).astype(np.float32)
        columns = {"x": x, "y": x.sum(1), "code": np.arange(2.0 * USERS) // 7}
        return UserTable.grouped(np.repeat([f"user-{i:03d}" for i in range(USERS)], 2), columns)


RANGE = {"low": -4, "high": 4}
KINDS: dict[str, dict[str, Any]] = {
    "count": {"kind": "count", "measure": "y", **RANGE},
    "mean": {"kind": "mean", "measure": "y", **RANGE},
    "mean of some": {"kind": "mean", "measure": "y", "some": True, **RANGE},
    "mean of a model": {"kind": "mean", "measure": "loss", "model": "A", "low": 0, "high": 50},
    "histogram": {"kind": "histogram", "measure": "y", "bins": 5, **RANGE},
    "quantile": {"kind": "quantile", "measure": "y", "bins": 8, **RANGE},
    "update norms": {"kind": "quantile", "measure": "update-norm", "low": 1e-3, "high": 1e2, "bins": 8},
    "auc": {"kind": "auc", "model": "A", "bins": 4},
    "choose": {"kind": "choose", "measure": "loss", "models": ["A", "B"], "high": 50},
    "choose the best alone": {"kind": "choose", "measure": "loss", "models": ["A", "B"], "high": 50, "shows": "best"},
    "items": {"kind": "items", "measure": "code", "most": 2, "leak": 1e-7},
}


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[bool, int, float, str]]]:
    """Of each reply to a question: whether it is summed, of how many users, how far it moves the sum, and what is
    counted of it."""
    seen: list[tuple[bool, int, float, str]] = []
    add = Aggregate.add

    def noting(self: Aggregate, content: RecordDict, sent: int, node: int = 0) -> bool:
        before, users, counted = self.total.copy(), self.users, Counter(self.rejects)
        used = add(self, content, sent, node)
        new = self.rejects - counted
        assert new.total() <= 1, "one reply is counted once"
        assert self.users - users <= sent
        seen.append((used, sent, float(np.linalg.norm(self.total - before)), "".join(new)))
        return used

    monkeypatch.setattr(Aggregate, "add", noting)
    yield seen
    node_questions._models.clear()


class Repeating(LyingGrid):
    """Delivers every reply of one node twice."""

    def pull_messages(self, message_ids: Any) -> Iterator[Message]:
        for reply in super().pull_messages(message_ids):
            yield reply
            if reply.metadata.src_node_id == self.get_node_ids()[-1] and reply.metadata.message_type == "train":
                yield reply


def strings(content: RecordDict) -> None:
    content[UPDATE] = ArrayRecord({"weight": Array(np.array([["12", "high"]]))})


BOUNDED = (values(lambda a: a * 0 + np.float32(1e30)), "over-norm, clipped again", True)
LIES: dict[str, tuple[Lie, str, bool]] = {
    "out of bounds": BOUNDED,
    "below the bounds": (values(lambda a: a * 0 - np.float32(1e30)), "over-norm, clipped again", True),
    "negative zero": (values(lambda a: a * np.float32(-0.0)), "", True),
    "not a number": (values(lambda a: a * np.float32(np.nan)), "non-finite", False),
    "one number is not": (
        values(lambda a: np.where(np.arange(a.size) > 0, a, np.float32(np.nan))),
        "non-finite",
        False,
    ),
    "infinite": (values(lambda a: a - np.float32(np.inf)), "non-finite", False),
    "missing": (drop(UPDATE), "schema", False),
    "nothing": (lambda message, reply: Message(RecordDict(), reply_to=message), "schema", False),
    "an error": (error(2), "error 2", False),
    "another shape": (values(lambda a: np.zeros((7, *a.shape), np.float32)), "shape", False),
    "one number more": (values(lambda a: np.append(a, a[:, :1], axis=1)), "shape", False),
    "another type": (values(lambda a: a.astype(np.float64)), "dtype", False),
    "whole numbers": (values(lambda a: a.astype(np.int32)), "dtype", False),
    "complex": (values(lambda a: a.astype(np.complex64)), "dtype", False),
    "strings": (records(strings), "dtype", False),
    "fewer bytes": (bytes_of(lambda data: data[:-1]), "shape", False),
    "more users": (report(users=10**6), "users", False),
    "negative users": (report(users=-1), "users", False),
    "another round": (header(round=7), "round", False),
}
"""What one node sends in place of its honest answer: (how, under what it is counted, whether it is in the sum)."""


@pytest.mark.parametrize("kind", KINDS)
def test_each_hostile_answer_is_one_counted_reply(
    kind: str, tmp_path: Path, watched: list[tuple[bool, int, float, str]]
) -> None:
    question, state = dict(KINDS[kind]), home(tmp_path)
    for name in ("A", "B") if {"model", "models"} & question.keys() else ():
        trained = model_of(state)
        question = {key: renamed(value, name, trained) for key, value in question.items()}
    nodes = LyingGrid(len(LIES) + 4).get_node_ids()
    lies = dict(zip(nodes, (lie for lie, _, _ in LIES.values()), strict=False))
    watched.clear()
    sums: list[Any] = []
    run = put(state, asked(question), Repeating(len(nodes), lies, TASK), sums)
    total, rejects = sums[-1], Counter(sums[-1].rejects)
    assert rejects.pop("duplicate or stray reply") == 1
    expected = Counter(told for _, told, _ in LIES.values() if told)
    assert rejects == expected, rejects - expected | expected - rejects
    for used, sent, moved, _ in watched:
        assert moved <= sent * (1 + 1e-6) if used else moved == 0
    assert sum(used for used, _, _, _ in watched) == 4 + sum(used for _, _, used in LIES.values())
    with Ledger.open(state.ledger) as ledger:
        assert look(ledger, run).users == total.users < USERS
        assert verify(ledger, state.root, recompute=recharge, held=[ledger.head()]).ok


def asked(question: dict[str, Any]) -> Asked:
    run = {"task": TASK, "cohort": USERS, "min_reports": 2, "round_timeout": 5.0}
    privacy = {"population": "people", "noise_multiplier": 1.0, "delta": 1e-5}
    return Asked.of({"question": question, "run": run, "privacy": privacy})


def model_of(state: StateDirectory) -> str:
    with Session.begin(state, plan(**JOINED_ONCE, run__task=TASK), identity_is_stable=True) as session:
        FieldfareStrategy(session).start(LyingGrid(2, task=TASK))
        return session.account.id


def renamed(value: Any, name: str, run: str) -> Any:
    return [renamed(each, name, run) for each in value] if isinstance(value, list) else run if value == name else value


# -- apps of somebody else ---------------------------------------------------------------------------------------------

OWN: dict[str, dict[str, Any]] = {
    "count": {"kind": "count", "measure": "age", "low": 0, "high": 100},
    "mean": {"kind": "mean", "measure": "age", "low": 0, "high": 100},
    "mean of some": {"kind": "mean", "measure": "age", "some": True, "low": 0, "high": 100},
    "histogram": {"kind": "histogram", "measure": "age", "low": 0, "high": 100, "bins": 5},
    "quantile": {"kind": "quantile", "measure": "age", "low": 0, "high": 100, "bins": 8},
    "sums": {"kind": "sums", "entries": {"age": 1, "counts": 3}, "high": 100},
    "sums within a norm": {"kind": "sums", "entries": {"age": 1, "counts": 3}, "high": 100, "norm": 50},
}
GROUND = {"population": "people", "budget": 2000, "noise_multiplier": 0.5}


def told(**entries: Any) -> RecordDict:
    return RecordDict({"found": MetricRecord(entries)})


def twice() -> RecordDict:
    return RecordDict({name: MetricRecord({"age": 1.0, "counts": [1.0, 2.0, 3.0]}) for name in "ab"})


def in_a_record_of_text() -> RecordDict:
    return RecordDict({"found": ConfigRecord({"age": "12", "counts": ["1", "2", "3"]})})


def beyond_any_float() -> RecordDict:
    content = told(age=1)
    dict.__setitem__(content["found"]._data, "age", 10**400)  # as no message over a wire has it
    return content


def in_arrays() -> RecordDict:
    return RecordDict({"found": ArrayRecord({"age": Array(np.array([12.0]))})})


REPLIES: dict[str, tuple[Callable[[], RecordDict | None], str]] = {
    "above": (lambda: told(age=1e308, counts=[1e308] * 3), ""),
    "below": (lambda: told(age=-(2**63), counts=[-(2**63)] * 3), ""),
    "infinite": (lambda: told(age=math.inf, counts=[-math.inf, math.inf, 1.0]), ""),
    "not a number": (lambda: told(age=math.nan, counts=[math.nan] * 3), ""),
    "negative zero": (lambda: told(age=-0.0, counts=[-0.0] * 3), ""),
    "of both signs without end": (lambda: told(age=[math.inf, -math.inf]), ""),
    "no row": (lambda: told(age=[], counts=[]), ""),
    "a long list": (lambda: told(age=[1.0] * 100_000, counts=[1.0] * 100_000), ""),
    "beside others": (lambda: told(age=20.0, more=1.0), ""),
    "told twice": (twice, ""),
    "text": (in_a_record_of_text, "schema"),
    "arrays": (in_arrays, "schema"),
    "missing": (lambda: told(other=1.0), ""),
    "nothing": (RecordDict, "schema"),
    "raises": (lambda: None, "error 2"),
}
"""What the app of one node replies in place of its number: (how, under what it is counted, if it is not in the sum)."""


@pytest.mark.parametrize("kind", OWN)
def test_each_hostile_reply_of_a_flower_app_is_one_counted_user(
    kind: str, tmp_path: Path, watched: list[tuple[bool, int, float, str]]
) -> None:
    app, replies = ClientApp(), list(REPLIES.values())

    @app.query()
    def query(message: Message, context: Context) -> Message:
        place = int(context.node_config["partition-id"])
        content = replies[place][0]() if place < len(replies) else told(age=30.0, counts=[1, 2, 3])
        if content is None:
            raise ValueError("of a user's data")
        return Message(content, reply_to=message)

    nodes = len(replies) + 14
    found = ff.ask(OWN[kind], grid=LocalGrid(app, nodes, {}), ledger=tmp_path, **GROUND)
    assert isinstance(found, Look)
    assert found.users == sum(not counted for _, counted in replies) + 14
    assert sum(used for used, _, _, _ in watched) == found.users
    assert Counter(reason for _, _, _, reason in watched if reason) == Counter(
        counted for _, counted in replies if counted == "schema"
    )
    assert max(moved for used, _, moved, _ in watched if used) <= 1 + 1e-6
    assert not any(moved for used, _, moved, _ in watched if not used)
    with Ledger.open(f"sqlite:///{tmp_path}/ledger.sqlite3") as ledger:
        assert verify(ledger, tmp_path, recompute=recharge, held=[ledger.head()]).ok


MEASURED: list[Any] = [
    1e308, -math.inf, math.nan, -0.0, [math.inf, -math.inf], [], None, "high", "12", b"12", {"age": 1}, 1 + 2j,
    [[1.0, 2.0], [3.0, 4.0]], [1.0, "high"], 10**400, np.float16(np.inf), np.array(["a"], object), True, object(),
]  # fmt: skip
"""What `@ff.private.measure` returns of one user each."""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", OWN)
def test_whatever_a_measure_returns_is_one_user(kind: str, tmp_path: Path, watched: list[Any]) -> None:
    ids = [f"user-{place:02d}" for place in range(len(MEASURED) + 5)]
    app = ClientApp()

    def listed(context: Context) -> list[str]:
        return ids[int(context.node_config["partition-id"]) :: 2]

    def loop(model: torch.nn.Module, user: str, context: Context, config: dict[str, Any]) -> None:
        raise AssertionError("a question trains nobody")

    def measure(user: str, name: str, context: Context) -> Any:
        place = ids.index(user)
        if place == len(MEASURED):
            raise ValueError("of a user's data")
        return MEASURED[place] if place < len(MEASURED) else [20.0, 30.0, 40.0] if name == "counts" else 30.0

    app.query("users")(private.users(listed))
    app.train()(private.train(TinyTask().build_model, isolation="none")(loop))
    private.measure(measure)
    cohort = len(ids)
    found = ff.ask(OWN[kind], grid=LocalGrid(app, 2, {}), ledger=tmp_path, dialect="cohort", cohort=cohort, **GROUND)
    assert isinstance(found, Look)
    assert found.users == cohort
    assert [(used, reason) for used, _, _, reason in watched] == [(True, "")] * 2
    assert all(moved <= sent * (1 + 1e-6) for _, sent, moved, _ in watched)
