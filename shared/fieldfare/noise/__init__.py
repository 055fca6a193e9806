"""Noise: a secure source of standard normals, and of discrete Gaussians, fixed by a key."""

from fieldfare.noise.chunks import CHUNK
from fieldfare.noise.drawer import UNIT, Drawer
from fieldfare.noise.secure import NEWEST_MAP, Map, SecureNoise, Source

__all__ = ["CHUNK", "NEWEST_MAP", "UNIT", "Drawer", "Map", "SecureNoise", "Source"]
