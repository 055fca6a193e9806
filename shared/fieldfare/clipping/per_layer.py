"""Per-layer clipping: a norm for each layer, all of them together at most the plan's norm."""

from __future__ import annotations

import itertools
import math
from typing import Literal, Self

from pydantic import Field

from fieldfare.clipping.base import ClippingSpec, Layout, clippings


@clippings.register
class PerLayer(ClippingSpec):
    """Each layer l is clipped flat to norm x w_l, sum of w_l^2 = 1, so the whole has norm at most `norm`.

    `weighting`: "equal", w_l = 1 / sqrt(layers) (McMahan et al. 2018); "size", w_l = sqrt(d_l / d).
    """

    kind: Literal["per-layer"] = "per-layer"
    weighting: Literal["equal", "size"] = Field(
        default="equal", description="share of the norm of a layer: the same for all, or by its number of parameters"
    )

    def blocks(self, layout: Layout, numel: int) -> tuple[tuple[slice, Self], ...]:
        layers = [layer for layer in layout if layer.stop > layer.start]
        sizes = [layer.stop - layer.start for layer in layers]
        # A coordinate in no layer, or in two, would escape the bound.
        covered = layers and layers[0].start == 0 and layers[-1].stop == numel
        if not covered or any(a.stop != b.start for a, b in itertools.pairwise(layers)):
            raise ValueError(f"layout {layout!r} does not cover a vector of {numel} coordinates in order")
        shares = [1.0 / len(sizes) if self.weighting == "equal" else size / numel for size in sizes]
        return tuple(
            (layer, self.model_copy(update={"norm": self.norm * math.sqrt(share)}))
            for layer, share in zip(layers, shares, strict=True)
        )
