"""Searches for the noise of the shipped plans whose search takes longest, so that `fieldfare plan` shows them at once.

    python deploy/supply/shipped_prices.py      # two minutes of processor

A preview of a plan is the same everywhere: its samples come from a public seed. A run is charged with what its own
search and its own seed give, and reads nothing of what this writes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fieldfare.costing import cost_of, cost_with_resolution
from fieldfare.plan import Plan
from fieldfare.schema import Schema
from fieldfare.task import load_task
from fieldfare_server.files.plan_file import read_plan
from fieldfare_server.run.pricing import SHIPPED, most_users, numbers_released, priced_as

PLANS = Path(__file__).parents[1] / "plans"
SLOW = ("flights-allocated", "flights-binned", "flights-spaced", "gboard-blt")
"""Plans whose search takes more than a tenth of a second of processor."""


def found(plan: Plan) -> Iterator[tuple[str, dict[str, Any]]]:
    """Search with the plan's model and, as where PyTorch is missing, without one."""
    schema = Schema.of(load_task(plan.task_reference).build_model())
    for sums in ((plan.riders.joint_bound, numbers_released(plan, schema), most_users(plan)), None):
        decided: dict[str, bytes] = {}
        cost = cost_of(plan, decided) if sums is None else cost_with_resolution(plan, decided, *sums)
        yield (
            priced_as(plan, sums),
            {
                "entries": {name: base64.b64encode(value).decode() for name, value in decided.items()},
                "price": cost.stored_price.to_json(),
                "resolution": cost.resolution,
            },
        )


def main() -> None:
    """Write what was found for all slow plans."""
    all_of = {key: entry for name in SLOW for key, entry in found(read_plan(PLANS / f"{name}.toml"))}
    SHIPPED.write_text(json.dumps(all_of, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
