"""FedAdam, FedAdagrad, FedYogi: adaptive steps per coordinate (Reddi et al. 2021, Algorithm 2).

With u the privatised update, m <- beta1 m + (1 - beta1) u, a second moment v that starts at adaptivity^2, and

    x <- x + lr m / (sqrt(v) + adaptivity).

The three differ in how v follows u: each one's `follow`. u carries noise of a known variance sigma_t^2 per
coordinate, and v counts it as if it were signal, which flattens all steps to lr / sigma. `noise_correction`
takes it out (`second_moment`). sigma_t is the real std of the round's noise, also where rounds differ
(trees); behind DiSK it is the std behind the filter.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

from pydantic import Field

from fieldfare.lazily import torch
from fieldfare_server.optimizers import second_moment
from fieldfare_server.optimizers.base import State, StepInfo, Stepped, Tensor
from fieldfare_server.optimizers.registry import register


class FedOpt(Stepped):
    """What the three have in common.

    State: `momentum`, `second` float32 (d,); `noise`, `chance` float64 (), 0 without correction.
    """

    learning_rate: float = Field(default=0.1, gt=0, description="of the server")
    beta1: float = Field(default=0.9, ge=0, lt=1, description="decay of the first moment")
    adaptivity: float = Field(default=1e-3, gt=0, description="tau of the paper")
    noise_correction: bool = Field(default=False, description="take the noise's known variance out of v")

    @abstractmethod
    def follow(self, state: State, update: Tensor, std: float) -> tuple[Tensor, State]:
        """Return the new v, and what is known of the noise in it. `std`: of the noise in `update`, 0 without
        correction.
        """

    def init(self, params: Tensor) -> State:
        moments = {"momentum": torch.zeros_like(params), "second": torch.full_like(params, self.adaptivity**2)}
        return moments | second_moment.no_noise()

    def step(self, state: State, params: Tensor, update: Tensor, info: StepInfo) -> tuple[Tensor, State]:
        momentum = state["momentum"] * self.beta1 + update * (1.0 - self.beta1)
        second, noise = self.follow(state, update, info.noise_std if self.noise_correction else 0.0)
        scale = second_moment.subtract_noise(second, noise).sqrt_() + self.adaptivity
        return params + momentum / scale * self.rate(info), {"momentum": momentum, "second": second} | noise


@register
class FedAdam(FedOpt):
    """`kind = "fedadam"`: v <- beta2 v + (1 - beta2) u^2."""

    kind: Literal["fedadam"] = "fedadam"
    beta2: float = Field(default=0.99, ge=0, lt=1, description="decay of the second moment")

    def follow(self, state: State, update: Tensor, std: float) -> tuple[Tensor, State]:
        weight = 1.0 - self.beta2
        second = state["second"] * self.beta2 + update.square() * weight
        return second, second_moment.follow_noise(state, std, self.beta2, weight)


@register
class FedAdagrad(FedOpt):
    """`kind = "fedadagrad"`: v <- v + u^2."""

    kind: Literal["fedadagrad"] = "fedadagrad"
    beta1: float = Field(default=0.0, ge=0, lt=1, description="decay of the first moment")

    def follow(self, state: State, update: Tensor, std: float) -> tuple[Tensor, State]:
        return state["second"] + update.square(), second_moment.follow_noise(state, std, 1.0, 1.0)


@register
class FedYogi(FedOpt):
    """`kind = "fedyogi"`: v <- v - (1 - beta2) s sign(v - s), s = u^2.

    v is not linear in s, so the correction comes before it: s = u^2 - sigma_t^2, which may be negative. The
    step is then |s| towards s, and v stops at 0. For s >= 0 that is the published rule. The floor is that of
    FedAdam.
    """

    kind: Literal["fedyogi"] = "fedyogi"
    beta2: float = Field(default=0.99, ge=0, lt=1, description="decay of the second moment")

    def follow(self, state: State, update: Tensor, std: float) -> tuple[Tensor, State]:
        second, weight = state["second"], 1.0 - self.beta2
        square = update.square() - std**2
        moved = (second - square.abs() * torch.sign(second - square) * weight).clamp_(min=0.0)
        # The mean is already out of `square`: `noise` stays 0, or it would be subtracted twice.
        return moved, second_moment.follow_noise(state, std, self.beta2, weight) | {"noise": state["noise"]}
