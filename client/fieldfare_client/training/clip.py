"""The plan's clipping as a `Clip`."""

from __future__ import annotations

import torch

from fieldfare import clipping
from fieldfare.schema import Schema
from fieldfare_client.training.trainer import Clip


def clip_with(spec: clipping.ClippingSpec, schema: Schema) -> Clip:
    """Clip by `spec`; report how many updates exceeded the norm where, and only where, `spec` asks for it."""
    layout = schema.slices()

    def clip(updates: torch.Tensor) -> tuple[float, ...] | None:
        over = (float(clipping.count_over(updates, spec)),) if spec.counts else None
        clipping.clip_(updates, spec, layout)
        return over

    return clip
