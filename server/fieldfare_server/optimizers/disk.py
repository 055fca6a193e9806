"""DiSK: a simplified Kalman filter in front of any server optimizer (Zhang et al. 2024, arXiv 2410.03883).

With d the last displacement of the model, gain k and radius gamma, a client contributes one clipped vector

    clip(a D(x + gamma d) + (1 - a) D(x)),   a = (1 - k) / (k gamma),   D(p) = local model from p - p,

and the base optimizer gets the filtered m <- (1 - k) m + k u instead of the privatised mean u. All of this is
post-processing of privatised values, and the combination is clipped once: the charge is that of the base
optimizer, for every k and gamma.

| mode | clients train from | |
|---|---|---|
| `one-point` | x + d (1 - k) / k | a = 1: no extra work for clients; the default |
| `two-point` | x + gamma d and x, same batches and randomness | the published default has gamma = 1/2 |
| `storm` | the last two models | gamma = -1 (Cutkosky and Orabona 2019) |
| `doppler` | x | a = 0: a low-pass filter of the updates alone |

How much the mean update moves in a round (the innovation) is a setting, or is estimated from released values,
which costs nothing (`innovation`). In `doppler` mode the estimate is unbiased. Where clients look ahead, u
also differs from m by the model's movement along the curvature, divided by k. No Hessian product is released
that could remove that part: the estimate is then too large, and the filter smooths less than it could.

Two faults of the authors' code are not repeated: here k is the weight of the *new* value, and the noise is
never divided by sqrt(a^2 + (1 - a)^2).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal, Self

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from fieldfare.errors import Conflict, OutOfRange
from fieldfare.lazily import torch
from fieldfare_server.optimizers import kalman
from fieldfare_server.optimizers.base import Points, ServerOptimizer, State, StepInfo, Tensor
from fieldfare_server.optimizers.innovation import PRIOR, Innovation
from fieldfare_server.optimizers.registry import register
from fieldfare_server.optimizers.sgd import SGD
from fieldfare_server.optimizers.wrapping import join_state, parse_wrapped, split_state


@register
class DiSK(ServerOptimizer):
    """The filter in front of the wrapped optimizer, the table `base`.

    State: `filtered` m and `displacement` d, float32 (d,); `variance` of the noise in m, float64 (), which
    the base optimizer is told (exact for stationary noise); `steps` int64 (); `innovation`, where it is
    estimated; and the base's entries, as `base.*`. A void round does not change it: the round is repeated
    from the same points.
    """

    kind: Literal["disk"] = "disk"
    base: SerializeAsAny[ServerOptimizer] = Field(
        default=SGD(), description="the optimizer that is given the filtered update"
    )
    mode: Literal["one-point", "two-point", "storm", "doppler"] = Field(
        default="one-point", description="which filter, and from how many points users train"
    )
    kappa: float | Literal["auto", "adaptive"] = Field(
        default=0.7, description="gain; auto: the best fixed one for the mechanism's noise; adaptive: best each round"
    )
    gamma: float | None = Field(default=None, description="radius of two-point mode, not 0; default 1/2")
    innovation: float | Literal["auto"] = Field(
        default="auto", description="change of the mean update a round in variances of its noise, where kappa needs it"
    )
    start: Literal["first", "zero"] = Field(default="first", description="the filter's value before round 0")

    @field_validator("base", mode="before")
    @classmethod
    def _by_kind(cls, value: object) -> ServerOptimizer:
        base = parse_wrapped(value, "sgd")
        if "base" in type(base).model_fields:
            raise Conflict(f"server_optimizer.base.kind = {base.kind!r}", "a filter cannot wrap a filter.", "sgd")
        return base

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not isinstance(self.kappa, str) and not kalman.LEAST_GAIN <= self.kappa <= 1.0:
            raise OutOfRange(
                f"server_optimizer.kappa = {self.kappa}",
                f"must be between {kalman.LEAST_GAIN} and 1, or 'auto' or 'adaptive'.",
                str(min(max(self.kappa, kalman.LEAST_GAIN), 1.0)),
            )
        if self.gamma is not None and self.mode != "two-point":
            raise Conflict(f"server_optimizer.gamma = {self.gamma}", f"mode {self.mode!r} sets it.", "no gamma")
        if self.innovation != "auto" and self.innovation <= 0:
            raise OutOfRange(f"server_optimizer.innovation = {self.innovation}", "must be above 0, or 'auto'.", "auto")
        if self.gamma == 0:
            raise Conflict("server_optimizer.gamma = 0", "two equal points have no difference.", "mode = 'one-point'")
        return self

    @property
    def tracks(self) -> bool:
        """Whether the innovation is estimated: where the gain depends on it and the plan does not set it."""
        return self.innovation == "auto" and isinstance(self.kappa, str)

    def init(self, params: Tensor) -> State:
        own = {
            "filtered": torch.zeros_like(params),
            "displacement": torch.zeros_like(params),
            "variance": torch.zeros((), dtype=torch.float64),
            "steps": torch.zeros((), dtype=torch.int64),
        }
        if self.tracks:
            own["innovation"] = Innovation().to_tensor()
        return join_state(own, self.base.init(params))

    def _gain(self, state: State, info: StepInfo) -> tuple[float, float]:
        """Return this round's gain, and the correlation of the noise in the filter with the noise of the round."""
        steps = int(state["steps"])
        warm = self.start == "first"
        if self.kappa in ("auto", "adaptive") and info.noise_std == 0:
            return 1.0, 0.0  # nothing to filter
        if self.tracks:
            known = Innovation.from_tensor(state["innovation"])
            return known.next_gain(info.noise_autocovariance, self.kappa == "adaptive", warm)
        # A fixed gain does not depend on the innovation, so any value serves it.
        innovation = PRIOR if self.innovation == "auto" else self.innovation
        kappa: float | None = None
        if self.kappa == "auto":
            kappa = kalman.best_gain(innovation, info.noise_autocovariance)
        elif not isinstance(self.kappa, str):
            kappa = self.kappa
        return kalman.gains(kappa, innovation, info.noise_autocovariance, warm, info.rounds).at(steps)

    def gain(self, state: State, info: StepInfo) -> float:
        """Return k of this round: 1 in round 0 where the first update is taken whole. A function of public values."""
        return self._gain(state, info)[0]

    def points(self, state: State, params: Tensor, info: StepInfo) -> Points:
        gain = self.gain(state, info)
        if int(state["steps"]) == 0 or gain == 1.0 or self.mode == "doppler":
            return Points((params,), (1.0,))
        if self.mode == "one-point":  # gamma = (1 - k) / k makes a = 1, so D(x) drops out
            return Points((params + state["displacement"] * ((1.0 - gain) / gain),), (1.0,))
        gamma = -1.0 if self.mode == "storm" else (0.5 if self.gamma is None else self.gamma)
        share = (1.0 - gain) / (gain * gamma)
        return Points((params + state["displacement"] * gamma, params), (share, 1.0 - share))

    def step(self, state: State, params: Tensor, update: Tensor, info: StepInfo) -> tuple[Tensor, State]:
        gain, correlation = self._gain(state, info)
        tracked: State = {}
        if self.tracks:
            known = Innovation.from_tensor(state["innovation"])
            if info.noise_std > 0:
                residual = float((update - state["filtered"]).double().square().mean()) / info.noise_std**2
                known = known.observe(gain, residual, update.numel(), info.noise_autocovariance)
            tracked["innovation"] = known.to_tensor()
        # Post-processing of a private update: whatever the gain is, it costs no budget.
        filtered = state["filtered"] * (1.0 - gain) + update * gain
        # The noise of (1 - k) m + k u is a sum of two Gaussians, of known std and correlation.
        std, kept = math.sqrt(float(state["variance"])), 1.0 - gain
        variance = (kept * std) ** 2 + (gain * info.noise_std) ** 2
        variance = max(0.0, variance + 2.0 * kept * gain * correlation * std * info.noise_std)
        # The base sees filtered noise. How that correlates over rounds is not worked out here, so it is told
        # nothing of it.
        base_info = dataclasses.replace(info, noise_std=math.sqrt(variance), noise_autocovariance=())
        moved, base_state = self.base.step(split_state(state)[1], params, filtered, base_info)
        own = {
            "filtered": filtered,
            "displacement": moved - params,
            "variance": torch.tensor(variance, dtype=torch.float64),
            "steps": state["steps"] + 1,
        }
        return moved, join_state(own | tracked, base_state)
