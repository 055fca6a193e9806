"""What a run shows of the metrics that ride in its stream: private means over the last rounds, with their
intervals.

All of it is computed from noised sums whose round was charged, so it costs nothing (`fieldfare.metrics` has
the proof).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from fieldfare.cost import Cost
from fieldfare.lazily import torch
from fieldfare.metrics import MetricsSpec, window_norms
from fieldfare.plan import Plan
from fieldfare.questions import Estimate

# How the names of metrics begin among a round's statistics (`statistics_of`).
PREFIX = "metric."

# Of each of the last rounds: users in the sum, then the noised sum of each metric in [-1, 1].
Past = tuple[tuple[float, ...], ...]


class RiddenMetrics:
    """The metrics of one run. Without a `[metrics]` table there are none.

    Args:
        cost: None for a rehearsal, which adds no noise.
        std: standard deviation of z in the units of the noised sum.
    """

    def __init__(self, plan: Plan, cost: Cost | None, std: float) -> None:
        self._plan, self._spec, riders = plan, plan.metrics, plan.riders
        self.count = riders.metrics
        self._weights = np.array(riders.weights[riders.indicators :])
        self._window = 0 if self._spec is None else self._spec.rounds_of(plan.run.rounds)
        self._errors = np.zeros(plan.run.rounds)
        if self._spec is not None and cost is not None:
            self._errors = std * window_norms(cost.mechanism, plan.run.rounds, self._window)

    def add(self, past: Past, noised: torch.Tensor, reports: int) -> Past:
        """Return the newest rounds, one more included.

        Args:
            noised: what was released of the metrics' coordinates, float (k,).
            reports: users in the sum. Where that is secret, the planned cohort takes its place.
        """
        if self._spec is None:
            return ()
        users = self._plan.run.cohort if self._plan.presence_is_secret else reports
        row = (float(users), *(noised.double().numpy() / self._weights).tolist())
        return (*past, row)[-self._window :]

    def read(self, past: Past, index: int) -> dict[str, Estimate]:
        """Return the mean of each metric over the rounds of `past`, which end with round `index`.

        Each interval holds the mean over these rounds' reports, without noise, with probability 95 %.
        """
        if self._spec is None or not past:
            return {}
        users, *sums = np.sum(past, axis=0)
        if not users:
            return {}
        found = {}
        for name, total, weight in zip(self._spec.names, sums, self._weights, strict=True):
            low, high = self._spec.show[name]
            half = (high - low) / 2
            error = half * self._errors[index] / (weight * users)
            found[name] = Estimate.normal(name, low + half + half * float(total) / users, error, low, high)
        return found


def statistics_of(estimates: Mapping[str, Estimate], spec: MetricsSpec | None) -> dict[str, float]:
    """Return a run's metrics as a round's statistics.

    `.untold` is 1 where the interval holds the middle of the range, as for a metric that no client tells.
    """
    found: dict[str, float] = {}
    for name, each in estimates.items():
        ends = {"": each.value, ".low": each.low, ".high": each.high}
        found |= {f"{PREFIX}{name}{e}": float(v) for e, v in ends.items() if v is not None and math.isfinite(v)}
        if spec is not None and each.low is not None and each.high is not None:
            # Users without the metric stand in the middle. The released estimate is read and no reply:
            # whether a client told is users' data.
            low, high = spec.show[name]
            found |= {f"{PREFIX}{name}.untold": 1.0} if each.low <= low + (high - low) / 2 <= each.high else {}
    return found
