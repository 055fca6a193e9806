"""Sensitivity-reduced momentum: three clipped queries a round (Tran and Cutkosky 2022, Algorithm 2).

A research mode beside the plan's optimizers, for `fieldfare.mechanisms.three_tree.ThreeTree`: every user is asked at
the current model, at the model of this epoch's start and at that of the epoch before, and sends three vectors, each
clipped to a norm of its own. The mechanism turns their sums into the noisy momentum; `step` sees only that.

A library, not a `server_optimizer` of plans: a round of the service carries one clipped sum a user, and its mechanism
has one strategy matrix, while this needs three of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from fieldfare.clipping import Flat, Layout, clip_
from fieldfare.errors import BadInput
from fieldfare_server.optimizers.base import State, StepInfo
from fieldfare_server.optimizers.normalised_momentum import NormalisedMomentumSpec, normalised_step


class Queries(NamedTuple):
    """`points` (d,) that every user trains from with the same batches; `combinations`: one row of weights a query."""

    points: tuple[torch.Tensor, ...]
    combinations: tuple[tuple[float, ...], ...]


def clipped_sums(
    updates: Sequence[torch.Tensor], queries: Queries, clips: Sequence[float], layout: Layout
) -> tuple[torch.Tensor, ...]:
    """Each query's sum over users of sum_i w_i updates[i], combined first and then clipped to the query's own norm.

    `updates`: float32 (users, d), one a point; `clips`: one norm a query. One user moves query q by at most clips[q],
    whatever the users hold: that replaces the paper's smoothness bound, which nobody can enforce. Float32 (d,) each.
    """
    sums = []
    for weights, norm in zip(queries.combinations, clips, strict=True):
        combined = torch.zeros_like(updates[0])
        for weight, update in zip(weights, updates, strict=True):
            if weight:
                combined += update * weight
        clip_(combined, Flat(norm=norm), layout)
        sums.append(combined.sum(dim=0, dtype=torch.float64).to(torch.float32))
    return tuple(sums)


@dataclass(frozen=True)
class ThreeQueryMomentum:
    """Epochs of `period` rounds in one fixed cohort order (`FixedOrder(period)`), as the mechanism requires.

    `spec.momentum` is to be the mechanism's; the mechanism applies it, not this class.

    State: `anchor`, `previous` float32 (d,): the models at the start of this epoch and of the one before.
    """

    period: int
    spec: NormalisedMomentumSpec

    def __post_init__(self) -> None:
        """Raises `BadInput`."""
        if self.period < 1:
            raise BadInput(f"period = {self.period}", "must be at least 1.", "1")

    def init(self, params: torch.Tensor) -> State:
        """State before round 0. `params`: float32 (d,)."""
        return {"anchor": params.clone(), "previous": params.clone()}

    def queries(self, state: State, params: torch.Tensor, info: StepInfo) -> Queries:
        """Anchor, drift and, from the second epoch on, change: in the first there is no epoch before.

        Order of the combinations: anchor, drift, [change]. Post-processing: points are released models.
        """
        if info.round < self.period:
            return Queries((params, state["anchor"]), ((0.0, 1.0), (1.0, -1.0)))
        points = (params, state["anchor"], state["previous"])
        return Queries(points, ((0.0, 1.0, 0.0), (1.0, -1.0, 0.0), (0.0, 1.0, -1.0)))

    def step(
        self, state: State, params: torch.Tensor, momentum: torch.Tensor, info: StepInfo
    ) -> tuple[torch.Tensor, State]:
        """(new params, new state) from the released noisy momentum, float32 (d,). Inputs are not modified."""
        rate = self.spec.rate(info)
        moved = normalised_step(params, momentum, rate) if self.spec.normalise else params + momentum * rate
        if (info.round + 1) % self.period:
            return moved, dict(state)
        return moved, {"anchor": moved.clone(), "previous": state["anchor"]}
