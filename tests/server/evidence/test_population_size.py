"""delta and the sampling rate against the number of users."""

from __future__ import annotations

import pytest

from fieldfare.errors import BadInput
from fieldfare.plan import Plan
from fieldfare.population_size import check_population_size, largest_delta
from support.refusals import coded


def plan(delta: float, rate: float | None = None, groups: int | None = None) -> Plan:
    table = {
        "privacy": {"population": "p", "noise_multiplier": 1.0, "delta": delta},
        "run": {"task": "digits", "rounds": 4, "cohort": 10},
        "mechanism": {"kind": "independent"},
    }
    if groups:
        table["participation"] = {"scheme": "cyclic-poisson", "rate": rate, "groups": groups}
    elif rate:
        table["participation"] = {"scheme": "poisson", "rate": rate}
    return Plan.parse(table)


def test_delta_must_be_below_one_in_the_number_of_users() -> None:
    with pytest.raises(
        BadInput, check=coded("out-of-range", "privacy.delta", "0.5", "--accept-delta", "accept_delta=True")
    ):
        check_population_size(plan(0.5), 100)
    with pytest.raises(BadInput, check=coded("out-of-range", "privacy.delta")):
        check_population_size(plan(0.01), 100)
    assert len(check_population_size(plan(0.0099), 100)) == 1
    assert len(check_population_size(plan(0.00101), 100)) == 1
    assert check_population_size(plan(0.001), 100) == []
    assert len(check_population_size(plan(0.5), 100, accepted=True)) == 1


@pytest.mark.parametrize("users", [*range(1, 200), 1_500, 99_999, 120_000, 10**9])
def test_the_delta_that_is_suggested_needs_no_warning_and_the_next_one_does(users: int) -> None:
    """Rounded to the nearest, that of 15 users was .0067, which the rule itself warns of."""
    (warning,) = check_population_size(plan(min(0.9, 0.5 / users)), users)
    delta = float(warning.rpartition("at most ")[2].rstrip("."))
    assert delta == largest_delta(users)
    assert check_population_size(plan(delta), users) == []
    assert len(check_population_size(plan(delta * 1.11), users)) == 1


@pytest.mark.parametrize(("rate", "groups"), [(1.0, None), (1.0, 4)])
@pytest.mark.parametrize(
    ("factor", "outcome"), [(0.49, 2), (0.6, 1), (0.9, 0), (1.0, 0), (1.15, 0), (1.5, 1), (2.1, 2)]
)
def test_a_poisson_rate_should_bring_about_a_cohort(
    rate: float, groups: int | None, factor: float, outcome: int
) -> None:
    users = 1000
    sampled = plan(1e-9, rate * factor * 10 / users * (groups or 1), groups)
    if outcome == 2:
        with pytest.raises(BadInput, check=coded("out-of-range", "participation.rate")):
            check_population_size(sampled, users)
        assert len(check_population_size(sampled, users, accepted=True)) == 1
    else:
        assert len(check_population_size(sampled, users)) == outcome


@pytest.mark.parametrize(("part", "rate"), [("others", 0.0125), ("share", 0.05)])
def test_a_rate_is_judged_by_the_users_whom_a_plan_may_ask(part: str, rate: float) -> None:
    """All users were counted beside a tuning share: a cohort four times too large was named."""
    table = plan(1e-9, rate).model_dump(mode="json", exclude_none=True) | {"tuning": {"share": 0.2, "users": part}}
    sampled = Plan.parse(table)
    assert check_population_size(sampled, 1000) == []
    with pytest.raises(BadInput, check=coded("out-of-range", "participation.rate", "of 2000 users")):
        check_population_size(Plan.parse(table | {"tuning": {"share": 0.2, "users": "share"}}), 10_000)
    assert check_population_size(sampled, 1, accepted=True) != []  # of whom nobody may be of the share
