"""User tables on disk: Arrow or Parquet, one row a user.

Layout, version 1:

* column `user`: the user's pseudonym (uint64), or its id (string), from which the pseudonym is computed;
* every other column: a list a user, one element a training example; all lists of a row equally long. An
  element is a number or an equally long (fixed-size, possibly nested) list of numbers: pixels, token ids. No
  nulls.

An Arrow IPC file (`.arrow`) without compression is memory-mapped: opening a million users reads their names
and list offsets, and a user's examples are read when that user trains. Write it in blocks (`write`), a record
batch each. A Parquet file (`.parquet`) has to be decoded, so all of it is read into memory.

Without a file: columns of a `UserTable` may be anything with a dtype, a length and `[row numbers]`, such as
`np.memmap` or `np.load(..., mmap_mode="r")`. Rows are read when their user trains. With several training
workers such a table is first copied to shared memory; an `.arrow` file is not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fieldfare.errors import NotFound, TooFew, Unreadable, WrongForm
from fieldfare.lazily import torch
from fieldfare.schema import pseudonyms
from fieldfare_client.users import Column, UserTable


class BlockColumn:
    """A column in several adjacent pieces, each possibly a memory map; indexed by arrays of row numbers."""

    def __init__(self, blocks: list[NDArray[np.generic]]) -> None:
        self._blocks = blocks
        self._ends = np.cumsum([len(block) for block in blocks])
        self.dtype: np.dtype[np.generic] = blocks[0].dtype

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, rows: NDArray[np.int64]) -> NDArray[np.generic]:
        out = np.empty((len(rows), *self._blocks[0].shape[1:]), self.dtype)
        which = np.searchsorted(self._ends, rows, side="right")
        for block in np.unique(which):
            inside = which == block
            first = self._ends[block] - len(self._blocks[block])
            out[inside] = self._blocks[block][rows[inside] - first]
        return out


def open_table(path: Path) -> UserTable:
    """Open the users of an `.arrow` or `.parquet` file of the layout above, or of a folder of `write_arrays`.

    Raises `BadInput` for any other file.
    """
    if path.is_dir():
        users, ends, names = (np.load(path / f"{name}.npy") for name in ("users", "offsets", "names"))
        mapped = [np.load(path / f"{i}.npy", mmap_mode="r") for i in range(len(names))]
        return UserTable(users, ends, dict(zip(names.tolist(), mapped, strict=True)))
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if path.suffix == ".parquet":
            table = pq.read_table(path, memory_map=True)
        else:
            table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise Unreadable(str(path), f"cannot be read as Arrow or Parquet: {error}.") from None
    if "user" not in table.column_names:
        raise WrongForm(str(path), "has no column 'user'.", f"rename one of {', '.join(table.column_names) or 'none'}")
    names = table.column("user")
    ids = names.to_numpy() if names.type == pa.uint64() else pseudonyms(names.to_pylist())
    columns: dict[str, Column] = {}
    offsets: NDArray[np.int64] | None = None
    for name in table.column_names:
        if name == "user":
            continue
        bounds, column = _column(path, name, table.column(name))
        if offsets is not None and not np.array_equal(offsets, bounds):
            raise WrongForm(f"{path}: column {name!r}", "has other list lengths than the columns before it.")
        offsets, columns[name] = bounds, column
    if offsets is None:
        raise WrongForm(str(path), "has no column but 'user'.")
    opened = UserTable(ids, offsets, columns)
    opened.source = path.resolve() if path.suffix == ".arrow" else None
    return opened


def _column(path: Path, name: str, chunked: Any) -> tuple[NDArray[np.int64], Column]:
    """Read one list column without copying its values: (offsets over all users, rows)."""
    import pyarrow as pa

    what = f"{path}: column {name!r}"
    if not (pa.types.is_list(chunked.type) or pa.types.is_large_list(chunked.type)):
        raise WrongForm(what, f"is {chunked.type}, not a list a user.")
    lengths, blocks = [np.zeros(1, np.int64)], []
    for chunk in chunked.chunks:
        starts = chunk.offsets.to_numpy()
        values = chunk.values.slice(int(starts[0]), int(starts[-1] - starts[0]))
        shape: tuple[int, ...] = ()
        if chunk.null_count or values.null_count:
            raise WrongForm(what, "has nulls.")
        while pa.types.is_fixed_size_list(values.type):
            width = values.type.list_size
            values, shape = values.values.slice(values.offset * width, len(values) * width), (*shape, width)
        if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)) or values.null_count:
            raise WrongForm(what, f"holds {values.type}.", "numbers without nulls, in lists of one size")
        lengths.append(np.diff(starts).astype(np.int64))
        blocks.append(values.to_numpy(zero_copy_only=True).reshape(-1, *shape))
    if not blocks:
        return np.zeros(1, np.int64), np.empty(0, np.float32)
    return np.cumsum(np.concatenate(lengths)), blocks[0] if len(blocks) == 1 else BlockColumn(blocks)


def write(path: Path, tables: Iterable[UserTable]) -> None:
    """Write users to an `.arrow` file, one block of users a table, whole or not at all.

    Tables must agree in columns. Raises `BadInput` where there is not a table.
    """
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=path.suffix, delete=False) as file:
        try:
            write_to(file, tables, str(path))
        except BaseException:
            Path(file.name).unlink()
            raise
    Path(file.name).replace(path)


def write_to(file: IO[bytes], tables: Iterable[UserTable], name: str) -> None:
    """Do as `write` to an open file. Raises as it, about `name`."""
    import pyarrow as pa

    writer = None
    for table in tables:
        batch = _batch(table)
        writer = pa.ipc.new_file(file, batch.schema) if writer is None else writer
        writer.write_batch(batch)
    if writer is None:
        raise TooFew(name, "would hold no table of users.")
    writer.close()


def write_arrays(folder: Path, table: UserTable) -> None:
    """Write users to a new folder, for other processes of this machine: needs no pyarrow, and lasts as long as they."""
    folder.mkdir()
    rows = table.rows(np.arange(len(table)))
    arrays: dict[str, NDArray[np.generic]] = {"users": rows.users, "names": np.array([*rows.columns], np.str_)}
    arrays["offsets"] = np.concatenate(([0], np.cumsum(rows.sizes))).astype(np.int64)
    arrays |= {str(i): tensor.numpy() for i, tensor in enumerate(rows.columns.values())}
    for name, array in arrays.items():
        np.save(folder / name, array)


def _batch(table: UserTable) -> Any:
    import pyarrow as pa

    rows = table.rows(np.arange(len(table)))
    offsets = np.concatenate(([0], np.cumsum(rows.sizes))).astype(np.int64)
    columns = {"user": pa.array(rows.users)}
    for name, tensor in rows.columns.items():
        if tensor.dtype == torch.bool:
            raise WrongForm(f"column {name!r}", "holds booleans, which Arrow packs into bits.", "uint8")
        values = pa.array(tensor.numpy().reshape(-1))
        for width in reversed(tensor.shape[1:]):
            values = pa.FixedSizeListArray.from_arrays(values, width)
        columns[name] = pa.LargeListArray.from_arrays(offsets, values)
    return pa.record_batch(columns)


class Partitioner(Protocol):
    """What `flwr_datasets` partitioners offer (`flwr_datasets.partitioner`, 0.5)."""

    @property
    def num_partitions(self) -> int: ...

    def load_partition(self, partition_id: int) -> Mapping[str, object]: ...


def from_partitions(
    partitions: Partitioner | Mapping[str, Mapping[str, object]], columns: Mapping[str, str], *, block: int = 1000
) -> Iterator[UserTable]:
    """Make each partition one user, for `write`.

    A user's id is the partition's natural id where the partitioner has them (`partition_id_to_natural_id`),
    else its number; of a dict, the key.

    dtypes are kept: those of arrays and tensors, and those that a `datasets` dataset declares in its
    `features`. Only plain Python lists without either become int64 or float64.

    Args:
        partitions: a `flwr-datasets` partitioner, which knows its dataset; or a dict of users, each a dict of
            columns such as {"anna": {"img": images, "label": labels}}. A column is an array, a tensor, or a
            sequence of rows of one shape; all columns of a user are equally long. A user may have no rows.
        columns: our name of each column by the partitions' name, such as {"img": "x", "label": "y"}.
        block: users a table.

    Raises:
        BadInput: a column is missing, holds text, nulls or rows of several shapes, differs in dtype or shape
            between partitions, or in length from the columns next to it; a whole block has no row.
    """
    for ids, parts in _blocks(partitions, block):
        rows = [{ours: _rows(part, theirs) for theirs, ours in columns.items()} for part in parts]
        sizes = [_size(part) for part in rows]
        filled = [part for part, size in zip(rows, sizes, strict=True) if size]
        if not filled:
            raise TooFew("partitions", f"{len(ids)} of them, one after another, have no rows.", "a larger block")
        joined = {ours: _join(theirs, [part[ours] for part in filled]) for theirs, ours in columns.items()}
        yield UserTable.owned(ids, np.repeat(np.arange(len(ids)), sizes), joined)


def _blocks(
    partitions: Partitioner | Mapping[str, Mapping[str, object]], block: int
) -> Iterator[tuple[NDArray[np.uint64], Iterator[Mapping[str, object]]]]:
    """Yield the pseudonyms and partitions, `block` users at a time."""
    keys: list[Any]
    load: Callable[[Any], Mapping[str, object]]
    if isinstance(partitions, Mapping):
        keys, load = list(partitions), partitions.__getitem__
        named = pseudonyms(keys)  # of all blocks together: two spellings of one text are one person
    else:
        natural: Mapping[int, object] = getattr(partitions, "partition_id_to_natural_id", None) or {}
        keys, load = list(range(partitions.num_partitions)), partitions.load_partition
        named = pseudonyms(natural.get(number, number) for number in keys)
    for first in range(0, len(keys), block):
        yield named[first : first + block], map(load, keys[first : first + block])


def _rows(partition: Mapping[str, Any], name: str) -> NDArray[np.generic]:
    """Return one column of a partition: (rows, ...), in its own dtype."""
    what = f"column {name!r}"
    known = getattr(partition, "column_names", None) or list(partition)
    if name not in known:
        raise NotFound(what, "is not in the partition.", ", ".join(map(str, known)))
    column = partition[name]
    if hasattr(column, "to_numpy"):
        column = column.to_numpy()  # pandas, Arrow
    if isinstance(column, np.ndarray) and not column.dtype.hasobject:
        values = column
    else:
        declared = _declared((getattr(partition, "features", None) or {}).get(name))
        try:
            rows = [_row(value, declared) for value in column]
        except (ValueError, TypeError) as error:
            raise WrongForm(
                what, f"holds rows that are not arrays of numbers ({error}).", "rows of one shape"
            ) from None
        shapes = {row.shape for row in rows}
        if len(shapes) > 1:
            raise WrongForm(what, f"is ragged: its rows have {len(shapes)} shapes.", "rows padded to one shape")
        values = np.stack(rows) if rows else np.empty(0)
    if values.size and values.dtype.kind in "USO":
        text = values.dtype.kind != "O" or isinstance(values.flat[0], str | bytes)
        nulls = values.dtype.kind == "O" and any(value is None for value in values.flat)
        held = "text" if text else "nulls" if nulls else f"Python objects ({type(values.flat[0]).__name__})"
        raise WrongForm(what, f"holds {held}.", "codes or token ids, as integers" if text else "numbers")
    return values


def _row(value: object, dtype: np.dtype[np.generic] | None) -> NDArray[np.generic]:
    row = np.asarray(value)
    # Text stays text, to be refused by its name; a declared dtype is what numbers had before they became a list.
    return row if dtype is None or row.dtype.kind in "USO" else row.astype(dtype)


def _declared(feature: object) -> np.dtype[np.generic] | None:
    """Return the dtype of the numbers inside of a feature of `datasets`; None where it declares none (images, text)."""
    while feature is not None:
        inner = feature[0] if isinstance(feature, list) and feature else getattr(feature, "feature", None)
        if inner is None:
            break
        feature = inner
    try:
        return np.dtype(getattr(feature, "dtype", None) or "O") if feature is not None else None
    except TypeError:
        return None


def _size(part: Mapping[str, NDArray[np.generic]]) -> int:
    sizes = {name: len(values) for name, values in part.items()}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise WrongForm("a partition", f"has columns of different lengths: {listed}.", "one row an example")
    return next(iter(sizes.values()), 0)


def _join(name: str, parts: list[NDArray[np.generic]]) -> NDArray[np.generic]:
    kinds = {(part.dtype, part.shape[1:]) for part in parts}
    if len(kinds) > 1:
        listed = " and ".join(sorted(f"{dtype} {shape}" for dtype, shape in kinds)[:2])
        raise WrongForm(f"column {name!r}", f"differs between partitions: {listed}.", "one dtype and one shape of rows")
    return np.concatenate(parts)
