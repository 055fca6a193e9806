"""TensorFlow Federated's StackOverflow files: its SQLite database, or its HDF5 files, and its word counts.

`stackoverflow.sqlite` (or `.sqlite.lzma`) has a table `examples(split_name, client_id, serialized_example_proto)`; a
blob is a serialised `tf.train.Example`. The HDF5 files have a group `examples` with one group a client. The split
`test` holds later posts of the users of `train`; only `heldout` holds other users.
"""

from __future__ import annotations

import itertools
import lzma
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from fieldfare.errors import BadInput, NotFound, NotInstalled, Unreadable, WrongForm

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types of protocol buffers."""
_LONGEST_VARINT = 10

WORD_COUNT = "stackoverflow.word_count"
SPLITS = {"train": "train", "heldout": "held_out"}
"""The splits that are read: their name in the database, and in the HDF5 files' names."""


class _Broken(ValueError):
    """A message is cut off or holds what the format does not have."""


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, next place). Raises `_Broken`."""
    value = 0
    for index in range(_LONGEST_VARINT):
        if at + index >= len(data):
            break
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & (2**64 - 1), at + index + 1
    raise _Broken("a number is cut off")


def _fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """(field number, wire type, value) of one message. Raises `_Broken`."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        value: int | bytes
        if wire == VARINT:
            value, at = _varint(data, at)
        elif wire in (BYTES, FIXED64, FIXED32):
            size = {FIXED64: 8, FIXED32: 4}.get(wire, 0)
            if wire == BYTES:
                size, at = _varint(data, at)
            if at + size > len(data):
                raise _Broken("a field is cut off")
            value, at = data[at : at + size], at + size
        else:
            raise _Broken(f"wire type {wire}")
        yield number, wire, value


def _message(data: bytes, number: int) -> Iterator[bytes]:
    """The messages in the field `number`."""
    for found, wire, value in _fields(data):
        if found == number:
            if wire != BYTES or not isinstance(value, bytes):
                raise _Broken(f"wire type {wire} where a message stands")
            yield value


def read_example(blob: bytes) -> dict[str, list[bytes] | list[int]]:
    """The features of a serialised `tf.train.Example`: byte strings, or signed 64-bit integers packed or one by one.

    Lists of floats are left out. Raises `BadInput` where the blob is no such message.
    """
    try:
        features: dict[str, list[bytes] | list[int]] = {}
        for group in _message(blob, 1):
            for entry in _message(group, 1):
                key = b"".join(_message(entry, 1)).decode("utf-8")
                for feature in _message(entry, 2):
                    for kind, _, content in _fields(feature):
                        if kind == 1 and isinstance(content, bytes):
                            features[key] = list(_message(content, 1))
                        elif kind == 3 and isinstance(content, bytes):
                            features[key] = list(_integers(content))
        return features
    except (_Broken, UnicodeDecodeError) as error:
        raise Unreadable("serialized_example_proto", f"is no tf.train.Example: {error}.") from None


def _integers(data: bytes) -> Iterator[int]:
    for number, wire, value in _fields(data):
        if number != 1:
            continue
        packed, at = (value, 0) if isinstance(value, bytes) else (None, 0)
        if packed is None:
            assert isinstance(value, int)
            yield value - 2**64 if value >= 2**63 else value
            continue
        if wire != BYTES:
            raise _Broken(f"wire type {wire} where integers stand")
        while at < len(packed):
            one, at = _varint(packed, at)
            yield one - 2**64 if one >= 2**63 else one


def tokens(blob: bytes) -> str:
    """The blank-separated words of one example. Raises `BadInput` where it has none."""
    found = read_example(blob).get("tokens", [])
    if len(found) != 1 or not isinstance(found[0], bytes):
        raise WrongForm("serialized_example_proto", "has no feature tokens.")
    return found[0].decode("utf-8", "replace")


Sentences = Iterator[tuple[str, list[str]]]
"""(client id, at most so many of its sentences), one client after another."""


def sentences(path: Path, split: str, most: int) -> Sentences:
    """Yield the users of a split and the first `most` sentences of each, from a file or the folder that holds it.

    Args:
        path: `stackoverflow.sqlite`, or a folder with it or with the HDF5 files (see `prepare`).
        split: "train" or "heldout".

    Raises:
        BadInput: no such file, or none of that format.
    """
    database = _database(path)
    if database is not None:
        yield from _from_sqlite(database, split, most)
        return
    stored = path / f"stackoverflow_{SPLITS[split]}.h5"
    if not stored.is_file():
        raise NotFound(str(path), f"holds neither stackoverflow.sqlite(.lzma) nor {stored.name}.")
    yield from _from_hdf5(stored, most)


def _database(path: Path) -> Path | None:
    if path.is_file():
        return path
    for name in ("stackoverflow.sqlite", "stackoverflow.sqlite.lzma"):
        if (path / name).is_file():
            return path / name
    return None


def prepare(given: Path, work: Path) -> Path:
    """The folder, or file, that the other functions read: `given`, or `work` with a database that was compressed."""
    database = _database(given)
    if database is None or database.suffix != ".lzma":
        return given
    try:
        with lzma.open(database) as packed, (work / "stackoverflow.sqlite").open("wb") as whole:
            shutil.copyfileobj(packed, whole, 1 << 22)
    except (lzma.LZMAError, EOFError) as error:
        raise Unreadable(str(database), f"cannot be decompressed: {error}.") from None
    counts = database.parent / WORD_COUNT
    if counts.is_file():
        shutil.copy(counts, work)
    return work


def _from_sqlite(path: Path, split: str, most: int) -> Sentences:
    """Read all rows once and sort them by client: there may be no index on client_id."""
    query = "SELECT client_id, serialized_example_proto FROM examples WHERE split_name = ? ORDER BY client_id, rowid"
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            for client, rows in itertools.groupby(database.execute(query, (split,)), key=lambda row: str(row[0])):
                yield client, [tokens(blob) for _, blob in itertools.islice(rows, most)]
    except sqlite3.Error as error:
        raise Unreadable(str(path), f"is no database of TFF's StackOverflow: {error}.") from None


def _from_hdf5(path: Path, most: int) -> Sentences:
    try:
        import h5py
    except ModuleNotFoundError:
        raise NotInstalled(
            str(path), "is read with the package h5py, which is not installed.", "pip install h5py"
        ) from None
    try:
        with h5py.File(path, "r") as file:
            clients = file["examples"]
            for client in sorted(clients):
                stored = clients[client]["tokens"][:most]
                yield client, [bytes(text).decode("utf-8", "replace") for text in stored]
    except (OSError, KeyError) as error:
        raise BadInput(str(path), f"is no HDF5 file of TFF's StackOverflow: {error}.") from None


def word_count(path: Path) -> list[str]:
    """The words of `stackoverflow.word_count`, most frequent first. Raises `BadInput` where that cannot be read."""
    folder = path if path.is_dir() else path.parent
    counts = folder / WORD_COUNT
    words, last = [], None
    try:
        lines = counts.read_text("utf-8").splitlines()
    except OSError:
        raise NotFound(str(counts), "is not there; the vocabulary is read from it.") from None
    for number, line in enumerate(lines, start=1):
        word, _, count = line.rpartition(" ")
        if not word or not count.isdigit() or (last is not None and int(count) > last):
            raise WrongForm(
                f"{counts.name}, line {number}", "is no word with a count, none larger than the one before."
            )
        words.append(word)
        last = int(count)
    return words
