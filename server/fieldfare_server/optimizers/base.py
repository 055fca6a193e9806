"""What every server optimizer offers: explicit state, `init` and `step`, nothing hidden.

A server optimizer is post-processing of the privatised update: it never sees anything else that was derived from
users, so it costs no privacy whatever it does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from pydantic import Field

from fieldfare.plan import ServerOptimizerSpec
from fieldfare_server.optimizers.schedules import Constant, Schedule

State = dict[str, torch.Tensor]
"""Named tensors (scalars are 0-d float64/int64): saved and restored bit for bit by the checkpoint."""


@dataclass(frozen=True)
class StepInfo:
    """What is public about this step. Rounds are counted from 0."""

    round: int
    rounds: int
    noise_std: float
    """Real std, per coordinate, of the mechanism's noise in `update` this round (0 without noise); with several
    queries, what the noise of one that had the whole share would be."""
    noise_autocovariance: tuple[float, ...] = ()
    """Autocovariance of the noise at lags 0, 1, ... at the end of the horizon, in units of noise_std^2, where known."""


class OptimizerSpec(ServerOptimizerSpec):
    """The `[server_optimizer]` part of a plan. One subclass a kind, in the optimizer's own file."""

    def build(self) -> ServerOptimizer:
        raise TypeError(f"{type(self).__name__} names no optimizer")


class SteppedSpec(OptimizerSpec):
    """An optimizer with a learning rate of its own (DiSK has its base optimizer's)."""

    learning_rate: float = Field(default=1.0, gt=0)
    schedule: Schedule = Constant()

    def rate(self, info: StepInfo) -> float:
        """The learning rate of this round."""
        return self.learning_rate * self.schedule.factor(info.round, info.rounds)


class Points(NamedTuple):
    """What the clients of one round train from.

    A client trains from every point with the same batches in the same order and the same randomness, forms
    sum_i weights[i] x (local model from points[i] - points[i]), and clips that once: one vector of norm at most the
    clip norm, whatever the weights.

    That is one query. A round may ask several: `weights` then holds one row after another, and each is combined,
    clipped and summed by itself. `shares` says how the round's privacy is divided among them (see `aggregation`).
    `batches`: the round whose order of batches and randomness is used (None: this one).
    """

    points: tuple[torch.Tensor, ...]
    weights: tuple[float, ...]
    shares: tuple[float, ...] = (1.0,)
    batches: int | None = None


class ServerOptimizer(ABC):
    """Final subclasses are immutable; all that changes is in `State`.

    `update` is the privatised mean update: (sum of clipped updates + noise) / planned cohort size, an ascent
    direction (local model minus broadcast model), so plain SGD is params + learning_rate * update.
    """

    @property
    def queries(self) -> int:
        """How many clipped vectors of a user a round sums: `update` is as many means, one after another."""
        return 1

    @abstractmethod
    def init(self, params: torch.Tensor) -> State:
        """State before round 0. `params`: flat float32 vector (d,)."""

    @abstractmethod
    def step(
        self, state: State, params: torch.Tensor, update: torch.Tensor, info: StepInfo
    ) -> tuple[torch.Tensor, State]:
        """(new params, new state); neither input is modified."""

    def points(self, state: State, params: torch.Tensor, info: StepInfo) -> Points:
        """What clients train from: `params` itself unless the optimizer looks ahead. Post-processing, like `step`."""
        return Points((params,), (1.0,))
