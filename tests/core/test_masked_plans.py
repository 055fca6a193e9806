"""`[aggregation]`: a table of the plan that other plans do not notice, and that refuses what masks cannot do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fieldfare.aggregation import Masked
from fieldfare.errors import BadInput
from fieldfare.plan import Plan
from fieldfare_server.planning.reference import explain, json_schema, template
from fieldfare_server.run.pricing import price
from support.refusals import coded

BASE: dict[str, Any] = {"task": "digits", "epsilon": 4, "delta": 1e-5, "rounds": 8, "cohort": 20}


def test_a_plan_of_plain_sums_keeps_its_digest() -> None:
    plan = Plan(**BASE)
    assert "aggregation" not in json.loads(plan.to_json())
    assert Plan(**BASE, aggregation="plain").digest() == plan.digest()


def test_a_masked_plan_has_another_digest_and_is_stored() -> None:
    plan = Plan(**BASE, aggregation={"kind": "masked", "least_nodes": 5})
    assert plan.aggregation == Masked(least_nodes=5)
    assert Plan.stored(json.loads(plan.run_json(0.0))) == plan
    assert Plan(**BASE, aggregation="masked").digest() not in (plan.digest(), Plan(**BASE).digest())


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"rounding": "none"}, "masked-without-grid"),
        ({"adjacency": "add_remove", "participation": {"scheme": "poisson", "rate": 0.1}}, "masked-without-cut"),
        ({"participation": {"scheme": "poisson", "rate": 0.1}}, "masked-without-cut"),
        ({"cohort": 7}, "masked-too-few"),
        ({"aggregation": {"kind": "masked", "least_nodes": 1}}, "value-wrong"),
        ({"aggregation": {"kind": "blinded"}}, "kind-unknown"),
    ],
)
def test_what_masks_cannot_do_is_refused(more: dict[str, Any], code: str) -> None:
    with pytest.raises(BadInput) as refused:
        Plan(**{**BASE, "aggregation": "masked", **more})
    assert coded(code)(refused.value), {each.code for each in refused.value.faults}


def test_plan_shows_the_words_and_what_they_cost() -> None:
    cost = price(Plan(**BASE, aggregation="masked"))
    (shown,) = [value for name, value in cost.describe() if name == "masked words"]
    assert shown.startswith("k = 32 bits, g = 2^-")
    words = cost.to_json()["masked_words"]
    assert words["bits"] == 32
    assert 0 < words["cost"] < 2.0**-9
    plain = price(Plan(**BASE))
    assert "masked_words" not in plain.to_json()
    assert plain.noise_multiplier == cost.noise_multiplier, "where 32 bits hold the plain grid, masks cost nothing"


def test_the_reference_knows_the_table() -> None:
    assert "no sum of fewer nodes is opened" in explain("aggregation.least_nodes")
    assert 'kind = "plain"' in template()
    assert Plan.from_toml(template()).aggregation.kind == "plain"
    assert len(json_schema()["properties"]["aggregation"]["oneOf"]) == 2  # type: ignore[index]
