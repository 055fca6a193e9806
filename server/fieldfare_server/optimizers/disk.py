"""DiSK: a simplified Kalman filter in front of any server optimizer (Zhang et al. 2024, arXiv 2410.03883).

With d the last displacement of the model, gain k and radius gamma, the clients' contribution is one clipped vector

    clip(a D(x + gamma d) + (1 - a) D(x)),   a = (1 - k) / (k gamma),   D(p) = local model from p - p,

and the filter m <- (1 - k) m + k u of the privatised mean u goes to the base optimizer in place of u. Everything here
is post-processing of privatised values, and the combination is clipped once: the charge is that of the base
optimizer, for every k and gamma.

| mode | clients train from | |
|---|---|---|
| `one-point` | x + d (1 - k) / k | a = 1: no extra work for clients; the default |
| `two-point` | x + gamma d and x, same batches and randomness | the published default has gamma = 1/2 |
| `storm` | the last two models | gamma = -1 (Cutkosky and Orabona 2019) |
| `doppler` | x | a = 0: a low-pass filter of the updates alone |

How much the mean update moves a round (`innovation`) is estimated from released values, which is free (see the file of
that name), or a setting. In `doppler` mode the estimate is unbiased. Where clients look ahead, u also differs from m by
the model's movement along the curvature divided by k, and no Hessian product is released that would take that part out:
there it is an estimate from above, and the filter smooths less than it might.

Two faults of the released code are not repeated here: k is the weight of the *new* value, and the noise is never
divided by sqrt(a^2 + (1 - a)^2).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from pydantic import Field, SerializeAsAny, field_validator, model_validator

from fieldfare.errors import BadInput
from fieldfare_server.optimizers import kalman
from fieldfare_server.optimizers.base import OptimizerSpec, Points, ServerOptimizer, State, StepInfo
from fieldfare_server.optimizers.innovation import PRIOR, Innovation
from fieldfare_server.optimizers.registry import parse, register
from fieldfare_server.optimizers.sgd import SGDSpec

BASE = "base."
"""Prefix of the base optimizer's entries in the state."""


@register
class DiSKSpec(OptimizerSpec):
    """`kind = "disk"`, with the wrapped optimizer as the table `base`."""

    kind: Literal["disk"] = "disk"
    base: SerializeAsAny[OptimizerSpec] = SGDSpec()
    mode: Literal["one-point", "two-point", "storm", "doppler"] = "one-point"
    kappa: float | Literal["auto", "adaptive"] = Field(
        default=0.7, description="gain; auto: best fixed one for the mechanism's noise; adaptive: best each round"
    )
    gamma: float | None = Field(default=None, description="radius of two-point mode, not 0; default 1/2")
    innovation: float | Literal["auto"] = Field(
        default="auto", description="change of the mean update a round in variances of its noise, where kappa needs it"
    )
    start: Literal["first", "zero"] = Field(default="first", description="the filter's value before round 0")

    @field_validator("base", mode="before")
    @classmethod
    def _by_kind(cls, value: object) -> OptimizerSpec:
        if not isinstance(value, Mapping | OptimizerSpec):
            raise BadInput(f"server_optimizer.base = {value!r}", "must be a table with a kind.", '{ kind = "sgd" }')
        base = parse(value)
        if "base" in type(base).model_fields:
            raise BadInput(f"server_optimizer.base.kind = {base.kind!r}", "a filter cannot wrap a filter.", "sgd")
        return base

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not isinstance(self.kappa, str) and not kalman.LEAST_GAIN <= self.kappa <= 1.0:
            raise BadInput(
                f"server_optimizer.kappa = {self.kappa}",
                f"must be between {kalman.LEAST_GAIN} and 1, or 'auto' or 'adaptive'.",
                str(min(max(self.kappa, kalman.LEAST_GAIN), 1.0)),
            )
        if self.gamma is not None and self.mode != "two-point":
            raise BadInput(f"server_optimizer.gamma = {self.gamma}", f"mode {self.mode!r} sets it.", "no gamma")
        if self.innovation != "auto" and self.innovation <= 0:
            raise BadInput(f"server_optimizer.innovation = {self.innovation}", "must be above 0, or 'auto'.", "auto")
        if self.gamma == 0:
            raise BadInput("server_optimizer.gamma = 0", "two equal points have no difference.", "mode = 'one-point'")
        return self

    def build(self) -> DiSK:
        return DiSK(self, self.base.build())

    @property
    def tracks(self) -> bool:
        """Whether the innovation is estimated: where the gain depends on it and nobody says what it is."""
        return self.innovation == "auto" and isinstance(self.kappa, str)


@dataclass(frozen=True)
class DiSK(ServerOptimizer):
    """State: `filtered` m and `displacement` d, float32 (params,); `variance` float64 (): variance of the noise in m,
    which the base optimizer is told (exact for stationary noise); `steps` int64 (); `innovation`, where it is
    estimated; and the base's, as `base.*`.

    A void round calls neither `step` nor anything else: it is asked again from the same points.
    """

    spec: DiSKSpec
    base: ServerOptimizer

    def init(self, params: torch.Tensor) -> State:
        own = {
            "filtered": torch.zeros_like(params),
            "displacement": torch.zeros_like(params),
            "variance": torch.zeros((), dtype=torch.float64),
            "steps": torch.zeros((), dtype=torch.int64),
        }
        if self.spec.tracks:
            own["innovation"] = Innovation().tensor()
        return own | {BASE + name: value for name, value in self.base.init(params).items()}

    def _gain(self, state: State, info: StepInfo) -> tuple[float, float]:
        spec, steps = self.spec, int(state["steps"])
        warm = spec.start == "first"
        if spec.kappa in ("auto", "adaptive") and info.noise_std == 0:
            return 1.0, 0.0  # nothing to filter
        if spec.tracks:
            known = Innovation.of(state["innovation"])
            return known.next_gain(info.noise_autocovariance, spec.kappa == "adaptive", warm)
        moves = PRIOR if spec.innovation == "auto" else spec.innovation  # a fixed gain does not ask
        kappa: float | None = None
        if spec.kappa == "auto":
            kappa = kalman.best_gain(moves, info.noise_autocovariance)
        elif not isinstance(spec.kappa, str):
            kappa = spec.kappa
        return kalman.gains(kappa, moves, info.noise_autocovariance, warm, info.rounds).at(steps)

    def gain(self, state: State, info: StepInfo) -> float:
        """k of this round: 1 in round 0 when the first update is taken whole. A function of public values."""
        return self._gain(state, info)[0]

    def points(self, state: State, params: torch.Tensor, info: StepInfo) -> Points:
        gain = self.gain(state, info)
        if int(state["steps"]) == 0 or gain == 1.0 or self.spec.mode == "doppler":
            return Points((params,), (1.0,))
        if self.spec.mode == "one-point":
            return Points((params + state["displacement"] * ((1.0 - gain) / gain),), (1.0,))
        gamma = -1.0 if self.spec.mode == "storm" else (0.5 if self.spec.gamma is None else self.spec.gamma)
        share = (1.0 - gain) / (gain * gamma)
        return Points((params + state["displacement"] * gamma, params), (share, 1.0 - share))

    def step(
        self, state: State, params: torch.Tensor, update: torch.Tensor, info: StepInfo
    ) -> tuple[torch.Tensor, State]:
        gain, correlation = self._gain(state, info)
        tracked: State = {}
        if self.spec.tracks:
            known = Innovation.of(state["innovation"])
            if info.noise_std > 0:
                residual = float((update - state["filtered"]).double().square().mean()) / info.noise_std**2
                known = known.after(gain, residual, update.numel(), info.noise_autocovariance)
            tracked["innovation"] = known.tensor()
        filtered = state["filtered"] * (1.0 - gain) + update * gain
        before, now = math.sqrt(float(state["variance"])), info.noise_std
        kept = 1.0 - gain
        variance = (kept * before) ** 2 + (gain * now) ** 2 + 2.0 * kept * gain * correlation * before * now
        behind = dataclasses.replace(info, noise_std=math.sqrt(max(0.0, variance)), noise_autocovariance=())
        inner = {name.removeprefix(BASE): value for name, value in state.items() if name.startswith(BASE)}
        moved, inner = self.base.step(inner, params, filtered, behind)
        own: dict[str, Any] = {
            "filtered": filtered,
            "displacement": moved - params,
            "variance": torch.tensor(max(0.0, variance), dtype=torch.float64),
            "steps": state["steps"] + 1,
        }
        return moved, own | tracked | {BASE + name: value for name, value in inner.items()}
