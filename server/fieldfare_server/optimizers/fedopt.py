"""FedAdam, FedAdagrad, FedYogi: adaptive steps per coordinate (Reddi et al. 2021, Algorithm 2).

With u the privatised update, m <- beta1 m + (1 - beta1) u, a second moment v started at adaptivity^2, and

    x <- x + lr m / (sqrt(v) + adaptivity).

u carries noise of a known variance sigma_t^2 per coordinate, and v counts it as if it were signal, which flattens all
steps to lr / sigma. `noise_correction` takes it out (see `second_moment`). sigma_t is the mechanism's real std of the
round, also where it differs from round to round (trees), and DiSK hands on the std behind its filter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field

from fieldfare_server.optimizers import second_moment
from fieldfare_server.optimizers.base import ServerOptimizer, State, StepInfo, SteppedSpec
from fieldfare_server.optimizers.registry import register


class _FedOptSpec(SteppedSpec):
    learning_rate: float = Field(default=0.1, gt=0)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    adaptivity: float = Field(default=1e-3, gt=0, description="tau of the paper")
    noise_correction: bool = Field(default=False, description="take the noise's known variance out of v")


@dataclass(frozen=True)
class _FedOpt:
    """The step that the three share once v is known."""

    spec: _FedOptSpec

    def init(self, params: torch.Tensor) -> State:
        moments = {"momentum": torch.zeros_like(params), "second": torch.full_like(params, self.spec.adaptivity**2)}
        return moments | second_moment.fresh()

    def move(
        self, state: State, params: torch.Tensor, update: torch.Tensor, second: torch.Tensor, noise: State, rate: float
    ) -> tuple[torch.Tensor, State]:
        momentum = state["momentum"] * self.spec.beta1 + update * (1.0 - self.spec.beta1)
        scale = second_moment.corrected(second, noise).sqrt_() + self.spec.adaptivity
        return params + momentum / scale * rate, {"momentum": momentum, "second": second} | noise

    def std(self, info: StepInfo) -> float:
        return info.noise_std if self.spec.noise_correction else 0.0


@register
class FedAdamSpec(_FedOptSpec):
    """`kind = "fedadam"`."""

    kind: Literal["fedadam"] = "fedadam"
    beta2: float = Field(default=0.99, ge=0, lt=1)

    def build(self) -> FedAdam:
        return FedAdam(self)


@dataclass(frozen=True)
class FedAdam(ServerOptimizer):
    """v <- beta2 v + (1 - beta2) u^2.

    State: `momentum`, `second` float32 (d,); `noise`, `chance` float64 (), 0 uncorrected.
    """

    spec: FedAdamSpec
    kind: ClassVar[str] = "fedadam"

    def init(self, params: torch.Tensor) -> State:
        return _FedOpt(self.spec).init(params)

    def step(
        self, state: State, params: torch.Tensor, update: torch.Tensor, info: StepInfo
    ) -> tuple[torch.Tensor, State]:
        shared, keep = _FedOpt(self.spec), self.spec.beta2
        second = state["second"] * keep + update.square() * (1.0 - keep)
        noise = second_moment.averaged(state, shared.std(info), keep, 1.0 - keep)
        return shared.move(state, params, update, second, noise, self.spec.rate(info))


@register
class FedAdagradSpec(_FedOptSpec):
    """`kind = "fedadagrad"`."""

    kind: Literal["fedadagrad"] = "fedadagrad"
    beta1: float = Field(default=0.0, ge=0, lt=1)

    def build(self) -> FedAdagrad:
        return FedAdagrad(self)


@dataclass(frozen=True)
class FedAdagrad(ServerOptimizer):
    """v <- v + u^2.

    State: `momentum`, `second` float32 (d,); `noise`, `chance` float64 (), 0 uncorrected.
    """

    spec: FedAdagradSpec
    kind: ClassVar[str] = "fedadagrad"

    def init(self, params: torch.Tensor) -> State:
        return _FedOpt(self.spec).init(params)

    def step(
        self, state: State, params: torch.Tensor, update: torch.Tensor, info: StepInfo
    ) -> tuple[torch.Tensor, State]:
        shared = _FedOpt(self.spec)
        noise = second_moment.averaged(state, shared.std(info), 1.0, 1.0)
        return shared.move(state, params, update, state["second"] + update.square(), noise, self.spec.rate(info))


@register
class FedYogiSpec(_FedOptSpec):
    """`kind = "fedyogi"`."""

    kind: Literal["fedyogi"] = "fedyogi"
    beta2: float = Field(default=0.99, ge=0, lt=1)

    def build(self) -> FedYogi:
        return FedYogi(self)


@dataclass(frozen=True)
class FedYogi(ServerOptimizer):
    """v <- v - (1 - beta2) s sign(v - s), s = u^2.

    v is not linear in s, so the correction enters before it: s = u^2 - sigma_t^2, which may be negative; |s| then is
    the step, towards s, and v stops at 0. For s >= 0 that is the published rule. The floor is
    that of FedAdam's average.
    State: `momentum`, `second` float32 (d,); `noise` (always 0), `chance` float64 ().
    """

    spec: FedYogiSpec
    kind: ClassVar[str] = "fedyogi"

    def init(self, params: torch.Tensor) -> State:
        return _FedOpt(self.spec).init(params)

    def step(
        self, state: State, params: torch.Tensor, update: torch.Tensor, info: StepInfo
    ) -> tuple[torch.Tensor, State]:
        shared = _FedOpt(self.spec)
        std, keep, second = shared.std(info), self.spec.beta2, state["second"]
        square = update.square() - std**2
        moved = (second - square.abs() * torch.sign(second - square) * (1.0 - keep)).clamp_(min=0.0)
        noise = second_moment.averaged(state, std, keep, 1.0 - keep) | {"noise": state["noise"]}
        return shared.move(state, params, update, moved, noise, self.spec.rate(info))
