"""Every table but the journal and its content can be lost, and is made again byte for byte."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from fieldfare.errors import LedgerError
from fieldfare_server.cli.application import assemble
from fieldfare_server.evidence.verify import verify
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.rules.populations import Rules
from fieldfare_server.ledger.sql.proof import Disproved
from fieldfare_server.ledger.sql.rebuild import PROJECTED
from support.fill import fill
from support.ledgers import start
from support.refusals import Coded, coded
from support.rows import everything


@pytest.fixture
def full(ledger_url: str) -> Iterator[Ledger]:
    """A filled ledger, with a raise that waits."""
    with Ledger.open(ledger_url, create=True) as ledger:
        fill(ledger)
        ledger.create_population("two", 1.0, 1e-6, rules=Rules(two_persons=True), actor="officer")
        ledger.raise_population("two", epsilon=2.0, reason="more", actor="officer")
        yield ledger


def lose(ledger: Ledger, statement: str) -> None:
    """Run one statement without guards and references, as a damaged disk would."""
    if ledger.database.path is None:
        with ledger.database.engine.begin() as connection:
            connection.execute(text("SET LOCAL session_replication_role = replica"))
            connection.execute(text(statement))
        return
    link = sqlite3.connect(ledger.database.path)
    guards = link.execute("SELECT name, sql, tbl_name FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _, _ in guards:
        link.execute(f"DROP TRIGGER {name}")
    link.execute(statement)
    for _, made, table in guards:
        if not statement.startswith("DROP") or not statement.endswith(f" {table}"):
            link.execute(made)
    link.commit()
    link.close()


@pytest.mark.parametrize("table", PROJECTED)
def test_a_table_that_is_emptied_is_made_again(full: Ledger, table: str) -> None:
    with full.read() as connection:
        before = everything(connection)
    assert before[table]
    # Who was selected for an open round stands nowhere else.
    lose(full, f"DELETE FROM {table}" + (" WHERE state <> 'open'" if table == "rounds" else ""))
    with full.read() as connection:
        assert everything(connection) != before
    assert full.rebuild(actor="officer") == ()
    with full.read() as connection:
        assert everything(connection) == before
    assert verify(full).ok
    start(full, 0.001).finish("stopped")


@pytest.mark.parametrize("table", ["tokens", "rounds", "runs"])
def test_a_table_that_is_dropped_is_made_again(full: Ledger, table: str) -> None:
    if full.database.path is None:
        pytest.skip("on PostgreSQL the schema comes from a backup")
    with full.read() as connection:
        before = everything(connection)
    lose(full, f"DROP TABLE {table}")
    lost = full.rebuild(actor="officer")
    with full.read() as connection:
        after = everything(connection)
    assert verify(full).ok
    assert after["schema"] == before["schema"]
    if table != "rounds":
        assert (lost, after) == ((), before)
        return
    # The cohort of the open round is gone, so the round is void: nothing of it was released.
    (run,) = lost
    assert [row.state for row in full.rounds(run).items] == ["void", "committed", "void"]
    assert full.journal_rows(limit=1).items[0].body["reason"] == "its cohort was lost with its table"


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("UPDATE objects SET content = CAST(content || content AS BLOB)", coded("ledger-corrupt", "object")),
        ("DELETE FROM objects", coded("ledger-corrupt", "object")),
        ("UPDATE audit SET actor = 'nobody' WHERE id = 3", coded("ledger-corrupt", "rebuilding the ledger")),
    ],
)
def test_what_is_no_longer_what_the_journal_names_is_not_built_on(full: Ledger, statement: str, why: Coded) -> None:
    lose(full, statement if full.database.path else statement.replace("BLOB", "bytea"))
    with full.read() as connection:
        before = everything(connection)
    with pytest.raises(LedgerError, check=why):
        full.rebuild(actor="officer")
    with full.read() as connection:
        assert everything(connection) == before


def test_the_command_puts_a_changed_row_right(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    with Ledger.open(url, create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        lose(ledger, "UPDATE populations SET epsilon = 1000")
        with pytest.raises(Disproved):
            start(ledger)
        told = CliRunner().invoke(assemble("ledger"), ["ledger", "rebuild", "--ledger", url, "--home", str(tmp_path)])
        assert told.exit_code == 0, told.output
        assert "up to row 1" in told.output
        assert ledger.population("people").epsilon == 4.0
        start(ledger)
