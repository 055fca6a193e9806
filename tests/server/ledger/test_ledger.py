"""Budget, runs, rounds: what the ledger promises, on both databases."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Connection, event
from sqlalchemy.exc import OperationalError

from fieldfare.accounting.filter import Price
from fieldfare.errors import BadInput, BudgetRefused, LedgerError
from fieldfare_server.ledger import Ledger, Outcome, chain
from fieldfare_server.ledger.sql import database as database_module
from fieldfare_server.ledger.state import budget
from support.ledgers import PLAN, commit, digest, gaussian, start
from support.refusals import coded


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    with Ledger.open(ledger_url, create=True) as opened:
        opened.create_population("people", 4.0, 1e-6, actor="officer")
        yield opened


def test_a_missing_ledger_is_refused(ledger_url: str) -> None:
    with pytest.raises(LedgerError):
        Ledger.open(ledger_url)


def test_opening_again_keeps_everything(ledger: Ledger, ledger_url: str) -> None:
    with Ledger.open(ledger_url, create=True) as again:
        assert again.populations() == ledger.populations()


def test_a_ledger_elsewhere_is_opened_before_there_is_a_state_directory(
    ledger: Ledger, ledger_url: str, tmp_path: Path
) -> None:
    """As on the machine that submits a plan to a federation whose ledger is a PostgreSQL server."""
    head_file = tmp_path / "no" / "state" / "ledger.head"
    with Ledger.open(ledger_url, head_file=head_file) as opened:
        assert chain.HeadFile(head_file).read() == opened.head()
    assert head_file.parent.stat().st_mode & 0o777 == 0o700


def test_whole_life_of_a_run(ledger: Ledger) -> None:
    run = start(ledger, 0.8, rounds=2)
    users = run.register_users(np.array([11, 12, 13], dtype=np.uint64))
    assert users.tolist() == [0, 1, 2]
    reserved = ledger.population("people")
    assert reserved.spent_epsilon == 0
    assert reserved.committed == Price(0.8 * 0.8)
    commit(run, [0, 1], 0.5)
    commit(run, [1, 2], 0.6)
    last, count = run.participation(np.arange(3))
    assert last.tolist() == [0, 1, 1]
    assert count.tolist() == [1, 2, 1]
    assert run.patterns([0, 1, 2]) == [(0,), (0, 1), (1,)]
    run.finish("done")
    after = ledger.population("people")
    assert after.spent == after.committed == Price(0.6 * 0.6)
    assert after.spent_epsilon == pytest.approx(gaussian(0.6).epsilon(1e-6))
    assert ledger.run(run.id).state == "done"
    assert [r.state for r in ledger.rounds(run.id).items] == ["committed", "committed"]
    assert ledger.participation_histogram(run.id) == {1: 2, 2: 1}


def test_budget_counts_spent_and_reserved_and_names_what_would_fit(ledger: Ledger) -> None:
    first = start(ledger, 0.6)
    first.finish("stopped")
    start(ledger, 0.5)
    with pytest.raises(BudgetRefused) as refusal:
        start(ledger, 0.9)
    named = float(refusal.value.nearest.partition("(mu ")[2].rstrip(")"))
    left = ledger.population("people").remaining_mu
    assert named == pytest.approx(left, rel=1e-5)
    assert gaussian(math.hypot(0.5, named)).epsilon(1e-6) <= 4.0
    assert gaussian(math.hypot(0.5, named * 1.001)).epsilon(1e-6) > 4.0
    with pytest.raises(BudgetRefused):
        start(ledger, named * (1 + 1e-5))
    start(ledger, named)


@pytest.mark.parametrize("total", [math.nan, math.inf])
def test_a_total_that_is_no_finite_number_is_refused(total: float) -> None:
    terms = budget.Terms(4.0, 1e-6, 1e-7)
    assert terms.hold(Price(0.1, 1e-8))
    assert not terms.hold(Price(total, 1e-8))
    assert not terms.hold(Price(0.1, total))


ODD = [
    "\ud800",
    'a"\\\n\x7f\u2028\U0001f600',
    "",
    None,
    0,
    -1,
    True,
    7.0,
    -0.0,
    1e22,
    5e-324,
    2**70,
    [],
    {"b": 1, "a": 2},
]


@pytest.mark.parametrize("name", ["id", "at", "actor", "action", "population", "run", "round", "event", "body"])
def test_the_hash_of_a_row_is_of_its_canonical_json_whatever_an_edit_left_in_it(name: str) -> None:
    row: dict[str, Any] = {"id": 3, "at": 1.5, "actor": "a", "action": "run.start", "population": None, "run": "r"}
    row |= {"round": None, "event": "e", "body": "{}", "previous": "00"}
    for value in [row[name], "text", 2, *ODD]:
        edited = {**row, name: value}
        content = json.dumps(
            {key: edited[key] for key in row if key != "previous"}, sort_keys=True, separators=(",", ":")
        )
        assert chain.row_hash(edited) == chain.sha256(b"\x00" + content.encode())
    for value, error in ((math.nan, ValueError), (math.inf, ValueError), (b"bytes", TypeError)):
        with pytest.raises(error):
            chain.row_hash({**row, name: value})


def test_a_row_hash_continues_the_row_before() -> None:
    names = ("id", "at", "actor", "action", "population", "run", "round", "event", "body")
    row = {**dict.fromkeys(names, "same"), "previous": "00"}
    assert chain.row_hash(row) != chain.row_hash({**row, "previous": "01"})
    for name in names:
        assert chain.row_hash(row) != chain.row_hash({**row, name: "another"})


def test_charge_is_bounded_by_what_was_reserved_and_never_shrinks(ledger: Ledger) -> None:
    run = start(ledger, 0.8)
    run.register_users(np.array([5], dtype=np.uint64))
    commit(run, [0], 0.5)
    with pytest.raises(BudgetRefused, check=coded("charge-shrinks")):
        commit(run, [0], 0.4)
    opened = run.open_round_pending()
    assert opened is not None
    with pytest.raises(BudgetRefused, check=coded("charge-above-reserved")):
        run.commit_round(opened, Outcome([0], gaussian(0.81)), digest("x"))
    assert run.spent == gaussian(0.5)
    run.commit_round(opened, Outcome([0], gaussian(0.8)), digest("x"))


def test_void_costs_nothing_and_frees_the_noise_row(ledger: Ledger) -> None:
    run = start(ledger)
    run.register_users(np.array([5, 6], dtype=np.uint64))
    opened = run.open_round([0, 1])
    run.void_round(opened, "too few reports", reports=1, rejects={"nan": 1})
    again = run.open_round([0])
    assert (again.index, again.attempt, again.noise_row) == (0, 1, opened.noise_row)
    run.commit_round(again, Outcome([0], gaussian(0.1)), digest("a"))
    assert run.patterns([0, 1]) == [(0,), ()]
    void, committed = ledger.rounds(run.id).items
    assert (void.state, void.reason, void.rejects) == ("void", "too few reports", {"nan": 1})
    assert committed.state == "committed"


def test_one_open_round_at_a_time(ledger: Ledger) -> None:
    run = start(ledger)
    run.open_round([])
    with pytest.raises(LedgerError, check=coded("out-of-turn", "round")):
        run.open_round([])


def test_adjacency_of_the_plan_must_be_the_populations(ledger: Ledger) -> None:
    with pytest.raises(BadInput, check=coded("differs", "privacy.adjacency")):
        start(ledger, plan_json=PLAN.replace("zero_out", "add_remove"))


def test_a_disk_that_is_full_for_a_moment_loses_no_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite answers at once that it is full, and a run ended with it."""
    slept: list[float] = []
    with Ledger.open(f"{tmp_path}/l.sqlite3", create=True, patience=30.0) as ledger:
        database, pages = ledger.database, [1]  # of one page: as many as there are

        def limit(connection: Any, *rest: Any) -> None:
            connection.execute(f"PRAGMA max_page_count = {pages[-1]}")

        def fill(connection: Connection, *_: object) -> str:
            connection.exec_driver_sql(f"CREATE TABLE filler_{len(slept)} AS SELECT zeroblob(100000) AS filler")
            return "filled"

        def make_room(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == 2:
                pages.append(1 << 30)

        event.listen(database.engine, "checkout", limit)
        monkeypatch.setattr(database_module.time, "sleep", make_room)
        assert database.write(fill) == "filled"
        assert len(slept) == 2
        pages.append(1)
        database.patience = 0.0
        with pytest.raises(LedgerError, check=coded("database-refused")):
            database.write(fill)


@pytest.mark.parametrize(
    ("state", "passes"),
    [("53100", True), ("53300", True), ("25006", True), ("57P03", True), ("42501", False), ("23505", False)],
)
def test_which_refusals_of_postgresql_pass(state: str, passes: bool) -> None:
    """A full disk, too many connections, a standby that is not promoted yet; no right, a row that exists."""
    cause = type("Cause", (Exception,), {"sqlstate": state})()
    assert database_module._went_away(OperationalError("SELECT", None, cause)) is passes


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE])
def test_a_disk_without_room_for_the_index_of_the_log_is_called_full(tmp_path: Path, code: int) -> None:
    """SQLite calls it a "disk I/O error" where a reader finds no room for the index of the write-ahead log."""
    cause = type("Cause", (sqlite3.OperationalError,), {"sqlite_errorcode": code})("disk I/O error")
    error = database_module.Database(f"{tmp_path}/l.sqlite3").error(OperationalError("SELECT", None, cause))
    assert coded("disk-full")(error)


def test_a_password_in_a_url_that_is_no_text_is_not_shown() -> None:
    with pytest.raises(BadInput, check=coded("ledger-path-encoding", "ledger URL")) as refused:
        Ledger.open("postgresql://fieldfare:s\udce9cret@localhost/ledger")
    assert "cret" not in str(refused.value)
