"""Odometers through whole runs: selection by what users have left, crash and resume, recomputation, the statement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fieldfare.errors import BudgetRefused
from fieldfare.plan import Plan
from fieldfare_server import faults
from fieldfare_server.evidence.recompute import recomputed
from fieldfare_server.evidence.statement import privacy_statement
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.sql import odometer_tables, rows
from fieldfare_server.ledger.state import odometers
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import JOINED_ONCE, LyingGrid, home, plan
from support.refusals import coded

USERS = 24


def third(**changes: Any) -> Plan:
    """A run that each user joins once, of a third of the users, for the whole budget of epsilon 2."""
    setting = {
        "privacy": {"population": "people", "epsilon": 2.0, "delta": 1e-5},
        **JOINED_ONCE,
        "run__cohort": 4,
        "run__min_reports": 4,
    }
    return plan(**{**setting, **changes})


def finish(state: StateDirectory, of: Plan) -> str:
    session = Session.begin(state, of, True)
    with session:
        FieldfareStrategy(session).start(LyingGrid(3))
    return session.account.id


def spent(state: StateDirectory) -> list[float]:
    with Ledger.open(state.ledger) as ledger, ledger.read() as connection:
        row = rows.population_row(connection, "people")
        return (odometer_tables.settled(connection, row.id, row.users) * 2.0**-44).tolist()


def test_runs_go_on_while_enough_users_have_enough_left(tmp_path: Path) -> None:
    state = home(tmp_path, epsilon=2.0)
    of = third()
    for number in range(3):
        finish(state, of)
        assert sum(value > 0 for value in spent(state)) == 8 * (number + 1)
    with Ledger.open(state.ledger) as ledger:
        view = ledger.population("people")
        assert view.left == (USERS,) + (0,) * 9
        assert view.spent_epsilon == pytest.approx(2.0, rel=1e-8)
        assert not view.overdrawn
        assert verify(ledger, state.root, recompute=recharge).ok
    with pytest.raises(BudgetRefused, check=coded("users-spent", "a run of", "24")):
        finish(state, of)


@pytest.mark.parametrize("point", ["checkpoint.pending", "ledger.round.committing", "ledger.round.committed"])
def test_a_crash_around_a_commit_charges_each_user_once(tmp_path: Path, point: str) -> None:
    state = home(tmp_path, epsilon=2.0)
    session = Session.begin(state, third(), True)
    run = session.account.id
    faults.load({faults.VARIABLE: f"{point}:raise"})
    try:
        with pytest.raises(faults.FaultInjected), session:
            FieldfareStrategy(session).start(LyingGrid(3))
    finally:
        faults.load({})
    with Session.resume(state, run, True) as again:
        FieldfareStrategy(again).start(LyingGrid(3))
    values = [value for value in spent(state) if value]
    assert len(values) == 8
    assert max(values) == min(values)
    with Ledger.open(state.ledger) as ledger:
        assert verify(ledger, state.root, recompute=recharge).ok


def test_a_worst_case_population_keeps_its_rule_until_it_is_recomputed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before_odometers:
        before_odometers.setattr(odometers, "INDIVIDUAL", odometers.WORST_CASE)
        state = home(tmp_path, epsilon=2.0)
    of = third(privacy={"population": "people", "epsilon": 1.5, "delta": 1e-5})
    run = finish(state, of)
    with Ledger.open(state.ledger) as ledger:
        assert ledger.run(run).accounting == "worst-case"
    with pytest.raises(BudgetRefused):
        finish(state, of)
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        charges, left = recomputed(ledger, state.root, "people")
        assert (list(charges), left) == ([run], {})
        before = ledger.population("people").spent_epsilon
        view = ledger.keep_odometers("people", charges, actor="officer")
        assert view.spent_epsilon == pytest.approx(before, rel=1e-8)
        assert view.accounting == ledger.run(run).accounting == "individual"
    finish(state, of)
    assert sum(value > 0 for value in spent(state)) == 16


def test_the_statement_says_what_holds_and_shows_no_users_value(tmp_path: Path) -> None:
    state = home(tmp_path, epsilon=2.0)
    run = finish(state, third())
    with Ledger.open(state.ledger) as ledger:
        statement = privacy_statement(ledger, run)
        page = statement.summary + statement.to_markdown()
    assert "For each of 24 users, given who answered when" in page
    assert "16 up to 100 %" in page
    assert "individual filter" in page
    assert str(max(spent(state))) not in page


def test_add_remove_and_worst_case_by_choice_have_no_odometers(tmp_path: Path) -> None:
    state = home(tmp_path, epsilon=2.0)
    run = finish(
        state, third(privacy={**third().privacy.model_dump(), "accounting": "worst-case", "noise_multiplier": None})
    )
    assert np.sum(spent(state)) == 0
    with Ledger.open(state.ledger) as ledger:
        assert ledger.run(run).accounting == "worst-case"
        assert ledger.population("people").spent_epsilon > 1
