"""User tables on disk: Arrow or Parquet, one row a user.

Layout, version 1:

* column `user`: the user's pseudonym (uint64), or its id (string), from which the pseudonym is computed;
* every other column: a list a user, one element a training example; all lists of a row equally long. An element is a
  number or an equally long (fixed-size, possibly nested) list of numbers: pixels, token ids. No nulls.

An Arrow IPC file (`.arrow`) without compression is memory-mapped: opening a million users reads their names and list
offsets, and a user's examples are read when that user trains. Write it in blocks (`write`), a record batch each.
A Parquet file (`.parquet`) has to be decoded, so all of it is read into memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fieldfare.errors import BadInput
from fieldfare.schema import pseudonyms
from fieldfare_client.users import Column, UserTable


class BlockColumn:
    """A column in several adjacent pieces, each possibly a memory map; indexed by arrays of row numbers."""

    def __init__(self, blocks: list[NDArray[Any]]) -> None:
        self._blocks = blocks
        self._ends = np.cumsum([len(block) for block in blocks])
        self.dtype: np.dtype[Any] = blocks[0].dtype

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        out = np.empty((len(rows), *self._blocks[0].shape[1:]), self.dtype)
        which = np.searchsorted(self._ends, rows, side="right")
        for block in np.unique(which):
            inside = which == block
            first = self._ends[block] - len(self._blocks[block])
            out[inside] = self._blocks[block][rows[inside] - first]
        return out


def open_table(path: Path) -> UserTable:
    """Open the users of an `.arrow` or `.parquet` file of the layout above. Raises `BadInput` for any other."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if path.suffix == ".parquet":
            table = pq.read_table(path, memory_map=True)
        else:
            table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise BadInput(str(path), f"cannot be read as Arrow or Parquet: {error}.") from None
    if "user" not in table.column_names:
        raise BadInput(str(path), "has no column 'user'.", f"rename one of {', '.join(table.column_names) or 'none'}")
    names = table.column("user")
    ids = names.to_numpy() if names.type == pa.uint64() else pseudonyms([str(i) for i in names.to_pylist()])
    columns: dict[str, Column] = {}
    offsets: NDArray[np.int64] | None = None
    for name in table.column_names:
        if name == "user":
            continue
        bounds, column = _column(path, name, table.column(name))
        if offsets is not None and not np.array_equal(offsets, bounds):
            raise BadInput(f"{path}: column {name!r}", "has other list lengths than the columns before it.")
        offsets, columns[name] = bounds, column
    if offsets is None:
        raise BadInput(str(path), "has no column but 'user'.")
    opened = UserTable(ids, offsets, columns)
    opened.source = path.resolve() if path.suffix == ".arrow" else None
    return opened


def _column(path: Path, name: str, chunked: Any) -> tuple[NDArray[np.int64], Column]:
    """Read one list column without copying its values: (offsets over all users, rows)."""
    import pyarrow as pa

    what = f"{path}: column {name!r}"
    if not (pa.types.is_list(chunked.type) or pa.types.is_large_list(chunked.type)):
        raise BadInput(what, f"is {chunked.type}, not a list a user.")
    lengths, blocks = [np.zeros(1, np.int64)], []
    for chunk in chunked.chunks:
        starts = chunk.offsets.to_numpy()
        values = chunk.values.slice(int(starts[0]), int(starts[-1] - starts[0]))
        shape: tuple[int, ...] = ()
        if chunk.null_count or values.null_count:
            raise BadInput(what, "has nulls.")
        while pa.types.is_fixed_size_list(values.type):
            width = values.type.list_size
            values, shape = values.values.slice(values.offset * width, len(values) * width), (*shape, width)
        if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)) or values.null_count:
            raise BadInput(what, f"holds {values.type}.", "numbers without nulls, in lists of one size")
        lengths.append(np.diff(starts).astype(np.int64))
        blocks.append(values.to_numpy(zero_copy_only=True).reshape(-1, *shape))
    if not blocks:
        return np.zeros(1, np.int64), np.empty(0, np.float32)
    return np.cumsum(np.concatenate(lengths)), blocks[0] if len(blocks) == 1 else BlockColumn(blocks)


def write(path: Path, tables: Iterable[UserTable]) -> None:
    """Write users to an `.arrow` file, one block of users a table, whole or not at all.

    Tables must agree in columns. Raises `BadInput` where there is no table.
    """
    import pyarrow as pa

    writer = None
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=path.suffix, delete=False) as file:
        try:
            for table in tables:
                batch = _batch(table)
                writer = pa.ipc.new_file(file, batch.schema) if writer is None else writer
                writer.write_batch(batch)
            if writer is None:
                raise BadInput(str(path), "would hold no table of users.")
            writer.close()
        except BaseException:
            Path(file.name).unlink()
            raise
    Path(file.name).replace(path)


def _batch(table: UserTable) -> Any:
    import pyarrow as pa

    rows = table.rows(np.arange(len(table)))
    offsets = np.concatenate(([0], np.cumsum(rows.sizes))).astype(np.int64)
    columns = {"user": pa.array(rows.users)}
    for name, tensor in rows.columns.items():
        values = pa.array(tensor.numpy().reshape(-1))
        for width in reversed(tensor.shape[1:]):
            values = pa.FixedSizeListArray.from_arrays(values, width)
        columns[name] = pa.LargeListArray.from_arrays(offsets, values)
    return pa.record_batch(columns)


class Partitioner(Protocol):
    """What `flwr_datasets` partitioners offer (`flwr_datasets.partitioner`, 0.5)."""

    @property
    def num_partitions(self) -> int: ...

    def load_partition(self, partition_id: int) -> Mapping[str, Any]: ...


def from_partitions(partitioner: Partitioner, columns: Mapping[str, str], *, block: int = 1000) -> Iterator[UserTable]:
    """Make each partition of a `flwr-datasets` partitioner one user, for `write`.

    A user's id is the partition's natural id where the partitioner has them (`partition_id_to_natural_id`), else its
    number.

    Args:
        partitioner: the partitioner, which knows its dataset.
        columns: our name of each column by the dataset's name, such as {"img": "x", "label": "y"}.
        block: users a table.
    """
    natural: Mapping[int, Any] = getattr(partitioner, "partition_id_to_natural_id", None) or {}
    for first in range(0, partitioner.num_partitions, block):
        ids: list[str] = []
        owner, parts = [], []
        for number in range(first, min(first + block, partitioner.num_partitions)):
            partition = partitioner.load_partition(number)
            parts.append(
                {ours: np.stack([np.asarray(v) for v in partition[theirs]]) for theirs, ours in columns.items()}
            )
            owner.append(np.full(len(next(iter(parts[-1].values()))), len(ids), np.int64))
            ids.append(str(natural.get(number, number)))
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        yield UserTable.owned(ids, np.concatenate(owner), joined)
