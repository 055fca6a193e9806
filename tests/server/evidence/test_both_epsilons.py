"""Statement and certificate show one epsilon, or the statement names both and says why."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fieldfare_server.evidence.certificate import certificate
from fieldfare_server.evidence.deployments_registry import registry_entry
from fieldfare_server.evidence.statement import privacy_statement
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.rules.runs import finish
from fieldfare_server.ledger.state.budget import paid
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, home, plan

SAMPLED: dict[str, Any] = {
    "privacy": {"population": "people", "noise_multiplier": 2.0, "delta": 1e-5, "adjacency": "add_remove"},
    "participation": {"scheme": "poisson", "rate": 0.3},
    "mechanism": {"kind": "independent"},
    "run__min_reports": None,
}


@pytest.mark.parametrize("changes", [{}, SAMPLED], ids=["gaussian", "sampled"])
def test_statement_and_certificate_name_the_same_epsilon(changes: dict[str, Any], tmp_path: Path) -> None:
    a_plan = plan(**changes, run__noise_seed=None)
    state = home(tmp_path, adjacency=a_plan.privacy.adjacency)
    with Session.begin(state, a_plan, identity_is_stable=True) as session:
        FieldfareStrategy(session).take_to_end(LyingGrid(2))
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        proven = json.loads(certificate(ledger, session.account.id, state))["epsilon"]
        statement = privacy_statement(ledger, session.account.id, state.root).to_markdown()
        run = ledger.run(session.account.id)
    lines = [line for line in statement.splitlines() if "Charged for this run" in line]
    if changes:
        (told,) = lines
        assert "if later runs are chosen by what it released" in told
        (shown,) = re.findall(r"epsilon = ([\d.]+)", told)
        assert float(shown) == pytest.approx(proven["hi"], rel=1e-4)
        assert run.spent_epsilon < proven["lo"]
    else:
        assert not lines
        assert proven["lo"] * (1 - 1e-6) <= run.spent_epsilon <= proven["hi"] * (1 + 1e-6)


def test_a_run_that_ended_early_is_certified_for_what_it_planned(tmp_path: Path) -> None:
    """What its rounds had spent holds only where nothing that was seen decided when it ended."""
    state = home(tmp_path)
    with Session.begin(state, plan(run__noise_seed=None), identity_is_stable=True) as session:
        FieldfareStrategy(session).run_round(LyingGrid(2))
        session.finish("stopped", "enough")
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        proven = json.loads(certificate(ledger, session.account.id, state))["epsilon"]
        run = ledger.run(session.account.id)
    assert run.spent_epsilon < 0.9 * run.planned_epsilon
    assert proven["hi"] >= run.planned_epsilon * (1 - 1e-9)


@pytest.mark.parametrize("changes", [{}, SAMPLED], ids=["gaussian", "sampled"])
def test_a_run_that_was_charged_whole_is_certified_for_it_also_without_a_round(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    """`ledger mend` charges a run whole whose rows were lost: more may have been released than its rounds."""
    a_plan = plan(**changes, run__noise_seed=None, privacy__accounting="worst-case")
    state = home(tmp_path, adjacency=a_plan.privacy.adjacency)
    with Session.begin(state, a_plan, identity_is_stable=True) as session:
        run_id = session.account.id
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        ledger._journal.write(
            lambda _, entry: entry.append(
                finish(entry.state, run_id, "failed", "", None, whole=True), "test", population="people", run=run_id
            )
        )
        proven, run = json.loads(certificate(ledger, run_id, state)), ledger.run(run_id)
        priced = next(each.charge for each in ledger.priced_runs("people"))
    assert (run.next_round, run.spent) == (0, run.planned)
    assert proven["price"]["mu_squared"] >= paid(priced).mu_squared * (1 - 1e-9) > 0
    assert proven["epsilon"]["hi"] >= run.planned_epsilon * (1 - 1e-9)


def test_a_budget_that_more_digits_tell_is_never_stated_as_less(tmp_path: Path) -> None:
    """(3.0000049, .0010000049) was told as (3, .001)."""
    state = StateDirectory(tmp_path, f"sqlite:///{tmp_path / 'ledger.sqlite3'}")
    state.prepare()
    with Ledger.open(state.ledger, create=True, head_file=state.head_file) as ledger:
        ledger.create_population("people", 3.0000049, 0.0010000049, actor="officer")
    a_plan = plan(run__noise_seed=None, privacy__delta=0.0010000049)
    with Session.begin(state, a_plan, identity_is_stable=True) as session:
        FieldfareStrategy(session).take_to_end(LyingGrid(2))
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        told = privacy_statement(ledger, session.account.id, state.root).to_markdown()
        entry = json.dumps(registry_entry(ledger, session.account.id, state.root))
    assert "stay (3.00001, 0.00100001)-differentially private" in told
    assert "committed of 3.00001." in told
    assert "limited to epsilon 3.00001 at delta 0.00100001" in entry
    lines = [line for line in told.splitlines() if "tolerance" not in line]
    assert not [line for line in lines if re.search(r"0\.001(?!00)\D", line)]
