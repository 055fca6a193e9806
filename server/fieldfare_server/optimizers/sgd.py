"""Stochastic gradient ascent on the privatised update, with heavy-ball or Nesterov momentum."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from fieldfare.lazily import torch
from fieldfare_server.optimizers.base import State, StepInfo, Stepped, Tensor
from fieldfare_server.optimizers.registry import register


@register
class SGD(Stepped):
    """m <- momentum m + u;  x <- (1 - lr wd) x + lr m, or lr (u + momentum m) with Nesterov.

    With momentum 0 this is FedAvg's x + lr u (McMahan et al. 2017); with momentum FedAvgM (Hsu et al. 2019),
    where m is not scaled by 1 - momentum. State: `momentum` float32 (d,), absent without momentum.
    """

    kind: Literal["sgd"] = "sgd"
    momentum: float = Field(default=0.0, ge=0, lt=1, description="share of the last step that is kept")
    nesterov: bool = Field(default=False, description="look ahead along the momentum")
    weight_decay: float = Field(default=0.0, ge=0, description="decoupled: params shrink by learning_rate x this")

    @model_validator(mode="after")
    def _nesterov_has_momentum(self) -> Self:
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs momentum above 0")
        return self

    def init(self, params: Tensor) -> State:
        return {"momentum": torch.zeros_like(params)} if self.momentum else {}

    def step(self, state: State, params: Tensor, update: Tensor, info: StepInfo) -> tuple[Tensor, State]:
        rate, new = self.rate(info), {}
        direction = update
        if self.momentum:
            new["momentum"] = direction = state["momentum"] * self.momentum + update
            if self.nesterov:
                direction = update + direction * self.momentum
        shrunk = params * (1.0 - rate * self.weight_decay) if self.weight_decay else params
        return (direction * rate).add_(shrunk), new
