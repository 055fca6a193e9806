"""`verify` finds every change that was not made through the ledger, and names where."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
import sqlite3
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sqlalchemy import Boolean, select, text
from sqlalchemy.exc import DBAPIError

from fieldfare.accounting import PrivacyLoss
from fieldfare.costing import cost_of
from fieldfare.errors import FieldfareError
from fieldfare.plan import Plan
from fieldfare_server.evidence.verify import DueCharge, Verifier, recharge, verify
from fieldfare_server.files.checkpoint import RunFiles
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.files.strategies import StoredStrategy, settle
from fieldfare_server.ledger import Head, Ledger, OpenRound, Outcome, RunHandle, new_run_id
from fieldfare_server.ledger.chain import sha256
from fieldfare_server.ledger.events.base import Unfit
from fieldfare_server.ledger.rules.fold import apply
from fieldfare_server.ledger.rules.populations import Rules
from fieldfare_server.ledger.sql import models
from fieldfare_server.ledger.state.state import State
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, home, plan
from support.fill import fill
from support.ledgers import PLAN, commit, edit_behind_the_guards, gaussian, start


def charge_per_participation(plan_json: str, strategy: object):  # type: ignore[no-untyped-def]
    """A rule to recompute by: mu^2 = 0.04 x the most that anybody has taken part so far."""
    assert plan_json == PLAN
    times: Counter[int] = Counter()
    last = -1

    def charge(index: int, users: NDArray[np.int64]) -> PrivacyLoss:
        nonlocal last
        assert index > last
        last = index
        times.update(users.tolist())
        return PrivacyLoss(mu_squared=0.04 * max(times.values(), default=0), sampled=())

    return DueCharge(charge)


def test_an_untouched_ledger_fits(ledger_url: str, tmp_path: Path) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        fill(ledger, tmp_path / "runs")
        report = verify(ledger, tmp_path / "runs", recompute=charge_per_participation, held=[ledger.head()])
        # the second run's checkpoint was never written: that is a fault, and the only one
        assert report.fault is not None
        assert report.fault.table == "checkpoints"
        report = verify(ledger, recompute=charge_per_participation, held=[ledger.head()])
        assert report.ok
        wanted = {"populations": 2, "users": 50, "runs": 5, "rounds": 9, "charges": 7, "tokens": 2, "odometers": 50}
        assert {**report.checked, **wanted} == report.checked
        assert report.head == ledger.head()


def test_a_charge_that_the_plan_does_not_give_is_named(ledger_url: str) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        run = start(ledger)
        run.register_users(np.arange(3, dtype=np.uint64))
        commit(run, [0, 1], 0.2)
        commit(run, [1], 0.2)  # user 1 took part twice: 0.04 is too little
        fault = verify(ledger, recompute=charge_per_participation).fault
    assert fault is not None
    assert (fault.table, fault.row) == ("rounds", f"{run.id} 1")


def described(**privacy: object) -> Plan:
    return Plan.parse(
        {
            "privacy": {"population": "people", "noise_multiplier": 4.0, "delta": 1e-6, **privacy},
            "run": {"task": "digits", "rounds": 4, "cohort": 2, "min_reports": 1},
            "participation": {"scheme": "min-separation", "separation": 2, "max_participations": 2},
            "mechanism": {"kind": "independent"},
        }
    )


@pytest.mark.parametrize(("part", "fits"), [(1.0, True), (0.99, False), (1.01, False)])
def test_what_a_run_reserves_is_recomputed_from_its_plan(
    part: float, fits: bool, ledger_url: str, tmp_path: Path
) -> None:
    """Of a run of commit 718810f, whose strategy has no price: the ledger's must be that of the plan."""
    cost, content = settle(cost_of(described()), {})
    unpriced = json.dumps({name: value for name, value in json.loads(content).items() if name != "price"}).encode()
    named, planned = sha256(unpriced), PrivacyLoss(mu_squared=part * cost.loss.mu_squared)
    (tmp_path / "run").mkdir()
    StoredStrategy(tmp_path, "run", named, planned).write(unpriced)
    with Ledger.open(ledger_url, create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        run = start(ledger, plan_json=cost.plan.to_json(), planned=planned, id="run", strategy=named)
        report = verify(ledger, recompute=recharge, store_root=tmp_path)
        assert verify(ledger).ok
    assert report.ok == fits
    if not fits:
        assert report.fault is not None
        assert (report.fault.table, report.fault.row) == ("runs", run.id)
        assert "planned" in report.fault.why


@pytest.mark.parametrize(("part", "fits"), [(1.0, True), (0.99, False), (1.01, False)])
def test_what_a_run_reserves_is_the_price_that_is_stored_with_it(
    part: float, fits: bool, ledger_url: str, tmp_path: Path
) -> None:
    cost, content = settle(cost_of(described()), {})
    (tmp_path / "run").mkdir()
    StoredStrategy(tmp_path, "run", cost.strategy, cost.loss).write(content)
    planned = PrivacyLoss(mu_squared=part * cost.loss.mu_squared)
    with Ledger.open(ledger_url, create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        run = start(ledger, plan_json=cost.plan.to_json(), planned=planned, id="run", strategy=cost.strategy)
        report = verify(ledger, recompute=recharge, store_root=tmp_path)
    assert report.ok == fits
    assert not report.missing
    if report.fault is not None:
        assert (report.fault.table, report.fault.row) == ("runs", run.id)
        assert "planned" in report.fault.why


@pytest.mark.parametrize(("part", "fits"), [(1.0, True), (0.5, False), (0.0, False)])
def test_the_leak_of_discrete_noise_is_recomputed(part: float, fits: bool, ledger_url: str, tmp_path: Path) -> None:
    cost, content = settle(cost_of(described(rounding="discrete")), {})
    (tmp_path / "run").mkdir()
    StoredStrategy(tmp_path, "run", cost.strategy, cost.loss).write(content)
    assert cost.leak is not None
    assert 0 < cost.leak < 1e-40
    with Ledger.open(ledger_url, create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, leak=1e-12, actor="officer")
        terms = {"plan_json": cost.plan.to_json(), "planned": cost.loss, "leak": part * cost.leak}
        run = start(ledger, **terms, id="run", strategy=cost.strategy)
        fault = verify(ledger, recompute=recharge, store_root=tmp_path).fault
    assert (fault is None) == fits
    if fault is not None:
        assert (fault.table, fault.row) == ("runs", run.id)
        assert "leak" in fault.why


def test_a_nonce_that_two_rounds_name_is_found(tmp_path: Path) -> None:
    """The chain is whole: only the rule that no nonce serves two rounds can tell."""
    state_dir = home(tmp_path)
    with Session.begin(state_dir, plan(run__noise_seed=None), identity_is_stable=True) as session:
        strategy = FieldfareStrategy(session)
        for _ in range(2):
            assert strategy.run_round(LyingGrid(3))
    with Ledger.open(state_dir.ledger) as ledger, ledger.read() as connection:
        rows = [
            dict(row) for row in connection.execute(select(models.journal).order_by(models.journal.c.id)).mappings()
        ]
    commits = [row for row in rows if row["action"] == "round.commit"]
    assert len(commits) == 2
    body = json.loads(commits[1]["body"])
    body["nonce"] = json.loads(commits[0]["body"])["nonce"]
    for forged in (False, True):
        state, found = State(), ""
        try:
            for row in rows:
                apply(state, {**row, "body": json.dumps(body)} if forged and row is commits[1] else row)
        except Unfit as unfit:
            found = unfit.why
        assert found == (f"its nonce is that of round 0 of run {session.account.id}" if forged else "")


def test_a_checkpoint_whose_nonces_are_not_the_ledgers_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its digest is committed: the two were made to disagree before the commit."""
    state_dir = home(tmp_path)
    commit_round = RunHandle.commit_round

    def other_nonce(self: RunHandle, round: OpenRound, outcome: Outcome, digest: str) -> None:
        assert outcome.nonce is not None
        commit_round(self, round, dataclasses.replace(outcome, nonce=bytes(16)), digest)

    with Session.begin(state_dir, plan(run__noise_seed=None), identity_is_stable=True) as session:
        assert session.cost.resolution > 0
        assert_whole(state_dir)
        assert FieldfareStrategy(session).run_round(LyingGrid(3))
        assert_whole(state_dir)
        monkeypatch.setattr(RunHandle, "commit_round", other_nonce)
        assert FieldfareStrategy(session).run_round(LyingGrid(3))
    with Ledger.open(state_dir.ledger) as ledger:
        fault = verify(ledger, state_dir.root, recompute=recharge).fault
    assert fault is not None
    assert fault.table == "checkpoints"
    assert "nonces are not those of the ledger" in fault.why


def assert_whole(state_dir: StateDirectory) -> None:
    with Ledger.open(state_dir.ledger) as ledger:
        report = verify(ledger, state_dir.root, recompute=recharge)
        assert report.ok, report.fault
        assert (report.missing, report.unpinned) == ({}, {})


EDITS = (
    ("UPDATE audit SET actor = 'nobody' WHERE id = 3", "audit", "3"),
    ("UPDATE audit SET body = '{}' WHERE id = 2", "audit", "2"),
    ("DELETE FROM audit WHERE id = 4", "audit", "4"),
    ("DELETE FROM audit WHERE id = (SELECT max(id) FROM audit)", "audit", "last"),
    ("UPDATE populations SET epsilon = 50 WHERE name = 'people'", "populations", "people"),
    ('UPDATE populations SET settled = \'{"mu_squared": 0.0, "sampled": []}\'', "populations", "people"),
    ("UPDATE rounds SET noise_row = 5 WHERE state = 'open'", "rounds", ""),
    ("DELETE FROM participations", "participations", ""),
    ("UPDATE participations SET users = 'x' WHERE round_id = 1", "participations", ""),
    ("UPDATE runs SET plan = '{}' WHERE seq = 1", "runs", ""),
    ("UPDATE tokens SET revoked_at = NULL", "tokens", ""),
    ("UPDATE tokens SET scopes = 'read admin'", "tokens", ""),
    ("DELETE FROM tokens WHERE revoked_at IS NULL", "tokens", ""),
    ("UPDATE users SET count = count - 1", "users", "people 0"),
)


def test_edited_rows_are_named(ledger_url: str) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        fill(ledger)
        last = ledger.head().count
        for statement, table, row in EDITS:
            with ledger.database.engine.connect() as connection:
                edit_behind_the_guards(connection, statement)
                fault = Verifier("edited").report(connection).fault
                connection.rollback()
            assert fault is not None, statement
            assert fault.table == table, statement
            assert fault.row == (str(last) if row == "last" else row) or not row
        assert verify(ledger).ok


REWRITES = (
    "UPDATE audit SET actor = 'nobody'",
    "DELETE FROM audit",
    "INSERT INTO audit SELECT id + 50, at, actor, action, NULL, NULL, 1, 'x', body, previous, hash FROM audit",
    "UPDATE head SET count = count - 1",
    "DELETE FROM head",
    "UPDATE rounds SET spent = '' WHERE state = 'committed'",
    "UPDATE rounds SET state = 'open' WHERE state = 'void'",
    "DELETE FROM rounds",
    "UPDATE participations SET count = 0",
    "DELETE FROM participations",
    "DELETE FROM users",
)


def test_the_database_itself_refuses_to_rewrite_history(ledger_url: str) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        fill(ledger)
        with ledger.database.engine.connect() as connection:
            sqlite = connection.dialect.name == "sqlite"
            for statement in REWRITES if sqlite else (*REWRITES, "TRUNCATE audit", "TRUNCATE users"):
                with pytest.raises(DBAPIError, match=r"append-only|only grows|gets shorter|does not change|not re"):
                    connection.execute(text(statement))
                connection.rollback()
        assert verify(ledger).ok


def test_a_guard_taken_away_is_named(ledger_url: str) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        fill(ledger)
        with ledger.database.engine.begin() as connection:
            on = "" if connection.dialect.name == "sqlite" else " ON rounds"
            connection.execute(text(f"DROP TRIGGER rounds_keep{on}"))
        fault = verify(ledger).fault
    assert fault is not None
    assert (fault.table, fault.row) == ("schema", "rounds_keep")


def test_a_log_cut_short_is_noticed_only_by_who_held_its_end(ledger_url: str) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        before = ledger.head()
        ledger.create_token("page", ("read",), actor="officer")
        held = ledger.head()
        with ledger.database.engine.begin() as connection:
            edit_behind_the_guards(connection, "DELETE FROM audit WHERE id = 2")
            edit_behind_the_guards(connection, f"UPDATE head SET count = 1, hash = '{before.hash}'")
            edit_behind_the_guards(connection, "DELETE FROM tokens")
        assert verify(ledger).ok
        fault = verify(ledger, held=[held]).fault
        assert fault is not None
        assert "seen once" in fault.why
        other = Head(held.ledger, 1, "f" * 64)
        fault = verify(ledger, held=[other]).fault
        assert fault is not None
        assert fault.row == "1"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A filled SQLite ledger, closed."""
    path = tmp_path_factory.mktemp("filled") / "ledger.sqlite3"
    with Ledger.open(str(path), create=True) as ledger:
        fill(ledger)
        ledger.create_population("two", 1.0, 1e-6, rules=Rules(two_persons=True), actor="officer")
        ledger.raise_population("two", epsilon=2.0, reason="more", actor="ann", person="aa")
    return path


COLUMNS = [
    (table.name, column.name)
    for table in models.metadata.sorted_tables
    for column in table.columns
    # leases say who works on a run now, which no log row repeats; a number that nothing refers to may be any number
    if table.name != "leases" and (table.name, column.name) not in (("populations", "id"), ("rounds", "id"))
]


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_no_column_can_be_changed_unnoticed(filled: Path, tmp_path: Path, table: str, column: str) -> None:
    path = tmp_path / "ledger.sqlite3"
    shutil.copy(filled, path)
    with sqlite3.connect(path) as link:
        guards = link.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in guards:
            link.execute(f"DROP TRIGGER {name}")
        link.execute("PRAGMA ignore_check_constraints = ON")
        (rowid,) = link.execute(f"SELECT max(rowid) FROM {table}").fetchone()
        (old,) = link.execute(f'SELECT "{column}" FROM {table} WHERE rowid = ?', (rowid,)).fetchone()
        if isinstance(old, bytes):
            new: object = old[:-1] + bytes([old[-1] ^ 1])
        elif isinstance(old, str):
            new = old[:-1] + ("0" if old[-1:] != "0" else "1")
        else:
            truth = isinstance(models.metadata.tables[table].c[column].type, Boolean)
            new = 77 if old is None else 1 - old if truth else old + 1
        link.execute(f'UPDATE {table} SET "{column}" = ? WHERE rowid = ?', (new, rowid))
        for _, made in guards:
            link.execute(made)
    link.close()
    assert found_by_opening_or_verifying(path)


def found_by_opening_or_verifying(path: Path) -> bool:
    try:
        with Ledger.open(str(path)) as ledger:
            return not verify(ledger).ok
    except FieldfareError:
        return True


def dump(path: Path) -> list[str]:
    """Everything the ledger says, but for the leases."""
    link = sqlite3.connect(path)
    try:
        return [line for line in link.iterdump() if '"leases"' not in line]
    finally:
        link.close()


def flipped_bytes_are_noticed(filled: Path, tmp_path: Path, tries: int, seed: int) -> None:
    rng = random.Random(seed)
    original, wanted = filled.read_bytes(), dump(filled)
    path = tmp_path / "ledger.sqlite3"
    noticed = 0
    for _ in range(tries):
        data = bytearray(original)
        data[rng.randrange(100, len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        if found_by_opening_or_verifying(path):
            noticed += 1
        else:
            assert dump(path) == wanted  # the flip hit bytes that mean nothing
        for rest in tmp_path.glob("ledger.sqlite3-*"):
            rest.unlink()
    assert noticed > tries // 20


def test_flipped_bytes_in_the_file_are_noticed(filled: Path, tmp_path: Path) -> None:
    flipped_bytes_are_noticed(filled, tmp_path, 60, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_flipped_bytes_in_the_file_are_noticed(filled: Path, tmp_path: Path) -> None:
    flipped_bytes_are_noticed(filled, tmp_path, 4000, seed=2)


def test_changed_and_missing_checkpoints_are_named(tmp_path: Path) -> None:
    with Ledger.open(str(tmp_path / "ledger.sqlite3"), create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        run = start(ledger, rounds=2, id=new_run_id())
        store = RunFiles(tmp_path / "runs", run.id)
        store.create(bytes(32))
        names = []
        for t in range(2):
            opened = run.open_round([])
            names.append(store.write(t, {"x": torch.full((4,), float(t))}, {}))
            run.commit_round(opened, Outcome([], gaussian(0.1)), names[-1])
            assert verify(ledger, tmp_path / "runs").ok  # committed and not promoted yet: it is there
            store.promote(names[-1])
        assert verify(ledger, tmp_path / "runs").checked["checkpoints"] == 2
        kept = store.promote(names[1]).read_bytes()
        store.promote(names[1]).write_bytes(kept[:-1] + b"\xff")
        fault = verify(ledger, tmp_path / "runs").fault
        assert fault is not None
        assert (fault.table, fault.row) == ("checkpoints", f"{run.id} {names[1]}")
        (store.directory / "checkpoints" / f"{names[1]}.safetensors").unlink()
        fault = verify(ledger, tmp_path / "runs").fault
        assert fault is not None
        assert "missing" in fault.why
