"""Automatic clipping: every update has about the same length."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fieldfare.clipping.base import MARGIN, ClippingSpec, Norms, clippings, divide, where
from fieldfare.registry import NORM


@clippings.register
class Automatic(ClippingSpec):
    """v norm / (||v|| + stabiliser) (Bu et al. 2023, AUTO-S): `norm` sets only the scale. Zero stays zero."""

    kind: Literal["automatic"] = "automatic"
    stabiliser: float = Field(default=0.01, ge=0, description="keeps short updates short", json_schema_extra=NORM)

    def factors(self, norms: Norms) -> Norms:
        scaled: Norms = where(norms > 0, divide(self.norm * (1.0 - MARGIN), norms + self.stabiliser), 0.0)
        return scaled
