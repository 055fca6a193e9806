"""What a plan is likely to achieve, and how to set it: from the plan and a few stated guesses, without any data.

Two exact theories, both of regression, stand in for the task. Clipped private regression (Bombari et al. 2025) weighs
clip norm, step and decay against the noise. Noisy gradient descent on a quadratic (Choquette-Choo et al. 2024, section
5.1) sets nu. The filter theory of DiSK sets kappa for the mechanism's noise. A forecast helps to choose among plans
before any budget is spent. It is not a promise: every suggestion names what it rests on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fieldfare.cost import Cost
from fieldfare.errors import OutOfRange
from fieldfare_research.forecast import search
from fieldfare_research.forecast.search import MOST_ROUNDS, Assumed, CohortOption, Setting
from fieldfare_research.forecast.suggestions import Suggestion, suggest


@dataclass(frozen=True)
class Forecast:
    """What a plan is likely to achieve.

    `best` is the best setting of the search, `by_power` the best at each decay power, and `noiseless` the best excess
    risk without any privacy noise. `gamma` is effective dimension over visits.
    """

    assumed: Assumed
    visits: int
    gamma: float
    best: Setting
    by_power: tuple[Setting, ...]
    noiseless: float
    cohorts: tuple[CohortOption, ...]
    suggestions: tuple[Suggestion, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `fieldfare forecast --json`."""
        return asdict(self)


def predict(cost: Cost, assumed: Assumed, cohorts: Sequence[float] = ()) -> Forecast:
    """Forecast a calibrated plan.

    Deterministic. Takes seconds at most, unless `cohorts` rebuilds a mechanism that is optimised numerically.

    Args:
        cohorts: factors on the planned cohort, to compare at equal visits and equal epsilon.

    Raises:
        BadInput: the plan has more than 4096 rounds.
    """
    rounds, cohort = cost.plan.run.rounds, cost.plan.run.cohort
    if rounds > MOST_ROUNDS:
        raise OutOfRange(f"run.rounds = {rounds}", "forecasts look at every round's noise.", str(MOST_ROUNDS))
    problem = assumed.problem(rounds * cohort)
    settings = search.best_settings(problem, search.noise_per_clip(cost), cost.mechanism.noising_matrix(rounds))
    # Noise of size 0 needs no correlations: one column stands for the whole matrix.
    noiseless = search.best_settings(problem, 0.0, np.eye(rounds)[:, :1])
    best = min(settings, key=lambda setting: setting.risk)
    stretched = (search.stretch_cohort(cost, assumed, factor) for factor in cohorts)
    options = tuple(option for option in stretched if option is not None)
    return Forecast(
        assumed=assumed,
        visits=rounds * cohort,
        gamma=problem.gamma,
        best=best,
        by_power=settings,
        noiseless=min(setting.risk for setting in noiseless),
        cohorts=options,
        suggestions=suggest(cost, problem, best, options),
    )
