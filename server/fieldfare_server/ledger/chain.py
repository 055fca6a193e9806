"""The journal's chain: hash_n = SHA-256(hash_{n-1} || canonical JSON of row n).

A row that is changed, dropped or moved changes every hash after it. That leaves the end of the chain: a writer of the
database can cut it off or put an old copy back. So a coordinator keeps the end that it last saw outside the database
(`HeadFile`), and refuses a ledger that is behind it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fieldfare.errors import LedgerError
from fieldfare_server.files.atomic import replace_file


@dataclass(frozen=True)
class Head:
    """Where the chain of one ledger ends: `count` rows, the last of them with this `hash` (hex)."""

    ledger: str
    count: int
    hash: str


def sha256(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def genesis(ledger: str) -> str:
    """The hash that the first row of this ledger continues, so that no row of one ledger fits into another."""
    return sha256(b"fieldfare.ledger.v1\0" + ledger.encode())


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def canonical(value: Mapping[str, Any]) -> str:
    """JSON with sorted keys and no spaces. Raises ValueError on NaN and infinity, which JSON cannot say."""
    return _CANONICAL.encode(value)


def row_hash(row: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of a journal row given by column name; `row["previous"]` ties it to the row before."""
    content = canonical({name: row[name] for name in _HASHED})
    try:
        previous = bytes.fromhex(row["previous"])
    except (ValueError, TypeError):
        previous = repr(row["previous"]).encode()  # not written by this program, so no hash will fit
    return sha256(previous + content.encode())


_HASHED = ("id", "at", "actor", "action", "population", "run", "round", "event", "body")


class HeadFile:
    """The end of the chain as this coordinator last saw it, in a file outside the database."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Head | None:
        """The held head, or None if there is no file yet. Raises `LedgerError` on a file that cannot be read."""
        try:
            data = json.loads(self.path.read_bytes())
            return Head(str(data["ledger"]), int(data["count"]), str(data["hash"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LedgerError(
                f"ledger head {self.path}",
                f"cannot be read ({error}), so that a ledger put back from an old copy would go unnoticed.",
                "check the ledger with `fieldfare verify`, then remove the file",
            ) from None

    def write(self, head: Head) -> None:
        """Hold `head`, atomically, unless a later one is held. A power cut may leave an older one, which is safe."""
        held = self.read()
        if held is not None and held.ledger == head.ledger and held.count > head.count:
            return
        content = canonical({"ledger": head.ledger, "count": head.count, "hash": head.hash}) + os.linesep
        try:
            # A command may reach a ledger on another machine before this one has a state directory.
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self.path, content.encode(), at_once=False)
        except OSError as error:
            raise LedgerError(
                f"ledger head {self.path}",
                f"cannot be written ({error.strerror}); the ledger itself is committed.",
                "make room, then resume the run",
            ) from error
