"""The table of users: adjacent rows, stable partitions, nothing but numbers."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context, RecordDict

from fieldfare.errors import BadInput
from fieldfare.hashing import all_differ
from fieldfare.schema import pseudonym, pseudonyms
from fieldfare_client import mods, shared_users
from fieldfare_client.shared_users import users_of
from fieldfare_client.storage import from_partitions
from fieldfare_client.tasks.digits import DigitsTask
from fieldfare_client.users import UserTable
from support.refusals import Coded, coded

TABLE = UserTable.grouped(["b", "a", "b", "c", "a", "b"], {"x": np.arange(6), "y": np.arange(12).reshape(6, 2)})


def test_rows_are_grouped_by_user_in_their_order() -> None:
    assert TABLE.pseudonyms.tolist() == [pseudonym(name) for name in "abc"]
    assert TABLE.sizes.tolist() == [2, 3, 1]
    rows = TABLE.rows(np.array([1, 0]))
    assert rows.columns["x"].tolist() == [0, 2, 5, 1, 4]
    assert rows.columns["y"].shape == (5, 2)
    assert rows.sizes.tolist() == [3, 2]
    assert rows.users.tolist() == [pseudonym("b"), pseudonym("a")]


def test_rows_are_copies() -> None:
    rows = TABLE.rows(np.arange(3)).columns["x"]
    rows += 100
    assert TABLE.rows(np.arange(3)).columns["x"].max() == 5
    assert isinstance(rows, torch.Tensor)


def test_users_may_have_no_rows() -> None:
    table = UserTable.owned(["a", "b", "c"], np.array([2, 0]), {"x": np.array([7, 8])})
    assert table.sizes.tolist() == [1, 0, 1]
    assert table.rows(np.array([1])).columns["x"].shape == (0,)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_partition_puts_every_user_on_one_node(count: int) -> None:
    table = UserTable([f"user {i}" for i in range(200)], np.arange(201), {"x": np.arange(200)})
    nodes = [table.partition(index, count) for index in range(count)]
    assert sorted(np.concatenate([node.pseudonyms for node in nodes])) == sorted(table.pseudonyms)
    shuffled = table.select(np.random.default_rng(0).permutation(200))
    again = shuffled.partition(count - 1, count)
    assert sorted(again.pseudonyms) == sorted(nodes[-1].pseudonyms)
    whole = {int(p): int(x) for p, x in zip(table.pseudonyms, range(200), strict=True)}
    values = again.rows(np.arange(len(again))).columns["x"].tolist()
    assert values == [whole[int(p)] for p in again.pseudonyms]
    assert again.sizes.sum() == len(again)


@pytest.mark.parametrize(
    ("ids", "offsets", "column", "says"),
    [
        (["a", "a"], [0, 1, 2], np.arange(2), coded("wrong-form", "users")),
        (["a", "b"], [0, 2], np.arange(2), coded("wrong-form", "offsets")),
        (["a", "b"], [0, 2, 1], np.arange(1), coded("wrong-form", "offsets")),
        (["a", "b"], [1, 1, 2], np.arange(2), coded("wrong-form", "offsets")),
        (["a", "b"], [0, 1, 2], np.arange(3), coded("wrong-form", "column")),
        (["a"], [0, 1], np.array([{}], object), coded("wrong-form", "column")),
    ],
)
def test_what_does_not_fit_together_is_refused(
    ids: list[str], offsets: list[int], column: np.ndarray, says: Coded
) -> None:  # type: ignore[type-arg]
    with pytest.raises(BadInput, check=says):
        UserTable(ids, np.array(offsets), {"x": column})


def test_a_node_beyond_the_last_is_refused() -> None:
    with pytest.raises(BadInput, check=coded("out-of-range", "node")):
        TABLE.partition(2, 2)


class LikePandasNA:
    """pandas' NA: whether it differs from itself is NA, which has no truth."""

    def __ne__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")

    __hash__ = object.__hash__


@pytest.mark.parametrize("missing", ["", None, math.nan, np.nan, np.datetime64("NaT"), LikePandasNA()])
def test_an_id_that_is_missing_is_no_user(missing: object) -> None:
    for ids in (["ann", missing, missing], np.array(["ann", missing, missing], dtype=object)):
        with pytest.raises(BadInput) as refused:
            UserTable.grouped(ids, {"x": np.zeros(3, np.float32)})
        assert refused.value.code == "user-id-missing"
    with pytest.raises(BadInput) as refused:
        pseudonyms(["ann", missing])
    assert refused.value.code == "user-id-missing"


@pytest.mark.parametrize("ids", [[b"ann", b"bob"], np.array(["ann", "bob"], "S"), torch.tensor([1, 2])], ids=str)
def test_an_id_whose_text_is_not_what_it_holds_is_no_user(ids: Any) -> None:
    """b"ann" was the user "b'ann'", and not "ann": a person with two budgets."""
    makers: list[Callable[[], object]] = [
        lambda: UserTable.grouped(ids, {"x": np.zeros(2)}),
        lambda: UserTable(ids, np.arange(3), {"x": np.zeros(2)}),
        lambda: list(from_partitions({each: {"x": np.zeros(1)} for each in ids}, {"x": "x"})),
    ]
    for make in makers:
        with pytest.raises(BadInput, check=coded("user-id-forms", "bytes" if ids[0] == b"ann" else "Tensor")):
            make()


@pytest.mark.parametrize(
    ("ids", "code"), [([1.0], "user-id-forms"), ([None], "user-id-missing"), (["a", "b", "a "], "user-id-forms")]
)
def test_partitions_name_users_as_every_table_does(ids: list[Any], code: str) -> None:
    """They made text of whatever it was, and compared the ids of one block alone."""
    with pytest.raises(BadInput) as refused:
        list(from_partitions({each: {"x": np.zeros(1)} for each in ids}, {"x": "x"}, block=1))
    assert refused.value.code == code


def test_columns_of_pandas_are_read_by_position() -> None:
    """After a sort, each user trained on rows of others: pandas finds whole numbers among its labels."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"user": ["b", "a", "b", "a"], "x": [10, 20, 30, 40], "y": [1.0, 2.0, 3.0, 4.0]})
    frame = frame.sort_values("user", kind="stable")
    columns = {
        "x": frame["x"],
        "y": frame["y"],
        "all": frame[["x", "y"]],
        "n": frame["x"].astype("Int64").to_numpy(int),
    }
    tables = [
        UserTable(["a", "b"], np.array([0, 2, 4]), columns),
        UserTable.grouped(frame["user"], columns),
        UserTable.owned(["a", "b"], np.array([0, 0, 1, 1]), columns),
        UserTable(["a", "b"], np.array([0, 2, 4]), {name: torch.tensor(np.asarray(c)) for name, c in columns.items()}),
        UserTable(["a", "b"], np.array([0, 2, 4]), {name: np.asarray(c).tolist() for name, c in columns.items()}),
    ]
    for table in tables:
        rows = table.rows(np.array([0])).columns
        assert (rows["x"].tolist(), rows["y"].tolist(), rows["n"].tolist()) == ([20, 40], [2.0, 4.0], [20, 40])
        assert rows["all"].tolist() == [[20.0, 2.0], [40.0, 4.0]]


@pytest.mark.parametrize("make", [UserTable.grouped, lambda ids, x: UserTable(ids, np.arange(3), x)])
def test_columns_without_names_are_refused(make: Callable[..., UserTable]) -> None:
    """They met an AttributeError of numpy's, in the check of a first task."""
    with pytest.raises(BadInput, match="a column a name", check=coded("wrong-form", "columns")):
        make(["ann", "bob"], np.ones(2))


@pytest.mark.parametrize(
    "column", [np.ma.array([1.0, 2.0], mask=[False, True]), np.ones(2, np.longdouble)], ids=["mask", "wide"]
)
def test_a_column_that_torch_would_read_otherwise_is_refused(column: Any) -> None:
    with pytest.raises(BadInput, check=coded("wrong-form", "column 'x'")):
        UserTable(["a", "b"], np.arange(3), {"x": column})
    with pytest.raises(BadInput, check=coded("wrong-form", "users of the rows")):
        UserTable.grouped(np.array([["a"], ["b"]]), {"x": np.zeros(2)})


@pytest.mark.parametrize("name", ["nan", "NaN", "NaT", "None", "<NA>"])
def test_the_name_of_a_person_is_not_missing(name: str) -> None:
    for ids in (["ann", name, name], np.array(["ann", name, name]), np.array(["ann", name, name], dtype=object)):
        table = UserTable.grouped(ids, {"x": np.zeros(3, np.float32)})
        assert sorted(table.pseudonyms.tolist()) == sorted([pseudonym("ann"), pseudonym(name)])


def test_an_id_that_is_the_name_of_a_file_that_is_no_text_is_a_user() -> None:
    """Python gives bytes of a file's name that are no UTF-8 as lone surrogates."""
    assert len(UserTable.grouped(["a\udcff", "a\udcfe"], {})) == 2


@pytest.mark.parametrize(
    "ids",
    [
        np.array([1.0, np.nan, np.nan]),
        np.array(["ann", None, None], dtype=object),
        np.array(["2020-01-01", "NaT", "NaT"], dtype="datetime64[D]"),
    ],
)
def test_missing_values_of_arrays_are_no_user(ids: np.ndarray) -> None:
    with pytest.raises(BadInput) as refused:
        UserTable.grouped(ids, {"x": np.zeros(3, np.float32)})
    assert refused.value.code == "user-id-missing"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Jos\u00e9", "Jose\u0301"),
        ("\u212a", "K"),
        ("\u1e9b\u0323", "\u017f\u0323\u0307"),
        ("bob ", "bob"),
        ("\tbob", "bob\u00a0"),
        ("17.0", "17"),
    ],
    ids=["accent", "kelvin", "three forms", "a space", "other spaces", "a float's text"],
)
def test_two_spellings_of_one_text_are_one_person(one: str, other: str) -> None:
    for ids in ([one, "ann", other], [other, "ann", one]):
        with pytest.raises(BadInput) as refused:
            UserTable.grouped(ids, {"x": np.zeros(3, np.float32)})
        assert refused.value.code == "user-id-forms"
    for alone in (one, other):  # a spelling by itself keeps the pseudonym that it always had
        assert UserTable.grouped([alone, "ann"], {"x": np.zeros(2, np.float32)}).pseudonyms.size == 2
        assert pseudonyms([alone])[0] == pseudonym(alone)


@pytest.mark.parametrize(
    "ids", [np.array([1.0, 2.0]), np.array([1, 2], np.float32), [1, 2.0], np.array([1, 2.5], object)]
)
def test_a_float_names_nobody_for_it_is_another_text_than_the_whole_number(ids: Any) -> None:
    with pytest.raises(BadInput, check=coded("user-id-forms", "float")):
        UserTable.grouped(ids, {"x": np.zeros(2, np.float32)})
    with pytest.raises(BadInput, check=coded("user-id-forms", "float")):
        pseudonyms(list(ids))
    assert pseudonyms([1, np.int64(2)]).tolist() == pseudonyms(["1", "2"]).tolist()
    told = Context(run_id=1, node_id=1, node_config={"user": 1.0}, state=RecordDict(), run_config={})
    with pytest.raises(BadInput, check=coded("user-id-forms", "float")):
        mods._user(told)  # as one node of Flower's own is told whose it is


@pytest.mark.parametrize("twice", [[7, 7], [7, 2**63, 1, 7], [2**64 - 1, 0, 2**64 - 1]])
def test_a_user_twice_is_refused_wherever_users_are_named(twice: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    names = np.array(twice, np.uint64)
    assert not all_differ(names)
    assert all_differ(np.unique(names))
    # numpy's hash table of a million users takes twenty times as long as a sort.
    monkeypatch.setattr(np, "unique", lambda *given, **keywords: pytest.fail("users are not hashed"))
    with pytest.raises(BadInput, check=coded("wrong-form", "users", "twice")):
        UserTable(names, np.arange(len(names) + 1), {"x": np.zeros(len(names))})
    assert len(UserTable(np.array([3, 1], np.uint64), np.arange(3), {"x": np.zeros(2)})) == 2


class Named(DigitsTask):
    """Twelve rows, shared out among as many users as it is told."""

    def __init__(self, users: int) -> None:
        super().__init__()
        self.count = users

    def users(self) -> UserTable:
        return UserTable.grouped(np.arange(12) % self.count, {"x": np.arange(12)})


def test_a_task_of_another_ones_name_reads_its_own_users() -> None:
    """As one of a notebook's cell that was run again, while somebody still has the old one's."""
    old, new = Named(3), Named(4)
    tables = [users_of("cell:Named", task) for task in (old, old, new, old)]
    assert [len(table) for table in tables] == [3, 3, 4, 3]
    assert tables[0] is tables[1]


def test_users_whom_actors_share_are_in_no_folder_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An actor that was killed while it wrote left their rows there."""
    monkeypatch.setattr(shared_users, "SHARED", tmp_path)
    monkeypatch.setattr(shared_users, "ray_job", lambda: "a job")
    found: list[str] = []

    def write_to(file: Any, tables: Any, name: str) -> None:
        write_as_before(file, tables, name)
        file.flush()
        found.extend(path.suffix for path in tmp_path.rglob("*") if path.is_file())

    write_as_before = shared_users.write_to
    monkeypatch.setattr(shared_users, "write_to", write_to)

    class Few(DigitsTask):
        def users(self) -> UserTable:
            return TABLE

    shared = users_of("few", Few())
    assert isinstance(shared, UserTable)
    assert found == [".lock"]
    assert shared.rows(np.array([1])).columns["x"].tolist() == [0, 2, 5]
    assert users_of("few", DigitsTask()).rows(np.array([2])).columns["x"].tolist() == [3]  # type: ignore[union-attr]
    for descriptor in shared_users._held:
        os.close(descriptor)
    shared_users._held.clear()
