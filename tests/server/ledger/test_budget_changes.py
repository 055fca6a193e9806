"""Changing a budget: with reasons, within ceilings, by two persons; reservations that nobody holds come to an end."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
from sqlalchemy import text

from fieldfare.errors import BadInput, BudgetRefused, LedgerError
from fieldfare.participation import Adjacency
from fieldfare_server.evidence.verify import verify
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.rules import populations
from fieldfare_server.ledger.rules.populations import Rules
from fieldfare_server.ledger.sql import models, rows
from fieldfare_server.ledger.sql.proof import Disproved
from support.ledgers import commit, digest, start
from support.refusals import coded


def last_row(ledger: Ledger) -> tuple[str, str, dict[str, object]]:
    """(action, actor, body) of the newest journal row."""
    with ledger.read() as connection:
        row = connection.execute(models.journal.select().order_by(models.journal.c.id.desc()).limit(1)).one()
    return row.action, row.actor, json.loads(row.body)


@pytest.fixture
def ledger(ledger_url: str):  # type: ignore[no-untyped-def]
    with Ledger.open(ledger_url, create=True) as opened:
        opened.create_population("people", 4.0, 1e-6, actor="officer")
        yield opened
        assert verify(opened).ok
        assert opened.proof.advance().whole


def test_each_change_names_who_why_old_and_new(ledger: Ledger) -> None:
    ledger.raise_population("people", epsilon=5.0, reason="agreed", actor="ann")
    old = {"epsilon": 4.0, "delta": 1e-6}
    assert last_row(ledger) == (
        "population.raise",
        "ann",
        {"epsilon": 5.0, "delta": 1e-6, "old": old, "reason": "agreed"},
    )
    ledger.tighten_population("people", epsilon=3.0, reason="less is enough", actor="bob")
    old = {"epsilon": 5.0, "delta": 1e-6}
    body = {"epsilon": 3.0, "delta": 1e-6, "old": old, "reason": "less is enough", "largest": 0}
    assert last_row(ledger) == ("population.tighten", "bob", body)
    ledger.close_population("people", reason="the study is over", actor="ann")
    body = {"state": "closed", "old": {"state": "open"}, "reason": "the study is over"}
    assert last_row(ledger) == ("population.close", "ann", body)
    with pytest.raises(BadInput, check=coded("not-now", "a run on population")):
        start(ledger)
    ledger.reopen_population("people", reason="one more", actor="ann")
    assert last_row(ledger)[0] == "population.reopen"
    start(ledger, 0.1)


def test_nothing_changes_without_a_reason(ledger: Ledger) -> None:
    before = ledger.head()
    for change in (
        lambda: ledger.raise_population("people", epsilon=5.0, reason=" ", actor="x"),
        lambda: ledger.tighten_population("people", epsilon=3.0, reason="", actor="x"),
        lambda: ledger.close_population("people", reason="\0", actor="x"),
        lambda: ledger.reopen_population("people", reason="", actor="x"),
    ):
        with pytest.raises(BadInput, check=coded("not-given")):
            change()
    assert ledger.head() == before


@pytest.mark.parametrize("epsilon", [math.inf, math.nan, 0.0, -1.0, 1e300])
def test_an_impossible_or_lower_limit_is_refused(ledger: Ledger, epsilon: float) -> None:
    with pytest.raises(BadInput):
        ledger.tighten_population("people", epsilon=epsilon, reason="x", actor="x")
    if epsilon != 1e300:
        with pytest.raises(BadInput):
            ledger.raise_population("people", epsilon=epsilon, reason="x", actor="x")


@pytest.mark.parametrize("adjacency", ["zero_out", "add_remove"])
def test_a_limit_that_no_float_can_square_is_refused(
    ledger: Ledger, adjacency: Adjacency, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken; from then on every list of populations, the page and /metrics raised, or never came to an end."""
    for epsilon in (1.1e9, 1e300, 1.7e308):
        with pytest.raises(BadInput, check=coded("out-of-range", "epsilon")):
            ledger.raise_population("people", epsilon=epsilon, reason="x", actor="x")
        with pytest.raises(BadInput, check=coded("out-of-range", "epsilon")):
            ledger.create_population("huge", epsilon, 1e-6, adjacency=adjacency, actor="x")
    monkeypatch.setattr(populations, "LARGEST_EPSILON", math.inf)  # a ledger of an older version
    made = ledger.create_population("huge", 1.7e308, 1e-6, adjacency=adjacency, simulated=True, actor="x")
    assert (made.epsilon, made.remaining_epsilon > 1e5) == (1.7e308, True)
    assert len(ledger.populations()) == 2


def test_tightening_stops_at_what_is_committed(ledger: Ledger) -> None:
    run = start(ledger, 0.5)
    with pytest.raises(BudgetRefused) as refused:
        ledger.tighten_population("people", epsilon=0.5, reason="x", actor="x")
    least = float(re.search(r"epsilon ([\d.]+)", refused.value.nearest)[1])  # type: ignore[index]
    view = ledger.tighten_population("people", epsilon=least, reason="x", actor="x")
    assert not view.overdrawn
    assert (view.epsilon, view.bound_epsilon) == (least, 4.0)  # runs were chosen under 4, which stays the guarantee
    with pytest.raises(BudgetRefused):
        start(ledger, 0.1)
    commit(run, [], 0.2)
    run.finish("stopped")
    start(ledger, 0.1)


def test_a_larger_limit_is_the_new_guarantee_and_a_smaller_one_is_not(ledger: Ledger) -> None:
    ledger.tighten_population("people", epsilon=1.0, reason="x", actor="x")
    ledger.raise_population("people", epsilon=2.0, reason="x", actor="x")
    assert ledger.population("people").bound_epsilon == 4.0
    ledger.raise_population("people", epsilon=6.0, reason="x", actor="x")
    assert ledger.population("people").bound_epsilon == 6.0


def test_delta_is_never_tightened_to_the_leak(ledger: Ledger) -> None:
    ledger.create_population("sampled", 4.0, 1e-6, adjacency="add_remove", actor="x")
    with pytest.raises(BadInput, check=coded("out-of-range")):
        ledger.tighten_population("sampled", delta=1e-7, reason="x", actor="x")
    ledger.tighten_population("sampled", delta=2e-7, reason="x", actor="x")


def test_no_raise_goes_above_the_ceiling(ledger: Ledger) -> None:
    rules = Rules(ceiling_epsilon=2.0, ceiling_delta=1e-5)
    ledger.create_population("capped", 1.0, 1e-6, rules=rules, actor="officer")
    for change in ({"epsilon": 2.1}, {"delta": 2e-5}):
        with pytest.raises(BadInput, check=coded("out-of-range")):
            ledger.raise_population("capped", **change, reason="x", actor="x")  # type: ignore[arg-type]
    assert ledger.raise_population("capped", epsilon=2.0, delta=1e-5, reason="x", actor="x").epsilon == 2.0
    with pytest.raises(BadInput, check=coded("out-of-range", "epsilon")):
        ledger.create_population("wrong", 3.0, 1e-6, rules=rules, actor="officer")


@pytest.mark.parametrize(
    "rules",
    [
        Rules(ceiling_epsilon=math.inf),
        Rules(ceiling_epsilon=math.nan),
        Rules(ceiling_delta=1.0),
        Rules(reservation_seconds=0.0),
        Rules(reservation_seconds=math.inf),
    ],
)
def test_impossible_rules_are_refused(ledger: Ledger, rules: Rules) -> None:
    with pytest.raises(BadInput) as refused:
        ledger.create_population("wrong", 1.0, 1e-6, rules=rules, actor="officer")
    # The option counts hours: 86400 of them were ten years.
    assert ("--reservation-hours 24" in refused.value.nearest) is (rules.reservation_seconds is not None)


# -- two persons ----------------------------------------------------------------------------------------------------


def test_a_raise_waits_for_another_person(ledger: Ledger) -> None:
    ledger.create_population("two", 1.0, 1e-6, rules=Rules(two_persons=True), actor="officer")
    view = ledger.raise_population("two", epsilon=2.0, reason="more", actor="token ann", person="aa")
    (proposal,) = view.proposals
    assert (view.epsilon, proposal.epsilon) == (1.0, 2.0)
    with pytest.raises(BudgetRefused):
        start(ledger, 0.4, population="two")
    with pytest.raises(BadInput, check=coded("not-allowed", "approving proposal")):
        ledger.approve_raise(proposal.id, actor="token ann", person="aa")
    view = ledger.approve_raise(proposal.id, actor="token bob", person="bb")
    assert (view.epsilon, view.proposals) == (2.0, ())
    action, actor, body = last_row(ledger)
    assert (action, actor, body["proposal"], body["reason"]) == ("population.raise", "token bob", proposal.id, "more")
    with pytest.raises(BadInput, check=coded("not-now", "proposal")):
        ledger.approve_raise(proposal.id, actor="token cid", person="cc")
    start(ledger, 0.4, population="two")


def test_a_withdrawn_or_outdated_raise_is_not_approved(ledger: Ledger) -> None:
    ledger.create_population("two", 1.0, 1e-6, rules=Rules(two_persons=True, ceiling_epsilon=3.0), actor="officer")
    ids = []
    for epsilon in (2.0, 2.5, 3.0):
        ledger.raise_population("two", epsilon=epsilon, reason="more", actor="ann")
        ids.append(next(p.id for p in ledger.population("two").proposals if p.epsilon == epsilon))
    ledger.withdraw_raise(ids[0], reason="a mistake", actor="bob")
    with pytest.raises(BadInput, check=coded("not-now", "proposal")):
        ledger.approve_raise(ids[0], actor="bob", person="bob")
    ledger.approve_raise(ids[2], actor="bob", person="bob")
    with pytest.raises(BadInput, check=coded("out-of-range", "budget (2.5, 1e-6) of population 'two'")):
        ledger.approve_raise(ids[1], actor="bob", person="bob")
    with pytest.raises(BadInput, check=coded("not-found", "proposal")):
        ledger.approve_raise("nope", actor="bob", person="bob")
    assert ledger.population("two").epsilon == 3.0


def test_a_proposal_that_is_edited_is_refused(ledger: Ledger) -> None:
    ledger.create_population("two", 1.0, 1e-6, rules=Rules(two_persons=True), actor="officer")
    proposal = ledger.raise_population("two", epsilon=2.0, reason="more", actor="ann").proposals[0]
    for edit, back in (
        ("UPDATE proposals SET epsilon = 50", "UPDATE proposals SET epsilon = 2"),
        ("UPDATE proposals SET person = 'cid'", "UPDATE proposals SET person = 'ann'"),
    ):
        for statement, refused in ((edit, True), (back, False)):
            with ledger.database.engine.begin() as connection:
                connection.execute(text(statement))
            if refused:
                with pytest.raises(Disproved, check=coded("disproved")):
                    ledger.approve_raise(proposal.id, actor="bob", person="bob")
    ledger.approve_raise(proposal.id, actor="bob", person="bob")


# -- reservations ---------------------------------------------------------------------------------------------------


class Clock:
    now = 1e9

    def __call__(self) -> float:
        return self.now


def test_a_reservation_that_nobody_holds_expires(ledger_url: str) -> None:
    clock = Clock()
    with Ledger.open(ledger_url, create=True, clock=clock) as ledger:
        ledger.create_population("people", 1.0, 1e-6, rules=Rules(reservation_seconds=3600.0), actor="officer")
        ledger.create_population("others", 1.0, 1e-6, actor="officer")
        mu = ledger.population("people").remaining_mu * (1 - 1e-9)
        run = start(ledger, mu)
        start(ledger, mu, population="others")
        commit(run, [], mu / 2)
        run.open_round([])
        with pytest.raises(BudgetRefused):
            start(ledger, mu / 2)
        with ledger.read() as connection:  # what page and doctor show
            assert rows.reservations(connection) == [(run.id, 3600.0, clock.now + 3600.0)]
        clock.now += 3599
        assert ledger.expire_reservations() == ()
        with pytest.raises(BudgetRefused):
            start(ledger, mu / 2)
        clock.now += 2
        start(ledger, mu / 2)  # what the silent run did not spend is free again
        ended = ledger.run(run.id)
        assert (ended.state, ended.next_round) == ("stopped", 1)
        assert "expired" in ended.message
        assert ledger.population("people").spent.mu == pytest.approx(mu / 2)
        with pytest.raises(LedgerError):
            run.open_round([])
        assert ledger.population("others").runs_active == 1  # it states no time
        assert verify(ledger).ok


def test_a_held_run_keeps_its_reservation_however_short_the_time(ledger_url: str) -> None:
    clock = Clock()
    with Ledger.open(ledger_url, create=True, clock=clock, lease_seconds=30.0) as ledger:
        ledger.create_population("people", 1.0, 1e-6, rules=Rules(reservation_seconds=1.0), actor="officer")
        run = start(ledger, 0.1)
        clock.now += 20
        assert ledger.expire_reservations("people") == ()
        commit(run, [], 0.01)  # which renews the lease
        clock.now += 20
        assert ledger.expire_reservations("people") == ()
        clock.now += 11
        assert ledger.expire_reservations("people") == (run.id,)


def test_a_run_taken_up_and_left_again_while_reservations_expire_goes_on(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, read = Clock(), rows.reservations

    def slow(*arguments: Any) -> list[tuple[str, float, float]]:
        due = read(*arguments)
        for run_id, *_ in due:
            with ledger.resume_run(run_id, key_commitment=digest("key"), holder="quick"):
                pass
        return due

    with Ledger.open(ledger_url, create=True, clock=clock, lease_seconds=30.0) as ledger:
        ledger.create_population("people", 1.0, 1e-6, rules=Rules(reservation_seconds=3600.0), actor="officer")
        with start(ledger, 0.1, key_commitment=digest("key")) as run:
            pass
        clock.now += 3601
        with monkeypatch.context() as patch:
            patch.setattr(rows, "reservations", slow)
            assert ledger.expire_reservations() == ()
        assert ledger.run(run.id).state != "stopped"
        clock.now += 3601
        assert ledger.expire_reservations() == (run.id,)


# -- tokens ---------------------------------------------------------------------------------------------------------


def test_tokens_are_for_populations_and_revoked_by_name(ledger: Ledger) -> None:
    secret, view = ledger.create_token("page", ("read",), populations=("people",), actor="officer")
    checked = ledger.check_token(secret)
    assert checked is not None
    assert (checked.populations, checked.allows("people"), checked.allows("x"), checked.allows(None)) == (
        ("people",),
        True,
        False,
        False,
    )
    with pytest.raises(BadInput, check=coded("not-found", "population")):
        ledger.create_token("page", ("read",), populations=("nowhere",), actor="officer")
    ledger.create_token("page", ("read",), actor="officer")
    with pytest.raises(BadInput, check=coded("conflict", "token")):
        ledger.revoke_token("page", actor="officer")
    ledger.revoke_token(view.id, actor="officer")
    assert ledger.check_token(secret) is None
    assert ledger.revoke_token("page", actor="officer").revoked_at is not None
    with pytest.raises(BadInput, check=coded("not-found", "token")):
        ledger.revoke_token("nobody", actor="officer")
