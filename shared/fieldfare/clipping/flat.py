"""Flat clipping: one norm for the whole update."""

from __future__ import annotations

from typing import Literal

from fieldfare.clipping.base import ClippingSpec, clippings


@clippings.register
class Flat(ClippingSpec):
    """v min(1, norm / ||v||) (Abadi et al. 2016; McMahan et al. 2018)."""

    kind: Literal["flat"] = "flat"
