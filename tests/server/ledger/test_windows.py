"""Calendar windows: they limit what begins beside the budget, renew by the calendar, and never charge less."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from fieldfare.accounting.foreign import Foreign
from fieldfare.errors import BadInput, BudgetRefused
from fieldfare_server.api.answers import Answers
from fieldfare_server.evidence.verify import verify
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.history import history
from fieldfare_server.ledger.rules.populations import Rules
from fieldfare_server.ledger.state import windows
from support.ledgers import commit, demand, proven, start
from support.refusals import Coded, coded

MONDAY = datetime(2026, 11, 23, 9, tzinfo=UTC).timestamp()
DAY = 86400.0
DELTA = 1e-6


def mu_of(epsilon: float) -> float:
    """The mu of Gaussian DP that is (epsilon, 1e-6), from its definition (Dong, Roth and Su 2022, corollary 2.13)."""

    def over(mu: float) -> float:
        return norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2) - DELTA

    return float(brentq(over, 1e-3, 10))


class Clock:
    """Shows `now`."""

    now = MONDAY

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(ledger_url: str, clock: Clock) -> Iterator[Ledger]:
    with Ledger.open(ledger_url, create=True, clock=clock) as opened:
        opened.create_population("people", 4.0, DELTA, actor="officer")
        yield opened
        assert verify(opened).ok
        assert opened.proof.advance().whole


def weekly(ledger: Ledger, epsilon: float = 1.0, every: str = "week", **changes: Any) -> None:
    ledger.set_window("people", epsilon=epsilon, every=every, reason="agreed", actor="officer", **changes)


def test_a_window_holds_its_epsilon_and_not_more(ledger: Ledger) -> None:
    weekly(ledger)
    with pytest.raises(BudgetRefused, check=coded("window-full", "0.9999")):
        start(ledger, mu_of(1.001))
    start(ledger, mu_of(0.6))
    rest = math.sqrt(mu_of(1.0) ** 2 - mu_of(0.6) ** 2)
    with pytest.raises(BudgetRefused, check=coded("window-full", "2026", "11", "30")):
        start(ledger, rest * 1.001)
    start(ledger, rest * 0.999)
    with pytest.raises(BudgetRefused, check=coded("window-full", "0.1")):
        ledger.reserve_charge("people", "k", Foreign(mu=0.1), what="x", why="y", actor="trainer")


@pytest.mark.parametrize("mu", [2.0, 100.0])
def test_of_a_charge_beyond_budget_and_window_the_nearest_is_the_windows(ledger: Ledger, mu: float) -> None:
    """A charge beyond the budget was told a run of all that the budget had left, which the window refuses."""
    weekly(ledger)
    with pytest.raises(BudgetRefused, check=coded("window-full", "0.99")):
        ledger.reserve_charge("people", "k", Foreign(mu=mu), what="x", why="y", actor="trainer")
    start(ledger, mu_of(0.9))
    with pytest.raises(BudgetRefused) as refused:
        ledger.reserve_charge("people", "k", Foreign(mu=mu), what="x", why="y", actor="trainer")
    assert refused.value.code == "window-full"
    assert "2026" in refused.value.nearest


def test_it_renews_by_the_calendar_and_the_budget_stays(ledger: Ledger, clock: Clock) -> None:
    weekly(ledger)
    begun, whys = 0, []
    for _week in range(20):
        for _twice in range(2):
            try:
                start(ledger, mu_of(0.99))
                begun += 1
            except BudgetRefused as refused:
                whys.append("week" if "what began this week" in refused.why else "budget")
        clock.now += 7 * DAY
    # As many as the budget holds without a window, and not one more.
    assert begun == math.floor((mu_of(4.0) / mu_of(0.99)) ** 2)
    assert whys == ["week"] * (begun - 1) + ["budget"] * (41 - 2 * begun)


def test_from_sunday_to_monday(ledger: Ledger, clock: Clock) -> None:
    weekly(ledger)
    clock.now = MONDAY - 9 * 3600 + 7 * DAY - 0.5
    start(ledger, mu_of(0.9))
    with pytest.raises(BudgetRefused):
        start(ledger, mu_of(0.9))
    clock.now += 1
    start(ledger, mu_of(0.9))


def test_a_clock_that_is_set_back_gives_no_second_window(ledger: Ledger, clock: Clock) -> None:
    weekly(ledger)
    start(ledger, mu_of(0.9))
    clock.now -= 14 * DAY
    with pytest.raises(BudgetRefused, check=coded("window-full")):
        start(ledger, mu_of(0.9))


def test_what_a_run_did_not_spend_leaves_its_window(ledger: Ledger) -> None:
    weekly(ledger)
    run = start(ledger, mu_of(0.9))
    ledger.reserve_charge("people", "k", Foreign(mu=0.05), what="x", why="y", actor="trainer")
    with pytest.raises(BudgetRefused):
        start(ledger, mu_of(0.9))
    run.finish("stopped")
    ledger.release_charge("people", "k", actor="trainer")
    run = start(ledger, mu_of(0.9))
    run.register_users(np.arange(3, dtype=np.uint64))
    commit(run, [1, 2], mu_of(0.5))
    run.finish("stopped")
    told = Answers(ledger).population("people").window
    assert told is not None
    assert told.begun_epsilon == pytest.approx(0.5, rel=1e-4)
    window = ledger.position("people")[0].window
    assert window is not None
    assert window.begun.mu_squared == pytest.approx(mu_of(0.5) ** 2, rel=1e-6)


@pytest.mark.parametrize("changes", [{}, {"demand": demand(1 << 42)}], ids=["alike", "singly"])
def test_a_window_only_refuses_more(ledger: Ledger, clock: Clock, changes: dict[str, Any]) -> None:
    """Random starts, ends and days: what one population with a window admits, its twin without one admits too, and
    both spend the same for it."""
    rng = np.random.default_rng(5)
    ledger.create_population("twin", 4.0, DELTA, actor="officer")
    weekly(ledger, 0.8, "day")
    refused, runs = 0, []
    for _ in range(60):
        clock.now += float(rng.uniform(0, 0.4)) * DAY
        if runs and rng.random() < 0.4:
            for run in runs.pop(int(rng.integers(len(runs)))):
                run.finish("stopped")
            continue
        mu = float(rng.uniform(0.02, 0.2))
        try:
            one = start(ledger, mu, **changes)
        except BudgetRefused:
            refused += 1
            continue
        runs.append((one, start(ledger, mu, population="twin", **changes)))
        people, twin = (ledger.population(name) for name in ("people", "twin"))
        assert people.committed == twin.committed
    assert 5 < refused < 50


def test_the_tables_and_the_log_have_one_window(ledger: Ledger, ledger_url: str, clock: Clock) -> None:
    weekly(ledger, 3.0, "month")
    rng = np.random.default_rng(6)
    for number in range(12):
        clock.now += float(rng.uniform(0, 4)) * DAY
        run = start(ledger, 0.1)
        if number % 3 == 0:
            run.finish("stopped")
        ledger.reserve_charge("people", f"k{number}", Foreign(mu=0.05), what="x", why="y", actor="t")
        if number % 2:
            ledger.release_charge("people", f"k{number}", actor="t")
        proved = proven(ledger).populations["people"].window(clock.now)
        assert ledger.position("people")[0].window == proved
        with Ledger.open(ledger_url, clock=clock) as two:
            assert two.position("people")[0].window == proved


def test_days_of_the_calendar() -> None:
    """Against `isocalendar` and `strftime`, over 60 years."""
    names = {"week": "%G-%V", "month": "%Y-%m", "year": "%Y", "day": "%Y-%j"}
    epoch = date(1970, 1, 1)
    for number in range(-10, 22_000):
        day = epoch + timedelta(days=number)
        for every, form in names.items():
            first = epoch + timedelta(days=windows.first_day(every, number))  # type: ignore[arg-type]
            after = epoch + timedelta(days=windows.next_day(every, number))  # type: ignore[arg-type]
            assert first <= day < after
            assert first.strftime(form) == day.strftime(form) == (after - timedelta(days=1)).strftime(form)
            assert (first - timedelta(days=1)).strftime(form) != day.strftime(form) != after.strftime(form)


@pytest.mark.parametrize(
    ("epsilon", "every", "why"),
    [
        (1.0, None, coded("conflict", "a window of population 'people'")),
        (None, "week", coded("conflict", "a window of population 'people'")),
        (1.0, "hour", coded("unknown", "every")),
        (4.1, "week", coded("out-of-range", "a window of population 'people'")),
        (-1.0, "week", coded("out-of-range", "epsilon")),
        (math.nan, "week", coded("out-of-range", "epsilon")),
        (None, None, coded("not-now", "a window of population 'people'")),
    ],
)
def test_a_window_that_cannot_be(ledger: Ledger, epsilon: float | None, every: str | None, why: Coded) -> None:
    with pytest.raises(BadInput, check=why):
        ledger.set_window("people", epsilon=epsilon, every=every, reason="x", actor="officer")


def test_every_change_is_in_the_history_and_needs_a_reason(ledger: Ledger) -> None:
    with pytest.raises(BadInput, check=coded("not-given", "a window")):
        ledger.set_window("people", epsilon=1.0, every="week", reason=" ", actor="officer")
    weekly(ledger)
    with pytest.raises(BadInput, check=coded("not-now", "a window of population 'people'")):
        weekly(ledger)
    ledger.note_population("people", text="The board meets on 3 May.", actor="ann")
    with pytest.raises(BadInput, check=coded("not-given", "a note")):
        ledger.note_population("people", text="\0 ", actor="ann")
    ledger.set_window("people", epsilon=None, every=None, reason="over", actor="officer")
    start(ledger, mu_of(2.0))
    told = [(each.action, each.reason, each.before, each.after) for each in history(ledger, "people").changes]
    none, one = {"window_epsilon": None, "window_every": None}, {"window_epsilon": 1.0, "window_every": "week"}
    assert told[:3] == [
        ("population.window", "over", one, none),
        ("population.note", "The board meets on 3 May.", {}, {}),
        ("population.window", "agreed", {}, one),
    ]


def test_one_person_does_not_widen_a_window_where_a_raise_needs_two(ledger: Ledger) -> None:
    ledger.create_population("guarded", 4.0, DELTA, rules=Rules(two_persons=True), actor="officer")

    def to(epsilon: float | None, every: str | None) -> None:
        ledger.set_window("guarded", epsilon=epsilon, every=every, reason="x", actor="officer")

    to(1.0, "week")
    for wider in ((1.5, "week"), (None, None), (0.9, "day"), (0.5, "month")):
        with pytest.raises(BadInput, check=coded("not-allowed", "a window of population 'guarded'")):
            to(*wider)
    to(0.9, "week")


def test_the_page_is_told_how_many_runs_begin_in_the_window(ledger: Ledger, clock: Clock) -> None:
    answers = Answers(ledger)
    weekly(ledger, 2.0, "year")
    run = start(ledger, mu_of(0.5))
    told = answers.population("people")
    assert told.window is not None
    assert told.window.runs_left == math.floor((mu_of(2.0) / mu_of(0.5)) ** 2) - 1
    assert told.runs_left == math.floor((mu_of(4.0) / mu_of(0.5)) ** 2) - 1
    assert told.window.renews_at == datetime(2027, 1, 1, tzinfo=UTC)
    assert told.last_run_fits
    for _ in range(told.window.runs_left):
        start(ledger, mu_of(0.5))
    told = answers.population("people")
    assert (told.window.runs_left, told.last_run_fits, told.runs_left > 0) == (0, False, True)  # type: ignore[union-attr]
    with pytest.raises(BudgetRefused, check=coded("window-full")):
        start(ledger, mu_of(0.5))
    clock.now += 60 * DAY  # no row of the log is new, and a new year begins
    told = answers.population("people")
    assert (told.window.begun_epsilon, told.last_run_fits) == (0.0, True)  # type: ignore[union-attr]
    run.finish("stopped")
