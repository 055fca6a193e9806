"""Schema versions: which one a database has, and bringing it up to this program's."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from fieldfare.errors import LedgerError
from fieldfare_server.ledger.database import Database


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config


def latest() -> str:
    """The version this program writes."""
    revision = ScriptDirectory.from_config(_config()).get_current_head()
    if revision is None:
        raise LedgerError("ledger migrations", "none are installed with this program.", "install fieldfare again")
    return revision


def version(connection: Connection) -> str | None:
    """The version of the database, or None if it has none."""
    return MigrationContext.configure(connection).get_current_revision()


def known(revision: str) -> bool:
    """Whether this program knows how to come from `revision`."""
    return revision in {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}


def upgrade(database: Database, target: str = "head") -> None:
    """Bring the schema up to `target`, in one transaction; two processes at once do it one after the other."""
    config = _config()
    with database.engine.connect() as connection:
        if database.path is not None:
            connection = connection.execution_options(fieldfare_write=True)
        with connection.begin():
            if database.path is None:
                connection.execute(text("SELECT pg_advisory_xact_lock(7421580926)"))
            config.attributes["connection"] = connection
            command.upgrade(config, target)


def check(database: Database) -> None:
    """Raise `LedgerError`, naming the way out, unless the database has exactly this program's version."""
    with database.read() as connection:
        found = version(connection)
    wanted = latest()
    if found == wanted:
        return
    if found is None:
        raise LedgerError(
            f"ledger {database.name}", "there is no ledger in this database.", "open it with create=True, once"
        )
    if known(found):
        raise LedgerError(
            f"ledger {database.name}",
            f"its version is {found}, this program writes {wanted}.",
            "back it up, then Ledger.migrate(url) (`fieldfare verify --migrate` on the command line)",
        )
    raise LedgerError(
        f"ledger {database.name}",
        f"its version {found} is newer than this program, which writes {wanted}.",
        "the program that wrote it",
    )
