"""What a ledger shows, and how it words a refusal."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import sqlalchemy.event

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.filter import Price, price
from fieldfare.accounting.individual import UNIT
from fieldfare.accounting.poisson import PoissonGaussian
from fieldfare.errors import BadInput, BudgetRefused
from fieldfare.names import QUESTION
from fieldfare_server.evidence.verify import verify
from fieldfare_server.ledger import Ledger, Outcome, watch
from fieldfare_server.ledger.state import budget
from support.fill import ONE, fill
from support.ledgers import commit, digest, gaussian, start
from support.refusals import coded

HIDDEN = '{"privacy": {"adjacency": "add_remove"}}'


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    with Ledger.open(ledger_url, create=True) as opened:
        opened.create_population("people", 4.0, 1e-6, actor="officer")
        yield opened


def test_pages_hold_everything_once_and_in_order(ledger: Ledger) -> None:
    names = []
    for _ in range(5):
        run = start(ledger, 0.01, rounds=3)
        names.append(run.id)
    cursor, seen = None, []
    while True:
        page = ledger.runs(cursor, limit=2, population="people")
        seen += [view.id for view in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert seen == names[::-1]
    for index in range(3):
        run.void_round(run.open_round([]), "nobody")
        commit(run, [], 0.001 * (index + 1))
    first = ledger.rounds(run.id, limit=4)
    rest = ledger.rounds(run.id, first.next, limit=4)
    order = [(row.index, row.attempt, row.state) for row in (*first.items, *rest.items)]
    assert order == [(i, a, s) for i in range(3) for a, s in ((0, "void"), (1, "committed"))]
    assert rest.next is None
    log = ledger.journal_rows(limit=3)
    assert [row.id for row in log.items] == [ledger.head().count - n for n in range(3)]
    assert [row.id for row in ledger.journal_rows(log.next, limit=2).items] == [ledger.head().count - n for n in (3, 4)]
    assert {row.run for row in ledger.journal_rows(run=run.id).items} == {run.id}


def test_runs_that_ask_a_question_are_listed_apart(ledger: Ledger) -> None:
    task = {"of": "digits", "question": {"kind": "mean"}}
    asking = json.dumps({"run": {"task": QUESTION}, "task": task})
    called_so = json.dumps({"run": {"task": "digits", "name": QUESTION}})
    trains, asks, other = (
        start(ledger, 0.01, plan_json=text, plan_digest=digest(text)).id
        for text in (json.dumps({"run": {"task": "digits"}}), asking, called_so)
    )
    assert [view.id for view in ledger.runs(asks=True).items] == [asks]
    assert [view.id for view in ledger.runs(asks=False).items] == [other, trains]
    assert [view.id for view in ledger.runs().items] == [other, asks, trains]


def test_series_are_thinned_and_keep_the_newest(ledger: Ledger) -> None:
    run = start(ledger, 0.8, rounds=40)
    for index in range(37):
        commit(run, [], 0.01 * (index + 1))
    points = ledger.round_series(run.id, points=10)
    assert len(points) <= 10
    assert [points[0].index, points[-1].index] == [0, 36]
    assert points[-1].epsilon == pytest.approx(gaussian(0.37).epsilon(1e-6))
    assert [point.index for point in ledger.round_series(run.id, points=500)] == list(range(37))
    with pytest.raises(BadInput, check=coded("out-of-range", "points")):
        ledger.round_series(run.id, points=1)


def test_events_follow_on(ledger: Ledger) -> None:
    run = start(ledger)
    commit(run, [], 0.1)
    events = ledger.events()
    assert [event.action for event in events] == ["population.create", "run.start", "round.open", "round.commit"]
    assert ledger.events(events[2].id) == events[3:]
    assert ledger.events(events[-1].id) == ()


def test_views_are_json_and_name_no_user_or_key(ledger: Ledger) -> None:
    key = digest("the key")
    run = start(ledger, key_commitment=key)
    run.register_users(np.array([123456789], dtype=np.uint64))
    commit(run, [0], 0.1)
    views = [*ledger.populations(), *ledger.runs().items, *ledger.rounds(run.id).items]
    text = json.dumps([view.model_dump(mode="json") for view in views])
    assert "123456789" not in text
    assert key not in text


def test_counts_are_not_shown_where_presence_is_the_secret(ledger: Ledger) -> None:
    ledger.create_population("hidden", 4.0, 1e-6, adjacency="add_remove", simulated=True, actor="officer")
    run = start(ledger, population="hidden", plan_json=HIDDEN)
    run.register_users(np.arange(7, dtype=np.uint64))
    run.void_round(run.open_round([1, 2, 3]), "2 reports, 3 needed", reports=2, rejects={"nan": 1})
    opened = run.open_round([1, 2, 3])
    run.commit_round(opened, Outcome([1, 2, 3], gaussian(0.1), {"accuracy": 0.5}, {"nan": 1}, reports=3), digest("x"))
    assert ledger.population("hidden").users is None
    assert ledger.participation_histogram(run.id) == {}
    for row in ledger.rounds(run.id).items:
        assert (row.cohort_size, row.reports, row.participants, row.rejects, row.reason) == (None, None, None, {}, "")
    (point,) = ledger.round_series(run.id)
    assert (point.cohort_size, point.reports, point.participants) == (None, None, None)
    bodies = [event.body for event in (*ledger.events(), *ledger.journal_rows().items) if event.run == run.id]
    shown = {name for body in bodies for name in body}
    assert {"spent", "checkpoint"} <= shown
    assert not {"cohort_size", "cohort", "participants", "participant_count", "reports", "rejects", "count"} & shown
    assert verify(ledger).ok


def test_a_budget_is_raised_only_with_a_reason_and_never_lowered(ledger: Ledger) -> None:
    raised = ledger.raise_population("people", epsilon=5.0, delta=1e-5, reason="agreed", actor="officer")
    assert (raised.epsilon, raised.delta) == (5.0, 1e-5)
    for change in ({"epsilon": 4.0}, {"delta": 1e-6}, {}, {"epsilon": 5.0}, {"epsilon": 6.0, "delta": 1e-6}):
        with pytest.raises(BadInput, check=coded("out-of-range")):
            ledger.raise_population("people", **change, reason="agreed", actor="officer")  # type: ignore[arg-type]
    with pytest.raises(BadInput, check=coded("not-given", "raising a budget")):
        ledger.raise_population("people", epsilon=6.0, reason=" ", actor="officer")
    with pytest.raises(BadInput, check=coded("out-of-range", "epsilon")):
        ledger.raise_population("people", epsilon=math.inf, reason="agreed", actor="officer")
    (row,) = [row for row in ledger.journal_rows().items if row.action == "population.raise"]
    assert (row.actor, row.body["reason"]) == ("officer", "agreed")
    assert verify(ledger).ok


def test_a_closed_population_takes_no_new_run_and_lets_the_old_end(ledger: Ledger) -> None:
    run = start(ledger, 0.3)
    view = ledger.close_population("people", reason="over", actor="officer")
    assert (view.state, view.remaining_epsilon) == ("closed", 0.0)
    with pytest.raises(BadInput, check=coded("not-now", "a run on population")):
        start(ledger, 0.1)
    with pytest.raises(BadInput, check=coded("not-now", "population")):
        ledger.close_population("people", reason="over", actor="officer")
    commit(run, [], 0.2)
    run.finish("done")
    assert ledger.population("people").spent == Price(0.2 * 0.2)
    assert verify(ledger).ok


@pytest.mark.parametrize(
    ("name", "epsilon", "delta"),
    [("", 1.0, 1e-6), ("a b", 1.0, 1e-6), ("\0", 1.0, 1e-6), ("x" * 101, 1.0, 1e-6), ("people", 1.0, 1e-6)]
    + [
        ("new", e, d)
        for e, d in ((0.0, 1e-6), (-1.0, 1e-6), (math.nan, 1e-6), (math.inf, 1e-6), (1.0, 0.0), (1.0, 1.0))
    ],
)
def test_populations_that_are_none_are_refused(ledger: Ledger, name: str, epsilon: float, delta: float) -> None:
    with pytest.raises(BadInput):
        ledger.create_population(name, epsilon, delta, actor="officer")


@pytest.mark.parametrize("name", ["nobody", "\0", "\ud800", "x" * 500, "'; DROP TABLE runs; --"])
def test_what_is_not_there_is_refused_by_name(ledger: Ledger, name: str) -> None:
    with pytest.raises(BadInput, check=coded("not-found", "population")):
        ledger.population(name)
    with pytest.raises(BadInput, check=coded("not-found", "run")):
        ledger.run(name)
    with pytest.raises(BadInput, check=coded("not-found", "population")):
        start(ledger, population=name)


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_pages_have_bounds(ledger: Ledger, limit: int) -> None:
    with pytest.raises(BadInput, check=coded("out-of-range", "limit")):
        ledger.runs(limit=limit)


def test_words_that_a_database_cannot_keep_are_cleaned(ledger: Ledger) -> None:
    run = start(ledger, holder="a\0b\ud800" + "x" * 500)
    run.void_round(run.open_round([]), "bad\0reply \udfff")
    run.finish("failed", "Error: \0")
    assert ledger.run(run.id).message == "Error: "
    assert verify(ledger).ok


def test_statistics_must_be_finite_json(ledger: Ledger) -> None:
    run = start(ledger)
    opened = run.open_round([])
    for bad in ({"loss": math.nan}, {"loss": object()}):
        with pytest.raises(BadInput, check=coded("wrong-form", "statistics of round")):
            run.commit_round(opened, Outcome([], gaussian(0.1), bad), digest("x"))
    with pytest.raises(BadInput, check=coded("wrong-form", "checkpoint digest", "64")):
        run.commit_round(opened, Outcome([], gaussian(0.1)), "x" * 64)
    run.commit_round(opened, Outcome([], gaussian(0.1), {"accuracy": 0.5}), digest("x"))
    assert ledger.rounds(run.id).items[0].statistics == {"accuracy": 0.5}


def test_sampled_and_gaussian_runs_share_one_budget(ledger: Ledger) -> None:
    ledger.create_population("sampled", 4.0, 1e-6, adjacency="add_remove", simulated=True, actor="officer")
    sampled = PrivacyLoss(0.0, (PoissonGaussian(0.01, 1.0, 100),))
    run = start(ledger, rounds=100, planned=sampled, population="sampled", plan_json=HIDDEN)
    commit_sampled = PrivacyLoss(0.0, (PoissonGaussian(0.01, 1.0, 1),))
    run.commit_round(run.open_round([]), Outcome([], commit_sampled), digest("x"))
    foreign = PrivacyLoss(0.0, (PoissonGaussian(0.02, 1.0, 1),))
    with pytest.raises(BudgetRefused, check=coded("charge-above-reserved")):
        run.commit_round(run.open_round([]), Outcome([], commit_sampled + foreign), digest("y"))
    view = ledger.population("sampled")
    assert view.committed == price(sampled, 0.25 * view.leak)
    assert 0 < view.spent_epsilon == view.committed_epsilon < 4.0  # all of it is spent by the first round
    with pytest.raises(BudgetRefused):
        start(ledger, view.remaining_mu * 1.01, population="sampled", plan_json=HIDDEN)
    start(ledger, view.remaining_mu, population="sampled", plan_json=HIDDEN)


def test_room_is_never_too_much_and_nearly_all() -> None:
    terms = budget.Terms(4.0, 1e-6, 0.0)
    for used in (0.0, 0.3, 0.79):
        left = budget.room(Price(used * used), terms)
        assert terms.hold(Price(used * used) + Price(left.mu * left.mu))
        assert (gaussian(used) + gaussian(left.mu)).epsilon(1e-6) <= 4.0
        assert (gaussian(used) + gaussian(left.mu * (1 + 1e-6))).epsilon(1e-6) > 4.0
    assert budget.room(Price(1.0), terms) == budget.Room(0.0, 0.0)


def test_one_loss_is_part_of_another_or_not() -> None:
    event = PoissonGaussian(0.1, 1.0, 3)
    fewer, other = PoissonGaussian(0.1, 1.0, 2), PoissonGaussian(0.2, 1.0, 1)
    assert PrivacyLoss(0.5, (fewer,)).part_of(PrivacyLoss(0.5, (event,)))
    assert not PrivacyLoss(0.5, (event,)).part_of(PrivacyLoss(0.5, (fewer,)))
    assert not PrivacyLoss(0.5, (other,)).part_of(PrivacyLoss(9.0, (event,)))
    assert not PrivacyLoss(math.nextafter(0.5, 1)).part_of(PrivacyLoss(0.5))


def test_a_filled_ledger_reads_back(ledger_url: str) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        fill(ledger)
        people = ledger.population("people")
        assert (people.users, people.runs_total, people.runs_active, people.rounds_left) == (50, 5, 2, 4)
        # Two worst-case runs, the other trainer's mu .1, and the user who has paid for two rounds by odometer.
        alike = math.fsum((0.08, 0.2 * 0.2, 0.1 * 0.1))
        assert people.spent.mu_squared == pytest.approx(alike + 2 * ONE * UNIT, rel=1e-12)
        assert people.epsilon == 5.0
        (newest,) = ledger.runs(limit=1).items
        assert (newest.next_round, newest.spent, newest.trust_node_ids) == (1, gaussian(0.2), False)
        assert ledger.participation_histogram(newest.id) == {1: 1}
        assert [token.revoked_at is None for token in ledger.tokens()] == [False, True]


def test_residual_tests_are_counted_by_rows_that_are_new(ledger: Ledger) -> None:
    """A scrape of /metrics read the whole journal: two seconds of processor at two million rounds."""
    first, second = start(ledger, 0.1), start(ledger, 0.1)
    tests, looked = watch.ResidualTests(), list[int]()

    @sqlalchemy.event.listens_for(ledger.database.engine, "before_cursor_execute")
    def look(_connection: Any, _cursor: Any, sql: str, parameters: Any, *_: Any) -> None:
        if "audit.action =" in sql and "max" not in sql:
            looked.append(min(each for each in _values(parameters) if isinstance(each, int)))

    with ledger.snapshot() as before:
        assert tests.failed(before) == 0
        for run, passed, failed in ((first, False, 1), (second, False, 2), (first, True, 1), (second, True, 0)):
            ledger.record_residual_test(run.id, {"passed": passed}, actor="test")
            read = ledger.head().count - 1
            assert tests.failed(ledger) == failed
            assert looked[-1] == read
        assert tests.failed(before) == 0
    assert tests.failed(ledger) == 0


def _values(parameters: Any) -> Iterator[Any]:
    return iter(parameters.values() if isinstance(parameters, dict) else parameters)


def test_a_snapshot_answers_from_one_transaction(ledger: Ledger) -> None:
    run = start(ledger)
    run.register_users(np.arange(3, dtype=np.uint64))
    counts = watch.RoundCounts(ledger)
    with ledger.snapshot() as before:
        assert before.run(run.id).next_round == 0
        commit(run, [0, 1], 0.1)
        run.void_round(run.open_round([0]), "too few")
        assert counts.of(run.id) == (1, {})
        assert counts.of(run.id, before) == (0, {})
        assert (before.run(run.id).next_round, watch.latest_rounds(before, [run.id])) == (0, {})
        with before.snapshot() as nested:
            assert nested.rounds(run.id).items == ()
    assert ledger.run(run.id).next_round == 1
    assert counts.of(run.id) == (1, {})
