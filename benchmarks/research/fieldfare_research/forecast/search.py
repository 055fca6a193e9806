"""The search behind a forecast: clip norms, steps, decay powers and cohorts, by the theory of clipped regression."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfare.cost import Cost
from fieldfare.costing import cost_of
from fieldfare.errors import BadInput
from fieldfare.participation import BMinSep
from fieldfare.plan import Plan
from fieldfare_research.forecast.clipped_regression import ClippedRegression

MOST_ROUNDS = 4096
"""Longest plan that is forecast: the search needs a row of B for every round."""

POWERS = (0.0, 0.5, 1.0, 2.0)
"""Decay powers that are compared; larger ones pay only for far more users than directions."""


@dataclass(frozen=True)
class Assumed:
    """What the caller believes about the task; nothing is measured.

    Args:
        effective_dimension: trace over largest eigenvalue of the updates' covariance, at most the number of parameters.
        signal_to_noise: a typical squared update at the start over one at the best model.
        condition: largest over smallest curvature among the directions that matter.

    Raises:
        BadInput: a value is too small or not finite.
    """

    effective_dimension: float
    signal_to_noise: float = 11.0
    condition: float = 1.0

    def __post_init__(self) -> None:
        for name, least in (("effective_dimension", 1.0), ("signal_to_noise", 1e-3), ("condition", 1.0)):
            value = getattr(self, name)
            if not least <= value < math.inf:
                raise BadInput(f"{name} = {value}", f"must be at least {least}.", str(least))

    def problem(self, visits: int) -> ClippedRegression:
        """The regression that stands in for the task: initial excess risk 1/2, two equally frequent eigenvalues with
        mean 1."""
        low = 2.0 / (1.0 + self.condition)
        spectrum = (1.0,) if self.condition == 1.0 else (low, low * self.condition)
        label_noise = math.sqrt(1.0 / self.signal_to_noise)
        return ClippedRegression(self.effective_dimension / visits, label_noise, 0.5, spectrum)


@dataclass(frozen=True)
class Setting:
    """A point of the search, and the excess risk (start: 0.5) that is forecast for it.

    `clip_ratio`: clip norm over the root mean square update norm at the start. `progress`: the share of the way to
    the optimum, along a direction of mean curvature, that one unclipped round would go. `power`: (1 - t/T)^power.
    """

    clip_ratio: float
    progress: float
    power: float
    risk: float
    clip_at_limit: bool = False
    """Whether the search looked at no smaller, or no larger, clip norm; so with `progress_at_limit`."""
    progress_at_limit: bool = False


@dataclass(frozen=True)
class CohortOption:
    """The same users' visits in fewer, larger or more, smaller rounds, at the same epsilon."""

    cohort: int
    rounds: int
    noise_multiplier: float
    risk: float


def noise_per_clip(cost: Cost) -> float:
    """Std of z in units of the clipped update's largest norm."""
    return cost.noise_multiplier * cost.plan.riders.joint_bound / cost.plan.clipping.bound


def best_settings(problem: ClippedRegression, noise: float, noising: NDArray[np.float64]) -> tuple[Setting, ...]:
    """The best setting at each of `POWERS`, over a grid of clip norms and steps.

    Args:
        noise: std of z in clip norms.
        noising: B, (rounds, columns of z).
    """
    clips = np.geomspace(0.02, 5.0, 12)[:, None]
    steps = np.geomspace(0.05, min(problem.largest_step, 400.0) * (1 - 1e-12), 14)[None, :]
    initial_norm = math.sqrt(2.0 * problem.initial_risk + problem.label_noise**2)
    settings = []
    for power in POWERS:
        risk = problem.rounds(steps, clips, power, noise, noising)
        row, column = np.unravel_index(int(np.argmin(risk)), risk.shape)
        clip, step = float(clips[row, 0]), float(steps[0, column])
        ends = (row in (0, len(clips) - 1), column in (0, steps.size - 1))
        settings.append(Setting(clip / initial_norm, step / noising.shape[0], power, float(risk[row, column]), *ends))
    return tuple(settings)


def stretch_cohort(cost: Cost, assumed: Assumed, factor: float) -> CohortOption | None:
    """The plan with `factor` times its cohort and 1 / factor of its rounds; None where its participation forbids it."""
    plan = cost.plan
    rounds, cohort = round(plan.run.rounds / factor), round(plan.run.cohort * factor)
    if rounds < 1 or cohort < 1 or rounds > MOST_ROUNDS:
        return None

    def stretched(value: int | None) -> int | None:
        return None if value is None else max(1, math.ceil(value / factor))

    scheme = plan.participation
    table = plan.model_dump(mode="json", exclude_none=True)
    table["run"] |= {"rounds": rounds, "cohort": cohort, "min_reports": None}
    table["participation"] |= {"separation": stretched(scheme.separation), "period": stretched(scheme.period)}
    if scheme.bins is not None:
        table["participation"]["bins"] = stretched(scheme.bins)
    if scheme.cap is not None:
        table["participation"]["cap"] = math.ceil(scheme.cap * factor)
    if scheme.scheme == "b-min-sep":
        table["participation"] |= asdict(BMinSep(scheme.separation or 1, scheme.rate or 1.0).shortened(factor))
    elif scheme.rate is not None:
        table["participation"]["rate"] = scheme.rate * factor
    other = at_equal_epsilon(cost, table)
    if other is None:
        return None
    settings = best_settings(
        assumed.problem(rounds * cohort), noise_per_clip(other), other.mechanism.noising_matrix(rounds)
    )
    return CohortOption(cohort, rounds, other.noise_multiplier, min(setting.risk for setting in settings))


def at_equal_epsilon(cost: Cost, table: dict[str, Any]) -> Cost | None:
    """The plan `table` at the epsilon of `cost`, also where it fixes the multiplier; None where it is refused."""
    table["privacy"] |= {"epsilon": cost.epsilon, "noise_multiplier": None}
    try:
        return cost_of(Plan.parse(table))
    except BadInput:
        return None
