"""What another plan would cost: a run's plan with other rounds, cohort, mechanism or clip norm. Touches no
data.

| a plan that a Monte Carlo certifies | priced by |
|---|---|
| balls in bins, up to `CERTIFIED_BINS` and `CERTIFIED_ROUNDS` | a certificate of fewer samples: a little more noise |
| b-min-sep and banded random allocation, up to `CHAINED_ROUNDS` | the same |
| other ones | the charge without amplification, which is an upper bound |

Every other plan is priced as a run is charged. `WhatIfCost.bound` says which it was. Prices are kept, so that
the same question is answered at once.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from fieldfare.cost import Cost
from fieldfare.costing import cost_of, cost_without_amplification
from fieldfare.errors import NotNow, Refused, TooLarge
from fieldfare.names import RESOLUTION
from fieldfare.participation import BMinSep
from fieldfare.plan import RUN_KEYS, Plan
from fieldfare_server.ledger.reads import Reader
from fieldfare_server.planning.admission import Admission, admit
from fieldfare_server.planning.bound import Bound
from fieldfare_server.run.pricing import resolution_of
from fieldfare_server.run.signal import require_signal

# Most rounds for which a request may search for a strategy: a few seconds. The command line has no such limit.
LONGEST = {"dense": 256, "momentum-tree": 256, "banded": 2048, "banded-inverse": 2048, "fft": 2048, "optimal-cc": 4096}
LONGEST_OF_OTHERS = 20_000

CERTIFIED_BINS: Final = 16
# Most bins and rounds for which a request draws a certificate: about ten seconds of processor, on two threads.
CERTIFIED_ROUNDS: Final = 256
CHAINED_ROUNDS: Final = 16
"""Most rounds for which it does for b-min-sep and banded random allocation, whose samples take time for each
round. The bounds of `importance`, without samples, leave 1.8 times a run's noise at the demo's plan."""
SAMPLES: Final = (1 << 21, 1 << 19)
"""Of such a certificate: half of a run's for removing a user. At the demo's plan that is .25 % more noise.
Fewer would not reach the leak that one run of a population may take."""

MOST_BANDS: Final = 16  # of a plan that a request turns into a banded one

UNJUDGED: Final = (
    "Not judged, as no row tells the model's size: whether noise drowns the signal. `fieldfare plan` does."
)
_KEPT = 64
# The newest prices by digest of the plan and resolution. Written under `_ONE`.
_PRICES: dict[tuple[str, float], tuple[Cost, Bound]] = {}
_ONE = threading.Lock()  # pricing computes for seconds, so a service does one at a time


@dataclass(frozen=True)
class WhatIfCost:
    """What the changed plan costs, and whether its population would admit it now."""

    cost: Cost
    admission: Admission | None  # None: it would be refused
    refusal: str  # why; or what was not judged of a plan that fits
    nearest: str
    # How the cost was computed. Any other way than "as charged" gives more than a run of this plan costs.
    bound: Bound = "as charged"

    @property
    def fits(self) -> bool:
        """Whether the population would admit it now, and its users can fill its rounds."""
        return self.admission is not None

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise in a coordinate of one round's mean update."""
        plan = self.cost.plan
        norm = float(np.max(self.cost.mechanism.row_norms())) * plan.aggregation.widening
        return self.cost.noise_multiplier * plan.riders.joint_bound * norm / plan.run.cohort

    @property
    def prefix_noise(self) -> float:
        """Root mean square, over rounds, of the noise in a coordinate of the sum of all mean updates so far."""
        plan = self.cost.plan
        return self.cost.prefix_noise_rms * plan.riders.joint_bound / plan.run.cohort


def what_if(stored: Mapping[str, Any], changes: Mapping[str, Any], ledger: Reader) -> WhatIfCost:
    """Price `stored`, the plan of a run as the ledger keeps it, with `changes`.

    Args:
        stored: a plan, with the resolution that its model needs.
        changes: any of rounds, cohort, mechanism (a kind), clip (a norm), epsilon.
        ledger: where its population is.

    Raises:
        BadInput: the changed plan is impossible, takes too long to price here, or another is being priced.
    """
    table = changed(stored, changes)
    table["privacy"].setdefault("rounding", "none")  # which a stored plan leaves out, as plans of before the key do
    plan = Plan.parse({key: value for key, value in table.items() if key not in RUN_KEYS})
    longest = LONGEST.get(plan.mechanism.kind, LONGEST_OF_OTHERS)
    if plan.run.rounds > longest:
        why = f"pricing {plan.mechanism.kind!r} over so many rounds takes too long for a request."
        raise TooLarge(f"run.rounds = {plan.run.rounds}", why, f"{longest}, or `fieldfare plan`")
    # Also what it is judged by: the nearest plan that users can fill is priced anew at each refusal.
    if not _ONE.acquire(timeout=0.5):
        raise NotNow("this plan", "another one is being priced.", "ask again in a moment")
    try:
        resolution, before = float(stored.get(RESOLUTION, 0.0)), Plan.stored(stored)
        cost, bound = _priced(plan, resolution)
        numel, other = 1, plan.digest() != before.digest()
        if resolution and not plan.draws_its_price and other:
            # More rounds leave more open of the same model, whose size follows from what its run was charged.
            charged = resolution_of(_priced(before, resolution)[0])
            while charged(numel) < resolution and numel < 2**40:  # more than any model has
                numel = math.ceil(1.02 * numel)
            cost, bound = _priced(plan, resolution_of(cost)(numel) * (1 + 2.0**-9))
        try:
            made = admit(plan, cost, ledger)
            # An app of Flower's own is warned of noise above its signal, and not refused.
            require_signal(cost, round(numel / 1.02), accepted=not plan.run.task)
            unjudged = other and numel == 1 and plan.run.task and not plan.run.accept_noise
            return WhatIfCost(cost, made, UNJUDGED if unjudged else "", "", bound)
        except Refused as refused:
            return WhatIfCost(cost, None, refused.why, refused.nearest, bound)
    finally:
        _ONE.release()


def _priced(plan: Plan, resolution: float) -> tuple[Cost, Bound]:
    key = (plan.digest(), resolution)
    if key not in _PRICES:
        found = _price(plan, resolution)
        while len(_PRICES) >= _KEPT:
            del _PRICES[next(iter(_PRICES))]
        _PRICES[key] = found
    return _PRICES[key]


def _price(plan: Plan, resolution: float) -> tuple[Cost, Bound]:
    if not plan.draws_its_price:
        return cost_of(plan, resolution=resolution), "as charged"
    if plan.participation.scheme == "balls-in-bins":  # its samples do not grow with the rounds
        quick = (plan.participation.bins or 1) <= CERTIFIED_BINS and plan.run.rounds <= CERTIFIED_ROUNDS
    else:
        quick = plan.run.rounds <= CHAINED_ROUNDS
    if quick:
        return cost_of(plan, resolution=resolution, samples=SAMPLES), "certified with fewer samples"
    return cost_without_amplification(plan, resolution), "without amplification"


def changed(plan: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan's tables with other rounds, cohort, mechanism, clip or epsilon, and what follows from them.

    The samplers' rates follow the cohort.
    """
    table = {key: dict(value) if isinstance(value, Mapping) else value for key, value in plan.items()}
    run, privacy, participation = table["run"], table["privacy"], table.setdefault("participation", {})
    cohort = changes.get("cohort")
    if cohort is not None:
        factor = cohort / run["cohort"]
        if participation.get("scheme") == "b-min-sep":
            shorter = BMinSep(participation["separation"], participation["rate"]).shortened(factor)
            participation |= asdict(shorter)
        elif participation.get("rate") is not None:  # a Poisson cohort is rate x users
            participation["rate"] *= factor
        if participation.get("cap") is not None:
            participation["cap"] = math.ceil(participation["cap"] * factor)
        if participation.get("bins") is not None:  # and users / bins where each user draws one
            participation["bins"] = max(1, round(participation["bins"] / factor))
        # The fewest reports are a share of the cohort; a plan that names them keeps the share.
        if run.get("min_reports") is not None:
            run["min_reports"] = max(1, run["min_reports"] * cohort // run["cohort"])
        run["cohort"] = cohort
    if changes.get("rounds") is not None:
        run["rounds"] = changes["rounds"]
    if changes.get("mechanism") is not None and changes["mechanism"] != table["mechanism"].get("kind"):
        table["mechanism"] = {"kind": changes["mechanism"]}
        if changes["mechanism"] in ("banded", "banded-inverse"):  # their one value without a default
            table["mechanism"]["bands"] = _bands(table)
    if changes.get("clip") is not None:
        table["clipping"] = {**table.get("clipping", {"kind": "flat"}), "norm": changes["clip"]}
    if changes.get("epsilon") is not None:
        privacy.pop("noise_multiplier", None)
        privacy["epsilon"] = changes["epsilon"]
    return {name: value for name, value in table.items() if value is not None}


def _bands(table: Mapping[str, Any]) -> int:
    """Take as many bands as rounds between two participations of a user, where that is few: more would cost more."""
    way = table["participation"]
    apart = way.get("separation") or way.get("period") or way.get("bins") or way.get("groups") or 1
    return max(1, min(MOST_BANDS, int(apart), int(table["run"]["rounds"])))
