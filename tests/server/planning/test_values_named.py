"""What a refusal of a plan names is followed to its end: no rule names a value that another refuses."""

from __future__ import annotations

import copy
import json
import random
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from fieldfare import plan as plans
from fieldfare.errors import BadInput, Refused
from fieldfare.plan import Plan
from fieldfare_server.planning.feasibility import require_feasible
from fieldfare_server.planning.suggest import suggest
from fieldfare_server.run.pricing import price
from fieldfare_server.run.signal import noise_share

Table = dict[str, Any]
Changes = dict[str, Any]
"""Dotted key -> its new value; None: it is left out."""

NEEDED = {
    "single": (),
    "min-separation": ("separation",),
    "fixed-order": ("period",),
    "poisson": ("rate",),
    "cyclic-poisson": ("groups", "rate"),
    "balls-in-bins": ("bins",),
    "random-allocation": ("bins",),
    "b-min-sep": ("separation", "rate"),
    "truncated-poisson": ("rate", "cap", "enrolled"),
}
SCHEME_VALUES: dict[str, tuple[float, ...]] = {
    "separation": (1, 2, 4, 30),
    "period": (1, 3, 40),
    "rate": (0.01, 0.2, 1.0, 1.5),
    "groups": (1, 2, 4, 9),
    "bins": (1, 3, 30),
    "cap": (1, 5, 60),
    "enrolled": (2, 50, 500),
}
KINDS = ("independent", "tree", "nu", "optimal-cc", "anti-pgd", "banded", "banded-inverse", "blt", "dense", "fft")
KINDS += ("momentum-tree",)
# (key, values to draw one from, share of plans that get one). Some rule of some plan refuses most of these values.
SOMETIMES: tuple[tuple[str, tuple[Any, ...], float], ...] = (
    ("privacy.rounding", ("grid", "none", "discrete"), 0.3),
    ("privacy.accounting", ("individual", "worst-case"), 0.3),
    ("run.min_reports", (1, 2, 20, 50), 0.2),
    ("run.min_available", (1, 30), 0.15),
    ("run.over_selection", (1.5, 11.0), 0.15),
    ("run.round_timeout", (1.0, 600.0, 4e6, 1e8), 0.4),
    ("run.round_seconds", (1.0, 1300.0, 9e6, 2e7), 0.4),
    ("run.evaluate_every", (0, 3), 0.1),
    ("mechanism.restart_every", (1, 3, 100), 0.2),
    ("participation.max_participations", (0, 1, 2, 7), 0.2),
    ("clipping", ({"kind": "flat", "norm": -1.0}, {"kind": "adaptive-quantile", "norm": -1.0}), 0.3),
    ("tuning", ({"share": 0.1}, {"share": 1.0}), 0.2),
    ("aggregation", ({"kind": "masked"}, {"kind": "masked", "least_nodes": 1}), 0.15),
)


def drawn(seed: int) -> tuple[Table, int]:
    """A plan's table, with faults more often than not, and a number of users."""
    choose = random.Random(seed)
    scheme = choose.choice(list(NEEDED))
    called = scheme not in ("single", "min-separation", "fixed-order")
    kind = choose.choice(("independent", "banded") if called and choose.random() < 0.6 else KINDS)
    likely = "add_remove" if called else choose.choice(("zero_out", "replace_one"))
    adjacency = likely if choose.random() < 0.85 else choose.choice(("add_remove", "zero_out", "replace_one"))
    noise = choose.choice(({"epsilon": 0.01}, {"epsilon": 3.0}, {"epsilon": 200.0}, {"noise_multiplier": 1.0}))
    table: Table = {
        "privacy": {"population": "people", "delta": 1e-5, "adjacency": adjacency, **noise},
        "run": {"rounds": choose.choice((1, 5, 12, 24)), "cohort": choose.choice((1, 3, 20))},
        "participation": {"scheme": scheme} | {key: choose.choice(SCHEME_VALUES[key]) for key in NEEDED[scheme]},
        "mechanism": {"kind": kind} | ({"bands": choose.choice((1, 2, 4, 9, 40))} if "banded" in kind else {}),
    }
    for key, values, share in SOMETIMES:
        spaced = scheme in ("min-separation", "fixed-order") or key != "participation.max_participations"
        if choose.random() < share and spaced:
            table = changed(table, {key: choose.choice(values)})
    return table, choose.choice((3, 60, 1000))


def changed(table: Table, changes: Changes) -> Table:
    table = copy.deepcopy(table)
    for key, value in changes.items():
        *tables, last = key.split(".")
        inner = table
        for name in tables:
            inner = inner.setdefault(name, {})
        if value is None:
            inner.pop(last, None)
        else:
            inner[last] = value
    return table


def faults(table: Table, users: int) -> tuple[Refused, ...]:
    """What is wrong with it, as `fieldfare plan --users` finds it; a certificate is not drawn."""
    try:
        plan = Plan.parse(table)
        if not plan.draws_its_price:
            price(plan)
        require_feasible(plan, users)
    except Refused as refusal:
        return getattr(refusal, "faults", (refusal,))
    return ()


def named(fault: Refused) -> Iterator[Changes]:
    """What its nearest says to change; nothing for advice in words, or names of keys."""
    key = key_of(fault)
    if fault.code in ("key-unknown", "kind-unknown", "key-required"):
        return
    for option in re.split(r"; or |, or (?=[a-z_.]+ = |fieldfare )|; ", fault.nearest):
        option = re.sub(r", which costs more \w+$", "", option)
        if table := re.fullmatch(r"leave \[(\w+)\] out", option):
            yield {table[1]: None}
        elif option == "leave it out":
            yield {key: None}
        elif option.startswith("participation = {"):
            yield tomllib.loads(option)
        else:
            changes = [change(key, part) for part in option.split(" with ")]
            if all(changes):
                yield {name: value for each in changes for name, value in each.items()}


def change(key: str, words: str) -> Changes:
    """One number or word in the place of a key's, or "name = value"; empty for other words."""
    name, _, value = words.rpartition(" = ")
    if name and "." not in name:
        home = "participation" if name in SCHEME_VALUES or name == "max_participations" else "run"
        name = f"{home if ' ' in key else key.partition('.')[0]}.{name}"
    if value.startswith(("above ", "below ")):
        value = value.partition(" ")[2]
        return {key: float(value) + (0.001 if words.startswith("above") else -0.001)}
    try:
        return {name or key: json.loads(value.replace("'", '"'))}
    except ValueError:
        return {name or key: value} if re.fullmatch(r"[a-z_-]+", value) else {}


def key_of(fault: Refused) -> str:
    return fault.what.partition(" = ")[0]


def follow(table: Table, users: int) -> int:
    """Follow every value that is named, the first one on; return how many were. Fails where one is refused."""
    followed, before = 0, set[str]()
    while found := faults(table, users):
        if f"fieldfare suggest --users {users}" in found[0].nearest:
            fitted = suggest(Plan.parse(table), users=users)
            require_feasible(fitted.best.plan, users)
            assert noise_share(price(fitted.best.plan)) <= noise_share(price(fitted.planned.plan))
        alone = len(found) == 1
        options = [option for option in named(found[0]) if "." in key_of(found[0]) or " " in key_of(found[0])]
        for option in options:
            for after in faults(changed(table, option), users):
                said = f"{found[0]}\n{option} is refused: {after}"
                assert not alone or key_of(after) not in option, said
                assert not alone or key_of(after) + after.code not in before, f"in a circle: {said}"
            followed += 1
        if not options:
            return followed
        before.add(key_of(found[0]) + found[0].code)
        table = changed(table, options[0])
        assert followed < 100
    return followed


@pytest.mark.parametrize("seed", range(20))
def test_a_value_that_a_refusal_names_is_taken(seed: int) -> None:
    for draw in range(10 * seed, 10 * seed + 10):
        follow(*drawn(draw))


# What one rule named, and another refused.
@pytest.mark.parametrize(
    ("changes", "key", "near"),
    [
        ({"run.over_selection": 11.0}, "run.over_selection", "1.0"),
        ({"tuning.share": 1.0}, "tuning.share", "leave [tuning] out"),
        ({"clipping": {"kind": "adaptive-quantile", "norm": -1.0}}, "clipping.norm", "1e-06"),
        ({"run.round_seconds": 1.0, "run.round_timeout": 1e8}, "run.round_seconds", "with round_timeout = 2.5e+06"),
        (
            {"privacy.adjacency": "zero_out"},
            "privacy.adjacency",
            'participation = {scheme = "fixed-order", period = 3}',
        ),
        ({"aggregation.kind": "masked"}, "participation.scheme", "leave [aggregation] out"),
    ],
)
def test_a_value_that_two_rules_judge_is_named_as_both_take_it(changes: Changes, key: str, near: str) -> None:
    table = {
        "privacy": {"population": "people", "epsilon": 1.0, "delta": 1e-5, "adjacency": "add_remove"},
        "run": {"rounds": 6, "cohort": 5},
        "participation": {"scheme": "balls-in-bins", "bins": 3},
        "mechanism": {"kind": "independent"},
    }
    assert not faults(table, 60)
    (fault,) = faults(changed(table, changes), 60)
    assert key_of(fault) == key
    assert near in fault.nearest


def test_more_reports_than_a_cohort_are_refused_with_the_most_there_may_be() -> None:
    table = {
        "privacy": {"population": "people", "epsilon": 1.0, "delta": 1e-5},
        "run": {"rounds": 1, "cohort": 3},
        "mechanism": {"kind": "independent"},
    }
    (fault,) = faults(changed(table, {"run.min_reports": 4}), 60)
    assert (key_of(fault), fault.nearest) == ("run.min_reports", "3")


def test_a_refusal_of_rules_that_name_each_others_values_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    values = iter(range(-1_000_000, 0))
    monkeypatch.setattr(plans, "with_bounds", lambda table, refusal: {"run": {"rounds": next(values)}})
    with pytest.raises(BadInput):
        Plan.parse({"run": {"rounds": -5}})
