"""The page in a real Chromium, over a real ledger. Skipped, visibly, where Chromium or Playwright is missing."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ledger_data
import numpy as np
import pytest

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.foreign import Foreign
from fieldfare.accounting.gaussian import gaussian_epsilon
from fieldfare.masking.boxes import write_key
from fieldfare.plan import Plan
from fieldfare_server.api import Settings, create_app
from fieldfare_server.api.server import config, serve_in_thread
from fieldfare_server.ledger import Ledger, Outcome, RunHandle
from fieldfare_server.planning.questions import Asked
from support.chromium import WAIT, chromium, headline, new_page, sign_in


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with ledger_data.new_ledger(f"sqlite:///{tmp_path / 'ledger.sqlite3'}") as opened:
        yield opened


@pytest.fixture
def run(ledger: Ledger) -> RunHandle:
    done = ledger_data.start(ledger, "earlier")
    for _ in range(6):
        ledger_data.commit(done)
    done.finish("stopped", "on request")
    live = ledger_data.start(ledger, "live")
    for _ in range(5):
        ledger_data.commit(live)
    return live


@pytest.fixture
def url(ledger: Ledger, tmp_path: Path) -> Iterator[str]:
    with serve_in_thread(config(create_app(f"sqlite:///{tmp_path / 'ledger.sqlite3'}", Settings()), port=0)) as address:
        yield address


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    with new_page(browser) as opened:
        yield opened


def test_the_page_is_red_while_no_blinder_answers(
    page: Any, ledger: Ledger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fieldfare_server.api.blinder_answers.SILENT_AFTER", 0.0)
    table = json.loads(ledger_data.plan().to_json())
    table["aggregation"] = {"kind": "masked", "least_nodes": 8, "blinder": write_key(bytes(32))}
    masked = ledger_data.start(ledger, "masked", described=Plan.stored(table))
    page.goto(f"{url}/#run=masked")
    said = page.locator("#guarantee .blinder")
    said.get_by_text("It has answered about no round yet.").wait_for()
    assert page.locator("#guarantee .blinder.silent").count() == 0
    masked.close_round(masked.open_round(range(50)), "ab" * 32, 8)
    page.locator("#guarantee .blinder.silent").get_by_text("No blinder has answered about round 1 of 16").wait_for()
    ledger_data.commit(masked, opened=masked.open_round_pending())
    page.locator("#guarantee .blinder:not(.silent)").wait_for()


VIEWS = {
    "": ("Privacy budgets", ["Budgets", "Runs and comparison", "Ledger"]),
    "#population=aircraft": (
        "Population aircraft",
        [
            "What still fits",
            "Budget over time",
            "What the runs reached",
            "Who changed it",
            "Participation in all runs",
            "What if",
            "The guarantee in words",
            "Runs and comparison",
        ],
    ),
    "#run=live": (
        "Run live",
        ["Epsilon against rounds", "Cohort", "Utility", "Noise", "Participation", "Guarantee"],
    ),
}


@pytest.mark.parametrize("address", VIEWS)
def test_each_address_works_on_its_own_and_is_named(page: Any, url: str, run: RunHandle, address: str) -> None:
    name, panels = VIEWS[address]
    page.goto(f"{url}/{address}")
    page.locator("main[aria-busy=false]").wait_for()
    assert [title.inner_text() for title in page.locator("main h2").all() if title.is_visible()] == panels
    assert (page.title(), page.locator("h1").inner_text()) == (f"{name} — Fieldfare", name)
    assert page.get_by_role("link", name="All budgets").count() == (1 if address else 0)
    assert page.evaluate("scrollY") == 0, "it begins at its top"


@pytest.mark.parametrize(
    ("address", "what"), [("run=nothing", "run nothing"), ("population=trains", "population trains")]
)
def test_an_address_of_what_is_not_there_says_so(page: Any, url: str, run: RunHandle, address: str, what: str) -> None:
    page.goto(f"{url}/#{address}")
    page.locator("#gone", has_text=f"This ledger has no {what}.").wait_for()
    assert page.url.endswith(f"#{address}"), "the address stays, so that its sender can be told"
    assert page.locator("main h2:visible").count() == 0, "nothing else is shown in its place"
    page.locator("#gone").get_by_role("link", name="All budgets").click()
    headline(page, "Running, round 6 of 16")


def test_a_question_shows_what_was_asked_and_its_answer(page: Any, url: str, ledger: Ledger) -> None:
    asked = Asked.of(
        {
            "question": {"kind": "mean", "measure": "rows", "low": 0, "high": 40},
            "run": {"task": "digits"},
            "privacy": {"population": "aircraft", "noise_multiplier": 2.0, "delta": 1e-5},
        }
    )
    handle = ledger_data.start(ledger, "asked", rounds=1, described=asked.plan(50))
    opened = handle.open_round(np.arange(50))
    page.goto(f"{url}/#run=asked")
    # Before the charge there is nothing to see.
    page.locator("#utility", has_text="released no held-out score").wait_for()
    shown = {"score": None, "score_name": "answer", "noise_std": 2.0 / 50, "released": [0.25]}
    spent = PrivacyLoss(mu_squared=1 / 4)
    handle.commit_round(opened, Outcome(np.arange(50), spent, shown, {}, reports=50), "ab" * 32)
    handle.finish("done", "all rounds committed")
    page.locator("#utility", has_text="25 (23.43 to 26.57)").wait_for()
    page.locator("#utility", has_text="50 users answered").wait_for()
    page.goto(url)
    row = page.locator("tbody tr", has=page.get_by_role("link", name="asked", exact=True)).last
    row.wait_for()
    assert "question: mean of rows from 0.0 to 40.0, task digits" in row.inner_text()
    assert "mean: 25 (23.43 to 26.57)" in row.inner_text()
    ledger_data.start(ledger, "training")
    page.goto(f"{url}/#asks=true")
    page.locator("#runs tbody tr", has_text="mean: 25").wait_for()
    assert page.locator("#runs tbody tr").count() == 1
    page.locator("#filters").get_by_label("Show").select_option("false")
    page.locator("#runs tbody tr", has_text="training").wait_for()
    page.locator("#runs tbody tr", has_text="mean: 25").wait_for(state="detached")
    assert page.url.endswith("#asks=false")


def test_a_metric_that_rides_is_shown_with_its_interval_and_in_round_after_round(
    page: Any, url: str, ledger: Ledger
) -> None:
    """Flower's quick start reports `eval_acc`: it is charged with its round, and shown only after that."""
    handle = ledger_data.start(ledger, "ridden")
    page.goto(f"{url}/#run=ridden")
    page.locator("#utility", has_text="released no held-out score").wait_for()
    for t in range(2):
        told = {"metric.eval_acc": 0.5 + t / 10, "metric.eval_acc.low": 0.4, "metric.eval_acc.high": 0.75}
        spent = PrivacyLoss(mu_squared=1 / ledger_data.SIGMA**2)
        users = np.arange(50) + 50 * t
        handle.commit_round(handle.open_round(users), Outcome(users, spent, told, {}, reports=50), f"{t}a" * 32)
    page.locator("#utility", has_text="eval_acc on users' own data").wait_for()
    page.locator("#utility", has_text="0.6 (0.4 to 0.75)").wait_for()
    page.locator("#utility").get_by_role("img", name="Private mean of eval_acc over the last rounds").wait_for()
    assert "no held-out score" not in page.locator("#utility").inner_text()


def test_of_a_choice_the_page_offers_no_test_that_would_be_refused(page: Any, url: str, ledger: Ledger) -> None:
    asked = Asked.of(
        {
            "question": {"kind": "choose", "models": ["one", "two"], "shows": "best"},
            "run": {"task": "digits"},
            "privacy": {"population": "aircraft", "noise_multiplier": 2.0, "delta": 1e-5},
        }
    )
    handle = ledger_data.start(ledger, "chosen", rounds=1, described=asked.plan(50))
    opened = handle.open_round(np.arange(50))
    shown = {"score": None, "score_name": "answer", "noise_std": 2.0 / 50, "released": [0.0, 1 / 50]}
    handle.commit_round(opened, Outcome(np.arange(50), PrivacyLoss(mu_squared=1 / 4), shown, {}, reports=50), "ab" * 32)
    handle.finish("done", "all rounds committed")
    page.goto(f"{url}/#run=chosen")
    page.locator("#utility", has_text="two, below the best mean by").wait_for()
    page.locator("#noise", has_text="no residual to test").wait_for()
    assert "fieldfare audit" not in page.locator("#noise").inner_text()
    assert "Charged as noise multiplier" in page.locator("#noise").inner_text()
    page.locator("#guarantee", has_text="exponential: of 2 models one is drawn").wait_for()
    assert "adds the noise" not in page.locator("#guarantee").inner_text()
    page.goto(f"{url}/#population=aircraft")  # no question is priced with other values
    page.locator("#what-if", has_text="starts from the plan of a run, and there is none yet").wait_for()


def test_among_three_hundred_populations_those_nearest_to_their_limits_are_found_at_once(
    page: Any, url: str, ledger: Ledger, run: RunHandle
) -> None:
    for i in range(300):
        ledger.create_population(f"zone-{i:03}", 4.0, 1e-6, actor="officer")
    near = {"zone-211": 0.61, "zone-007": 0.6, "zone-299": 0.58}
    for name, mu_squared in near.items():
        ledger.reserve_charge(name, "other", Foreign(mu=mu_squared**0.5), what="ranker", why="weekly", actor="test")
    page.goto(url)
    rows = page.locator("#budgets tbody tr")
    rows.first.wait_for()
    assert [rows.nth(i).locator("a").inner_text() for i in range(3)] == list(near)
    assert rows.count() == 20
    page.get_by_role("button", name="Show more populations").click()
    rows.nth(39).wait_for()
    assert rows.count() == 40
    page.get_by_label("Find a population").fill("NE-29")
    rows.nth(10).wait_for(state="detached")
    assert rows.count() == 10
    assert page.url.endswith("#search=NE-29"), "what was found can be sent"
    assert page.get_by_label("Find a population").evaluate("e => e === document.activeElement")
    page.goto(f"{url}/#population=zone-250")
    page.locator("#fits", has_text="No run has been charged yet").wait_for()
    told = page.locator("#fits").inner_text()
    assert "Largest run that fits" in told
    assert "by what they have left" not in told, "nothing is drawn of nobody"


def test_no_epsilon_is_shown_below_what_it_is(page: Any, url: str, ledger: Ledger, run: RunHandle) -> None:
    """Small and large ones too, which have an exponent; nor is a guarantee, or its delta."""
    page.goto(f"{url}/#run=live")
    values = [*(1.23456789 * 10.0**power for power in range(-12, 10)), 1.2344e-4, 9.9949e-4, 3.00004, 1e-5, 2.0]
    shown = page.evaluate(
        "async (values) => { const {epsilon} = await import('/assets/format.js'); return values.map(epsilon) }", values
    )
    assert all(value <= float(text) <= 1.001 * value for value, text in zip(values, shown, strict=True)), shown
    assert shown[-2:] == ["1e-5", "2"]
    ledger.create_population("odd", 3.00004, 1.00049e-5, simulated=True, actor="officer")
    page.goto(f"{url}/#population=odd")
    page.locator("#fits", has_text="ε 3.001 at δ 1.001e-5").wait_for()


def test_many_numbers_of_rounds_share_bars(page: Any, url: str, run: RunHandle) -> None:
    page.goto(f"{url}/#run=live")
    page.locator("#participation .bars").wait_for()
    users = [300, *range(1, 40)]
    page.evaluate(
        "async (users) => (await import('/assets/participation.js')).drawVisits("
        "document.querySelector('#participation'), {adjacency: 'zero_out'}, {counted: true, users})",
        users,
    )
    bars = page.locator("#participation .bars").inner_text().splitlines()
    assert bars[::2][:3] == ["0 rounds", "1 to 3 rounds", "4 to 6 rounds"]
    assert sum(int(shown) for shown in bars[1::2]) == sum(users)


def drawn(page: Any, url: str, name: str, low: float, high: float) -> Any:
    """The texts of a chart whose y axis has this name and these ends."""
    page.goto(f"{url}/#run=live")
    page.locator("#utility svg").first.wait_for()
    page.evaluate(
        "async ([name, low, high]) => (await import('/assets/chart.js')).lineChart(document.querySelector('#utility'),"
        " {label: 'x', x: [0, 4], xLabel: 'rounds', yLabel: name, y: [low, high],"
        " lines: [{name: 'a', color: 1, points: [[1, high]]}]})",
        [name, low, high],
    )
    return page.locator("#utility svg > text")


def test_the_highest_tick_does_not_stand_on_the_name_of_its_axis(page: Any, url: str, run: RunHandle) -> None:
    texts = drawn(page, url, "AUC on flights", 0, 1)
    boxes = [texts.nth(i).bounding_box() for i in range(texts.count())]
    over = [
        (a, b)
        for a, b in itertools.combinations(boxes, 2)
        if a["x"] < b["x"] + b["width"] and b["x"] < a["x"] + a["width"]
        if a["y"] < b["y"] + b["height"] and b["y"] < a["y"] + a["height"]
    ]
    assert over == []


def test_two_ticks_of_a_narrow_range_read_differently(page: Any, url: str, run: RunHandle) -> None:
    texts = drawn(page, url, "auc", 0.83586, 0.83604)
    told = [text for text in texts.all_text_contents() if text.startswith("0.83")]
    assert len(told) > 2
    assert len(set(told)) == len(told)
    left = page.locator("#utility svg").bounding_box()["x"]
    assert all(texts.nth(i).bounding_box()["x"] >= left for i in range(texts.count()))


def test_names_of_the_limit_and_of_the_plan_never_stand_on_each_other(page: Any, tmp_path: Path) -> None:
    """The run plans all but a thousandth of the budget, so that both lines are at one height."""
    address = f"sqlite:///{tmp_path / 'full.sqlite3'}"
    with ledger_data.new_ledger(address, epsilon=1.0001 * gaussian_epsilon(0.5, 1e-5)) as full:
        ledger_data.commit(ledger_data.start(full, "full"))
        with serve_in_thread(config(create_app(address), port=0)) as served:
            for width in (390, 1280):
                page.set_viewport_size({"width": width, "height": 800})
                page.goto("about:blank")
                page.goto(f"{served}/#run=full")
                page.locator("#curve .rule-name").first.wait_for()
                boxes = [each.bounding_box() for each in page.locator("#curve .rule-name").all()]
                apart = all(
                    a["x"] + a["width"] <= b["x"] or b["x"] + b["width"] <= a["x"] or abs(a["y"] - b["y"]) >= 12
                    for i, a in enumerate(boxes)
                    for b in boxes[:i]
                )
                assert apart, boxes
                key = page.locator("#curve .key").inner_text()
                assert "Committed plan" in key, "the legend names both wherever there is no room"
                assert "Limit of the population" in key


def test_a_phone_sees_the_figures_of_every_population(browser: Any, url: str, ledger: Ledger, run: RunHandle) -> None:
    for i in range(5):
        ledger.create_population(f"zone-{i}", 4.0, 1e-6, actor="officer")
    with new_page(browser, viewport={"width": 390, "height": 844}) as phone:
        phone.goto(url)
        row = phone.locator("#budgets tbody tr").first
        row.wait_for()
        assert row.locator("a").inner_text() == "aircraft"
        for cell in row.locator("td.num").all():
            box = cell.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 390, "no figure lies outside of the screen"
        names = phone.evaluate(
            "[...document.querySelectorAll('#budgets tbody tr:first-child td.num')].map("
            "(e) => getComputedStyle(e, '::before').content.replaceAll('\"', '').trim())"
        )
        assert names[:2] == ["Committed", "Limit"]


def test_every_panel_is_there_in_order(page: Any, url: str, run: RunHandle) -> None:
    page.goto(f"{url}/#run=live")
    headline(page, "Running, round 6 of 16")
    page.locator("#participation .bars").wait_for()
    assert page.locator("#panels .skeleton").count() == 0
    assert "Not covered by this guarantee" in page.locator("#guarantee").inner_text()
    assert page.locator("#curve svg[role=img]").get_attribute("aria-label").startswith("Epsilon against rounds")
    # Without a token nothing can be changed, so nothing offers to.
    assert page.get_by_role("button", name="Stop…").count() == 0


def test_a_delta_that_does_not_fit_the_users_is_said(page: Any, tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'few.sqlite3'}"
    with Ledger.open(address, create=True) as few:
        few.create_population("aircraft", 8.0, 0.001, actor="officer")
        ledger_data.commit(ledger_data.start(few, "few"))
    with serve_in_thread(config(create_app(address, Settings()), port=0)) as served:
        for panel, address in (("#budgets", ""), ("#guarantee", "#run=few")):
            page.goto(f"{served}/{address}")
            page.locator(panel, has_text="publishing one user at random of 500").wait_for()


def test_a_commit_is_shown_within_two_seconds(page: Any, url: str, run: RunHandle) -> None:
    page.goto(url)
    headline(page, "round 6 of 16")
    page.locator("#connection", has_text="Live").wait_for()
    began = time.monotonic()
    ledger_data.commit(run)
    headline(page, "round 7 of 16")
    took = time.monotonic() - began
    print(f"shown {took:.2f} s after the commit began")
    assert took < 25, "the promise is 2 s; the rest is for a busy machine"
    assert page.locator("#ledger tbody tr").first.inner_text().split("\t")[2] == "round.commit"


def test_stopping_asks_first_and_reaches_the_coordinator(page: Any, url: str, ledger: Ledger, run: RunHandle) -> None:
    secret, _ = ledger.create_token("officer", ("read", "admin"), actor="test")
    page.goto(url)
    sign_in(page, secret)
    page.get_by_role("button", name="Stop…").click()
    dialog = page.get_by_role("dialog")
    assert "cannot be continued" in dialog.inner_text()
    assert dialog.get_by_role("button", name="Cancel").evaluate("e => e === document.activeElement")
    page.keyboard.press("Escape")
    assert run.request() is None
    page.get_by_role("button", name="Stop…").click()
    page.get_by_role("button", name="Stop the run").click()
    headline(page, "stops at the next round boundary")
    assert run.request() == "stop"
    run.finish("stopped", "on request")
    headline(page, "Stopped after 5 of 16 rounds")


def test_pausing_and_resuming(page: Any, url: str, ledger: Ledger, run: RunHandle) -> None:
    secret, _ = ledger.create_token("officer", ("admin",), actor="test")
    page.goto(url)
    sign_in(page, secret)
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Pause the run").click()
    headline(page, "Paused")
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Resume the run").click()
    headline(page, "Running")
    assert run.request() is None


def test_a_caller_elsewhere_signs_in(browser: Any, ledger: Ledger, run: RunHandle, tmp_path: Path) -> None:
    app = create_app(f"sqlite:///{tmp_path / 'ledger.sqlite3'}", Settings(anonymous_read=False))
    secret, token = ledger.create_token("officer", ("read",), actor="test")
    with serve_in_thread(config(app, port=0)) as url:
        context = browser.new_context()
        page = context.new_page()
        page.set_default_timeout(WAIT)
        page.goto(url)
        headline(page, "Sign in to see the budget")
        sign_in(page, "ff_wrong")
        page.get_by_role("alert").filter(has_text="unknown, expired or revoked").wait_for()
        page.get_by_label("Token").fill(secret)
        page.keyboard.press("Enter")
        headline(page, "round 6 of 16")
        page.locator("#connection", has_text="Live").wait_for()
        assert page.get_by_role("button", name="Stop…").count() == 0, "this token may only read"
        stored = page.evaluate("[JSON.stringify(localStorage), document.cookie]")
        assert secret not in stored[0] + stored[1]
        ledger.revoke_token(token.id, actor="test")
        ledger_data.commit(run)
        headline(page, "Sign in to see the budget")
        context.close()


def test_a_link_to_what_a_token_may_not_read_says_so(page: Any, url: str, ledger: Ledger, run: RunHandle) -> None:
    """It asked a person who had signed in to sign in."""
    ledger.create_population("others", 2.0, 1e-6, actor="officer")
    secret, _ = ledger.create_token("aircraft alone", ("read",), populations=("aircraft",), actor="test")
    page.goto(url)
    sign_in(page, secret)
    page.get_by_role("button", name="Sign out aircraft alone").wait_for()
    page.goto(f"{url}/#population=others")
    page.locator("#gone", has_text="the token is for some populations only.").wait_for()
    assert page.get_by_role("button", name="Sign out aircraft alone").is_visible()
    page.get_by_role("link", name="All budgets").first.click()
    page.locator("#budgets", has_text="aircraft").wait_for()


def test_an_empty_ledger_says_what_to_do(page: Any, url: str) -> None:
    page.goto(url)
    headline(page, "No run yet")
    page.locator("#runs", has_text="No run has been started").wait_for()
    for nothing in ("#compare", "#filters"):
        assert not page.locator(nothing).inner_text(), "there is nothing to choose from"


def test_a_population_without_a_run_shows_no_empty_facts(page: Any, url: str, ledger: Ledger) -> None:
    for address in ("", "#population=aircraft"):
        page.goto(f"{url}/{address}")
        page.locator("dd:visible", has_text="ε 8").first.wait_for()
        assert "—" not in page.locator("dd:visible").all_inner_texts()
    page.goto(f"{url}/#population=aircraft&state=stopped")
    page.locator("#filters").get_by_label("State").select_option("")  # a choice that was made can be taken back
    page.locator("#runs", has_text="No run has been started").wait_for()


@pytest.mark.parametrize("address", ["", "#population=aircraft", "#run=live"])
def test_a_small_number_stands_on_one_line(page: Any, url: str, run: RunHandle, address: str) -> None:
    """At some widths a promise ended a line with "(2.00, 1e-", which reads as another number."""
    page.goto(f"{url}/{address}")
    page.locator("main[aria-busy=false]").wait_for()
    page.locator(".unbroken", has_text="1e-5").first.wait_for()
    if address == "#population=aircraft":
        page.locator("#changes .unbroken", has_text="1e-5").wait_for(state="attached")
    for width in range(320, 480, 20):
        page.set_viewport_size({"width": width, "height": 900})
        lines = page.evaluate("[...document.querySelectorAll('.unbroken')].map((e) => e.getClientRects().length)")
        assert set(lines) <= {0, 1}, "0: not shown"
    if address == "#run=live":
        assert "(8, 1e-5)-differentially" in page.locator(".promise").first.inner_text(), "the text is what it was"


def test_losing_the_service_is_said_and_coming_back_is_noticed(
    page: Any, ledger: Ledger, run: RunHandle, tmp_path: Path
) -> None:
    address = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    with serve_in_thread(config(create_app(address), port=0)) as url:
        page.goto(url)
        page.locator("#connection", has_text="Live").wait_for()
        headline(page, "round 6 of 16")
    page.locator("#connection", has_text="Reconnecting").wait_for()
    page.locator("#notice", has_text="Connection lost").wait_for()
    ledger_data.commit(run)
    with serve_in_thread(config(create_app(address), port=int(url.rpartition(":")[2]))):
        headline(page, "round 7 of 16")
        page.locator("#connection", has_text="Live").wait_for()
        assert page.locator("#notice").is_hidden()


@pytest.mark.parametrize("loaded", [False, True])
def test_a_load_that_fails_is_said_and_tried_again(page: Any, url: str, run: RunHandle, loaded: bool) -> None:
    """The first left an empty page for good, and any other its notice above figures that were new again."""
    if loaded:
        page.goto(url)
        headline(page, "round 6 of 16")
        page.locator("#connection", has_text="Live").wait_for()
    page.route("**/v1/me", lambda route: route.fulfill(status=503))
    if loaded:
        ledger_data.commit(run)
    else:
        page.goto(url)
    page.locator("#notice", has_text="could not be read" if loaded else "cannot be read").wait_for()
    page.unroute("**/v1/me")
    headline(page, "round 7 of 16" if loaded else "round 6 of 16")
    page.locator("#notice").wait_for(state="hidden")


def test_verify_export_and_compare(page: Any, url: str, run: RunHandle) -> None:
    page.goto(url)
    page.get_by_role("button", name="Verify").click()
    page.locator("#ledger", has_text="Chain whole").wait_for()
    with page.expect_download() as started:
        page.get_by_role("button", name="Export").click()
    assert Path(started.value.path()).read_text().count("\n") >= 20
    page.get_by_label("Compare live").check()
    page.get_by_label("Compare earlier").check()
    chart = page.locator("#compare svg[role=img]").first
    page.locator("#compare svg[aria-label*=earlier]").first.wait_for()
    assert "live, earlier" in chart.get_attribute("aria-label")
    page.locator("#runs").get_by_role("link", name="earlier").click()
    headline(page, "Stopped after 6 of 16 rounds")
    assert page.url.endswith("#run=earlier")
    with page.expect_download() as started:
        page.get_by_role("button", name="Privacy statement").click()
    assert "Privacy statement of run earlier" in Path(started.value.path()).read_text()


def test_the_keyboard_reaches_everything_and_reads_the_chart(page: Any, url: str, run: RunHandle) -> None:
    page.goto(f"{url}/#run=live")
    headline(page, "round 6 of 16")
    page.locator("#curve svg").wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the budget"
    page.locator("#curve svg").focus()
    page.keyboard.press("Home")
    assert page.locator("#curve [role=status]").inner_text().startswith("Round 1: if stopped: ε")
    page.keyboard.press("ArrowRight")
    assert "Round 2" in page.locator("#curve [role=status]").inner_text()
    page.locator("#curve summary").focus()
    page.keyboard.press("Enter")
    page.locator("#curve tbody tr").nth(4).wait_for()
    assert page.locator("#curve tbody tr").count() == 5
    theme = page.get_by_role("button", name="Theme")
    for wanted in ("light", "dark", "system"):
        theme.focus()
        page.keyboard.press("Enter")
        assert wanted in theme.inner_text()


def test_a_live_update_does_not_steal_the_focus(page: Any, url: str, run: RunHandle) -> None:
    page.goto(url)
    headline(page, "round 6 of 16")
    page.get_by_label("Compare live").focus()
    ledger_data.commit(run)
    headline(page, "round 7 of 16")
    page.locator("#runs", has_text="6 / 16").wait_for()
    page.wait_for_function("document.activeElement.getAttribute('aria-label') === 'Compare live'")


def test_a_chart_keeps_the_place_that_is_read(page: Any, url: str, ledger: Ledger) -> None:
    """Between two key presses the window changes its width, and another run ends."""
    ledger.raise_population("aircraft", epsilon=40.0, reason="four studies", actor="officer")
    for name, sigma in (("noisy", 4.0), ("clear", 2.0), ("middle", 3.0)):
        ledger_data.whole(ledger, name, sigma=sigma)
    page.goto(f"{url}/#population=aircraft")
    chart, said = page.locator("#scores svg"), page.locator("#scores [role=status]")
    chart.wait_for()
    page.locator("main[aria-busy=false]").wait_for()
    chart.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert "middle 0.75" in said.inner_text()
    page.evaluate("window.before = document.querySelector('#scores svg')")
    page.set_viewport_size({"width": 900, "height": 900})
    page.wait_for_function("document.querySelector('#scores svg') !== before")
    assert "middle 0.75" in page.locator("#scores .tip").inner_text()
    page.keyboard.press("ArrowRight")
    assert "clear 0.75" in said.inner_text()
    ledger_data.whole(ledger, "clearer", sigma=3.5)
    page.locator("#scores svg[aria-label*='of 4 runs']").wait_for()
    page.locator("#runs tbody tr", has_text="clearer").filter(has_text="Done").wait_for()
    assert "clear 0.75" in page.locator("#scores .tip").inner_text(), "the same run, whose place is another"
    assert "clear 0.75" in said.inner_text()
    page.keyboard.press("ArrowLeft")
    assert "middle 0.75" in said.inner_text()
    page.keyboard.press("ArrowLeft")
    assert "clearer 0.75" in said.inner_text()
    assert "clearer 0.75" in page.locator("#scores .tip").inner_text()


LEFT = """() => {
  const of = (e) => [e.scrollLeft, e.scrollTop, e.open ?? null, e.value ?? null];
  const parts = [...document.querySelectorAll('main [data-key]')].filter((e) => e.checkVisibility());
  return {parts: Object.fromEntries(parts.map((e) => [e.closest('[id]').id + ' ' + e.dataset.key, of(e)])),
    focus: document.activeElement.dataset.key ?? document.activeElement.tagName, text: String(getSelection()),
    top: [...document.querySelectorAll('main > :not([hidden]) h2')].at(-1).getBoundingClientRect().top};
}"""


@pytest.mark.parametrize("address", VIEWS)
def test_an_event_takes_nothing_that_a_person_has_on_the_page(
    page: Any, url: str, ledger: Ledger, run: RunHandle, address: str
) -> None:
    """Focus, open tables, typed and selected text, scrolled regions, while a round is committed and a run begins."""
    page.set_viewport_size({"width": 700, "height": 600})
    page.goto(f"{url}/{address}")
    page.locator("main[aria-busy=false]").wait_for()
    page.locator("#connection", has_text="Live").wait_for()
    if not address:
        page.get_by_role("button", name="Older rows").click()
        page.locator("#ledger tbody tr").nth(12).wait_for()
        page.get_by_label("Compare live").check()
        page.get_by_label("Compare earlier").check()
        page.locator("#compare svg[aria-label*=earlier]").first.wait_for()
    reached = page.evaluate(
        "() => [...document.querySelectorAll('main :is(a, button, input, select, summary, details, [tabindex])')]"
        ".filter((e) => e.checkVisibility() && e.closest('.card') && !e.labels?.length)"
        ".map((e) => [e.closest('div[id], section[id]').id, e.dataset.key ?? e.outerHTML])"
    )
    assert reached
    assert [key for _, key in reached if key.startswith("<")] == [], "what a person can be at has a key"
    page.evaluate(
        "() => { for (const e of document.querySelectorAll('main details')) e.open = true;"
        "for (const e of document.querySelectorAll('main .scroll')) e.scrollLeft = 9;"
        "for (const e of document.querySelectorAll('main input[type=number]')) e.value = 7; }"
    )
    selected = {"": "#ledger tbody tr:nth-child(3) td", "#population=aircraft": "#words", "#run=live": "#guarantee li"}
    page.locator(selected[address]).first.evaluate("(e) => getSelection().selectAllChildren(e)")
    at = page.locator("main [data-key]:is(svg, button:not([disabled]))").last
    at.focus()
    page.evaluate("scrollTo(0, 1e6)")
    before = page.evaluate(LEFT)
    assert before["text"]
    ledger_data.commit(run)
    ledger_data.start(ledger, "newest")
    shown = {"": ".banner-state", "#population=aircraft": "#runs", "#run=live": ".banner-state"}
    told = {"": "Running, round 1 of 16", "#population=aircraft": "newest", "#run=live": "Running, round 7 of 16"}
    page.locator(shown[address], has_text=told[address]).first.wait_for()
    page.wait_for_timeout(1500)  # the load that this event caused ends, and the next
    after = page.evaluate(LEFT)
    assert {key: after["parts"].get(key) for key in before["parts"]} == before["parts"]
    assert (after["focus"], after["text"]) == (before["focus"], before["text"])
    assert abs(after["top"] - before["top"]) < 40, "what was on the screen is where it was"


def test_a_comparison_that_another_choice_overtakes_is_not_drawn(page: Any, url: str, run: RunHandle) -> None:
    held: list[Any] = []
    page.route("**/v1/runs/live/series**", lambda asked: asked.continue_() if held else held.append(asked))
    page.goto(url)
    page.get_by_label("Compare live").check()
    page.wait_for_function("() => document.querySelectorAll('#runs input:checked').length === 1")
    page.get_by_label("Compare earlier").check()
    both = page.locator("#compare svg[aria-label*='live, earlier']").first
    both.wait_for()
    with page.expect_response("**/v1/runs/live/series**"):
        held[0].continue_()
    page.wait_for_timeout(200)
    assert both.is_visible()
    assert page.locator("#notice").is_hidden()


def test_rows_of_the_ledger_have_no_gap_and_a_check_that_an_event_overtakes_ends(
    page: Any, url: str, ledger: Ledger, run: RunHandle
) -> None:
    page.goto(url)
    page.locator("main[aria-busy=false]").wait_for()
    page.get_by_role("button", name="Older rows").click()
    page.locator("#ledger tbody tr").nth(20).wait_for()
    held: list[Any] = []
    page.route("**/v1/audit/verification", lambda asked: held.append(asked))
    page.get_by_role("button", name="Verify").click()
    page.locator("#ledger", has_text="Checking").wait_for()
    for _ in range(3):
        ledger_data.commit(run)
    newest = "(row) => Number(document.querySelector('#ledger tbody tr').cells[0].innerText) === row"
    page.wait_for_function(newest, arg=ledger.head().count)
    rows = page.evaluate("[...document.querySelectorAll('#ledger tbody tr')].map((e) => Number(e.cells[0].innerText))")
    assert rows == list(range(ledger.head().count, rows[-1] - 1, -1))
    for one in held:
        one.continue_()
    page.locator("#ledger", has_text="Chain whole").wait_for()


def test_many_runs_are_shown_a_page_at_a_time_and_a_commit_touches_one_row(
    page: Any, url: str, ledger: Ledger, run: RunHandle
) -> None:
    for i in range(60):
        ledger_data.start(ledger, f"short-{i}").finish("stopped")
    page.goto(url)
    rows = page.locator("#runs tbody tr")
    page.locator("#runs tbody tr", has_text="short-59").wait_for()
    assert rows.count() == 50
    where = page.get_by_role("navigation", name="Pages of runs")
    assert where.get_by_role("button", name="Newer runs").get_attribute("aria-disabled") == "true"
    older = where.get_by_role("button", name="Older runs")
    older.focus()
    page.keyboard.press("Enter")
    page.locator("#runs tbody tr", has_text="live").wait_for()
    assert rows.count() == 12
    assert where.get_by_role("status").inner_text() == "Page 2"
    assert older.evaluate("e => e === document.activeElement"), "the keyboard stays where it was"
    headline(page, "Running, round 6 of 16")
    page.get_by_label("Compare live").check()
    # Every row is kept, and only the one that changed is written to.
    page.evaluate(
        "window.kept = [...document.querySelectorAll('#runs tbody tr')]; window.touched = [];"
        "new MutationObserver((all) => all.forEach((m) => touched.push("
        "m.target.closest('tr')?.cells[1].textContent.trim())))"
        ".observe(document.querySelector('#runs tbody'), {childList: true, characterData: true, subtree: true})"
    )
    ledger_data.commit(run)
    page.locator("#runs tbody tr", has_text="6 / 16").first.wait_for()
    headline(page, "round 7 of 16")
    page.locator("#runs tbody tr", has_text="live").filter(has_text="6 / 16").wait_for()
    assert page.evaluate("kept.every((row, i) => row === document.querySelectorAll('#runs tbody tr')[i])")
    assert page.evaluate("[...new Set(touched)]") == ["live"]
    assert page.get_by_label("Compare live").is_checked()
    where.get_by_role("button", name="Newer runs").click()
    page.locator("#runs tbody tr", has_text="short-59").wait_for()
    assert rows.count() == 50


def test_the_page_of_a_population_says_what_still_fits_and_who_changed_it(
    page: Any, url: str, ledger: Ledger, run: RunHandle
) -> None:
    ledger.raise_population("aircraft", epsilon=9.0, reason="a second \u202estudy", actor="officer")
    page.goto(url)
    page.locator("#budgets").get_by_role("link", name="aircraft").click()
    people = ledger.population("aircraft")
    page.locator("#fits", has_text="more runs like the last fit.").wait_for()
    assert (
        f"{people.users} of {people.users} users have enough left for all of the next one"
        in page.locator("#fits").inner_text()
    )
    assert "lasts until" in page.locator("#fits").inner_text()
    assert page.url.endswith("#population=aircraft")
    assert page.locator("#banner").is_hidden()
    assert page.locator("#panels").is_hidden()
    assert "identifies at most" in page.locator("#words").inner_text()
    left = ledger.population("aircraft").left
    assert left is not None
    bars = [f"{users} users have up to {10 * tenth} % of the budget left" for tenth, users in enumerate(left, start=1)]
    assert page.locator("#fits svg.left").get_attribute("aria-label") == ", ".join(bars)
    assert f"0 of {sum(left)} have nothing left and are no longer asked" in page.locator("#fits").inner_text()
    page.locator("#visits .bars").wait_for()
    bars = page.locator("#visits .bars").inner_text().splitlines()
    assert "2 rounds" in bars
    assert "0" not in bars, "no bar says that nobody took part so often"
    page.locator("#history svg[role=img]").wait_for()
    assert "limit 9" in page.locator("#history svg[role=img]").get_attribute("aria-label")
    raised = page.locator("#changes tbody tr").first.inner_text().split("\t")
    assert raised[1:3] == ["officer", "raise"]
    assert raised[3:] == ["epsilon 8", "epsilon 9", "a second \ufffdstudy"]
    assert page.locator("#runs tbody tr").count() == 2
    with page.expect_download() as started:
        page.get_by_role("button", name="History as CSV").click()
    assert Path(started.value.path()).read_text().startswith("at,limit_epsilon,")
    page.get_by_role("link", name="The last run").click()
    headline(page, "Running, round 6 of 16")
    assert page.locator("#population").is_hidden()


def test_a_full_window_says_when_more_runs_begin_and_what_it_was(
    page: Any, url: str, ledger: Ledger, run: RunHandle
) -> None:
    """Beside "at least 12 more runs" stood "none fits now", and of a window taken away "window every none"."""
    ledger.set_window("aircraft", epsilon=0.1, every="week", reason="less", actor="officer")
    ledger.set_window("aircraft", epsilon=None, every=None, reason="more", actor="officer")
    ledger.set_window("aircraft", epsilon=0.2, every="week", reason="less", actor="officer")
    page.goto(url)
    card = page.get_by_label("Population aircraft")
    card.get_by_text("More runs like the last").wait_for()
    facts = card.locator("dd").all_inner_texts()
    assert facts[0].endswith(", none this week")
    assert "none fits now" not in facts
    page.goto(f"{url}/#population=aircraft")
    page.locator("#fits", has_text="One more run like the last does not begin this week.").wait_for()
    assert "none fits now" not in page.locator("#fits").inner_text()
    rows = [row.inner_text().split("\t")[3:5] for row in page.locator("#changes tbody tr").all()]
    assert rows[:3] == [["no window", "ε 0.2 a week"], ["ε 0.1 a week", "no window"], ["—", "ε 0.1 a week"]]


def test_what_if_prices_a_plan_and_says_whether_it_fits(page: Any, url: str, run: RunHandle) -> None:
    page.goto(f"{url}/#population=aircraft")
    form = page.get_by_role("form", name="What if")
    budget = form.get_by_label("ε", exact=True)
    budget.fill("1")
    form.get_by_label("Mechanism").select_option("nu")
    form.get_by_role("button", name="Price it").click()
    page.locator("#what-if", has_text="It fits, for 500 users.").wait_for()
    told = page.locator("#what-if .facts").inner_text()
    assert "times 2.719" in told  # e, rounded up
    # (1, 1e-5) of a Gaussian is mu = 0.2681 by its definition, and ndtr(ndtri(0.01) + mu) = 0.01978.
    assert "at most 1.979 of 100" in told
    slider = form.get_by_label("ε of the run")
    slider.focus()
    page.keyboard.press("End")
    assert budget.input_value() == "8"
    page.locator("#what-if", has_text="It does not fit.").wait_for()
    form.get_by_role("button", name="Compare budgets").click()
    page.locator("#what-if [data-key=others] tbody tr").nth(4).wait_for()
    rows = [row.split("\t") for row in page.locator("#what-if [data-key=others] tbody").inner_text().splitlines()]
    assert [row[0] for row in rows] == ["0.5", "1", "2", "4", "8"]
    assert [row[4] for row in rows][::4] == ["yes", "no"]
    noise = [float(row[1]) for row in rows]
    assert noise == sorted(noise, reverse=True)
    budget.fill("40")
    page.keyboard.press("Enter")
    page.locator("#what-if", has_text="It does not fit.").wait_for()
    assert "Nearest: a run of epsilon" in page.locator("#what-if").inner_text()
    form.get_by_label("Rounds").fill("6000")
    form.get_by_label("Mechanism").select_option("dense")
    page.keyboard.press("Tab")
    form.get_by_role("button", name="Price it").click()
    page.locator("#what-if", has_text="takes too long").wait_for()


def test_what_the_runs_reached_is_drawn_against_what_each_spent(page: Any, url: str, ledger: Ledger) -> None:
    ledger.raise_population("aircraft", epsilon=40.0, reason="three studies", actor="officer")
    ledger_data.whole(ledger, "noisy", sigma=4.0)
    page.goto(f"{url}/#population=aircraft")
    page.locator("#scores", has_text="begins with the second run").wait_for()
    ledger_data.whole(ledger, "clear", sigma=2.0, better=0.1)
    ledger_data.whole(ledger, "middle", sigma=3.0, better=-0.05)
    chart = page.locator("#scores svg[aria-label*='of 3 runs']")
    chart.wait_for()
    page.locator("#runs tbody tr", has_text="middle").filter(has_text="Done").wait_for()
    assert chart.get_attribute("aria-label").startswith("Held-out AUC on flights of 3 runs")
    assert "at most 0.85" in chart.get_attribute("aria-label")
    chart.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    said = page.locator("#scores .tip").inner_text()
    assert "middle 0.7" in said
    assert "highest so far 0.75" in said, "a run that cost more and reached less does not lower it"
    form = page.get_by_role("form", name="What if")
    form.get_by_label("ε", exact=True).fill("2.3")
    form.get_by_role("button", name="Price it").click()
    page.locator("#what-if .facts", has_text="Expected AUC").wait_for()
    told = page.locator("#what-if").inner_text()
    assert "0.7 to 0.75" in told
    assert "Runs: middle, noisy." in told
    form.get_by_label("ε", exact=True).fill("30")
    form.get_by_role("button", name="Price it").click()
    page.locator("#what-if .facts", has_text="Expected AUC").wait_for(state="detached")


def test_a_phone_sees_every_figure_of_runs_and_changes(browser: Any, url: str, ledger: Ledger, run: RunHandle) -> None:
    with new_page(browser, viewport={"width": 390, "height": 844}) as phone:
        phone.goto(f"{url}/#population=aircraft")
        phone.locator("#runs tbody tr").first.wait_for()
        named = "getComputedStyle(document.querySelector('#runs tbody td'), '::before').content"
        assert "Compare" in phone.evaluate(named), "a box without words"
        phone.locator("#compare", has_text="Choose up to 4 runs").wait_for()
        for table in ("#runs", "#changes"):
            cells = phone.locator(f"{table} tbody tr").first.locator("td:visible").all()
            assert len(cells) >= 4
            for cell in cells:
                box = cell.bounding_box()
                assert box["x"] >= 0
                assert box["x"] + box["width"] <= 390, f"{table}: no figure lies outside of the screen"


def test_runs_are_filtered_and_the_filter_is_a_link(page: Any, url: str, run: RunHandle) -> None:
    page.goto(url)
    page.locator("#runs tbody tr", has_text="live").wait_for()
    page.locator("#filters").get_by_label("State").select_option("stopped")
    page.locator("#runs tbody tr", has_text="live").wait_for(state="detached")
    assert page.locator("#runs tbody tr").count() == 1
    assert page.url.endswith("#state=stopped")
    page.goto("about:blank")
    page.goto(f"{url}/#state=failed")
    page.locator("#runs", has_text="No run matches.").wait_for()
    page.locator("#filters").get_by_label("State").select_option("")
    page.locator("#runs tbody tr", has_text="earlier").wait_for()
    with page.expect_download() as started:
        page.get_by_role("button", name="Runs as CSV").click()
    assert Path(started.value.path()).read_text().count("\n") == 3


def test_scores_of_different_tasks_share_no_axis_and_plans_are_compared(
    page: Any, url: str, ledger: Ledger, run: RunHandle
) -> None:
    table = json.loads(ledger_data.plan().to_json())
    table["run"] |= {"task": "digits", "name": "Other task", "tags": ["pilot"]}
    other = ledger_data.start(ledger, "other", described=Plan.parse(table))
    ledger_data.commit(other)
    page.goto(url)
    page.get_by_label("Compare other").check()
    page.locator("#compare .hint").wait_for(state="detached")  # what comes in its place moves the boxes
    page.get_by_label("Compare earlier").check()
    page.locator("#compare", has_text="share no axis").wait_for()
    assert page.locator("#compare svg").count() == 0
    differs = page.locator("#compare tbody").inner_text()
    assert "run.task\tdigits\tflights" in differs
    assert "privacy" not in differs
    assert "Other task #pilot" in page.locator("#runs").inner_text()
    page.get_by_label("Compare other").uncheck()
    page.locator("#compare svg[aria-label*=earlier]").first.wait_for()


@pytest.mark.parametrize(("share", "tag"), [(0.5, None), (0.85, "low: 85 % committed"), (1 - 1e-9, "exhausted")])
def test_a_budget_that_runs_low_says_so_in_words(page: Any, tmp_path: Path, share: float, tag: str | None) -> None:
    """Two runs of mu = 1/2 commit `share` of the limit."""
    address = f"sqlite:///{tmp_path / 'low.sqlite3'}"
    with ledger_data.new_ledger(address, epsilon=gaussian_epsilon(0.5**0.5, 1e-5) / share) as ledger:
        for name in ("one", "two"):
            ledger_data.start(ledger, name)
        with serve_in_thread(config(create_app(address), port=0)) as url:
            page.goto(url)
            page.locator(".budget-head").wait_for()
            tags = page.locator(".budget-head .tag").all_inner_texts()
            assert tags == [] if tag is None else tags[0].startswith(tag)
            legend, bar = (
                page.locator(where).first.evaluate(f"e => getComputedStyle(e).{colour}")
                for where, colour in ((".swatch.spent", "backgroundColor"), ("svg.gauge > rect >> nth=-2", "fill"))
            )
            assert legend == bar, "the legend has the colour of what it names"


@pytest.mark.parametrize("populations", [1, 6, 50])
@pytest.mark.parametrize("width", [360, 768, 1280, 1920])
def test_no_width_scrolls_sideways_and_the_chart_begins_on_the_first_screens(
    browser: Any, url: str, ledger: Ledger, run: RunHandle, width: int, populations: int
) -> None:
    for i in range(populations - 1):
        ledger.create_population(f"population-{i:02}", 4.0, 1e-6, actor="officer")
    with new_page(browser, viewport={"width": width, "height": 800}) as page:
        page.goto(url)
        page.locator("#budgets .gauge").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.goto(f"{url}/#run=live")
        page.locator("#participation .bars").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("document.querySelector('#curve').getBoundingClientRect().top") < 900
        page.goto(f"{url}/#population=aircraft")
        page.locator("#history svg[role=img]").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_long_name_pushes_no_column_out_of_sight(browser: Any, url: str, ledger: Ledger, run: RunHandle) -> None:
    for name in ("one", "two", "three", "a-population-of-" + "a-very-long-name-" * 4):
        ledger.create_population(name, 4.0, 1e-6, actor="officer")
    with new_page(browser) as page:
        page.goto(url)
        for table in ("Populations", "Runs", "Ledger rows"):
            region = page.get_by_role("region", name=table, exact=True)
            region.locator("tbody tr").first.wait_for()
            assert region.evaluate("(shown) => shown.scrollWidth <= shown.clientWidth"), table


@pytest.mark.parametrize("width", [360, 1280])
def test_what_people_wrote_without_a_space_scrolls_no_page_sideways(
    browser: Any, url: str, ledger: Ledger, width: int
) -> None:
    """A note of a run, such as a path, made a phone's page four times as wide, and hid the reason of a raise."""
    long = "/srv/" + "a-folder-with-a-long-name-" * 4
    ledger_data.start(ledger, "a" * 40).finish("failed", long)
    ledger.raise_population("aircraft", epsilon=9.0, delta=1e-5, actor=long, reason=long)
    with new_page(browser, viewport={"width": width, "height": 800}) as page:
        for address in ("", f"#run={'a' * 40}"):
            page.goto(f"{url}/{address}")
            page.locator(".banner", has_text=long).wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.goto(f"{url}/#population=aircraft")
        changes = page.locator("#changes .scroll")
        page.locator("#changes td", has_text=long).first.wait_for()
        assert changes.evaluate("(shown) => shown.scrollWidth <= shown.clientWidth")


@pytest.mark.parametrize("theme", ["", "dark"])
def test_a_dark_page_is_printed_on_white(browser: Any, url: str, run: RunHandle, theme: str) -> None:
    with new_page(browser, color_scheme="dark") as page:
        page.goto(url)
        page.evaluate(f"localStorage.setItem('fieldfare.theme', '{theme}')")
        page.goto(f"{url}/#run=live")
        page.reload()
        page.locator("main[aria-busy=false]").wait_for()
        ink = "getComputedStyle(document.body).color"
        assert page.evaluate(ink) == "rgb(230, 237, 233)"
        page.emulate_media(media="print")
        assert page.evaluate(ink) == "rgb(22, 33, 28)"


def test_ids_and_times_of_runs_stand_on_one_line_and_programs_names_are_broken(
    browser: Any, url: str, ledger: Ledger
) -> None:
    """The id of a run broke before its last letter, and the long name of its program pushed the hashes out of sight."""
    handle = ledger_data.start(ledger, "ac6596c5789e")
    ledger.note_population("aircraft", text="asked", actor="simulation@host/2aded2df-00af-4d0c-85bc-9a32b3c13fd6/pid:1")
    ledger_data.commit(handle)
    lines = "(shown) => new Set([...shown.getClientRects()].map((line) => line.top)).size"
    with new_page(browser) as page:
        page.goto(url)
        page.locator("#runs a", has_text="ac6596c5789e").wait_for()
        assert page.locator("#runs a", has_text="ac6596c5789e").evaluate(lines) == 1
        region = page.get_by_role("region", name="Ledger rows", exact=True)
        region.locator("td", has_text="2aded2df").wait_for()
        assert region.evaluate("(shown) => shown.scrollWidth <= shown.clientWidth")
        page.set_viewport_size({"width": 390, "height": 844})
        started = page.locator("#runs td[data-label=Started]").first
        assert started.evaluate("(cell) => cell.clientHeight / parseFloat(getComputedStyle(cell).lineHeight)") < 2.5


@pytest.mark.parametrize("view", ["", "#population=aircraft", "#run=live"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_and_controls_have_names(
    browser: Any, url: str, run: RunHandle, scheme: str, view: str
) -> None:
    with new_page(browser, color_scheme=scheme) as page:
        page.goto(f"{url}/{view}")
        page.locator("main[aria-busy=false]").wait_for()
        faint = page.evaluate(CONTRAST)
        assert faint == []
        nameless = page.evaluate(
            "[...document.querySelectorAll('button, select, input, a, [role=region], svg[role=img]')].filter("
            "e => !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length)).map(e => e.outerHTML)"
        )
        assert nameless == []
        assert page.evaluate("document.querySelectorAll('h1').length") == 1
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(ids) == len(set(ids))


CONTRAST = """() => {
  const part = (v) => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; };
  const lum = ([r, g, b]) => .2126 * part(r) + .7152 * part(g) + .0722 * part(b);
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const back = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const out = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility() || e.closest('.sr, .skip, option, :disabled')) continue;
    const style = getComputedStyle(e);
    const front = parse(e instanceof SVGElement ? style.fill : style.color).slice(0, 3);
    const [a, b] = [lum(front), lum(back(e))].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < 4.5) out.push(`${e.textContent.trim().slice(0, 40)} ${ratio.toFixed(2)}`);
  }
  return out;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["/", "/#population=aircraft", "/#run=live", "/docs"])
def test_axe_finds_nothing(browser: Any, url: str, run: RunHandle, scheme: str, path: str) -> None:
    """axe-core is not part of this repository: `npm pack axe-core` gives the file that FIELDFARE_AXE names."""
    axe = os.environ.get("FIELDFARE_AXE")
    if not axe:
        pytest.skip("FIELDFARE_AXE does not name an axe.min.js")
    context = browser.new_context(color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    page.goto(url + path)
    page.locator("main[aria-busy=false], .op").first.wait_for()
    page.add_script_tag(path=axe)
    found = page.evaluate("axe.run().then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html.slice(0, 160))]))")
    assert found == []
    context.close()


def test_the_api_reference_is_drawn_from_the_document(page: Any, url: str) -> None:
    page.goto(f"{url}/docs")
    page.get_by_text("/v1/populations/{name}", exact=True).wait_for()
    assert page.locator(".op").count() >= 18
