"""What score a plan may be expected to reach: what the same plan has reached, at less noise and at more.

Nothing is modelled. A score is expected only between two released ones: of ended runs of the same people whose plans
are this one in everything but what they pay, one at no more epsilon and one at no less. Where there are none, no score
is expected. It is made of released scores alone, so it costs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from fieldfare.plan import RUN_KEYS, Plan
from fieldfare_server.ledger.views import RunView
from fieldfare_server.planning.bound import Expected

SAME: Final = 1e-3
"""Epsilons that differ by less, relatively, are one: a plan that names its noise costs what another names."""
PAYS: Final = ("epsilon", "noise_multiplier")
NAMES: Final = ("name", "tags")


def expected_score(plan: Plan, epsilon: float, ended: Iterable[tuple[RunView, Mapping[str, Any]]]) -> Expected | None:
    """What `plan`, which costs `epsilon`, may be expected to reach; None where no two runs have it between them.

    ended: runs of the same population that committed all their rounds, and what each released with the last of them.
    """
    wanted = _but_for_noise(json.loads(plan.to_json()))
    alike = [
        (run.planned_epsilon, float(last["score"]), str(last.get("score_name")), run.id)
        for run, last in ended
        if isinstance(last.get("score"), float) and _but_for_noise(run.plan) == wanted
    ]
    below = [each for each, *_ in alike if each <= epsilon * (1 + SAME)]
    above = [each for each, *_ in alike if each >= epsilon * (1 - SAME)]
    if not below or not above:
        return None
    low, high = max(below) * (1 - SAME), min(above) * (1 + SAME)
    around = [(score, name, run) for each, score, name, run in alike if low <= each <= high]
    scores, names, runs = zip(*around, strict=True)
    if len(set(names)) != 1:
        return None
    return Expected(name=names[0], lowest_score=min(scores), highest_score=max(scores), runs=tuple(sorted(runs)))


def _but_for_noise(table: Mapping[str, Any]) -> dict[str, Any]:
    """A plan's tables without what it pays, and without names."""
    kept = {key: value for key, value in table.items() if key not in RUN_KEYS}
    for name, left_out in (("privacy", PAYS), ("run", NAMES)):
        kept[name] = {key: value for key, value in kept.get(name, {}).items() if key not in left_out}
    return kept
