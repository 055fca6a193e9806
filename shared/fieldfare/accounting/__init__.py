"""Sensitivity and noise in, privacy out: conversions, composition, charges and calibration.

The names are loaded on first use: a ledger that only adds up charges must not wait for mechanisms and torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fieldfare.accounting.calibrate import calibrate
    from fieldfare.accounting.charge import Amplification, amplification, charge_for, require_valid
    from fieldfare.accounting.gaussian import (
        gaussian_delta,
        gaussian_epsilon,
        gaussian_log_delta,
        gaussian_mu,
        zcdp_delta,
        zcdp_epsilon,
        zcdp_rho,
    )
    from fieldfare.accounting.loss import PrivacyLoss
    from fieldfare.accounting.poisson import PoissonGaussian

__all__ = [
    "Amplification",
    "PoissonGaussian",
    "PrivacyLoss",
    "amplification",
    "calibrate",
    "charge_for",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_log_delta",
    "gaussian_mu",
    "require_valid",
    "zcdp_delta",
    "zcdp_epsilon",
    "zcdp_rho",
]

_FILES = {
    "calibrate": "calibrate",
    "Amplification": "charge",
    "amplification": "charge",
    "charge_for": "charge",
    "require_valid": "charge",
    "PrivacyLoss": "loss",
    "PoissonGaussian": "poisson",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_FILES.get(name, 'gaussian')}"), name)
    # Importing `calibrate` bound the module to the function's name.
    globals()[name] = value
    return value
