"""The documentation's what-if, plain JavaScript, against the accountant: equal to the last digit shown."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fieldfare as ff
from fieldfare.text import decimal
from support.chromium import chromium, new_page

DOCS = Path(__file__).parents[2] / "docs"
NODE = shutil.which("node")
PROGRAM = """
const { price, decimal } = require(process.argv[1]);
const shown = (plan) => Object.fromEntries(Object.entries(price(plan)).map(([name, value]) => [name, decimal(value)]));
console.log(JSON.stringify(JSON.parse(require("fs").readFileSync(0, "utf8")).map(shown)));
"""
SHOWN = ("noise", "sensitivity", "mu", "epsilon", "greatest", "rms")


def _grid() -> list[dict[str, Any]]:
    """Every kind at seeded rounds, separations, caps, deltas, and epsilons or noise multipliers."""
    random = np.random.default_rng(31)
    plans = []
    for kind, by, adjacency, _ in itertools.product(
        ("independent", "optimal-cc", "nu"), ("epsilon", "noise"), ("zero_out", "replace_one"), range(12)
    ):
        rounds = int(random.choice([1, 2, 7, 64, 500, 2000]))
        separation = int(random.integers(1, rounds + 1))
        plan = {
            "kind": kind,
            "rounds": rounds,
            "separation": separation,
            "most": int(random.integers(1, -(-rounds // separation) + 1)),
            "delta": float(random.choice([1e-3, 1e-5, 1e-6, 1e-10])),
            "adjacency": adjacency,
            by: float(f"{np.exp(random.uniform(-3, 3)):.4g}"),
        }
        plans.append(plan | ({"nu": float(f"{random.uniform():.3g}")} if kind == "nu" else {}))
    return plans


def _priced(plan: dict[str, Any]) -> dict[str, str]:
    """What `fieldfare plan` says of the same plan."""
    mechanism = {"kind": plan["kind"]}
    if plan["kind"] != "independent":
        mechanism |= {"engine": "exact"} | ({"nu": plan["nu"]} if plan["kind"] == "nu" else {})
    promise = {"epsilon": plan["epsilon"]} if "epsilon" in plan else {"noise_multiplier": plan["noise"]}
    table = {
        "privacy": {"population": "p", "delta": plan["delta"], "adjacency": plan["adjacency"], **promise},
        "run": {"rounds": plan["rounds"], "cohort": 2},
        "participation": {
            "scheme": "min-separation",
            "separation": plan["separation"],
            "max_participations": plan["most"],
        },
        "mechanism": mechanism,
    }
    cost = ff.price(ff.Plan.parse(table))
    told = cost.to_json()
    values = (
        *(cost.noise_multiplier, cost.sensitivity, cost.loss.gdp, cost.epsilon),
        *(told["prefix_noise_max"], told["prefix_noise_rms"]),
    )
    return {name: decimal(value) for name, value in zip(SHOWN, values, strict=True)}


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_the_browsers_prices_are_the_accountants_to_the_last_digit_shown() -> None:
    plans = _grid()
    done = subprocess.run(
        [str(NODE), "-e", PROGRAM, str(DOCS / "what-if.js")],
        input=json.dumps(plans),
        capture_output=True,
        text=True,
        check=True,
    )
    for plan, shown in zip(plans, json.loads(done.stdout), strict=True):
        assert shown == _priced(plan), plan


def test_the_page_prices_as_one_types(tmp_path: Path) -> None:
    text = (DOCS / "what-if.md").read_text()
    for name in ("what-if.js", "site.css"):
        shutil.copy(DOCS / name, tmp_path)
    body = text[text.index("<noscript>") : text.index("</script>") + len("</script>")]
    (tmp_path / "page.html").write_text(
        f"<!doctype html><link rel=stylesheet href=site.css><h1 id=what-if>What if?</h1>{body}"
    )
    with chromium() as browser, new_page(browser) as page:
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto((tmp_path / "page.html").as_uri())
        page.locator("[name=value]").fill("4")
        page.locator("[name=kind]").select_option("independent")
        plan = {"kind": "independent", "rounds": 64, "separation": 16, "most": 4, "delta": 1e-5, "epsilon": 4.0}
        cells = page.locator("#plan-prices-answer td").all_inner_texts()
        assert cells[0] == _priced(plan | {"adjacency": "zero_out"})["noise"]
        page.locator("[name=rounds]").fill("0")
        assert page.locator("#plan-prices-answer").inner_text() == "rounds: a whole number from 1 to 20000."
        assert all(url.startswith("file:") for url in requests)
    with chromium() as browser, new_page(browser, java_script_enabled=False) as page:
        page.goto((tmp_path / "page.html").as_uri())
        assert "JavaScript, which is off" in page.content()
        assert not page.locator("form").is_visible()
