"""Clipping rules, one a file."""

from fieldfare.clipping.rules import (
    MARGIN,
    AdaptiveQuantile,
    Automatic,
    ClippingSpec,
    Flat,
    Layout,
    Normalised,
    PerLayer,
    clip_,
    clippings,
    count_over,
    norms,
    parse,
)

__all__ = [
    "MARGIN",
    "AdaptiveQuantile",
    "Automatic",
    "ClippingSpec",
    "Flat",
    "Layout",
    "Normalised",
    "PerLayer",
    "clip_",
    "clippings",
    "count_over",
    "norms",
    "parse",
]
