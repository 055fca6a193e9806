"""Sensitivity-reduced momentum: three clipped queries a round (Tran and Cutkosky 2022, Algorithm 2). Research
mode.

Users take part in one fixed order, in epochs of N rounds. Every user trains from the current model x, from
the model a at the start of this epoch and from a' at the start of the epoch before, with the same batches.
With D(p) = local model from p - p, the user sends three vectors, each clipped by itself:

    anchor  D(a)  to norm C        drift  D(x) - D(a)  to  drift x C        change  D(a) - D(a')  to  change x C

Differences are small where models move slowly, so they can be clipped tightly and carry little noise. The
paper bounds them by smoothness, which cannot be enforced; clipping can, so privacy holds whatever users send.
With hats for released values and a memory v of one vector for each of the N rounds of an epoch,

    v <- (1 - mixing) (v + change^) + mixing anchor^     (v <- anchor^ in the first epoch, where no change is asked)

and v + drift^ goes to the base optimizer instead of the mean update.

**Against the published form.** Where nothing is clipped or noised, v is the mean of D(a). The base optimizer
then gets the mean of D(x) exactly (Lemma 17), and its momentum is that of Algorithm 4. The paper adds noise
to all nodes of three trees and puts windows together from nodes. Here the mechanism of the plan, of any kind,
runs on the stack of the three queries. `momentum-tree` gives three discounted trees, and only the nodes that
prefixes read are noised and charged. That carries less noise at the same charge, even than the paper's trees
with exact accounting (`oracles.three_tree`).

**Privacy.** That of the plan's mechanism for the stacked sum (`fieldfare_server.run.round.aggregation`). This
optimizer is post-processing: its settings decide utility alone, and leave the charge the same, byte for byte.

**Fixed order.** In any other order, the memory of a round belongs to other users, and Lemma 17 fails. Users
that do not answer, or another draw of a place's users, add noise to v but do not make it wrong.
"""

from __future__ import annotations

import functools
import math
from typing import Final, Literal

from pydantic import Field, SerializeAsAny, field_validator

from fieldfare.clipping import Automatic
from fieldfare.errors import Conflict, Unsupported
from fieldfare.plan import Plan
from fieldfare_server.optimizers.base import Points, ServerOptimizer, State, StepInfo, Tensor
from fieldfare_server.optimizers.normalised_momentum import NormalisedMomentum
from fieldfare_server.optimizers.registry import register
from fieldfare_server.optimizers.wrapping import join_state, parse_wrapped, split_state

# Other kinds may use the size of the noise, which is not known behind the memory.
BASES: Final = ("normalised-momentum", "sgd")


@register
class ThreeQuery(ServerOptimizer):
    """Three queries in front of the wrapped optimizer, the table `base`.

    State, float32 (d,) each: `anchor` and `previous`, the models at the start of this epoch and of the one
    before; `memory.I`, v of round I of an epoch, once there was one; and the base's entries, as `base.*`.
    """

    kind: Literal["three-query"] = "three-query"
    base: SerializeAsAny[ServerOptimizer] = Field(
        default=NormalisedMomentum(), description="the optimizer that is given the memory"
    )
    period: int = Field(ge=2, description="rounds of an epoch: participation.period")
    mixing: float = Field(default=0.2, gt=0, le=1, description="gamma: weight of the fresh anchor in the memory")
    change: float = Field(default=0.1, gt=0, description="clip norm of the change, in units of that of the anchor")
    drift: float = Field(default=0.1, gt=0, description="clip norm of the drift, in units of that of the anchor")

    @field_validator("base", mode="before")
    @classmethod
    def _by_kind(cls, value: object) -> ServerOptimizer:
        base = parse_wrapped(value, BASES[0])
        if base.kind not in BASES:
            raise Conflict(
                f"server_optimizer.base.kind = {base.kind!r}",
                "may ask for the noise's size, which is not known behind three queries.",
                " or ".join(BASES),
            )
        return base

    def check(self, plan: Plan) -> None:
        """Refuse plans whose estimates would be wrong or pointless (privacy would hold all the same)."""
        scheme, period = plan.participation.scheme, plan.participation.period
        if scheme != "fixed-order" or period != self.period:
            raise Unsupported(
                f"server_optimizer.kind = 'three-query' with participation {scheme!r}, period {period}",
                "compares a user's update with that of the same users an epoch ago; only one fixed cohort order of "
                f"server_optimizer.period = {self.period} rounds brings them back.",
                f"participation = {{ scheme = 'fixed-order', period = {self.period} }}",
            )
        if plan.run.rounds <= self.period:
            raise Conflict(
                f"run.rounds = {plan.run.rounds} with server_optimizer.period = {self.period}",
                "one epoch has no earlier epoch to compare with: three queries would only add noise.",
                "normalised-momentum",
            )
        if plan.metrics is not None:
            raise Unsupported(
                "metrics with server_optimizer.kind = 'three-query'",
                "a metric rides beside one query, and these are three.",
                "normalised-momentum",
            )
        if plan.clipping.counts:
            raise Unsupported(
                f"clipping.kind = {plan.clipping.kind!r} with server_optimizer.kind = 'three-query'",
                "one moving norm cannot follow the quantiles of three queries.",
                "flat",
            )
        if isinstance(plan.clipping, Automatic):
            raise Unsupported(
                "clipping.kind = 'automatic' with server_optimizer.kind = 'three-query'",
                "gives every difference the same length, however small, and differences have to add up.",
                "flat",
            )

    @property
    def queries(self) -> int:
        return 3

    def init(self, params: Tensor) -> State:
        own = {"anchor": params.clone(), "previous": params.clone()}
        return join_state(own, self.base.init(params))

    def points(self, state: State, params: Tensor, info: StepInfo) -> Points:
        """Return points for the queries anchor, drift and change, with batches of this place in the first epoch."""
        place = info.round % self.period
        anchor, drift, change = shares(-(-info.rounds // self.period), self.mixing, self.change, self.drift)
        # At an epoch's start x is a: nothing has drifted.
        drifts = (1.0 / self.drift, -1.0 / self.drift, 0.0) if place else (0.0, 0.0, 0.0)
        points = (params, state["anchor"], state["previous"])
        if info.round < self.period:  # no change is asked yet, and its share goes to the anchor
            return Points(points, (0.0, 1.0, 0.0, *drifts, 0.0, 0.0, 0.0), (anchor + change, drift, 0.0), place)
        changes = (0.0, 1.0 / self.change, -1.0 / self.change)
        return Points(points, (0.0, 1.0, 0.0, *drifts, *changes), (anchor, drift, change), place)

    def step(self, state: State, params: Tensor, update: Tensor, info: StepInfo) -> tuple[Tensor, State]:
        """Take one step; `update`: float32 (3 d,), the means of anchor, drift and change, each clipped to norm C."""
        anchor, drift, change = update.view(3, -1)
        memory = f"memory.{info.round % self.period}"
        value = anchor.clone()
        if info.round >= self.period:
            value = (state[memory] + change * self.change) * (1.0 - self.mixing) + anchor * self.mixing
        own, base_state = split_state(state)
        moved, base_state = self.base.step(base_state, params, value + drift * self.drift, info)
        own[memory] = value
        if (info.round + 1) % self.period == 0:
            own |= {"anchor": moved.clone(), "previous": state["anchor"]}
        return moved, join_state(own, base_state)


@functools.lru_cache(maxsize=64)
def shares(epochs: int, mixing: float, change: float, drift: float) -> tuple[float, float, float]:
    """Return the best division of a round's privacy among (anchor, drift, change); the shares add up to 1.

    A query of scale c and share p enters v + drift^ with noise of variance A c^2 / p, where A is the mean
    over the run of its squared weights (for noise that is independent between epochs). The sum is least for p
    proportional to c sqrt(A).
    """
    # Squared weights of all past anchors and changes in v, epoch by epoch, and their sums over the run.
    anchor, moved, sums = 1.0, 0.0, [1.0, 0.0]
    for _ in range(1, epochs):
        anchor, moved = (1 - mixing) ** 2 * anchor + mixing**2, (1 - mixing) ** 2 * (moved + 1.0)
        sums = [sums[0] + anchor, sums[1] + moved]
    parts = math.sqrt(sums[0] / epochs), drift, change * math.sqrt(sums[1] / epochs)
    whole = math.fsum(parts)
    return parts[0] / whole, parts[1] / whole, parts[2] / whole
