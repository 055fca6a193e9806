"""Normalised momentum (Tran and Cutkosky 2022, Algorithm 1): every step has length `learning_rate`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fieldfare.lazily import torch
from fieldfare_server.optimizers.base import State, StepInfo, Stepped, Tensor
from fieldfare_server.optimizers.registry import register


@register
class NormalisedMomentum(Stepped):
    """m <- momentum m + (1 - momentum) u;  x <- x + lr m / ||m||, and x stays where it is for m = 0.

    `momentum` is the paper's 1 - alpha; give `momentum-tree` the same.

    Only the direction of m counts, so the clip norm does not set the step and may be small. The mechanism
    `momentum-tree` with the same momentum correlates its noise so that m carries little of it, though u
    carries much. Where noise outweighs m the step is random and has length lr: let the schedule fall.

    State: `momentum` float32 (d,).
    """

    kind: Literal["normalised-momentum"] = "normalised-momentum"
    learning_rate: float = Field(default=0.1, gt=0, description="of the server: length of a step")
    momentum: float = Field(default=0.9, ge=0, lt=1, description="share of the direction that is kept")
    normalise: bool = Field(default=True, description="false: the momentum itself, scaled by the learning rate")

    def init(self, params: Tensor) -> State:
        return {"momentum": torch.zeros_like(params)}

    def step(self, state: State, params: Tensor, update: Tensor, info: StepInfo) -> tuple[Tensor, State]:
        rate = self.rate(info)
        momentum = state["momentum"] * self.momentum + update * (1.0 - self.momentum)
        if not self.normalise:
            return params + momentum * rate, {"momentum": momentum}
        # In float64, every finite float32 vector but 0 has a finite norm above 0.
        norm = float(torch.linalg.vector_norm(momentum, dtype=torch.float64))
        if norm == 0.0:
            return params.clone(), {"momentum": momentum}
        return (params + momentum.to(torch.float64) * (rate / norm)).to(params.dtype), {"momentum": momentum}
