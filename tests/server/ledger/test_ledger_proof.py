"""The journal is the budget: whatever is changed behind its back is refused when the next charge is asked for."""

from __future__ import annotations

import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Boolean, Connection, event, text, update
from sqlalchemy.sql.expression import SelectBase

from fieldfare.accounting.foreign import Foreign
from fieldfare.errors import FieldfareError, LedgerError
from fieldfare_server import faults
from fieldfare_server.evidence.verify import verify
from fieldfare_server.ledger import Ledger, Outcome
from fieldfare_server.ledger.events.base import Record
from fieldfare_server.ledger.rules.populations import Rules
from fieldfare_server.ledger.sql import migrate, models, odometer_tables, rows
from fieldfare_server.ledger.sql import proof as proofs
from fieldfare_server.ledger.sql.database import fetch
from fieldfare_server.ledger.sql.journal import read_head
from fieldfare_server.ledger.sql.proof import Disproved, Proof
from fieldfare_server.ledger.state.state import State
from support.fill import fill
from support.ledgers import commit, demand, digest, edit_behind_the_guards, gaussian, proven, start
from support.postgres import Cluster
from support.refusals import coded

TAMPERINGS = (
    # R3 of the findings: the budget, what was settled, an admin's token.
    ("UPDATE populations SET epsilon = 1000 WHERE name = 'people'", "populations people: epsilon"),
    ("UPDATE populations SET delta = 0.5 WHERE name = 'people'", "populations people: delta"),
    ('UPDATE populations SET settled = \'{"mu_squared": 0.0, "sampled": []}\'', "populations people: settled"),
    (
        "INSERT INTO tokens SELECT 'aaaaaaaaaaaa', 'office', 'd', 'read admin', 1.0, 'x', NULL, NULL, NULL",
        "tokens aaaaaaaaaaaa: the journal does not name it",
    ),
    ("UPDATE tokens SET scopes = 'read admin' WHERE name = 'page'", "tokens .*: scopes"),
    ("UPDATE tokens SET revoked_at = NULL", "tokens .*: revoked_at"),
    ("UPDATE populations SET state = 'open'", "populations others: state"),
    ('UPDATE runs SET spent = \'{"mu_squared": 0.0, "sampled": []}\' WHERE seq = 1', "runs .*: spent"),
    ("UPDATE runs SET price = '[0.0, 0.0]' WHERE seq = 2", "runs .*: price"),
    ("UPDATE runs SET state = 'failed', ended_at = 1.0 WHERE seq = 2", "runs .*: (state|ended_at)"),
    ("DELETE FROM participations WHERE round_id = 1", "participations"),
    (
        "UPDATE audit SET body = replace(body, '5.0', '9.0') WHERE id = 2",
        "audit 2: it was changed",
    ),
    # And what is added by version 0003.
    ("UPDATE populations SET ceiling_epsilon = 9, two_persons = (1 = 1)", "populations .*: (ceiling|two_persons)"),
    ("DELETE FROM users", "users people 0"),
    ("UPDATE populations SET leak = 1e-7", "populations .*: leak"),
    # And by version 0004.
    ("UPDATE populations SET accounting = 'worst-case' WHERE name = 'people'", "populations people: accounting"),
    ("UPDATE runs SET accounting = 'worst-case' WHERE seq = 2", "runs .*: accounting"),
    ("UPDATE runs SET most = most / 2 WHERE seq = 4", "runs .*: most"),
    ("UPDATE charges SET state = 'released' WHERE key = 'dp-sgd-1'", "charges people dp-sgd-1: state"),
    ("UPDATE charges SET price = '[0.0, 0.0]' WHERE key = 'dp-sgd-2'", "charges people dp-sgd-2: price"),
    ("DELETE FROM charges WHERE key = 'dp-sgd-1'", "charges people dp-sgd-1: it is missing"),
    ("DELETE FROM odometers", "odometers people: they are not what ended runs have cost"),
    ("UPDATE odometers SET count = count - 1", "odometers people"),
    ("INSERT INTO odometers SELECT 2, first, count, spent FROM odometers", "odometers 2: the journal does not name it"),
    ("DELETE FROM pledges", "pledges people .*: they are not what the run was admitted with"),
    ("INSERT INTO pledges SELECT 1, first, count, caps FROM pledges WHERE first = 0", "pledges 1"),
    ("UPDATE participations SET charges = NULL WHERE run_seq = 2", "participations .*: these are not the charges"),
)
"""(what someone with the database's password does, what the refusal names)."""


def test_every_tampering_is_refused_at_the_next_charge(ledger_url: str) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        fill(ledger)
        before = [(run.id, run.state) for run in ledger.runs().items]
        for statement, named in TAMPERINGS:
            # As they find it: one open before the edit, which has compared everything once, and one opened after it.
            start(ledger, 0.001).finish("stopped")
            with ledger.database.engine.connect() as connection:
                edit_behind_the_guards(connection, statement)
                with pytest.raises(Disproved, match=named):
                    Proof(ledger.database).require(connection)
                connection.rollback()
        assert ledger.proof.advance().ok
        assert [(run.id, run.state) for run in ledger.runs().items][-len(before) :] == before
        assert verify(ledger).ok


@pytest.mark.parametrize(("statement", "named"), [each for each in TAMPERINGS if each[0][:6] != "DELETE"][:9])
def test_a_ledger_open_all_the_time_refuses_too_and_says_why(ledger_url: str, statement: str, named: str) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        fill(ledger)
        start(ledger, 0.001).finish("stopped")
        with ledger.database.engine.begin() as connection:
            edit_behind_the_guards(connection, statement)
        before = ledger.head()
        with pytest.raises(Disproved, match=named):
            start(ledger, 0.001)
        with pytest.raises(Disproved, match=named):
            ledger.raise_population("people", epsilon=9.0, reason="more", actor="officer")
        assert ledger.head() == before


def raise_caps(ledger: Ledger, users: int, units: int) -> None:
    """Behind the ledger's back, pledge `units` of each of `users` users to every run under way."""
    with ledger.database.engine.begin() as connection:
        connection.execute(update(models.pledges).values(caps=odometer_tables.encode(np.full(users, units))))


def test_other_numbers_of_the_same_shape_are_refused_everywhere(ledger_url: str) -> None:
    """A process that compared the odometers once reads them again: for a charge, a resumption and a newcomer."""
    with Ledger.open(ledger_url, create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        run = start(ledger, 0.2, demand=demand(1000))
        run.register_users(np.arange(5, dtype=np.uint64))
        assert ledger.proof.advance().ok
        raise_caps(ledger, 5, 2000)
        for charge in (
            lambda: start(ledger, 0.01),
            lambda: start(ledger, 0.01, demand=demand(10)),
            lambda: ledger.reserve_charge("people", "a", Foreign(mu=0.1), what="x", why="y", actor="z"),
            lambda: ledger.tighten_population("people", epsilon=3.0, reason="less", actor="officer"),
            lambda: run.register_users(np.arange(9, dtype=np.uint64)),
        ):
            with pytest.raises(Disproved, check=coded("disproved")):
                charge()
        raise_caps(ledger, 5, 1000)
        run.register_users(np.arange(9, dtype=np.uint64))
        assert ledger.proof.advance().ok
        assert verify(ledger).ok


@pytest.mark.parametrize("table", ["participations", "odometers"])
def test_a_run_is_not_settled_by_numbers_that_the_journal_does_not_prove(ledger_url: str, table: str) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        for number in range(2):
            run = start(ledger, 0.2, demand=demand(1000))
            run.register_users(np.arange(2, dtype=np.uint64))
            opened = run.open_round([0, 1])
            run.commit_round(opened, Outcome([0, 1], gaussian(0.1), charges=np.array([300, 400])), digest(str(number)))
            if number == 0:
                run.finish("done")
        column = {"participations": "charges", "odometers": "spent"}[table]
        chosen = " WHERE run_seq = 2" if table == "participations" else ""

        def write(values: list[int]) -> None:
            blob = odometer_tables.encode(np.array(values))
            with ledger.database.engine.begin() as connection:
                guards = connection.dialect.name == "postgresql"
                if guards:
                    connection.execute(text("SET LOCAL session_replication_role = replica"))
                else:
                    connection.execute(text("DROP TRIGGER IF EXISTS participations_keep"))
                connection.execute(text(f"UPDATE {table} SET {column} = :blob{chosen}"), {"blob": blob})

        write([1, 1])
        with pytest.raises(LedgerError, check=coded("ledger-corrupt")):
            run.finish("done")
        write([300, 400])
        run.finish("done")
        with ledger.read() as connection:
            population = rows.population_row(connection, "people")
            assert odometer_tables.settled(connection, population.id, 2).tolist() == [600, 800]


def test_the_journal_has_the_same_sum_as_the_tables_with_odometers(ledger_url: str) -> None:
    """Of the user who has least left, to the last bit, with worst-case runs and charges of others."""
    with Ledger.open(ledger_url, create=True) as ledger:
        fill(ledger)
        random = np.random.default_rng(3)
        for turn in range(6):
            asked = demand(int(random.integers(10, 2**38))) if turn % 2 else None
            run = start(ledger, float(random.uniform(0.01, 0.1)), demand=asked)
            key, mu = f"k{turn}", float(random.uniform(0.01, 0.1))
            ledger.reserve_charge("people", key, Foreign(mu=mu), what="x", why="y", actor="z")
            if turn % 3 == 0:
                ledger.release_charge("people", key, actor="z")
            if turn == 2:
                run.finish("stopped")
            committed = proven(ledger).populations["people"].committed()
            assert committed == ledger.population("people").committed
        with ledger.read() as connection:
            assert Proof(ledger.database).require(connection).populations["people"].committed() == committed


def test_a_row_that_is_put_back_is_accepted_again(ledger_url: str) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        with ledger.database.engine.begin() as connection:
            connection.execute(text("UPDATE populations SET epsilon = 1000"))
        with pytest.raises(Disproved):
            start(ledger, 5.0)
        with ledger.database.engine.begin() as connection:
            connection.execute(text("UPDATE populations SET epsilon = 4"))
        start(ledger)


def test_the_newest_copy_that_comes_back_is_accepted_again(tmp_path: Path) -> None:
    """An old copy lay there for a while. Who looked then refused until it was started again."""
    path = tmp_path / "ledger.sqlite3"

    def place(files: tuple[bytes, bytes]) -> None:
        ledger.database.engine.dispose()
        for file, content in zip((path, Path(f"{path}-wal")), files, strict=True):
            file.write_bytes(content)
        Path(f"{path}-shm").unlink(missing_ok=True)

    with Ledger.open(str(path), create=True) as ledger:
        copies = []
        for name in ("people", "others"):
            ledger.create_population(name, 4.0, 1e-6, actor="officer")
            copies.append((path.read_bytes(), Path(f"{path}-wal").read_bytes()))
        start(ledger)
        copies.append((path.read_bytes(), Path(f"{path}-wal").read_bytes()))
        place(copies[0])
        for _ in range(2):
            assert "ends in row 1, which is not the row" in ledger.proof.advance().fault
        place(copies[2])
        start(ledger, 0.1)


def test_an_inserted_or_revived_token_opens_nothing(ledger_url: str) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        secret, view = ledger.create_token("page", ("read",), actor="officer")
        admin, other = ledger.create_token("office", ("read", "admin"), actor="officer")
        assert ledger.check_token(secret) is not None
        run = ledger.database.engine.begin
        with run() as connection:
            connection.execute(text(f"UPDATE tokens SET scopes = 'read admin' WHERE id = '{view.id}'"))
        assert ledger.check_token(secret) is None
        with run() as connection:
            connection.execute(text(f"UPDATE tokens SET scopes = 'read' WHERE id = '{view.id}'"))
        assert ledger.check_token(secret) is not None
        with run() as connection:  # a row with the digest of a secret that someone knows
            connection.execute(
                text(
                    "INSERT INTO tokens (id, name, digest, scopes, created_at, created_by) "
                    "SELECT 'aaaaaaaaaaaa', 'x', 'x' || substr(digest, 2), 'admin', 1, 'x' FROM tokens "
                    f"WHERE id = '{view.id}'"
                )
            )
            connection.execute(text(f"UPDATE tokens SET digest = 'old' WHERE id = '{other.id}'"))
            connection.execute(
                text("UPDATE tokens SET digest = :digest WHERE id = 'aaaaaaaaaaaa'"),
                {"digest": digest(FORGED)},
            )
        assert ledger.check_token(FORGED) is None
        assert ledger.check_token(admin) is None
        ledger.revoke_token(view.id, actor="officer")
        assert ledger.check_token(secret) is None
        with run() as connection:
            connection.execute(text("UPDATE tokens SET revoked_at = NULL"))
        assert ledger.check_token(secret) is None


FORGED = "ff_aaaaaaaaaaaa_" + "0" * 64


# -- every column of every table ------------------------------------------------------------------------------------

COLUMNS = [
    (table.name, column.name)
    for table in models.metadata.sorted_tables
    for column in table.columns
    # Leases say who works on a run now, which no journal row repeats; a number that nothing refers to may be any. No
    # charge reads an object: `verify` compares each with its name, and a rebuild needs it.
    if table.name not in ("leases", "objects")
    and (table.name, column.name) not in (("populations", "id"), ("rounds", "id"), ("head", "id"))
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A filled SQLite ledger, closed."""
    path = tmp_path_factory.mktemp("filled") / "ledger.sqlite3"
    with Ledger.open(str(path), create=True) as ledger:
        fill(ledger)
        ledger.create_population("two", 1.0, 1e-6, rules=Rules(two_persons=True), actor="officer")
        ledger.raise_population("two", epsilon=2.0, reason="more", actor="officer")
    return path


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_change_of_any_column_is_admitted(filled: Path, tmp_path: Path, data: st.DataObject) -> None:
    table, column = data.draw(st.sampled_from(COLUMNS))
    path = tmp_path / "ledger.sqlite3"
    shutil.copy(filled, path)
    with sqlite3.connect(path) as link:
        guards = link.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in guards:
            link.execute(f"DROP TRIGGER {name}")
        link.execute("PRAGMA ignore_check_constraints = ON")
        rows = [row for (row,) in link.execute(f"SELECT rowid FROM {table}")]
        rowid = data.draw(st.sampled_from(rows))
        (old,) = link.execute(f'SELECT "{column}" FROM {table} WHERE rowid = ?', (rowid,)).fetchone()
        boolean = isinstance(models.metadata.tables[table].c[column].type, Boolean)
        new = data.draw(values_like(old).filter(lambda value: differs(old, value, boolean)))
        try:
            link.execute(f'UPDATE {table} SET "{column}" = ? WHERE rowid = ?', (new, rowid))
        except (sqlite3.IntegrityError, sqlite3.OperationalError):
            return  # the database itself refuses this one
        for _, made in guards:
            link.execute(made)
        (stored,) = link.execute(f'SELECT "{column}" FROM {table} WHERE rowid = ?', (rowid,)).fetchone() or (new,)
    link.close()
    try:
        if not differs(old, stored, boolean):
            return  # the column's type made it what it was
        with pytest.raises(FieldfareError), Ledger.open(str(path)) as ledger:
            start(ledger, 0.001)
    finally:
        for rest in tmp_path.glob("ledger.sqlite3*"):
            rest.unlink()


def values_like(old: object) -> st.SearchStrategy[Any]:
    """Other values of the same kind, and of other kinds."""
    numbers = st.integers(-(2**31), 2**31) | st.floats(allow_nan=False, allow_infinity=False, width=32)
    texts = st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=40)
    mutations: list[st.SearchStrategy[Any]] = [numbers, texts, st.none(), st.binary(max_size=20)]
    if isinstance(old, str) and old:
        mutations.append(st.integers(0, len(old) - 1).map(lambda at: old[:at] + chr(ord(old[at]) ^ 1) + old[at + 1 :]))
    if isinstance(old, bytes) and old:
        mutations.append(st.integers(0, len(old) - 1).map(lambda at: old[:at] + bytes([old[at] ^ 1]) + old[at + 1 :]))
    if isinstance(old, int | float):
        mutations.append(st.sampled_from([old + 1, old - 1, old * 2 + 1]))
    return st.one_of(mutations)


def differs(old: object, new: object, boolean: bool) -> bool:
    """Whether a reader of the ledger could tell the two apart; every number but 0, and every text but "", is true."""
    if boolean and old is not None and new is not None:
        return bool(old) != bool(new)
    return old != new


# -- what it costs --------------------------------------------------------------------------------------------------


def test_each_check_reads_only_what_is_new(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    applied = []
    apply = proofs.apply

    def count(state: State, row: dict[str, Any]) -> Record:
        applied.append(row["id"])
        return apply(state, row)

    monkeypatch.setattr(proofs, "apply", count)
    with Ledger.open(ledger_url, create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        for _ in range(40):
            start(ledger, 0.001).finish("stopped")
        run = start(ledger, 0.8, rounds=60)
        run.register_users(np.arange(3, dtype=np.uint64))
        for t in range(50):
            commit(run, [t % 3], 0.1)
        proof = Proof(ledger.database)
        applied.clear()
        rows = ledger.head().count
        assert proof.advance().rows == rows
        assert applied == list(range(1, rows + 1))
        commit(run, [1], 0.1)
        applied.clear()
        assert proof.advance().whole
        assert proof.advance().whole
        assert applied == [rows + 1, rows + 2], "the round that was opened and committed, once"


FIRST_ROWS = {
    "proposals": "id, population_id, epsilon, delta, reason, state, proposed_at, proposed_by, person "
    "SELECT 'x', 1, 9.0, 1e-6, '', 'waiting', 1.0, 'x', 'x'",
    "tokens": "id, name, digest, scopes, created_at, created_by SELECT 'x', 'x', 'd', 'read admin', 1.0, 'x'",
    "charges": "population_id, key, who, what, why, loss, price, state, reserved_at "
    "SELECT 1, 'x', 'x', 'x', '', '{}', '{}', 'released', 1.0",
    "odometers": "population_id, first, count, spent SELECT 1, 0, 3, hashes",
    "pledges": "run_seq, first, count, caps SELECT 1, 0, 3, hashes",
}
"""Write the first row of an empty table, as somebody with the database's password can."""


def test_the_first_row_of_an_empty_table_is_found_at_once(ledger_url: str) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        start(ledger, 0.8, rounds=6).register_users(np.arange(3, dtype=np.uint64))
        assert ledger.proof.advance().whole
        for table, row in FIRST_ROWS.items():
            columns, values = row.split(" SELECT ")
            with ledger.database.engine.connect() as connection:
                edit_behind_the_guards(connection, f"INSERT INTO {table} ({columns}) SELECT {values} FROM users")
                with pytest.raises(Disproved, match=table):
                    ledger.proof.require(connection)
                connection.rollback()
            assert ledger.proof.advance().whole


def test_a_round_that_the_journal_does_not_name_is_found_at_once(ledger_url: str) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        run = start(ledger, 0.8, rounds=6)
        run.register_users(np.arange(3, dtype=np.uint64))
        commit(run, [1], 0.1)
        assert ledger.proof.advance().whole
        columns = ", ".join(f'"{column.name}"' for column in models.rounds.columns)
        other = re.sub('"(id|index|noise_row)"', r'"\1" + 50', columns)
        with ledger.database.engine.connect() as connection:
            edit_behind_the_guards(connection, f"INSERT INTO rounds ({columns}) SELECT {other} FROM rounds")
            with pytest.raises(Disproved, match="rounds 51: the journal does not name it"):
                ledger.proof.require(connection)


def test_a_round_that_is_open_again_is_found_at_once(ledger_url: str) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        run = start(ledger, 0.8, rounds=6)
        run.register_users(np.arange(3, dtype=np.uint64))
        commit(run, [1], 0.1)
        assert ledger.proof.advance().whole
        with ledger.database.engine.connect() as connection:
            edit_behind_the_guards(connection, "UPDATE rounds SET state = 'open'")
            with pytest.raises(Disproved, match=r"rounds .* 0\.0: the journal does not name it as open"):
                ledger.proof.require(connection)


@pytest.mark.parametrize("signs", [False, True])
def test_a_check_asks_the_database_no_more_than_six_times(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, signs: bool
) -> None:
    """Nor where the coordinator signs each end of the journal: the row that it names was followed just now."""
    asked: list[object] = []

    def count(connection: Connection, statement: SelectBase, **values: object) -> list[dict[str, Any]]:
        asked.append(statement)
        return fetch(connection, statement, **values)

    for module in (proofs, migrate):
        monkeypatch.setattr(module, "fetch", count)
    with Ledger.open(ledger_url, create=True, head_file=tmp_path / "ledger.head", coordinator=signs) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        run = start(ledger, 0.8, rounds=6)
        run.register_users(np.arange(3, dtype=np.uint64))
        for most in (4, 6):
            ledger.proof.advance()
            if most == 6:
                commit(run, [1], 0.1)
            asked.clear()
            with ledger.read() as connection:
                event.listen(connection, "before_cursor_execute", lambda *about: asked.append(about[2]))
                ledger.proof.require(connection)
            assert len(asked) == most, "\n".join(map(str, asked))
        assert (ledger.signed_head() is not None) == signs


def test_a_charge_compares_the_tables_once_and_in_its_transaction(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    compare = Proof._compare

    def count(proof: Proof, connection: Connection) -> None:
        done.append("compared")
        compare(proof, connection)

    monkeypatch.setattr(Proof, "_compare", count)
    monkeypatch.setattr(faults, "point", done.append)

    with Ledger.open(ledger_url, create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        for charge in (
            lambda: start(ledger, 0.1),
            lambda: ledger.reserve_charge("people", "a", Foreign(mu=0.1), what="x", why="y", actor="z"),
            lambda: ledger.commit_charge("people", "a", actor="z"),
            lambda: ledger.tighten_population("people", epsilon=3.0, reason="less", actor="officer"),
        ):
            done.clear()
            charge()
            assert [each for each in done if each == "compared" or each.startswith("ledger.transaction")] == [
                *("ledger.transaction.begun", "compared", "ledger.transaction.worked", "ledger.transaction.committed")
            ]


def test_who_asks_for_a_price_is_told_no_odometers(ledger_url: str) -> None:
    """They are compared with the log in the transaction that decides, and not before."""
    with Ledger.open(ledger_url, create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        start(ledger, 0.1, demand=demand(1000)).register_users(np.arange(5, dtype=np.uint64))
        committed = proven(ledger).populations["people"].committed()
        assert ledger.proof.ask("people", lambda found: found.base()).mu_squared < committed.mu_squared
        with pytest.raises(LookupError, match="not compared"):
            ledger.proof.ask("people", lambda found: found.committed())


def test_a_journal_with_much_news_is_read_before_the_transaction(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other writers wait for a transaction. So too at the first check, which reads every run and counts every row."""
    news: list[int] = []
    examine = Proof.examine

    def look(proof: Proof, connection: Connection) -> State:
        assert proof._newest_round is not None
        if proof is other.proof:
            news.append(read_head(connection).count - proof._rows)
        return examine(proof, connection)

    monkeypatch.setattr(proofs, "_BATCH", 3)
    monkeypatch.setattr(Proof, "examine", look)
    with Ledger.open(ledger_url, create=True) as ledger, Ledger.open(ledger_url) as other:
        for name in ("people", "others", "more"):
            ledger.create_population(name, 4.0, 1e-6, actor="officer")
        for number in (2, 3):
            other.tighten_population("more", epsilon=3.9 - number / 10, reason="less", actor="officer")
            for turn in range(number):
                ledger.note_population("people", text=f"note {turn}", actor="officer")
        other.tighten_population("more", epsilon=3.0, reason="less", actor="officer")
        assert news == [0, 3, 0]


def test_a_check_scans_no_table_that_grows_with_runs_and_finds_a_revived_run_at_once(tmp_path: Path) -> None:
    with Ledger.open(str(tmp_path / "ledger.sqlite3"), create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        for _ in range(40):
            start(ledger, 0.001).finish("stopped")
        assert ledger.proof.advance().whole
        asked: list[str] = []
        event.listen(ledger.database.engine, "checkout", lambda link, *_: link.set_trace_callback(asked.append))
        start(ledger, 0.001)
        assert ledger.proof.advance().whole
        assert any("rounds.state = 'open'" in statement for statement in asked), "the check is among them"
        plans = set()
        with ledger.database.engine.connect() as connection:
            for statement in [each for each in asked if each.startswith("SELECT")]:
                plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}")
                plans |= {row.detail for row in plan}
        # Runs are counted in an index.
        scans = {plan for plan in plans if plan.startswith("SCAN") and "COVERING INDEX" not in plan}
        large = {f"SCAN {name}" for name in ("runs", "rounds", "audit", "participations", "users", "objects")}
        assert plans
        assert not scans & large
        assert not [plan for plan in plans if "AUTOMATIC" in plan], "an index that is made for one statement"
        with ledger.database.engine.begin() as connection:
            connection.execute(text("UPDATE runs SET state = 'running', ended_at = NULL WHERE seq = 5"))
        assert "runs" in ledger.proof.advance().fault


def test_the_proof_forgets_closed_rounds(ledger_url: str) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        fill(ledger)
        ledger.proof.advance()
        runs = proven(ledger).runs
        kept = [sum(len(run.attempts) for run in runs.values()), len(runs)]
        assert kept == [1, 5]  # the open round of the run under way


def test_the_replayed_sums_are_those_of_the_columns(ledger_url: str) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        fill(ledger)
        for mu in (0.01, 0.3, 0.1):
            run = start(ledger, mu)
            commit_one = run.open_round([])
            run.commit_round(commit_one, Outcome([], run.planned), "0" * 63 + str(int(mu * 100) % 10))
            if mu != 0.3:
                run.finish("stopped")
        committed = proven(ledger).populations["people"].committed()
        assert committed == ledger.population("people").committed


def test_a_database_that_fails_in_a_check_is_told_as_such(ledger_url: str) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        with ledger.database.engine.begin() as connection:
            connection.execute(text("ALTER TABLE populations RENAME TO elsewhere"))
        with pytest.raises(LedgerError, check=coded("database-refused")):
            ledger.proof.advance()


def test_a_head_of_no_row_or_of_two_is_refused_and_accepted_again(ledger_url: str) -> None:
    """A row above the head is kept from SQLite by a check that a setting of the connection turns off."""
    with Ledger.open(ledger_url, create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        proof = Proof(ledger.database)
        assert proof.advance().whole
        with ledger.database.engine.connect() as connection:
            edit_behind_the_guards(connection, "DELETE FROM head")
            with pytest.raises(LedgerError, match="table head: it has not one row"):
                proof.require(connection)
            connection.rollback()
        if ledger.database.path is not None:
            with ledger.database.engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
                edit_behind_the_guards(connection, "INSERT INTO head SELECT 2, ledger, count, hash, signed FROM head")
                with pytest.raises(LedgerError, match="table head: it has not one row"):
                    proof.require(connection)
                connection.rollback()
                connection.exec_driver_sql("PRAGMA ignore_check_constraints = OFF")
        assert proof.advance().whole


def test_a_gap_before_rows_that_the_head_does_not_know_ends_the_check(ledger_url: str) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        for name in ("people", "others", "more"):
            ledger.create_population(name, 4.0, 1e-6, actor="officer")
        with ledger.database.engine.connect() as connection:
            edit_behind_the_guards(connection, "UPDATE audit SET id = 9 WHERE id = 3")
            with pytest.raises(Disproved, match="audit 3: it is missing"):
                Proof(ledger.database).require(connection)


def check_without_a_connection(ledger: Ledger, postgres: Cluster) -> None:
    with ledger.read() as connection:
        link: Any = connection.connection.driver_connection
        postgres.execute(f"SELECT pg_terminate_backend({link.info.backend_pid})")
        ledger.proof.require(connection)


@pytest.mark.postgres
def test_a_check_whose_connection_is_lost_says_so_and_the_next_one_has_another(postgres: Cluster) -> None:
    with Ledger.open(postgres.new_database(), create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        with pytest.raises(LedgerError, match="terminat"):
            check_without_a_connection(ledger, postgres)
        assert ledger.proof.advance().whole
