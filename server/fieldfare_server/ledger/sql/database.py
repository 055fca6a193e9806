"""Transactions on SQLite and PostgreSQL with the same meaning: writers one after another, all or nothing, durable.

SQLite: WAL, synchronous=FULL, `BEGIN IMMEDIATE`. PostgreSQL: every writer first locks the one row of `head`,
and then reads what the writer before it has committed. Every write carries a random event number that its
journal row keeps (unique), so that a commit whose answer got lost is recognised instead of repeated.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from sqlalchemy import Connection, QueuePool, Row, bindparam, create_engine, event, inspect, make_url, select, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.sql.expression import SelectBase

from fieldfare.errors import BadInput, LedgerError
from fieldfare_flower import logs
from fieldfare_server import faults
from fieldfare_server.ledger.sql import models

T = TypeVar("T")

# The setting of a transaction that holds the secret of the token in whose name the API writes (`roles`).
CALLER = "fieldfare.token"


def understood(url: str) -> URL:
    """Return the URL of a ledger, or of the SQLite file at a path. Raises `BadInput` where it is neither."""
    if not isinstance(url, str):
        raise BadInput(f"ledger URL = {url!r}", "is not text.", "sqlite:///ledger.sqlite3", code="ledger-url")
    shown = url.encode(errors="backslashreplace").decode()
    if shown != url:  # Python's stand-ins for bytes that the locale's encoding does not know
        why, near = "its path is not text in this process's encoding.", "PYTHONUTF8=1, or a path in UTF-8"
        what = "ledger URL" if "@" in url else f"ledger {shown!r}"  # a URL may have a password
        raise BadInput(what, why, near, code="ledger-path-encoding")
    try:
        parsed = make_url(url if "://" in url else f"sqlite:///{url}")
    except (ArgumentError, ValueError):
        raise BadInput("ledger URL", "cannot be understood.", "sqlite:///ledger.sqlite3", code="ledger-url") from None
    if isinstance(secret := parsed.query.get("password"), str):  # in its own place it is hidden where URLs are shown
        parsed = parsed.difference_update_query(["password"]).set(password=secret)
    return parsed


class Database:
    """One database and how to write to it. Thread-safe; not to be shared across a fork."""

    def __init__(self, url: str, *, create: bool = False, patience: float = 60.0) -> None:
        """Set up the connections; none is opened yet.

        Args:
            url: `sqlite:///PATH`, `postgresql://...` or a path to an SQLite file.
            create: make the SQLite file if there is none.
            patience: seconds to wait for a database that went away.

        Raises:
            BadInput: another kind of URL.
        """
        parsed = understood(url)
        backend = parsed.get_backend_name()
        if backend == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        elif backend != "sqlite" or not parsed.database or parsed.database == ":memory:":
            raise BadInput(
                f"ledger URL {logs.redacted(parsed.render_as_string())}",
                "a ledger is an SQLite file or a PostgreSQL database.",
                "sqlite:///ledger.sqlite3",
                code="ledger-database-kind",
            )
        self.name = unquote(logs.redacted(parsed.render_as_string()))  # a path with an umlaut as people know it
        self.patience = patience
        self.path = Path(parsed.database or "").absolute() if backend == "sqlite" else None
        self._inode: tuple[int, int] | None = None
        self._narrow: bool | None = None
        self._caller: ContextVar[str | None] = ContextVar("caller", default=None)
        if self.path is not None:
            self.engine = create_engine(
                "sqlite+pysqlite://", creator=self._connect_sqlite, poolclass=QueuePool, hide_parameters=True
            )
            if create:
                self._make_file(self.path)
            event.listen(self.engine, "connect", _set_up_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)
        else:
            self.engine = create_engine(
                parsed,
                # Errors quote their statement, and its parameters are hashes of users and of tokens.
                hide_parameters=True,
                isolation_level="READ COMMITTED",
                connect_args=_POSTGRES,
            )

    @property
    def exists(self) -> bool:
        """Whether there is something to open (an empty SQLite file counts as nothing)."""
        return self.path is None or (self.path.is_file() and self.path.stat().st_size > 0)

    @property
    def is_empty(self) -> bool:
        """Whether it holds none of the ledger's tables. Raises `LedgerError` where it cannot be asked."""
        try:
            names = set(inspect(self.engine).get_table_names())
        except (SQLAlchemyError, UnicodeError) as error:
            raise self.error(error) from error
        return not names & ({table.name for table in models.metadata.sorted_tables} | {"alembic_version"})

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A read-only transaction on one consistent snapshot.

        Waits for a database that cannot be reached. Raises `LedgerError` if the database goes away in the
        middle, or is corrupt.
        """
        try:
            with self._connect(_SNAPSHOT) as connection, connection.begin():
                self._check_file()
                yield connection
        except (SQLAlchemyError, UnicodeError) as error:
            raise self.error(error) from error

    @contextmanager
    def presenting(self, secret: str | None) -> Iterator[None]:
        """What this thread writes inside, it writes in the name of the token of this secret (`roles`)."""
        before = self._caller.set(secret)
        try:
            yield
        finally:
            self._caller.reset(before)

    def write(self, work: Callable[[Connection, str, Row[Any]], T]) -> T:
        """Run `work(connection, event, head)` in one serialised transaction and commit it durably.

        `head` is the row of that table, which the transaction has locked.

        If the database goes away, the transaction is tried again for `patience` seconds, and on a full disk
        of this machine for `FULL_DISK` seconds. If an earlier try was committed after all (its event is in
        the journal), that try's result is returned. Raises `LedgerError` when the database stays away or
        full, or is read-only or corrupt.
        Then nothing was committed, unless the answer to the commit itself was lost: the ledger shows on
        resume which it is.
        """
        event_number = secrets.token_hex(16)
        began = time.monotonic()
        pause = 0.05
        tried: list[T] = []
        while True:
            try:
                with self._open(_WRITE) as connection:
                    if self.path is not None:
                        connection = connection.execution_options(fieldfare_write=True)
                    with connection.begin():
                        self._check_file()
                        head = connection.execute(_LOCK_BY_FUNCTION if self.narrow(connection) else _LOCK).one()
                        faults.point("ledger.transaction.begun")
                        secret = self._caller.get()
                        if secret is not None and self.path is None:
                            # A parameter: PostgreSQL's log and its table of sessions show no secret.
                            connection.execute(_PRESENT, {"secret": secret})
                        if tried and connection.execute(_HAPPENED, {"event": event_number}).first() is not None:
                            return tried[-1]
                        tried.append(work(connection, event_number, head))
                        faults.point("ledger.transaction.worked")
                faults.point("ledger.transaction.committed")
                return tried[-1]
            except (SQLAlchemyError, UnicodeError) as error:
                if getattr(getattr(error, "orig", None), "sqlstate", None) == _LOCKED:
                    self._free()
                patience = min(self.patience, FULL_DISK) if self.path is not None and _is_full(error) else self.patience
                if not _went_away(error) or time.monotonic() + pause > began + patience:
                    raise self.error(error) from error
                time.sleep(pause)
                pause = min(2 * pause, 2.0)

    def narrow(self, connection: Connection) -> bool:
        """Whether rows are appended by the owner's function: where PostgreSQL's roles are apart (`roles`)."""
        if self._narrow is None:
            self._narrow = self.path is None and bool(connection.execute(_HAS_FUNCTION).scalar())
        return self._narrow

    def _free(self) -> None:
        """End the sessions that hold the head and do nothing with it."""
        with contextlib.suppress(SQLAlchemyError), self.engine.begin() as connection:
            if self.narrow(connection):
                connection.execute(_FREE)

    def _connect(self, begin: bytes) -> Connection:
        deadline = time.monotonic() + self.patience
        pause = 0.05
        while True:
            try:
                return self._open(begin)
            except SQLAlchemyError as error:
                if not _went_away(error) or time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 2.0)

    def _open(self, begin: bytes) -> Connection:
        """A connection; of PostgreSQL, one that answers and in which `begin` has begun a transaction."""
        for _ in range(_POOLED + 1):
            connection = self.engine.connect()
            # One round trip says whether it lives, sets the isolation and begins: psycopg takes one for each.
            if self.path is not None or self._begins(connection, begin):
                return connection
            # The pool makes a new one in its place, and raises if it cannot.
            connection.invalidate()
            connection.close()
        why, near = "the database begins no transaction.", "put the database right"
        raise LedgerError(f"ledger {self.name}", why, near, code="database-no-transaction")

    def _begins(self, connection: Connection, begin: bytes) -> bool:
        link: Any = connection.connection.driver_connection
        dbapi: Any = self.engine.dialect.loaded_dbapi
        try:
            return bool(link.pgconn.exec_(begin).status == _COMMAND_OK)
        except dbapi.Error:
            return False

    def _connect_sqlite(self) -> sqlite3.Connection:
        # mode=rw: otherwise SQLite makes an empty file where the ledger was just removed.
        return sqlite3.connect(
            f"file:{quote(str(self.path))}?mode=rw",
            uri=True,
            timeout=_BUSY,
            check_same_thread=False,
            isolation_level=None,
        )

    def _make_file(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise LedgerError(
                f"ledger {self.name}",
                f"its file cannot be made or written ({error.strerror}).",
                "a directory that can be written",
                code="database-unwritable",
            ) from None

    def error(self, error: Exception) -> LedgerError:
        """The `LedgerError` for a failed statement."""
        cause = str(getattr(error, "orig", None) or error).strip().splitlines()
        if isinstance(error, OperationalError) and self.path is None and getattr(error.orig, "sqlstate", None) is None:
            return LedgerError(
                f"ledger {self.name}",
                f"the database cannot be reached: {cause[0] if cause else 'no answer'}.",
                "start it and resume the run, or name another with --ledger; what was committed is kept",
                code="database-away",
            )
        if getattr(getattr(error, "orig", None), "sqlstate", None) == _NO_RIGHT:
            return LedgerError(
                f"ledger {self.name}",
                f"this role of the database has no right to do that: {cause[0]}.",
                "as the administrator, whose FIELDFARE_LEDGER_FILE is admin/ledger.url; `fieldfare doctor` shows a "
                "role's part",
                code="database-no-right",
            )
        if getattr(getattr(error, "orig", None), "sqlite_errorcode", 0) & 0xFF in _UNWRITABLE:
            return LedgerError(
                f"ledger {self.name}",
                "its directory cannot be written, which SQLite needs even to read.",
                "a directory that can be written",
                code="database-unwritable",
            )
        if _is_full(error):
            return LedgerError(
                f"ledger {self.name}",
                "its disk is full.",
                "make room, then the same again; what was committed is kept",
                code="disk-full",
            )
        return LedgerError(
            f"ledger {self.name}",
            f"the database refused: {cause[0] if cause else type(error).__name__}.",
            "put the database right, then the same again; what was committed is kept",
            code="database-refused",
        )

    def _check_file(self) -> None:
        # SQLite goes on writing to a file that was deleted or replaced under it, and those charges would be lost.
        if self.path is None:
            return
        try:
            status = os.stat(self.path)
        except OSError as error:
            raise LedgerError(
                f"ledger {self.name}", f"its file is gone ({error.strerror}).", "put it back", code="database-gone"
            ) from None
        inode = (status.st_dev, status.st_ino)
        if self._inode is None:
            self._inode = inode
        elif self._inode != inode:
            why = "its file was replaced while it was open."
            raise LedgerError(f"ledger {self.name}", why, "open it again", code="database-replaced")


def fetch(connection: Connection, statement: SelectBase, **values: object) -> list[dict[str, Any]]:
    """All rows of a statement that was made once, by the names of their columns, in the transaction of `connection`.

    The driver's own cursor takes half of the time of SQLAlchemy's. It turns no value into its column's type, so an edit
    shows as the database has it. No parameter is a list.
    """
    link: Any = connection.connection
    dialect: Any = connection.dialect
    base = dialect.loaded_dbapi.Error
    sql, names, places, known = _compiled(statement, dialect)
    given: Any = {**known, **values}
    cursor = link.cursor()
    try:
        cursor.execute(sql, given if places is None else [given[name] for name in places])
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    except base as error:
        if gone := dialect.is_disconnect(error, link, cursor):
            connection.invalidate(error)
        raise DBAPIError.instance(
            sql, None, error, base, hide_parameters=True, connection_invalidated=gone, dialect=dialect
        ) from error
    finally:
        cursor.close()


@lru_cache(maxsize=64)
def _compiled(statement: SelectBase, dialect: Any) -> tuple[str, Sequence[str], Sequence[str] | None, Any]:
    """A statement's text, columns, parameters in their order where they have no names, and their own values."""
    made: Any = statement.compile(dialect=dialect)
    return str(made), statement.selected_columns.keys(), made.positiontup, made.params


_LOCK = select(models.head).with_for_update()
_LOCK_BY_FUNCTION = text("SELECT * FROM ledger_head()")
_HAS_FUNCTION = text("SELECT to_regprocedure('ledger_head()') IS NOT NULL")
_FREE = text("SELECT ledger_free()")
# Finds something if the transaction with this event number was committed.
_HAPPENED = select(models.journal.c.id).where(models.journal.c.event == bindparam("event"))
_LOCKED = "55P03"
_SNAPSHOT, _WRITE = b"BEGIN ISOLATION LEVEL REPEATABLE READ", b"BEGIN ISOLATION LEVEL READ COMMITTED"
# Most connections that SQLAlchemy keeps.
_POOLED = 15
# libpq's PGRES_COMMAND_OK; psycopg is imported where there is a PostgreSQL ledger only.
_COMMAND_OK = 1
_NO_RIGHT = "42501"
_PRESENT = text(f"SELECT set_config('{CALLER}', :secret, true)")

# Seconds to wait for another writer.
_BUSY = 60.0
# Seconds for which a write waits where this machine's disk is full, before the refusal tells somebody to make room.
FULL_DISK = 2.0

_POSTGRES = {
    # Of each try; psycopg waits at least 2 seconds.
    "connect_timeout": 2,
    "application_name": "fieldfare",
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    # Keepalives watch idle connections only: without this, a statement that is under way when the network
    # fails waits a quarter of an hour.
    "tcp_user_timeout": 20_000,
    # A writer that stops in the middle of a transaction must not block all others for ever.
    "options": "-c synchronous_commit=on -c lock_timeout=20s -c idle_in_transaction_session_timeout=60s",
}


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    deadline = time.monotonic() + _BUSY
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:
            # Where others make the same new file a WAL now, SQLite gives up at once, without waiting its timeout.
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.execute("PRAGMA trusted_schema = OFF")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get("fieldfare_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _went_away(error: Exception) -> bool:
    """Whether waiting may help: the connection failed, as opposed to: the database refused the statement."""
    if not isinstance(error, DBAPIError) or isinstance(error, IntegrityError):
        return False
    if isinstance(error.orig, sqlite3.Error):
        # A full disk may have room again; a lock was waited for already.
        return _is_full(error)
    state = getattr(error.orig, "sqlstate", None)
    return error.connection_invalidated or state is None or state[:2] == "08" or state in _TRANSIENT


# The low bytes of SQLite's codes: a reader of a write-ahead log makes files beside it.
_UNWRITABLE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


def _is_full(error: Exception) -> bool:
    cause = getattr(error, "orig", None)
    return getattr(cause, "sqlite_errorcode", None) in _FULL or getattr(cause, "sqlstate", None) == "53100"


# The second: no room for the index of the write-ahead log, which a reader makes too.
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)

# Shutdowns and start-up, serialisation failures, deadlocks, lock timeouts; too little disk, memory or
# connections; a standby that is not promoted yet.
_TRANSIENT = ("57P01", "57P02", "57P03", "40001", "40P01", "55P03", "53000", "53100", "53200", "53300", "25006")
