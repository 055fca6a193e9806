"""What the figures of a price that was asked for are, and what score may be expected for it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

# A run's own charge; or, where a Monte Carlo certifies it, more than that: see `what_if`.
Bound = Literal["as charged", "certified with fewer samples", "without amplification"]


class Expected(BaseModel):
    """What the same plan has reached at the nearest epsilons below and above: released scores, no bound, no promise."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(description="what the score measures", examples=["auc"])
    lowest_score: float = Field(description="the lowest released score of those runs", examples=[0.681])
    highest_score: float = Field(description="the highest", examples=[0.686])
    runs: tuple[str, ...] = Field(description="ended runs of this population whose plans differ in what they pay alone")
