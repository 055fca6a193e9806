"""FedAdam, FedAdagrad, FedYogi: adaptive steps per coordinate (Reddi et al. 2021, Algorithm 2).

With u the privatised update, m <- beta1 m + (1 - beta1) u, a second moment v that starts at adaptivity^2, and

    x <- x + lr m / (sqrt(v) + adaptivity).

The three differ in how v follows u: each spec's `follow`. u carries noise of a known variance sigma_t^2 per
coordinate, and v counts it as if it were signal, which flattens all steps to lr / sigma. `noise_correction`
takes it out (`second_moment`). sigma_t is the real std of the round's noise, also where rounds differ
(trees); behind DiSK it is the std behind the filter.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from fieldfare.lazily import torch
from fieldfare_server.optimizers import second_moment
from fieldfare_server.optimizers.base import ServerOptimizer, State, StepInfo, SteppedSpec
from fieldfare_server.optimizers.registry import register

if TYPE_CHECKING:
    from torch import Tensor


class FedOptSpec(SteppedSpec):
    """What the three have in common."""

    learning_rate: float = Field(default=0.1, gt=0, description="of the server")
    beta1: float = Field(default=0.9, ge=0, lt=1, description="decay of the first moment")
    adaptivity: float = Field(default=1e-3, gt=0, description="tau of the paper")
    noise_correction: bool = Field(default=False, description="take the noise's known variance out of v")

    def build(self) -> FedOpt:
        return FedOpt(self)

    @abstractmethod
    def follow(self, state: State, update: Tensor, std: float) -> tuple[Tensor, State]:
        """Return the new v, and what is known of the noise in it. `std`: of the noise in `update`, 0 without
        correction.
        """


@register
class FedAdamSpec(FedOptSpec):
    """`kind = "fedadam"`: v <- beta2 v + (1 - beta2) u^2."""

    kind: Literal["fedadam"] = "fedadam"
    beta2: float = Field(default=0.99, ge=0, lt=1, description="decay of the second moment")

    def follow(self, state: State, update: Tensor, std: float) -> tuple[Tensor, State]:
        weight = 1.0 - self.beta2
        second = state["second"] * self.beta2 + update.square() * weight
        return second, second_moment.follow_noise(state, std, self.beta2, weight)


@register
class FedAdagradSpec(FedOptSpec):
    """`kind = "fedadagrad"`: v <- v + u^2."""

    kind: Literal["fedadagrad"] = "fedadagrad"
    beta1: float = Field(default=0.0, ge=0, lt=1, description="decay of the first moment")

    def follow(self, state: State, update: Tensor, std: float) -> tuple[Tensor, State]:
        return state["second"] + update.square(), second_moment.follow_noise(state, std, 1.0, 1.0)


@register
class FedYogiSpec(FedOptSpec):
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


@dataclass(frozen=True)
class FedOpt(ServerOptimizer):
    """State: `momentum`, `second` float32 (d,); `noise`, `chance` float64 (), 0 without correction."""

    spec: FedOptSpec

    def init(self, params: Tensor) -> State:
        moments = {"momentum": torch.zeros_like(params), "second": torch.full_like(params, self.spec.adaptivity**2)}
        return moments | second_moment.no_noise()

    def step(self, state: State, params: Tensor, update: Tensor, info: StepInfo) -> tuple[Tensor, State]:
        spec = self.spec
        momentum = state["momentum"] * spec.beta1 + update * (1.0 - spec.beta1)
        second, noise = spec.follow(state, update, info.noise_std if spec.noise_correction else 0.0)
        scale = second_moment.subtract_noise(second, noise).sqrt_() + spec.adaptivity
        return params + momentum / scale * spec.rate(info), {"momentum": momentum, "second": second} | noise
