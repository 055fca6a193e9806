"""The searches behind the shipped plans' prices, made before: equal to the bit, for previews alone."""

from __future__ import annotations

import base64
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fieldfare.plan import Plan
from fieldfare_server.files.plan_file import read_plan
from fieldfare_server.run import pricing

ROOT = Path(__file__).parents[2]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("shipped_prices", ROOT / "deploy/supply/shipped_prices.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SHIPPED = load()
PLANS = {name: read_plan(SHIPPED.PLANS / f"{name}.toml") for name in SHIPPED.SLOW}


def changed(plan: Plan, table: str, **values: object) -> Plan:
    tables: dict[str, Any] = json.loads(plan.to_json())
    tables[table] |= values
    return Plan.parse(tables)


def never(*_: object) -> None:
    raise AssertionError("searched")


@pytest.mark.parametrize("name", SHIPPED.SLOW)
def test_a_shipped_plan_is_priced_without_a_search(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pricing, "cost_with_resolution", never)
    monkeypatch.setattr(pricing, "cost_of", never)
    plan = changed(PLANS[name], "privacy", population="others")
    assert pricing.price(plan).to_json()["digest"] == plan.digest()
    monkeypatch.setattr(pricing, "_is_here", lambda _: False)
    assert pricing.price(plan).resolution == 0


@pytest.mark.parametrize("table", [{"run": {"rounds": 63}}, {"run": {"cohort": 201}}, {"privacy": {"delta": 2e-5}}])
def test_another_plan_is_priced_by_a_search(
    table: dict[str, dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ((name, values),) = table.items()
    monkeypatch.setattr(pricing, "cost_with_resolution", never)
    with pytest.raises(AssertionError, match="searched"):
        pricing.price(changed(PLANS["flights-allocated"], name, **values))


def test_another_model_is_priced_by_a_search() -> None:
    plan = PLANS["gboard-blt"]
    sums = (plan.riders.joint_bound, 1000, pricing.most_users(plan))
    assert pricing.priced_as(plan, sums) != pricing.priced_as(plan, (*sums[:1], 1001, *sums[2:]))
    assert pricing.priced_as(plan, sums) != pricing.priced_as(plan, None)


def test_a_run_is_priced_by_its_own_search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What it decides is stored with it, and a certificate has a seed of its own."""
    entry = json.loads(pricing.SHIPPED.read_text())[pricing.priced_as(PLANS["flights-binned"], None)]
    kept = {name: base64.b64decode(value) for name, value in entry["entries"].items()}
    monkeypatch.setattr(pricing, "SHIPPED", tmp_path / "not-read.json")
    decided: dict[str, bytes] = {}
    assert pricing.price_with_model(PLANS["gboard-blt"], decided).noise_multiplier
    assert decided
    with pytest.raises(AssertionError, match="drawn"):
        pricing.price_with_model(PLANS["flights-binned"], kept, draw=_drawn)


def test_what_this_version_does_not_compute_is_sought(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plan, found = PLANS["flights-allocated"], json.loads(pricing.SHIPPED.read_text())
    right = pricing.price(plan)
    for entry in found.values():
        entry["price"]["noise_multiplier"] *= 0.99
    altered = tmp_path / "altered.json"
    altered.write_text(json.dumps(found))
    monkeypatch.setattr(pricing, "SHIPPED", altered)
    assert pricing.price(plan).to_json() == right.to_json()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if PLANS[name].draws_its_price else ()) for name in SHIPPED.SLOW]
)
def test_what_is_shipped_is_what_a_search_finds_today(name: str) -> None:
    shipped = json.loads(pricing.SHIPPED.read_text())
    for key, entry in SHIPPED.found(PLANS[name]):
        assert shipped.pop(key) == entry
    assert len(shipped) == 2 * (len(SHIPPED.SLOW) - 1)


def _drawn() -> tuple[bytes, int]:
    raise AssertionError("drawn")
