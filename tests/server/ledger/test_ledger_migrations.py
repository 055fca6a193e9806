"""Every released version of the ledger can be brought to this one, with what is in it."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Integer, MetaData, create_engine, inspect, text

from fieldfare.errors import LedgerError
from fieldfare_server.evidence.verify import verify
from fieldfare_server.ledger import Ledger, Outcome
from fieldfare_server.ledger.sql import migrate, models
from fieldfare_server.ledger.sql.database import Database
from support import new_ledgers
from support.ledgers import digest, gaussian
from support.refusals import coded

DUMPS = sorted((Path(__file__).parent / "data").glob("ledger-*.sql"))
CONVERTED = [DUMPS[0], *DUMPS[3:]]
"""Of commits c0dd382 and 718810f, and later ones."""


def test_every_version_has_a_filled_ledger_to_test_with() -> None:
    files = (migrate.LOCATION / "versions").glob("[0-9]*.py")
    assert {path.name.partition("_")[0] for path in files} == {path.stem.partition("-")[2] for path in DUMPS}


@pytest.mark.parametrize("dump", CONVERTED, ids=lambda path: path.stem)
def test_a_filled_ledger_of_an_old_version_goes_on(dump: Path, ledger_url: str, tmp_path: Path) -> None:
    load(dump, ledger_url, tmp_path)
    if dump != DUMPS[-1]:
        with pytest.raises(LedgerError, check=coded("ledger-version", "ledger")):
            Ledger.open(ledger_url)
    assert Ledger.migrate(ledger_url) == migrate.latest()
    with Ledger.open(ledger_url) as ledger:
        assert verify(ledger).ok
        if dump == DUMPS[0]:
            return  # no state directory: its run under way has ended (`test_convert`)
        (run,) = ledger.runs(population="people", limit=1).items
        with Ledger.open(ledger_url, clock=lambda: 4e9) as later:  # the lease of whoever wrote the dump is long over
            with later.database.read() as connection:
                query = text("SELECT key_commitment FROM runs WHERE id = :id")
                key = connection.execute(query, {"id": run.id}).scalar_one()
            handle = later.resume_run(run.id, key_commitment=key, holder="test")
            opened = handle.open_round_pending()
            assert opened is not None
            assert opened.cohort.tolist() == [8, 9]
            nonce = None if handle.nonces is None else bytes(range(16))
            handle.commit_round(opened, Outcome([8], gaussian(0.2), nonce=nonce), digest("new"))
            handle.finish("stopped")
        assert verify(ledger).ok


@pytest.mark.parametrize("dump", DUMPS[1:3], ids=lambda path: path.stem)
def test_what_neither_named_commit_wrote_is_refused(dump: Path, ledger_url: str, tmp_path: Path) -> None:
    load(dump, ledger_url, tmp_path)
    with pytest.raises(LedgerError, check=coded("ledger-error", "run")):
        Ledger.migrate(ledger_url)
    with pytest.raises(LedgerError, check=coded("ledger-version", "ledger", "000")):  # and nothing was changed
        Ledger.open(ledger_url)


def load(dump: Path, url: str, tmp_path: Path) -> None:
    """Make the database at `url` what the dump says, in the dump's version."""
    source = Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else tmp_path / "source.sqlite3"
    link = sqlite3.connect(source)
    link.executescript(dump.read_text())
    link.close()
    if url.startswith("sqlite"):
        return
    database = Database(url)
    migrate.upgrade(database, dump.stem.partition("-")[2])
    rows = MetaData()
    engine = create_engine(f"sqlite:///{source}")
    rows.reflect(engine)
    with engine.connect() as old, database.engine.begin() as new:
        new.execute(text("SET LOCAL session_replication_role = replica"))
        new.execute(text("DELETE FROM head"))
        for table in rows.sorted_tables:
            target = models.metadata.tables.get(table.name)
            found = [dict(row) for row in old.execute(table.select()).mappings()]
            if target is not None and found:
                new.execute(target.insert(), found)
                for column in target.columns:
                    if column.name in ("id", "seq") and table.name in ("populations", "runs", "rounds"):
                        place = f"pg_get_serial_sequence('{table.name}', '{column.name}')"
                        newest = f"(SELECT max({column.name}) FROM {table.name})"
                        if isinstance(column.type, Integer):
                            new.execute(text(f"SELECT setval({place}, {newest})"))
    engine.dispose()
    database.close()


def test_the_migrations_make_what_the_models_say(ledger_url: str) -> None:
    with Ledger.open(ledger_url, create=True) as ledger, ledger.database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, models.metadata) == []


def test_a_newer_version_is_refused(ledger_url: str) -> None:
    with Ledger.open(ledger_url, create=True) as ledger, ledger.database.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(LedgerError, check=coded("ledger-version", "ledger")):
        Ledger.open(ledger_url)
    with pytest.raises(LedgerError, check=coded("ledger-version", "ledger")):
        Ledger.migrate(ledger_url)


NEXT = """
import sqlalchemy as sa
from alembic import op
revision, down_revision, branch_labels, depends_on = "9000", "{head}", None, None
def upgrade():
    op.add_column("populations", sa.Column("colour", sa.String(10), nullable=True))
    {fail}
"""


@pytest.mark.parametrize("fails", [False, True])
def test_an_older_version_is_refused_until_migrated(
    ledger_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        before = ledger.populations()
    shutil.copytree(migrate.LOCATION, tmp_path / "migrations")
    text_ = NEXT.format(head=migrate.latest(), fail="raise RuntimeError('power cut')" if fails else "")
    (tmp_path / "migrations" / "versions" / "9000_next.py").write_text(text_)
    monkeypatch.setattr(migrate, "LOCATION", tmp_path / "migrations")
    with pytest.raises(LedgerError, check=coded("ledger-version", "ledger")):
        Ledger.open(ledger_url, create=True)
    if fails:
        with pytest.raises(RuntimeError, match="power cut"):
            Ledger.migrate(ledger_url)
        monkeypatch.undo()  # all of the failed migration is undone: the old program goes on
    else:
        with Ledger.open(ledger_url, migrate=True) as ledger:
            assert ledger.version == "9000"
    with Ledger.open(ledger_url) as ledger:
        assert ledger.populations() == before
        columns = {column["name"] for column in inspect(ledger.database.engine).get_columns("populations")}
    assert ("colour" in columns) is not fails


def test_there_must_be_something_to_migrate(ledger_url: str) -> None:
    with pytest.raises(LedgerError, check=coded("no-ledger", "ledger")):
        Ledger.migrate(ledger_url)


def test_threads_of_a_process_may_migrate_and_compare_at_once() -> None:
    """The check of a ledger's schema ran into another thread's, and a whole ledger was said to be disproved."""

    def schema(_: int) -> int:
        return len(migrate._fresh_schema.__wrapped__())

    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(schema, range(12)))) == 1


def test_the_tests_ledgers_are_what_the_migrations_make(ledger_url: str, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """tests/support/new_ledgers.py makes them from the statements of the first."""
    assert migrate._run is new_ledgers.make
    urls = (ledger_url, f"sqlite:///{tmp_path / 'first.sqlite3'}", f"sqlite:///{tmp_path / 'second.sqlite3'}")
    heads = set()
    for url in urls:
        with Ledger.open(url, create=True) as one, one.database.read() as connection:
            heads.add(one.head().ledger)
    assert len(heads) == 3
    monkeypatch.setattr(migrate, "_run", new_ledgers._migrations)
    migrate._fresh_schema.cache_clear()
    for url in urls:
        with Ledger.open(url) as one, one.database.read() as connection:
            assert migrate.damage(connection) == []


def test_a_whole_schema_is_known_by_its_digest_and_any_other_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making a second ledger to compare with took Alembic and a fifth of a second, before every command's charge."""
    made = sorted(migrate._fresh_schema())
    # Whoever adds a migration puts the new digest there.
    assert hashlib.sha256(repr(made).encode()).hexdigest() == migrate._AS_MADE
    file = tmp_path / "ledger.sqlite3"
    with Ledger.open(str(file), create=True) as new, new.database.read() as connection, monkeypatch.context() as at:
        at.setattr(migrate, "_fresh_schema", None)
        assert migrate.damage(connection) == []
    guard = next(name for kind, name, _ in made if kind == "trigger")
    with contextlib.closing(sqlite3.connect(file)) as raw:
        raw.execute(f"DROP TRIGGER {guard}")
    with Ledger.open(str(file)) as ledger, ledger.database.read() as connection:
        assert migrate.damage(connection) == [guard]
