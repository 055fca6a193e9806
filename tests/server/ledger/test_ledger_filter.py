"""Budgets across runs through the ledger: valid however each run is chosen after earlier ones released something."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import update
from test_ledger_migrations import DUMPS, load

from fieldfare.accounting import PoissonGaussian, PrivacyLoss, discretised, gaussian_mu
from fieldfare.accounting.filter import PLAIN_SHARE, Price, default_leak, price
from fieldfare.errors import BadInput, BudgetRefused
from fieldfare_server.evidence.verify import verify
from fieldfare_server.ledger import Ledger, Outcome, RunHandle
from fieldfare_server.ledger.chain import canonical, genesis, row_hash
from fieldfare_server.ledger.events.charges import ChargeCarried
from fieldfare_server.ledger.sql import models
from support.ledgers import digest, gaussian, start
from support.refusals import coded

DELTA = 1e-5


def sampled(rate: float, sigma: float, rounds: int) -> PrivacyLoss:
    return PrivacyLoss(sampled=(PoissonGaussian(rate, sigma, rounds),))


AIRCRAFT = sampled(202 / 3243, 2.18, 64)


def add_remove(ledger: Ledger, epsilon: float, leak: float | None = None) -> None:
    ledger.create_population(
        "people", epsilon, DELTA, adjacency="add_remove", leak=leak, simulated=True, actor="officer"
    )


def begin(ledger: Ledger, planned: PrivacyLoss, rounds: int = 64, leak: float | None = None) -> RunHandle:
    plan = json.dumps({"privacy": {"adjacency": ledger.population("people").adjacency}})
    return start(ledger, rounds=rounds, planned=planned, plan_json=plan, leak=leak)


def release(run: RunHandle, spent: PrivacyLoss) -> None:
    run.commit_round(run.open_round([]), Outcome([], spent), digest(f"{run.id} {run.next_round}"))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(str(tmp_path / "ledger.sqlite3"), create=True)


def test_a_sampled_run_costs_what_the_specification_says(ledger: Ledger) -> None:
    add_remove(ledger, 1.0)
    run = begin(ledger, AIRCRAFT, leak=0.1 * DELTA)
    assert ledger.run(run.id).planned_epsilon == pytest.approx(0.99313, abs=5e-6)  # alone: exact
    view = ledger.population("people")
    assert view.committed_epsilon == pytest.approx(0.9934, abs=5e-5)
    assert view.committed.mu == pytest.approx(0.26475, abs=5e-6)
    assert view.spent == Price()
    release(run, sampled(202 / 3243, 2.18, 1))
    assert ledger.population("people").spent == view.committed  # all of it, by the first round


def test_a_gaussian_and_a_sampled_run_add_up_as_the_specification_says(ledger: Ledger) -> None:
    add_remove(ledger, 4.0)
    begin(ledger, gaussian(0.3))
    begin(ledger, sampled(0.01, 1.0, 1000), leak=0.1 * DELTA)
    view = ledger.population("people")
    assert view.committed.mu_squared == pytest.approx(0.3023693, rel=1e-5)
    assert view.committed_epsilon == pytest.approx(2.23061, abs=5e-5)


def test_the_adversary_who_chooses_by_outcome_is_refused(ledger: Ledger) -> None:
    """Finding P3: both second runs were admitted, and a choice between them reached delta(2) = 1.95e-5."""
    add_remove(ledger, 2.0)
    begin(ledger, gaussian(0.41662))
    round_ = sampled(2.2861e-5, 0.2, 1)
    with pytest.raises(BudgetRefused, check=coded("budget-refused", "1.807", "7.77")):
        begin(ledger, round_, rounds=1, leak=0.1 * DELTA)
    with pytest.raises(BudgetRefused):
        begin(ledger, round_, rounds=1)
    begin(ledger, gaussian(math.sqrt(0.2487306 - 0.41662**2)))


@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (2.0, 1e-5), (8.0, 1e-10)])
def test_gaussian_runs_alone_lose_nothing(ledger: Ledger, adjacency: str, epsilon: float, delta: float) -> None:
    ledger.create_population("people", epsilon, delta, adjacency=adjacency, actor="officer")  # type: ignore[arg-type]
    mu = gaussian_mu(epsilon, delta)
    assert ledger.population("people").remaining_mu == pytest.approx(mu, rel=1e-12)
    with pytest.raises(BudgetRefused):
        begin(ledger, gaussian(mu * (1 + 1e-9)))
    begin(ledger, gaussian(mu * (1 - 1e-9) * 0.6))
    begin(ledger, gaussian(mu * (1 - 1e-9) * 0.8))


def test_what_a_gaussian_run_did_not_spend_returns(ledger: Ledger) -> None:
    ledger.create_population("people", 2.0, DELTA, actor="officer")
    run = begin(ledger, gaussian(0.5))
    release(run, gaussian(0.3))
    run.finish("stopped")
    assert ledger.population("people").committed.mu == pytest.approx(0.3)
    start(ledger, ledger.population("people").remaining_mu)


def test_a_sampled_run_returns_its_price_only_if_it_released_nothing(ledger: Ledger) -> None:
    add_remove(ledger, 1.5)
    silent = begin(ledger, AIRCRAFT)
    silent.open_round([])
    whole = ledger.population("people").committed
    assert whole == price(AIRCRAFT, 0.25 * 0.1 * DELTA)
    silent.finish("stopped")
    assert ledger.population("people").committed == Price()
    stopped = begin(ledger, AIRCRAFT)
    release(stopped, sampled(202 / 3243, 2.18, 1))
    stopped.finish("stopped")
    assert ledger.population("people").committed == whole
    assert verify(ledger).ok


def test_each_sampled_run_takes_a_quarter_of_the_leak_that_is_left(ledger: Ledger) -> None:
    add_remove(ledger, 20.0)
    taken = 0.0
    for _ in range(6):
        begin(ledger, AIRCRAFT)
        now = ledger.population("people").committed.leak
        assert now - taken == pytest.approx(0.25 * (0.1 * DELTA - taken))
        taken = now
    assert verify(ledger).ok


def test_the_leak_is_a_budget_too(ledger: Ledger) -> None:
    add_remove(ledger, 20.0, leak=2e-6)
    begin(ledger, AIRCRAFT, leak=1.5e-6)
    with pytest.raises(BudgetRefused, check=coded("leak-spent")) as refused:
        begin(ledger, AIRCRAFT, leak=0.6e-6)
    assert refused.value.nearest == "a leak of at most 4.99999e-7"
    begin(ledger, AIRCRAFT, leak=4.99999e-7)


def test_the_refusal_names_the_noise_that_fits(ledger: Ledger) -> None:
    """A plan calibrated to exactly the population's epsilon costs a little more than it."""
    add_remove(ledger, AIRCRAFT.epsilon(DELTA))
    with pytest.raises(BudgetRefused) as refused:
        begin(ledger, AIRCRAFT)
    match = re.search(r"noise for epsilon ([\d.]+) at", str(refused.value.nearest))
    assert match is not None
    named, low, high = float(match[1]), 2.18, 3.0
    assert 0.95 * AIRCRAFT.epsilon(DELTA) < named < AIRCRAFT.epsilon(DELTA)
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if sampled(202 / 3243, middle, 64).epsilon(DELTA) <= named else (middle, high)
    begin(ledger, sampled(202 / 3243, high, 64))


@pytest.mark.parametrize("leak", [-1e-9, DELTA, math.nan])
def test_a_leak_is_below_delta(ledger: Ledger, leak: float) -> None:
    with pytest.raises(BadInput, check=coded("out-of-range", "leak")):
        add_remove(ledger, 1.0, leak)


def test_raising_a_budget_keeps_the_leak(ledger: Ledger) -> None:
    add_remove(ledger, 1.0)
    raised = ledger.raise_population("people", epsilon=2.0, delta=1e-4, reason="agreed", actor="officer")
    assert raised.leak == 0.1 * DELTA
    assert verify(ledger).ok


def test_discrete_noise_fits_the_default_leak(ledger: Ledger) -> None:
    for name, delta in (("a", 1e-5), ("b", 1e-10)):
        ledger.create_population(name, 8.0, delta, actor="officer")
        mu_squared = gaussian_mu(8.0, delta) ** 2
        assert 1000 * discretised.leak(mu_squared) < default_leak("zero_out", delta) == PLAIN_SHARE * delta
        start(ledger, 0.5, population=name, leak=discretised.leak(0.25))


def test_a_run_known_by_zcdp_alone_is_refused(ledger: Ledger) -> None:
    ledger.create_population("people", 8.0, DELTA, actor="officer")
    with pytest.raises(BadInput, check=coded("unsupported", "a run of which only rho-zCDP is known")):
        begin(ledger, PrivacyLoss(concentrated=0.01))


# -- what the journal proves ----------------------------------------------------------------------------------------


def forge(ledger: Ledger, action: str, **changes: object) -> None:
    """Rewrite the newest journal row of `action` and its run's row as a forger would who mends the chain."""
    with ledger.database.engine.begin() as connection:
        raw = connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)
        guards = raw.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in guards:
            raw.execute(f"DROP TRIGGER {name}")
        rows = [dict(row) for row in connection.execute(models.journal.select()).mappings()]
        newest = max(row["id"] for row in rows if row["action"] == action)
        head = connection.execute(models.head.select()).mappings().one()
        previous = genesis(head["ledger"])
        for row in rows:
            if row["id"] == newest:
                body = {**json.loads(row["body"]), **changes}
                row["body"] = canonical(body)
                shown = {name: value for name, value in changes.items() if name in models.runs.c}
                if row["run"] is not None:
                    connection.execute(update(models.runs).where(models.runs.c.id == row["run"]).values(shown))
            row["previous"] = previous
            row["hash"] = previous = row_hash(row)
            connection.execute(update(models.journal).where(models.journal.c.id == row["id"]).values(row))
        connection.execute(update(models.head).values(hash=previous))
        for _, made in guards:
            raw.execute(made)


@pytest.mark.parametrize("forged", [Price(0.01, 2.5e-7), Price(0.2648**2, 0.0), None], ids=["low", "no leak", "none"])
def test_a_forged_price_is_found_though_the_chain_is_whole(ledger: Ledger, forged: Price | None) -> None:
    add_remove(ledger, 1.5)
    begin(ledger, AIRCRAFT)
    assert verify(ledger).ok
    forge(ledger, "run.start", price=None if forged is None else forged.to_json())
    fault = verify(ledger).fault
    assert fault is not None
    assert fault.table == "audit"
    assert ("price is not what" in fault.why) == (forged is not None), fault.why


def test_a_price_in_the_row_alone_is_found(ledger: Ledger) -> None:
    ledger.create_population("people", 2.0, DELTA, actor="officer")
    begin(ledger, gaussian(0.3))
    with ledger.database.engine.begin() as connection:
        connection.execute(update(models.runs).values(price=Price(0.0).to_json()))
    fault = verify(ledger).fault
    assert fault is not None
    assert (fault.table, "price" in fault.why) == ("runs", True)


# -- ledgers of the first version -----------------------------------------------------------------------------------


def test_an_old_ledger_is_priced_by_its_planned_rounds(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'old.sqlite3'}"
    load(DUMPS[0], url, tmp_path)
    link = sqlite3.connect(tmp_path / "old.sqlite3")
    wanted = {
        name: default_leak(adjacency, delta)
        for name, adjacency, delta in link.execute("SELECT name, adjacency, delta FROM populations")
    }
    link.close()
    Ledger.migrate(url)
    with Ledger.open(url) as ledger:
        assert {view.name: view.leak for view in ledger.populations()} == wanted
        assert verify(ledger).ok
        begin(ledger, gaussian(0.1))
        assert verify(ledger).ok


def test_a_population_over_its_budget_says_so_and_takes_no_run(ledger: Ledger) -> None:
    add_remove(ledger, 1.1)
    run = begin(ledger, AIRCRAFT)
    assert not ledger.population("people").overdrawn
    run.hand_back()
    words = {"who": "officer", "what": "run old, 4 rounds", "why": "it was begun before runs had nonces"}
    carried = ChargeCarried("run old", **words, loss='{"mu":9.0}', price=Price(81.0).to_json())
    ledger._journal.write(lambda _, entry: entry.append(carried, "fieldfare migrate", population="people"))
    view = ledger.population("people")
    assert view.overdrawn
    assert (view.remaining_mu, view.remaining_epsilon) == (0.0, 0.0)
    with pytest.raises(BudgetRefused, check=coded("budget-refused")):
        begin(ledger, gaussian(1e-3))
    with ledger.database.read() as connection:
        key = connection.execute(models.runs.select()).one().key_commitment
    again = ledger.resume_run(run.id, key_commitment=key, holder="test")
    release(again, sampled(202 / 3243, 2.18, 1))  # the run under way goes on
