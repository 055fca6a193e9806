"""The audit chain: hash_n = SHA-256(hash_{n-1} || canonical JSON of row n).

Nobody can change, drop or reorder a row without changing every hash after it. That leaves the end: whoever can write
the database can cut it off or put an old copy back. So a coordinator keeps the end it last saw outside of the
database (`HeadFile`), and refuses a ledger that is behind it.
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


def genesis(ledger: str) -> str:
    """What the first row of the ledger of this id continues: no row of one ledger fits into another."""
    return hashlib.sha256(b"fieldfare.ledger.v1\0" + ledger.encode()).hexdigest()


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def canonical(value: Mapping[str, Any]) -> str:
    """JSON with sorted keys and no spaces; refuses NaN and infinity, which JSON cannot say."""
    return _CANONICAL.encode(value)


def row_hash(row: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of an audit row given by column name; `row["previous"]` ties it to the row before."""
    content = canonical({name: row[name] for name in _HASHED})
    try:
        previous = bytes.fromhex(row["previous"])
    except (ValueError, TypeError):
        previous = repr(row["previous"]).encode()  # no writer wrote that, so no hash that one wrote will fit
    return hashlib.sha256(previous + content.encode()).hexdigest()


_HASHED = ("id", "at", "actor", "action", "population", "run", "round", "event", "body")


class HeadFile:
    """The end of the chain as this coordinator last saw it, in a file outside of the database."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Head | None:
        """The held head, or None if nothing was held yet. Raises `LedgerError` on a file that makes no sense."""
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
        """Hold `head`, atomically; never moves backwards. After a power cut an older one may be held, which is safe."""
        held = self.read()
        if held is not None and held.ledger == head.ledger and held.count > head.count:
            return
        content = canonical({"ledger": head.ledger, "count": head.count, "hash": head.hash}) + os.linesep
        try:
            replace_file(self.path, content.encode(), at_once=False)
        except OSError as error:
            raise LedgerError(
                f"ledger head {self.path}",
                f"cannot be written ({error.strerror}); the ledger itself is committed.",
                "make room, then resume the run",
            ) from error
