"""Users on disk: what is written is read back, lazily, and other files are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fieldfare.errors import BadInput
from fieldfare.schema import pseudonym
from fieldfare_client.storage import BlockColumn, from_partitions, open_table, write
from fieldfare_client.users import UserTable


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
        ({"id": ["a"], "y": [[1]]}, "rename one of id, y"),
        ({"user": ["a"]}, "no column but"),
        ({"user": ["a"], "y": [1]}, "not a list a user"),
        ({"user": ["a"], "y": [["text"]]}, "holds string"),
        ({"user": ["a"], "y": [[[1, 2], [3]]]}, "holds list"),
        ({"user": ["a", "b"], "y": [[1], None]}, "nulls"),
        ({"user": ["a"], "y": [[1, None]]}, "nulls"),
        ({"user": ["a", "b"], "x": [[1], [2]], "y": [[1, 2], []]}, "other list lengths"),
        ({"user": ["a", "a"], "y": [[1], [2]]}, "twice"),
    ],
)
def test_another_layout_is_refused(tmp_path: Path, columns: dict[str, Any], says: str) -> None:
    pq.write_table(pa.table(columns), tmp_path / "users.parquet")
    with pytest.raises(BadInput, match=says):
        open_table(tmp_path / "users.parquet")


@pytest.mark.parametrize("content", [b"", b"ARROW1\0\0torn", b"PAR1"])
@pytest.mark.parametrize("suffix", [".arrow", ".parquet"])
def test_a_torn_file_is_refused(tmp_path: Path, suffix: str, content: bytes) -> None:
    (tmp_path / f"users{suffix}").write_bytes(content)
    with pytest.raises(BadInput, match="cannot be read"):
        open_table(tmp_path / f"users{suffix}")


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def torn() -> Any:
        yield table(1)
        raise ValueError("the source broke")

    with pytest.raises(ValueError, match="the source broke"):
        write(tmp_path / "users.arrow", torn())
    with pytest.raises(BadInput, match="no table"):
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
