"""A plan says everything or is refused with one message that names the key, the value and the nearest allowed."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldfare.errors import BadInput
from fieldfare.participation import CyclicPoisson, FixedOrder, MinSeparation, Poisson, Single
from fieldfare.plan import Plan

TABLE: dict[str, Any] = {
    "privacy": {"population": "aircraft", "epsilon": 2.0, "delta": 1e-5},
    "run": {"task": "flights", "rounds": 64, "cohort": 202},
    "participation": {"scheme": "min-separation", "separation": 16, "max_participations": 4},
    "mechanism": {"kind": "independent"},
}


def table(**changes: Any) -> dict[str, Any]:
    changed = copy.deepcopy(TABLE)
    for key, value in changes.items():
        section, _, field = key.partition("__")
        if field:
            changed.setdefault(section, {})[field] = value
        else:
            changed[section] = value
    return changed


def test_defaults_are_spelled_out_in_the_digest() -> None:
    plan = Plan.parse(TABLE)
    assert plan.report_goal == 151
    assert plan.client.local_epochs == 1
    assert plan.digest() == Plan.parse(table(privacy__adjacency="zero_out")).digest()
    assert plan.digest() != Plan.parse(table(run__rounds=65)).digest()
    assert Plan.model_validate_json(plan.to_json()) == plan


def test_toml_and_mapping_give_the_same_plan() -> None:
    text = """
    [privacy]
    population = "aircraft"
    epsilon = 2.0
    delta = 1e-5
    [run]
    task = "flights"
    rounds = 64
    cohort = 202
    [participation]
    scheme = "min-separation"
    separation = 16
    max_participations = 4
    [mechanism]
    kind = "independent"
    """
    assert Plan.from_toml(text) == Plan.parse(TABLE)


@pytest.mark.parametrize(
    ("changes", "key", "nearest"),
    [
        ({"privacy__epsilom": 1.0}, "privacy.epsilom", "epsilon"),
        ({"runs": {}}, "runs", "run"),
        ({"run__rounds": "many"}, "run.rounds = 'many'", ""),
        ({"run__rounds": 0}, "run.rounds = 0", "1"),
        ({"run__rounds": 1.5}, "run.rounds = 1.5", ""),
        ({"run__rounds": True}, "run.rounds = True", ""),
        ({"privacy__epsilon": True}, "privacy.epsilon = True", ""),
        ({"privacy__delta": 1.0}, "privacy.delta = 1.0", "below 1"),
        ({"privacy__delta": float("nan")}, "privacy.delta = nan", ""),
        ({"privacy__epsilon": float("inf")}, "privacy.epsilon = inf", ""),
        ({"privacy__epsilon": -1.0}, "privacy.epsilon = -1.0", "above 0"),
        ({"privacy__noise_multiplier": 1.0}, "privacy", ""),
        ({"privacy__adjacency": "zero-out"}, "privacy.adjacency = 'zero-out'", "zero_out"),
        ({"privacy__population": "../x"}, "privacy.population", ""),
        ({"mechanism__kind": "independant"}, "mechanism.kind = 'independant'", "independent"),
        ({"mechanism__bands": 4}, "mechanism.bands", "kind"),
        ({"mechanism": {}}, "mechanism.kind = None", ""),
        ({"mechanism": "nu"}, "mechanism = 'nu'", ""),
        ({"participation__scheme": "minimum"}, "participation.scheme = 'minimum'", "min-separation"),
        ({"participation__rate": 0.1}, "participation", ""),
        ({"participation": {"scheme": "poisson"}}, "participation", ""),
        ({"participation__max_participations": 5}, "participation.max_participations = 5", "4"),
        ({"run__min_reports": 203}, "run", ""),
        ({"client__epochs": 1, "client__steps": 1}, "client", ""),
        ({"client__learning_rate": 0}, "client.learning_rate = 0", "above 0"),
    ],
)
def test_a_bad_plan_is_refused_by_name(changes: dict[str, Any], key: str, nearest: str) -> None:
    with pytest.raises(BadInput) as refusal:
        Plan.parse(table(**changes))
    assert refusal.value.what.startswith(key)
    assert nearest in refusal.value.nearest
    assert "\n" not in str(refusal.value)


def test_text_that_is_not_toml_is_refused() -> None:
    with pytest.raises(BadInput, match="is not TOML"):
        Plan.from_toml("[privacy")


def test_asking_more_users_is_not_poisson_sampling() -> None:
    poisson = {"scheme": "poisson", "rate": 0.1}
    with pytest.raises(BadInput, match="over_selection"):
        Plan.parse(table(participation=poisson, run__over_selection=1.2))


@pytest.mark.parametrize(
    ("spec", "built"),
    [
        ({}, Single()),
        ({"scheme": "min-separation", "separation": 3}, MinSeparation(3)),
        ({"scheme": "fixed-order", "period": 8}, FixedOrder(8)),
        ({"scheme": "poisson", "rate": 0.25}, Poisson(0.25)),
        ({"scheme": "cyclic-poisson", "groups": 4, "rate": 0.5}, CyclicPoisson(4, 0.5)),
    ],
)
def test_schemes_build_their_participation(spec: dict[str, Any], built: object) -> None:
    assert Plan.parse(table(participation=spec)).participation.build() == built


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.dictionaries(st.sampled_from([*TABLE, "rounds", "kind", "x"]), inner, max_size=3),
    )
)
def test_no_table_whatever_raises_anything_but_a_refusal(value: Any) -> None:
    for key in TABLE:
        with contextlib.suppress(BadInput):
            Plan.parse(table(**{key: value}))
