"""Random allocation and capped Poisson rounds, from the draws to the card: enforced, charged, proven and shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text, update

from fieldfare.accounting import charge_for
from fieldfare.accounting.allocation import Allocation
from fieldfare.accounting.truncated import TruncatedGaussian
from fieldfare.costing import cost_of
from fieldfare.errors import BadInput
from fieldfare.mechanisms.independent import Independent
from fieldfare.noise import SecureNoise
from fieldfare.participation import RandomAllocation, TruncatedPoisson
from fieldfare.plan import SAMPLED_COHORTS, Plan
from fieldfare.population_size import check_population_size
from fieldfare_server.evidence.guarantee import guarantee
from fieldfare_server.evidence.plan_facts import plan_facts
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.sql import models
from fieldfare_server.planning.feasibility import reach_under_availability
from fieldfare_server.planning.what_if import what_if
from fieldfare_server.run.presence.selection import Selector
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import USERS, LyingGrid, home, plan
from support.refusals import Coded, coded
from support.secret_runs import (
    cohorts_of,
    never,
    require_callable,
    require_callable_nodes,
    require_same_draws_after_a_crash,
)

ALLOCATED: dict[str, Any] = {"scheme": "random-allocation", "bins": 3}
CAPPED: dict[str, Any] = {"scheme": "truncated-poisson", "rate": 0.25, "cap": 20, "enrolled": USERS}
SPACED: dict[str, Any] = {"scheme": "b-min-sep", "separation": 3, "rate": 0.5}
BOTH = pytest.mark.parametrize("participation", [ALLOCATED, CAPPED], ids=["allocated", "capped"])
THREE = pytest.mark.parametrize("participation", [ALLOCATED, CAPPED, SPACED], ids=["allocated", "capped", "spaced"])


def secret(participation: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "privacy": {"population": "people", "noise_multiplier": 4.0, "delta": 1e-5, "adjacency": "add_remove"},
        "participation": participation,
        "mechanism": {"kind": "independent"},
        "run__noise_seed": None,
        "run__min_reports": None,
        **changes,
    }


# -- the draws --------------------------------------------------------------------------------------------------------


def test_each_user_takes_part_once_in_every_block_and_not_always_in_the_same_round() -> None:
    chosen = cohorts_of(RandomAllocation(5), 12, np.arange(4000))
    for block in (chosen[:5], chosen[5:10]):
        assert sorted(np.concatenate(block).tolist()) == list(range(4000))
    # In the short last block two fifths take part: 1600, with a standard deviation of 31.
    last = np.concatenate(chosen[10:])
    assert np.unique(last).size == last.size
    assert abs(last.size - 1600) < 6 * 31
    # Independent blocks: a fifth of those of round 0 are in round 5 again. A fixed bin would bring all of them.
    again = np.intersect1d(chosen[0], chosen[5]).size
    assert abs(again - chosen[0].size / 5) < 6 * np.sqrt(chosen[0].size * 0.16)


def test_rounds_of_a_block_are_uniform() -> None:
    """chi^2 with 6 degrees of freedom is above 43 with probability 1e-7; the key is fixed."""
    sizes = np.array([len(c) for c in cohorts_of(RandomAllocation(7), 14, np.arange(21_000))])
    for block in (sizes[:7], sizes[7:]):
        assert ((block - 3000) ** 2 / 3000).sum() < 43


def test_a_draw_depends_neither_on_how_many_users_there_are_nor_on_who_is_there() -> None:
    many = cohorts_of(RandomAllocation(4), 8, np.arange(1000))
    for users in (np.arange(10), np.arange(1, 1000, 2)):
        found = cohorts_of(RandomAllocation(4), 8, users)
        assert all(np.array_equal(a, b[np.isin(b, users)]) for a, b in zip(found, many, strict=True))


def test_of_more_than_the_cap_a_lot_keeps_that_many() -> None:
    users = np.arange(60)
    uncapped = cohorts_of(TruncatedPoisson(0.5, 60, 60), 200, users)
    capped = cohorts_of(TruncatedPoisson(0.5, 20, 60), 200, users)
    assert max(len(cohort) for cohort in uncapped) > 30
    for whole, kept in zip(uncapped, capped, strict=True):
        assert kept.size == min(20, whole.size)
        assert np.isin(kept, whole).all()
        assert (np.diff(kept) > 0).all()
    # By lot, not by index: 200 rounds of 20 of 60 give each user 67 of them, with a standard deviation below 7.
    counts = np.bincount(np.concatenate(capped), minlength=60)
    assert abs(counts - 200 / 3).max() < 6 * 7
    assert abs(counts[:30].sum() - counts[30:].sum()) < 400


def test_more_users_than_the_plan_states_are_refused() -> None:
    with pytest.raises(BadInput, check=coded("out-of-range", "participation.enrolled", "enrolled = 24")):
        cohorts_of(TruncatedPoisson(0.25, 20, 24), 1, np.arange(25))
    selector = Selector(TruncatedPoisson(0.25, 20, 24), 6, 1)
    rng = np.random.default_rng(0)
    with pytest.raises(BadInput, check=coded("out-of-range", "participation.enrolled")):
        selector.select(0, np.arange(3), never, rng, rng.random, known=np.arange(25))


def test_draws_follow_from_cryptographic_bits_of_the_runs_key(tmp_path: Path) -> None:
    """Never from a numpy generator, whose state some cohorts would give away; a void round draws nothing else."""
    with Session.begin(home(tmp_path, adjacency="add_remove"), plan(**secret(ALLOCATED)), True) as session:
        session.cohorts.roster.settle(LyingGrid(3), 5.0)
        session.cohorts.roster.register()
        users = session.cohorts.roster.available()
        key = session.files.key() if session.files else b""
        for t in range(6):
            drawn = np.frombuffer(SecureNoise(key).bytes(8 * USERS, row=0, stream=f"bins.{t // 3}"), "<u8")
            expected = np.flatnonzero(drawn % np.uint64(3) == t % 3)
            assert np.array_equal(session.cohorts.select(t, users), expected)
            assert np.array_equal(session.cohorts.select(t, users, voids=2), expected)


# -- plans ------------------------------------------------------------------------------------------------------------


@THREE
@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"privacy__adjacency": "zero_out"}, coded("presence-must-be-secret", "privacy.adjacency")),
        ({"privacy__adjacency": "replace_one"}, coded("presence-must-be-secret", "privacy.adjacency")),
        ({"run__min_reports": 3}, coded("no-redraw", "run.min_reports")),
        ({"run__min_available": 3}, coded("min-available-shows-presence", "run.min_available")),
        ({"run__over_selection": 1.5}, coded("no-over-selection", "run.over_selection")),
        ({"privacy__rounding": "discrete"}, coded("discrete-not-amplified", "privacy.rounding")),
        ({"participation__period": 2}, coded("values-conflict", "participation")),
    ],
)
def test_plans_that_break_a_condition_are_refused(
    participation: dict[str, Any], change: dict[str, Any], what: Coded
) -> None:
    table = secret(dict(participation))
    table["privacy"] = dict(table["privacy"])
    with pytest.raises(BadInput, check=what):
        plan(**{**table, **change})


@pytest.mark.parametrize(
    ("participation", "what"),
    [
        ({"scheme": "random-allocation"}, coded("values-conflict", "participation")),
        ({"scheme": "random-allocation", "bins": 7}, coded("bins-exceed-rounds", "participation.bins", "bins = 7")),
        ({"scheme": "truncated-poisson", "rate": 0.25}, coded("values-conflict", "participation")),
        (
            {"scheme": "truncated-poisson", "rate": 0.25, "cap": 0, "enrolled": 9},
            coded("value-wrong", "participation.cap"),
        ),
        ({"scheme": "poisson", "rate": 0.25, "cap": 9}, coded("values-conflict", "participation")),
        ({"scheme": "b-min-sep", "separation": 3}, coded("values-conflict", "participation")),
        ({"scheme": "b-min-sep", "rate": 0.5}, coded("values-conflict", "participation")),
        ({"scheme": "b-min-sep", "separation": 3, "rate": 1.5}, coded("value-wrong", "participation.rate")),
        ({"scheme": "b-min-sep", "separation": 3, "rate": 0.5, "bins": 3}, coded("values-conflict", "participation")),
    ],
)
def test_a_sampler_needs_its_own_keys(participation: dict[str, Any], what: Coded) -> None:
    with pytest.raises(BadInput, check=what):
        plan(**secret(participation))


@BOTH
def test_correlated_noise_is_refused_before_anything_is_reserved(participation: dict[str, Any], tmp_path: Path) -> None:
    state = home(tmp_path, adjacency="add_remove")
    correlated = plan(**secret(participation, mechanism={"kind": "nu", "nu": 0.1}))
    what = coded("unsupported", "participation.scheme", "'nu'", "only" if participation is CAPPED else "banded")
    with pytest.raises(BadInput, check=what):
        cost_of(correlated)
    with pytest.raises(BadInput, check=what):
        Session.begin(state, correlated, True)
    with Ledger.open(state.ledger) as ledger:
        assert ledger.population("people").committed_epsilon == 0


def test_a_cap_that_costs_delta_is_refused_and_the_nearest_is_taken() -> None:
    with pytest.raises(BadInput, check=coded("out-of-range", "participation.cap", "cap = 12")) as refusal:
        cost_of(plan(**secret({**CAPPED, "cap": 12})))
    near = int(str(refusal.value.nearest).removeprefix("cap = "))
    assert 12 < near <= 20
    assert cost_of(plan(**secret({**CAPPED, "cap": near}))).loss.amplified
    with pytest.raises(BadInput, check=coded("out-of-range", f"cap = {near - 1}")):
        cost_of(plan(**secret({**CAPPED, "cap": near - 1})))


def test_older_plans_keep_their_digests() -> None:
    assert {"bins", "cap", "enrolled", "callable"}.isdisjoint(json.loads(plan().to_json())["participation"])
    for participation in (ALLOCATED, CAPPED):
        stated = plan(**secret({**participation, "callable": True}))
        assert Plan.stored(json.loads(stated.run_json(0.0))) == stated


def test_the_number_of_users_is_judged() -> None:
    # 24 users bring 8 or 6 a round; the plan's cohort is 6.
    assert check_population_size(plan(**secret(CAPPED)), USERS) == []
    with pytest.raises(BadInput, check=coded("out-of-range", "participation.enrolled", "enrolled = 24")):
        check_population_size(plan(**secret(CAPPED, run__cohort=7)), USERS + 1)
    with pytest.raises(BadInput, check=coded("out-of-range", "participation.bins", "bins = 3")):
        check_population_size(plan(**secret(ALLOCATED)), 90)
    # A user of b-min-sep takes part every 2 + 1 / .5 = 4 rounds.
    assert check_population_size(plan(**secret(SPACED)), 24) == []
    with pytest.raises(BadInput, check=coded("out-of-range", "participation.rate", "rate = 0.5", "22.5", "90")):
        check_population_size(plan(**secret(SPACED)), 90)


def test_a_reply_is_as_long_as_the_cap_at_most() -> None:
    assert plan(**secret(CAPPED)).most_users == 20
    assert plan(**secret(ALLOCATED)).most_users == SAMPLED_COHORTS * 6


@BOTH
def test_a_plan_shows_sampler_assumption_bound_and_the_charge_without_it(participation: dict[str, Any]) -> None:
    cost = cost_of(plan(**secret(participation)))
    shown, rows = cost.to_json(), dict(cost.describe())
    assert shown["epsilon"] < shown["epsilon_without_amplification"]
    assert "called at will" in rows["assumption"]
    assert "privacy loss distributions" in rows["bound used"]
    assert ("drawn afresh" if participation is ALLOCATED else "a secret lot keeps 20") in rows["sampler"]
    assert cost.priced().keys() == {0.01, 0.1, 0.3}


@pytest.mark.parametrize("participation", [ALLOCATED, CAPPED, SPACED, {"scheme": "balls-in-bins", "bins": 3}], ids=str)
def test_a_plan_with_simulated_availability_is_forecast(participation: dict[str, Any]) -> None:
    """Any number of users fills the rounds of sampling; balls in bins had no secret words here, and were refused."""
    sparse = plan(**secret(participation, availability={"reachable": 0.5, "rounds_per_day": 2}))
    assert reach_under_availability(sparse, np.arange(USERS, dtype=np.uint64), trials=2).finished == 2


@BOTH
def test_a_plan_with_an_epsilon_keeps_it(participation: dict[str, Any]) -> None:
    table = secret(participation)
    table["privacy"] = {**table["privacy"], "noise_multiplier": None, "epsilon": 2.0}
    cost = cost_of(plan(**table))
    assert 1.999 < cost.epsilon <= 2.0
    assert cost.loss.without_amplification().epsilon(1e-5) > 2.1


# -- a run ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[ALLOCATED, CAPPED], ids=["allocated", "capped"])
def done(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[StateDirectory, str, Any]:
    state = home(tmp_path_factory.mktemp("run"), adjacency="add_remove")
    with Session.begin(state, plan(**secret(request.param)), True) as session:
        FieldfareStrategy(session).start(LyingGrid(3))
    return state, session.account.id, request.param


def test_a_run_is_charged_by_its_sampler_and_verified(done: tuple[StateDirectory, str, Any]) -> None:
    state, run_id, participation = done
    with Ledger.open(state.ledger) as ledger:
        report = verify(ledger, state.root, recompute=recharge)
        assert report.ok, report.fault
        assert report.checked["charges"] == 6
        view = ledger.run(run_id)
    (event,) = view.planned.sampled
    if participation is ALLOCATED:
        assert isinstance(event, Allocation)
        assert (event.bins, event.count) == (3, 2)
    else:
        assert isinstance(event, TruncatedGaussian)
        assert (event.rate, event.cap, event.enrolled, event.count) == (0.25, 20, USERS, 6)
    # A little less noise than was added: the resolution of floats is charged.
    assert 3.99 < event.noise_multiplier <= 4.0
    assert view.spent == view.planned
    assert view.spent_epsilon < view.spent.without_amplification().epsilon(1e-5)


def test_the_card_names_sampler_assumption_and_bound(done: tuple[StateDirectory, str, Any]) -> None:
    state, run_id, participation = done
    with Ledger.open(state.ledger) as ledger:
        run = ledger.run(run_id)
        card = guarantee(run, ledger.population("people"), plan_facts(run, state.root))
        wider = what_if(run.plan, {"cohort": 8}, ledger).cost.plan.participation
    facts = {fact.name: fact.value for fact in card.facts}
    assert participation["scheme"] in facts["Participation"]
    assert "counts as present" in facts["Sampling assumption"]
    assert "privacy loss distributions" in facts["Bound used"]
    assert facts["Noise multiplier"] == "4"
    assert any("network's traffic" in line for line in card.not_covered)
    if participation is ALLOCATED:
        assert "one of 3 rounds of every block" in facts["Sampling assumption"]
        assert wider.bins == 2
    else:
        assert "never more than 24 users" in facts["Sampling assumption"]
        assert (wider.cap, wider.rate) == (27, pytest.approx(1 / 3))


def test_another_sampler_in_the_table_is_found(tmp_path: Path) -> None:
    """The charge of more bins, or of a cap that fails more often, does not pass for this run's."""
    for name, participation, old, new in (
        ("allocated", ALLOCATED, '"bins":3', '"bins":4'),
        ("capped", CAPPED, '"cap":20', '"cap":23'),
    ):
        (root := tmp_path / name).mkdir()
        state = home(root, adjacency="add_remove")
        with Session.begin(state, plan(**secret(participation)), True) as session:
            session.finish("stopped", "enough")
        with Ledger.open(state.ledger) as ledger:
            assert verify(ledger, state.root, recompute=recharge).ok
            planned = ledger.run(session.account.id).planned.to_json()
            assert old in planned
            with ledger.database.engine.begin() as connection:
                connection.execute(update(models.runs).values(planned=planned.replace(old, new)))
            assert verify(ledger, state.root, recompute=recharge).fault is not None


def test_a_resumed_run_keeps_its_draws(tmp_path: Path) -> None:
    require_same_draws_after_a_crash(home(tmp_path, adjacency="add_remove"), plan(**secret(ALLOCATED)))


@BOTH
def test_real_people_must_be_callable(participation: dict[str, Any], tmp_path: Path) -> None:
    state = home(tmp_path, simulated=False, adjacency="add_remove")
    require_callable(state, participation, lambda way, **changes: plan(**secret(way, **changes)))


def test_real_nodes_must_be_callable(tmp_path: Path) -> None:
    require_callable_nodes(home(tmp_path, adjacency="add_remove"), plan(**secret(ALLOCATED)))


def test_the_journal_shows_no_draw(done: tuple[StateDirectory, str, Any]) -> None:
    """What a run wrote while it went on names no user and no cohort."""
    state, run_id, _ = done
    with Ledger.open(state.ledger) as ledger, ledger.database.read() as connection:
        bodies = connection.execute(text("select body from audit where run = :run"), {"run": run_id}).scalars().all()
    assert bodies
    assert not any("user-" in body for body in bodies)


def test_charges_of_the_two_laws_are_not_mixed_up() -> None:
    """A fresh round in every block and Poisson at the same rate are other charges."""
    fresh = charge_for(Independent(6), RandomAllocation(3), 4.0, 6, "add_remove")
    capped = charge_for(Independent(6), TruncatedPoisson(1 / 3, 24, 24), 4.0, 6, "add_remove")
    assert fresh.epsilon(1e-5) != pytest.approx(capped.epsilon(1e-5), rel=1e-2)
