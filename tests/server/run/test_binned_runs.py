"""Balls in bins, from the sampler to the certificate: what is drawn, written down, charged, proven and shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text, update

from fieldfare.accounting import certification
from fieldfare.costing import cost_of
from fieldfare.errors import BadInput, LedgerError
from fieldfare.noise import SecureNoise
from fieldfare.participation import BallsInBins
from fieldfare.plan import Plan
from fieldfare.population_size import check_population_size
from fieldfare_server.evidence.guarantee import guarantee
from fieldfare_server.evidence.plan_facts import plan_facts
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.rules import runs as ledger_runs
from fieldfare_server.ledger.sql import models
from fieldfare_server.planning import what_if as what_ifs
from fieldfare_server.planning.what_if import what_if
from fieldfare_server.run.presence.cohorts import Cohorts
from fieldfare_server.run.presence.selection import Selector
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import USERS, LyingGrid, home, plan
from support.refusals import Coded, coded
from support.secret_runs import (
    cohorts_of,
    require_callable,
    require_callable_nodes,
    require_same_draws_after_a_crash,
    words_of,
)

BINNED: dict[str, Any] = {
    "privacy": {"population": "people", "noise_multiplier": 4.0, "delta": 1e-5, "adjacency": "add_remove"},
    "participation": {"scheme": "balls-in-bins", "bins": 3},
    "run__noise_seed": None,
    "run__min_reports": None,
    "run__cohort": 8,
}


@pytest.fixture(autouse=True)
def few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certification, "SAMPLES", (1 << 15, 1 << 15))
    monkeypatch.setattr(certification, "_PILOT", 1 << 13)


# -- the sampler ------------------------------------------------------------------------------------------------------


def test_each_user_takes_part_in_one_round_of_every_block_and_in_the_same_of_each() -> None:
    chosen = cohorts_of(BallsInBins(5), 12, np.arange(400))
    assert sorted(np.concatenate(chosen[:5]).tolist()) == list(range(400))
    for t in range(5, 12):
        assert np.array_equal(chosen[t], chosen[t - 5])


def test_bins_are_uniform() -> None:
    """chi^2 with 6 degrees of freedom is above 43 with probability 1e-7."""
    sizes = np.array([len(c) for c in cohorts_of(BallsInBins(7), 7, np.arange(70_000))])
    assert ((sizes - 10_000) ** 2 / 10_000).sum() < 43


def test_a_bin_depends_neither_on_how_many_users_there_are_nor_on_who_is_there() -> None:
    selector = Selector(BallsInBins(4), 4, 1, words=words_of(2))
    fresh = Selector(BallsInBins(4), 4, 1, words=words_of(2))
    rng = np.random.default_rng(0)
    few = selector.select(0, np.arange(10), lambda users: None, rng, rng.random)
    many = selector.select(0, np.arange(1000), lambda users: None, rng, rng.random)
    odd = fresh.select(0, np.arange(1, 1000, 2), lambda users: None, rng, rng.random)
    assert np.array_equal(few, many[many < 10])
    assert np.array_equal(odd, many[many % 2 == 1])


def test_a_word_beyond_the_last_whole_multiple_is_not_folded_back() -> None:
    """With 3 bins the word 2^64 - 1 would make bin 0 more probable than a third."""
    largest = np.uint64((1 << 64) - 1)

    def words(count: int, attempt: int, draw: str) -> np.ndarray:
        first = np.array([largest, 4, largest, 5], np.uint64)
        return (first if attempt == 0 else np.array([7, 0, 8, 0], np.uint64))[:count]

    selector = Selector(BallsInBins(3), 3, 1, words=words)
    rng = np.random.default_rng(0)
    found = [selector.select(t, np.arange(4), lambda users: None, rng, rng.random).tolist() for t in range(3)]
    assert found == [[], [0, 1], [2, 3]]


def test_an_attempt_that_was_void_is_drawn_as_before(tmp_path: Path) -> None:
    with Session.begin(home(tmp_path, adjacency="add_remove"), plan(**BINNED), True) as session:
        grid = LyingGrid(3)
        session.cohorts.roster.settle(grid, 5.0)
        session.cohorts.roster.register()
        users = session.cohorts.roster.available()
        first = session.cohorts.select(1, users)
        assert np.array_equal(first, session.cohorts.select(1, users, voids=3))
        again = Cohorts(session.plan, session.cohorts.roster, session.account, session.noise, session.rounds.affords)
        assert np.array_equal(first, again.select(1, users))
        other = Cohorts(
            session.plan, session.cohorts.roster, session.account, SecureNoise(bytes(32)), session.rounds.affords
        )
        together = [other.select(t, users).tolist() for t in range(3)]
        assert together != [session.cohorts.select(t, users).tolist() for t in range(3)]


def test_bins_follow_from_cryptographic_bits_of_the_runs_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Never from a numpy generator, whose state some cohorts would give away."""
    with Session.begin(home(tmp_path, adjacency="add_remove"), plan(**BINNED), True) as session:
        session.cohorts.roster.settle(LyingGrid(3), 5.0)
        session.cohorts.roster.register()
        users = session.cohorts.roster.available()
        key = session.files.key() if session.files else b""
        words = np.frombuffer(SecureNoise(key).bytes(8 * USERS, row=0, stream="bins"), "<u8")
        for t in range(6):
            assert np.array_equal(session.cohorts.select(t, users), np.flatnonzero(words % np.uint64(3) == t % 3))


# -- plans ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"privacy__adjacency": "zero_out"}, coded("presence-must-be-secret", "privacy.adjacency")),
        ({"privacy__adjacency": "replace_one"}, coded("presence-must-be-secret", "privacy.adjacency")),
        ({"run__min_reports": 3}, coded("no-redraw", "run.min_reports")),
        ({"run__min_available": 3}, coded("min-available-shows-presence", "run.min_available")),
        ({"run__over_selection": 1.5}, coded("no-over-selection", "run.over_selection")),
        ({"participation": {"scheme": "balls-in-bins"}}, coded("values-conflict", "participation")),
        (
            {"participation": {"scheme": "balls-in-bins", "bins": 7}},
            coded("bins-exceed-rounds", "participation.bins", "bins = 7"),
        ),
        (
            {"participation": {"scheme": "balls-in-bins", "bins": 3, "rate": 0.5}},
            coded("values-conflict", "participation"),
        ),
        (
            {"participation": {"scheme": "poisson", "rate": 0.5, "callable": True}},
            coded("values-conflict", "participation"),
        ),
        (
            {"privacy__rounding": "discrete", "mechanism": {"kind": "independent"}},
            coded("discrete-not-amplified", "privacy.rounding"),
        ),
    ],
)
def test_plans_that_break_a_condition_are_refused(change: dict[str, Any], what: Coded) -> None:
    table = {**BINNED, "privacy": dict(BINNED["privacy"])}
    for key, value in change.items():
        section, _, name = key.partition("__")
        if section == "privacy":
            table["privacy"][name] = value
        else:
            table[key] = value
    with pytest.raises(BadInput, check=what):
        plan(**table)


def test_older_plans_keep_their_digests() -> None:
    """The keys of this scheme are written where they say something."""
    table = json.loads(plan().to_json())
    assert {"bins", "callable"}.isdisjoint(table["participation"])
    stated = plan(**{**BINNED, "participation": {"scheme": "balls-in-bins", "bins": 3, "callable": True}})
    table = json.loads(stated.to_json())
    assert (table["participation"]["bins"], table["participation"]["callable"]) == (3, True)
    assert Plan.stored(json.loads(stated.run_json(0.0))) == stated


def test_the_cohort_that_bins_bring_is_judged() -> None:
    assert check_population_size(plan(**BINNED), 24) == []
    with pytest.raises(BadInput, check=coded("out-of-range", "participation.bins", "bins = 3")):
        check_population_size(plan(**BINNED), 90)


def test_a_preview_is_the_same_every_time_and_shows_the_charge_with_and_without() -> None:
    first, second = (cost_of(plan(**BINNED)) for _ in range(2))
    assert first.loss == second.loss
    shown = first.to_json()
    assert shown["epsilon"] < shown["epsilon_without_amplification"]
    assert shown["certificate"]["samples"] == [1 << 15, 1 << 15]
    rows = dict(first.describe())
    assert "called at will" in rows["assumption"]
    assert "is part of delta" in rows["bound used"]


def test_a_plan_with_an_epsilon_keeps_it() -> None:
    cost = cost_of(plan(**{**BINNED, "privacy": {**BINNED["privacy"], "noise_multiplier": None, "epsilon": 2.0}}))
    assert 1.8 < cost.epsilon <= 2.0
    assert cost.loss.without_amplification().epsilon(1e-5) > 2.0


# -- a run ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def done(tmp_path: Path) -> tuple[StateDirectory, str]:
    state = home(tmp_path, adjacency="add_remove")
    with Session.begin(state, plan(**BINNED), True) as session:
        FieldfareStrategy(session).start(LyingGrid(3))
    return state, session.account.id


def journal(state: StateDirectory) -> list[dict[str, Any]]:
    with Ledger.open(state.ledger) as ledger, ledger.database.read() as connection:
        rows = connection.execute(text("select action, run, body from audit order by id")).mappings()
        return [{**row, "body": json.loads(row["body"])} for row in rows]


def test_the_seed_is_in_the_journal_before_the_run_and_verify_draws_its_samples_again(
    done: tuple[StateDirectory, str],
) -> None:
    state, run_id = done
    rows = [row for row in journal(state) if row["run"] == run_id]
    assert [row["action"] for row in rows[:2]] == ["run.certify", "run.start"]
    (curve,) = json.loads(rows[1]["body"]["planned"])["certified"]
    assert (curve["seed"], curve["attempt"]) == (rows[0]["body"]["seed"], 1)
    with Ledger.open(state.ledger) as ledger:
        report = verify(ledger, state.root, recompute=recharge)
        assert report.ok, report.fault
        assert report.checked["charges"] == 6
        view = ledger.run(run_id)
        # When a run stops may depend on what it released: each round costs the whole.
        assert view.spent == view.planned
        rows_of = ledger.run(run_id)
        assert rows_of.spent_epsilon < rows_of.spent.without_amplification().epsilon(1e-5)


def test_a_second_certificate_of_a_law_has_half_the_failure_probability(tmp_path: Path) -> None:
    """Also that of another plan: with another learning rate, or other noise. Not one of another strategy."""
    state = home(tmp_path, adjacency="add_remove")
    failures = []
    others: list[dict[str, object]] = [
        {},
        {},
        {"client__learning_rate": 0.0123},
        {"privacy": {**BINNED["privacy"], "noise_multiplier": 4.04}},
        {"mechanism": {"kind": "nu", "nu": 0.2}},
    ]
    for other in others:
        with Session.begin(state, plan(**{**BINNED, **other}), True) as session:
            assert session.cost is not None
            failures.append(session.cost.loss.certified[0].failure)
            session.finish("stopped", "enough")
    assert failures == [5e-10, 2.5e-10, 1.25e-10, 6.25e-11, 5e-10]
    rows = [row["body"] for row in journal(state) if row["action"] == "run.certify"]
    assert len({row["seed"] for row in rows}) == 5
    assert [row["attempt"] for row in rows] == [1, 2, 3, 4, 1]
    assert len({row["plan_digest"] for row in rows}) == 4


def test_a_seed_that_another_plan_was_given_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan of the same law, chosen when the seed was known."""
    state = home(tmp_path, adjacency="add_remove")
    one, other = (plan(**{**BINNED, "client__learning_rate": rate}) for rate in (0.1, 0.2))
    with Ledger.open(state.ledger) as ledger:
        drawn = ledger.draw_seed("first", one.privacy.population, one.digest(), one.law(), actor="test")
    monkeypatch.setattr(Ledger, "draw_seed", lambda *args, **more: drawn)
    with pytest.raises(LedgerError, check=coded("ledger-error", "the event")), Session.begin(state, other, True):
        pass
    with Session.begin(state, one, True) as session:
        session.finish("stopped", "enough")


def test_a_bound_that_the_samples_do_not_give_is_found(
    done: tuple[StateDirectory, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator whose accountant is ten times too low writes what this one does not find again."""
    state, _ = done
    honest = certification.upper_bound
    monkeypatch.setattr(certification, "upper_bound", lambda *args: honest(*args) * 10)
    with Ledger.open(state.ledger) as ledger:
        report = verify(ledger, state.root, recompute=recharge)
    assert report.fault is not None
    assert report.fault.table == "runs"


def test_a_seed_that_the_journal_does_not_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate from samples that were chosen first."""
    state = home(tmp_path, adjacency="add_remove")
    monkeypatch.setattr(Ledger, "draw_seed", lambda *args, **more: (bytes(16), 1))
    with (
        pytest.raises(LedgerError, check=coded("ledger-error", "the event")),
        Session.begin(state, plan(**BINNED), True),
    ):
        pass
    with monkeypatch.context() as forger:  # who asks no rule
        forger.setattr(ledger_runs, "_require_seeds", lambda *_: None)
        with Session.begin(state, plan(**BINNED), True) as session:
            session.finish("stopped", "enough")
    with Ledger.open(state.ledger) as ledger:
        report = verify(ledger, state.root, recompute=recharge)
    assert report.fault is not None
    assert "seed" in report.fault.why


def test_a_resumed_run_keeps_its_bins_and_its_certificate(tmp_path: Path) -> None:
    before, after = require_same_draws_after_a_crash(home(tmp_path, adjacency="add_remove"), plan(**BINNED))
    assert after.loss == before.loss


def test_users_who_do_not_answer_change_nothing_but_the_sum(tmp_path: Path) -> None:
    """The round is committed with the same denominator, whoever is silent."""
    state = home(tmp_path, adjacency="add_remove")

    class Silent(LyingGrid):
        def answer(self, message: Any) -> Any:
            if message.metadata.message_type == "train":
                raise RuntimeError("this node is gone")
            return super().answer(message)

    with Session.begin(state, plan(**BINNED), True) as session:
        assert FieldfareStrategy(session).run_round(Silent(3))
        assert session.next_round == 1


def test_real_people_must_be_callable(tmp_path: Path) -> None:
    state = home(tmp_path, simulated=False, adjacency="add_remove")
    ways = lambda way, **changes: plan(**{**BINNED, "participation": way, **changes})  # noqa: E731
    require_callable(state, BINNED["participation"], ways)


def test_real_nodes_must_be_callable(tmp_path: Path) -> None:
    require_callable_nodes(home(tmp_path, adjacency="add_remove"), plan(**BINNED))


def test_the_card_names_sampler_assumption_bound_and_failure(done: tuple[StateDirectory, str]) -> None:
    state, run_id = done
    with Ledger.open(state.ledger) as ledger:
        run = ledger.run(run_id)
        card = guarantee(run, ledger.population("people"), plan_facts(run, state.root))
    facts = {fact.name: fact.value for fact in card.facts}
    assert "balls-in-bins" in facts["Participation"]
    assert "one of 3 rounds of every block" in facts["Sampling assumption"]
    assert "counts as present" in facts["Sampling assumption"]
    assert "65,536 samples" in facts["Bound used"]
    assert "5e-10" in facts["Bound used"]
    assert facts["Noise multiplier"] == "4"
    assert any("network's traffic" in line for line in card.not_covered)


def test_a_changed_charge_in_the_table_is_found(done: tuple[StateDirectory, str]) -> None:
    state, run_id = done
    with Ledger.open(state.ledger) as ledger:
        run = ledger.run(run_id)
        smaller = run.planned.to_json().replace('"failure":5e-10', '"failure":4e-10')
        with ledger.database.engine.begin() as connection:
            connection.execute(update(models.runs).values(planned=smaller))
        assert verify(ledger, state.root, recompute=recharge).fault is not None


def test_a_what_if_certifies_with_fewer_samples_and_keeps_the_price(
    done: tuple[StateDirectory, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, run_id = done
    monkeypatch.setattr(what_ifs, "_PRICES", {})
    monkeypatch.setattr(what_ifs, "SAMPLES", (1 << 14, 1 << 14))
    with Ledger.open(state.ledger) as ledger:
        run = ledger.run(run_id)
        asked = what_if(run.plan, {"epsilon": 1.0}, ledger)
        assert asked.bound == "certified with fewer samples"
        assert asked.cost.certificate is not None
        assert asked.cost.certificate.curve.samples == (1 << 14, 1 << 14)
        assert asked.cost.epsilon <= 1.0
        monkeypatch.setattr(certification, "certify", lambda *args, **more: pytest.fail("certified again"))
        assert what_if(run.plan, {"epsilon": 1.0}, ledger).cost is asked.cost


def test_a_what_if_over_too_many_rounds_says_what_it_costs_without_amplification(
    done: tuple[StateDirectory, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, run_id = done
    monkeypatch.setattr(certification, "certify", lambda *args, **more: pytest.fail("certified"))
    with Ledger.open(state.ledger) as ledger:
        run = ledger.run(run_id)
        asked = what_if(run.plan, {"epsilon": 1.0, "rounds": 300}, ledger)
    assert asked.bound == "without amplification"
    cost = asked.cost
    assert cost.loss.mu == pytest.approx(cost.sensitivity / cost.noise_multiplier)
    assert cost.epsilon == pytest.approx(1.0, rel=1e-6)
    assert not asked.cost.loss.amplified
