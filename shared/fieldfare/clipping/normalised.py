"""Normalised clipping: flat, in units of the clip norm."""

from __future__ import annotations

from typing import Literal

import torch

from fieldfare.clipping.base import ClippingSpec, clippings, flat_factors


@clippings.register
class Normalised(ClippingSpec):
    """(v / norm) min(1, norm / ||v||) (De et al. 2022): norm at most 1, so `norm` does not set the step."""

    kind: Literal["normalised"] = "normalised"

    @property
    def bound(self) -> float:
        return 1.0

    def factors(self, norms: torch.Tensor) -> torch.Tensor:
        return flat_factors(self.norm, norms) / self.norm
