"""The log and what it names, in files beside the database: lose either, and the other makes it again.

A directory holds segments, each named by its first row. A segment begins with a line of its own, and every line after
it holds the rows that one append brought:

    fieldfare-segment-v1 LEDGER FIRST PREVIOUS KEY
    LAST HASH SEALED

`PREVIOUS` is the hash before row `FIRST`, `HASH` that of row `LAST`, `KEY` names the key. `SEALED` is AES-256-GCM of
the rows and of the objects, users and participations that they name, bound to its place in the chain. The key is a file
beside the directory and never in the database: rows may say how many users there are, and salts help to guess who.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import os
import secrets
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, bindparam, select

from fieldfare.atomic import locked, replace_file, sync_directory
from fieldfare.errors import LedgerCorrupt, LedgerError
from fieldfare_server import faults
from fieldfare_server.ledger import chain
from fieldfare_server.ledger.events.base import loads
from fieldfare_server.ledger.sql import models
from fieldfare_server.ledger.sql.database import Database
from fieldfare_server.ledger.state.rows import EMPTY

_MAGIC = "fieldfare-segment-v1"
_SUFFIX = ".segment"
# A segment that has grown to this is followed by another.
SEGMENT_BYTES = 64 << 20
# How much of a segment is read to find its last line; more where that is longer.
_TAIL = 1 << 20
# Rows of one line, where many are written at once.
BATCH = 1000
_KEY_BYTES, _NONCE_BYTES = 32, 12
# What a line says of a row: its number, and the links of the chain, follow from its place.
_COLUMNS = ("at", "actor", "action", "population", "run", "round", "event", "body")
# Actions that name an object, and the member that names it.
_NAMED = {"population.create": "salt", "run.start": "plan", "round.commit": "statistics"}

_j, _o, _u, _q = models.journal.c, models.objects.c, models.users.c, models.participations.c
_HEAD = select(models.head)
_ROWS = select(models.journal).where(_j.id > bindparam("after")).order_by(_j.id).limit(bindparam("most"))
_OBJECTS = select(_o.content).where(_o.hash.in_(bindparam("names", expanding=True))).order_by(_o.hash)
_USERS = (
    select(models.populations.c.name, _u.first, _u.count, _u.hashes)
    .join_from(models.users, models.populations)
    .where(models.populations.c.name == bindparam("population"), _u.first == bindparam("first"))
)
_TAKEN = (
    select(models.runs.c.id, _q.index, _q.count, _q.users, _q.charges)
    .join_from(models.participations, models.runs, models.runs.c.seq == _q.run_seq)
    .where(models.runs.c.id == bindparam("run"), _q.index.between(bindparam("first"), bindparam("last")))
    .order_by(_q.index)
)


@dataclass
class Frame:
    """Rows of the log, and the content that they name."""

    rows: list[dict[str, Any]]
    objects: list[bytes] = field(default_factory=list)
    # (population, first, count, hashes).
    users: list[tuple[str, int, int, bytes]] = field(default_factory=list)
    # (run, round, count, users, charges).
    participations: list[tuple[str, int, int, bytes, bytes | None]] = field(default_factory=list)
    signed: str | None = None  # the newest signed head when they were read

    @classmethod
    def after(cls, connection: Connection, end: int, signed: str | None, most: int = BATCH) -> Frame:
        """At most `most` rows after row `end`, with their content as the tables have it. signed: the newest head."""
        rows = [dict(row) for row in connection.execute(_ROWS, {"after": end, "most": most}).mappings()]
        return cls(rows, signed=signed).filled(connection)

    def filled(self, connection: Connection) -> Frame:
        """Itself, with the content that its rows name as the tables have it. What is missing there is missing here."""
        names, taken = set(), dict[str, tuple[int, int]]()
        for row in self.rows:
            action, run = row["action"], str(row["run"])
            with contextlib.suppress(AttributeError, LookupError, TypeError, ValueError):  # a row that no rule allows
                if action in _NAMED:
                    names.add(str(loads(row["body"])[_NAMED[action]]))
                if action == "round.commit":
                    first, last = taken.get(run, (int(row["round"]),) * 2)
                    taken[run] = min(first, row["round"]), max(last, row["round"])
                elif action == "users.register":
                    about = {"population": row["population"], "first": int(loads(row["body"])["first"])}
                    self.users += [tuple(each) for each in connection.execute(_USERS, about)]
                elif action == "population.odometers":
                    taken |= dict.fromkeys(loads(row["body"])["runs"], (0, 2**31 - 1))
        self.objects = objects(connection, names)
        for run, (first, last) in taken.items():
            about = {"run": run, "first": first, "last": last}
            self.participations += [tuple(each) for each in connection.execute(_TAKEN, about)]
        return self

    def encode(self) -> bytes:
        """As bytes, which `decode` reads."""
        said = {
            "rows": [[row[name] for name in _COLUMNS] for row in self.rows],
            "objects": [_text(content) for content in self.objects],
            "users": [[*place, _text(hashes)] for *place, hashes in self.users],
            "participations": [
                [*place, _text(users), None if charges is None else _text(charges)]
                for *place, users, charges in self.participations
            ],
            "signed": self.signed,
        }
        return zlib.compress(json.dumps(said, separators=(",", ":")).encode(), 6)

    @classmethod
    def decode(cls, data: bytes, start: chain.Head) -> tuple[Frame, chain.Head]:
        """(what `encode` made, where it ends), chained to `start`."""
        said = json.loads(zlib.decompress(data))
        rows = [dict(zip(_COLUMNS, values, strict=True)) for values in said["rows"]]
        end = linked(start, rows)
        users = [(name, first, count, _bytes(hashes)) for name, first, count, hashes in said["users"]]
        taken = [
            (run, index, count, _bytes(blob), None if charges is None else _bytes(charges))
            for run, index, count, blob, charges in said["participations"]
        ]
        return cls(rows, [_bytes(content) for content in said["objects"]], users, taken, said["signed"]), end


def objects(connection: Connection, names: Iterable[str]) -> list[bytes]:
    """The objects of these names that there are, by one query."""
    asked = sorted({*names} - {EMPTY})
    return [bytes(content) for content in connection.execute(_OBJECTS, {"names": asked}).scalars()] if asked else []


def linked(start: chain.Head, rows: list[dict[str, Any]]) -> chain.Head:
    """Number and chain rows after `start`; returns where they end."""
    for row in rows:
        row |= {"id": start.count + 1, "previous": start.hash}
        row["hash"] = chain.row_hash(row)
        start = chain.Head(start.ledger, row["id"], row["hash"])
    return start


class Segments:
    """The segments of one directory. Several threads and processes may append to it."""

    def __init__(self, directory: Path, key_file: Path) -> None:
        self.directory, self.key_file = directory, key_file
        self._key: bytes | None = None
        # (newest file, its size, where it ends), as they were last seen.
        self._known: tuple[Path, int, chain.Head] | None = None

    @classmethod
    def beside(cls, head_file: Path) -> Segments:
        """Those of the home whose head is held in `head_file`."""
        return cls(head_file.with_suffix(".segments"), head_file.with_suffix(".segments.key"))

    @property
    def there(self) -> bool:
        """Whether there is any."""
        return any(self._files())

    def set_aside(self) -> None:
        """Keep them under another name: what follows does not go on from them. Raises `LedgerError`."""
        if self.there:
            with self._writing():
                names = (self.directory.with_suffix(f".segments.before-{n}") for n in range(1, 10_000))
                self.directory.rename(next(name for name in names if not name.exists()))
                sync_directory(self.directory.parent)

    def follow(self, database: Database) -> chain.Head:
        """Append every row that the ledger has and these do not; returns where both end.

        Raises:
            LedgerError: they cannot be written, or the ledger does not go on from where they end.
        """
        with self._locked():
            end = self._end()
            with database.read() as connection:
                head = connection.execute(_HEAD).one()
                ends = chain.Head(head.ledger, head._mapping["count"], head.hash)
                if end is None:
                    end = chain.Head(ends.ledger, 0, chain.genesis(ends.ledger))
                if end.ledger != ends.ledger or end.count > ends.count or (end.count == ends.count and end != ends):
                    raise self._refuse(f"the ledger does not go on from row {end.count}, in which they end.")
                while end.count < ends.count:
                    end = self._append(end, Frame.after(connection, end.count, head.signed))
        return end

    def append(self, start: chain.Head, frame: Frame) -> chain.Head:
        """Append a frame of linked rows after `start`, where these end; returns where they end then."""
        with self._locked():
            self._end()
            return self._append(start, frame)

    def frames(self) -> Iterator[tuple[chain.Head, Frame]]:
        """(where it ends, frame) of each line, in order.

        Raises:
            LedgerError: there are none, one is missing, a line was changed, or they are sealed with another key.
        """
        end: chain.Head | None = None
        files = list(self._files())
        for path in files:
            with open(path, "rb") as file:
                start, key = self._header(path, file.readline())
                if key != _name_of(self._read_key()):
                    raise self._refuse(f"{path.name} is sealed with another key.", "the key of the home that wrote it")
                if end is None:
                    end = chain.Head(start.ledger, 0, chain.genesis(start.ledger))
                if start != end:
                    raise self._refuse(f"the segment with row {end.count + 1} is missing: {path.name} does not follow.")
                for line in file:
                    if not line.endswith(b"\n") and path == files[-1]:
                        break  # a crash cut it off before anybody was told of it
                    frame, end = self._open(path, end, line)
                    yield end, frame
        if end is None:
            raise self._refuse("there is none.", "the directory that `fieldfare ledger export` wrote")

    def heads(self) -> Iterator[chain.Head]:
        """Where each line ends, as it says without its key."""
        for path in self._files():
            lines = path.read_bytes().splitlines(keepends=True)
            start, _ = self._header(path, lines[0] if lines else b"")
            for line in lines[1:]:
                if line.endswith(b"\n"):
                    last, name, _ = self._fields(path, line, 3)
                    yield chain.Head(start.ledger, int(last), name)

    # -- one line --------------------------------------------------------------------------------------------

    def _append(self, start: chain.Head, frame: Frame) -> chain.Head:
        """Append and sync one line after `start`; returns where it ends."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        said = frame.rows[-1]["hash"] if frame.rows else ""
        end = linked(start, frame.rows)
        if end.hash != said:
            raise self._refuse(f"rows of the ledger after row {start.count} are missing, or were changed.")
        key, nonce = self._make_key(), secrets.token_bytes(_NONCE_BYTES)
        sealed = base64.b64encode(nonce + AESGCM(key).encrypt(nonce, frame.encode(), _place(start, end)))
        line = b"%d %s %s\n" % (end.count, end.hash.encode(), sealed)
        path, size = self._known[:2] if self._known is not None else (None, 0)
        if path is None or size >= SEGMENT_BYTES:
            path, size = self.directory / f"{start.count + 1:012d}{_SUFFIX}", 0
            header = f"{_MAGIC} {start.ledger} {start.count + 1} {start.hash} {_name_of(key)}\n"
            line = header.encode() + line
        with self._writing():
            with open(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            if not size:
                sync_directory(self.directory)
        self._known = path, size + len(line), end
        faults.point("ledger.segment.written")
        return end

    def _open(self, path: Path, start: chain.Head, line: bytes) -> tuple[Frame, chain.Head]:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        last, name, sealed = self._fields(path, line, 3)
        said = chain.Head(start.ledger, int(last), name)
        try:
            data = base64.b64decode(sealed, validate=True)
            nonce, data = data[:_NONCE_BYTES], data[_NONCE_BYTES:]
            frame, end = Frame.decode(AESGCM(self._read_key()).decrypt(nonce, data, _place(start, said)), start)
        except (InvalidTag, binascii.Error, KeyError, TypeError, ValueError, zlib.error):
            raise self._refuse(
                f"{path.name} was changed, or a line of it is missing, after row {start.count}."
            ) from None
        if end != said:
            raise self._refuse(f"{path.name} does not end in row {said.count} as it says.")
        return frame, end

    def _header(self, path: Path, line: bytes) -> tuple[chain.Head, str]:
        """(where the chain stands before the segment, name of its key)."""
        magic, ledger, first, previous, key = self._fields(path, line, 5)
        if magic != _MAGIC:
            raise self._refuse(f"{path.name} is no segment of this version.")
        return chain.Head(ledger, int(first) - 1, previous), key

    def _fields(self, path: Path, line: bytes, number: int) -> list[str]:
        fields = line.decode("ascii", "replace").split()
        if len(fields) != number or not fields[0 if number == 3 else 2].isdecimal():
            raise self._refuse(f"{path.name} is torn or was changed.")
        return fields

    # -- files -----------------------------------------------------------------------------------------------

    def _files(self) -> list[Path]:
        """The segments, in order."""
        return sorted(self.directory.glob(f"*{_SUFFIX}"))

    def _end(self) -> chain.Head | None:
        """Where the segments end; None where there is none. A line that a crash tore is cut off first."""
        while files := self._files():
            path = files[-1]
            size = path.stat().st_size
            if self._known is not None and self._known[:2] == (path, size):
                return self._known[2]
            header, lines, whole = _ends(path, size)
            with self._writing():
                if not lines:  # a crash came before its first rows
                    path.unlink()
                    sync_directory(self.directory)
                    continue
                if whole < size:
                    os.truncate(path, whole)
            ledger = self._header(path, header)[0].ledger
            last, name, _ = self._fields(path, lines[-1], 3)
            self._known = path, whole, chain.Head(ledger, int(last), name)
            return self._known[2]
        self._known = None
        return None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with contextlib.ExitStack() as held:
            with self._writing():
                self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                lock = os.open(self.directory / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
                held.callback(os.close, lock)
                held.enter_context(locked(lock))
            yield

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = f"cannot be written ({error.strerror}); the ledger itself is committed."
            raise self._refuse(why, "make room, then resume the run, or another directory") from error

    def _make_key(self) -> bytes:
        if not self.key_file.exists() and not self._files():
            with self._writing():
                replace_file(self.key_file, secrets.token_bytes(_KEY_BYTES), mode=0o600)
        return self._read_key()

    def _read_key(self) -> bytes:
        if self._key is None:
            try:
                self._key = self.key_file.read_bytes()
            except OSError as error:
                why = f"their key {self.key_file} cannot be read ({error.strerror})."
                nearest = "a copy of the key; without any, move the segments away, and they begin anew"
                raise self._refuse(why, nearest) from None
            if len(self._key) != _KEY_BYTES:
                raise self._refuse(f"{self.key_file} is no key of {_KEY_BYTES} bytes.", "the key's file")
        return self._key

    def _refuse(self, why: str, nearest: str = "another copy of them, or of the ledger") -> LedgerError:
        return LedgerCorrupt(f"segments {self.directory}", why, nearest)


def _ends(path: Path, size: int) -> tuple[bytes, list[bytes], int]:
    """(first line, whole lines of which the last is that of the file, where they end) of a segment of `size` bytes."""
    with open(path, "rb") as file:
        header, reach = file.readline(), _TAIL
        while True:
            begin = max(len(header), size - reach)
            file.seek(begin)
            tail = file.read()
            whole = tail.rfind(b"\n") + 1
            lines = tail[:whole].splitlines()
            # The first may lack its beginning.
            if begin == len(header) or len(lines) > 1:
                return header, lines, begin + whole
            reach *= 8


def _place(start: chain.Head, end: chain.Head) -> bytes:
    """What a line is bound to: no line fits elsewhere."""
    return f"{_MAGIC} {start.ledger} {start.count} {start.hash} {end.count} {end.hash}".encode()


def _name_of(key: bytes) -> str:
    return hashlib.sha256(b"fieldfare.segments.key\0" + key).hexdigest()[:32]


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
