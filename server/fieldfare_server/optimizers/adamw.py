"""AdamW on the privatised update, optionally with the noise's variance taken out of the second moment."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fieldfare.lazily import torch
from fieldfare_server.optimizers import second_moment
from fieldfare_server.optimizers.base import State, StepInfo, Stepped, Tensor
from fieldfare_server.optimizers.registry import register


@register
class AdamW(Stepped):
    """Loshchilov and Hutter 2019: m_hat, v_hat as in Adam; x <- (1 - lr wd) x + lr m_hat / (sqrt(v_hat) +
    epsilon).

    With `noise_correction` the noise's part is taken out of v_hat (`second_moment`), so that its mean is the
    second moment of the un-noised update.

    State: `momentum`, `second` float32 (d,); `noise`, `chance` float64 (), 0 without correction; `steps`
    int64 ().
    """

    kind: Literal["adamw"] = "adamw"
    learning_rate: float = Field(default=0.01, gt=0, description="of the server")
    beta1: float = Field(default=0.9, ge=0, lt=1, description="decay of the first moment")
    beta2: float = Field(default=0.999, ge=0, lt=1, description="decay of the second moment")
    epsilon: float = Field(default=1e-8, gt=0, description="added to the root of the second moment; no privacy")
    weight_decay: float = Field(default=0.0, ge=0, description="decoupled: params shrink by learning_rate x this")
    noise_correction: bool = Field(default=False, description="take the noise's known variance out of v")

    def init(self, params: Tensor) -> State:
        moments = {"momentum": torch.zeros_like(params), "second": torch.zeros_like(params)}
        return moments | second_moment.no_noise() | {"steps": torch.zeros((), dtype=torch.int64)}

    def step(self, state: State, params: Tensor, update: Tensor, info: StepInfo) -> tuple[Tensor, State]:
        rate, steps = self.rate(info), int(state["steps"]) + 1
        momentum = state["momentum"] * self.beta1 + update * (1.0 - self.beta1)
        second = state["second"] * self.beta2 + update.square() * (1.0 - self.beta2)
        std = info.noise_std if self.noise_correction else 0.0
        noise = second_moment.follow_noise(state, std, self.beta2, 1.0 - self.beta2)
        # Both moments start at 0; dividing by 1 - beta^steps removes that bias.
        squares = second_moment.subtract_noise(second, noise, 1.0 - self.beta2**steps)
        direction = momentum / (squares.sqrt_() + self.epsilon) / (1.0 - self.beta1**steps)
        new = {"momentum": momentum, "second": second, "steps": torch.tensor(steps)} | noise
        return params * (1.0 - rate * self.weight_decay) + direction * rate, new
