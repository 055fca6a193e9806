"""Noise: a secure source of standard normals, and of discrete Gaussians, fixed by a key."""

from fieldfare.noise.chunks import CHUNK
from fieldfare.noise.drawer import UNIT, Drawer
from fieldfare.noise.secure import SecureNoise, Source

__all__ = ["CHUNK", "UNIT", "Drawer", "SecureNoise", "Source"]
