"""Noise mechanisms, one a file. `build` makes one from a spec; see `base.py` for what each offers."""

from fieldfare.mechanisms.base import HorizonError, Mechanism, MechanismSpec, Sensitivity, Stream
from fieldfare.mechanisms.registry import build, kinds, parse, register

__all__ = [
    "HorizonError",
    "Mechanism",
    "MechanismSpec",
    "Sensitivity",
    "Stream",
    "build",
    "kinds",
    "parse",
    "register",
]
