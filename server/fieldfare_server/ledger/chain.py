"""The journal's chain: hash_n = SHA-256(hash_{n-1} || canonical JSON of row n).

A row that is changed, dropped or moved changes every hash after it. That leaves the end of the chain: a writer of the
database can cut it off or put an old copy back. So a coordinator keeps the end that it last saw outside the database
(`HeadFile`), and refuses a ledger that is behind it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from fieldfare.atomic import alone_at, make_file, replace_file, sync_directory
from fieldfare.errors import LedgerError
from fieldfare.signatures import public_key
from fieldfare.signed_head import KEY_BYTES, SignedHead


@dataclass(frozen=True)
class Head:
    """Where the chain of one ledger ends: `count` rows, the last of them with this `hash` (hex)."""

    ledger: str
    count: int
    hash: str


def sha256(data: bytes) -> str:
    """Return SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def genesis(ledger: str) -> str:
    """Return the hash that a ledger's first row continues: no row of one ledger fits into another."""
    return sha256(b"fieldfare.ledger.v1\0" + ledger.encode())


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def canonical(value: Mapping[str, object]) -> str:
    """Write JSON with sorted keys and no spaces. Raises ValueError on NaN and infinity, which JSON cannot say."""
    return _CANONICAL.encode(value)


def row_hash(row: Mapping[str, Any]) -> str:
    """Hash a journal row, given by column name: SHA-256 in hex; `row["previous"]` ties it to the row before."""
    content = _content(row)
    try:
        previous = bytes.fromhex(row["previous"])
    except (ValueError, TypeError):
        previous = repr(row["previous"]).encode()  # not written by this program, so no hash will fit
    return sha256(previous + content.encode())


HASHED = ("action", "actor", "at", "body", "event", "id", "population", "round", "run")
_values = itemgetter(*HASHED)
_SHAPE = "{" + ",".join(f'"{name}":%s' for name in HASHED) + "}"
_text = json.encoder.encode_basestring_ascii


def _content(row: Mapping[str, object]) -> str:
    """`canonical` of the columns that are hashed; a third of its time where each has the type of its column.

    A journal of millions of rows is hashed row by row, and most of that time would be the encoder's.
    """
    action, actor, at, body, event, number, population, round, run = _values(row)
    if not (
        type(action) is type(actor) is type(body) is type(event) is str
        and (type(at) is float and math.isfinite(at))
        and type(number) is int
        and (population is None or type(population) is str)
        and (round is None or type(round) is int)
        and (run is None or type(run) is str)
    ):
        return canonical({name: row[name] for name in HASHED})
    return _SHAPE % (
        _text(action),
        _text(actor),
        repr(at),
        _text(body),
        _text(event),
        number,
        "null" if population is None else _text(population),
        "null" if round is None else round,
        "null" if run is None else _text(run),
    )


class HeadFile:
    """The end of the chain as this machine last saw it, signed, in a file outside the database; and the key next to it.

    `fieldfare.signed_head` has the format.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._key_path = path.with_suffix(".key")
        self._next_path = path.with_suffix(".next.key")
        self._key: bytes | None = None
        # What the file holds, with its stamp, as this process read or wrote it last; and what it signed last.
        self._held: Head | None = None
        self._stamp: tuple[int, int] | None = None
        self._signed: tuple[Head, SignedHead] | None = None

    def held(self) -> Head | None:
        """Return what the file holds, read again only where another process has written it. Raises as `read`."""
        stamp = self._now()
        if stamp != self._stamp:
            self._held, self._stamp = self.read(), stamp
        return self._held

    def _now(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns

    def read(self) -> Head | None:
        """Return the held head, or None if there is no file yet.

        Raises `LedgerError` on a file that cannot be read, or that this machine's key did not sign.
        """
        try:
            content = self.path.read_text(encoding="utf-8")
            signed = SignedHead.parse(content)
            if signed.key != public_key(self._key_path.read_bytes()):
                raise ValueError("it is signed with another key than the one beside it")
            return Head(signed.ledger, signed.count, signed.hash)
        except FileNotFoundError as error:
            if error.filename == str(self.path):
                return None
            why = f"{self._key_path.name} is missing"
        except (OSError, ValueError, KeyError, TypeError) as error:
            why = str(error)
        raise LedgerError(
            f"ledger head {self.path}",
            f"cannot be read ({why}), so that a ledger put back from an old copy would go unnoticed.",
            "`fieldfare verify --head` with a head that was kept elsewhere, which holds it here again",
            code="head-unreadable",
        )

    def key(self) -> bytes:
        """Return this machine's private key, 32 bytes, made at the first call. Raises `LedgerError` on a full disk."""
        if self._key is None:
            self._key = self._load_key(self._key_path)
        return self._key

    def successor(self) -> HeadFile:
        """Return this file as the next key will sign it, which lies beside it until `adopt`, whatever happens."""
        after = HeadFile(self.path)
        after._key = self._load_key(self._next_path)
        return after

    def adopt(self) -> None:
        """Make the next key the key. Raises OSError."""
        self._next_path.replace(self._key_path)
        sync_directory(self._key_path.parent)
        self._key = self._signed = None

    def sign(self, head: Head) -> SignedHead:
        """Sign `head` with this machine's key, which is made at the first call. Raises `LedgerError` on a full disk."""
        if self._signed is None or self._signed[0] != head:  # a commit shows it to readers, then holds it here
            self._signed = head, SignedHead.of(head.ledger, head.count, head.hash, self.key())
        return self._signed[1]

    def _load_key(self, path: Path) -> bytes:
        try:
            # A command may reach a ledger on another machine before this one has a state directory.
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not path.exists():
                # Several processes may meet here: the key is the one that stayed, never the one that was offered.
                with contextlib.suppress(FileExistsError):
                    make_file(path, secrets.token_bytes(KEY_BYTES))
            return path.read_bytes()
        except OSError as error:
            raise LedgerError(
                f"key of the ledger's head {path}",
                f"cannot be made or read ({error.strerror}).",
                "a state directory of this user's own",
            ) from error

    def write(self, head: Head, *, again: bool = False) -> None:
        """Hold `head`, atomically, unless a later one is held. A power cut may leave an older one, which is safe.

        again: whatever is held, and even where that cannot be read.
        """
        if head.count == 0:
            return  # nothing to lose, and the format has no row 0
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Several processes of a machine share the file: the slower one must not put its older head back.
            with alone_at(self.path):
                if not again:
                    held = self.held()
                    if held is not None and held.ledger == head.ledger and held.count > head.count:
                        return
                replace_file(self.path, f"{self.sign(head)}{os.linesep}".encode(), at_once=again)
                self._held, self._stamp = head, self._now()
        except OSError as error:
            raise LedgerError(
                f"ledger head {self.path}",
                f"cannot be written ({error.strerror}); the ledger itself is committed.",
                "make room, then resume the run, or the same again",
            ) from error


def held_heads(files: Iterable[HeadFile]) -> list[Head]:
    """Read what these files hold, where there is one. Raises as `HeadFile.read`."""
    return [head for file in files if (head := file.read()) is not None]
