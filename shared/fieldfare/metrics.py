"""Metrics that ride in the training stream: numbers of users, noised with the update and charged with it.

In each round a user sends (clip(v), C w_1 e_1, ..., C w_k e_k): v is the update, C its bound, e_i a metric of
the user in [-1, 1] (cut to public bounds and centred), and w_i > 0 its public weight. These d + k numbers are
one row of the stream that a mechanism noises.

*Privacy.* One user's row has norm at most C sqrt(1 + sum w_i^2), whatever the user's data are, and zero stays
zero. Only the norm of a row enters a mechanism's sensitivity, under every participation, sampler and
adjacency, and its proof covers rows that depend on earlier releases. So with noise that is wider by s =
sqrt(1 + sum w_i^2) a run has exactly the price of the run without metrics. `Riders.joint_bound` is that norm;
adaptive clipping's indicator is one more w.

*Estimate.* With P the released prefix sums of one metric's coordinate, (P_t - P_(t-h)) / (C w N) is the mean
of e over the N reports of the rounds t-h+1 .. t, with normal noise of standard deviation sigma ||row t of AB
- row t-h of AB|| / (C w N): correlated noise cancels within the window, as it does in the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Final, Self

import numpy as np
from pydantic import Field, StringConstraints, model_validator

from fieldfare.arrays import Floats
from fieldfare.clipping import ClippingSpec
from fieldfare.errors import Conflict, OutOfRange, Unknown
from fieldfare.registry import ROUNDS, Table

if TYPE_CHECKING:
    from fieldfare.mechanisms.base import Mechanism

# Rounds of a run with metrics: what a window's noise is follows from a square matrix of them.
MOST_ROUNDS: Final = 2048
_WINDOW, _ROWS = 16, 64
MetricName = Annotated[str, StringConstraints(min_length=1, max_length=40, pattern=r"^[A-Za-z0-9_-]+$")]


class MetricsSpec(Table):
    """`[metrics]`: users' numbers that ride in the stream, and are shown as private means over the last rounds."""

    show: dict[MetricName, tuple[float, float]] = Field(
        min_length=1,
        max_length=16,
        description="each metric with its public bounds, such as correct = [0, 1]: what the task measures, or an entry "
        "of a Flower reply's MetricRecord",
    )
    weight: float = Field(
        default=0.1, gt=0, le=1, description="w of each: more weight is a finer metric and more noise on the model"
    )
    window: int | None = Field(
        default=None, ge=1, description="rounds of the moving mean; 16 if left out", json_schema_extra=ROUNDS
    )
    rows: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="of a task: at most so many of a user's rows are measured, the first ones; 64 if left out",
        json_schema_extra={"unit": "rows"},
    )
    evaluate: bool | None = Field(
        default=None,
        description="of a Flower app: each user of a round also evaluates the model that the round sends, by its own "
        "`@app.evaluate`, and the metrics are entries of that reply; false if left out",
    )

    @model_validator(mode="after")
    def _are_ranges(self) -> Self:
        for name, (low, high) in self.show.items():
            if not 0 < (high - low) / 2 < math.inf:
                raise OutOfRange(f"metrics.show.{name} = [{low:g}, {high:g}]", "is not a range.", "[0, 1]")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """In the order in which they ride."""
        return tuple(sorted(self.show))

    @property
    def bounds(self) -> Floats:
        """Least and largest value of each, in the order of `names`, shape (k, 2)."""
        return np.array([self.show[name] for name in self.names])

    @property
    def most_rows(self) -> int:
        """Rows of a user that a task measures."""
        return _ROWS if self.rows is None else self.rows

    def rounds_of(self, rounds: int) -> int:
        """Return the rounds of the moving mean in a run of `rounds`."""
        return min(_WINDOW, rounds) if self.window is None else self.window

    def centred(self, values: Floats) -> Floats:
        """Return each value cut to its bounds and mapped to [-1, 1], 0 for what is not a finite number; shape
        (..., k).
        """
        middle, half = self._ranges
        with np.errstate(all="ignore"):
            scaled = np.clip((values - middle) / half, -1.0, 1.0)
        return np.where(np.isfinite(values), scaled, 0.0)

    @cached_property
    def _ranges(self) -> tuple[Floats, Floats]:
        """The middle of each metric's range, and half of its width. Every round asks for them."""
        low, high = self.bounds.T
        return low + (high - low) / 2, (high - low) / 2

    def require(self, task: str, measures: Sequence[str]) -> None:
        """Raise `BadInput` where `task`, which has these measures, lacks one."""
        if self.evaluate:
            raise Conflict("metrics.evaluate", f"task {task!r} measures by itself.", "leave it out")
        for name in self.names:
            if name not in measures:
                raise Unknown(f"metrics.show.{name}", f"task {task!r} has no such measure.", ", ".join(measures))

    def check(self, rounds: int) -> None:
        """Raise `BadInput` where a run of `rounds` cannot show them."""
        if rounds > MOST_ROUNDS:
            raise OutOfRange(f"run.rounds = {rounds} with [metrics]", "is too long for them.", str(MOST_ROUNDS))
        if self.window is not None and self.window > rounds:
            raise OutOfRange(f"metrics.window = {self.window}", "is longer than the run.", str(rounds))


@dataclass(frozen=True)
class Riders:
    """What rides beside a user's update in the noised vector: the clipping's indicator, then the metrics.

    Args:
        weights: what multiplies each user's number, in the units of the update.
        indicators: how many of them, the first ones, lie in [0, 1]; the others in [-1, 1].
        joint_bound: the largest L2 norm of a user's whole contribution: the "clip" of noise multiplier x
            clip.
    """

    weights: tuple[float, ...] = ()
    indicators: int = 0
    joint_bound: float = 0.0

    @classmethod
    def of(cls, clipping: ClippingSpec, metrics: MetricsSpec | None) -> Self:
        """Return the riders of a plan."""
        own = (clipping.indicator_weight,) * clipping.counts
        more = () if metrics is None else (clipping.bound * metrics.weight,) * len(metrics.show)
        bound = math.hypot(clipping.joint_bound, *more)
        return cls(own + more, len(own), bound)

    @property
    def metrics(self) -> int:
        """How many of them are metrics."""
        return len(self.weights) - self.indicators


NO_RIDERS: Final = Riders()


def window_norms(mechanism: Mechanism, rounds: int, window: int) -> Floats:
    """Return ||row t of AB - row t-h of AB|| for h = min(window, t + 1), shape (rounds,): noise of windows,
    for sigma = 1.
    """
    prefixes = np.cumsum(mechanism.noising_matrix(rounds), axis=0)
    prefixes[window:] -= prefixes[:-window].copy()
    norms: Floats = np.linalg.norm(prefixes, axis=1)
    return norms
