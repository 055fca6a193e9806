"""A budget over time, what still fits, and what another plan would cost."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
import subprocess
import time
from pathlib import Path
from statistics import NormalDist
from typing import Any

import ledger_data
import numpy as np
import pytest
from fastapi.testclient import TestClient
from live_ledger import LiveLedger, client_at
from sqlalchemy import event

from fieldfare.accounting.filter import Rectangle
from fieldfare.accounting.foreign import Foreign
from fieldfare.accounting.gaussian import gaussian_delta, gaussian_epsilon
from fieldfare.costing import cost_of
from fieldfare.plan import Plan
from fieldfare.text import decimal, promised
from fieldfare_server.api import Settings, answers
from fieldfare_server.evidence.words import bounded_rate, budget_in_words, loss_in_words, true_positive_rate
from fieldfare_server.ledger import Ledger, NewRun, Outcome, reads
from fieldfare_server.ledger.history import history
from fieldfare_server.planning import feasibility, what_if
from fieldfare_server.run.pricing import demand_of
from support.ledgers import commit, demand, digest, gaussian, start


def test_the_history_ends_where_the_budget_stands(local: TestClient, live: LiveLedger) -> None:
    live.ledger.raise_population("aircraft", epsilon=9.0, delta=None, reason="a second study", actor="officer")
    now = local.get("/v1/populations/aircraft").json()
    history = local.get("/v1/populations/aircraft/history").json()
    last = history["moments"][-1]
    assert last["limit_epsilon"] == 9.0
    assert last["spent_epsilon"] == pytest.approx(now["spent"]["epsilon"], rel=1e-12)
    assert last["committed_epsilon"] == pytest.approx(now["committed"]["epsilon"], rel=1e-12)
    assert history["moments"][0] == {
        "at": now["created_at"],
        "limit_epsilon": 8.0,
        "spent_epsilon": 0.0,
        "committed_epsilon": 0.0,
    }
    times = [moment["at"] for moment in history["moments"]]
    assert times == sorted(times)


@pytest.mark.parametrize("single", [False, True], ids=["all alike", "by odometers"])
def test_a_clock_that_is_set_back_moves_no_end_before_its_beginning(tmp_path: Path, single: bool) -> None:
    clock = [10_000.0]

    def earlier(seconds: float = 1_000.0) -> None:
        clock[0] -= seconds

    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.sqlite3'}", create=True, clock=lambda: clock[0]) as ledger:
        ledger.create_population("people", 8.0, 1e-5, actor="officer")
        earlier()
        ledger.raise_population("people", epsilon=9.0, reason="a second study", actor="officer")
        run = start(ledger, 0.5, demand=demand(2**42) if single else None)
        run.register_users(np.arange(3, dtype=np.uint64))
        for number in range(2):
            earlier()
            opened, cohort = run.open_round([number]), [number]
            charges = np.array([2**41], np.int64) if single else None
            run.commit_round(opened, Outcome(cohort, gaussian(0.4), reports=1, charges=charges), digest(f"{number}"))
        earlier()
        run.finish("stopped", "enough")
        ledger.reserve_charge("people", "k", Foreign.of({"mu": 0.2}), what="a ranker", why="search", actor="bob")
        earlier()
        ledger.commit_charge("people", "k", actor="bob")
        now, last = ledger.population("people"), history(ledger, "people").moments[-1]
    shown = last.limit_epsilon, last.spent_epsilon, last.committed_epsilon
    assert shown == pytest.approx((9.0, now.spent_epsilon, now.committed_epsilon), rel=1e-9)
    assert now.spent_epsilon == now.committed_epsilon > 1


def test_the_history_says_who_changed_what_from_what_to_what_and_why(local: TestClient, live: LiveLedger) -> None:
    live.ledger.raise_population("aircraft", epsilon=9.0, delta=None, reason="a second study", actor="officer")
    raised, created = local.get("/v1/populations/aircraft/history").json()["changes"]
    assert (raised["actor"], raised["reason"], raised["before"]["epsilon"]) == ("officer", "a second study", 8.0)
    assert raised["after"]["epsilon"] == 9.0
    assert (created["action"], created["before"], created["after"]["epsilon"]) == ("population.create", {}, 8.0)


def test_the_spent_line_is_the_spent_of_each_moment(local: TestClient, live: LiveLedger) -> None:
    """After every commit the newest moment is what the population's own answer says then."""
    for _ in range(4):
        live.commit()
        now = local.get("/v1/populations/aircraft").json()
        last = local.get("/v1/populations/aircraft/history?points=2000").json()["moments"][-1]
        assert last["spent_epsilon"] == pytest.approx(now["spent"]["epsilon"], rel=1e-12)


def test_a_long_history_is_thinned_out_and_keeps_its_end(local: TestClient, live: LiveLedger) -> None:
    whole = local.get("/v1/populations/aircraft/history?points=2000").json()["moments"]
    few = local.get("/v1/populations/aircraft/history?points=4").json()["moments"]
    assert len(few) <= 6 < len(whole)
    assert few[-1] == whole[-1]


def test_what_a_page_asks_of_a_long_ledger_reads_the_rows_that_it_shows(live: LiveLedger) -> None:
    """Two million rounds: to read each of them, or its rows of the journal, takes seconds at every opening."""
    asked: list[str] = []
    engine = live.ledger.database.engine
    event.listen(engine, "checkout", lambda link, *_: link.set_trace_callback(asked.append))
    with live.ledger.snapshot() as snapshot:
        history(snapshot, "aircraft", points=1)
        assert snapshot.head_key_lines() == {}
    plans: dict[str, set[str]] = {}
    with engine.connect() as connection:
        for statement in [each for each in asked if each.startswith("SELECT")]:
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}").all():
                plans.setdefault(row.detail.split()[1], set()).add(row.detail)
    assert "SEARCH audit USING INDEX ix_audit_run (run=?)" in plans["audit"]
    assert not [plan for plan in plans["audit"] if "SCAN" in plan or "ix_audit_population" in plan]
    assert plans["rounds"]
    assert not [plan for plan in plans["rounds"] if "run_seq=? AND index=?" not in plan]


def test_what_still_fits_and_the_level_of_a_budget(settings: Settings, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    seen = []
    # One run of mu = 1/2 each: epsilon 2.17 alone and 3.18 for two.
    with ledger_data.new_ledger(url, epsilon=3.3) as ledger, client_at("127.0.0.1", url, settings) as client:
        for name in (None, "one", "two"):
            if name:
                run = ledger_data.start(ledger, name)
                for _ in range(16):
                    ledger_data.commit(run)
                run.finish("done")
            now = client.get("/v1/populations/aircraft").json()
            seen.append((now["level"], now["last_run"], now["last_run_fits"]))
        ledger.raise_population("aircraft", epsilon=3.3 * 1.5, delta=None, reason="more", actor="officer")
        more = client.get("/v1/populations/aircraft").json()
    assert seen == [("open", None, None), ("open", "one", True), ("low", "two", False)]
    assert (more["level"], more["last_run_fits"]) == ("open", True)


def test_what_the_noise_of_the_last_run_leaked_must_fit_once_more(settings: Settings, tmp_path: Path) -> None:
    """Of the population's leak D = 1e-6 the run took 0.6: the same plan would need 0.6 again."""
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    with Ledger.open(url, create=True) as ledger, client_at("127.0.0.1", url, settings) as client:
        ledger.create_population("people", 8.0, 1e-5, leak=1e-6, actor="officer")
        for share, fits in ((0.3e-6, True), (0.6e-6, False)):
            run = start(ledger, 0.1, leak=share)
            run.register_users(np.arange(1, dtype=np.uint64))
            commit(run, [0], 0.1)
            run.finish("done")
            assert client.get("/v1/populations/people").json()["last_run_fits"] is fits


def test_an_exhausted_budget_says_so(settings: Settings, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    needed = cost_of(ledger_data.plan()).epsilon
    with ledger_data.new_ledger(url, epsilon=needed * (1 + 1e-6)) as ledger:
        ledger_data.start(ledger, "one")
        with client_at("127.0.0.1", url, settings) as client:
            now = client.get("/v1/populations/aircraft").json()
    assert (now["level"], now["last_run_fits"]) == ("exhausted", False)


def test_a_run_that_stands_still_has_no_projected_end(
    local: TestClient, live: LiveLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert local.get("/v1/populations/aircraft").json()["projected_end"] is not None
    later = time.time() + 3600
    monkeypatch.setattr(answers.time, "time", lambda: later)
    assert local.get("/v1/populations/aircraft").json()["projected_end"] is None


def test_a_paused_run_has_no_projected_end(local: TestClient, live: LiveLedger) -> None:
    live.ledger.request("run-3", "pause", actor="officer")
    assert local.get("/v1/populations/aircraft").json()["projected_end"] is None


@pytest.mark.parametrize(
    "changes", [{}, {"rounds": 32}, {"cohort": 500}, {"clip": 0.25}, {"mechanism": "nu"}, {"epsilon": 1.5}]
)
def test_a_what_if_is_the_price_of_that_plan(local: TestClient, changes: dict[str, Any]) -> None:
    answer = local.get("/v1/populations/aircraft/what-if", params=changes)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    table = json.loads(ledger_data.plan().to_json())
    table["run"] |= {name: changes[name] for name in ("rounds", "cohort") if name in changes}
    table["run"]["min_reports"] = 40 * table["run"]["cohort"] // 50
    table["mechanism"] = {"kind": changes["mechanism"]} if "mechanism" in changes else table["mechanism"]
    table["clipping"]["norm"] = changes.get("clip", 1.0)
    if "epsilon" in changes:
        table["privacy"] |= {"epsilon": changes["epsilon"], "noise_multiplier": None}
    cost = cost_of(Plan.parse(table))
    assert body["epsilon"] == cost.epsilon
    assert body["noise_multiplier"] == cost.noise_multiplier
    first_row = float(cost.mechanism.row_norms().max())
    std = cost.noise_multiplier * first_row * table["clipping"]["norm"] / table["run"]["cohort"]
    assert body["noise_std"] == pytest.approx(std, rel=1e-12)
    assert body["run"] == "run-3"


@pytest.mark.parametrize("epsilon", [5e-324, 1e-310, 1e-101])
def test_an_epsilon_that_no_float_prices_is_refused_at_once(local: TestClient, epsilon: float) -> None:
    """Below 1e-300 the search for its noise never ended: one reader held a thread and all other prices."""
    answer = local.get("/v1/populations/aircraft/what-if", params={"epsilon": epsilon})
    assert answer.status_code == 422
    assert "epsilon" in answer.text
    assert local.get("/v1/populations/aircraft/what-if", params={"epsilon": 1e-100}).status_code == 200


def test_a_what_if_says_whether_it_fits_and_writes_nothing(local: TestClient, live: LiveLedger) -> None:
    rows = live.rows
    small = local.get("/v1/populations/aircraft/what-if", params={"epsilon": 0.5}).json()
    large = local.get("/v1/populations/aircraft/what-if", params={"epsilon": 50.0}).json()
    assert (small["fits"], small["why"]) == (True, what_if.UNJUDGED), "the ledger has no size of this model"
    same = local.get("/v1/populations/aircraft/what-if", params={}).json()
    assert (same["fits"], same["why"]) == (True, None), "the run itself was judged when it began"
    assert (large["fits"], "the budget is 8 " in large["why"]) == (False, True)
    assert "a run of epsilon" in large["nearest"]
    assert live.rows == rows


def test_what_fits_is_judged_by_what_single_users_have_left(local: TestClient, live: LiveLedger) -> None:
    """A plan for 50 of 100 users fits twice: those who took part first have spent, and the others have not."""
    plan = ledger_data.plan(4)
    ledger = live.ledger
    ledger.create_population("singly", gaussian_epsilon(0.5, 1e-5) * (1 + 1e-6), 1e-5, actor="officer")
    table = json.loads(plan.to_json())
    table["privacy"]["population"] = "singly"
    table["participation"] = {"scheme": "single"}
    table["run"] |= {"rounds": 1, "min_reports": 50}
    table["privacy"]["noise_multiplier"] = 2.1
    plan = Plan.parse(table)
    cost = cost_of(plan)
    demand = demand_of(plan, cost)
    for turn in range(2):
        run = ledger.start_run(
            NewRun(
                plan.to_json(),
                plan.digest(),
                "singly",
                1,
                cost.loss,
                noise_source="secure-box-muller",
                key_commitment=f"{turn:064}",
                trust_node_ids=False,
                id=f"singly-{turn}",
                demand=demand,
            ),
            holder="test",
        )
        run.register_users(np.arange(10**6, 10**6 + 100, dtype=np.uint64))
        users = np.arange(50) + 50 * turn
        charges = np.full(50, cost.most_units(), dtype=np.int64)
        run.commit_round(run.open_round(users), Outcome(users, cost.loss, charges=charges), f"{turn:064}")
        run.finish("done")
        body = local.get("/v1/populations/singly").json()
        asked = local.get("/v1/populations/singly/what-if", params={}).json()
        assert (body["last_run_fits"], asked["fits"]) == (turn == 0, turn == 0)
        assert body["spent"]["epsilon"] == pytest.approx(cost.epsilon, rel=1e-6)
    assert body["left"] == [100, *[0] * 9]
    assert "0 of 100 users have left what one round costs them" in asked["why"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mechanism": "magic"}, "magic"),
        ({"mechanism": "dense", "rounds": 4000}, "fieldfare plan"),
        ({"mechanism": "momentum-tree", "rounds": 4096}, "fieldfare plan"),
        ({"rounds": 0}, "greater than or equal"),
        ({"run": "nowhere"}, "none of that id"),
        ({"epsilon": -1}, "greater than 0"),
        ({"epsilon": "nan"}, "epsilon"),
        ({"dropout": 1}, "dropout"),
    ],
)
def test_an_impossible_what_if_is_refused(local: TestClient, changes: dict[str, Any], words: str) -> None:
    answer = local.get("/v1/populations/aircraft/what-if", params=changes)
    assert answer.status_code in (404, 422)
    assert words in answer.text


def test_one_what_if_is_priced_at_a_time(local: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_if, "_PRICES", {})
    with what_if._ONE:
        answer = local.get("/v1/populations/aircraft/what-if", params={})
    assert (answer.status_code, "in a moment" in answer.json()["nearest"]) == (422, True)


def test_the_nearest_plan_that_users_can_fill_is_priced_alone_too(
    local: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each refusal prices several plans anew, which took 40 s for one reader and as many threads as there were."""
    alone = []
    tried = feasibility.nearest_feasible
    monkeypatch.setattr(
        feasibility, "nearest_feasible", lambda *plan: alone.append(what_if._ONE.locked()) or tried(*plan)
    )
    for _ in range(2):
        answer = local.get("/v1/populations/aircraft/what-if", params={"cohort": 400}).json()
        assert (answer["fits"], "participations" in answer["why"]) == (False, True)
    assert alone == [True, True]


def test_runs_are_filtered_by_state_and_named(local: TestClient, live: LiveLedger) -> None:
    assert [run["id"] for run in local.get("/v1/runs?state=stopped").json()["items"]] == ["run-2", "run-1"]
    assert [run["id"] for run in local.get("/v1/runs?state=running&population=aircraft").json()["items"]] == ["run-3"]
    assert local.get("/v1/runs?state=dreaming").status_code == 422


def test_name_and_tags_are_part_of_a_plan_and_absent_from_plans_without(local: TestClient) -> None:
    table = json.loads(ledger_data.plan().to_json())
    assert not {"name", "tags"} & set(table["run"])
    named = Plan.parse({**table, "run": {**table["run"], "name": "Second study", "tags": ["pilot", "2026"]}})
    assert json.loads(named.to_json())["run"]["tags"] == ["pilot", "2026"]
    assert Plan.stored(json.loads(named.to_json())) == named


@pytest.mark.parametrize(
    ("path", "lines", "column"),
    [
        ("/v1/runs?format=csv", 4, "spent.epsilon"),
        ("/v1/runs?format=csv&state=stopped", 3, "planned.delta"),
        ("/v1/populations?format=csv", 2, "spent.mu"),
        ("/v1/runs/run-3/rounds?format=csv", 7, "checkpoint"),
        ("/v1/populations/aircraft/history?format=csv", None, "limit_epsilon"),
        ("/v1/audit?format=csv", None, "hash"),
    ],
)
def test_every_list_is_a_csv_too(local: TestClient, path: str, lines: int | None, column: str) -> None:
    answer = local.get(path)
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.reader(io.StringIO(answer.text)))
    assert column in rows[0]
    assert lines is None or len(rows) == lines
    assert {len(row) for row in rows} == {len(rows[0])}


def test_a_csv_holds_all_pages_and_the_values_of_the_json(live: LiveLedger, local: TestClient) -> None:
    for i in range(3):
        ledger_data.start(live.ledger, f"more-{i}").finish("stopped", "=1+1")
    rows = list(csv.DictReader(io.StringIO(local.get("/v1/runs?format=csv&limit=1").text)))
    runs = local.get("/v1/runs").json()["items"]
    assert [row["id"] for row in rows] == [run["id"] for run in runs]
    assert [float(row["planned.epsilon"]) for row in rows] == [run["planned"]["epsilon"] for run in runs]
    assert rows[0]["message"] == "'=1+1", "a spreadsheet must not run it"


def test_a_missing_population_is_a_problem_and_no_broken_csv(local: TestClient) -> None:
    assert local.get("/v1/runs?format=csv&population=nowhere").status_code == 404
    assert local.get("/v1/populations/nowhere/history").status_code == 404


# -- in words ---------------------------------------------------------------------------------------------------------


def test_the_attackers_success_is_the_least_bound_over_all_epsilon() -> None:
    """The Gaussian trade-off at .01 equals the minimum of e^epsilon .01 + delta(epsilon)."""
    for mu in (0.1, 0.5, 1.0, 3.0):
        least = min(math.exp(e) * 0.01 + gaussian_delta(mu, e) for e in (i / 2000 for i in range(40_000)))
        assert true_positive_rate(mu) == pytest.approx(least, rel=1e-5)


def test_known_rates() -> None:
    assert true_positive_rate(0.0) == pytest.approx(0.01, rel=1e-12)
    # Phi(1 - 2.3263478740408408), computed with 30 digits.
    assert true_positive_rate(1.0) == pytest.approx(0.0923622480736939358531694854282, rel=1e-12)
    assert bounded_rate(math.log(3), 0.0) == pytest.approx(0.03, rel=1e-12)
    assert bounded_rate(20.0, 1e-5) == pytest.approx(1 - math.exp(-20) * (0.99 - 1e-5), rel=1e-12)
    assert bounded_rate(1000.0, 1e-5) == 1.0
    # With a leak the rate is that of the pair that theorem (filter) names.
    assert true_positive_rate(0.0, 0.1) == pytest.approx(0.1 + 0.01, rel=1e-12)
    # The best test accuses those whom the leak shows, and of the others those above a limit.
    for mu, leak, attained in ((1.0, 0.25, 0.33394), (2.0, 0.005, 0.37593), (1.0, 0.001, 0.09333)):
        assert true_positive_rate(mu, leak) == pytest.approx(attained, abs=5e-6)
        others = NormalDist().inv_cdf(1 - 0.01 / (1 - leak))
        best = leak + (1 - leak) * (1 - NormalDist(mu).cdf(others))
        assert true_positive_rate(mu, leak) == pytest.approx(best, rel=1e-9)
    assert true_positive_rate(0.5, 0.995) == pytest.approx(1.0, rel=1e-12)


def test_a_budget_in_words_never_says_less_than_its_pair(live: LiveLedger) -> None:
    text = budget_in_words(2.0, 1e-5, 0.0)
    assert "a factor of 7.39" in text
    assert "1e-5" in text
    mu = math.sqrt(Rectangle.of(2.0, 1e-5, 0.0).mu_squared)
    assert f"{math.ceil(1e4 * true_positive_rate(mu)) / 100:g} %" in text
    assert "100 %" in loss_in_words(900.0, 1e-5, None)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-5), (8.0, 1e-6)])
def test_the_words_of_a_budget_are_what_epsilon_and_delta_bound(epsilon: float, delta: float) -> None:
    """Of the very noise that the pair is of, the odds about a user go beyond e^epsilon more often than delta."""
    mu, normal = math.sqrt(Rectangle.of(epsilon, delta, 0.0).mu_squared), NormalDist()
    beyond, other = normal.cdf(mu / 2 - epsilon / mu), normal.cdf(-mu / 2 - epsilon / mu)
    assert beyond > 4 * delta
    # What holds is the difference: of this finding, and so of every other (Neyman and Pearson).
    assert beyond - math.exp(epsilon) * other == pytest.approx(delta, rel=1e-6)
    text = budget_in_words(epsilon, delta, 0.0)
    assert f"but for a difference of {promised(delta)}, the probability of what all releases together show" in text
    assert "odds" not in text


def test_a_tightened_limit_promises_no_more_than_the_largest_budget_so_far(local: TestClient, live: LiveLedger) -> None:
    live.ledger.tighten_population("aircraft", epsilon=6.0, reason="less is needed", actor="officer")
    population = local.get("/v1/populations/aircraft").json()
    assert (population["epsilon"], population["bound_epsilon"], population["bound_delta"]) == (6.0, 8.0, 1e-5)
    assert population["in_words"] == budget_in_words(8.0, 1e-5, 0.0) != budget_in_words(6.0, 1e-5, 0.0)


def test_participation_is_counted_over_all_runs_of_a_population(
    local: TestClient, live: LiveLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = "/v1/populations/aircraft/participation"
    # Four blocks of 48 users in turn: 2 + 2 + 6 rounds visit the first two blocks four times and the others once.
    never = live.ledger.population("aircraft").users - 192  # type: ignore[operator]
    assert never > 0
    assert local.get(at).json() == {"population": "aircraft", "users": [never, 96, 0, 0, 96], "counted": True}
    live.commit()
    assert local.get(at).json()["users"] == [never, 48, 48, 0, 96]
    monkeypatch.setattr(reads, "COUNTED", 11)
    assert local.get(at).json()["counted"] is True
    monkeypatch.setattr(reads, "COUNTED", 10)
    assert local.get(at).json() == {"population": "aircraft", "users": [], "counted": False}


FORMAT = Path(reads.__file__).parents[1] / "dashboard" / "static" / "format.js"
NODE = shutil.which("node")
PROGRAM = """
const values = JSON.parse(process.argv[2]);
import(process.argv[1]).then(({ epsilon, epsilonLeft, number }) =>
  console.log(JSON.stringify(values.map((x) => [epsilon, epsilonLeft, number].map((to) => to(x))))));
"""


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_the_page_rounds_what_is_spent_up_and_what_is_left_down_however_small() -> None:
    """Below a thousandth it wrote the nearest three digits of four that were rounded the right way."""
    values = [1.2311e-4, 1.2387e-4, 9.9999e-4, 1e-5, 0.72551, 5.9999, 1.2345e6]
    command = [str(NODE), "-e", PROGRAM, FORMAT.as_uri(), json.dumps(values)]
    done = subprocess.run(command, capture_output=True, check=True)
    for value, shown in zip(values, json.loads(done.stdout), strict=True):
        spent, left, nearest = map(float, shown)
        assert left <= value <= spent <= left * 1.0011
        assert nearest == pytest.approx(value, rel=6e-4)


def test_one_form_of_small_numbers() -> None:
    assert [decimal(x) for x in (1e-5, 2.5e-7, 0.5, 1e20, 3.0)] == ["1e-5", "2.5e-7", "0.5", "1e20", "3"]


def test_a_score_is_expected_only_between_released_scores_of_the_same_plan(settings: Settings, tmp_path: Path) -> None:
    """Two ended runs have an epsilon between theirs; one that was stopped, or has other rounds, says nothing."""
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"

    def expected(**changes: object) -> dict[str, Any] | None:
        told: dict[str, Any] | None = client.get(path, params=changes).json()["expected"]
        return told

    path = "/v1/populations/aircraft/what-if"
    with ledger_data.new_ledger(url, epsilon=40.0) as ledger, client_at("127.0.0.1", url, settings) as client:
        stopped = ledger_data.start(ledger, "stopped", sigma=2.0)
        ledger_data.commit(stopped, sigma=2.0)
        stopped.finish("stopped", "on request")
        ledger_data.whole(ledger, "noisy", sigma=4.0)
        own = ledger.run("noisy").planned_epsilon
        assert expected(epsilon=1.2 * own) is None, "nothing has been reached with more"
        alone = {"name": "AUC", "lowest_score": 0.75, "highest_score": 0.75, "runs": ["noisy"]}
        assert expected(epsilon=own) == alone == expected(run="noisy"), "the plan itself has been run"
        ledger_data.whole(ledger, "clear", sigma=2.0, better=0.1)
        ledger_data.whole(ledger, "middle", sigma=3.0, better=0.06)
        around = {
            "name": "AUC",
            "lowest_score": 0.75,
            "highest_score": pytest.approx(0.81),
            "runs": ["middle", "noisy"],
        }
        assert expected(epsilon=1.2 * own) == around
        assert expected(epsilon=1.01 * ledger.run("clear").planned_epsilon) is None
        assert expected(epsilon=0.9 * own) is None
        assert expected(epsilon=1.2 * own, rounds=32) is None
        assert expected(epsilon=1.2 * own, mechanism="nu") is None
