"""As many runs as are said to fit are admitted; the nearest to their limits come first, and none is left out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import ledger_data
import numpy as np
import pytest
from fastapi.testclient import TestClient
from live_ledger import client_at

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.foreign import Foreign
from fieldfare.accounting.individual import UNIT, Demand
from fieldfare.errors import BudgetRefused
from fieldfare.names import QUESTION
from fieldfare_server.api import Settings
from fieldfare_server.api.answers import Answers
from fieldfare_server.api.outlook import outlook
from fieldfare_server.ledger import Ledger, NewRun, RunHandle

MU_SQUARED = 4 / ledger_data.SIGMA**2


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.sqlite3'}", create=True) as opened:
        yield opened


def start(
    ledger: Ledger, name: str, demand: Demand | None = None, mu_squared: float = MU_SQUARED, task: str = "flights"
) -> RunHandle:
    plan = ledger_data.plan()
    run = NewRun(
        plan.to_json().replace("flights", task),
        plan.digest(),
        "aircraft",
        16,
        PrivacyLoss(mu_squared=mu_squared),
        noise_source="secure-box-muller",
        key_commitment=hashlib.sha256(name.encode()).hexdigest(),
        trust_node_ids=False,
        id=name,
        **({} if demand is None else {"demand": demand}),
    )
    return ledger.start_run(run, holder="test")


def admitted(ledger: Ledger, demand: Demand | None = None) -> int:
    """How many further runs the ledger admits, none of which ends."""
    for number in range(200):
        try:
            start(ledger, f"more-{number}", demand)
        except BudgetRefused:
            return number
    raise AssertionError("no end")


@pytest.mark.parametrize("epsilon", [2.0, 2.5, 3.7, 5.0, 8.0])
def test_as_many_runs_are_admitted_as_are_said_to_fit(ledger: Ledger, epsilon: float) -> None:
    ledger.create_population("aircraft", epsilon, 1e-5, actor="test")
    start(ledger, "first").register_users(np.arange(7, dtype=np.uint64))
    told = Answers(ledger).population("aircraft")
    runs = admitted(ledger)
    assert told.runs_left == runs
    assert told.last_run_fits is (runs > 0)
    assert told.runs_left_users == (7 if runs else 0)


@pytest.mark.parametrize("epsilon", [2.0, 2.5, 3.7, 5.0, 8.0])
def test_the_same_of_odometers_as_if_each_run_took_all_that_it_may(ledger: Ledger, epsilon: float) -> None:
    ledger.create_population("aircraft", epsilon, 1e-5, actor="test")
    most = round(MU_SQUARED / UNIT)
    demand = Demand(most, tuple(most * j // 4 for j in (1, 2, 3, 4)), rounds=16, cohort=2, separation=4)
    start(ledger, "first", demand).register_users(np.arange(8, dtype=np.uint64))
    told = outlook(ledger, ledger.population("aircraft"), lambda *_: demand)
    # Runs under way hold of every user the most that they can cost; the first one's caps are among them.
    runs = admitted(ledger, demand)
    assert (told.runs_left, told.runs_left_users) == (runs, 8 if runs else 0)


def test_a_closed_population_takes_no_run_and_one_without_a_run_says_nothing(ledger: Ledger) -> None:
    ledger.create_population("aircraft", 8.0, 1e-5, actor="test")
    fresh = Answers(ledger).population("aircraft")
    assert (fresh.runs_left, fresh.runs_left_users, fresh.lasts_until) == (None, None, None)
    start(ledger, "first")
    ledger.close_population("aircraft", reason="over", actor="test")
    closed = Answers(ledger).population("aircraft")
    assert (closed.last_run_fits, closed.runs_left, closed.runs_left_users) == (False, 0, 0)
    assert closed.level == "open", "nothing fits it, and its budget is not used up"


def test_a_budget_lasts_as_long_as_runs_keep_their_pace(ledger: Ledger) -> None:
    ledger.create_population("aircraft", 8.0, 1e-5, actor="test")
    starts = []
    for name in ("one", "two", "three"):
        start(ledger, name)
        starts.append(ledger.run(name).started_at)
    told = Answers(ledger).population("aircraft")
    assert told.runs_left is not None
    assert isinstance(told.lasts_until, datetime)
    pace = (starts[2] - starts[0]) / 2
    assert told.lasts_until.timestamp() == pytest.approx(starts[2] + (told.runs_left + 1) * pace, abs=1e-3)


def test_a_question_is_no_run_like_the_last(ledger: Ledger) -> None:
    """One that cost little made a thousand more runs fit, and its start the pace of runs."""
    ledger.create_population("aircraft", 8.0, 1e-5, actor="test")
    start(ledger, "asked-first", mu_squared=1e-6, task=QUESTION)
    first = Answers(ledger).population("aircraft")
    assert (first.last_run, first.lasts_until) == ("asked-first", None)
    assert first.runs_left is not None
    starts = []
    for name in ("one", "two"):
        start(ledger, name)
        starts.append(ledger.run(name).started_at)
    start(ledger, "asked-last", mu_squared=1e-6, task=QUESTION)
    told = Answers(ledger).population("aircraft")
    assert (told.last_run, told.runs) == ("two", 4)
    assert told.runs_left is not None
    assert told.runs_left < 20 < first.runs_left
    assert told.lasts_until is not None
    pace = starts[1] - starts[0]
    assert told.lasts_until.timestamp() == pytest.approx(starts[1] + (told.runs_left + 1) * pace, abs=1e-3)


@pytest.fixture
def client(ledger: Ledger) -> Iterator[TestClient]:
    for number in range(12):
        ledger.create_population(f"zone-{number:02}", 4.0, 1e-6, actor="test")
        if number % 3:
            loss = Foreign(mu=0.1 * (1 + number * 5 % 7))
            ledger.reserve_charge(f"zone-{number:02}", "other", loss, what="ranker", why="weekly", actor="test")
    with client_at("127.0.0.1", ledger.url, Settings(verify_seconds=0)) as opened:
        yield opened


def paged(client: TestClient, **query: Any) -> list[dict[str, Any]]:
    """Every item, two on a page."""
    items: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = client.get("/v1/populations", params={"limit": 2, **query} | ({"cursor": cursor} if cursor else {}))
        assert page.status_code == 200, page.text
        items += page.json()["items"]
        cursor = page.json()["next"]
        if cursor is None:
            return items


def test_the_nearest_come_first_and_pages_leave_none_out(client: TestClient) -> None:
    found = paged(client, order="nearness")
    assert sorted(each["name"] for each in found) == [f"zone-{number:02}" for number in range(12)]
    shares = [each["committed_share"] for each in found]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > shares[-1] == 0
    assert [each["name"] for each in paged(client)] == sorted(each["name"] for each in found)


def test_a_search_is_for_any_part_of_a_name_in_either_case(client: TestClient) -> None:
    for order in ("name", "nearness"):
        assert {each["name"] for each in paged(client, search="E-1", order=order)} == {"zone-10", "zone-11"}
    assert paged(client, search="nobody") == []


@pytest.mark.parametrize("cursor", ["zone-01", "x:zone-01", "nan:zone-01", ""])
def test_a_cursor_of_another_order_is_refused(client: TestClient, cursor: str) -> None:
    answer = client.get("/v1/populations", params={"order": "nearness", "cursor": cursor})
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:fieldfare:problem:bad-cursor")


def test_a_token_for_some_populations_sees_these_alone_in_either_order(client: TestClient, ledger: Ledger) -> None:
    secret, _ = ledger.create_token("some", ("read",), actor="test", populations=("zone-01", "zone-03"))
    for order in ("name", "nearness"):
        answer = client.get(
            "/v1/populations", params={"order": order}, headers={"Authorization": f"Bearer {secret}"}
        ).json()
        assert {each["name"] for each in answer["items"]} == {"zone-01", "zone-03"}
