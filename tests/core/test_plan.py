"""A plan says everything or is refused with one message that names the key, the value and the nearest allowed."""

from __future__ import annotations

import contextlib
import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldfare.clipping import AdaptiveQuantile, Flat
from fieldfare.errors import BadInput
from fieldfare.participation import CyclicPoisson, FixedOrder, MinSeparation, Poisson, Single
from fieldfare.plan import Plan
from support.refusals import coded

TABLE: dict[str, Any] = {
    "privacy": {"population": "aircraft", "epsilon": 2.0, "delta": 1e-5},
    "run": {"task": "flights", "rounds": 64, "cohort": 202},
    "participation": {"scheme": "min-separation", "separation": 16, "max_participations": 4},
    "mechanism": {"kind": "independent"},
    "client": {"workers": 1},  # what a digest has for every number
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


ROOT = Path(__file__).parents[2]
DISK = {"kind": "disk", "kappa": "auto", "base": {"kind": "fedadam", "learning_rate": 1}}
WRITTEN: dict[str, tuple[dict[str, Any], str]] = {
    "no tables": ({}, "4d1bfd3b871bc8b15a9a87dbed7d94c5f5008985a1660f32c3326a4e803b0aa1"),
    "no norm": ({"clipping": {"kind": "flat"}}, "b470391b626364c0b9d5bcdaa84b9ba87ab79d642bcaf30baef7a17bf605cef7"),
    "a whole number": (
        {"clipping": {"kind": "flat", "norm": 1}},
        "ec5b2bb48b2c0fce9a76caad1707283efa95a972e29fe3873e2908fd609649f0",
    ),
    "the default in full": (
        {"clipping": {"kind": "flat", "norm": 1.0}},
        "4d1bfd3b871bc8b15a9a87dbed7d94c5f5008985a1660f32c3326a4e803b0aa1",
    ),
    "many fields": (
        {"clipping": {"kind": "adaptive-quantile", "norm": 2, "rescale": True, "linf_filter": 100}},
        "1d5296a775785704525fc5b45c69af13832859ea7aaf7ed0cf55f207d59d56b1",
    ),
    "nothing by name": (
        {"clipping": {"kind": "per-layer", "linf_filter": None}},
        "feadfb52b91c96ec58a0c857a241578f9bd981d4282f729110e2b0409e6a8ed9",
    ),
    "nested": (
        {"server_optimizer": {**DISK, "base": {**DISK["base"], "schedule": {"kind": "polynomial", "power": 1}}}},
        "9d85a314ce139cdafe480ad96bbf3a56c0e582d3ec2667d0caa1ce44b42e1188",
    ),
}
"""Changes of `TABLE` and the digests that commit c0dd382 gave them, when both tables were stored as plain dicts."""


@pytest.mark.parametrize(("changes", "digest"), WRITTEN.values(), ids=WRITTEN)
def test_a_plan_keeps_the_digest_that_its_ledger_knows(changes: dict[str, Any], digest: str) -> None:
    plan = Plan.parse({**TABLE, **changes})
    assert plan.digest() == digest
    for again in (plan.model_dump(mode="json"), json.loads(plan.to_json())):
        assert Plan.parse(again) == plan
        assert Plan.parse(again).digest() == digest
        assert Plan.stored(again).digest() == digest


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("containers", "419389cca0e830215313f7f50cde6c58b307ff5b89400a8a8643fa13f7bad619"),
        ("containers-seeded", "a93ff8c55262eddd20d08af396647b951ff05f9f2de90e4f823b3fee11fde659"),
        ("digits", "4a31a0da565869f555424c49cbc6e78b20ec1951769b887b8579611a7aaf9416"),
        ("flights", "fdee0c9543152ee75b3c77ff982d62e1b37cdfcb8866b9de15a4a14623743396"),
        ("gboard-blt", "d067209de1f04ba1553709ebe72402dc20cb88e416c99e00c75294f1b2b1c5aa"),
        ("gboard-tree", "e8d81d0b2abb21629500443ba6d169348006f8e9f999ab239cbcd0e11c11d906"),
    ],
)
def test_the_deployed_plans_keep_their_digests(name: str, digest: str) -> None:
    assert Plan.from_toml((ROOT / f"deploy/plans/{name}.toml").read_text()).digest() == digest


def test_clipping_and_optimizer_are_parsed_once_and_typed() -> None:
    plan = Plan.parse(table(clipping={"kind": "adaptive-quantile", "norm": 2}))
    assert plan.clipping == AdaptiveQuantile(norm=2.0)
    assert plan.server_optimizer.kind == "sgd"
    given = Plan.parse(table(clipping=Flat(norm=0.5)))
    assert Plan.stored(json.loads(given.to_json())) == given


def test_a_copy_with_another_spec_does_not_keep_the_table_of_the_first() -> None:
    plan = Plan.parse(table(clipping={"kind": "flat", "norm": 1}))
    other = plan.model_copy(update={"clipping": Flat(norm=2.0)})
    assert json.loads(other.to_json())["clipping"]["norm"] == 2.0
    assert plan.model_copy(deep=True).digest() == plan.digest()


def test_a_plan_without_the_servers_optimizers_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fieldfare_server.optimizers", None)
    with pytest.raises(BadInput, check=coded("server-not-installed", "fieldfare[server]")):
        Plan.parse(TABLE)


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
    [client]
    workers = 1
    """
    assert Plan.from_toml(text) == Plan.parse(TABLE)


def test_all_cores_train_unless_a_plan_says_otherwise_and_a_stored_one_as_before() -> None:
    plan = Plan.parse({name: part for name, part in TABLE.items() if name != "client"})
    assert plan.client.workers == "auto"
    assert plan.digest() == Plan.parse(TABLE).digest()
    assert Plan.stored(json.loads(plan.run_json(0.0))).client.workers == "auto"
    assert Plan.stored(json.loads(plan.to_json())).client.workers == 1  # as an older version stored its default


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
        ({"privacy__epsilon": -1.0}, "privacy.epsilon = -1.0", "1e-100"),
        ({"privacy__noise_multiplier": 1.0}, "privacy", ""),
        ({"privacy__adjacency": "zero-out"}, "privacy.adjacency = 'zero-out'", "zero_out"),
        ({"privacy__population": "../x"}, "privacy.population", ""),
        ({"mechanism__kind": "independant"}, "mechanism.kind = 'independant'", "independent"),
        ({"mechanism__bands": 4}, "mechanism.bands", "kind"),
        ({"mechanism": {}}, "mechanism.kind", "nu"),
        ({"mechanism": "nu"}, "mechanism = 'nu'", ""),
        ({"clipping": "flat"}, "clipping = 'flat'", ""),
        ({"clipping": {"kind": "flatt"}}, "clipping.kind = 'flatt'", "flat"),
        ({"clipping": {"kind": "flat", "norm": 0}}, "clipping.norm = 0", ""),
        ({"server_optimizer": {"kind": "sdg"}}, "server_optimizer.kind = 'sdg'", "sgd"),
        ({"server_optimizer": {"kind": "sgd", "learning_rat": 1}}, "server_optimizer.learning_rat", "learning_rate"),
        ({"server_optimizer": {"kind": "three-query", "period": 8}}, "server_optimizer.kind = 'three-query'", "fixed"),
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


FAULTY = """# a plan
[privcy]
population = "people"
[run]
task = "digits"
rounds = 0
cohort = "many"
min_report = 5
[mechanism]
kind = "nu"
nu = "autoo"
tolerance = 7
[clipping]
norm = 1.0
[server_optimizer]
kind = "adam"
[participation]
scheme = "min-separation"
separation = [
    1,
]
"""


def test_all_faults_of_a_file_are_told_at_once_with_their_lines() -> None:
    with pytest.raises(BadInput) as refusal:
        Plan.from_toml(FAULTY)
    told = {fault.what.partition(" = ")[0]: fault for fault in refusal.value.faults}
    assert {key: fault.line for key, fault in told.items()} == {
        "privcy": 2,
        "run.rounds": 6,
        "run.cohort": 7,
        "run.min_report": 8,
        "mechanism.nu": 11,
        "mechanism.tolerance": 12,
        "clipping.kind": 13,
        "server_optimizer.kind": 16,
        "participation.separation": 19,
    }
    assert told["privcy"].nearest == "privacy"  # which is therefore not told to be missing
    assert told["mechanism.nu"].why == 'must be a number in [0, 1] or "auto".'
    assert told["run.cohort"].why == "must be a whole number of at least 1."
    assert told["mechanism.tolerance"].why == "must be a number of at least 1e-08 and at most 0.1."
    assert "flat" in told["clipping.kind"].nearest
    assert told["server_optimizer.kind"].nearest == "adamw, fedadam"
    lines = str(refusal.value).splitlines()
    assert len(lines) == 10
    assert lines[1] == "  line 2, privcy: unknown key. Nearest allowed: privacy."
    assert "input" not in str(refusal.value).lower(), "pydantic's voice"


def test_a_bad_population_name_is_told_without_a_regular_expression() -> None:
    with pytest.raises(BadInput, check=coded("value-wrong", "privacy.population", "'../x'")):
        Plan.parse(table(privacy__population="../x"))


def test_text_that_is_not_toml_is_refused() -> None:
    with pytest.raises(BadInput, check=coded("not-toml")):
        Plan.from_toml("[privacy")


def test_asking_more_users_is_not_poisson_sampling() -> None:
    poisson = {"scheme": "poisson", "rate": 0.1}
    with pytest.raises(BadInput, check=coded("no-over-selection", "over_selection")):
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


@pytest.mark.parametrize("name", ["two\nlines", " padded", "\x1b[31mred"])
def test_the_name_of_a_run_is_one_line(name: str) -> None:
    """The card of its model would have had lines of the namer's choice."""
    with pytest.raises(BadInput, check=coded("wrong-form", "run.name")):
        Plan.parse(table(run__name=name))
    assert Plan.parse(table(run__name="F\u00fcrst, 2nd try")).run.name == "F\u00fcrst, 2nd try"
