"""Noise mechanisms, one kind in each file. `build` makes one from a spec; `base.py` says what each offers.

Example:
    >>> import fieldfare as ff
    >>> "blt" in ff.mechanisms.kinds(), ff.mechanisms.spec("nu").__name__
    (True, 'NuSpec')
    >>> mechanism = ff.mechanisms.build({"kind": "nu", "nu": 0.01}, rounds=4)
    >>> mechanism.noising_matrix(2).round(3)
    array([[ 1.   ,  0.   ],
           [-0.487,  1.   ]])
    >>> mechanism.row_norms().round(3)
    array([1.   , 1.112, 1.121, 1.122])
"""

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
