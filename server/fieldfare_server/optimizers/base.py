"""What every server optimizer offers: explicit state, `init` and `step`, nothing hidden.

A server optimizer is post-processing of the privatised update: it never sees anything else that was derived from
users, so it costs no privacy whatever it does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from pydantic import BaseModel, ConfigDict, Field

State = dict[str, torch.Tensor]
"""Named tensors (scalars are 0-d float64/int64): saved and restored bit for bit by the checkpoint."""


@dataclass(frozen=True)
class StepInfo:
    """What is public about this step. Rounds are counted from 0."""

    round: int
    rounds: int
    noise_std: float
    """Real std, per coordinate, of the mechanism's noise in `update` this round (0 without noise)."""
    noise_autocovariance: tuple[float, ...] = ()
    """Autocovariance of the noise at lags 0, 1, ... at the end of the horizon, in units of noise_std^2, where known."""


class OptimizerSpec(BaseModel):
    """The `[server_optimizer]` part of a plan. One subclass a kind, in the optimizer's own file."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: str
    learning_rate: float = Field(default=1.0, gt=0)

    def build(self) -> ServerOptimizer:
        raise TypeError(f"{type(self).__name__} names no optimizer")


class ServerOptimizer(ABC):
    """Final subclasses are immutable; all that changes is in `State`.

    `update` is the privatised mean update: (sum of clipped updates + noise) / planned cohort size, an ascent
    direction (local model minus broadcast model), so plain SGD is params + learning_rate * update.
    """

    kind: ClassVar[str]
    queries: ClassVar[int] = 1
    """How many points the clients train from (2: two-point mode; combined before clipping)."""

    @abstractmethod
    def init(self, params: torch.Tensor) -> State:
        """State before round 0. `params`: flat float32 vector (d,)."""

    @abstractmethod
    def step(
        self, state: State, params: torch.Tensor, update: torch.Tensor, info: StepInfo
    ) -> tuple[torch.Tensor, State]:
        """(new params, new state); neither input is modified."""

    def broadcast(self, state: State, params: torch.Tensor, info: StepInfo) -> torch.Tensor:
        """The point that clients train from; `params` itself unless the optimizer looks ahead."""
        return params
