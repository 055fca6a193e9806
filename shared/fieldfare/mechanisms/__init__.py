"""Noise mechanisms, one a file. `build` makes one from a spec; see `base.py` for what each offers."""

import importlib
import pkgutil

from fieldfare.mechanisms.base import About, Mechanism, MechanismSpec, Sensitivity
from fieldfare.mechanisms.registry import build, describe, kinds, parse, register

# Every file in this folder is imported, so that its specs register: to add a mechanism, add a file.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = [
    "About",
    "Mechanism",
    "MechanismSpec",
    "Sensitivity",
    "build",
    "describe",
    "kinds",
    "parse",
    "register",
]
