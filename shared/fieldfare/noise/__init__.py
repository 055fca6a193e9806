"""Noise: a secure source of standard normals, its drawers, and discrete Gaussian sampling."""

from fieldfare.noise.secure import (
    CHUNK,
    UNIT,
    AesDrawer,
    Drawer,
    SecureNoise,
    Source,
    bytes_of_zeros,
    empty,
    in_chunks,
    scratch,
    zeros,
)

__all__ = [
    "CHUNK",
    "UNIT",
    "AesDrawer",
    "Drawer",
    "SecureNoise",
    "Source",
    "bytes_of_zeros",
    "empty",
    "in_chunks",
    "scratch",
    "zeros",
]
