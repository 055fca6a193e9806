"""Transactions on SQLite files that must never be made anew: what a node has charged, what a blinder has answered."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote


@contextmanager
def transaction(*files: Path) -> Iterator[sqlite3.Connection]:
    """Hold files alone; what the block wrote is on the disk when it has ended, and nothing of it after an exception.

    files: of two, the other is `second` in SQL. A commit is in both or in neither, whenever the process dies.
    Raises `sqlite3.Error`, also where there is no file, or another process holds it for a minute.
    """
    # rw: an empty file never takes the place of a lost one.
    where, *second = (f"file:{quote(os.fsencode(each.absolute()))}?mode=rw" for each in files)
    with closing(sqlite3.connect(where, uri=True, timeout=60, isolation_level=None)) as journal:
        for each in second:
            journal.execute("ATTACH ? AS second", (each,))
        journal.execute("PRAGMA synchronous = EXTRA")  # a commit returns when file and directory are on the disk
        journal.execute("BEGIN IMMEDIATE")
        yield journal
        journal.execute("COMMIT")  # what was not committed is taken back where it is closed
