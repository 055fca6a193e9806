"""Schema versions: read the version of a database, and upgrade it to this program's.

Alembic is imported only to change a schema: reading a ledger must not wait for it.
"""

from __future__ import annotations

import hashlib
import pkgutil
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from sqlalchemy import Connection, NullPool, column, create_engine, inspect, text

from fieldfare.errors import LedgerError, LedgerVersion, NoLedger
from fieldfare_server.ledger import chain
from fieldfare_server.ledger.sql import roles
from fieldfare_server.ledger.sql.database import Database, fetch

# The version from which on every row of the log is of one format.
ONE_FORMAT = "0006"
LOCATION = Path(__file__).parent / "migrations"

# The digest of `_fresh_schema`, as `damage` takes it: a schema that has it need not be compared with another, to make
# which takes Alembic and a fifth of a second. Any other is compared, so a digest out of date costs that time alone.
_AS_MADE = "e5af42bc8005a5835665a56ded91dcb2f7b73bf0146ee6d6815d3376bb602f02"

# Alembic keeps the migration that it runs in globals of its module, so a process runs one at a time.
_ONE = threading.Lock()


def _run(connection: Connection, target: str) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(LOCATION))
    config.attributes["connection"] = connection
    with _ONE:
        command.upgrade(config, target)


def latest() -> str:
    """The version this program writes."""
    revisions = _revisions(LOCATION)
    if not revisions:
        raise LedgerError("ledger migrations", "none are installed with this program.", "install fieldfare again")
    return revisions[-1]


@lru_cache(maxsize=2)
def _revisions(location: Path) -> tuple[str, ...]:
    """The versions in order: the numbers that the files of migrations begin with."""
    names = sorted(module.name for module in pkgutil.iter_modules([str(location / "versions")]))
    return tuple(name.partition("_")[0] for name in names)


def version(connection: Connection) -> str | None:
    """The version of the database, or None if it has none."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def known(revision: str) -> bool:
    """Whether this program can upgrade from `revision`."""
    return revision in _revisions(LOCATION)


def upgrade(
    database: Database, target: str = "head", convert: Callable[[Connection], chain.Head | None] | None = None
) -> chain.Head | None:
    """Upgrade to version `target` in one transaction; a second process waits for the first.

    convert: brings a ledger from before `ONE_FORMAT` into that format, in the same transaction; returns where its log
    ends then, and so does this function.
    """
    with database.engine.connect() as connection:
        if database.path is not None:
            connection = connection.execution_options(fieldfare_write=True)
        with connection.begin():
            if database.path is None:
                connection.execute(text("SELECT pg_advisory_xact_lock(7421580926)"))
            before = version(connection)
            _run(connection, target)
            return convert(connection) if convert and before is not None and before < ONE_FORMAT else None


def damage(connection: Connection) -> list[str]:
    """Names of tables, indices and guards that differ from what the migrations make: rules may go unenforced."""
    if connection.dialect.name == "sqlite":
        schema = _sqlite_schema(connection)
        whole = hashlib.sha256(repr(sorted(schema)).encode()).hexdigest() == _AS_MADE
        return [] if whole else sorted({name for _, name, _ in schema ^ _fresh_schema()})
    present = {row["tgname"] for row in fetch(connection, _POSTGRES_GUARDS)}
    wanted = {name for kind, name, _ in _fresh_schema() if kind == "trigger"}
    return sorted((wanted | set(() if _OWNER in present else roles.GUARDS)) - present)


def mend(connection: Connection, *kinds: str) -> None:
    """Make what an SQLite ledger lacks of these kinds ("table", "index", "trigger") as the migrations make it."""
    present = {name for _, name, _ in _sqlite_schema(connection)}
    for kind, name, made in sorted(_fresh_schema()):
        if kind in kinds and name not in present and made:
            connection.execute(text(made.replace(":", "\\:")))


_OWNER = "(owner)"
# The guards; and a word, if the role that asks is the tables' owner, for whom those of `roles` are not needed.
_POSTGRES_GUARDS = text("""
SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgenabled IN ('O', 'A')
UNION ALL SELECT '(owner)' FROM pg_class c JOIN pg_roles r ON r.rolname = current_user
WHERE c.oid = to_regclass('audit') AND (r.rolsuper OR r.oid = c.relowner)
""").columns(column("tgname"))


_SQLITE_SCHEMA = text("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_stat%'")


def _sqlite_schema(connection: Connection) -> set[tuple[str, str, str]]:
    return {(kind, name, sql or "") for kind, name, sql in connection.execute(_SQLITE_SCHEMA)}


@lru_cache(maxsize=1)
def _fresh_schema() -> frozenset[tuple[str, str, str]]:
    """The schema of a new ledger, made in memory by the same migrations."""
    with create_engine("sqlite://", poolclass=NullPool).begin() as connection:  # which closes it
        _run(connection, "head")
        return frozenset(_sqlite_schema(connection))


def check(database: Database) -> None:
    """Raise `LedgerError`, naming the way out, unless the database answers and has exactly this program's version."""
    with database.read() as connection:
        actual = version(connection)
    wanted = latest()
    if actual == wanted:
        return
    if actual is None:
        raise NoLedger(
            f"ledger {database.name}", "there is no ledger in this database.", "open it with create=True, once"
        )
    if known(actual):
        raise LedgerVersion(
            f"ledger {database.name}",
            f"its version is {actual}, this program writes {wanted}.",
            "back it up, then run `fieldfare migrate` (Ledger.migrate)",
        )
    why = f"its version {actual} is newer than this program, which writes {wanted}."
    raise LedgerVersion(f"ledger {database.name}", why, "the program that wrote it")
