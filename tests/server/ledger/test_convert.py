"""Ledgers of commits c0dd382 and 718810f in the one format: nothing is forged, no charge moves, nobody is named."""

from __future__ import annotations

import json
import sqlite3
import zlib
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from test_ledger_migrations import DUMPS, load

from fieldfare.accounting import discretised
from fieldfare.accounting.filter import Price
from fieldfare.errors import BudgetRefused, LedgerError, OldCopy
from fieldfare_server.evidence.verify import verify
from fieldfare_server.files.checkpoint import RunFiles
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger, chain
from fieldfare_server.ledger.sql import blobs
from fieldfare_server.ledger.sql.database import Database
from fieldfare_server.run.ending import destroy_left_behind, left_behind
from support.ledgers import edit_behind_the_guards, start
from support.refusals import coded

FIRST, OF_718810F = DUMPS[0], DUMPS[3]
NOBODY = blobs.encode([])


def journal(ledger: Ledger) -> list[dict[str, Any]]:
    with ledger.database.read() as connection:
        return [dict(row) for row in connection.execute(text("SELECT * FROM audit ORDER BY id")).mappings()]


def rows_of(dump: Path) -> list[dict[str, Any]]:
    link = sqlite3.connect(":memory:")
    link.executescript(dump.read_text())
    link.row_factory = sqlite3.Row
    return [dict(row) for row in link.execute("SELECT * FROM audit ORDER BY id")]


def rewrite(path: Path, change: Any) -> None:
    """Change rows of an old ledger and chain them again, as its own program would have written them."""
    link = sqlite3.connect(path)
    link.row_factory = sqlite3.Row
    guards = link.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for guard in guards:
        link.execute(f"DROP TRIGGER {guard['name']}")
    name = link.execute("SELECT ledger FROM head").fetchone()[0]
    rows = [dict(row) for row in link.execute("SELECT * FROM audit ORDER BY id")]
    link.execute("DELETE FROM audit")
    previous, number = chain.genesis(name), 0
    for row in rows:
        if (changed := change(row)) is None:
            continue
        number += 1
        changed.update(id=number, previous=previous)
        previous = changed["hash"] = chain.row_hash(changed)
        marks = ", ".join("?" * len(changed))
        link.execute(f"INSERT INTO audit ({', '.join(changed)}) VALUES ({marks})", list(changed.values()))
    link.execute("UPDATE head SET count = ?, hash = ?", (number, previous))
    for guard in guards:
        link.execute(guard["sql"])
    link.commit()
    link.close()


def test_the_first_row_names_the_old_log_and_its_rows_as_they_were(ledger_url: str, tmp_path: Path) -> None:
    load(FIRST, ledger_url, tmp_path)
    before = rows_of(FIRST)
    Ledger.migrate(ledger_url)
    with Ledger.open(ledger_url) as ledger:
        first, *after = journal(ledger)
        body = json.loads(first["body"])
        assert first["action"] == "ledger.converted"
        assert (body["count"], body["hash"], body["omitted"]) == (len(before), before[-1]["hash"], 2)  # of `others`
        with ledger.database.read() as connection:
            found = connection.execute(
                text("SELECT content FROM objects WHERE hash = :name"), {"name": body["rows"][0]}
            )
            kept = [json.loads(line) for line in zlib.decompress(found.scalar_one()).splitlines()]
        assert kept == [{name: row[name] for name in chain.HASHED} for row in before if row["population"] != "others"]
        assert {(row["event"], row["at"], row["actor"]) for row in after} <= {
            (row["event"], row["at"], row["actor"]) for row in before
        }
        assert ledger.head().ledger != body["ledger"]


def test_a_run_of_the_first_version_stays_charged_to_the_last_bit(ledger_url: str, tmp_path: Path) -> None:
    """One has ended; one is under way without its directory, and can be resumed by nobody: what it spent stays."""
    load(FIRST, ledger_url, tmp_path)
    Ledger.migrate(ledger_url)
    with Ledger.open(ledger_url) as ledger:
        view = ledger.population("people")
        (run,) = ledger.runs().items
        (charge,) = ledger.charges("people")
        assert (run.state, run.noise_source, run.strategy) == ("done", "secure-box-muller", None)
        assert (charge.key, charge.state, charge.price) == ("run 20261121-d3879bc0", "committed", Price(0.2 * 0.2))
        assert view.spent == view.committed == Price(0.08 + 0.2 * 0.2)
        assert [token.revoked_at is None for token in ledger.tokens()] == [False, True]
        assert verify(ledger).ok
        with pytest.raises(BudgetRefused):
            start(ledger, 3.5)


def test_discrete_noise_of_the_first_version_is_carried_at_its_price(tmp_path: Path) -> None:
    """Only zCDP was charged then: no run of now says so."""
    path = tmp_path / "ledger.sqlite3"
    load(FIRST, f"sqlite:///{path}", tmp_path)

    def by_zcdp(row: dict[str, Any]) -> dict[str, Any]:
        body = json.loads(row["body"])
        for name in {"planned", "spent", "settled"} & body.keys():
            body[name] = json.dumps(
                {"concentrated": json.loads(body[name])["mu_squared"] / 2, "mu_squared": 0.0, "sampled": []}
            )
        return {**row, "body": chain.canonical(body)}

    rewrite(path, by_zcdp)
    Ledger.migrate(str(path))
    with Ledger.open(str(path)) as ledger:
        assert ledger.runs().items == ()
        done, live = (charge.price for charge in ledger.charges("people"))
        assert {done.mu_squared, live.mu_squared} == {m * discretised.SHARE * (1 + 1e-15) for m in (0.08, 0.2 * 0.2)}
        assert 0 < min(done.leak, live.leak) < 1e-40
        assert verify(ledger).ok


def test_what_an_earlier_rule_admitted_stays_charged_where_it_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite3"
    load(FIRST, f"sqlite:///{path}", tmp_path)

    def tight(row: dict[str, Any]) -> dict[str, Any] | None:
        body = json.loads(row["body"])
        if row["action"] == "population.create":
            body["epsilon"] = 0.5
        return None if row["action"] == "population.raise" else {**row, "body": chain.canonical(body)}

    rewrite(path, tight)
    Ledger.migrate(str(path))
    with Ledger.open(str(path)) as ledger:
        view = ledger.population("people")
        assert (ledger.runs().items, view.overdrawn, view.spent) == ((), True, Price(0.08 + 0.2 * 0.2))
        with pytest.raises(BudgetRefused):
            start(ledger, 0.01)


def test_nothing_says_any_more_who_took_part_in_secret(ledger_url: str, tmp_path: Path) -> None:
    """Commit 718810f kept who took part, and how many, for ever; the charge never needed them."""
    load(OF_718810F, ledger_url, tmp_path)
    before = [row for row in rows_of(OF_718810F) if row["population"] == "secret"]
    assert {json.loads(row["body"]).get("participant_count") for row in before} == {None, 2, 3}
    Ledger.migrate(ledger_url)
    with Ledger.open(ledger_url) as ledger:
        rows = [row for row in journal(ledger) if row["population"] == "secret"]
        for row in rows:
            body = json.loads(row["body"])
            for name in ("cohort_size", "participant_count", "reports"):
                assert body.get(name, 0) == 0
            assert body.get("rejects", {}) == {}
            for name in ("cohort", "participants"):
                assert body.get(name, chain.sha256(NOBODY)) == chain.sha256(NOBODY)
        with ledger.database.read() as connection:
            query = "SELECT {} FROM {} t JOIN runs r ON r.seq = t.run_seq JOIN populations p ON p.id = r.population_id"
            of = " WHERE p.name = 'secret'"
            taken = connection.execute(text(query.format("t.count, t.users", "participations") + of)).all()
            counted = connection.execute(
                text(query.format("cohort_size, reports, participants, cohort", "rounds") + of)
            )
            assert [tuple(row) for row in taken] == [(0, NOBODY)] * 2
            assert {tuple(row) for row in counted} == {(0, 0, 0, None), (0, 0, 0, NOBODY)}
            for (content,) in connection.execute(text("SELECT content FROM objects")):
                with_rows = bytes(content)[:1] == b"x"
                assert b'"secret"' not in (zlib.decompress(content) if with_rows else bytes(content))
        old, new = (
            [json.loads(row["body"]).get("nonce") for row in some if row["action"] == "round.commit"]
            for some in (before, rows)
        )
        assert old == new
        assert verify(ledger).ok


def test_every_charge_of_718810f_stays(ledger_url: str, tmp_path: Path) -> None:
    load(OF_718810F, ledger_url, tmp_path)
    link = sqlite3.connect(":memory:")
    link.executescript(OF_718810F.read_text())
    Ledger.migrate(ledger_url)
    with Ledger.open(ledger_url) as ledger, ledger.database.read() as connection:
        for query in (
            "SELECT id, planned, spent, price, state, next_round, checkpoint, strategy, most FROM runs ORDER BY seq",
            'SELECT "key", price, state FROM charges ORDER BY "key"',
            "SELECT id, digest, scopes, revoked_at FROM tokens ORDER BY id",
            "SELECT name, epsilon, leak, users, settled, bound_epsilon FROM populations ORDER BY id",
            "SELECT first, spent FROM odometers",
            "SELECT run_seq, first, caps FROM pledges ORDER BY run_seq, first",
            "SELECT nonce, epsilon, checkpoint FROM rounds ORDER BY id",
        ):
            assert [tuple(row) for row in connection.execute(text(query))] == link.execute(query).fetchall()


def test_a_log_that_is_of_the_one_format_keeps_its_chain(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite3"
    load(OF_718810F, f"sqlite:///{path}", tmp_path)
    first = min(row["id"] for row in rows_of(OF_718810F) if row["population"] == "secret")
    link = sqlite3.connect(path)
    guards = link.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in guards:
        link.execute(f"DROP TRIGGER {name}")
    ours = "SELECT seq FROM runs WHERE population_id = (SELECT id FROM populations WHERE name = 'secret')"
    for table in ("participations", "rounds", "leases"):
        link.execute(f"DELETE FROM {table} WHERE run_seq IN ({ours})")
    link.execute("DELETE FROM runs WHERE population_id = (SELECT id FROM populations WHERE name = 'secret')")
    link.execute("DELETE FROM users WHERE population_id = (SELECT id FROM populations WHERE name = 'secret')")
    link.execute("DELETE FROM populations WHERE name = 'secret'")
    link.execute("DELETE FROM audit WHERE id >= ?", (first,))
    link.execute("UPDATE head SET count = ?, hash = (SELECT hash FROM audit WHERE id = ?)", (first - 1, first - 1))
    before = link.execute("SELECT ledger, count, hash FROM head").fetchone()
    for _, made in guards:
        link.execute(made)
    link.commit()
    link.close()
    Ledger.migrate(str(path))
    with Ledger.open(str(path)) as ledger:
        head = ledger.head()
        assert (head.ledger, head.count, head.hash) == before


def test_a_changed_row_is_not_converted(ledger_url: str, tmp_path: Path) -> None:
    load(FIRST, ledger_url, tmp_path)
    with Database(ledger_url).engine.begin() as connection:
        edit_behind_the_guards(connection, "UPDATE audit SET actor = 'nobody' WHERE id = 3")
    with pytest.raises(LedgerError, check=coded("ledger-corrupt", "row")):
        Ledger.migrate(ledger_url)
    with pytest.raises(LedgerError, check=coded("ledger-version", "ledger", "0001")):
        Ledger.open(ledger_url)


def test_the_key_of_a_run_that_gave_way_to_a_charge_is_destroyed(tmp_path: Path) -> None:
    state = StateDirectory.of(tmp_path / "home", f"sqlite:///{tmp_path / 'ledger.sqlite3'}")
    state.prepare()
    load(FIRST, state.ledger, tmp_path)
    key = b"k" * 32
    RunFiles(state.root, "20261121-d3879bc0").create(key)
    Ledger.migrate(state.ledger)
    with Ledger.open(state.ledger) as ledger:
        assert left_behind(state, ledger) == ["20261121-d3879bc0"]
        destroy_left_behind(state, ledger, "test")
        assert left_behind(state, ledger) == []
    assert RunFiles(state.root, "20261121-d3879bc0").secrets() == []


def test_an_older_copy_than_the_held_head_is_not_converted(ledger_url: str, tmp_path: Path) -> None:
    """The file of that time was JSON without a signature; the new one is signed, and names the new log."""
    load(FIRST, ledger_url, tmp_path)
    last, name, held = rows_of(FIRST)[-1], None, tmp_path / "ledger.head"
    link = sqlite3.connect(":memory:")
    link.executescript(FIRST.read_text())
    name = link.execute("SELECT ledger FROM head").fetchone()[0]
    held.write_text(json.dumps({"ledger": name, "count": last["id"] + 1, "hash": "0" * 64}))
    with pytest.raises(OldCopy, check=coded("old-copy", "the ledger")):
        Ledger.migrate(ledger_url, held)
    held.write_text(json.dumps({"ledger": name, "count": last["id"], "hash": last["hash"]}))
    Ledger.migrate(ledger_url, held)
    with Ledger.open(ledger_url, head_file=held) as ledger:
        assert chain.HeadFile(held).read() == ledger.head()


@pytest.mark.parametrize(
    "harm", ["DELETE FROM objects WHERE hash = :name", "UPDATE objects SET content = :less WHERE hash = :name"]
)
def test_rows_of_the_old_log_that_go_missing_are_found(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "ledger.sqlite3"
    load(FIRST, f"sqlite:///{path}", tmp_path)
    Ledger.migrate(str(path))
    with Ledger.open(str(path)) as ledger:
        (name,) = json.loads(journal(ledger)[0]["body"])["rows"]
        with ledger.database.engine.begin() as connection:
            less = bytes(
                connection.execute(text("SELECT content FROM objects WHERE hash = :name"), {"name": name}).scalar_one()
            )
            for (guard,) in connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).all():
                connection.execute(text(f"DROP TRIGGER {guard}"))
            connection.execute(text(harm), {"name": name, "less": less[:-1]} if "less" in harm else {"name": name})
        fault = verify(ledger).fault
        assert fault is not None
        assert (fault.table, fault.row) == ("objects", name)
