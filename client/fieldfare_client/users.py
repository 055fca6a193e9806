"""The users that a node hosts, and their rows, in columns.

Rows of one user are adjacent; `offsets[u] : offsets[u + 1]` are the rows of user u; every column is
row-aligned. `fieldfare_client.storage` keeps the same on disk and maps it into memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fieldfare.errors import OutOfRange, WrongForm
from fieldfare.hashing import all_differ
from fieldfare.lazily import torch
from fieldfare.schema import pseudonyms as name_all
from fieldfare.schema import texts
from fieldfare.shown import Shown


class Column(Protocol):
    """Row-aligned values: an array, a memory map, or anything that arrays of row numbers index."""

    @property
    def dtype(self) -> np.dtype[np.generic]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: NDArray[np.int64], /) -> NDArray[np.generic]: ...


@dataclass(frozen=True)
class Rows:
    """Rows of some users, copied out of a table: `sizes[i]` rows of the i-th of them, in order."""

    columns: dict[str, torch.Tensor]  # row-aligned, shape (sum of sizes, ...)
    sizes: NDArray[np.int64]
    users: NDArray[np.uint64]  # pseudonyms, shape (users,)


def _kind(dtype: np.dtype[np.generic]) -> str:
    named = {"U": "text", "S": "text", "M": "dates", "m": "durations"}
    return named.get(dtype.kind, f"values of dtype {dtype.str}")


def _named(columns: Any) -> Any:
    if not hasattr(columns, "items"):
        raise WrongForm("columns", f"is a {type(columns).__name__}.", 'a column a name, {"x": x, "y": y}')
    return columns.items()


def _by_position(column: Any) -> Any:
    """Return a column that is read by row numbers. pandas finds labels: after a sort, rows of other users."""
    values = column.to_numpy() if hasattr(column, "to_numpy") else column
    return values if isinstance(getattr(values, "dtype", None), np.dtype) else np.asarray(values)


class UserTable(metaclass=Shown):
    """Users and their data. Immutable; columns may be memory maps.

    Args:
        ids: the users' ids, from which their pseudonyms are computed, or the pseudonyms, uint64 (users,); distinct.
        offsets: where each user's rows begin and end, int64 (users + 1,): not decreasing, from 0 to the rows' number.
        columns: values of all rows, (rows, ...) each: arrays, columns of pandas, by position, or anything lazy
            with numpy's `dtype`, a length and `[row numbers]`, such as `np.memmap`. dtypes are kept; rows are
            copied when their user trains.

    Example:
        >>> import numpy as np
        >>> import fieldfare as ff
        >>> table = ff.UserTable.grouped(["ann", "bob", "ann"], {"x": np.array([1.0, 2.0, 3.0], np.float32)})
        >>> len(table), table.sizes, table.sizes_of(np.array([1]))
        (2, array([2, 1]), array([1]))
        >>> table.rows(np.array([0])).columns["x"]
        tensor([1., 3.])
        >>> one = table.select(np.array([1]))
        >>> len(one), one.positions(np.array([0])), sum(len(table.partition(node, 2)) for node in range(2))
        (1, array([1]), 2)
        >>> ff.UserTable.owned(["ann", "bob"], np.array([0, 0]), {"x": np.zeros(2)}).sizes
        array([2, 0])

    Raises:
        BadInput: these do not fit together, an id is missing or one of two spellings of one text, or a column
            holds something other than numbers.
    """

    SHOWN = ("grouped", "owned", "sizes", "rows", "select", "partition")

    def __init__(
        self, ids: Sequence[str] | NDArray[np.uint64], offsets: NDArray[np.int64], columns: Mapping[str, Column]
    ) -> None:
        named = ids if isinstance(ids, np.ndarray) and ids.dtype == np.uint64 else name_all(ids)
        self._pseudonyms: NDArray[np.uint64] = named
        self.offsets: NDArray[np.int64] = np.asarray(offsets, np.int64)
        self.columns: dict[str, Column] = {name: _by_position(column) for name, column in _named(columns)}
        self._selection: NDArray[np.int64] | None = None
        # Columns by the GPU that has them. Tables that are selected from this one share it.
        self._resident: dict[str, dict[str, torch.Tensor]] = {}
        # The file that the columns are mapped from (`fieldfare_client.storage`), if they are.
        self.source: Path | None = None
        if not all_differ(named):
            raise WrongForm("users", "a user id occurs twice.")
        rows = int(self.offsets[-1]) if self.offsets.size else -1
        if self.offsets.shape != (named.size + 1,) or self.offsets[0] != 0 or (np.diff(self.offsets) < 0).any():
            raise WrongForm("offsets", "must go from 0 to the number of rows, one more than there are users.")
        for name, column in self.columns.items():
            if column.dtype.hasobject:
                raise WrongForm(
                    f"column {name!r}",
                    "holds Python objects, as arrays of text or of rows of several lengths do.",
                    "numbers, in rows of one shape: codes or token ids for text, padding for sequences",
                )
            if column.dtype.kind not in "biufc" or column.dtype.char in "gG" or not column.dtype.isnative:
                raise WrongForm(f"column {name!r}", f"holds {_kind(column.dtype)}.", "native numbers, no longdouble")
            if isinstance(column, np.ma.MaskedArray):
                raise WrongForm(f"column {name!r}", "has a mask.", "an array of the rows that are not masked")
            if len(column) != rows:
                raise WrongForm(f"column {name!r}", f"has {len(column)} rows, the offsets end at {rows}.")

    @classmethod
    def grouped(
        cls, user_of_row: Sequence[str] | NDArray[np.generic], columns: Mapping[str, NDArray[np.generic]]
    ) -> UserTable:
        """Group rows, each with its user's id in `user_of_row` (rows,). Copies; a user's rows keep their order."""
        named = user_of_row
        if not isinstance(named, np.ndarray) or named.dtype == object:
            named = np.asarray(texts(named))  # before an array makes one type of several
        if named.ndim != 1:
            raise WrongForm("the users of the rows", f"have shape {named.shape}.", "one id a row, (rows,)")
        ids, owner = np.unique(named, return_inverse=True)
        return cls.owned(texts(ids), owner, columns)

    @classmethod
    def owned(
        cls,
        ids: Sequence[str] | NDArray[np.uint64],
        owner: NDArray[np.int64],
        columns: Mapping[str, NDArray[np.generic]],
    ) -> UserTable:
        """Group rows, each with the index of its user in `ids`, `owner` (rows,). Users may have no row."""
        for name, column in _named(columns):
            if len(column) != len(owner):
                raise WrongForm(f"column {name!r}", f"has {len(column)} rows, and {len(owner)} have a user.")
        order = np.argsort(owner, kind="stable")
        offsets = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=len(ids)))))
        return cls(ids, offsets, {name: _by_position(c)[order] for name, c in columns.items()})

    @property
    def pseudonyms(self) -> NDArray[np.uint64]:
        """One 64-bit name a user, shape (users,)."""
        return self._pseudonyms if self._selection is None else self._pseudonyms[self._selection]

    @property
    def is_plain(self) -> bool:
        """Whether rows are read by numpy and Fieldfare alone: no class of somebody else is asked for them."""
        modules = {type(column).__module__ for column in self.columns.values()}
        return type(self) is UserTable and modules <= {"numpy", "fieldfare_client.storage"}

    def __len__(self) -> int:
        return len(self._pseudonyms) if self._selection is None else len(self._selection)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Rows of each user, shape (users,)."""
        sizes = np.diff(self.offsets)
        return sizes if self._selection is None else sizes[self._selection]

    def sizes_of(self, users: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of some users (indices), shape (len(users),)."""
        inside = self.positions(users)
        return self.offsets[inside + 1] - self.offsets[inside]

    def positions(self, users: NDArray[np.int64]) -> NDArray[np.int64]:
        """Translate users (indices) into places in the table that this one was selected from, or in its file."""
        inside = np.asarray(users, np.int64)
        return inside if self._selection is None else self._selection[inside]

    def select(self, users: NDArray[np.int64]) -> UserTable:
        """Select users by index; the new table shares the data."""
        chosen = UserTable.__new__(UserTable)
        chosen.__dict__.update(self.__dict__)
        chosen._selection = np.asarray(users, np.int64) if self._selection is None else self._selection[users]
        return chosen

    def partition(self, index: int, count: int) -> UserTable:
        """Select the users of node `index` of `count`: by pseudonym, so that only `count` moves a user to
        another node.

        Raises `BadInput` unless 0 <= index < count.
        """
        if not 0 <= index < count:
            raise OutOfRange(f"node {index} of {count}", "nodes are numbered from 0.", f"{count - 1} of {count}")
        return self.select(np.flatnonzero(self.pseudonyms % np.uint64(count) == index))

    def rows(self, users: NDArray[np.int64], device: str | torch.device = "cpu") -> Rows:
        """Copy the rows of `users` (indices) to `device`.

        A GPU keeps all columns, once they were asked for and where they fill at most a quarter of its free
        memory: then rows are copied there. Otherwise they travel through pinned memory, while the processor
        goes on.
        """
        inside = self.positions(users)
        starts, sizes = self.offsets[inside], self.offsets[inside + 1] - self.offsets[inside]
        first = np.cumsum(sizes) - sizes
        places = np.arange(int(sizes.sum())) + np.repeat(starts - first, sizes)
        place = torch.device(device)
        if place.type == "cuda" and (resident := self._on_gpu(place)):
            chosen = torch.from_numpy(places).to(place)
            columns = {name: column.index_select(0, chosen) for name, column in resident.items()}
        else:
            copies = {name: torch.from_numpy(np.ascontiguousarray(c[places])) for name, c in self.columns.items()}
            if place.type == "cuda":
                copies = {name: copy.pin_memory() for name, copy in copies.items()}
            columns = {name: copy.to(place, non_blocking=True) for name, copy in copies.items()}
        return Rows(columns, sizes, self._pseudonyms[inside])

    def _on_gpu(self, device: torch.device) -> dict[str, torch.Tensor]:
        """Return all columns in the memory of `device`; empty where they are too large for it."""
        if str(device) not in self._resident:
            rows, free = np.arange(int(self.offsets[-1])), torch.cuda.mem_get_info(device)[0]
            one = {name: column[np.zeros(min(1, len(rows)), np.int64)] for name, column in self.columns.items()}
            fits = 4 * len(rows) * sum(values.nbytes for values in one.values()) <= free
            self._resident[str(device)] = {
                name: torch.from_numpy(np.ascontiguousarray(column[rows])).to(device)
                for name, column in (self.columns.items() if fits else ())
            }
        return self._resident[str(device)]
