"""One strategy for each run, stored by content: the same charge on every machine."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from fieldfare import costing
from fieldfare.accounting import PrivacyLoss, charge_for, realised
from fieldfare.cost import Cost
from fieldfare.costing import cost_of
from fieldfare.errors import BadInput
from fieldfare.mechanisms import dense
from fieldfare.mechanisms.registry import kinds
from fieldfare.plan import Plan
from fieldfare_server.api import create_app
from fieldfare_server.cli.application import assemble
from fieldfare_server.evidence.guarantee import NOT_AT_HAND
from fieldfare_server.evidence.residual_test import run_residual_test
from fieldfare_server.evidence.statement import privacy_statement
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.checkpoint import RunFiles
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.files.strategies import Decisions, StoredStrategy, StrategyError, settle
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, home, plan
from support.kinds import SPECS
from support.refusals import coded

DENSE = {"mechanism": {"kind": "dense", "objective": "max"}}
SEARCH = """
import hashlib, sys
from fieldfare import mechanisms
from fieldfare.participation import MinSeparation
m = mechanisms.build({"kind": "dense", "objective": "max"}, 160, MinSeparation(40, 4))
both = m.strategy_matrix(160).tobytes() + m.noising_matrix(160).tobytes()
print(hashlib.sha256(both).hexdigest())
"""


def test_a_search_ends_at_the_same_bits_on_one_and_two_threads() -> None:
    found = set()
    for threads in ("1", "2"):
        environment = {**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        command = [sys.executable, "-c", SEARCH]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found.add(done.stdout)
    assert len(found) == 1


def settled(a_plan: Plan, root: Path) -> tuple[Cost, bytes]:
    decided = Decisions(a_plan, root)
    return settle(cost_of(a_plan, decided), decided)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_every_kind_is_built_from_its_stored_strategy_without_a_search(spec: dict[str, object], tmp_path: Path) -> None:
    a_plan = plan(mechanism=spec, run__rounds=12, participation={"scheme": "min-separation", "separation": 4})
    cost, content = settled(a_plan, tmp_path)
    assert cost.strategy == hashlib.sha256(content).hexdigest()
    assert settled(a_plan, tmp_path)[1] == content
    (tmp_path / "run").mkdir()
    stored = StoredStrategy(tmp_path, "run", cost.strategy, cost.loss)
    stored.write(content)
    shutil.rmtree(tmp_path / "strategies", ignore_errors=True)
    again = stored.cost(json.loads(a_plan.to_json()))
    assert again.stored_price == cost.stored_price
    assert (again.mechanism.noising_matrix(12) == cost.mechanism.noising_matrix(12)).all()
    assert {spec["kind"] for spec in SPECS} == set(kinds())


def broken_off(tmp_path: Path) -> tuple[StateDirectory, str]:
    """A home with a dense run that stopped after two rounds."""
    state_dir = home(tmp_path)
    with Session.begin(state_dir, plan(**DENSE), identity_is_stable=True) as session:
        strategy = FieldfareStrategy(session)
        for _ in range(2):
            assert strategy.run_round(LyingGrid(3))
    return state_dir, session.account.id


def another_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose search would end elsewhere, and says so if it is asked."""

    def search(*_: object) -> None:
        raise AssertionError("optimised again")

    monkeypatch.setattr(dense, "_optimise", search)


def test_nothing_is_optimised_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state_dir, run_id = broken_off(tmp_path)
    shutil.rmtree(state_dir.root / "strategies")
    with Ledger.open(state_dir.ledger) as ledger:
        _, meta = RunFiles(state_dir.root, run_id).latest_committed(str(ledger.run(run_id).checkpoint))
    another_optimum(monkeypatch)
    with Session.resume(state_dir, run_id, identity_is_stable=True) as session:
        FieldfareStrategy(session).start(LyingGrid(3))
    with Ledger.open(state_dir.ledger, head_file=state_dir.head_file) as ledger:
        report = verify(ledger, state_dir.root, recompute=recharge, held=[ledger.head()])
        digest, planned = ledger.run(run_id).strategy, ledger.run(run_id).planned
        assert run_residual_test(ledger, run_id, actor="test", numbers=2**16, root=state_dir.root).residual.passed
    assert report.ok
    assert report.checked["charges"] == 6
    assert (report.missing, report.unpinned) == ({}, {})
    # The ledger, its journal and the checkpoint name one content.
    with sqlite3.connect(state_dir.root / "ledger.sqlite3") as link:
        ((body,),) = link.execute("SELECT body FROM audit WHERE action = 'run.start'").fetchall()
    path = StoredStrategy(state_dir.root, run_id, digest, planned).path
    assert json.loads(body)["strategy"] == meta["strategy"] == digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_reports_and_page_show_the_strategy_that_is_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state_dir, run_id = broken_off(tmp_path)
    another_optimum(monkeypatch)
    with Ledger.open(state_dir.ledger) as ledger:
        run = ledger.run(run_id)
        stored = StoredStrategy(state_dir.root, run_id, run.strategy, run.planned)
        path, applied = stored.path, stored.cost(run.plan)
        shown = f"{applied.sensitivity:.4g} ("
        content = path.read_bytes()
        for present in (True, False):
            if not present:
                path.unlink()
            facts = privacy_statement(ledger, run_id, state_dir.root).to_json()["facts"]
            app = create_app(state_dir.ledger, root=state_dir.root)
            with TestClient(app, base_url="http://localhost", client=("127.0.0.1", 1)) as client:
                detail = client.get(f"/v1/runs/{run_id}").json()
                entry = client.get(f"/v1/runs/{run_id}/report").json()["facts"]
                assert client.get(f"/v1/runs/{run_id}/participation").json()["separation"] == 3
            card = {fact["name"]: fact["value"] for fact in detail["guarantee"]["facts"]}
            assert facts["Sensitivity"] == card["Sensitivity"] == entry["Sensitivity"]
            if present:
                assert facts["Sensitivity"].startswith(shown)
                assert detail["noise_multiplier"] == pytest.approx(2.0)
            else:
                assert facts["Sensitivity"] == facts["Noise multiplier"] == NOT_AT_HAND
                assert detail["noise_multiplier"] is None
        # A machine without the state directory shows the same gap, and no other number.
        assert privacy_statement(ledger, run_id).to_json()["sensitivity"] is None
        path.write_bytes(content)
        assert privacy_statement(ledger, run_id, state_dir.root).to_json()["sensitivity"] == applied.sensitivity


@pytest.mark.parametrize("harm", ["missing", "altered"])
def test_a_lost_strategy_is_named_and_no_backup_is_advised(
    harm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_dir, run_id = broken_off(tmp_path)
    with Ledger.open(state_dir.ledger) as ledger:
        before = ledger.run(run_id)
    path = StoredStrategy(state_dir.root, run_id, before.strategy, before.planned).path
    content = path.read_bytes()
    if harm == "missing":
        path.unlink()
    else:
        path.write_bytes(content.replace(b"A", b"B", 1))
    another_optimum(monkeypatch)
    with pytest.raises(StrategyError, check=coded("strategy-error")) as refusal:
        Session.resume(state_dir, run_id, identity_is_stable=True)
    assert str(path) in str(refusal.value)
    assert str(before.strategy) in refusal.value.why
    arguments = ["--home", str(state_dir.root), "--ledger", state_dir.ledger]
    told = CliRunner().invoke(assemble("verify"), ["verify", *arguments])
    words = " ".join((told.output + told.stderr).split())
    assert told.exit_code != 0
    assert "the ledger is whole" in words
    assert "backup" not in words
    with pytest.raises(StrategyError), Ledger.open(state_dir.ledger) as ledger:
        run_residual_test(ledger, run_id, actor="test", root=state_dir.root)
    path.write_bytes(content)
    with Ledger.open(state_dir.ledger) as ledger:
        assert ledger.run(run_id).spent == before.spent
        assert verify(ledger, state_dir.root, recompute=recharge).checked["charges"] == 2
    with Session.resume(state_dir, run_id, identity_is_stable=True):
        pass


def test_a_strategy_of_another_plan_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    cost, content = settled(plan(), tmp_path)
    stored = StoredStrategy(tmp_path, "run", cost.strategy, cost.loss)
    stored.write(content)
    other: Plan = plan(mechanism={"kind": "nu", "nu": 0.2})
    with pytest.raises(StrategyError, check=coded("strategy-error")):
        stored.cost(json.loads(other.to_json()))


def test_a_formula_that_another_version_changed_is_noticed(tmp_path: Path) -> None:
    """The stored coefficients of a kind without an optimiser pin its formula."""
    (tmp_path / "run").mkdir()
    a_plan = plan(mechanism={"kind": "anti-pgd", "nu": 0.05})
    cost, content = settled(a_plan, tmp_path)
    _, other = settled(plan(mechanism={"kind": "anti-pgd", "nu": 0.06}), tmp_path)
    assert content != other
    changed = json.dumps({**json.loads(content), "applied": json.loads(other)["applied"]}).encode()
    stored = StoredStrategy(tmp_path, "run", hashlib.sha256(changed).hexdigest(), cost.loss)
    stored.write(changed)
    with pytest.raises(StrategyError, check=coded("strategy-error")):
        stored.cost(json.loads(a_plan.to_json()))


def test_a_run_without_a_stored_strategy_cannot_be_recomputed_and_is_not_corrupt(tmp_path: Path) -> None:
    a_plan = plan(**DENSE)
    with pytest.raises(StrategyError, check=coded("strategy-error", "strategy of run run")):
        StoredStrategy(tmp_path, "run", None, cost_of(a_plan).loss).cost(json.loads(a_plan.to_json()))


TARGETED = {"privacy": {"population": "people", "epsilon": 2.0, "delta": 1e-5}}
SAMPLED = {
    "privacy": {**TARGETED["privacy"], "adjacency": "add_remove"},
    "participation": {"scheme": "poisson", "rate": 0.1},
    "mechanism": {"kind": "independent"},
    "run__min_reports": None,
}


def another_machine(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """From now on, charges come out `factor` times as large, and a search for the noise fails the test."""

    def charged(*arguments: Any) -> PrivacyLoss:
        loss = charge_for(*arguments)
        events = (event.at(event.noise_multiplier / factor) for event in loss.sampled)
        return PrivacyLoss(loss.mu_squared * factor, tuple(events))

    def search(*_: object, **__: object) -> None:
        raise AssertionError("calibrated again")

    monkeypatch.setattr(costing, "charge_for", charged)
    monkeypatch.setattr(realised, "charge_for", charged)
    monkeypatch.setattr(costing, "calibrate", search)


@pytest.mark.parametrize("changes", [TARGETED, SAMPLED], ids=["gaussian", "sampled"])
@pytest.mark.parametrize("factor", [1 - 1e-12, 1 + 1e-12])
def test_a_charge_is_the_stored_one_to_the_last_bit(
    changes: dict[str, Any], factor: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_dir = home(tmp_path, adjacency=plan(**changes).privacy.adjacency)
    with Session.begin(state_dir, plan(**changes), identity_is_stable=True) as session:
        FieldfareStrategy(session).run_round(LyingGrid(3))
        run_id, before = session.account.id, session.cost
    another_machine(monkeypatch, factor)
    with Session.resume(state_dir, run_id, identity_is_stable=True) as session:
        assert session.cost is not None
        assert before is not None
        assert session.cost.stored_price == before.stored_price
        FieldfareStrategy(session).take_to_end(LyingGrid(3))
    with Ledger.open(state_dir.ledger) as ledger:
        run = ledger.run(run_id)
        assert verify(ledger, state_dir.root, recompute=recharge).ok
    assert run.state == "done"
    if changes is SAMPLED:
        assert run.spent == run.planned


def test_a_charge_of_another_machine_lies_between_what_is_spent_and_what_is_planned() -> None:
    """Its last digits may be lower than what was charged, or higher than what was reserved."""
    spent, planned = PrivacyLoss(1.0), PrivacyLoss(2.0)
    low, high = math.nextafter(1.0, 0.0), math.nextafter(2.0, 3.0)
    assert PrivacyLoss(low).within(spent, planned) == spent
    assert PrivacyLoss(high).within(spent, planned) == planned
    assert PrivacyLoss(1.5).within(spent, planned) == PrivacyLoss(1.5)


def test_a_charge_that_the_noise_does_not_have_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    a_plan = plan(**TARGETED)
    cost, content = settled(a_plan, tmp_path)
    stored = StoredStrategy(tmp_path, "run", cost.strategy, cost.loss)
    stored.write(content)
    another_machine(monkeypatch, 1 + 1e-6)
    with pytest.raises(StrategyError, check=coded("strategy-error")):
        stored.cost(json.loads(a_plan.to_json()))


@pytest.mark.parametrize(("part", "fits"), [(1.0, True), (0.99, False), (1.01, False)])
def test_without_a_stored_price_the_ledgers_must_be_that_of_the_plan(part: float, fits: bool, tmp_path: Path) -> None:
    a_plan = plan(**TARGETED)
    (tmp_path / "run").mkdir()
    planned = PrivacyLoss(part * cost_of(a_plan).loss.mu_squared)
    _, content = settled(a_plan, tmp_path)
    unpriced = json.dumps({name: value for name, value in json.loads(content).items() if name != "price"}).encode()
    stored = StoredStrategy(tmp_path, "run", hashlib.sha256(unpriced).hexdigest(), planned)
    stored.write(unpriced)
    if fits:
        assert stored.cost(json.loads(a_plan.to_json())).loss == planned
    else:
        with pytest.raises(BadInput, check=coded("differs", "the planned loss")):
            stored.cost(json.loads(a_plan.to_json()))
