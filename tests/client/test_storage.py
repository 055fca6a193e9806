"""Users on disk: what is written is read back, lazily, and other files are refused by name."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from fieldfare.errors import BadInput
from fieldfare.schema import pseudonym
from fieldfare_client.storage import BlockColumn, from_partitions, open_table, write, write_arrays
from fieldfare_client.users import UserTable
from support.refusals import Coded, coded


def table(seed: int, users: int = 5) -> UserTable:
    generator = np.random.default_rng(seed)
    sizes = generator.integers(0, 4, users)
    rows = int(sizes.sum())
    columns = {
        "x": generator.normal(size=(rows, 2, 3)).astype(np.float32),
        "y": generator.integers(0, 9, rows).astype(np.int32),
        "pixels": generator.integers(0, 255, (rows, 4)).astype(np.uint8),
    }
    ids = [f"{seed}-{user}" for user in range(users)]
    return UserTable(ids, np.concatenate(([0], np.cumsum(sizes))), columns)


def same(a: UserTable, b: UserTable) -> bool:
    ours, theirs = a.rows(np.arange(len(a))), b.rows(np.arange(len(b)))
    columns = all(
        ours.columns[name].dtype == theirs.columns[name].dtype
        and ours.columns[name].numpy().tobytes() == theirs.columns[name].numpy().tobytes()
        and ours.columns[name].shape == theirs.columns[name].shape
        for name in ours.columns
    )
    return columns and np.array_equal(ours.users, theirs.users) and np.array_equal(ours.sizes, theirs.sizes)


def test_a_folder_for_other_processes_needs_no_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    of = table(4)
    of.columns["seen"] = np.arange(len(of.columns["y"])) % 2 == 0
    for number, one in enumerate((of, of.select(np.array([3, 1])), table(5, users=0))):
        write_arrays(tmp_path / str(number), one)
        back = open_table(tmp_path / str(number))
        assert same(back, one)
        assert back.source is None


@pytest.mark.parametrize("suffix", [".arrow", ".parquet"])
def test_blocks_of_users_are_read_back_as_they_were(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"users{suffix}"
    blocks = [table(1), table(2), table(3)]
    write(tmp_path / "users.arrow", blocks)
    if suffix == ".parquet":
        pq.write_table(pa.ipc.open_file(tmp_path / "users.arrow").read_all(), path)
    back = open_table(path)
    assert len(back) == 15
    for number, block in enumerate(blocks):
        assert same(back.select(np.arange(5 * number, 5 * number + 5)), block)
    mixed = back.rows(np.array([14, 0, 7]))
    assert mixed.columns["x"].shape[1:] == (2, 3)
    assert same(back.select(np.array([14, 0, 7])), back.select(np.array([14, 0, 7])))
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".arrow"] == ["users.arrow"]


def test_an_arrow_file_is_mapped_and_not_read(tmp_path: Path) -> None:
    write(tmp_path / "users.arrow", [table(1)])
    column = open_table(tmp_path / "users.arrow").columns["x"]
    assert isinstance(column, np.ndarray)
    assert not column.flags.owndata
    assert not column.flags.writeable


def test_ids_may_be_strings(tmp_path: Path) -> None:
    plain = pa.table({"user": ["ann", "bob"], "y": [[1, 2], []]})
    pq.write_table(plain, tmp_path / "users.parquet")
    back = open_table(tmp_path / "users.parquet")
    assert back.pseudonyms.tolist() == [pseudonym("ann"), pseudonym("bob")]
    assert back.sizes.tolist() == [2, 0]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"id": ["a"], "y": [[1]]}, coded("wrong-form")),
        ({"user": ["a"]}, coded("wrong-form")),
        ({"user": ["a"], "y": [1]}, coded("wrong-form")),
        ({"user": ["a"], "y": [["text"]]}, coded("wrong-form")),
        ({"user": ["a"], "y": [[[1, 2], [3]]]}, coded("wrong-form")),
        ({"user": ["a", "b"], "y": [[1], None]}, coded("wrong-form")),
        ({"user": ["a"], "y": [[1, None]]}, coded("wrong-form")),
        ({"user": ["a", "b"], "x": [[1], [2]], "y": [[1, 2], []]}, coded("wrong-form")),
        ({"user": ["a", "a"], "y": [[1], [2]]}, coded("wrong-form", "users")),
    ],
)
def test_another_layout_is_refused(tmp_path: Path, columns: dict[str, Any], says: Coded) -> None:
    pq.write_table(pa.table(columns), tmp_path / "users.parquet")
    with pytest.raises(BadInput, check=says):
        open_table(tmp_path / "users.parquet")


@pytest.mark.parametrize("content", [b"", b"ARROW1\0\0torn", b"PAR1"])
@pytest.mark.parametrize("suffix", [".arrow", ".parquet"])
def test_a_torn_file_is_refused(tmp_path: Path, suffix: str, content: bytes) -> None:
    (tmp_path / f"users{suffix}").write_bytes(content)
    with pytest.raises(BadInput, check=coded("unreadable")):
        open_table(tmp_path / f"users{suffix}")


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def torn() -> Any:
        yield table(1)
        raise ValueError("the source broke")

    with pytest.raises(ValueError, match="the source broke"):
        write(tmp_path / "users.arrow", torn())
    with pytest.raises(BadInput, check=coded("too-few")):
        write(tmp_path / "users.arrow", [])
    assert list(tmp_path.iterdir()) == []


def test_block_columns_are_indexed_across_blocks() -> None:
    column = BlockColumn([np.arange(3), np.arange(0), np.arange(3, 10)])
    rows = np.array([9, 0, 3, 2, 2])
    assert column[rows].tolist() == rows.tolist()
    assert len(column) == 10


@pytest.mark.parametrize("natural", [True, False])
def test_partitions_of_flwr_datasets_become_users(tmp_path: Path, natural: bool) -> None:
    class Partitioner:
        num_partitions = 7
        partition_id_to_natural_id = {n: f"writer-{n}" for n in range(7)} if natural else None

        def load_partition(self, partition_id: int) -> dict[str, Any]:
            size = partition_id % 3 + 1
            return {
                "img": [np.full((2, 2), partition_id, np.uint8)] * size,
                "label": [partition_id] * size,
                "other": [],
            }

    write(tmp_path / "users.arrow", from_partitions(Partitioner(), {"img": "x", "label": "y"}, block=3))
    back = open_table(tmp_path / "users.arrow")
    assert back.sizes.tolist() == [1, 2, 3, 1, 2, 3, 1]
    assert int(back.pseudonyms[4]) == pseudonym("writer-4" if natural else "4")
    rows = back.rows(np.array([4]))
    assert rows.columns["x"].tolist() == [[[4, 4], [4, 4]]] * 2
    assert rows.columns["y"].tolist() == [4, 4]


def one_user(columns: dict[str, Any]) -> UserTable:
    (made,) = from_partitions({"anna": columns}, {name: name for name in columns})
    return made


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"])
def test_dtypes_survive_partitions_and_the_file(tmp_path: Path, dtype: str) -> None:
    class Declared(dict[str, Any]):
        """A partition of `datasets`: Python numbers, and features that know better."""

        features: ClassVar[dict[str, Any]] = {
            "x": types.SimpleNamespace(feature=types.SimpleNamespace(dtype=dtype)),
            "y": types.SimpleNamespace(dtype=dtype),
            "z": [types.SimpleNamespace(dtype=dtype)],
        }
        column_names = ("x", "y", "z")

    lists = Declared(x=[[1, 2], [3, 4]], y=[5, 6], z=[[[7]], [[8]]])
    arrays = {name: np.array(value, dtype) for name, value in lists.items()}
    tensors = {name: torch.from_numpy(value) for name, value in arrays.items()}
    rows = {name: list(value) for name, value in arrays.items()}
    users = {"lists": lists, "arrays": arrays, "tensors": tensors, "rows": rows, "empty": {"x": [], "y": [], "z": []}}
    write(tmp_path / "users.arrow", from_partitions(users, {"x": "x", "y": "y", "z": "z"}))
    back = open_table(tmp_path / "users.arrow")
    assert back.sizes.tolist() == [2, 2, 2, 2, 0]
    assert back.pseudonyms.tolist() == [pseudonym(name) for name in users]
    for user in range(4):
        for name, tensor in back.rows(np.array([user])).columns.items():
            assert str(tensor.dtype) == f"torch.{dtype}"
            assert np.array_equal(tensor.numpy(), arrays[name])


def test_lists_without_a_declared_dtype_are_what_numpy_makes_of_them() -> None:
    made = one_user({"a": [1, 2], "b": [1.5, 2.5], "c": [True, False]})
    assert {name: str(column.dtype) for name, column in made.columns.items()} == {
        "a": "int64",
        "b": "float64",
        "c": "bool",
    }


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (["some", "words"], "column 'c': holds text. Nearest allowed: codes or token ids"),
        (np.array(["some", "words"], object), "column 'c': holds text"),
        (np.array([b"some", b"words"]), "column 'c': holds text"),
        ([[1, 2], [3]], "column 'c': is ragged: its rows have 2 shapes. Nearest allowed: rows padded to one shape"),
        ([[[1], [2, 3]], [[4], [5]]], "column 'c': holds rows that are not arrays"),
        (np.array([np.zeros(1), np.zeros(2)], object), "column 'c': is ragged"),
        ([1, None], "column 'c': holds nulls"),
        ([{"bytes": b""}], "column 'c': holds Python objects (dict)"),
        ([1, 2, 3], "columns of different lengths: d 2, c 3"),
    ],
)
def test_columns_that_cannot_be_trained_on_are_refused_by_name(column: Any, says: str) -> None:
    with pytest.raises(BadInput) as refused:
        one_user({"d": [0, 0], "c": column})
    assert says in str(refused.value)


def test_partitions_must_agree_and_hold_what_is_asked() -> None:
    def make(users: dict[str, Any]) -> list[UserTable]:
        return list(from_partitions(users, {"x": "x"}))

    with pytest.raises(BadInput, check=coded("wrong-form", "column", "'x'")):
        make({"a": {"x": [1]}, "b": {"x": np.zeros(1, np.uint8)}})
    with pytest.raises(BadInput, check=coded("not-found", "column 'x'")):
        make({"a": {"y": [1]}})
    with pytest.raises(BadInput, check=coded("too-few", "partitions")):
        make({"a": {"x": []}})


def test_booleans_are_refused_before_a_file_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadInput, check=coded("wrong-form", "column", "'c'")):
        write(tmp_path / "users.arrow", [one_user({"c": [True]})])


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (np.array(["a", "b"]), "'c': holds text"),
        (np.array([[1], [2, 3]], object), "'c': holds Python objects, as arrays of text or of rows of several lengths"),
        (np.array(["2020-01-01", "2021-01-01"], "datetime64[D]"), "'c': holds dates"),
        (np.array([1, 2], ">i4"), "'c': holds values of dtype >i4"),
    ],
)
def test_a_table_names_the_column_that_holds_no_numbers(column: Any, says: str) -> None:
    with pytest.raises(BadInput) as refused:
        UserTable(["a", "b"], np.array([0, 1, 2]), {"c": column})
    assert says in str(refused.value)


def test_columns_may_be_lazy(tmp_path: Path) -> None:
    """Anything with a dtype, a length and [row numbers]: only the rows of whom it is asked for are read."""

    class Lazy:
        dtype = np.dtype(np.float32)

        def __init__(self) -> None:
            self.read: list[int] = []

        def __len__(self) -> int:
            return 10**9

        def __getitem__(self, rows: Any) -> Any:
            self.read += rows.tolist()
            return rows[:, None].astype(np.float32)

    np.save(tmp_path / "y.npy", np.arange(12, dtype=np.uint8))
    lazy, mapped = Lazy(), np.load(tmp_path / "y.npy", mmap_mode="r")
    huge = UserTable(["a", "b", "c"], np.array([0, 5, 7, 10**9]), {"x": lazy})
    assert lazy.read == []
    assert huge.rows(np.array([1])).columns["x"].tolist() == [[5.0], [6.0]]
    assert lazy.read == [5, 6]
    small = UserTable(["a", "b"], np.array([0, 4, 12]), {"y": mapped})
    assert isinstance(small.columns["y"], np.memmap)
    assert small.rows(np.array([0])).columns["y"].tolist() == [0, 1, 2, 3]
    assert small.rows(np.array([0])).columns["y"].dtype == torch.uint8


FIVE_GB = """
import sys
import numpy as np, torch
from fieldfare.plan_tables import ClientSpec
from fieldfare.task import Task
from fieldfare.schema import Schema
from fieldfare_client.training.trainer import Trainer
from fieldfare_client.users import UserTable

USERS, ROWS, PIXELS = 16_300, 100, 3072

class Pixels(Task):
    name, score_name, held_out = "pixels", "loss", "Nothing is evaluated."
    def build_model(self):
        return torch.nn.Sequential(torch.nn.Linear(PIXELS, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    def loss(self, outputs, targets): return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")
    def prepare(self, columns): return columns["x"].float() / 255, columns["y"].long()
    def evaluate(self, model): return {"loss": 0.0}
    def users(self):
        x = np.memmap(sys.argv[1], np.uint8, "r", shape=(USERS * ROWS, PIXELS))
        assert x.nbytes > 5_000_000_000
        y = np.tile(np.array([0, 1], np.uint8), USERS * ROWS // 2)
        return UserTable(np.arange(USERS, dtype=np.uint64), np.arange(USERS + 1) * ROWS, {"x": x, "y": y})

task = Pixels()
table = task.users()
trainer = Trainer(task, ClientSpec(batch_size=20), lambda updates: None)
point = Schema.of(task.build_model()).flatten(dict(task.build_model().named_parameters()))
generator = np.random.default_rng(0)
for at_round in range(4):
    cohort = generator.choice(USERS, 10, replace=False)
    result = trainer.train([point], [1.0], table, cohort, at_round=at_round)
    assert result.users == 10 and not result.failures and result.update.any()
# Not ru_maxrss, which a new process inherits from the one that started it.
peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))
print(int(peak.split()[1]) * 1024)
"""


def test_five_gigabytes_train_in_less_than_half_of_one(tmp_path: Path) -> None:
    """Peak memory of a process: torch, the table, four rounds of 10 of 16 300 users, and the pages that they read."""
    path = tmp_path / "x.bin"
    with path.open("wb") as file:
        file.truncate(16_300 * 100 * 3072)
    done = subprocess.run(
        [sys.executable, "-c", FIVE_GB, str(path)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 500e6
