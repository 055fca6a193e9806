"""Sensitivity-reduced momentum: three clipped queries a round (Tran and Cutkosky 2022, Algorithm 2). Research mode.

Users take part in one fixed order, epochs of N rounds. Every user trains from the current model x, from the model a of
this epoch's start and from a' of the epoch before, with the same batches, and sends three vectors, each clipped by
itself (D(p) = local model from p - p):

    anchor  D(a)  to norm C        drift  D(x) - D(a)  to  drift x C        change  D(a) - D(a')  to  change x C

Differences are small where models move slowly, so they can be clipped tightly and carry little noise. The paper bounds
them by smoothness, which nobody can enforce; here they are clipped, so privacy holds whatever users send. With hats for
what was released and a memory v of one vector for each of the N rounds of an epoch,

    v <- (1 - mixing) (v + change^) + mixing anchor^     (v <- anchor^ in the first epoch, where no change is asked)

and v + drift^ goes to the base optimizer in place of the mean update.

**Against the published form.** Where nothing is clipped or noised v is the mean of D(a), so the base optimizer is given
the mean of D(x) exactly (Lemma 17), and its momentum is that of Algorithm 4. The paper adds noise to all nodes of three
trees and puts windows together from nodes; here the mechanism of the plan runs on the stack of the three queries:
`momentum-tree` gives three discounted trees of which only the nodes that prefixes read are noised and charged, and any
other kind will do. That carries less noise at the same charge, also than the paper's trees with exact accounting, which
`oracles.three_tree` has for comparison.

**Privacy.** That of the plan's mechanism for the stacked sum, see `fieldfare_server.run.aggregation`. All of it is
post-processing: it decides utility alone, and the charge is the same byte for byte with any setting.

**Right only where** the order is fixed: otherwise the memory of a round belongs to other users (Lemma 17 fails). Users
that do not answer, or another draw of a place's users, make v a noisy memory, not a wrong one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import torch
from pydantic import Field, SerializeAsAny, field_validator

from fieldfare.clipping import Automatic
from fieldfare.errors import BadInput
from fieldfare.plan import Plan
from fieldfare_server.optimizers.base import OptimizerSpec, Points, ServerOptimizer, State, StepInfo
from fieldfare_server.optimizers.normalised_momentum import NormalisedMomentumSpec
from fieldfare_server.optimizers.registry import parse, register

BASE: Final = "base."
"""Prefix of the base optimizer's entries in the state."""
BASES: Final = ("normalised-momentum", "sgd")
"""Others may use the noise's size, and nobody follows it through the memory."""


@register
class ThreeQuerySpec(OptimizerSpec):
    """`kind = "three-query"`, with the wrapped optimizer as the table `base`."""

    kind: Literal["three-query"] = "three-query"
    base: SerializeAsAny[OptimizerSpec] = NormalisedMomentumSpec()
    period: int = Field(ge=2, description="rounds of an epoch: participation.period")
    mixing: float = Field(default=0.2, gt=0, le=1, description="gamma: weight of the fresh anchor in the memory")
    change: float = Field(default=0.1, gt=0, description="clip norm of the change, in units of that of the anchor")
    drift: float = Field(default=0.1, gt=0, description="clip norm of the drift, in units of that of the anchor")

    @field_validator("base", mode="before")
    @classmethod
    def _by_kind(cls, value: object) -> OptimizerSpec:
        if not isinstance(value, Mapping | OptimizerSpec):
            raise BadInput(f"server_optimizer.base = {value!r}", "must be a table with a kind.", f'kind = "{BASES[0]}"')
        base = parse(value)
        if base.kind not in BASES:
            raise BadInput(
                f"server_optimizer.base.kind = {base.kind!r}",
                "may ask for the noise's size, which is not known behind three queries.",
                " or ".join(BASES),
            )
        return base

    def build(self) -> ThreeQuery:
        return ThreeQuery(self, self.base.build())

    def check(self, plan: Plan) -> None:
        """Refuse what nobody has shown to be right (privacy would hold, the estimate would not) or to make sense."""
        scheme, period = plan.participation.scheme, plan.participation.period
        if scheme != "fixed-order" or period != self.period:
            raise BadInput(
                f"server_optimizer.kind = 'three-query' with participation {scheme!r}, period {period}",
                "compares a user's update with that of the same users an epoch ago; only one fixed cohort order of "
                f"server_optimizer.period = {self.period} rounds brings them back.",
                f"participation = {{ scheme = 'fixed-order', period = {self.period} }}",
            )
        if plan.run.rounds <= self.period:
            raise BadInput(
                f"run.rounds = {plan.run.rounds} with server_optimizer.period = {self.period}",
                "one epoch has no epoch before it to compare with: three queries would only add noise.",
                "normalised-momentum",
            )
        if plan.clipping.counts:
            raise BadInput(
                f"clipping.kind = {plan.clipping.kind!r} with server_optimizer.kind = 'three-query'",
                "one moving norm cannot follow the quantiles of three queries.",
                "flat",
            )
        if isinstance(plan.clipping, Automatic):
            raise BadInput(
                "clipping.kind = 'automatic' with server_optimizer.kind = 'three-query'",
                "gives every difference the same length, however small, and differences have to add up.",
                "flat",
            )


@functools.lru_cache(maxsize=64)
def shares(epochs: int, mixing: float, change: float, drift: float) -> tuple[float, float, float]:
    """How the privacy of a round is best divided among (anchor, drift, change); they add up to 1.

    With scale c and share p, a query's noise enters v + drift^ with variance A c^2 / p, A the mean over the run of its
    squared weights (for noise that is independent between epochs); the sum is least for p proportional to c sqrt(A).
    """
    anchor, moved, sums = 1.0, 0.0, [1.0, 0.0]
    for _ in range(1, epochs):
        anchor, moved = (1 - mixing) ** 2 * anchor + mixing**2, (1 - mixing) ** 2 * (moved + 1.0)
        sums = [sums[0] + anchor, sums[1] + moved]
    wanted = math.sqrt(sums[0] / epochs), drift, change * math.sqrt(sums[1] / epochs)
    whole = math.fsum(wanted)
    return wanted[0] / whole, wanted[1] / whole, wanted[2] / whole


@dataclass(frozen=True)
class ThreeQuery(ServerOptimizer):
    """State: `anchor`, `previous`: the models at the start of this epoch and of the one before; `memory.I`: v of round
    I of an epoch, once it has been there; float32 (d,) each; and the base's, as `base.*`.
    """

    spec: ThreeQuerySpec
    base: ServerOptimizer

    @property
    def queries(self) -> int:
        return 3

    def init(self, params: torch.Tensor) -> State:
        own = {"anchor": params.clone(), "previous": params.clone()}
        return own | {BASE + name: value for name, value in self.base.init(params).items()}

    def points(self, state: State, params: torch.Tensor, info: StepInfo) -> Points:
        """Queries in the order anchor, drift, change; batches are those of the same round of the first epoch.

        In the first epoch the change's share goes to the anchor. At an epoch's start nothing has drifted.
        """
        spec, place = self.spec, info.round % self.spec.period
        anchor, drift, change = shares(-(-info.rounds // spec.period), spec.mixing, spec.change, spec.drift)
        drifts = (1.0 / spec.drift, -1.0 / spec.drift, 0.0) if place else (0.0, 0.0, 0.0)
        points = (params, state["anchor"], state["previous"])
        if info.round < spec.period:
            return Points(points, (0.0, 1.0, 0.0, *drifts, 0.0, 0.0, 0.0), (anchor + change, drift, 0.0), place)
        changes = (0.0, 1.0 / spec.change, -1.0 / spec.change)
        return Points(points, (0.0, 1.0, 0.0, *drifts, *changes), (anchor, drift, change), place)

    def step(
        self, state: State, params: torch.Tensor, update: torch.Tensor, info: StepInfo
    ) -> tuple[torch.Tensor, State]:
        """`update`: float32 (3 d,), the means of anchor, drift and change as they were clipped, of norm C each."""
        spec = self.spec
        anchor, drift, change = update.view(3, -1)
        memory = f"memory.{info.round % spec.period}"
        value = anchor.clone()
        if info.round >= spec.period:
            value = (state[memory] + change * spec.change) * (1.0 - spec.mixing) + anchor * spec.mixing
        inner = {name.removeprefix(BASE): kept for name, kept in state.items() if name.startswith(BASE)}
        moved, inner = self.base.step(inner, params, value + drift * spec.drift, info)
        own = {name: kept for name, kept in state.items() if not name.startswith(BASE)} | {memory: value}
        if (info.round + 1) % spec.period == 0:
            own |= {"anchor": moved.clone(), "previous": state["anchor"]}
        return moved, own | {BASE + name: kept for name, kept in inner.items()}
