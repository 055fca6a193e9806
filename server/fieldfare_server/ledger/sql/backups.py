"""Copies of the ledger that are made while it is written to: each is whole, of one moment, and opens.

SQLite copies itself (its backup API); PostgreSQL is copied by `pg_dump`, in one snapshot. Keys and checkpoints of runs
are not copied: a backup outlives the destruction of a key.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from sqlalchemy.engine import URL

from fieldfare.atomic import sync_directory
from fieldfare.errors import LedgerError, NotInstalled, Unsupported, Unwritable
from fieldfare_server.ledger.sql.database import Database, understood
from fieldfare_server.ledger.sql.journal import Journal

SUFFIXES = (".sqlite3", ".dump")
# Most seconds that `pg_dump` may take.
DUMP_SECONDS = 3_600.0


def make(url: str, directory: Path, *, keep: int = 7) -> Path:
    """Copy the ledger at `url` into `directory`, remove all but the newest `keep` copies there, and return the new one.

    Raises:
        BadInput: the directory cannot be written, or PostgreSQL's `pg_dump` is not installed.
        LedgerError: there is no ledger, or its copy cannot be opened.
    """
    parsed = understood(url)
    copy, suffix = (_copy_sqlite, ".sqlite3") if parsed.get_backend_name() == "sqlite" else (_dump_postgres, ".dump")
    target = directory / f"ledger-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}{suffix}"
    part = target.with_name(f".{target.name}.part")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        copy(parsed, part)
        with open(part, "rb") as file:
            os.fsync(file.fileno())
        part.replace(target)
        sync_directory(directory)
    except OSError as error:
        raise Unwritable(
            f"backup in {directory}", f"cannot be written ({error.strerror}).", "another directory"
        ) from None
    finally:
        for rest in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(OSError):
                part.with_name(part.name + rest).unlink()
    for old in _known(directory)[:-keep]:
        old.unlink(missing_ok=True)
    return target


def age(directory: Path) -> float:
    """Seconds since the newest backup in `directory` was made; infinity without one. Raises OSError."""
    times = [path.stat().st_mtime for path in _known(directory)]
    return max(0.0, time.time() - max(times)) if times else float("inf")


def _known(directory: Path) -> list[Path]:
    """The backups, the oldest first: their names have the time."""
    return sorted(path for path in directory.iterdir() if path.name.startswith("ledger-") and path.suffix in SUFFIXES)


def _copy_sqlite(url: URL, target: Path) -> None:
    source = Path(url.database or "").absolute()
    name = f"file:{quote(str(source))}?mode=rw"
    try:
        with (
            contextlib.closing(sqlite3.connect(name, uri=True, timeout=60)) as ledger,
            contextlib.closing(sqlite3.connect(target)) as copy,
        ):
            # All pages in one step: they are of one moment, and in WAL mode no writer waits.
            ledger.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        if (code := getattr(error, "sqlite_errorcode", None)) == sqlite3.SQLITE_FULL:  # the copy's disk
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
        if code == sqlite3.SQLITE_IOERR_SHMSIZE:  # the ledger's own
            raise LedgerError(f"ledger {source}", "its disk is full.", "make room", code="disk-full") from None
        why = f"the database refused: {error}."
        raise LedgerError(f"backup of {source}", why, "a ledger that can be read") from None
    # A copy that does not end in the row that it should end in is none.
    opened = Database(f"sqlite:///{target}")
    try:
        Journal(opened).check()
    finally:
        opened.close()


def _dump_postgres(url: URL, target: Path) -> None:
    program = shutil.which("pg_dump")
    if program is None:
        raise NotInstalled(
            "backup of a PostgreSQL ledger", "pg_dump is not installed here.", "the database's own machine"
        )
    if "sslpassword" in url.query:  # it has no variable, as PGPASSWORD is one
        why = "pg_dump would show its sslpassword to every account of this machine."
        raise Unsupported("backup of a PostgreSQL ledger", why, "an sslkey without a password")
    shown = url.set(drivername="postgresql", password=None).render_as_string()
    secret = {} if url.password is None else {"PGPASSWORD": str(url.password)}
    try:
        done = subprocess.run(  # noqa: S603  (a fixed program, no shell)
            [program, "--format=custom", f"--file={target}", f"--dbname={shown}"],
            env={**os.environ, **secret},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DUMP_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LedgerError(f"backup of {shown}", f"pg_dump took more than {DUMP_SECONDS:g} s.") from None
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise LedgerError(f"backup of {shown}", f"pg_dump failed: {why}.", "the owner's URL, whose rights are enough")
