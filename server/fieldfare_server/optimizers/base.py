"""What every server optimizer offers: explicit state, `init` and `step`, nothing hidden.

A server optimizer post-processes the privatised update. It sees nothing else that was derived from users, so
it costs no privacy, whatever it does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from pydantic import Field

from fieldfare.lazily import torch
from fieldfare.plan import ServerOptimizerSpec
from fieldfare_server.optimizers.schedules import Constant, Schedule

Tensor: TypeAlias = "torch.Tensor"
# Named tensors (scalars are 0-d float64 or int64). The checkpoint saves and restores them bit for bit.
State: TypeAlias = "dict[str, Tensor]"


@dataclass(frozen=True)
class StepInfo:
    """What is public about a step. Rounds are counted from 0."""

    round: int
    rounds: int
    # Std per coordinate of the mechanism's noise in this round's `update`, 0 without noise. With several
    # queries: what it would be for a single query that had the whole share.
    noise_std: float
    # Autocovariance of the noise at lags 0, 1, ... at the end of the horizon, in units of noise_std^2, where known.
    noise_autocovariance: tuple[float, ...] = ()


class Points(NamedTuple):
    """What the clients of one round train from.

    A client trains from every point with the same batches, order and randomness. It forms sum_i weights[i] x
    (local model from points[i] - points[i]) and clips that once: one vector of norm at most the clip norm,
    whatever the weights.

    That is one query. Where a round asks several, `weights` holds one row of weights after another, and each
    query is combined, clipped and summed by itself. `shares` divides the round's privacy among them
    (`run.round.aggregation`). `batches` is the round whose order of batches and randomness is used (None:
    this one).
    """

    points: tuple[Tensor, ...]
    weights: tuple[float, ...]
    shares: tuple[float, ...] = (1.0,)
    batches: int | None = None


class ServerOptimizer(ServerOptimizerSpec, ABC):
    """The `[server_optimizer]` table of a plan, and what it does. One subclass a kind, in a file of its own.

    It is immutable; all that changes is in `State`.

    `update` is the privatised mean update: (sum of clipped updates + noise) / planned cohort size. It is an
    ascent direction (local model minus broadcast model), so plain SGD is params + learning_rate * update.
    """

    @property
    def queries(self) -> int:
        """How many clipped vectors of a user a round sums; `update` then holds as many means, one after another."""
        return 1

    @abstractmethod
    def init(self, params: Tensor) -> State:
        """State before round 0. `params`: flat float32 vector (d,)."""

    @abstractmethod
    def step(self, state: State, params: Tensor, update: Tensor, info: StepInfo) -> tuple[Tensor, State]:
        """Take one step; change none of the inputs.

        Args:
            params: float32 (d,).
            update: float32 (queries x d,).

        Returns:
            The new params and the new state.
        """

    def points(self, state: State, params: Tensor, info: StepInfo) -> Points:
        """Return what clients train from: `params` itself unless the optimizer looks ahead. Post-processing,
        like `step`.
        """
        return Points((params,), (1.0,))


class Stepped(ServerOptimizer):
    """An optimizer with a learning rate. (A wrapper such as DiSK leaves that to the optimizer it wraps.)"""

    learning_rate: float = Field(default=1.0, gt=0, description="of the server: factor on the mean update")
    schedule: Schedule = Field(default=Constant(), description="how the learning rate changes over the run")

    def rate(self, info: StepInfo) -> float:
        """Return the learning rate of this round."""
        return self.learning_rate * self.schedule.factor(info.round, info.rounds)
