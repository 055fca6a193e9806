"""Noise mechanisms, one kind in each file. `build` makes one from a spec; `base.py` says what each offers."""

import importlib
import pkgutil

from fieldfare.factorization.sensitivity import Sensitivity
from fieldfare.mechanisms.base import About, Mechanism, MechanismSpec
from fieldfare.mechanisms.registry import build, describe, kinds, parse, register, spec

# Import every file of this folder, so that its specs register. To add a mechanism, add a file.
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
    "spec",
]
