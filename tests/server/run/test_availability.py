"""Simulated users come, go and answer late as the plan says, on any number of nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fieldfare.errors import BadInput
from fieldfare.hashing import uniforms
from fieldfare.plan import Plan
from fieldfare.plan_tables import AvailabilitySpec
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.presence.availability import Names, SimulatedAvailability, require_simulated
from fieldfare_server.run.presence.selection import Eligibility, NotEnoughUsers, Users
from fieldfare_server.run.round.strategy import FieldfareStrategy, RoundReport
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, home, plan
from support.refusals import coded

USERS = np.arange(20_000)


def by_index(users: Users) -> NDArray[np.uint64]:
    return users.astype(np.uint64)


def simulated(
    most: int | None = None, timeout: float = 60.0, seed: int = 0, names: Names = by_index, **spec: float
) -> SimulatedAvailability:
    return SimulatedAvailability(AvailabilitySpec.model_validate(spec), seed, timeout, most, names)


def test_numbers_are_uniform_and_differ_by_every_word() -> None:
    keys = USERS.astype(np.uint64)
    draws = [uniforms(keys, *words) for words in ((0, 0), (0, 1), (1, 0))]
    for draw in draws:
        assert np.abs(np.quantile(draw, np.linspace(0, 1, 11)) - np.linspace(0, 1, 11)).max() < 0.015
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert abs(np.corrcoef(draws[first], draws[second])[0, 1]) < 0.03


def test_as_many_are_there_as_the_hour_says() -> None:
    users = simulated(reachable=0.4, daily_swing=0.5, rounds_per_day=8)
    for round in range(16):
        expected = 0.4 * (1 + 0.5 * np.cos(2 * np.pi * round / 8))
        assert users.reachable(round, USERS).mean() == pytest.approx(expected, abs=0.015)


@pytest.mark.parametrize("zones", [0.0, 0.7])
@pytest.mark.parametrize("swing", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("middle", [0.05, 0.5, 1.0])
def test_who_is_there_at_every_hour_is_not_asked_for_their_day(middle: float, swing: float, zones: float) -> None:
    """As the definition has it, user by user, without a bound on the hour."""
    users = simulated(reachable=middle, daily_swing=swing, rounds_per_day=8, time_zones=zones)
    day = uniforms(USERS.astype(np.uint64), 0, 0, 0) * zones
    for round in (0, 3, 4):
        rate = middle * (1 + swing * np.cos(2 * np.pi * (round / 8 - day)))
        there = uniforms(USERS.astype(np.uint64), 0, 2, round) < rate
        np.testing.assert_array_equal(users.reachable(round, USERS), there)


def test_days_that_begin_all_over_the_world_even_out_but_not_for_one_user() -> None:
    users = simulated(reachable=0.5, daily_swing=1.0, rounds_per_day=8, time_zones=1.0)
    there = np.array([users.reachable(round, USERS) for round in range(400)])
    assert there.mean(1) == pytest.approx(np.full(400, 0.5), abs=0.02)
    by_hour = there.reshape(50, 8, -1).mean(0)  # each user's own day
    assert np.ptp(by_hour, axis=0).mean() > 0.8


def test_answers_drop_out_and_time_out() -> None:
    users = simulated(dropout=0.2, response_seconds=10, speed_spread=1.0, stragglers=0.1, straggler_slowdown=1000)
    took = users.seconds(3, USERS)
    in_time = 0.8 * 0.9 * 0.9634  # log(6) is 1.7918 standard deviations above the median
    assert np.isfinite(took).mean() == pytest.approx(in_time, abs=0.01)
    assert users.seconds(3, USERS[:0]).size == 0
    np.testing.assert_array_equal(users.answering(3, USERS), USERS[np.isfinite(took)])


def test_the_first_to_answer_count_and_who_is_slow_stays_slow() -> None:
    users = simulated(most=1000, response_seconds=1, speed_spread=0.5)
    chosen = users.answering(0, USERS)
    assert chosen.size == 1000
    np.testing.assert_array_equal(chosen, np.sort(USERS[np.argsort(users.seconds(0, USERS))[:1000]]))
    np.testing.assert_array_equal(chosen, users.answering(1, USERS))
    alike = simulated(most=1000)  # all take as long: each round draws who counts
    shared = np.intersect1d(alike.answering(0, USERS), alike.answering(1, USERS)).size
    assert 20 < shared < 90


def test_users_are_known_by_name_not_by_index() -> None:
    users = simulated(reachable=0.5, dropout=0.3)
    order = np.random.default_rng(0).permutation(USERS)
    there, answering = users.reachable(2, USERS), users.answering(2, USERS)
    renamed = simulated(reachable=0.5, dropout=0.3, names=lambda users: order[users].astype(np.uint64))
    np.testing.assert_array_equal(renamed.reachable(2, USERS), there[order])
    np.testing.assert_array_equal(np.sort(order[renamed.answering(2, USERS)]), answering)
    assert (simulated(reachable=0.5, seed=1).reachable(2, USERS) != there).any()


def test_a_round_waits_for_the_hour_at_which_enough_are_there() -> None:
    users = simulated(reachable=0.5, daily_swing=1.0, rounds_per_day=8)

    def select(reachable: Users) -> Users:
        if reachable.size < 15_000:
            raise NotEnoughUsers(4, 15_000, Eligibility(reachable.size, reachable.size, 0, 0))
        return reachable

    # Round 4 is midnight; at round 7 it is bright.
    np.testing.assert_array_equal(users.wait(4, USERS, select), USERS[users.reachable(7, USERS)])
    assert users.wait(4, USERS, select).size >= 15_000
    users = simulated(reachable=0.1)
    with pytest.raises(NotEnoughUsers):
        users.wait(4, USERS, select)


@pytest.mark.parametrize(
    "participation", [{"scheme": "min-separation", "separation": 1}, {"scheme": "poisson", "rate": 0.5}]
)
def test_a_cohort_has_only_users_that_can_be_asked(participation: dict[str, object]) -> None:
    a_plan = plan(
        availability={"reachable": 0.5, "daily_swing": 1.0, "rounds_per_day": 8},
        participation=participation,
        **({"privacy__adjacency": "add_remove", "run__min_reports": None} if "rate" in participation else {}),
        mechanism={"kind": "independent"},
    )
    session = Session.rehearse(a_plan, noise=False)
    account, cohorts = session.account, session.cohorts
    names = np.arange(2000, dtype=np.uint64)
    cohorts.roster._assign(2, names, account.register_users(names))
    model = simulated(seed=a_plan.run.seed, reachable=0.5, daily_swing=1.0, rounds_per_day=8)
    reachable = model.reachable(3, np.arange(2000))
    cohort = cohorts.select(3, np.arange(2000))
    assert 0 < cohort.size < reachable.sum() < 2000
    assert reachable[cohort].all()


AVAILABILITY = {"reachable": 0.8, "dropout": 0.2, "stragglers": 0.1, "straggler_slowdown": 100.0, "speed_spread": 0.3}


def simulate(root: Path, nodes: int, a_plan: Plan) -> tuple[list[RoundReport], bytes, list[tuple[int, int]]]:
    root.mkdir()
    state_dir, reports = home(root), []
    with Session.begin(state_dir, a_plan, identity_is_stable=True) as session:
        FieldfareStrategy(session, reports.append).start(LyingGrid(nodes))
    with Ledger.open(state_dir.ledger) as ledger:
        rounds = ledger.rounds(session.account.id).items
        report = verify(ledger, state_dir.root, recompute=recharge, held=[ledger.head()])
    assert report.ok, str(report.fault)
    sizes = [(r.cohort_size or 0, r.participants or 0) for r in rounds if r.state == "committed"]
    return reports, session.params.numpy().round(4).tobytes(), sizes


def test_a_run_with_such_users_is_the_same_on_one_node_and_on_many(tmp_path: Path) -> None:
    a_plan = plan(availability=AVAILABILITY, run__over_selection=1.5, run__min_reports=3)
    one = simulate(tmp_path / "one", 1, a_plan)
    many = simulate(tmp_path / "many", 5, a_plan)
    assert [(r.reports, r.epsilon) for r in one[0]] == [(r.reports, r.epsilon) for r in many[0]]
    assert one[1:] == many[1:]
    asked, took_part = zip(*one[2], strict=True)
    assert max(asked) <= 9
    assert max(took_part) <= 6
    assert sum(took_part) < sum(asked)


def test_real_users_are_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    a_plan = plan(availability=AVAILABILITY)
    with pytest.raises(BadInput, check=coded("conflict", "availability")):
        require_simulated(a_plan, None)
    require_simulated(plan(), None)
    require_simulated(a_plan, LyingGrid(1))
    monkeypatch.setenv("FIELDFARE_NODE_AUTH", "simulated")
    require_simulated(a_plan, None)


def test_plans_without_the_table_keep_their_digest() -> None:
    assert "availability" not in plan().to_json()
    described = plan(availability=AVAILABILITY)
    assert Plan.parse({**described.model_dump(mode="json")}).digest() == described.digest()
    with pytest.raises(BadInput, check=coded("value-wrong", "availability.dropout")):
        plan(availability={"dropout": 1.0})
