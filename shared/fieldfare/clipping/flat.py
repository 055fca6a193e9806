"""Flat clipping: one norm for the whole update."""

from __future__ import annotations

from typing import Literal

import torch

from fieldfare.clipping.base import ClippingSpec, clippings, flat_factors


@clippings.register
class Flat(ClippingSpec):
    """v min(1, norm / ||v||) (Abadi et al. 2016; McMahan et al. 2018)."""

    kind: Literal["flat"] = "flat"

    def factors(self, norms: torch.Tensor) -> torch.Tensor:
        return flat_factors(self.norm, norms)
