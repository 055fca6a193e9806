"""A run that cannot reach its end is refused, with what would be possible instead."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldfare.costing import cost_of
from fieldfare.errors import BadInput
from fieldfare.participation import CyclicPoisson, FixedOrder, MinSeparation, Poisson
from fieldfare.plan import Plan
from fieldfare.plan_tables import TuningSpec
from fieldfare.schema import pseudonyms
from fieldfare_server.planning.admission import admit
from fieldfare_server.planning.feasibility import (
    check_feasible,
    is_feasible,
    nearest_feasible,
    reach_under_availability,
    require_feasible,
)
from support.refusals import coded


def plan(rounds: int, cohort: int, participation: dict[str, object], **run: object) -> Plan:
    availability = run.pop("availability", None)
    tables = {
        "privacy": {"population": "people", "epsilon": 4.0, "delta": 1e-5},
        "run": {"task": "digits", "rounds": rounds, "cohort": cohort, **run},
        "participation": participation,
        "mechanism": {"kind": "independent"},
    }
    return Plan.parse(tables | ({"availability": availability} if availability else {}))


def apart(separation: int, most: int | None = None) -> dict[str, object]:
    cap = {} if most is None else {"max_participations": most}
    return {"scheme": "min-separation", "separation": separation, **cap}


@settings(deadline=None)
@given(
    users=st.integers(1, 120),
    rounds=st.integers(1, 12),
    cohort=st.integers(1, 20),
    separation=st.integers(1, 9),
    most=st.none() | st.integers(1, 4),
)
def test_a_plan_is_feasible_exactly_when_a_rotation_fills_every_round(
    users: int, rounds: int, cohort: int, separation: int, most: int | None
) -> None:
    scheme = MinSeparation(separation, most)
    _, k = scheme.separation_and_count(rounds)
    # In rotation, whoever rested longest: no order of such interchangeable users does better.
    last, count, possible = np.full(users, -100), np.zeros(users, dtype=int), True
    for t in range(rounds):
        fit = np.flatnonzero((t - last >= separation) & (count < k))
        possible &= fit.size >= cohort
        chosen = fit[np.argsort(last[fit], kind="stable")][:cohort]
        last[chosen], count[chosen] = t, count[chosen] + 1
    assert is_feasible(scheme, rounds, cohort, users) == possible


def test_the_two_runs_that_died_are_possible_now_and_those_that_cannot_be_are_refused() -> None:
    """F4. Both fit at min_reports = 3/4 cohort; with min_reports = cohort the second one does not."""
    require_feasible(plan(30, 100, apart(4, 6)), 500)
    require_feasible(plan(30, 30, apart(1, 4)), 200)
    with pytest.raises(BadInput, check=coded("too-few", "900", "200", "800")) as refusal:
        require_feasible(plan(30, 30, apart(1, 4), min_reports=30), 200)
    assert refusal.value.nearest == (
        "cohort = 26 with min_reports = 26, or rounds = 26, or max_participations = 5, which costs more noise, "
        "or fieldfare suggest --users 200"
    )
    with pytest.raises(BadInput, check=coded("too-few", "400", "399")) as refusal:
        require_feasible(plan(30, 100, apart(4), min_reports=100), 399)
    assert refusal.value.nearest == "cohort = 99 with min_reports = 99, or rounds = 3, or fieldfare suggest --users 399"


def test_a_run_that_waits_for_more_users_than_there_are_is_not_started() -> None:
    """It was admitted, and waited for 600 seconds before its first round."""
    admit(plan(8, 5, apart(4), min_available=20), None, None, 20)
    with pytest.raises(BadInput, check=coded("too-few", "run.min_available = 21", "at most 20")):
        admit(plan(8, 5, apart(4), min_available=21), None, None, 20)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_each_suggestion_of_a_refusal_can_be_taken_literally(data: st.DataObject) -> None:
    """Fewer rounds than bands, a cap that no longer fits and too few "users or more" were suggested, then refused."""
    draw = data.draw
    users, rounds, cohort = draw(st.integers(1, 60)), draw(st.integers(1, 12)), draw(st.integers(1, 20))
    kinds = ({"kind": "independent"}, {"kind": "banded", "bands": draw(st.integers(1, 6))}, {"kind": "tree"})
    number = draw(st.integers(1, 6))
    scheme = draw(st.sampled_from((apart(number), {"scheme": "single"}, {"scheme": "fixed-order", "period": number})))
    if scheme["scheme"] != "single" and draw(st.booleans()):
        scheme = {**scheme, "max_participations": draw(st.integers(1, 4))}
    tables = {
        "privacy": {"population": "people", "delta": 1e-5}
        | draw(st.sampled_from(({"epsilon": 4.0}, {"noise_multiplier": 2.0}))),
        "run": {"task": "digits", "rounds": rounds, "cohort": cohort}
        | draw(st.sampled_from(({}, {"min_reports": cohort}))),
        "participation": scheme,
        "mechanism": draw(st.sampled_from(kinds)),
    }
    try:
        base = Plan.parse(tables)
        before = cost_of(base)
    except BadInput:
        return
    if is_feasible(base.participation.build(), rounds, max(1, base.report_goal), users):
        return
    for option in nearest_feasible(base, users):
        key, _, value = option.partition(" = ")
        if not value:
            require_feasible(base, int(key.split()[0]))
            continue
        number = int(value.replace(",", " ").split()[0])
        _, _, cap = option.partition("max_participations = ")
        lower = {"max_participations": int(cap.split(",")[0])} if cap else {}
        more = {"min_reports": number} if "min_reports" in value else {}
        run = tables["run"] | more | ({key: number} if key != "max_participations" else {})
        taken = Plan.parse({**tables, "run": run, "participation": {**scheme, **lower}})
        require_feasible(taken, users)
        after = cost_of(taken)
        dearer = {"costs more noise": "noise", "costs more epsilon": "epsilon"}
        said = next((what for words, what in dearer.items() if words in option), "")
        assert after.epsilon <= before.epsilon * (1 + 1e-6) or said == "epsilon"
        assert after.noise_multiplier <= before.noise_multiplier * (1 + 1e-6) or said == "noise"


@pytest.mark.parametrize(("users", "rested"), [(2 * 45, True), (2 * 45 - 1, False)])
def test_users_who_could_come_half_as_often_are_worth_a_word(users: int, rested: bool) -> None:
    """The plan without a word about N kept the noise of 45 users for any number, and nobody said so."""
    base = plan(9, 15, apart(3, 3), min_reports=15)
    warnings = check_feasible(base, users)
    assert len(warnings) == rested
    if rested:
        assert warnings[0].endswith(f"fieldfare suggest --users {users} finds what needs least")
        less = plan(9, 15, apart(6, 2), min_reports=15)
        require_feasible(less, users)
        assert check_feasible(less, users) == []
        assert cost_of(less).prefix_noise_rms < cost_of(base).prefix_noise_rms
    # Each comes once: nobody can come more seldom, whatever the number.
    assert check_feasible(plan(9, 15, apart(9, 1), min_reports=15), 10_000) == []


def test_fixed_order_is_judged_by_its_smallest_place() -> None:
    assert is_feasible(FixedOrder(3), 9, 10, 30)
    assert not is_feasible(FixedOrder(3), 9, 10, 29)
    # Three places of 10 users, 4 rounds each: 2 participations a user fill 5 reports a round and not 6.
    assert is_feasible(FixedOrder(3, 2), 12, 5, 30)
    assert not is_feasible(FixedOrder(3, 2), 12, 6, 30)


def test_poisson_plans_always_run() -> None:
    assert is_feasible(Poisson(0.1), 100, 50, 1)
    assert is_feasible(CyclicPoisson(3, 0.1), 100, 50, 1)


NAMES = pseudonyms([f"user-{i}" for i in range(60)])
NAMES_OF_MANY = pseudonyms([f"user-{i}" for i in range(220)])


def test_users_who_come_and_go_are_tried_and_not_assumed() -> None:
    always = plan(20, 10, apart(1, 4), availability={"reachable": 1.0})
    assert reach_under_availability(always, NAMES, trials=3).finished == 3
    assert check_feasible(always, NAMES) == []
    # 60 x 4 = 240 participations, and 20 x 9 = 180 are needed; but late in the run those who have rounds left are away.
    rare = plan(20, 12, apart(1, 4), min_reports=9, availability={"reachable": 0.6, "rounds_per_day": 1})
    require_feasible(rare, 60)
    with pytest.raises(BadInput, check=coded("too-few", "availability with this participation", "20")) as refusal:
        check_feasible(rare, NAMES)
    # Taken literally it is admitted: the rounds that every trial filled were once named, and refused when asked for.
    shorter = int(refusal.value.nearest.removeprefix("rounds = "))
    assert 4 <= shorter < 20
    availability = {"reachable": 0.6, "rounds_per_day": 1}
    check_feasible(plan(shorter, 12, apart(1, 4), min_reports=9, availability=availability), NAMES)
    # In between some trials reach the end and some do not: a warning says how many.
    between = plan(20, 12, apart(1, 4), min_reports=7, availability={"reachable": 0.6, "rounds_per_day": 1})
    (warning,) = check_feasible(between, NAMES)
    assert "of 20 trial timetables of these 60 users reach the end" in warning


@pytest.mark.parametrize(("cap", "separation"), [(None, 1), (6, 1), (6, 2)])
def test_a_shorter_run_that_is_named_can_be_taken_where_users_come_and_go(cap: int | None, separation: int) -> None:
    """Named were the rounds that every trial filled, also where a plan of so few has no room for its cap."""
    whole = {"availability": {"reachable": 0.3, "rounds_per_day": 1}, "min_reports": 13}
    base = plan(24, 14, apart(separation, cap), **whole)
    with pytest.raises(BadInput, check=coded("too-few", "availability with this participation")) as refusal:
        check_feasible(base, NAMES)
    found = dict(each.split(" = ") for each in refusal.value.nearest.split(" with "))
    taken = plan(
        int(found["rounds"]), 14, apart(separation, int(found.get("max_participations", cap or 0)) or None), **whole
    )
    check_feasible(taken, NAMES)
    cost_of(taken)


def test_those_who_tune_are_not_counted_among_those_who_can_be_asked() -> None:
    tuned = plan(9, 10, apart(9, 1), min_reports=10).model_copy(update={"tuning": TuningSpec(share=0.5)})
    assert admit(tuned, None, None, 180).users == 90
    assert admit(tuned, None, None, NAMES_OF_MANY).users == int(tuned.takes(NAMES_OF_MANY).sum())
    with pytest.raises(BadInput, check=coded("too-few", "90", "89")) as refusal:
        admit(tuned, None, None, 178)
    assert "suggest" not in refusal.value.nearest  # it takes the number of all users
    banded = tuned.model_copy(update={"mechanism": {"kind": "banded", "bands": 9}})
    with pytest.raises(BadInput, check=coded("too-few")) as refusal:
        admit(Plan.parse(banded.model_dump(mode="json", exclude_none=True)), None, None, 2)
    assert refusal.value.nearest == "90 users or more to ask"
