"""The privacy statement and the registry entry: complete, and nothing in them that the ledger does not say."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

import ledger_data
import pytest
from fastapi.testclient import TestClient

from fieldfare.accounting import PrivacyLoss
from fieldfare.errors import BadInput
from fieldfare_server.api import create_app
from fieldfare_server.cli.progress import local_grid
from fieldfare_server.evidence.deployments_registry import registry_entry
from fieldfare_server.evidence.guarantee import guarantee
from fieldfare_server.evidence.residual_test import run_residual_test
from fieldfare_server.evidence.statement import _epsilon, privacy_statement
from fieldfare_server.ledger import Ledger, NewRun
from support.refusals import coded


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    with ledger_data.new_ledger(ledger_url) as opened:
        for name, rounds in (("tuning", 3), ("final", 5)):
            run = ledger_data.start(opened, name)
            for _ in range(rounds):
                ledger_data.commit(run)
            run.finish("stopped", "enough")
        yield opened


def test_the_statement_has_every_item_of_the_guidelines(ledger: Ledger) -> None:
    run_residual_test(ledger, "final", actor="test", numbers=2**19, grid_of=lambda plan: local_grid(plan, 2))
    text = privacy_statement(ledger, "final").to_markdown()
    for item in (
        "Unit of privacy",
        "Adjacency",
        "central differential privacy",
        "What is released",
        "Mechanism",
        "Noise multiplier",
        "Sensitivity",
        "Accountant",
        "Assumed: most rounds by one user",
        "Realised: most rounds by one user",
        "Hyper-parameter tuning",
        "What is not covered",
        "Audit log",
        "a simulated attack, no guarantee",
    ):
        assert item in text, item


def test_its_numbers_are_the_ledgers(ledger: Ledger) -> None:
    statement = privacy_statement(ledger, "final")
    said = statement.to_json()
    run, population = ledger.run("final"), ledger.population("aircraft")
    assert said["epsilon_spent"] == run.spent_epsilon == run.spent.epsilon(1e-5)
    assert said["mu_gdp"] == run.held[0].mu
    assert said["population_epsilon"]["spent"] == population.spent_epsilon > run.spent_epsilon
    assert said["other_runs_charged"] == [
        {"run": "tuning", "epsilon_spent": ledger.run("tuning").spent_epsilon, "state": "stopped"}
    ]
    assert said["participation"]["realised_users_by_rounds"] == {"1": 144, "2": 48}
    assert said["participation"]["realised_most"] == 2 <= said["participation"]["assumed_most"]
    text = statement.to_markdown()
    shown = dict(re.findall(r"\| ([^|]+) \| epsilon = (\S+) at delta", text))
    exact = {
        "Spent by this run": run.spent_epsilon,
        "Planned for this run": run.planned_epsilon,
        "Gauge: spent of it by all runs": population.spent_epsilon,
        "Gauge: committed of it by all runs": population.committed_epsilon,
        "Guarantee for all runs of the population": population.bound_epsilon,
    }
    assert any(float(f"{value:.6g}") < value for value in exact.values()), "the nearest number would be too small"
    for name, value in exact.items():
        assert value <= float(shown[name]) <= value * (1 + 1e-5)
    (rho,), (mu,) = (re.findall(rf"\| {symbol} = (\S+) \|", text) for symbol in ("rho", "mu"))
    assert said["mu_gdp"] <= float(mu) <= said["mu_gdp"] * (1 + 1e-5)
    assert said["mu_gdp"] ** 2 / 2 <= float(rho) * (1 + 1e-12) <= said["mu_gdp"] ** 2 / 2 * (1 + 1e-5)
    assert "1 other run was charged" in text
    json.dumps(said, allow_nan=False)


def test_an_epsilon_in_a_sentence_is_never_too_small(ledger: Ledger) -> None:
    run_ = ledger_data.start(ledger, "going")
    ledger_data.commit(run_)
    statement = privacy_statement(ledger, "going")
    planned, spent, *_ = (float(found) for found in re.findall(r"\((\d+\.?\d*), 1e-5\)", statement.summary))
    run = ledger.run("going")
    assert run.planned_epsilon <= planned < run.planned_epsilon * 1.001
    assert run.spent_epsilon <= spent < run.spent_epsilon * 1.001


@pytest.mark.parametrize(("value", "shown"), [(0.0, "0"), (math.inf, "inf"), (3.9851234, "3.98513"), (8.0, "8")])
def test_an_epsilon_is_rounded_up_to_six_digits(value: float, shown: str) -> None:
    assert _epsilon(value, 1e-5) == f"epsilon = {shown} at delta = 1e-5"


def test_a_run_that_ended_early_promises_what_it_planned(ledger: Ledger) -> None:
    """Who stopped it may have seen its models; what its rounds had spent by then was promised."""
    run = ledger.run("final")
    assert 0 < run.next_round < run.rounds
    assert run.spent_epsilon < 0.9 * run.planned_epsilon
    said = privacy_statement(ledger, "final")
    promised, spent, *_ = (float(found) for found in re.findall(r"\((\d+\.?\d*), 1e-5\)", said.summary))
    assert spent < 0.9 * run.planned_epsilon < run.planned_epsilon <= promised
    shown = re.findall(r"\| Holds for this run alone \| epsilon = (\S+) at", said.to_markdown())
    assert run.planned_epsilon <= float(shown[0]) <= run.planned_epsilon * (1 + 1e-5)
    # As zero-concentrated and as Gaussian DP, too.
    assert (said.data["mu_gdp"], said.data["rho_zcdp"]) == (run.planned.gdp, run.planned.zcdp)
    rho, mu = (float(re.findall(rf"\| {name} = (\S+) \|", said.to_markdown())[0]) for name in ("rho", "mu"))
    assert mu >= run.planned.mu > run.spent.mu
    assert rho >= mu**2 / 2 * (1 - 1e-5)


def test_a_run_whose_epsilon_is_0_is_among_those_that_were_charged(ledger: Ledger) -> None:
    faint = ledger_data.start(ledger, "faint", sigma=1e6)
    ledger_data.commit(faint, sigma=1e6)
    faint.finish("stopped", "enough")
    assert ledger.run("faint").spent_epsilon == 0.0 < ledger.run("faint").spent.mu_squared
    said = privacy_statement(ledger, "final")
    assert [run["run"] for run in said.data["other_runs_charged"]] == ["faint", "tuning"]
    assert "2 other runs were charged" in said.to_markdown()


def test_html_is_self_contained_and_inert(ledger: Ledger) -> None:
    page = privacy_statement(ledger, "final").to_html()
    assert page.startswith("<!doctype html>")
    assert not re.search(r"<script|<link|<img|src=|href=|@import|url\(", page)


def test_names_from_a_plan_cannot_become_markup(ledger_url: str) -> None:
    with ledger_data.new_ledger(ledger_url) as ledger:
        evil = "<script>alert(1)</script>|[x](http://e)"
        plan = json.loads(ledger_data.plan().to_json())
        plan["run"]["task"] = evil
        ledger.start_run(
            NewRun(
                json.dumps(plan),
                "ab" * 32,
                "aircraft",
                16,
                PrivacyLoss(mu_squared=0.1),
                noise_source="secure-box-muller",
                key_commitment="k",
                trust_node_ids=False,
                id="evil",
            ),
            holder="test",
        )
        statement = privacy_statement(ledger, "evil")
        assert "<script" not in statement.to_html()
        markdown = statement.to_markdown()
        assert "<script" not in markdown.replace("\\<", "")
        assert "[x](" not in markdown.replace("\\[", "").replace("\\]", "")


def test_a_run_that_is_not_private_says_so_everywhere(ledger_url: str) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        ledger.create_population("aircraft", 8.0, 1e-5, simulated=True, actor="test")
        ledger_data.commit(ledger_data.start(ledger, "toy", source="seeded"))
        statement = privacy_statement(ledger, "toy")
        assert statement.summary.startswith("NOT PRIVATE")
        assert not statement.to_json()["private"]
        assert 'class="warning"' in statement.to_html()
        with pytest.raises(BadInput, check=coded("not-allowed", "a registry entry for run")):
            registry_entry(ledger, "toy")


def test_the_registry_entry_has_the_registrys_fields(ledger: Ledger) -> None:
    entry = registry_entry(ledger, "final")
    assert entry["tier"] == 3
    deployment = entry["deployment"]
    assert set(deployment) == {
        "product",
        "dp_flavor",
        "privacy_loss",
        "model",
        "accounting",
        "implementation",
        "resources",
    }
    assert deployment["privacy_loss"]["privacy_parameters"]["epsilon"] == ledger.run("final").planned_epsilon
    assert deployment["model"]["model_name"] == "Central"
    product = ("name", "data_curators", "intended_use", "data_product_region", "description", "data_product_sector")
    others = ("implementation.justification", "resources.sources", "resources.registry_authors")
    assert entry["missing"] == [f"deployment.{name}" for name in (*(f"product.{each}" for each in product), *others)]


def test_both_are_served(ledger: Ledger, ledger_url: str) -> None:
    app = create_app(ledger_url)
    with TestClient(app, base_url="http://localhost", client=("127.0.0.1", 1)) as client:
        assert client.get("/v1/runs/final/report").json() == privacy_statement(ledger, "final").to_json()
        page = client.get("/v1/runs/final/report?format=html")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "sandbox" in page.headers["content-security-policy"]
        assert client.get("/v1/runs/final/report?format=markdown").text.startswith("# Privacy statement")
        assert client.get("/v1/runs/final/report?format=pdf").status_code == 422
        assert client.get("/v1/runs/none/report").status_code == 404
        assert client.get("/v1/runs/final/registry-entry").json()["tier"] == 3


def test_a_finished_run_is_told_in_the_past_and_a_running_one_with_what_may_come(ledger: Ledger) -> None:
    ended = privacy_statement(ledger, "final").summary
    assert ended.startswith("Everything this run released, 5 of ")
    assert "once all" not in ended
    assert "so far" not in ended
    run = ledger_data.start(ledger, "going")
    ledger_data.commit(run)
    going = privacy_statement(ledger, "going").summary
    assert "once all" in going
    assert "so far" in going


def test_a_limit_that_was_tightened_is_no_promise_for_runs_before(ledger: Ledger) -> None:
    """Individual accounting too: the runs were chosen under the larger budget."""
    ledger.tighten_population("aircraft", epsilon=6.0, reason="less is needed", actor="officer")
    assert ledger.population("aircraft").accounting == "individual"
    said = privacy_statement(ledger, "final").summary
    assert "together stay (8, 1e-5)-differentially private" in said
    assert "committed of 6." in said
    loss = registry_entry(ledger, "final")["deployment"]["privacy_loss"]  # type: ignore[index]
    assert "limited to epsilon 8 at delta 1e-5" in loss["privacy_parameters_description"]


def test_what_is_not_charged_is_told_as_information(ledger: Ledger) -> None:
    text = privacy_statement(ledger, "final").to_markdown()
    assert "Information, not charged: epsilon of the last model alone" in text
    assert "lower bounds" not in text.lower().replace("lower bound on", "")


def test_a_delta_that_does_not_fit_the_users_is_said_on_statement_and_page(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    with Ledger.open(url, create=True) as opened:
        opened.create_population("aircraft", 8.0, 0.001, actor="officer")
        ledger_data.commit(ledger_data.start(opened, "few"))
        expected = (
            "privacy.delta = 0.001: publishing one user at random of 500 has delta 0.002. Better: at most 0.0002."
        )
        statement = privacy_statement(opened, "few")
        assert statement.to_json()["warnings"] == [expected]
        assert f"Warning: {expected}" in statement.to_markdown()
        # Under add_remove the number of users is secret, so nothing is said of it.
        people = opened.population("aircraft").model_copy(update={"users": None})
        assert guarantee(opened.run("few"), people, None).warnings == ()
    with TestClient(create_app(url), base_url="http://localhost", client=("127.0.0.1", 1)) as client:
        assert client.get("/v1/runs/few").json()["guarantee"]["warnings"] == [expected]
        assert client.get("/v1/populations/aircraft").json()["warnings"] == [expected]
