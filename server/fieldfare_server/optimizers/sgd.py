"""Stochastic gradient ascent on the privatised update, with heavy-ball or Nesterov momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from fieldfare.lazily import torch
from fieldfare_server.optimizers.base import ServerOptimizer, State, StepInfo, SteppedSpec
from fieldfare_server.optimizers.registry import register

if TYPE_CHECKING:
    from torch import Tensor


@register
class SGDSpec(SteppedSpec):
    """`kind = "sgd"`."""

    kind: Literal["sgd"] = "sgd"
    momentum: float = Field(default=0.0, ge=0, lt=1, description="share of the last step that is kept")
    nesterov: bool = Field(default=False, description="look ahead along the momentum")
    weight_decay: float = Field(default=0.0, ge=0, description="decoupled: params shrink by learning_rate x this")

    @model_validator(mode="after")
    def _nesterov_has_momentum(self) -> Self:
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs momentum above 0")
        return self

    def build(self) -> SGD:
        return SGD(self)


@dataclass(frozen=True)
class SGD(ServerOptimizer):
    """m <- momentum m + u;  x <- (1 - lr wd) x + lr m, or lr (u + momentum m) with Nesterov.

    With momentum 0 this is FedAvg's x + lr u (McMahan et al. 2017); with momentum FedAvgM (Hsu et al. 2019),
    where m is not scaled by 1 - momentum. State: `momentum` float32 (d,), absent without momentum.
    """

    spec: SGDSpec

    def init(self, params: Tensor) -> State:
        return {"momentum": torch.zeros_like(params)} if self.spec.momentum else {}

    def step(self, state: State, params: Tensor, update: Tensor, info: StepInfo) -> tuple[Tensor, State]:
        rate, new = self.spec.rate(info), {}
        direction = update
        if self.spec.momentum:
            new["momentum"] = direction = state["momentum"] * self.spec.momentum + update
            if self.spec.nesterov:
                direction = update + direction * self.spec.momentum
        shrunk = params * (1.0 - rate * self.spec.weight_decay) if self.spec.weight_decay else params
        return (direction * rate).add_(shrunk), new
